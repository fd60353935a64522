"""One release through the whole protocol in this process, with real connections and journals."""

from __future__ import annotations

import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch

from dpaudit.protocols import NoiseSource, Stream
from dpaudit.types import Rehearsal
from dpaudit_mitigations.transport.certificates import load_identity, make_authority
from dpaudit_mitigations.transport.connection import Log
from dpaudit_mitigations.transport.server import Handler, serve
from dpaudit_mitigations.two_servers.agreement import (
    REACH,
    Draw,
    ReleaseTerms,
    Steps,
    draw_of,
    secure_draw,
)
from dpaudit_mitigations.two_servers.answer_side import AnswerSide, Contact, MakeDraw, Question
from dpaudit_mitigations.two_servers.mitigation import Backdoored
from dpaudit_mitigations.two_servers.noise_side import NoiseSide

__all__ = ["rehearse"]


@dataclass(frozen=True, slots=True)
class Rehearsed:
    """The figures of a rehearsal, and what was published."""

    figures: Rehearsal
    published: npt.NDArray[np.floating] = field(repr=False)


def rehearse(
    query: torch.Tensor,
    source: NoiseSource,
    *,
    backdoored: Backdoored,
    ratio: float,
    stream: Stream,
) -> Rehearsed:
    """Release ``query`` (d,) once, in temporary folders.

    The bound leaves twice the room that noise needs, and comes from the query; in production it
    would be public. ``seconds``: ``certificates`` and ``starting`` are paid once per service,
    ``release`` is the whole of one release at server 1; ``server 1's noise`` and ``server 2's
    noise`` are thread seconds of drawing within it, in parallel with the rest. ``wire`` is the
    bytes of all messages, without those of TLS and HTTP/2 (about 0.2 %).
    """
    values = query.numpy() if query.dtype is torch.float32 else query.double().numpy()
    sigma, dim = source.sigma, len(values)
    largest = max(sigma, ratio * sigma)
    terms = ReleaseTerms(
        dim=dim, bound=2 * REACH * largest + float(np.abs(values).max()), sigma=ratio * sigma
    )
    first, second, wire = _Clock(), _Clock(), _Wire()
    answer = first.timing(_noise(source, dim, sigma, 1.0, backdoored in ("answer", "both")))
    noise = second.timing(
        _noise(source, dim, ratio * sigma, ratio, backdoored in ("noise", "both"))
    )
    log = _Quiet("rehearsal")
    begun = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="dpaudit-two-servers-") as name:
        folder = Path(name)
        make_authority(folder / "certificates", ["answer", "noise"])
        one, two = (load_identity(folder / "certificates" / party) for party in ("answer", "noise"))
        certified = time.perf_counter()
        side = NoiseSide(
            terms=terms,
            peer="answer",
            journal=_new_folder(folder / "noise"),
            publish=folder / "published",
            log=log,
            dtype=values.dtype.name,
            draw=lambda step: noise(step, stream.child("noise")),
        )
        client = AnswerSide(journal=_new_folder(folder / "answer"), log=log, draw=answer)
        handlers = {method: wire.counting(handler) for method, handler in side.handlers.items()}
        with serve(handlers, identity=two, peers=["answer"], log=log) as server:
            started = time.perf_counter()
            question = Question(values, release="rehearsal", sigma=sigma, peer_sigma=terms.sigma)
            seed = stream.child("answer").entropy()
            client.release(question, Contact(server.address, "noise", one), seed=seed)
            released = time.perf_counter()
        client.close()
        side.close()
        published = np.load(folder / "published" / "rehearsal@0.npy")
    seconds = {
        "certificates": certified - begun,
        "starting": started - certified,
        "server 1's noise": first.seconds,
        "server 2's noise": second.seconds,
        "release": released - started,
        "total": released - begun,
    }
    return Rehearsed(Rehearsal(seconds=seconds, wire=wire.bytes), published)


def _noise(source: NoiseSource, dim: int, sigma: float, times: float, backdoored: bool) -> MakeDraw:
    if backdoored:
        return draw_of(source, dim=dim, times=times)
    return lambda step, stream: secure_draw(sigma=sigma, step=step, stream=stream)


def _new_folder(folder: Path) -> Path:
    folder.mkdir(mode=0o700)
    return folder


class _Quiet(Log):
    """Logs nothing."""

    def __call__(self, outcome: str, **facts: str | None) -> None:
        """Do nothing."""


class _Clock:
    """Thread seconds spent drawing."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._lock = threading.Lock()

    def timing(self, make: MakeDraw) -> MakeDraw:
        def clocked(step: float, stream: Stream) -> Draw:
            with self._running():
                draw = make(step, stream)

            def timed(at: int, count: int) -> Steps:
                with self._running():
                    return draw(at, count)

            return timed

        return clocked

    @contextmanager
    def _running(self) -> Iterator[None]:
        began = time.thread_time()
        try:
            yield
        finally:
            with self._lock:
                self.seconds += time.thread_time() - began


class _Wire:
    """Bytes of the messages that pass through handlers."""

    def __init__(self) -> None:
        self.bytes = 0

    def counting(self, handler: Handler) -> Handler:
        def counted(peer: str, request: Iterator[bytes]) -> Iterator[bytes]:
            yield from self._count(handler(peer, self._count(request)))

        return counted

    def _count(self, messages: Iterator[bytes]) -> Iterator[bytes]:
        for message in messages:
            self.bytes += len(message)
            yield message
