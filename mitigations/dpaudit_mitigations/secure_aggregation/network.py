"""A round among processes: the aggregator serves, contributors call it, over mutual TLS.

Each stage is one call: a contributor sends its message and is answered when the stage closes, that
is, when all have answered or the stage has timed out. Whoever dies, is late or sends something
broken is out of the round; the round continues while the threshold is met. The aggregator is not
trusted: contributors have the terms from their own operators and each other's keys from the
authority in their own folders, and they check every list they receive.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
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
    "Gathering",
    "Stage",
    "aggregate_round",
    "contribute_round",
]

_MARGIN = 300.0  # seconds past a stage's deadline to make and write the sum; then waiters give up


class Stage:
    """One stage: each of the parties ``asked`` owes one message before it closes.

    A party that sends something broken, or disconnects, is out of this stage and of all that
    follow. A second message while or after the first is taken is refused; the first counts.
    """

    def __init__(
        self,
        name: str,
        parties: Collection[str],
        *,
        take: Callable[[str, Any], None],
        seconds: float,
    ) -> None:
        """``take(party, message)`` runs in one thread at a time; its error goes to the sender."""
        self.name = name
        self._take = take
        self._deadline = time.monotonic() + seconds
        self._changed = threading.Condition()
        self._due, self._sending, self._senders = set(parties), set[str](), set[str]()
        self._closed = False
        self._answers: Mapping[str, bytes] | None = None
        self._error: ProtocolError | None = None

    def begin(self, party: str) -> None:
        """``party`` is about to send; called before its message is read.

        Raises:
            MessageError: nothing is due from it: not asked, dropped, or sending a second time.
        """
        with self._changed:
            if self._closed or party not in self._due:
                second = (
                    "a second time"
                    if party in self._sending | self._senders
                    else "too late or unasked"
                )
                raise MessageError(f"stage {self.name}: {party} sends {second}")
            self._due.remove(party)
            self._sending.add(party)

    def drop(self, party: str) -> None:
        """``party``'s message failed: nobody waits for it any longer."""
        with self._changed:
            self._sending.discard(party)
            self._changed.notify_all()

    def hand_in(self, party: str, message: Any) -> None:
        """Take the message of ``party``, which has begun.

        Raises:
            MessageError: the stage was closed in the meantime.
            ProtocolError: what ``take`` raised.
        """
        with self._changed:
            if self._closed:
                raise MessageError(f"stage {self.name}: {party} came too late; it is dropped")
            try:
                self._take(party, message)
                self._senders.add(party)
            finally:
                self._sending.discard(party)
                self._changed.notify_all()

    def await_answer(self, party: str) -> bytes:
        """Wait until the stage is answered; return the answer for ``party``.

        Raises:
            ProtocolError: why the round ended.
        """
        with self._changed:
            self._changed.wait_for(
                lambda: self._answers is not None or self._error is not None,
                self._time_left() + _MARGIN,
            )
            if self._error is not None:
                raise type(self._error)(str(self._error))
            if self._answers is None or party not in self._answers:
                raise PeerError(f"stage {self.name}: has no answer for {party}")
            return self._answers[party]

    @contextmanager
    def closing(self, note: Callable[[set[str]], None]) -> Iterator[None]:
        """Close the stage when all have sent or time is up; ``note`` gets the parties that sent.

        No message is taken inside the ``with`` block.
        """
        with self._changed:
            self._changed.wait_for(lambda: not self._due and not self._sending, self._time_left())
            self._closed = True
            note(set(self._senders))
            yield

    def answer(self, answers: Mapping[str, bytes]) -> None:
        """Answer every party whose message was taken."""
        with self._changed:
            self._answers = answers
            self._changed.notify_all()

    def fail(self, error: ProtocolError) -> None:
        """End the round for everybody who waits. Does nothing to a stage that was answered."""
        with self._changed:
            self._closed = True
            if self._answers is None:
                self._error = error
                self._changed.notify_all()

    def _time_left(self) -> float:
        return max(0.0, self._deadline - time.monotonic())


class Gathering:
    """The stages of one round in order, as a server's handlers: one per name in ``stages``."""

    def __init__(self, stages: Mapping[str, Callable[[Iterator[bytes]], Any]]) -> None:
        """``stages`` maps a stage's name to the function that reads a party's message."""
        self._read = dict(stages)
        self._lock = threading.Lock()
        self._stage: Stage | None = None
        self._over: ProtocolError | None = None

    @property
    def handlers(self) -> dict[str, Handler]:
        """By method name, for ``transport.server.serve``."""
        return {name: self._handler(name) for name in self._read}

    def open(self, stage: Stage) -> Stage:
        """Make ``stage`` the current one. Call it before the previous one is answered."""
        with self._lock:
            self._stage = stage
        return stage

    def fail(self, error: ProtocolError) -> None:
        """End the round for everybody, waiting now or calling later."""
        with self._lock:
            self._over, stage = error, self._stage
        if stage is not None:
            stage.fail(error)

    def _handler(self, name: str) -> Handler:
        def handle(peer: str, request: Iterator[bytes]) -> Iterator[bytes]:
            with self._lock:
                stage, over = self._stage, self._over
            if over is not None:
                raise type(over)(str(over))
            if stage is None or stage.name != name:
                raise MessageError(f"stage {name}: is not the round's current stage")
            stage.begin(peer)
            try:
                message = self._read[name](request)
                _nothing_more(request, name)
            except BaseException:
                stage.drop(peer)
                raise
            stage.hand_in(peer, message)
            del message  # it may be large, and the wait long
            yield stage.await_answer(peer)

        return handle


def _nothing_more(request: Iterator[bytes], name: str) -> None:
    if next(request, None) is not None:
        raise MessageError(f"stage {name}: a message after the last one")


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
        run.gathering.handlers,
        identity=identity,
        address=address,
        peers=terms.parties,
        limits=Limits(
            concurrent=len(terms.parties) + 4, timeout=max(join_timeout, stage_timeout) + 600
        ),
        log=log,
    ) as server:
        listening(server.address)
        try:
            return run.run(join_timeout, stage_timeout)
        except ProtocolError as error:
            journal.advance(terms.round, "open", "lost")
            log("lost", release=terms.round, reason=str(error))
            run.gathering.fail(error)
            raise
        except BaseException:
            run.gathering.fail(PeerError("the aggregator stopped"))
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
        self._hub = RoundServer(terms, authority=identity.authority)
        self._terms, self._journal, self._out, self._log = terms, journal, out, log
        readers = dict.fromkeys(("join", *STAGES), _only_message)
        self.gathering = Gathering({**readers, "mask": self._vector})

    def run(self, join_timeout: float, stage_timeout: float) -> Published:
        stage: Stage | None = None
        outbox: Mapping[str, Any] = {}
        while not self._hub.done:
            seconds = join_timeout if stage is None else stage_timeout
            following = self.gathering.open(
                Stage(self._hub.stage, self._hub.expected, take=self._take, seconds=seconds)
            )
            if stage is not None:
                stage.answer(outbox)
            stage = following
            senders = set(self._hub.expected)
            with stage.closing(partial(self._log_dropped, stage.name, senders)):
                outbox = self._hub.step({})
                if self._hub.release is not None:
                    published = self._publish(self._hub.release)
        assert stage is not None  # noqa: S101 - the stage join comes first
        stage.answer(outbox)
        return published

    def _take(self, party: str, message: Any) -> None:
        self._hub.step({party: message})

    def _vector(self, request: Iterator[bytes]) -> npt.NDArray[Any]:
        return read_vector(request, kind=VECTOR_KIND, **self._hub.plan.vector)

    def _log_dropped(self, stage: str, expected: set[str], senders: set[str]) -> None:
        name, reason = self._terms.round, "sent no usable message"
        for party in sorted(expected - senders):
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
