"""Noise from an HTTP endpoint."""

from __future__ import annotations

import http.client
import json
import time
from functools import partial

import numpy as np
import numpy.typing as npt

from dpaudit.errors import SamplerOutputError, UsageError
from dpaudit.samplers.check import finite, request
from dpaudit.samplers.endpoints.exchange import Endpoint

__all__ = ["HttpSampler", "HttpsSampler"]

_TYPES = {"f64": "<f8", "f32": "<f4"}
_PIECE = 1 << 17  # values read at a time

Array = npt.NDArray[np.float64]


class HttpSampler(Endpoint):
    """``http://HOST:PORT/PATH``: POST of ``{"n": n, "d": d}``, answered by exactly n·d values.

    Values are little-endian float64 or float32 (``dtype="f32"``), row by row; the answer's
    Content-Type is ignored. The connection is as :class:`~.exchange.Endpoint` says. Memory is n·d·8
    bytes and a little, whatever the server sends. Not claimed: that the server makes new noise for
    each request; the tests look for that.
    """

    dim: int | None = None
    available: int | None = None

    def __init__(
        self, target: str, *, seed: str, dtype: str = "f64", text_mode: bool = False
    ) -> None:
        """Read the address; the first draw connects. ``seed`` is not sent: the endpoint is closed.

        Raises:
            UsageError: not an address, no such ``dtype``, or ``text_mode``.
        """
        name = f"{self.scheme}:{target}"
        if dtype not in _TYPES:
            raise UsageError(
                f"dtype={dtype}: an endpoint answers in f64 or f32; choose one of them"
            )
        if text_mode:
            raise UsageError(
                f"text_mode={text_mode}: only command: is read as text; leave it out of {name}"
            )
        super().__init__(name)
        self._made_from = (target, seed, dtype)
        self._type = np.dtype(_TYPES[dtype])

    def again(self) -> HttpSampler:
        """The same endpoint, over a connection of its own."""
        target, seed, dtype = self._made_from
        return type(self)(target, seed=seed, dtype=dtype)

    def draw(self, n: int, d: int, *, timeout: float) -> Array:
        """One request: ``n`` vectors, shape (n, d), finite.

        Raises:
            SamplerTimeoutError: the answer was not complete after ``timeout`` seconds.
            SamplerCrashError: no connection, a connection cut short, or a status of 400 or above.
            SamplerOutputError: another status, too few or too many bytes, not HTTP, or not finite.
        """
        return self.draw_calls(1, n, d, timeout=timeout)[0]

    def draw_calls(self, calls: int, n: int, d: int, *, timeout: float) -> tuple[Array, Array]:
        """``calls`` requests of ``n`` vectors in turn: values (calls·n, d), and each one's seconds.

        Raises:
            SamplerError: as in :meth:`draw`.
        """
        request(n, d, timeout, calls=calls)
        if not self._open:
            raise UsageError(f"sampler {self.name}: not open; draw inside `with`")
        deadline = time.monotonic() + timeout
        values, seconds = np.empty((calls * n, d)), np.empty(calls)
        body, asked = json.dumps({"n": n, "d": d}), f"(call n={n}, d={d})"
        for call in range(calls):
            rows = values[call * n : (call + 1) * n].reshape(-1)
            take = partial(self._take, out=rows, call=asked)
            seconds[call] = self._exchange(
                body, take, call=asked, deadline=deadline, timeout=timeout
            )
        return finite(values, self.name), seconds

    def _take(self, response: http.client.HTTPResponse, *, out: Array, call: str) -> None:
        width = self._type.itemsize
        size = out.size * width
        wanted = f"wanted exactly {size} bytes, {out.size} values of {width} bytes {call}"
        self._checked(response, call, wanted)
        if response.length not in (None, size):
            raise SamplerOutputError(
                f"sampler {self.name} answered with Content-Length={response.length}, {wanted}; "
                "send that many, or set their type with dtype (f64 or f32)"
            )
        got, least = 0, ""
        try:
            for start in range(0, out.size, _PIECE):
                piece = np.empty(min(_PIECE, out.size - start), dtype=self._type)
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
                f"sampler {self.name} gave {least}{got} bytes and then the end, {wanted}; "
                "send them all"
            )
        if self._surplus(response):
            raise SamplerOutputError(
                f"sampler {self.name} gave at least {size + 1} bytes, {wanted}; send that many"
            )


class HttpsSampler(HttpSampler):
    """``https://HOST/PATH``: the same over TLS; this machine must trust the certificate.

    ``SSL_CERT_FILE`` may name others to trust.
    """

    scheme = "https"
