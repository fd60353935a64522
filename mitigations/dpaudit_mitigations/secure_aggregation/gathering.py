"""Stages of a round among threads: parties send, wait, and are answered when the stage closes."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from dpaudit.errors import MessageError, PeerError, ProtocolError
from dpaudit_mitigations.transport.server import Handler

__all__ = ["Gathering", "Stage"]

_MARGIN = 300.0  # seconds past a stage's deadline to make and write the sum; then waiters give up


class Stage:
    """One stage: each of the parties ``asked`` owes one message before it closes.

    A party that sends something broken, or disconnects, is out of this stage and of all that
    follow. A second message while or after the first is taken is refused; the first counts.
    """

    def __init__(
        self, name: str, asked: Collection[str], *, take: Callable[[str, Any], None], seconds: float
    ) -> None:
        """``take(party, message)`` runs in one thread at a time; its error goes to the sender."""
        self.name = name
        self._take = take
        self._deadline = time.monotonic() + seconds
        self._changed = threading.Condition()
        self._due, self._begun, self._came = set(asked), set[str](), set[str]()
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
                    "a second time" if party in self._begun | self._came else "too late or unasked"
                )
                raise MessageError(f"stage {self.name}: {party} sends {second}")
            self._due.remove(party)
            self._begun.add(party)

    def drop(self, party: str) -> None:
        """``party``'s message failed: nobody waits for it any longer."""
        with self._changed:
            self._begun.discard(party)
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
                self._came.add(party)
            finally:
                self._begun.discard(party)
                self._changed.notify_all()

    def await_answer(self, party: str) -> bytes:
        """Wait until the stage is answered; return the answer for ``party``.

        Raises:
            ProtocolError: why the round ended.
        """
        with self._changed:
            self._changed.wait_for(
                lambda: self._answers is not None or self._error is not None, self._left() + _MARGIN
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
            self._changed.wait_for(lambda: not self._due and not self._begun, self._left())
            self._closed = True
            note(set(self._came))
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

    def _left(self) -> float:
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
