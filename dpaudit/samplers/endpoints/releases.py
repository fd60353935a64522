"""A whole mechanism in a worker process (the parent's side)."""

from __future__ import annotations

import base64
import time
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from dpaudit import registry
from dpaudit.errors import SamplerOutputError, UsageError
from dpaudit.samplers.check import finite
from dpaudit.samplers.endpoints.worker import LibrarySampler, PythonSampler, Worker
from dpaudit.samplers.sandbox.view import compiled_code, files_of_options
from dpaudit.types import Reference

__all__ = ["MOST", "ReleasingWorker", "SourceMechanism", "query_result"]

_LONGEST_VALUE = 4096  # numbers, so that a question is shorter than a pipe holds
MOST = 1 << 28  # numbers in one answer, 2 GiB

Array = npt.NDArray[np.float64]


class ReleasingWorker(Worker):
    """A third-party mechanism, limited as samplers are; one process for all values.

    The worker gives the length of a release with each answer; nothing is drawn for that.
    """

    def __init__(
        self,
        name: str,
        *,
        place: str,
        member: str,
        of: str,
        version: str | None = None,
        advice: str = "",
    ) -> None:
        """``of`` is ``library`` (``place`` its name, ``member`` MECH with options) or ``source``.

        ``version`` is the installed version of the library, ``advice`` a warning about it; they are
        only stored.
        """
        super().__init__(name, {"kind": "mechanism", "place": place, "member": member, "of": of})
        self.version = version
        self.advice = advice

    def release(self, value: Array, n: int, *, timeout: float) -> Array:
        """``n`` independent releases of the query result ``value`` (m,), shape (n, k), finite.

        The first release also waits for the process to start.

        Raises:
            UsageError: ``value`` is not 1 to 4096 finite numbers, the mechanism refuses it, or
                cannot be opened.
            SamplerTimeoutError: no answer after ``timeout`` seconds; the process is killed.
            SamplerCrashError: it raised, or its process died.
            SamplerOutputError: its answer is not ``n`` rows of finite numbers.
        """
        return finite(self._released(value, n, timeout), self.name, self.role)

    def release_timed(self, value: Array, n: int, *, timeout: float) -> tuple[Array, Array]:
        """``n`` releases (n, k) of ``value`` (m,) in as many calls, and each call's seconds (n,).

        The worker calls the mechanism for one release at a time and times each call alone, with the
        clock of ``time.perf_counter_ns``; a library that gives one number at a time is called m
        times per release. Not claimed: that the seconds are those of the noise alone. Raises as
        :meth:`release` does.
        """
        both = self._released(value, n, timeout, timed=True)
        return finite(both[:, :-1], self.name, self.role), np.ascontiguousarray(both[:, -1])

    def _released(self, value: Array, n: int, timeout: float, *, timed: bool = False) -> Array:
        """Releases (n, k); with ``timed`` the seconds are a last column."""
        value = query_result(value)
        deadline = time.monotonic() + timeout
        told: Any = base64.b64encode(value.tobytes()).decode()
        answer = self._draw(np.empty(0), n, value.size, timeout, release=told, timed=timed)
        width = answer.get("width") if isinstance(answer, dict) else None
        if not isinstance(width, int) or not 0 < width <= MOST // n:
            raise SamplerOutputError(
                f"mechanism {self.name} released n={n} rows of {width} numbers; "
                f"1 to {MOST} in all are accepted, ask for fewer"
            )
        releases = np.empty((n, width + timed))
        left = max(deadline - time.monotonic(), 1e-3)
        self._draw(releases, n, width + timed, left)
        return releases


class ReleasingFunction(ReleasingWorker):
    """A function of Python or of a shared library: value in, releases out."""

    def __init__(self, noise: PythonSampler | LibrarySampler, *, calls: int = 1) -> None:
        """``noise`` is the same function as a sampler, which has read its target and its call.

        With ``calls`` above 1 it makes sessions (:func:`~dpaudit.samplers.functions.sessions`).
        """
        spec, of = noise._spec, "symbol" if isinstance(noise, LibrarySampler) else "python"
        super().__init__(noise.name, place=str(spec["place"]), member=str(spec["member"]), of=of)
        self._spec = {**self._spec, "call": spec["call"], "calls": str(calls)}
        self._noise = noise
        noise.role = self.role

    def _needed_paths(self) -> list[str]:
        return self._noise._needed_paths()

    def _hint(self, message: str) -> str:
        return self._noise._hint(message)

    def _remedy(self) -> str:
        return self._noise._remedy()


class SourceMechanism(ReleasingWorker):
    """``NAME[:opt=value,…]`` behind ``mitigation`` (default ``none``): value in, release out.

    Call i draws from ``KeyedStream.from_seed(seed).child("release", i)``, so the same seed and
    calls give the same releases, and no two calls share randomness.
    """

    def __init__(self, text: str, *, seed: str, mitigation: str | None = None) -> None:
        """Look the names up; nothing is imported here.

        Raises:
            UnknownNameError: no such source or mitigation.
            UsageError: a broken option.
        """
        origin = registry.plugin("sources", Reference.parse(text).name).origin
        defence = "none" if mitigation is None else mitigation
        registry.plugin("mitigations", Reference.parse(defence).name)
        super().__init__(text, place=text, member=defence, of="source", version=origin.version)
        self._spec = {**self._spec, "seed": seed}
        self._distribution = origin.distribution

    def _needed_paths(self) -> list[str]:
        return files_of_options(self._spec["place"], self._spec["member"])

    def _shared(self) -> Path | None:
        return compiled_code(self._distribution)


def query_result(value: Array) -> Array:
    """``value`` as mechanisms get it: float64, shape (m,).

    Raises:
        UsageError: it is not 1 to 4096 finite numbers.
    """
    value = np.asarray(value, dtype=np.float64)
    if value.ndim != 1 or not 0 < value.size <= _LONGEST_VALUE:
        raise UsageError(
            f"value of shape {value.shape}: a query result has 1 to {_LONGEST_VALUE} numbers, "
            "shape (m,)"
        )
    if not np.isfinite(value).all():
        raise UsageError(
            f"value={value[~np.isfinite(value)][0]}: a query result is finite; choose another"
        )
    return value
