"""Noise that a forked child shares with its parent."""

from __future__ import annotations

from dpaudit.audit.battery.repeats import WindowTable, poisson_tail
from dpaudit.claims import Claim
from dpaudit.protocols import Block, Stream
from dpaudit.types import Evidence

__all__ = ["Forks"]

_PAIRS = 16
CHILD = -1


class Forks:
    """Compares what a forked child drew (process −1) with what its parent drew next (process 0).

    Null: the child draws its own noise; the number of windows seen on both sides of one call is at
    most Poisson as in :class:`~dpaudit.audit.battery.repeats.WindowTable`. Advisory, because every
    fork copies a generator kept in memory and reseeding may be the caller's duty: not a finding
    about the law. Not claimed: anything about forks at other moments than the first 16 that were
    tried.
    """

    looks_at = "state shared over fork"
    harm = "reuse"
    advisory = True
    compares_processes = True

    def __init__(self, claim: Claim, stream: Stream) -> None:
        self._table = WindowTable(claim, stream)
        self._child: Block | None = None
        self._pairs = 0

    def update(self, block: Block) -> None:
        if block.process == CHILD:
            self._child = block
        elif self._child is not None:
            child, self._child = self._child, None
            if block.process == 0 and block.call == child.call and self._pairs < _PAIRS:
                self._table.add(child)
                self._table.add(block)
                self._pairs += 1

    def evidence(self, *, alpha: float) -> Evidence:
        del alpha
        if not self._pairs:
            return Evidence(p=1.0, statistic=0.0, effect="nothing was drawn over a fork")
        shared, expected = [], 0.0
        for calls in (True, False):
            shared += [r for r in self._table.repeats(calls=calls)[1] if r.across_processes]
            expected += self._table.expected(calls=calls)
        effect = f"{self._pairs} forks, no noise in common"
        details = {}
        if shared:
            effect = (
                f"parent and child share noise ({len(shared):,} windows): state shared over fork; "
                "reseed in the child, e.g. with os.register_at_fork(after_in_child=…), "
                "or draw from the operating system"
            )
            details = {"first": dict(shared[0].first), "again": dict(shared[0].again)}
        p = poisson_tail(len(shared), expected)
        return Evidence(p=p, statistic=float(len(shared)), effect=effect, details=details)
