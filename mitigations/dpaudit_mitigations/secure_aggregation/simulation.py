"""A whole round in this process, with the state machines of real processes; it counts all bytes."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TypeVar

from dpaudit.errors import UsageError
from dpaudit.protocols import Stream
from dpaudit_mitigations.secure_aggregation.client import Client
from dpaudit_mitigations.secure_aggregation.keys import new_signing_key, public_bytes
from dpaudit_mitigations.secure_aggregation.plan import (
    ROUND_BYTES,
    Plan,
    RingArray,
    least_threshold,
)
from dpaudit_mitigations.secure_aggregation.server import Aggregator, Stage
from dpaudit_mitigations.transport.vectors import VectorReader, vector_frames

__all__ = ["AGGREGATOR", "VECTOR_KIND", "Outcome", "party_names", "simulate"]

AGGREGATOR = "aggregator"
"""The aggregator's name in an outcome's ``sent`` and ``seconds``."""
VECTOR_KIND = "masked"
"""The kind of the frames that carry a masked vector; their session is the plan's digest."""

_STAGES = tuple(stage for stage in Stage if stage is not Stage.ENDED)

Made = RingArray | Callable[[], RingArray]
T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """The result of a round.

    ``total`` (length,) is the ring sum of the ``survivors``' vectors. ``sent`` are the bytes that
    each party and the aggregator sent, ``seconds`` the working time of each (framing and hashing
    included; they run one after the other).
    """

    total: RingArray = field(repr=False)
    survivors: tuple[str, ...]
    sent: Mapping[str, int]
    seconds: Mapping[str, float]

    @property
    def wire(self) -> int:
        """Bytes over all links."""
        return sum(self.sent.values())


def party_names(count: int) -> tuple[str, ...]:
    """``party-001`` and so on: the names of a simulation's parties, in their inputs' order."""
    return tuple(f"party-{i:03d}" for i in range(1, count + 1))


def simulate(
    inputs: Sequence[Made],
    *,
    length: int,
    bits: int,
    stream: Stream,
    threshold: int | None = None,
    colluding: int = 0,
    dropouts: Mapping[str, Collection[int]] | None = None,
    context: bytes = b"",
) -> Outcome:
    """One round with ``inputs[i]`` as party i's vector (length,), or a function that makes it.

    Vectors are masked in place. ``dropouts`` maps a stage (``advertise``, ``share``, ``mask``,
    ``confirm``, ``unmask``) to the parties, counted from 0, that stop responding before they send
    anything of it. ``threshold`` is the least allowed unless given. Keys come from ``stream`` (the
    coefficients of Shamir's polynomials always from the operating system).

    Raises:
        UsageError: vectors that do not fit, an unknown stage or party, or a plan that cannot be.
        ProtocolError: fewer parties than the threshold are left at some stage.
    """
    names = party_names(len(inputs))
    signing = {name: new_signing_key(stream.child("signing", name)) for name in names}
    if threshold is None:
        threshold = least_threshold(len(names), colluding=colluding)
    plan = Plan(
        round=stream.child("round").bytes(ROUND_BYTES),
        roster={name: public_bytes(key) for name, key in signing.items()},
        threshold=threshold,
        length=length,
        bits=bits,
        colluding=colluding,
        context=context,
    )
    clients = {
        n: Client(plan, n, signing_key=signing[n], stream=stream.child("party", n)) for n in names
    }
    return _Round(
        plan,
        clients,
        inputs=dict(zip(names, inputs, strict=True)),
        silent=_silent(dropouts or {}, names),
    ).run()


class _Round:
    def __init__(
        self,
        plan: Plan,
        clients: Mapping[str, Client],
        *,
        inputs: Mapping[str, Made],
        silent: Mapping[str, Stage],
    ) -> None:
        self.plan, self.clients, self.inputs, self.silent = plan, clients, inputs, silent
        self.server = Aggregator(plan)
        self.sent: dict[str, int] = defaultdict(int)
        self.seconds: dict[str, float] = defaultdict(float)

    def run(self) -> Outcome:
        server = self.server
        self._ask(lambda c, _: c.advertise(), lambda _: b"", server.take_advert)
        adverts = self._close(server.close_adverts)
        self._ask(Client.share_keys, lambda _: adverts, server.take_shares)
        envelopes = self._close(server.close_shares)
        self._vectors(envelopes)
        survivors = self._close(server.close_masked)
        self._ask(Client.confirm, lambda _: survivors, server.take_confirmation)
        confirmations = self._close(server.close_confirmations)
        self._ask(Client.unmask, lambda _: confirmations, server.take_unmasking)
        aggregate = self._close(server.finish)
        return Outcome(
            total=aggregate.total,
            survivors=aggregate.survivors,
            sent=dict(self.sent),
            seconds=dict(self.seconds),
        )

    def _ask(
        self,
        answer: Callable[[Client, bytes], bytes],
        told: Callable[[str], bytes],
        take: Callable[[str, bytes], None],
    ) -> None:
        """Send the stage's message to all asked, and take the answers of those still there."""
        for name in self._asked(told):
            with self._work(name):
                message = answer(self.clients[name], told(name))
            self.sent[name] += len(message)
            with self._work(AGGREGATOR):
                take(name, message)

    def _vectors(self, envelopes: Mapping[str, bytes]) -> None:
        dtype = self.plan.dtype.name
        for name in self._asked(envelopes.__getitem__):
            reader = VectorReader(
                kind=VECTOR_KIND,
                session=self.plan.digest,
                count=self.plan.length,
                dtype=dtype,
                bound=None,
            )
            with self._work(name):
                self.clients[name].open_envelopes(envelopes[name])
                made = self.inputs[name]
                vector = self.clients[name].masked_input(made() if callable(made) else made)
                frames = vector_frames(VECTOR_KIND, vector, session=self.plan.digest)
            while not reader.done:
                with self._work(name):
                    frame = next(frames)
                self.sent[name] += len(frame)
                with self._work(AGGREGATOR):
                    reader.take(frame)
            with self._work(AGGREGATOR):
                self.server.take_masked(name, reader.array)

    def _asked(self, told: Callable[[str], bytes]) -> Iterator[str]:
        stage = self.server.stage
        for name in self.server.expected:
            self.sent[AGGREGATOR] += len(told(name))
            if name not in self.silent or _STAGES.index(self.silent[name]) > _STAGES.index(stage):
                yield name

    def _close(self, close: Callable[[], T]) -> T:
        with self._work(AGGREGATOR):
            return close()

    @contextmanager
    def _work(self, who: str) -> Iterator[None]:
        start = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[who] += time.perf_counter() - start


def _silent(dropouts: Mapping[str, Collection[int]], names: Sequence[str]) -> dict[str, Stage]:
    """From which stage on each party that drops out does not respond."""
    out: dict[str, Stage] = {}
    for stage, parties in dropouts.items():
        if stage not in _STAGES:
            raise UsageError(f"dropouts at {stage!r}: takes {', '.join(_STAGES)}")
        for i in parties:
            if not 0 <= i < len(names):
                raise UsageError(f"dropouts of party {i}: takes 0 to {len(names) - 1}")
            if names[i] in out:
                raise UsageError(f"dropouts of party {i}: named at two stages; name the first")
            out[names[i]] = Stage(stage)
    return out
