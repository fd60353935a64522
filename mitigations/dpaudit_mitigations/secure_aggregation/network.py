"""A round among processes: the aggregator serves, contributors call it, over mutual TLS.

Each stage is one call: a contributor sends its message and is answered when the stage closes, that
is, when all have answered or the stage has timed out. Whoever dies, is late or sends something
broken is out of the round; the round continues while the threshold is met. The aggregator is not
trusted: contributors have the terms from their own operators and each other's keys from the
authority in their own folders, and they check every list they receive.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy.typing as npt

from dpaudit.errors import MessageError, PeerError, ProtocolError, UsageError
from dpaudit.protocols import Stream
from dpaudit_mitigations.secure_aggregation.client import Contributor, RoundReceipt
from dpaudit_mitigations.secure_aggregation.server import STAGES, RoundServer, Sum
from dpaudit_mitigations.secure_aggregation.terms import RoundTerms
from dpaudit_mitigations.secure_aggregation.wire import VECTOR_KIND
from dpaudit_mitigations.transport.certificates import Identity
from dpaudit_mitigations.transport.connection import Log, ask, follow, logger
from dpaudit_mitigations.transport.journal import Journal, durable_write, file_digest
from dpaudit_mitigations.transport.server import Handler, Limits, serve
from dpaudit_mitigations.transport.vectors import read_vector

__all__ = [
    "AGGREGATOR_JOURNAL",
    "CONTRIBUTOR_JOURNAL",
    "HubServer",
    "aggregate_round",
    "contribute_round",
]

_MARGIN = 300.0  # seconds past a stage's deadline to make and write the sum; then waiters give up


class HubServer:
    """Lets the parties that call talk to a hub: one handler per stage, answered when it closes.

    A party that sends something broken, or disconnects, is out of this stage and of all that
    follow. A second message while or after the first is taken is refused; the first counts.
    """

    def __init__(
        self, hub: RoundServer, readers: Mapping[str, Callable[[Iterator[bytes]], Any]]
    ) -> None:
        """``readers`` maps a stage's name to the function that reads a party's message."""
        self.hub, self._readers = hub, readers
        self._changed = threading.Condition()  # guards the hub and all below
        self._begun, self._failed = set[str](), set[str]()  # parties, in this stage
        self._deadline = math.inf
        self._answers: dict[str, Mapping[str, bytes]] = {}
        self._error: ProtocolError | None = None

    @property
    def handlers(self) -> dict[str, Handler]:
        """By method name, for ``transport.server.serve``."""
        return {name: self._handler(name) for name in self._readers}

    @contextmanager
    def closing(
        self, seconds: float, note: Callable[[str, Collection[str]], None]
    ) -> Iterator[None]:
        """Close the stage when all have sent or time is up; its answers go out after the block.

        ``note(stage, parties)`` gets those that sent nothing usable. No message is taken meanwhile.
        """
        with self._changed:
            stage, self._deadline = self.hub.stage, time.monotonic() + seconds
            self._changed.wait_for(self.complete, seconds)
            note(stage, self.hub.expected)
            answers = self.hub.step({})
            self._begun, self._failed, self._deadline = set(), set(), math.inf
            yield
            self._answers[stage] = answers
            self._changed.notify_all()

    def complete(self) -> bool:
        """Whether nobody is waited for in this stage."""
        return self._failed.issuperset(self.hub.expected)

    def fail(self, error: ProtocolError) -> None:
        """End the round for everybody, waiting now or calling later."""
        with self._changed:
            self._error = error
            self._changed.notify_all()

    def _handler(self, stage: str) -> Handler:
        def handle(peer: str, request: Iterator[bytes]) -> Iterator[bytes]:
            self._begin(stage, peer)
            try:
                message = self._readers[stage](request)
                if next(request, None) is not None:
                    raise MessageError(f"stage {stage}: a message after the last one")
                self._take(stage, peer, message)
            except BaseException:
                self._drop(stage, peer)
                raise
            del message  # it may be large, and the wait long
            yield self._await_answer(stage, peer)

        return handle

    def _begin(self, stage: str, party: str) -> None:
        with self._changed:
            self._check_open(stage, party)
            if party in self._begun:
                raise MessageError(f"stage {stage}: {party} sends a second time")
            if party not in self.hub.expected:
                raise MessageError(f"stage {stage}: {party} is not asked")
            self._begun.add(party)

    def _take(self, stage: str, party: str, message: Any) -> None:
        with self._changed:
            self._check_open(stage, party)
            self.hub.step({party: message})
            self._changed.notify_all()

    def _drop(self, stage: str, party: str) -> None:
        """``party``'s message failed: nobody waits for it any longer."""
        with self._changed:
            if self.hub.stage == stage:
                self._failed.add(party)
                self._changed.notify_all()

    def _check_open(self, stage: str, party: str) -> None:
        if self._error is not None:
            raise type(self._error)(str(self._error))
        if self.hub.stage != stage:
            raise MessageError(f"stage {stage}: {party} came too late or too early; it is dropped")

    def _await_answer(self, stage: str, party: str) -> bytes:
        with self._changed:
            self._changed.wait_for(
                lambda: stage in self._answers or self._error is not None,
                min(self._deadline - time.monotonic() + _MARGIN, threading.TIMEOUT_MAX),
            )
            if stage not in self._answers and self._error is not None:
                raise type(self._error)(str(self._error))
            if party not in self._answers.get(stage, ()):
                raise PeerError(f"stage {stage}: has no answer for {party}")
            return self._answers[stage][party]


AGGREGATOR_JOURNAL = "secure-aggregation/aggregator"
CONTRIBUTOR_JOURNAL = "secure-aggregation/contributor"
"""Kinds of the two journals."""

_FLUSH = 5.0  # seconds in which the last answers reach the contributors


@dataclass(frozen=True, kw_only=True)
class Published(RoundReceipt):
    """The aggregator's own: the file ``path`` with the sum of the ``survivors``' vectors."""

    path: Path


def aggregate_round(
    identity: Identity,
    *,
    terms: RoundTerms,
    address: str,
    journal: Journal,
    out: Path,
    join_timeout: float,
    stage_timeout: float,
    listening: Callable[[str], None] = lambda _: None,
) -> Published:
    """Serve one round at ``address``; publish the sum, float64 (length,), once as ``out`` (.npy).

    ``listening`` is called with the address as soon as contributors may call. ``join_timeout`` is
    how many seconds to wait for all parties, ``stage_timeout`` the same for each later stage.
    ``journal`` is of kind ``AGGREGATOR_JOURNAL``: a round that it holds as published is returned
    again, an interrupted one is refused.

    Raises:
        ProtocolError: fewer parties than the threshold, or than 3, stayed; or their messages give
            no sum. Nothing is published.
        UsageError: the round was interrupted before, or the address, journal or file cannot be
            used.
    """
    done = _before(journal, terms.round, out)
    if done is not None:
        return done
    journal.advance(terms.round, None, "open", terms=terms.digest.hex())
    log = logger(identity.name)
    run = _Aggregation(identity, terms, journal, out, log)
    with serve(
        run.server.handlers,
        identity=identity,
        address=address,
        peers=terms.parties,
        limits=Limits(
            concurrent=len(terms.parties) + 4, timeout=max(join_timeout, stage_timeout) + 600
        ),
        log=log,
    ) as server:
        try:
            listening(server.address)
            return run.run(join_timeout, stage_timeout)
        except ProtocolError as error:
            run.server.fail(error)  # first: who waits must not wait on if the journal fails
            journal.advance(terms.round, "open", "lost")
            log("lost", release=terms.round, reason=str(error))
            raise
        except BaseException:
            run.server.fail(PeerError("the aggregator stopped"))
            raise
        finally:
            server.stop(_FLUSH)


def contribute_round(
    values: npt.NDArray[Any],
    *,
    identity: Identity,
    terms: RoundTerms,
    address: str,
    aggregator: str,
    journal: Journal,
    stream: Stream,
    patience: float,
) -> RoundReceipt:
    """Take part in a round with ``values`` (length,) plus this party's noise; wait for its end.

    ``stream`` must be fresh and secret (``KeyedStream.fresh()``): noise and keys come from it. They
    are held in memory only, so a restarted contributor is a drop-out; ``journal``, of kind
    ``CONTRIBUTOR_JOURNAL``, makes it refuse a round that it took part in before: two sums over the
    same values reveal more than one. ``patience`` is the most seconds that one stage may take,
    including the wait for the others.

    Raises:
        UsageError: values that do not fit, a party not of this round, or a round taken part in
            before.
        ProtocolError: the aggregator or another party broke the protocol or died, or too few
            stayed.
    """
    name = identity.name
    if name not in terms.parties:
        raise UsageError(f"identity={name}: not a party of this round; add it for every party")
    known = journal.state(terms.round)
    if known is not None:
        raise UsageError(f"round={terms.round}: {name} already took part ({known})")
    vector = terms.encode(values, stream=stream.child("noise"))
    party = Contributor(terms, identity=identity, vector=vector, stream=stream, journal=journal)
    options = {"identity": identity, "peer": aggregator, "timeout": patience, "idle": patience}
    follow(party, lambda method, messages: ask(address, method, messages, **options))
    assert party.receipt is not None  # noqa: S101 - the last message made it
    return party.receipt


class _Aggregation:
    """One round on the aggregator's side."""

    def __init__(
        self, identity: Identity, terms: RoundTerms, journal: Journal, out: Path, log: Log
    ) -> None:
        hub = RoundServer(terms, authority=identity.authority)
        self._terms, self._journal, self._out, self._log = terms, journal, out, log
        readers = dict.fromkeys(("join", *STAGES), _only_message)
        self.server = HubServer(hub, {**readers, "mask": self._vector})

    def run(self, join_timeout: float, stage_timeout: float) -> Published:
        hub, seconds = self.server.hub, join_timeout
        while not hub.done:
            with self.server.closing(seconds, self._log_dropped):
                if hub.release is not None:
                    published = self._publish(hub.release)
            seconds = stage_timeout
        return published

    def _vector(self, request: Iterator[bytes]) -> npt.NDArray[Any]:
        return read_vector(request, kind=VECTOR_KIND, **self.server.hub.plan.vector)

    def _log_dropped(self, stage: str, dropped: Collection[str]) -> None:
        name, reason = self._terms.round, "sent no usable message"
        for party in sorted(dropped):
            self._log("dropped", peer=party, method=stage, release=name, reason=reason)

    def _publish(self, release: Sum) -> Published:
        """Record what will be published, write the file, then record that it is published."""
        name, survivors = self._terms.round, release.survivors
        facts = {"sha256": release.sha256, "survivors": list(survivors), "out": str(self._out)}
        self._journal.advance(name, "open", "publishing", **facts)
        durable_write(self._out, release.parts, replace=False)
        self._journal.advance(name, "publishing", "published")
        self._log(
            "published",
            release=name,
            reason=f"{len(survivors)} of {len(self._terms.parties)} parties are in the sum",
        )
        return Published(path=self._out, survivors=survivors, sha256=release.sha256)


def _before(journal: Journal, name: str, out: Path) -> Published | None:
    """What an earlier run published of the round; None if there was no earlier run."""
    state, facts = journal.state(name), journal.facts(name)
    if state is None:
        if out.exists():
            raise UsageError(f"out={out}: exists already; choose another file")
        return None
    if state == "publishing":  # killed right before or after the file got its name
        there = file_digest(Path(facts["out"])) == bytes.fromhex(facts["sha256"])
        journal.advance(name, state, "published" if there else "lost")
        state = "published" if there else "lost"
    if state == "published":
        return Published(
            path=Path(facts["out"]), survivors=tuple(facts["survivors"]), sha256=facts["sha256"]
        )
    if state == "open":
        journal.advance(name, state, "lost")
    raise UsageError(f"round={name}: was interrupted and published nothing; agree on a new round")


def _only_message(request: Iterator[bytes]) -> bytes:
    message = next(request, None)
    if message is None:
        raise MessageError("no message arrived")
    return message
