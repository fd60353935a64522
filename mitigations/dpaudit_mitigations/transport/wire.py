"""What client and server share: gRPC options, cipher suites, a stream's end, error classes.

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

import importlib
import os
import re
import sys
from typing import Any

from dpaudit.errors import CheatingError, MessageError, PeerError, ProtocolError, UsageError

__all__ = [
    "END",
    "ERRORS",
    "ERROR_KEY",
    "SERVICE",
    "check_address",
    "class_name",
    "grpc",
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
