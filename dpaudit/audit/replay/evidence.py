"""What the runs of a pipeline show: on a data set, and on its neighbours with the same noise."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from dpaudit.audit.mechanism.neighbour_search import Pair
from dpaudit.audit.options import Progress
from dpaudit.audit.replay.child import Child
from dpaudit.audit.replay.judge import Difference
from dpaudit.audit.replay.pairs import Pairs
from dpaudit.audit.replay.request import ReplayOptions
from dpaudit.errors import SamplerCrashError, SamplerError
from dpaudit.randomness import KeyedStream
from dpaudit.results.text import one_line

__all__ = ["Clock", "Drawing", "Evidence"]

_SHARE = 0.6
"""Share of the time limit for pairs; the rest is for new releases."""
_LONGER = 0.25
"""Seconds from which a run that takes ten times as long is told of."""
_SLOW = 2.0
"""Seconds of a run from which only the first notes its lines: that takes time too."""
_TOSSED, _TOSSES = 8, 3
"""Pairs that are run with other coins too, if coins choose what happens; and how often."""
_KEPT = 4
"""Recordings that the pipeline's process keeps."""


@dataclass(frozen=True)
class Clock:
    """The time limit of a replay, from now on."""

    limit: float
    started: float = field(default_factory=time.monotonic)

    def left(self, share: float = 1.0) -> float:
        """Seconds that are left of a share of the limit; negative once it is over."""
        return self.started + share * self.limit - time.monotonic()

    @property
    def run(self) -> float:
        """Seconds that a run may take: what is left, and a second at least."""
        return max(self.left(), 1.0)


@dataclass
class Evidence:
    """What the runs showed.

    ``tried`` are the pairs that were compared, by number, and ``moved`` how far inputs of
    primitives moved on each, in every run of it; several if ``coins`` choose what happens. ``died``
    are the pairs of which a run gave no answer, and why; ``own`` the differences that a replay of
    the same data set shows too; ``seeds`` the calls whose seed is the same in every run; ``late``
    says that the time was up before all pairs were tried.
    """

    about: Mapping[str, Any] = field(default_factory=dict)
    tried: dict[int, Pair] = field(default_factory=dict)
    moved: dict[int, list[list[dict[str, Any]]]] = field(default_factory=dict)
    differences: list[Difference] = field(default_factory=list)
    died: list[tuple[str, Pair]] = field(default_factory=list)
    own: set[tuple[str, str]] = field(default_factory=set)
    seeds: list[dict[str, Any]] = field(default_factory=list)
    calls: dict[tuple[str, str, str], dict[str, Any]] = field(default_factory=dict)
    lines: set[tuple[str, int]] = field(default_factory=set)
    notes: dict[str, None] = field(default_factory=dict)
    unseen: dict[str, None] = field(default_factory=dict)
    lost: dict[str, None] = field(default_factory=dict)
    booked: list[tuple[float, float]] = field(default_factory=list)
    changed: list[str] = field(default_factory=list)
    runs: int = 0
    draws: int = 0
    seconds: float = 0.0
    raised: str = ""
    late: bool = False
    coins: bool = False


@dataclass
class Drawing:
    """Records a pipeline on ``records``, and replays it on neighbours."""

    child: Child
    options: ReplayOptions
    records: list[Any]
    clock: Clock
    progress: Progress | None = None
    found: Evidence = field(default_factory=Evidence)
    _recorded: dict[str, dict[str, Any]] = field(default_factory=dict)

    def draw(self) -> Evidence:
        """Record, replay on the same data, then on neighbours until the pairs or the time is up.

        Raises:
            SamplerError: there is no run on the data set itself.
        """
        found, base, asked = self.found, tuple(self.records), self.options.pairs
        found.about = self.child.tell(
            "about", records=[dict(r) if isinstance(r, dict) else r for r in base],
            seed=self.options.seed, seconds=max(1.0, self.clock.left(_SHARE)),
        )  # fmt: skip
        first = self._record(base)
        if "died" in first:
            raise SamplerCrashError(f"pipeline {self.child.name}: {first['died']}; fix it")
        found.raised = one_line(first["raised"], limit=300)
        if any(call["seeded"] for call in first["calls"]):
            other = self._run(self.child.record, base, name="", seed="/", seconds=self.clock.run)
            found.seeds = [c for c in first["calls"] if c["seeded"] in _seeds(other)]
        if not first["raised"]:
            self._compare(Pair(base, base, "the data set itself"))
        rng = KeyedStream.from_seed(self.options.seed).child("replay").numpy()
        pairs = Pairs(self.records, self.options.neighbours, self.options.limits, rng)
        for pair in pairs:
            done = len(found.tried) + len(found.died)
            if done >= asked:
                break
            if self.clock.left(_SHARE) <= 0:
                found.late = True
                break
            if self.progress is not None:
                self.progress(done, asked)
            before = set(found.lines)
            self._compare(pair)
            if found.lines - before:
                pairs.reached(pair)
        if self.progress is not None:
            self.progress(asked, asked)
        return found

    @property
    def _quick(self) -> bool:
        """Whether runs are quick enough to note their lines."""
        return self.found.seconds < _SLOW

    def _record(self, base: tuple[Any, ...]) -> dict[str, Any]:
        key = repr(base)
        if key not in self._recorded:
            while len(self._recorded) >= _KEPT:
                del self._recorded[next(iter(self._recorded))]
            self._recorded[key] = self._run(
                self.child.record, base, name=key, seconds=self.clock.run, lines=self._quick
            )
        return self._recorded[key]

    def _compare(self, pair: Pair) -> None:
        """Replay a pair; what a data set shows beside itself is no difference of neighbours."""
        found, recorded = self.found, self._record(pair.first)
        result = recorded
        if "died" not in recorded:
            limit = min(max(20 * float(recorded["seconds"]), 10.0), self.clock.run)
            how: dict[str, Any] = {"of": repr(pair.first), "lines": self._quick}
            result = self._run(self.child.replay, pair.second, seconds=limit, **how)
        if "died" in result:
            which = "" if result is recorded else "; the run that was recorded gave one"
            found.died.append((f"{one_line(result['died'], limit=160)}{which}", pair))
            return
        differences = [*result["found"], *_repeated(result)]
        if pair.first is pair.second:
            found.own = {_what(d) for d in result["found"]}
            if found.own:
                what = ", ".join(sorted({f"{kind} ({where})" for kind, where in found.own})[:4])
                found.unseen[f"randomness or time outside the known primitives: {what}"] = None
            return
        times = sorted(float(run["seconds"]) for run in (recorded, result))
        if times[1] > 10 * times[0] and times[1] - times[0] > _LONGER:
            found.notes[f"a run took {times[1]:.2g} s, and {times[0]:.2g} s on a neighbour "
                        f"({pair.origin}): time may show the data"] = None  # fmt: skip
        number, selects = len(found.tried) + 1, bool(recorded["selects"] or result["selects"])
        found.tried[number], found.moved[number] = pair, [list(result["moved"])]
        if selects and number <= _TOSSED:
            differences += self._toss(pair, number, limit)
        found.differences += [
            Difference(d, pair, number, selects) for d in differences if _what(d) not in found.own
        ]

    def _toss(self, pair: Pair, number: int, limit: float) -> Iterator[dict[str, Any]]:
        """A pair again with other coins, which may choose other records; the differences."""
        self.found.coins = True
        for i in range(_TOSSES):
            if self.clock.left(_SHARE) <= 0:
                return
            seed = f"/coins {i}"
            self._run(self.child.record, pair.first, name="coins", seed=seed, seconds=limit)
            how: dict[str, Any] = {"of": "coins", "seed": seed, "seconds": limit, "lines": False}
            result = self._run(self.child.replay, pair.second, **how)
            if "died" in result:
                return
            self.found.moved[number].append(list(result["moved"]))
            yield from result["found"]

    def _run(
        self, run: Callable[..., dict[str, Any]], records: tuple[Any, ...], **how: Any
    ) -> dict[str, Any]:
        """One run, and what it shows whatever it is compared with."""
        found = self.found
        found.runs += 1
        try:
            result = run(records, **how)
        except SamplerError as error:  # the process of all runs is gone
            result = {"died": str(error)}
        if "died" in result:
            return result
        found.seconds = max(found.seconds, float(result["seconds"]))
        found.draws = max(found.draws, int(result["draws"]))
        found.lines |= {(file, line) for file, line in result["lines"]}
        found.notes.update(dict.fromkeys(result["notes"]))
        found.unseen.update(dict.fromkeys(one_line(u, limit=120) for u in result["unseen"]))
        found.changed = result["changed"] or found.changed
        found.booked = found.booked or [(float(e), float(d)) for e, d in result["booked"]]
        for call in result["calls"]:
            key = (call["name"], call["in"] or call["at"], call["law"])
            kept = found.calls.setdefault(key, {**call, "calls": 0})
            kept["calls"] = max(kept["calls"], int(call["call"]) + 1)
        lost = (f"{e['name']} at {e['in'] or e['at']}" for e in result["lost"])
        found.lost.update(dict.fromkeys(lost))
        return result


def _seeds(told: Mapping[str, Any]) -> set[str]:
    return {call["seeded"] for call in told.get("calls", ()) if call["seeded"]}


def _what(found: Mapping[str, Any]) -> tuple[str, str]:
    return found["kind"], str(found.get("path") or found["at"])


def _repeated(result: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    for one in result["repeats"]:
        yield {
            "kind": "reuse", "name": one["name"], "at": one["at"], "in": one["in"],
            "call": one["call"], "path": "again", "first": f"the numbers of {one['other']}",
            "second": "the same numbers",
        }  # fmt: skip
