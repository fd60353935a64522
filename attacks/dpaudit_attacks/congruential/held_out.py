"""Whether numbers modulo 1 lie in an arc: chosen on some of them, counted on the others."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import scipy.special

__all__ = ["BLUR", "NOTHING", "HeldOut", "held_out"]

Floats = npt.NDArray[np.float64]

BLUR = 2.0**-16
"""How far an honest image may be from a uniform number, on average, on both sides of an arc."""
_WIDTHS = 2.0 ** -np.array([2, 3, 4, 6, 8, 10, 12, 13], dtype=np.float64)


@dataclass(frozen=True, slots=True)
class HeldOut:
    """``hits`` of ``of`` held-out numbers in an arc; honest ones are there with ``chance``."""

    hits: int
    of: int
    width: float
    chance: float
    p: float

    @property
    def text(self) -> str:
        """The counts."""
        return f"{self.hits:,} of {self.of:,}"


NOTHING = HeldOut(0, 0, 1.0, 1.0, 1.0)


def held_out(chosen_on: Floats, counted: Floats, *, factor: float = 1, rise: float = 1) -> HeldOut:
    """Choose the arc that stands out most among the former, and count the latter in it.

    Formal guarantee: where each of ``counted`` is, given those before and ``chosen_on``, within
    ``factor`` times ``BLUR``/2 (on average) of a number whose density modulo 1 is at most ``rise``,
    p is valid: P(Bin(n, rise·w + factor·BLUR) ≥ hits) for an arc of width w.
    """
    at = np.sort(chosen_on % 1.0)
    if not len(at) or not len(counted):
        return NOTHING
    twice = np.concatenate([at, at + 1])
    inside = np.searchsorted(twice, at + _WIDTHS[:, None], side="right") - np.arange(len(at))
    best = np.argmax(inside, axis=1)
    most = np.take_along_axis(inside, best[:, None], 1)[:, 0]
    chances = np.minimum(1.0, rise * _WIDTHS + factor * BLUR)
    # the exponent of Chernoff's bound, which does not end at the smallest number
    share = most / len(at)
    gain = np.where(share > chances, _relative_entropy(share, chances), 0.0)
    k = int(np.argmax(gain))
    width, chance = float(_WIDTHS[k]), float(chances[k])
    # in the middle of the widened arc, so that its ends are not those of the sample
    start = at[best[k]] - (width - (twice[best[k] + most[k] - 1] - at[best[k]])) / 2
    hits = int(np.count_nonzero((counted - start) % 1.0 <= width))
    p = float(scipy.special.bdtrc(hits - 1, len(counted), chance)) if hits else 1.0
    return HeldOut(hits, len(counted), width, chance, p)


def _relative_entropy(a: Floats, b: Floats) -> Floats:
    return np.asarray(scipy.special.rel_entr(a, b) + scipy.special.rel_entr(1 - a, 1 - b))
