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
        row = 8 * n
        wanted = f"wanted n rows of equally many little-endian float64, {row} bytes or a multiple"
        came = bytearray()

        def take(response: http.client.HTTPResponse) -> None:
            came.extend(self._body(response, call=call, wanted=wanted, most=8 * MOST))
            if len(came) % row:
                raise SamplerOutputError(
                    f"mechanism {self.name} gave {len(came)} bytes, {wanted} {call}; send them all"
                )

        self._exchange(body, take, call=call, deadline=deadline, timeout=timeout)
        releases = np.frombuffer(came, dtype="<f8").astype(np.float64, copy=False)
        return finite(releases.reshape(n, -1), self.name, self.role)
