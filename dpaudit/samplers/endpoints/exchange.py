"""One kept-alive connection to an HTTP endpoint, with a deadline for every exchange."""

from __future__ import annotations

import contextlib
import http.client
import io
import queue
import re
import socket
import ssl
import threading
import time
from collections.abc import Callable
from typing import Self
from urllib.parse import urlsplit

from dpaudit.errors import (
    SamplerCrashError,
    SamplerError,
    SamplerOutputError,
    SamplerTimeoutError,
    UsageError,
)
from dpaudit.results.text import error_text, one_line

__all__ = ["Endpoint"]

_PIECE = 1 << 20  # bytes read at a time
_LENGTH = re.compile(r"[0-9]{1,18}")
_QUOTED = 200  # characters of a refusal in a message
_REFUSAL = 1.0  # seconds to wait for the words of a refusal


class _Wire(io.RawIOBase):
    """A connected socket whose every read ends at ``deadline``, however slowly the bytes come."""

    def __init__(self, connected: socket.socket) -> None:
        self._socket = connected
        self.deadline = 0.0
        self.polling = False
        self.ended = False

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: bytearray | memoryview) -> int | None:  # type: ignore[override]
        self._socket.settimeout(0.0 if self.polling else _left(self.deadline))
        try:
            got = self._socket.recv_into(buffer)
        except (BlockingIOError, ssl.SSLWantReadError):
            return None
        except OSError:
            if not self.polling:
                raise
            got = 0  # no answer is due: a reset is an end like any other
        self.ended = not got
        return got

    def send(self, data: bytes) -> None:
        self._socket.settimeout(_left(self.deadline))
        self._socket.sendall(data)

    def hang_up(self) -> None:
        self._socket.close()


class _Reader(io.BufferedReader):
    """The socket of an ``http.client.HTTPResponse``; it outlives it, with later bytes."""

    raw: _Wire

    def makefile(self, _: str) -> _Reader:
        return self

    def read(self, size: int | None = -1) -> bytes:
        """As of any file, but never all: http.client reads the rest for a chunk of −1 bytes."""
        if size is None or size < 0:
            raise http.client.HTTPException("a chunk of negative size")
        return super().read(size)

    def close(self) -> None:
        """Do nothing: a response closes its file when its body ends; the connection goes on."""

    def surplus(self) -> bool:
        """Whether there are bytes that no request asked for; never waits."""
        self.raw.polling = True
        try:
            return bool(self.peek(1))
        finally:
            self.raw.polling = False


def _left(deadline: float) -> float:
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left


class Endpoint:
    """A POST of JSON to ``name``, an address, and its answer, which the kinds of endpoint read.

    The status must be 200; a Content-Length, chunks or the end of the connection may end the body;
    redirects and compression are refused. The connection is kept if the server keeps it. No proxy
    and no password is taken from the environment, and no request identifies the client.
    """

    role = "sampler"
    scheme = "http"

    def __init__(self, name: str) -> None:
        """Read the address; the first exchange connects.

        Raises:
            UsageError: not an address.
        """
        self.name = name
        self._host, self._port, self._head = self._address()
        self._reader: _Reader | None = None
        self._open = False

    def __enter__(self) -> Self:
        self._open = True
        return self

    def __exit__(self, *exc: object) -> None:
        self._hang_up()
        self._open = False

    def _address(self) -> tuple[str, int, str]:
        example = f"write {self.scheme}://127.0.0.1:8000/noise"
        if not (self.name.isascii() and self.name.isprintable()) or " " in self.name:
            raise UsageError(
                f"{self.role}={self.name!r}: an address has no spaces or special letters; "
                f"{example}, %-encoded"
            )
        try:
            url = urlsplit(self.name)
            host, port = url.hostname, url.port or {"http": 80, "https": 443}[self.scheme]
        except ValueError as error:
            raise UsageError(
                f"{self.role}={self.name}: not an address ({error_text(error)}); {example}"
            ) from None
        if not host:
            raise UsageError(f"{self.role}={self.name}: names no host; {example}")
        if url.username is not None or url.password is not None or url.fragment:
            raise UsageError(
                f"{self.role}={self.scheme}://…@{host}: no user, password or #fragment is sent; "
                "leave it out"
            )
        path = (url.path or "/") + (f"?{url.query}" if url.query else "")
        head = f"POST {path} HTTP/1.1\r\nHost: {url.netloc}\r\nAccept-Encoding: identity\r\n"
        return host, port, f"{head}Content-Type: application/json\r\nContent-Length: "

    def _exchange(
        self,
        body: str,
        take: Callable[[http.client.HTTPResponse], None],
        *,
        call: str,
        deadline: float,
        timeout: float,
    ) -> float:
        """Ask, ``take`` the answer, and return the seconds; a failure drops the connection.

        ``call`` is for messages.
        """
        try:
            if self._reader is None:
                self._reader = self._connect(deadline)
            started = time.perf_counter()
            response = self._ask(body, deadline)
            take(response)
            seconds = time.perf_counter() - started
        except BaseException as error:
            self._hang_up()
            if isinstance(error, SamplerError):
                raise
            if isinstance(error, TimeoutError):
                raise SamplerTimeoutError(
                    f"{self.role} {self.name} had not answered in full before "
                    f"timeout={timeout:g} s {call}; raise the time limit or draw less"
                ) from None
            if isinstance(error, OSError):
                raise SamplerCrashError(
                    f"{self.role} {self.name}: the connection failed ({error_text(error)}) {call}; "
                    "check the address and the server"
                ) from None
            if isinstance(error, http.client.HTTPException):
                raise SamplerOutputError(
                    f"{self.role} {self.name} answered with something that is not HTTP "
                    f"({error_text(error)}) {call}; fix the server"
                ) from None
            raise
        if response.will_close:
            self._hang_up()
        return seconds

    def _connect(self, deadline: float) -> _Reader:
        """Connect in a thread, since a name lookup has no time limit."""
        came: queue.SimpleQueue[socket.socket | OSError] = queue.SimpleQueue()
        limit = _left(deadline)

        def connect() -> None:
            try:
                came.put(socket.create_connection((self._host, self._port), timeout=limit))
            except (OSError, UnicodeError) as error:  # UnicodeError: an invalid host name
                came.put(error if isinstance(error, OSError) else OSError(str(error)))

        threading.Thread(target=connect, daemon=True).start()
        try:
            connected = came.get(timeout=limit)
        except queue.Empty:
            raise TimeoutError from None
        if isinstance(connected, OSError):
            raise connected
        connected.settimeout(_left(deadline))
        return _Reader(_Wire(self._secured(connected)), buffer_size=1 << 16)

    def _secured(self, connected: socket.socket) -> socket.socket:
        if self.scheme == "http":
            return connected
        try:
            return ssl.create_default_context().wrap_socket(connected, server_hostname=self._host)
        except BaseException:
            connected.close()
            raise

    def _ask(self, body: str, deadline: float) -> http.client.HTTPResponse:
        """Send, and read to the end of the headers; retry once if a kept connection is dead."""
        assert self._reader is not None  # noqa: S101 for mypy: connected
        kept = self._reader.raw.deadline > 0
        if self._reader.surplus():
            raise SamplerOutputError(
                f"{self.role} {self.name} sent more than its last answer's length; "
                "Content-Length must be the body's"
            )
        for last in (not kept, True):
            if self._reader is None or self._reader.raw.ended:
                self._hang_up()
                self._reader = self._connect(deadline)
            self._reader.raw.deadline = deadline
            response = http.client.HTTPResponse(self._reader, method="POST")  # type: ignore[arg-type]
            try:
                self._reader.raw.send(f"{self._head}{len(body)}\r\n\r\n{body}".encode())
                response.begin()
                break
            except ConnectionError:
                if last:
                    raise
                self._hang_up()
        return response

    def _checked(self, response: http.client.HTTPResponse, call: str, wanted: str) -> None:
        """Refuse an answer by its head; ``call`` and ``wanted`` are for messages."""
        if response.status != http.HTTPStatus.OK:
            raise self._refusal(response, call)
        coding = response.headers.get("Content-Encoding", "identity")
        if coding.lower() != "identity":
            given = one_line(coding, limit=_QUOTED)
            raise SamplerOutputError(
                f"{self.role} {self.name} answered with Content-Encoding={given}; "
                "send the values as they are"
            )
        lengths = {length.strip() for length in response.headers.get_all("Content-Length", ())}
        # http.client would ignore an invalid one
        if len(lengths) > 1 or not all(_LENGTH.fullmatch(length) for length in lengths):
            given = one_line(", ".join(sorted(lengths)), limit=_QUOTED)
            raise SamplerOutputError(
                f"{self.role} {self.name} answered with Content-Length={given}, {wanted}; "
                "send one whole number"
            )

    def _body(
        self, response: http.client.HTTPResponse, *, call: str, wanted: str, most: int
    ) -> bytearray:
        """All of an answer whose length it tells itself: 1 to ``most`` bytes."""
        self._checked(response, call, wanted)
        who, came, length, short = f"{self.role} {self.name} gave", bytearray(), response.length, ""
        try:
            while max(len(came), length or 0) <= most and (more := response.read(_PIECE)):
                came += more
        except http.client.IncompleteRead:
            short = " and then the end of a chunk was missing"
        if max(len(came), length or 0) > most:
            raise SamplerOutputError(f"{who} more than {most} bytes {call}; ask for fewer")
        if length is not None and len(came) < length:
            short = f" of {length} and then the end"
        if short or not came:
            raise SamplerOutputError(
                f"{who} {len(came)} bytes{short}, {wanted} {call}; send them all"
            )
        if self._surplus(response):
            raise SamplerOutputError(f"{who} more than its Content-Length {call}; send that many")
        return came

    def _surplus(self, response: http.client.HTTPResponse) -> bool:
        """Whether there is more than the answer that was read."""
        assert self._reader is not None  # noqa: S101 for mypy: connected
        return bool(response.read(1)) or self._reader.surplus()

    def _refusal(self, response: http.client.HTTPResponse, call: str) -> SamplerError:
        status = f"{response.status} {one_line(response.reason, limit=_QUOTED)}".strip()
        if 300 <= response.status < 400:
            to = one_line(response.headers.get("Location", "nowhere"), limit=_QUOTED)
            return SamplerOutputError(
                f"{self.role} {self.name} answered with a redirect, {status} to {to} {call}; "
                "it is not followed, use the address that gives the noise"
            )
        assert self._reader is not None  # noqa: S101 for mypy: connected
        self._reader.raw.deadline = min(self._reader.raw.deadline, time.monotonic() + _REFUSAL)
        words = b""
        with contextlib.suppress(OSError, http.client.HTTPException):
            words = response.read(_QUOTED)
        lines = words.decode(errors="replace").split("\n")
        line = next((line for line in lines if line.strip()), "")
        says = f"; it says {one_line(line, limit=_QUOTED)!r}" if line else ""
        kind = SamplerCrashError if response.status >= 400 else SamplerOutputError
        return kind(
            f"{self.role} {self.name} answered with status {status}{says} {call}; "
            "it must answer 200, fix the server"
        )

    def _hang_up(self) -> None:
        if self._reader is not None:
            self._reader.raw.hang_up()
            self._reader = None
