"""The audit of noise that is already in memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from dpaudit.audit.options import AuditOptions
from dpaudit.audit.result import AuditResult
from dpaudit.audit.run import run_audit
from dpaudit.claims import Claim
from dpaudit.errors import SamplerOutputError

__all__ = ["ValuesSampler", "audit_values"]


class ValuesSampler:
    """A ``ClosedSampler`` that gives recorded values (n,), each once, in order."""

    dim = 1

    def __init__(self, values: npt.NDArray[Any], *, name: str) -> None:
        self.name, self.available = name, len(values)
        self._values, self._next = np.asarray(values, dtype=np.float64), 0

    def __enter__(self) -> ValuesSampler:
        return self

    def __exit__(self, *exc: object) -> None:
        pass

    def draw(self, n: int, d: int, *, timeout: float) -> npt.NDArray[np.float64]:
        """The next ``n`` rows of ``d`` values.

        Raises:
            SamplerOutputError: fewer values are left.
        """
        del timeout
        wanted = self._values[self._next : self._next + n * d]
        if len(wanted) < n * d:
            raise SamplerOutputError(f"{self.name}: {len(wanted)} values left, wanted {n * d}")
        self._next += n * d
        return wanted.reshape(n, d)


def audit_values(
    values: npt.NDArray[Any], claim: Claim, alpha: float, seed: str, *, name: str = "values"
) -> AuditResult:
    """Audit at least 1,000 recorded values (n,) with the whole battery.

    Raises:
        SamplerOutputError: fewer than 1,000 values.
    """
    options = AuditOptions(samples=len(values), alpha=alpha, seed=seed)
    with ValuesSampler(values, name=name) as sampler:
        return run_audit(sampler, claim=claim, options=options)
