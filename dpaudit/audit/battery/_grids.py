"""Uniforms of few bits behind exact laws: probabilities that lie on a grid."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import scipy

from dpaudit.audit.battery._digits import Precision
from dpaudit.claims import Claim

__all__ = ["FINEST", "Grid", "lengths_and_angles", "on_a_grid", "single_values"]

FINEST = 48
_FARTHEST = 40.0  # standard deviations; the tail is 0 there
_COARSEST = 16
_BLUR = 1 / 16  # of a step: the most that rounding may spread a probability
_STEPS = 64  # that the probabilities must cover
_NEAR = 1 / 16  # of a step
_FEWEST = 20
_MOST = 1 << 12  # values per k, the first that are fine enough
_GLANCE = 1 << 8  # of these, which say whether the rest is worth a look
_WORTH = 1 / 3  # of hits at a glance: without a grid there are 3/16

Array = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Grid:
    """The finest grid of 2^-bits steps that held-out probabilities lie on, and its p-value."""

    p: float = 1.0
    bits: int = 0
    offset: float = 0.0
    hits: int = 0
    held_out: int = 0

    def says(self, what: str) -> str:
        """One clause: which multiple of ``what`` is a whole number, and how often."""
        offset = "" if min(self.offset, 1 - self.offset) < _NEAR / 2 else f" + {self.offset:.2f}"
        return (
            f"2^{self.bits} · {what} is a whole number{offset} at {self.hits:,} of "
            f"{self.held_out:,} held-out places"
        )


def on_a_grid(u: Array, blur: Array) -> Grid:
    """Whether u·2^k is always a whole number plus a constant, for some k in 16…48.

    ``u`` are probabilities in (0, 1), ``blur`` the widths over which rounding spreads each. The
    constant is fitted to every second value; the others, held out, count as hits within a 16th.

    Null: u has a density that is level over some steps, before rounding. Values enter for which
    rounding spreads u·2^k by at most a 16th, if they cover 64 steps, so a held-out one is a hit
    with probability 1/8 + 1/16, and less than 1/2 whatever makes the density uneven over one step.
    p = P(Binomial(n, 1/2) ≥ hits), times 33 for the k; 1 if of the first 128 fewer than a third
    are hits.
    """
    best = Grid()
    with np.errstate(divide="ignore", over="ignore"):
        finest = np.nan_to_num(np.floor(np.log2(_BLUR / blur)), nan=0.0)
    easy = int(min(finest[:_GLANCE].min(initial=FINEST), FINEST))  # where all of them are fine
    unlikely = _unlikely(u[:_GLANCE], easy)
    for k in range(_COARSEST, FINEST + 1):
        if k in unlikely:
            continue
        fine = np.flatnonzero(finest[: 2 * _MOST] >= k)[:_MOST]
        if len(fine) < _MOST:
            fine = np.flatnonzero(finest >= k)[:_MOST]
        if len(fine) < 2 * _FEWEST:
            break  # the set only shrinks as k grows
        if k > easy and _away(u[fine[:_GLANCE]] * 2.0**k)[1].mean() < _WORTH:
            continue
        y = u[fine] * 2.0**k
        if np.ptp(y) < _STEPS:
            continue
        offset, hit = _away(y)
        hits, n = int(np.count_nonzero(hit)), len(hit)
        p = float(scipy.special.bdtrc(hits - 1, n, 0.5)) if hits else 1.0
        if p < best.p:  # a grid of 2^-k lies on that of 2^-k-1 too, where it is cut more seldom
            best = Grid(p, k, float(offset[0]), hits, n)
    return Grid(
        min(1.0, (FINEST - _COARSEST + 1) * best.p),
        best.bits,
        best.offset,
        best.hits,
        best.held_out,
    )


def _away(y: Array) -> tuple[Array, npt.NDArray[np.bool_]]:
    """The constant of every second value in (…, n), shape (…, 1), and which others are hits."""
    turn = 2 * np.pi * (y[..., ::2] % 1)
    sums = (part.sum(-1, keepdims=True) for part in (np.sin(turn), np.cos(turn)))
    offset = np.arctan2(*sums) / (2 * np.pi) % 1
    return offset, np.abs((y[..., 1::2] - offset + 0.5) % 1 - 0.5) <= _NEAR


def _unlikely(u: Array, finest: int) -> set[int]:
    """The k up to ``finest`` that a few values show no grid for; none of too few values."""
    k = np.arange(_COARSEST, finest + 1)
    if len(u) < _GLANCE:
        return set()
    _, hit = _away(u * 2.0 ** k[:, None])
    return set(k[hit.mean(-1) < _WORTH].tolist())


def single_values(x: Array, claim: Claim, precision: Precision) -> dict[str, tuple[Array, Array]]:
    """The smaller tail's probability under the claim, by sign, each with its blur."""
    sides = {}
    for name, side in (("F(x) for x < 0", x[x < 0]), ("1 − F(x) for x > 0", x[x > 0])):
        z = np.minimum(np.abs(side) / claim.scale, _FARTHEST)
        if claim.family == "gaussian":
            u, density = scipy.special.ndtr(-z), np.exp(-0.5 * z * z) / np.sqrt(2 * np.pi)
        else:
            u = density = 0.5 * np.exp(-z)
        sides[name] = u, density * precision.unit(side) / claim.scale
    return sides


def lengths_and_angles(
    a: Array, b: Array, claim: Claim, precision: Precision
) -> dict[str, tuple[Array, Array]]:
    """Of pairs (a, b) of claimed N(0, 1): exp(−r²/2) and the angle in turns, each with its blur."""
    square = a * a + b * b
    r = np.sqrt(square)
    unit = precision.unit(np.maximum(np.abs(a), np.abs(b)) * claim.scale) / claim.scale
    u = np.exp(-0.5 * square)
    angle = np.arctan2(b, a) / (2 * np.pi)
    with np.errstate(divide="ignore", over="ignore"):
        return {
            "exp(−r²/2)": (u, 1.5 * u * r * unit),
            "the angle in turns": (angle % 1, np.minimum(unit / r, 1.0) / np.pi),
        }
