"""The calls of a server: who may call, how many at a time, for how long, what the caller is told, and the log."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol

from cryptography import x509

from dpaudit.errors import PeerError, ProtocolError
from dpaudit_mitigations.transport import wire
from dpaudit_mitigations.transport.certificates import BROKEN, party_of
from dpaudit_mitigations.transport.logs import Log, clean
from dpaudit_mitigations.transport.pump import TICK, Pump, Silence
from dpaudit_mitigations.transport.wire import grpc

__all__ = ["Calls", "Handler"]


class Handler(Protocol):
    """Serves one call. ``peer`` is the name in the caller's certificate, ``request`` its messages (raw bytes, bounded).

    Waiting for the next message of ``request`` raises ``PeerError`` when the peer is silent for too
    long or breaks off. A ``ProtocolError`` that the handler raises reaches the caller with its
    class and text, so its text must hold no value; of any other exception the caller only hears
    "internal error".
    """

    def __call__(self, peer: str, request: Iterator[bytes]) -> Iterator[bytes]: ...


class Calls:
    """Runs the handlers: who may call, how many at a time, for how long; what the caller is told; the log."""

    def __init__(
        self,
        handlers: Mapping[str, Handler],
        peers: frozenset[str],
        most: tuple[int, int],
        idle: float,
        timeout: float,
        log: Log,
    ) -> None:
        self.handlers, self.peers, self.log = handlers, peers, log
        self.stopping = threading.Event()
        self._idle, self._timeout = idle, timeout
        self._most, self._most_each = most
        self._watched: list[_Watch] = []
        self._watching = threading.Lock()
        threading.Thread(target=self._watch, name="dpaudit-watchdog", daemon=True).start()

    def run(self, method: str, request: Iterator[bytes], context: Any) -> Iterator[bytes]:
        """One call, from who it is to its log line."""
        started = time.monotonic()
        peer = _name(context)
        if peer not in self.peers:
            self._refuse(
                context,
                method,
                peer,
                grpc.StatusCode.PERMISSION_DENIED,
                "this certificate's party is not let in here",
            )
        if method not in self.handlers:
            self._refuse(
                context, method, peer, grpc.StatusCode.UNIMPLEMENTED, "there is no such method here"
            )
        watch = _Watch(peer, context.cancel, started + self._timeout)
        full = self._enter(watch)
        if full is not None:
            self._refuse(context, method, peer, grpc.StatusCode.RESOURCE_EXHAUSTED, full)
        pump = Pump(
            request, too_long=lambda waited: waited >= self._idle, tick=min(TICK, self._idle)
        )
        try:
            for answer in self.handlers[method](peer, _Request(pump, self._idle)):
                watch.sending(self._idle)
                yield answer
                watch.sent()
            self.log("served", peer=peer, method=method)
        except ProtocolError as error:
            self._refuse(context, method, peer, _code(error), str(error), type(error))
        except GeneratorExit:
            self.log(
                "refused",
                peer=peer,
                method=method,
                reason=watch.reason or "the peer broke off before it had all answers",
            )
            raise
        except Exception as error:  # noqa: BLE001  told as "internal error", and logged
            self.log(
                "failed",
                peer=peer,
                method=method,
                reason=f"internal error ({type(error).__name__})",
            )
            _abort(context, grpc.StatusCode.INTERNAL, "internal error", ProtocolError)
        finally:
            with self._watching:
                self._watched.remove(watch)
            pump.close()

    def _enter(self, watch: _Watch) -> str | None:
        """Take a place for a call; what the caller is told if there is none."""
        with self._watching:
            if len(self._watched) >= self._most:
                return (
                    f"{self._most} calls are running, which is the most at a time; try again later"
                )
            if sum(w.peer == watch.peer for w in self._watched) >= self._most_each:
                return f"{self._most_each} calls of {watch.peer} are running, the most of one peer; try again later"
            self._watched.append(watch)
        return None

    def _refuse(
        self,
        context: Any,
        method: str,
        peer: str,
        code: Any,
        text: str,
        error: type[ProtocolError] = PeerError,
    ) -> None:
        self.log("refused", peer=peer, method=method, reason=text)
        _abort(context, code, text, error)

    def _watch(self) -> None:
        while not self.stopping.wait(TICK):
            now = time.monotonic()
            with self._watching:
                late = [w for w in self._watched if w.late(now)]
            for watch in late:
                watch.cancel()


class _Watch:
    """When a call must be over, and until when its peer must have taken the answer that is on its way."""

    def __init__(self, peer: str, cancel: Callable[[], Any], end: float) -> None:
        self.peer, self.cancel, self._end = peer, cancel, end
        self._taken_by = end
        self.reason = ""

    def sending(self, idle: float) -> None:
        self._taken_by = time.monotonic() + idle

    def sent(self) -> None:
        self._taken_by = self._end

    def late(self, now: float) -> bool:
        if now > self._end:
            self.reason = "the call took longer than a call may"
        elif now > self._taken_by:
            self.reason = "the peer did not read its answer for too long"
        return bool(self.reason)


class _Request:
    """The peer's messages; silence and breaking off become ``PeerError``."""

    def __init__(self, pump: Pump, idle: float) -> None:
        self._pump, self._idle, self._ended = pump, idle, False

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        if self._ended:
            raise StopIteration
        try:
            message = next(self._pump)
        except Silence:
            raise PeerError(f"the peer sent nothing for {self._idle:g} s") from None
        except (grpc.RpcError, StopIteration):
            raise PeerError("the peer broke off") from None
        if message == wire.END:
            self._ended = True
            raise StopIteration
        return message


def _name(context: Any) -> str:
    """The party that the caller's certificate names (TLS has checked it), or '' for none."""
    chain = context.auth_context().get("x509_pem_cert", ())
    if len(chain) != 1:
        return ""
    with contextlib.suppress(*BROKEN):
        return party_of(x509.load_pem_x509_certificate(chain[0])) or ""
    return ""


def _code(error: ProtocolError) -> Any:
    return (
        grpc.StatusCode.DEADLINE_EXCEEDED
        if isinstance(error, PeerError)
        else grpc.StatusCode.INVALID_ARGUMENT
    )


def _abort(context: Any, code: Any, text: str, error: type[ProtocolError]) -> None:
    context.set_trailing_metadata(((wire.ERROR_KEY, wire.class_name(error)),))
    context.abort(code, clean(text, 1000))
