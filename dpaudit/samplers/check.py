"""Checks of every sampler's request and answer."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from dpaudit.errors import SamplerOutputError, UsageError

__all__ = ["finite", "plain_f64", "request"]


def request(n: int, d: int, timeout: float, *, calls: int = 1) -> None:
    """Refuse an impossible request.

    Raises:
        UsageError: ``n``, ``d`` or ``calls`` below 1, or ``timeout`` not above 0.
    """
    for name, value in (("n", n), ("d", d), ("calls", calls)):
        if value < 1:
            raise UsageError(
                f"{name}={value}: a draw has at least one call, row and column; ask for 1 or more"
            )
    if math.isnan(timeout) or timeout <= 0:
        raise UsageError(f"timeout={timeout}: a time limit is above 0; give it in seconds")


def finite(values: npt.NDArray[np.float64], name: str) -> npt.NDArray[np.float64]:
    """``values`` (n, d), if all of them are finite.

    Raises:
        SamplerOutputError: some are not; it says how many, and where the first one is.
    """
    good = np.isfinite(values)
    if not good.all():
        bad = values.size - int(np.count_nonzero(good))
        row, column = (int(i) for i in np.unravel_index(int(np.argmin(good)), values.shape))
        raise SamplerOutputError(
            f"sampler {name} gave {bad} of {values.size} values that are not finite, the first is "
            f"[{row}, {column}]={values[row, column]}; releases must be finite, fix the sampler"
        )
    return values


def plain_f64(name: str, dtype: str, text_mode: bool) -> None:
    """Refuse number formats for sampler kinds that always give float64.

    Raises:
        UsageError: another ``dtype``, or ``text_mode``.
    """
    if dtype != "f64":
        raise UsageError(
            f"dtype={dtype}: only command:, http: and file:….bin are read as another type; "
            f"leave it out of {name}"
        )
    if text_mode:
        raise UsageError(
            f"text_mode={text_mode}: only command: is read as text; leave it out of {name}"
        )
