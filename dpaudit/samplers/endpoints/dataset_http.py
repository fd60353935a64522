"""A whole mechanism on data sets behind an HTTP endpoint."""

from __future__ import annotations

import http.client
import json
import time
from typing import Any

from dpaudit.errors import SamplerOutputError, UsageError
from dpaudit.results.text import one_line
from dpaudit.samplers.endpoints.exchange import Endpoint
from dpaudit.samplers.plain import jsonable, of_json

__all__ = ["DatasetEndpoint"]

_MOST = 1 << 28  # bytes of an answer


class DatasetEndpoint(Endpoint):
    """``http://HOST:PORT/PATH``: POST of ``{"dataset": …, "n": n}``, answered by ``n`` releases.

    The data set is a list of records, as in a ``.json`` file; NaN and ∞ are written ``NaN`` and
    ``Infinity``, as Python's json module does. The answer is a JSON array of ``n`` releases, any
    values, of at most 256 MiB. The connection is as :class:`~.exchange.Endpoint` says. Not claimed:
    that the server makes new noise for each release; the audit looks for dependence within a
    request.
    """

    role = "mechanism"

    def __init__(self, name: str) -> None:
        """Read the address, with its scheme; the first release connects.

        Raises:
            UsageError: not an address.
        """
        self.scheme = name.partition(":")[0]
        super().__init__(name)

    def release_any(self, dataset: Any, n: int, *, timeout: float) -> list[Any]:
        """One request: ``n`` releases of ``dataset``, as JSON gives them.

        Raises:
            UsageError: the data set is of no plain kind.
            SamplerTimeoutError: the answer was not complete after ``timeout`` seconds.
            SamplerCrashError: no connection, a connection cut short, or a status of 400 or above.
            SamplerOutputError: another status, too many bytes, or no JSON array of ``n``.
        """
        if not self._open:
            raise UsageError(f"mechanism {self.name}: not open; release inside `with`")
        body = json.dumps({"dataset": jsonable(dataset), "n": n})
        call, wanted = f"(release n={n})", f"wanted a JSON array of {n} releases"
        came = bytearray()

        def take(response: http.client.HTTPResponse) -> None:
            came.extend(self._body(response, call=call, wanted=wanted, most=_MOST))

        deadline = time.monotonic() + timeout
        self._exchange(body, take, call=call, deadline=deadline, timeout=timeout)
        try:
            found = of_json(came)
        except ValueError as error:
            raise SamplerOutputError(
                f"mechanism {self.name}: its answer is no JSON ({one_line(error, limit=100)}), "
                f"{wanted} {call}; fix the server"
            ) from None
        if not isinstance(found, list) or len(found) != n:
            given = f"{len(found)} releases" if isinstance(found, list) else type(found).__name__
            raise SamplerOutputError(
                f"mechanism {self.name} answered with {given}, {wanted} {call}; fix the server"
            )
        return found
