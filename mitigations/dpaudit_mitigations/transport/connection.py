"""Connections between parties: what client and server share, and the client's call.

Shared are gRPC options, cipher suites, a stream's end, error classes, waiting and logs. Calls go
over mutual TLS 1.3, the server's name is checked first, and waits are bounded.

A client's last message is ``END``, which is empty; no other may be. A gRPC server cannot tell a
client that has finished from one that died just then, so a stream that stops without it was
interrupted. (A server's stream ends with a status.)

TLS 1.3 and nothing older: gRPC's Python API has no option for that, and by default both sides would
also take TLS 1.2. But a TLS 1.2 handshake needs a cipher suite that fits the certificate; ours are
ECDSA certificates, and the only suite left to TLS 1.2 here signs with RSA. So every TLS 1.2
handshake ends in ``no shared cipher``, while TLS 1.3's suites are not on that list and stay as they
are. gRPC reads the list when it is imported: in a program that imported it before us both sides
still take TLS 1.2 with forward secrecy and AES-GCM or ChaCha20, and a server's first log line says
so.
"""

from __future__ import annotations

import contextlib
import datetime
import importlib
import itertools
import json
import os
import queue
import re
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

from dpaudit.errors import CheatingError, MessageError, PeerError, ProtocolError, UsageError
from dpaudit.protocols import Party
from dpaudit.results.text import one_line
from dpaudit_mitigations.transport.certificates import Identity, dns_name

__all__ = [
    "END",
    "ERRORS",
    "ERROR_KEY",
    "SERVICE",
    "TICK",
    "Log",
    "Pump",
    "Silence",
    "ask",
    "call",
    "check_address",
    "class_name",
    "clean",
    "follow",
    "grpc",
    "grpc_options",
    "logger",
    "only_tls13",
]

SERVICE = "dpaudit"
END = b""
ERROR_KEY = "dpaudit-error"
ERRORS: dict[str, type[ProtocolError]] = {
    c.__name__: c for c in (ProtocolError, PeerError, MessageError, CheatingError)
}
_SUITES = "GRPC_SSL_CIPHER_SUITES"
_NONE_FOR_US = "ECDHE-RSA-AES256-GCM-SHA384"
_WINDOW = 8 << 20
_HOST = re.compile(r"[A-Za-z0-9.-]{1,253}|\[[0-9A-Fa-f:.]{2,45}\]")


def _import_grpc() -> tuple[Any, bool]:
    """The module, and whether TLS 1.2 is excluded."""
    if "grpc" in sys.modules:
        return importlib.import_module("grpc"), os.environ.get(_SUITES) == _NONE_FOR_US
    before = os.environ.get(_SUITES)
    os.environ[_SUITES] = _NONE_FOR_US
    try:
        return importlib.import_module("grpc"), True
    finally:  # gRPC has read it; child processes must not inherit it
        if before is None:
            del os.environ[_SUITES]
        else:
            os.environ[_SUITES] = before


grpc, only_tls13 = _import_grpc()


def grpc_options(limit: int) -> list[tuple[str, Any]]:
    """Options of gRPC, equal on both sides: ``limit`` bytes per message, no retries, no proxy."""
    return [
        ("grpc.max_receive_message_length", limit),
        ("grpc.max_send_message_length", limit),
        ("grpc.max_metadata_size", 16 << 10),
        ("grpc.http2.lookahead_bytes", _WINDOW),
        ("grpc.http2.max_frame_size", 1 << 20),
        ("grpc.keepalive_time_ms", 10_000),
        ("grpc.keepalive_timeout_ms", 5_000),
        ("grpc.http2.max_pings_without_data", 0),
        ("grpc.http2.min_ping_interval_without_data_ms", 5_000),
        ("grpc.so_reuseport", 0),
        ("grpc.enable_retries", 0),
        ("grpc.enable_http_proxy", 0),
        ("grpc.use_local_subchannel_pool", 1),
        ("grpc.initial_reconnect_backoff_ms", 100),
    ]


def check_address(address: str) -> None:
    """Check that ``address`` is HOST:PORT, and none of gRPC's other schemes.

    Raises:
        UsageError: it is not.
    """
    host, _, port = address.rpartition(":")
    if not _HOST.fullmatch(host) or not (port.isascii() and port.isdigit() and int(port) < 1 << 16):
        raise UsageError(f"address={address[:100]!r}: must be HOST:PORT, e.g. 127.0.0.1:7001")


def class_name(error: type[ProtocolError]) -> str:
    """The nearest class of ``error`` that the other side knows."""
    return next(c.__name__ for c in error.__mro__ if c.__name__ in ERRORS)


TICK = 0.25
"""Seconds between two checks of a wait's length."""

_AHEAD = 4


class Silence(Exception):
    """Nothing arrived for too long."""


class _End:
    def __init__(self, error: Exception | None) -> None:
        self.error = error


class Pump:
    """Iterates over ``source`` in a thread, at most four messages ahead.

    ``next(pump)`` gives the next message, or raises what ``source`` raised, or :class:`Silence`
    once ``too_long(waited)`` is true for the seconds waited; it is called every ``tick``. After
    ``close`` the thread ends as soon as ``source`` does.
    """

    def __init__(
        self, source: Iterator[bytes], *, too_long: Callable[[float], bool], tick: float
    ) -> None:
        self._source, self._too_long, self._tick = source, too_long, tick
        self._queue: queue.Queue[bytes | _End] = queue.Queue(_AHEAD)
        self._closed = threading.Event()
        self._end: _End | None = None
        threading.Thread(target=self._run, name="dpaudit-pump", daemon=True).start()

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        if self._end is None:
            item = self._wait()
            if isinstance(item, bytes):
                return item
            self._end = item
        if self._end.error is not None:
            raise self._end.error
        raise StopIteration

    def close(self) -> None:
        """Take nothing more; drop what still arrives."""
        self._closed.set()
        with contextlib.suppress(queue.Empty):
            while True:
                self._queue.get_nowait()

    def _wait(self) -> bytes | _End:
        waited = 0.0
        while True:
            try:
                return self._queue.get(timeout=self._tick)
            except queue.Empty:
                waited += self._tick
                if self._too_long(waited):
                    raise Silence from None

    def _run(self) -> None:
        error: Exception | None = None
        try:
            for item in self._source:
                if not self._put(item):
                    return
        except Exception as raised:  # noqa: BLE001  handed to whoever waits
            error = raised
        self._put(_End(error))

    def _put(self, item: bytes | _End) -> bool:
        while not self._closed.is_set():
            with contextlib.suppress(queue.Full):
                self._queue.put(item, timeout=0.2)
                return True
        return False


_LONGEST = 300
_WRITING = threading.Lock()


def clean(text: str, longest: int = _LONGEST) -> str:
    """``text`` on one printable line of at most ``longest`` characters: safe to show."""
    return one_line(text, limit=longest)


@dataclass(frozen=True, slots=True)
class Log:
    """Writes lines with time, service, peer, method, release, outcome, reason; no empty fields."""

    service: str

    def __call__(
        self,
        outcome: str,
        *,
        peer: str | None = None,
        method: str | None = None,
        release: str | None = None,
        reason: str | None = None,
    ) -> None:
        """Write a line: ``outcome`` is a word (served, refused, failed …), ``reason`` a text."""
        now = datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds")
        facts = {
            "peer": peer,
            "method": method,
            "release": release,
            "outcome": outcome,
            "reason": reason,
        }
        line = {"time": now, "service": self.service} | {k: clean(v) for k, v in facts.items() if v}
        with _WRITING:
            sys.stderr.write(json.dumps(line, ensure_ascii=True) + "\n")
            sys.stderr.flush()


def logger(name: str) -> Log:
    """The log of the service ``name``."""
    return Log(clean(name))


def call(
    address: str,
    method: str,
    messages: Iterable[bytes],
    *,
    identity: Identity,
    peer: str,
    timeout: float,
    idle: float = 10.0,
    message_limit: int = 4 << 20,
) -> Iterator[bytes]:
    """Send ``messages`` to ``method`` of ``peer`` at ``address``; yield its answers as they arrive.

    The call starts at the first ``next``. ``messages`` (none of them empty) is iterated in another
    thread, and may itself wait for answers; what it raises is raised here. ``timeout`` bounds the
    whole call in seconds; ``idle`` the time in which no message is sent and no answer arrives (the
    time that ``messages`` takes to make its next one does not count).

    Raises:
        PeerError: nobody there, not ``peer``, refuses our certificate, dead, timed out, too busy.
        ProtocolError: what the server raised, in its class (``MessageError``, ``CheatingError``,
            …).
        UsageError: an argument is not valid.
    """
    check_address(address)
    if not method.isidentifier():
        raise UsageError(f"method={clean(method)}: must be an identifier")
    if not (idle > 0 and 0 < timeout < 1e6):
        raise UsageError(
            f"timeout={timeout:g}, idle={idle:g}: must be positive seconds, timeout < 1e6"
        )
    options = [
        *grpc_options(message_limit),
        ("grpc.ssl_target_name_override", dns_name(peer)),
    ]

    def answers() -> Iterator[bytes]:
        who = f"{peer} at {clean(address, 100)}"
        credentials = grpc.ssl_channel_credentials(
            identity.authority, identity.key, identity.certificate
        )
        sending = _Sending(messages)
        with grpc.secure_channel(address, credentials, options=options) as channel:
            rpc = channel.stream_stream(f"/{SERVICE}/{method}")(sending, timeout=timeout)
            sending.runs(rpc)
            pump = Pump(
                rpc, too_long=lambda waited: sending.still() >= idle <= waited, tick=min(TICK, idle)
            )
            try:
                yield from pump
            except Silence:
                raise PeerError(f"{who}: silent for {idle:g} s") from None
            except grpc.RpcError as error:
                if sending.error is not None:
                    raise sending.error from None
                raise _refusal(error, who, timeout) from None
            finally:
                rpc.cancel()
                pump.close()
            if sending.error is not None:
                raise sending.error

    return answers()


def ask(address: str, method: str, messages: Iterable[bytes], **options: Any) -> bytes:
    """:func:`call` for exactly one answer.

    Raises:
        MessageError: no answer, or more than one.
        ProtocolError: as for :func:`call`.
    """
    answers = list(itertools.islice(call(address, method, messages, **options), 2))
    if len(answers) != 1:
        raise MessageError(f"{method}: {'more than one' if answers else 'no'} answer, not one")
    return answers[0]


class Caller(Party, Protocol):
    """A party that calls a server: ``stage`` is the method for the message just returned."""

    stage: str


def follow(party: Caller, ask: Callable[[str, Iterable[bytes]], bytes]) -> list[str]:
    """Let ``party`` talk to its server until it has nothing to say; the methods called, in order.

    ``ask(method, messages)`` gives the answer to one call, as :func:`ask` does.
    """
    methods = []
    message: Any = party.step(None)
    while message is not None:
        methods.append(party.stage)
        messages = [message] if isinstance(message, bytes) else message
        message = party.step(ask(party.stage, messages))
    return methods


class _Sending:
    """Our outgoing messages: holds the error in making them, and since when none was sent."""

    def __init__(self, messages: Iterable[bytes]) -> None:
        self._source = iter(messages)
        self._since: float | None = time.monotonic()  # None while the next message is being made
        self._ended = False
        self.error: Exception | None = None
        self._rpc: Any = None

    def runs(self, rpc: Any) -> None:
        """Attach the call that these messages are for; it may have taken some already."""
        self._rpc = rpc
        if self.error is not None:
            rpc.cancel()

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        if self._ended:
            raise StopIteration
        self._since = None
        try:
            message = next(self._source, None)
            if message is None:
                self._ended = True
                return END
            if not message:
                raise UsageError("message of 0 bytes: it would mean the end of the stream")
            return message
        except Exception as error:  # noqa: BLE001  raised again where the answers are read
            self.error = error
            if self._rpc is not None:
                self._rpc.cancel()
            raise StopIteration from None
        finally:
            self._since = time.monotonic()

    def still(self) -> float:
        """Seconds in which the other side could have received a message from us and did not."""
        since = self._since
        return 0.0 if since is None else time.monotonic() - since


def _refusal(error: Any, who: str, timeout: float) -> ProtocolError:
    code, details = error.code(), clean(error.details() or "")
    named = dict(error.trailing_metadata() or ()).get(ERROR_KEY)
    if isinstance(named, str) and named in ERRORS:
        return ERRORS[named](f"{who} says: {details}")
    if code is grpc.StatusCode.UNAVAILABLE:
        return PeerError(f"{who}: {_unavailability(details)}")
    if code is grpc.StatusCode.DEADLINE_EXCEEDED:
        return PeerError(f"{who}: not done within {timeout:g} s")
    if code is grpc.StatusCode.RESOURCE_EXHAUSTED and "larger than max" in details:
        return MessageError(f"{who}: a message larger than the limit")
    if code is grpc.StatusCode.RESOURCE_EXHAUSTED:
        return PeerError(f"{who}: too many calls at a time; try again later")
    return PeerError(f"{who}: disconnected ({code.name.lower()})")


def _unavailability(details: str) -> str:
    low = details.lower()
    if "hostname verification" in low or "peer name" in low:
        return "its certificate is not that party's"
    if "handshake" in low or "certificate" in low or "ssl" in low:
        return (
            "no TLS handshake: a certificate of another authority, expired or missing, or no "
            "TLS 1.3 there"
        )
    if "refused" in low:
        return "nobody listens there"
    if "failed to connect" in low and "socket closed" in low:
        return "closed the connection at once: it refuses our certificate, or has no TLS"
    return f"cannot be reached, or died ({details})"
