"""A server for a protocol's other parties: gRPC over mutual TLS 1.3, names checked, bounded.

Its calls: who may call, how many at a time, for how long, what callers see, the log.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Protocol

from cryptography import x509

from dpaudit.errors import PeerError, ProtocolError, UsageError
from dpaudit_mitigations.transport.certificates import BROKEN, Identity, check_party, party_of
from dpaudit_mitigations.transport.connection import (
    END,
    ERROR_KEY,
    SERVICE,
    TICK,
    Log,
    Pump,
    Silence,
    check_address,
    class_name,
    clean,
    grpc,
    grpc_options,
    logger,
    only_tls13,
)

__all__ = ["Handler", "Limits", "serve"]

_LARGEST_MESSAGE = 64 << 20


class Handler(Protocol):
    """Serves one call of ``peer``, the name in the caller's certificate.

    ``request`` holds its messages (raw bytes, bounded). Waiting for the next one raises
    ``PeerError`` when the peer times out or disconnects. A ``ProtocolError`` that the handler
    raises reaches the caller with its class and text, so its text must hold no value; of any other
    exception the caller gets only "internal error".
    """

    def __call__(self, peer: str, request: Iterator[bytes]) -> Iterator[bytes]: ...


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of a server.

    Raises:
        UsageError: a limit that makes no sense.
    """

    message: int = 4 << 20
    """Bytes of a message, at most."""
    concurrent: int = 4
    """Calls at a time, at most; more are refused, not queued."""
    each: int | None = None
    """Calls at a time of one peer; None: it may take them all."""
    idle: float = 10.0
    """Seconds for which a peer may send or read nothing."""
    timeout: float = 600.0
    """Seconds that a call may last."""

    def __post_init__(self) -> None:
        if (
            not 1 <= self.message <= _LARGEST_MESSAGE
            or not 1 <= self.concurrent <= 1000
            or not 0 < self.idle <= self.timeout
        ):
            raise UsageError(
                f"limits: message={self.message}, concurrent={self.concurrent}, "
                f"idle={self.idle:g}, timeout={self.timeout:g}: 1 to {_LARGEST_MESSAGE} bytes; "
                "1 to 1000 calls; 0 < idle ≤ timeout"
            )
        if self.each is not None and not 1 <= self.each <= self.concurrent:
            raise UsageError(f"each={self.each}: must be from 1 to concurrent={self.concurrent}")


class Calls:
    """Runs the handlers within the limits on peers, calls and time, and logs every call."""

    def __init__(
        self,
        handlers: Mapping[str, Handler],
        peers: frozenset[str],
        limits: Limits,
        log: Log,
    ) -> None:
        self.handlers, self.peers, self.log = handlers, peers, log
        self.stopping = threading.Event()
        self._idle, self._timeout = limits.idle, limits.timeout
        self._most, self._most_each = limits.concurrent, limits.each or limits.concurrent
        self._watched: list[_Watch] = []
        self._watching = threading.Lock()
        threading.Thread(target=self._watch, name="dpaudit-watchdog", daemon=True).start()

    def run(self, method: str, request: Iterator[bytes], context: Any) -> Iterator[bytes]:
        """Run one call, from authentication to its log line."""
        started = time.monotonic()
        peer = _name(context)
        if peer not in self.peers:
            denied = grpc.StatusCode.PERMISSION_DENIED
            self._refuse(
                context, method, peer, denied, "this certificate's party may not call here"
            )
        if method not in self.handlers:
            self._refuse(
                context, method, peer, grpc.StatusCode.UNIMPLEMENTED, "no such method here"
            )
        watch = _Watch(peer, context.cancel, started + self._timeout)
        full = self._enter(watch)
        if full is not None:
            self._refuse(context, method, peer, grpc.StatusCode.RESOURCE_EXHAUSTED, full)
        pump = Pump(
            request, too_long=lambda waited: waited >= self._idle, tick=min(TICK, self._idle)
        )
        try:
            for answer in self.handlers[method](peer, _messages(pump, self._idle)):
                watch.sending(self._idle)
                yield answer
                watch.sent()
            self.log("served", peer=peer, method=method)
        except ProtocolError as error:
            self._refuse(context, method, peer, _code(error), str(error), type(error))
        except GeneratorExit:
            reason = watch.reason or "the peer disconnected before it had all answers"
            self.log("refused", peer=peer, method=method, reason=reason)
            raise
        except Exception as error:  # noqa: BLE001  sent as "internal error", and logged
            reason = f"internal error ({type(error).__name__})"
            self.log("failed", peer=peer, method=method, reason=reason)
            _abort(context, grpc.StatusCode.INTERNAL, "internal error", ProtocolError)
        finally:
            with self._watching:
                self._watched.remove(watch)
            pump.close()

    def _enter(self, watch: _Watch) -> str | None:
        """Register a call; the refusal's text if there are too many."""
        with self._watching:
            if len(self._watched) >= self._most:
                return f"{self._most} calls are running, the most at a time; try again later"
            if sum(w.peer == watch.peer for w in self._watched) >= self._most_each:
                return (
                    f"{self._most_each} calls of {watch.peer} are running, the most per peer; "
                    "try again later"
                )
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
    """When a call must end, and by when its peer must have read the answer being sent."""

    def __init__(self, peer: str, cancel: Callable[[], Any], end: float) -> None:
        self.peer, self.cancel, self._end = peer, cancel, end
        self._read_by = end
        self.reason = ""

    def sending(self, idle: float) -> None:
        self._read_by = time.monotonic() + idle

    def sent(self) -> None:
        self._read_by = self._end

    def late(self, now: float) -> bool:
        if now > self._end:
            self.reason = "the call exceeded its time limit"
        elif now > self._read_by:
            self.reason = "the peer did not read its answer for too long"
        return bool(self.reason)


def _messages(pump: Pump, idle: float) -> Iterator[bytes]:
    """The peer's messages; timeouts and disconnections become ``PeerError``."""
    while True:
        try:
            message = next(pump)
        except Silence:
            raise PeerError(f"the peer sent nothing for {idle:g} s") from None
        except (grpc.RpcError, StopIteration):
            raise PeerError("the peer disconnected") from None
        if message == END:
            return
        yield message


def _name(context: Any) -> str:
    """The party in the caller's certificate (TLS has checked it), or '' for none."""
    chain = context.auth_context().get("x509_pem_cert", ())
    if len(chain) != 1:
        return ""
    with contextlib.suppress(*BROKEN):
        return party_of(x509.load_pem_x509_certificate(chain[0])) or ""
    return ""


def _code(error: ProtocolError) -> Any:
    timed_out = isinstance(error, PeerError)
    return grpc.StatusCode.DEADLINE_EXCEEDED if timed_out else grpc.StatusCode.INVALID_ARGUMENT


def _abort(context: Any, code: Any, text: str, error: type[ProtocolError]) -> None:
    context.set_trailing_metadata(((ERROR_KEY, class_name(error)),))
    context.abort(code, clean(text, 1000))


_SPARE = 4  # threads that refuse callers beyond the limit
_DEFAULT = Limits()


def serve(
    handlers: Mapping[str, Handler],
    *,
    identity: Identity,
    peers: Collection[str],
    address: str = "127.0.0.1:0",
    limits: Limits = _DEFAULT,
    log: Log | None = None,
) -> Server:
    """Start serving ``handlers`` (by method name) to the parties in ``peers`` only.

    Formal guarantee (under TLS 1.3, if keys stay secret): a handler runs only for a caller that
    holds the key of a certificate signed by ``identity.authority`` for one of the names in
    ``peers``.

    Every call leaves one line in ``log``. A failed handshake never becomes a call: gRPC itself
    reports it on stderr, in its own format (``Handshake failed with error …``).

    Raises:
        UsageError: the address cannot be used, or another argument is not valid.
    """
    check_address(address)
    for name in handlers:
        if not name.isidentifier():
            raise UsageError(f"method={clean(name)}: must be an identifier")
    if not peers:
        raise UsageError("peers=[]: nobody could call; give a peer")
    allowed = frozenset(map(check_party, peers))
    calls = Calls(dict(handlers), allowed, limits, log or logger(identity.name))
    return Server(calls, identity, address, limits)


class Server:
    """A running server at ``address``. Use as a context manager, or call :meth:`stop`."""

    def __init__(self, calls: Calls, identity: Identity, address: str, limits: Limits) -> None:
        """Use :func:`serve`."""
        self._calls, concurrent = calls, limits.concurrent
        self._pool = ThreadPoolExecutor(concurrent + _SPARE, thread_name_prefix="dpaudit-call")
        self._server = grpc.server(
            self._pool,
            handlers=(_Methods(calls),),
            maximum_concurrent_rpcs=concurrent + _SPARE,
            options=[
                *grpc_options(limits.message),
                ("grpc.max_concurrent_streams", concurrent + _SPARE),
                ("grpc.server_handshake_timeout_ms", 10_000),
                ("grpc.max_connection_idle_ms", 300_000),
            ],
        )
        credentials = grpc.ssl_server_credentials(
            [(identity.key, identity.certificate)],
            root_certificates=identity.authority,
            require_client_auth=True,
        )
        host = address.rpartition(":")[0]
        try:
            port = self._server.add_secure_port(address, credentials)
        except RuntimeError as error:
            calls.stopping.set()
            self._pool.shutdown(wait=False)
            raise UsageError(f"address={address}: cannot listen there; use port 0") from error
        self.address = f"{host}:{port}"
        self._server.start()
        versions = (
            "TLS 1.3 only" if only_tls13 else "TLS 1.3 or 1.2 (gRPC was imported before dpaudit)"
        )
        calls.log(
            "started",
            reason=f"listens on {self.address} for {', '.join(sorted(calls.peers))}, {versions}",
        )

    def stop(self, grace: float = 1.0) -> None:
        """Refuse new calls, give running ones ``grace`` seconds, then abort them.

        Returns when no handler runs, or ten seconds after ``grace`` if one does not stop. May be
        called repeatedly.
        """
        if self._calls.stopping.is_set():
            return
        self._calls.stopping.set()
        self._server.stop(grace).wait(grace + 5)
        closing = threading.Thread(
            target=self._pool.shutdown, kwargs={"cancel_futures": True}, daemon=True
        )
        closing.start()
        closing.join(5)
        self._calls.log("stopped")

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the server has stopped; return whether it has."""
        return not self._server.wait_for_termination(timeout)

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()


class _Methods(grpc.GenericRpcHandler):  # type: ignore[misc]
    def __init__(self, calls: Calls) -> None:
        self._calls = calls

    def service(self, handler_call_details: Any) -> Any:
        method = str(handler_call_details.method).removeprefix(f"/{SERVICE}/")
        return grpc.stream_stream_rpc_method_handler(
            lambda request, context: self._calls.run(method, request, context)
        )
