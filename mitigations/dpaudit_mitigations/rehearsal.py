"""A protocol's parties in one process: each with its own code, messages as bytes, all counted."""

from __future__ import annotations

import itertools
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from dpaudit.errors import PeerError
from dpaudit.protocols import Hub, Message, Party

__all__ = ["Link", "Meter", "converse", "gather"]

Link = Callable[[str, bytes], bytes | None]
"""What happens to a message in transit: (sender, message) to what arrives, None if nothing does."""


class Meter:
    """The bytes that each party sent, and the seconds that each worked, one after the other."""

    def __init__(self, link: Link | None = None) -> None:
        """Messages travel over ``link``, which may lose or change them; by default they arrive."""
        self._link = link or (lambda _, message: message)
        self.sent: dict[str, int] = defaultdict(int)
        self.seconds: dict[str, float] = defaultdict(float)

    @property
    def wire(self) -> int:
        """Bytes over all links."""
        return sum(self.sent.values())

    @contextmanager
    def working(self, party: str) -> Iterator[None]:
        """Count the time in the block as work of ``party``."""
        started = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[party] += time.perf_counter() - started

    def carry(self, sender: str, message: bytes) -> bytes:
        """What arrives of ``message``.

        Raises:
            PeerError: nothing does.
        """
        self.sent[sender] += len(message)
        arrived = self._link(sender, message)
        if arrived is None:
            raise PeerError(f"{sender}: sent nothing in time")
        return arrived


def converse(parties: Mapping[str, Party], *, meter: Meter) -> None:
    """Let two parties, by name, answer each other, the first beginning, until one has no answer."""
    message: Any = None
    for name, party in itertools.cycle(parties.items()):
        with meter.working(name):
            message = party.step(message)
        if message is None:
            return
        message = meter.carry(name, message)


def gather(
    hub: Hub,
    parties: Mapping[str, Party],
    *,
    meter: Meter,
    name: str,
    carry: Callable[[str, Message], Message],
) -> None:
    """Let ``hub``, called ``name``, and its parties go through their stages until the hub is done.

    In each stage all that are expected answer, in order; then the stage closes. Who has no answer
    has left. ``carry(party, message)`` gives what arrives of a party's message, as
    :meth:`Meter.carry` does of bytes.
    """
    inbox: Mapping[str, bytes | None] = dict.fromkeys(parties)
    while not hub.done:
        for party in hub.expected:
            message = inbox[party]
            arrived = None if message is None else meter.carry(name, message)
            with meter.working(party):
                answer = parties[party].step(arrived)
            if answer is not None:
                delivered = carry(party, answer)
                with meter.working(name):
                    hub.step({party: delivered})
        with meter.working(name):
            inbox = hub.step({})
