"""The law of noise that a pipeline makes of uniform numbers, read from the numbers themselves."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from scipy.special import ndtri

__all__ = ["law_of"]

_ENOUGH = 12
"""Numbers that a law must explain. A law that holds on one side only fails for one in 4,096."""


def _laplace(u: Any) -> Any:
    return -np.sign(u - 0.5) * np.log1p(-2 * np.abs(u - 0.5))


_ONE: dict[str, tuple[Callable[[Any], Any], ...]] = {"laplace": (_laplace,), "normal": (ndtri,)}
_TWO: dict[str, tuple[Callable[[Any, Any], Any], ...]] = {
    "laplace": (
        lambda u, v: np.log(u) - np.log(v),
        lambda u, v: np.log1p(-u) - np.log1p(-v),
        lambda u, v: np.where(u < 0.5, 1, -1) * np.log(v),
        lambda u, v: np.where(u < 0.5, 1, -1) * np.log1p(-v),
    ),
    "normal": (
        lambda u, v: np.sqrt(-2 * np.log(u)) * np.cos(2 * np.pi * v),
        lambda u, v: np.sqrt(-2 * np.log(u)) * np.sin(2 * np.pi * v),
        lambda u, v: np.sqrt(-2 * np.log1p(-u)) * np.cos(2 * np.pi * v),
        lambda u, v: np.sqrt(-2 * np.log1p(-u)) * np.sin(2 * np.pi * v),
    ),
}


def law_of(samples: Sequence[Mapping[str, Any]]) -> tuple[str, float] | None:
    """The law and scale of numbers (``is``) that are made of uniform ones (``of``), or None.

    Known are inverse distribution functions of Laplace and Gaussian noise, differences of two
    exponential draws, signed ones, and Box and Muller's pair. Guarantee: all numbers are the
    law's function of their uniform numbers times one scale, to a millionth. Not claimed: laws
    that are none of these, and functions that differ where no number was seen.
    """
    rows = [
        (*draws, value)
        for sample in samples
        for *draws, value in zip(*sample["of"].values(), sample["is"], strict=False)
    ]
    table = np.unique(np.array([r for r in rows if len(r) == len(rows[0])], dtype=float), axis=0)
    if len(table) < _ENOUGH or table.shape[1] not in (2, 3):
        return None
    *draws, values = table.T
    orders = [draws] if len(draws) == 1 else [draws, draws[::-1]]
    for law, forms in (_ONE if len(draws) == 1 else _TWO).items():
        for form in forms:
            for order in orders:
                with np.errstate(all="ignore"):
                    scales = values / form(*order)
                if np.isfinite(scales).all() and scales[0] and np.allclose(scales, scales[0], 1e-6):
                    return law, float(abs(scales[0]))
    return None
