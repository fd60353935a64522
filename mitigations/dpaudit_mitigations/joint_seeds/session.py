"""Both parties in this process, each with its own code; a ``link`` may lose or change frames."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from dpaudit.errors import PeerError, ProtocolError
from dpaudit_mitigations.joint_seeds.record import SignedChain
from dpaudit_mitigations.joint_seeds.server import SeedServer
from dpaudit_mitigations.joint_seeds.verifier import Verifier

__all__ = ["Link", "SeedSession", "run_session"]

T = TypeVar("T")

Link = Callable[[str, bytes], bytes | None]
"""What happens to a frame in transit: (sender, frame) to what arrives, or None if nothing does."""


@dataclass(frozen=True, kw_only=True)
class SeedSession:
    """How a session ended: ``complete``, ``caught`` or ``aborted``.

    Only a complete one has a ``release``, float64 (d,). ``record`` is the verifier's; ``seconds``
    are by party, ``wire`` the bytes of all messages and of the release once.
    """

    outcome: str
    release: npt.NDArray[np.float64] | None = field(repr=False)
    record: SignedChain
    seconds: Mapping[str, float]
    wire: int


def run_session(server: SeedServer, verifier: Verifier, *, link: Link | None = None) -> SeedSession:
    """Run one session to its end.

    If the server, or the link, withholds or spoils what is owed after the verifier's shares, the
    verifier aborts, which the record states: by then the server knows all candidates, so not
    responding is a way to choose.

    Raises:
        ProtocolError: refused by either party before the shares were sent, when nothing is at
            stake.
    """
    trip = _Trip(link or (lambda _, frame: frame))
    frame: bytes | None = trip.timed("verifier", verifier.offer)
    try:
        while frame is not None:
            arrived = trip.carry("verifier", frame)
            answer = trip.timed("server", partial(server.receive, arrived))
            if answer is None:
                break
            back = trip.carry("server", answer)
            frame = trip.timed("verifier", partial(verifier.receive, back))
            if frame is None:
                frame = trip.timed("verifier", lambda: verifier.receipt(_published(server)))
    except ProtocolError:
        if not verifier.record.finished:
            if verifier.record.owed() is None:
                raise
            trip.timed("verifier", verifier.abort)
    endings = {"receipt": "complete", "verdict": "caught"}
    outcome = endings.get(verifier.record.last or "", "aborted")
    release = server.release if outcome == "complete" else None
    seconds = {**trip.seconds, "total": sum(trip.seconds.values())}
    wire = trip.wire + (release.nbytes if release is not None else 0)
    return SeedSession(
        outcome=outcome, release=release, record=verifier.record, seconds=seconds, wire=wire
    )


def _published(server: SeedServer) -> npt.NDArray[np.float64]:
    if server.release is None:
        raise PeerError("server: signed a release but published none")
    return server.release


class _Trip:
    """Carries frames; counts bytes and each party's seconds."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self.wire = 0
        self.seconds = {"server": 0.0, "verifier": 0.0}

    def carry(self, sender: str, frame: bytes) -> bytes:
        self.wire += len(frame)
        arrived = self._link(sender, frame)
        if arrived is None:
            raise PeerError(f"{sender}: sent nothing in time")
        return arrived

    def timed(self, party: str, work: Callable[[], T]) -> T:
        started = time.perf_counter()
        try:
            return work()
        finally:
            self.seconds[party] += time.perf_counter() - started
