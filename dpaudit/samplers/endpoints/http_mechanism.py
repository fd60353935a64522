"""A whole mechanism behind an HTTP endpoint."""

from __future__ import annotations

import http.client
import json
import time

import numpy as np
import numpy.typing as npt

from dpaudit.errors import SamplerOutputError, UsageError
from dpaudit.samplers.check import finite, request
from dpaudit.samplers.endpoints.exchange import Endpoint
from dpaudit.samplers.endpoints.releases import MOST, query_result

__all__ = ["HttpMechanism"]

_PIECE = 1 << 20  # bytes read at a time

Array = npt.NDArray[np.float64]


class HttpMechanism(Endpoint):
    """``http://HOST:PORT/PATH``: POST of ``{"value": […], "n": n}``, answered by ``n`` releases.

    ``value`` is a list of the query result's numbers, each with enough digits to be exact. Releases
    are little-endian float64, row by row: n·k numbers for a release of k, which the length of the
    answer tells. The connection is as :class:`~.exchange.Endpoint` says. There are no timed
    releases: most of the time of a request is the network's. Not claimed: that the server makes new
    noise for each release; the audit looks for dependence within a request.
    """

    role = "mechanism"
    version: str | None = None
    advice = ""

    def __init__(self, name: str) -> None:
        """Read the address, with its scheme; the first release connects.

        Raises:
            UsageError: not an address.
        """
        self.scheme = name.partition(":")[0]
        super().__init__(name)

    def release(self, value: Array, n: int, *, timeout: float) -> Array:
        """One request: ``n`` finite releases (n, k) of the query result ``value`` (m,).

        Raises:
            UsageError: ``value`` is not 1 to 4096 finite numbers.
            SamplerTimeoutError: the answer was not complete after ``timeout`` seconds.
            SamplerCrashError: no connection, a connection cut short, or a status of 400 or above.
            SamplerOutputError: another status, not ``n`` rows, too many bytes, or not finite.
        """
        value = query_result(value)
        request(n, value.size, timeout)
        if not self._open:
            raise UsageError(f"mechanism {self.name}: not open; release inside `with`")
        body = json.dumps({"value": value.tolist(), "n": n})
        call, deadline = f"(release n={n})", time.monotonic() + timeout
        came = bytearray()
        self._exchange(
            body,
            lambda response: self._take(response, came, n, call),
            call=call,
            deadline=deadline,
            timeout=timeout,
        )
        releases = np.frombuffer(came, dtype="<f8").astype(np.float64, copy=False)
        return finite(releases.reshape(n, -1), self.name)

    def _take(self, response: http.client.HTTPResponse, came: bytearray, n: int, call: str) -> None:
        row, most = 8 * n, 8 * MOST
        wanted = f"wanted n rows of equally many little-endian float64, {row} bytes or a multiple"
        self._checked(response, call, wanted)
        length = response.length
        short = ""
        try:
            while max(len(came), length or 0) <= most and (more := response.read(_PIECE)):
                came += more
        except http.client.IncompleteRead:
            short = " and then the end of a chunk was missing"
        if max(len(came), length or 0) > most:
            raise SamplerOutputError(
                f"mechanism {self.name} gave more than {MOST} numbers {call}; ask for fewer"
            )
        if length is not None and len(came) < length:
            short = f" of {length} and then the end"
        if short or not came or len(came) % row:
            raise SamplerOutputError(
                f"mechanism {self.name} gave {len(came)} bytes{short}, {wanted} {call}; "
                "send them all"
            )
        if self._surplus(response):
            raise SamplerOutputError(
                f"mechanism {self.name} gave more than its Content-Length {call}; send that many"
            )
