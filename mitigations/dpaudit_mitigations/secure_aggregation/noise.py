"""Each server's share of the noise, calibrated for the least number of honest servers that stay.

Skellam noise is the difference of two Poisson numbers, drawn from a CSPRNG by inversion.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Any, Literal, get_args

import numba
import numpy as np
import numpy.typing as npt

from dpaudit.accounting.discrete import discrete_gaussian_sum_bounds, skellam_bounds
from dpaudit.errors import UsageError
from dpaudit.numeric.exact_integers import LARGEST_SCALE, IntegerLaw, draw_integers
from dpaudit.numeric.normal import check_whole
from dpaudit.protocols import Stream
from dpaudit.types import EpsilonBounds

__all__ = [
    "LARGEST_SKELLAM_SCALE",
    "Law",
    "NoiseShare",
    "draw_skellam",
    "finest_granularity",
    "least_honest",
]

LARGEST_SKELLAM_SCALE = 2.0**14
"""Standard deviation, at most; the tables have about 27 rows per unit of it."""

_BITS = 256  # of the weights
_EXACT = 192  # of the distribution function
_GUIDE = 14
_CHUNK = 1 << 16

_U = np.uint64
jit: Any = numba.njit(nogil=True, cache=True, boundscheck=False)


@jit
def _invert(words, tops, guide, shift, sign, out):  # type: ignore[no-untyped-def]
    """Add sign·(place of each word in ``tops``) to ``out`` up to the first word at a border.

    Returns how many were added.
    """
    for i in range(out.size):
        u = words[i]
        bucket = u >> shift
        low, high = guide[bucket], guide[bucket + _U(1)]
        while low < high:
            middle = (low + high) >> 1
            if tops[middle] < u:
                low = middle + 1
            else:
                high = middle
        if tops[low] == u:
            return i
        out[i] += sign * low
    return out.size


class _Poisson:
    """P(X ≤ k) from its first row on, as integers over 2^192 and, rounded down, over 2^``bits``.

    Weights are relative to the mode's, in 256-bit fixed point: λ/(k+1) or k/λ times the last one,
    never above 1, so errors do not grow. With the tails below 2^-256 the total error is below
    (rows + 2)²·2^-256 in total variation.
    """

    def __init__(self, mean: Fraction, bits: int) -> None:
        mode = int(mean)
        top, bottom = mean.numerator, mean.denominator
        up, weight, k = [], 1 << _BITS, mode
        while weight:
            up.append(weight)
            k += 1
            weight = weight * top // (bottom * k)
        down, weight, k = [], 1 << _BITS, mode
        while k > 0 and (weight := weight * bottom * k // top):
            down.append(weight)
            k -= 1
        weights = down[::-1] + up
        total, below = sum(weights), 0
        self.borders: list[int] = []
        for weight in weights:
            below += weight
            self.borders.append((below << _EXACT) // total)
        self.bits, most = bits, (1 << bits) - 1
        self.tops = np.array(
            [min(b >> (_EXACT - bits), most) << (64 - bits) for b in self.borders], dtype=np.uint64
        )
        self.mask = _U(most << (64 - bits))
        edges = np.arange(1 << _GUIDE, dtype=np.uint64) << _U(64 - _GUIDE)
        at = np.searchsorted(self.tops, edges)
        self.guide = np.append(at, len(self.tops) - 1).astype(np.int64)

    def add(self, out: npt.NDArray[np.int64], sign: int, stream: Stream) -> None:
        """Add ``sign`` times X, counted from the first row, to each value of ``out``."""
        words = np.frombuffer(stream.bytes(8 * len(out)), dtype="<u8") & self.mask
        at = 0
        while at < len(out):
            at += _invert(words[at:], self.tops, self.guide, _U(64 - _GUIDE), sign, out[at:])
            if at < len(out):  # these bits do not decide; 192 do
                exact = int(words[at]) >> (64 - self.bits) << (_EXACT - self.bits)
                exact |= int.from_bytes(stream.bytes(_EXACT // 8), "little") >> self.bits
                out[at] += sign * min(bisect_right(self.borders, exact), len(self.borders) - 1)
                at += 1


@lru_cache(maxsize=8)
def _table(scale: float, bits: int) -> _Poisson:
    return _Poisson(Fraction(scale) ** 2 / 2, bits)


def draw_skellam(n: int, *, scale: float, stream: Stream, bits: int = 64) -> npt.NDArray[np.int64]:
    """``n`` independent Skellam numbers of mean 0 and variance ``scale``², shape (n,).

    Each is X − Y, X and Y Poisson of mean scale²/2, by inversion of 64 uniform bits each, or of 192
    if these fall on a border (``bits`` replaces the 64; it changes speed and numbers, not the law,
    and tests use few). Guarantee: given uniform bytes, each number's law is within 2^-188 of
    Skellam's in total variation (the tables have 192 bits); no floating point is involved. Not
    claimed: constant time; the look-up's time varies slightly with the number.

    Raises:
        UsageError: scale not a number > 0, or above 2^14.
    """
    if not 0 < scale <= LARGEST_SKELLAM_SCALE:
        raise UsageError(
            f"scale={scale}: Skellam noise takes 0 < scale ≤ {LARGEST_SKELLAM_SCALE:g} steps; "
            "take a coarser granularity"
        )
    table = _table(scale, bits)
    out = np.zeros(n, dtype=np.int64)
    for at in range(0, n, _CHUNK):
        part = out[at : at + _CHUNK]
        table.add(part, 1, stream)
        table.add(part, -1, stream)
    return out


Law = Literal["discrete-gaussian", "skellam"]

_FINENESS: dict[Law, int] = {"discrete-gaussian": 24, "skellam": 12}


def least_honest(servers: int, *, dropouts: int, colluding: int, backdoored: int = 0) -> int:
    """Servers less dropouts, colluding and backdoored ones: those whose noise surely protects.

    Their noise is in the sum and unknown to others if the threshold is servers − dropouts: an
    aggregator may leave out as many as the threshold allows, and does not choose its helpers.

    Raises:
        UsageError: a negative number, or none is left.
    """
    counts = {"dropouts": dropouts, "colluding": colluding, "backdoored": backdoored}
    for name, value in counts.items():
        check_whole(name, value, low=0)
    honest = servers - dropouts - colluding - backdoored
    if honest < 1:
        raise UsageError(
            f"servers={servers}: less dropouts={dropouts}, colluding={colluding}, "
            f"backdoored={backdoored} leaves no honest noise; take more servers"
        )
    return honest


def finest_granularity(law: Law, sigma: float) -> float:
    """The least power of two above σ·2^-25 (discrete Gaussian) or σ·2^-13 (Skellam).

    It is as fine as these samplers are used.

    Raises:
        UsageError: no such law, or sigma not a finite number > 0.
    """
    _check(law, sigma)
    return math.ldexp(1.0, math.frexp(sigma)[1] - 1 - _FINENESS[law])


@dataclass(frozen=True, kw_only=True)
class NoiseShare:
    """One server's noise: whole steps of ``granularity``, of standard deviation ``sigma``.

    ``granularity`` and ``sigma`` are in the values' unit.

    ``discrete-gaussian``: exact (``dpaudit.numeric.exact_integers``); a sum of such shares is only
    nearly discrete Gaussian, and the accounting says how nearly. ``skellam``: within 2^-188
    (:func:`draw_skellam`), and a sum of shares is Skellam again.

    Raises:
        UsageError: no such law, sigma not a finite number > 0, or a granularity too fine or too
            coarse for the sampler (half a step of standard deviation, at least).
    """

    law: Law
    sigma: float
    granularity: float

    def __post_init__(self) -> None:
        _check(self.law, self.sigma)
        most = LARGEST_SCALE if self.law == "discrete-gaussian" else LARGEST_SKELLAM_SCALE
        if not 0.5 <= self.scale <= most:
            raise UsageError(
                f"granularity={self.granularity}: {self.law} noise takes sigma/{most:g} to "
                f"2·sigma, sigma={self.sigma:g} here"
            )

    @classmethod
    def calibrated(cls, law: Law, *, sigma: float, honest: int, granularity: float) -> NoiseShare:
        """Shares of σ/√honest, so that ``honest`` of them have standard deviation ``sigma``."""
        return cls(law=law, sigma=sigma / math.sqrt(honest), granularity=granularity)

    @property
    def scale(self) -> float:
        """Standard deviation in steps."""
        return self.sigma / self.granularity

    def draw(self, count: int, *, stream: Stream) -> npt.NDArray[np.int64]:
        """``count`` steps of noise from the stream's next bytes, shape (count,)."""
        if self.law == "skellam":
            return draw_skellam(count, scale=self.scale, stream=stream)
        return draw_integers(count, IntegerLaw.gaussian(self.scale), stream=stream)

    def drawer(self, stream: Stream) -> Callable[[int], npt.NDArray[np.int64]]:
        """:meth:`draw` on one stream, as ``FixedPoint.encode`` wants it."""
        return lambda count: self.draw(count, stream=stream)

    def epsilon(self, delta: float, *, honest: int, sensitivity: float, dim: int) -> EpsilonBounds:
        """ε at ``delta`` of ``honest`` such shares together, against everybody else.

        ``sensitivity`` is in the values' unit. Values are rounded to the granularity first, which
        can move neighbours g√dim further apart; that is included.
        """
        far = sensitivity / self.granularity
        if self.law == "skellam":
            return skellam_bounds(
                delta, variance=honest * self.scale**2, sensitivity=far, dim=dim, rounded=True
            )
        return discrete_gaussian_sum_bounds(
            delta, scale=self.scale, parties=honest, sensitivity=far, dim=dim, rounded=True
        )


def _check(law: str, sigma: float) -> None:
    if law not in get_args(Law):
        raise UsageError(f"noise={law}: takes {' or '.join(get_args(Law))}")
    if isinstance(sigma, (str, bool)) or not 0 < sigma < math.inf:
        raise UsageError(f"sigma={sigma}: must be a finite number > 0")
