"""What client and server share: gRPC options, cipher suites, a stream's end, errors, waiting, logs.

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
import json
import os
import queue
import re
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from dpaudit.errors import CheatingError, MessageError, PeerError, ProtocolError, UsageError
from dpaudit.results.text import one_line

__all__ = [
    "END",
    "ERRORS",
    "ERROR_KEY",
    "SERVICE",
    "TICK",
    "Log",
    "Pump",
    "Silence",
    "check_address",
    "class_name",
    "clean",
    "grpc",
    "logger",
    "only_tls13",
    "options",
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


def options(limit: int) -> list[tuple[str, Any]]:
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
