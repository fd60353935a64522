"""Targets behind HTTP: one kept-alive connection, with a deadline for every exchange."""

from __future__ import annotations

import http.client
import io
import json
import queue
import re
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, Self, TypeVar
from urllib.parse import urlsplit

import numpy as np
import numpy.typing as npt

from dpaudit.errors import (
    SamplerCrashError,
    SamplerError,
    SamplerOutputError,
    SamplerTimeoutError,
    UsageError,
)
from dpaudit.protocols import Dataset, Facts, Kind, Reply, Request
from dpaudit.results.text import error_text, one_line
from dpaudit.targets.check import MOST, TYPES, check_request, query_result, require_finite
from dpaudit.targets.plain import jsonable, of_json

__all__ = ["HttpTarget", "HttpsTarget"]

_PIECE = 1 << 20  # bytes read at a time
_MOST_TEXT = 1 << 28  # bytes of an answer in JSON
_LENGTH = re.compile(r"[0-9]{1,18}")
_QUOTED = 200  # characters of a refusal in a message
_REFUSAL = 1.0  # seconds to wait for the words of a refusal
_ACCEPTS: Mapping[str, frozenset[Kind]] = {
    "sampler": frozenset({"noise", "noise in calls"}),
    "mechanism": frozenset({"releases", "releases of a data set"}),
}

Array = npt.NDArray[np.float64]
T = TypeVar("T")


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


class HttpTarget:
    """``http://HOST:PORT/PATH``: a POST of JSON, answered as the question says.

    ``{"n": n, "d": d}`` is answered by exactly n·d values of noise, row by row; ``{"value": […],
    "n": n}`` by ``n`` releases of the query result, whose numbers have enough digits to be exact:
    n·k numbers for a release of k, which the length of the answer tells. Both are little-endian
    float64 (noise also float32, with ``dtype="f32"``), and the answer's Content-Type is ignored.
    ``{"dataset": …, "n": n}`` has a list of records, as in a ``.json`` file, with NaN and ∞ written
    ``NaN`` and ``Infinity``, as Python's json module does; it is answered by a JSON array of ``n``
    releases, any values, of at most 256 MiB.

    The status must be 200; a Content-Length, chunks or the end of the connection may end the body;
    redirects and compression are refused. The connection is kept if the server keeps it. No proxy
    and no password is taken from the environment, and no request identifies the client. Memory is
    n·d·8 bytes and a little, whatever the server sends. There are no timed releases: most of the
    time of a request is the network's. Not claimed: that the server makes new noise for each
    request or release; the tests look for that.
    """

    scheme = "http"

    def __init__(
        self,
        target: str,
        *,
        seed: str = "",
        dtype: str = "f64",
        text_mode: bool = False,
        role: str = "sampler",
    ) -> None:
        """Read the address; the first question connects. ``seed`` is not sent: it is closed.

        ``role`` is sampler or mechanism; a mechanism is asked for releases of either kind.

        Raises:
            UsageError: not an address, no such ``dtype``, or ``text_mode``.
        """
        del seed
        self.name, self.role = f"{self.scheme}:{target}", role
        if dtype not in TYPES:
            raise UsageError(
                f"dtype={dtype}: an endpoint answers in f64 or f32; choose one of them"
            )
        if text_mode:
            raise UsageError(
                f"text_mode={text_mode}: only command: is read as text; leave it out of {self.name}"
            )
        self._host, self._port, self._head = self._address()
        self._given = (target, dtype, role)
        self._type = np.dtype(TYPES[dtype])
        self._reader: _Reader | None = None
        self.facts = Facts(_ACCEPTS[role])
        self._open = False

    @contextmanager
    def open(self, *, timeout: float) -> Iterator[Self]:
        """The first question connects; ``timeout`` is not needed."""
        del timeout
        self._open = True
        try:
            yield self
        finally:
            self._hang_up()
            self._open = False

    def again(self) -> Self:
        """The same endpoint, over a connection of its own."""
        target, dtype, role = self._given
        return type(self)(target, dtype=dtype, role=role)

    def ask(self, request: Request, *, timeout: float) -> Reply:
        """One request over the connection, or one per call.

        Raises:
            UsageError: a query result that is not 1 to 4096 finite numbers, or a data set of no
                plain kind.
            SamplerTimeoutError: the answer was not complete after ``timeout`` seconds.
            SamplerCrashError: no connection, a connection cut short, or a status of 400 or above.
            SamplerOutputError: another status, too few or too many bytes, not HTTP, not finite, or
                not ``n`` releases.
        """
        accepts = self.facts.accepts
        check_request(request, accepts, timeout=timeout, name=self.name, role=self.role)
        if request.input is None:
            return self._noise(request, timeout)
        if isinstance(request.input, Dataset):
            return Reply(self._releases_of_data(request.input.records, request.n, timeout))
        return Reply(self._releases(query_result(request.input), request.n, timeout))

    def _noise(self, request: Request, timeout: float) -> Reply:
        n, d = request.n, request.dim
        deadline = time.monotonic() + timeout
        values, seconds = np.empty((request.rows, d)), np.empty(request.rows // n)
        call, question = f"(call n={n}, d={d})", {"n": n, "d": d}
        for i in range(len(seconds)):
            rows = values[i * n : (i + 1) * n].reshape(-1)
            take = partial(self._values, out=rows, call=call)
            _, seconds[i] = self._exchange(
                question, take, call=call, deadline=deadline, timeout=timeout
            )
        return Reply(require_finite(values, self.name), None if request.calls is None else seconds)

    def _values(self, response: http.client.HTTPResponse, *, out: Array, call: str) -> None:
        """Fill ``out`` with the values of an answer, which must have exactly as many."""
        width = self._type.itemsize
        size = out.size * width
        rule = f"wanted exactly {size} bytes, {out.size} values of {width} bytes {call}"
        self._checked(response, call, rule)
        if response.length not in (None, size):
            raise SamplerOutputError(
                f"sampler {self.name} answered with Content-Length={response.length}, {rule}; "
                "send that many, or set their type with dtype (f64 or f32)"
            )
        got, least = 0, ""
        try:
            for start in range(0, out.size, _PIECE // 8):
                piece = np.empty(min(_PIECE // 8, out.size - start), dtype=self._type)
                view = piece.data.cast("B")
                while view and (more := response.readinto(view)):
                    got, view = got + more, view[more:]
                if view:
                    break
                out[start : start + piece.size] = piece
        except http.client.IncompleteRead as error:  # in a chunk, whose bytes are not counted
            got, least = got + len(error.partial), "at least "
        if got < size:
            raise SamplerOutputError(
                f"sampler {self.name} gave {least}{got} bytes and then the end, {rule}; "
                "send them all"
            )
        if self._surplus(response):
            raise SamplerOutputError(
                f"sampler {self.name} gave at least {size + 1} bytes, {rule}; send that many"
            )

    def _releases(self, value: Array, n: int, timeout: float) -> Array:
        row = 8 * n
        rule = f"wanted n rows of equally many little-endian float64, {row} bytes or a multiple"
        question = {"value": value.tolist(), "n": n}
        content = self._released(question, rule, most=8 * MOST, row=row, timeout=timeout)
        releases = np.frombuffer(content, dtype="<f8").astype(np.float64, copy=False)
        return require_finite(releases.reshape(n, -1), self.name, self.role)

    def _releases_of_data(self, dataset: Any, n: int, timeout: float) -> list[Any]:
        question = {"dataset": jsonable(dataset), "n": n}
        call, rule = f"(release n={n})", f"wanted a JSON array of {n} releases"
        content = self._released(question, rule, most=_MOST_TEXT, timeout=timeout)
        try:
            releases = of_json(content)
        except ValueError as error:
            raise SamplerOutputError(
                f"mechanism {self.name}: its answer is no JSON ({one_line(error, limit=100)}), "
                f"{rule} {call}; fix the server"
            ) from None
        if isinstance(releases, list) and len(releases) == n:
            return releases
        many = isinstance(releases, list)
        kind = f"{len(releases)} releases" if many else type(releases).__name__
        raise SamplerOutputError(
            f"mechanism {self.name} answered with {kind}, {rule} {call}; fix the server"
        )

    def _released(
        self, question: dict[str, Any], rule: str, *, most: int, row: int = 1, timeout: float
    ) -> bytearray:
        """An answer of 1 to ``most`` bytes, a multiple of ``row``."""
        call, deadline = f"(release n={question['n']})", time.monotonic() + timeout

        def take(response: http.client.HTTPResponse) -> bytearray:
            content = self._body(response, call=call, rule=rule, most=most)
            if len(content) % row:
                raise SamplerOutputError(
                    f"mechanism {self.name} gave {len(content)} bytes, {rule} {call}; send them all"
                )
            return content

        return self._exchange(question, take, call=call, deadline=deadline, timeout=timeout)[0]

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
        question: dict[str, Any],
        take: Callable[[http.client.HTTPResponse], T],
        *,
        call: str,
        deadline: float,
        timeout: float,
    ) -> tuple[T, float]:
        """Ask, ``take`` the answer, and time that; a failure drops the connection.

        ``call`` is for messages.
        """
        if not self._open:
            raise UsageError(f"{self.role} {self.name}: not open; ask inside `with`")
        body = json.dumps(question)
        try:
            if self._reader is None:
                self._reader = self._connect(deadline)
            started = time.perf_counter()
            response = self._ask(body, deadline)
            answer = take(response)
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
        return answer, seconds

    def _connect(self, deadline: float) -> _Reader:
        """Connect in a thread, since a name lookup has no time limit."""
        arrived: queue.SimpleQueue[socket.socket | OSError] = queue.SimpleQueue()
        limit = _left(deadline)

        def connect() -> None:
            try:
                arrived.put(socket.create_connection((self._host, self._port), timeout=limit))
            except (OSError, UnicodeError) as error:  # UnicodeError: an invalid host name
                arrived.put(error if isinstance(error, OSError) else OSError(str(error)))

        threading.Thread(target=connect, daemon=True).start()
        try:
            connected = arrived.get(timeout=limit)
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
        reused = self._reader.raw.deadline > 0
        if self._reader.surplus():
            raise SamplerOutputError(
                f"{self.role} {self.name} sent more than its last answer's length; "
                "Content-Length must be the body's"
            )
        for last in (not reused, True):
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

    def _checked(self, response: http.client.HTTPResponse, call: str, rule: str) -> None:
        """Refuse an answer by its head; ``call`` and ``rule`` are for messages."""
        if response.status != http.HTTPStatus.OK:
            raise self._refusal(response, call)
        coding = response.headers.get("Content-Encoding", "identity")
        if coding.lower() != "identity":
            value = one_line(coding, limit=_QUOTED)
            raise SamplerOutputError(
                f"{self.role} {self.name} answered with Content-Encoding={value}; "
                "send the values as they are"
            )
        lengths = {length.strip() for length in response.headers.get_all("Content-Length", ())}
        # http.client would ignore an invalid one
        if len(lengths) > 1 or not all(_LENGTH.fullmatch(length) for length in lengths):
            value = one_line(", ".join(sorted(lengths)), limit=_QUOTED)
            raise SamplerOutputError(
                f"{self.role} {self.name} answered with Content-Length={value}, {rule}; "
                "send one whole number"
            )

    def _body(
        self, response: http.client.HTTPResponse, *, call: str, rule: str, most: int
    ) -> bytearray:
        """All of an answer whose length it tells itself: 1 to ``most`` bytes."""
        self._checked(response, call, rule)
        who, content, length, short = (
            f"{self.role} {self.name} gave",
            bytearray(),
            response.length,
            "",
        )
        try:
            while max(len(content), length or 0) <= most and (more := response.read(_PIECE)):
                content += more
        except http.client.IncompleteRead:
            short = " and then the end of a chunk was missing"
        if max(len(content), length or 0) > most:
            raise SamplerOutputError(f"{who} more than {most} bytes {call}; ask for fewer")
        if length is not None and len(content) < length:
            short = f" of {length} and then the end"
        if short or not content:
            raise SamplerOutputError(
                f"{who} {len(content)} bytes{short}, {rule} {call}; send them all"
            )
        if self._surplus(response):
            raise SamplerOutputError(f"{who} more than its Content-Length {call}; send that many")
        return content

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
        body = b""
        with suppress(OSError, http.client.HTTPException):
            body = response.read(_QUOTED)
        lines = body.decode(errors="replace").split("\n")
        line = next((line for line in lines if line.strip()), "")
        quote = f"; it says {one_line(line, limit=_QUOTED)!r}" if line else ""
        kind = SamplerCrashError if response.status >= 400 else SamplerOutputError
        return kind(
            f"{self.role} {self.name} answered with status {status}{quote} {call}; "
            "it must answer 200, fix the server"
        )

    def _hang_up(self) -> None:
        if self._reader is not None:
            self._reader.raw.hang_up()
            self._reader = None


class HttpsTarget(HttpTarget):
    """``https://HOST/PATH``: the same over TLS; this machine must trust the certificate.

    ``SSL_CERT_FILE`` may name others to trust.
    """

    scheme = "https"
