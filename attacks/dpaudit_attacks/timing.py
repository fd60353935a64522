"""Time that shows the size of the noise: a timing attack, which reads releases with their seconds.

Threat model: the attacker sees what was released and how long the call took, knows the two
candidate query results, and has timed the same mechanism before, at values that it chose. Jin et
al. 2022 (arXiv 2112.05307): a discrete sampler that loops until success takes time that follows
|noise|, and |noise| with the release gives the value.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import scipy

from dpaudit.errors import UsageError

__all__ = ["Timing"]

_BIN = 50  # releases in a bin of |noise|, at least
_BINS = 128
# a busy machine only makes calls longer: their lower end is the part that the noise decides
_QUICK = 0.1
_QUARTER = 0.25
_REACH = 9.0  # of the residuals' asinh: 4,000 spreads
_CELLS = (np.arange(360) + 0.5) / 20 - _REACH
_SMOOTH = 2.0  # cells
_LEAST_SPREAD = 1e-6  # of the longest call, for clocks that tick coarsely
_FEWEST = 100

Array = npt.NDArray[np.float64]


class Timing:
    """The likelihood ratio of a release and its seconds, learned.

    ln p₁(y)/p₀(y) + ln p(t | y − v₁)/p(t | y − v₀). p₁/p₀ is an isotonic regression along the line
    through the neighbours. The time is taken as m(Σ|noise|) plus a rest of one law: m, monotone,
    from the quickest tenth of the calls in each of up to 128 bins of Σ|noise| (a busy machine only
    makes calls longer), the rest's density from one smoothed histogram of its asinh, so that bursts
    and outliers count for what they are. Rows are read one by one, so independent releases give
    independent statistics.

    Formal guarantee: none of its own; events counted in its scores of other releases have
    one. Not claimed: the best use of the time, or any use of it on a machine that is another
    one (twice as busy) when it counts than when it learned. Leaks of anything but Σ|noise| (the
    sign, the value) are not seen, nor output ratios that are not monotone; other attacks look for
    those.
    """

    games = ("learning",)
    harm = "time"
    holds = "each release's seconds"

    timed = True

    def learn(
        self, first: Array, second: Array, *, neighbours: tuple[Array, Array]
    ) -> Callable[[Array], Array]:
        """See :class:`~dpaudit.protocols.LearningAttack`.

        Releases are (t, m + 1): m numbers and seconds.

        Raises:
            UsageError: releases that are not as long as the neighbours, without the column of
                seconds, fewer than 100 at a neighbour, or not finite.
        """
        return _learn_ratio(first, second, neighbours)


def _learn_ratio(first: Array, second: Array, neighbours: tuple[Array, Array]) -> _LikelihoodRatio:
    pair = np.asarray(neighbours[0], dtype=np.float64), np.asarray(neighbours[1], dtype=np.float64)
    m = len(pair[0])
    for name, x in (("first", first), ("second", second)):
        if x.ndim != 2 or x.shape[1] != m + 1:
            raise UsageError(
                f"{name} of shape {x.shape}: timing needs a release of the {m} numbers of the "
                f"query and its seconds, shape (t, {m + 1}); release noisy query results and time "
                "each call"
            )
        if len(x) < _FEWEST:
            raise UsageError(
                f"{name} of {len(x)} releases: timing learns from {_FEWEST} at least; draw more"
            )
        if not np.isfinite(x).all():
            raise UsageError(f"{name}: contains NaN or infinity; give finite releases and seconds")
    size = np.concatenate(
        [np.abs(x[:, :-1] - v).sum(1) for x, v in zip((first, second), pair, strict=True)]
    )
    seconds = np.concatenate([first[:, -1], second[:, -1]])
    return _LikelihoodRatio(
        _Output.fit(first[:, :-1], second[:, :-1], pair[1] - pair[0]),
        _Clock.fit(size, seconds, pair),
    )


@dataclass(frozen=True)
class _LikelihoodRatio:
    """The release's part and the time's part."""

    output: _Output
    clock: _Clock

    def __call__(self, releases: Array) -> Array:
        values, seconds = releases[:, :-1], releases[:, -1]
        return self.output(values) + self.clock(values, seconds)


@dataclass(frozen=True)
class _Output:
    """ln p₁(y)/p₀(y) of the release alone, monotone along ``direction``."""

    direction: Array
    at: Array
    ratio: Array

    @classmethod
    def fit(cls, first: Array, second: Array, direction: Array) -> _Output:
        along = np.concatenate([first @ direction, second @ direction])
        at, place = np.unique(along, return_inverse=True)
        ones = np.bincount(place[len(first) :], minlength=len(at))
        total = np.bincount(place, minlength=len(at))
        fitted = scipy.optimize.isotonic_regression(ones / total, weights=total)
        starts = fitted.blocks[:-1]
        c1, c = np.add.reduceat(ones, starts), np.add.reduceat(total, starts)
        levels = np.log((c1 + 0.5) / (len(second) + 0.5)) - np.log(
            (c - c1 + 0.5) / (len(first) + 0.5)
        )
        return cls(direction, at, np.maximum.accumulate(np.repeat(levels, np.diff(fitted.blocks))))

    def __call__(self, values: Array) -> Array:
        return np.asarray(np.interp(values @ self.direction, self.at, self.ratio))


@dataclass(frozen=True)
class _Clock:
    """ln f(t − m(Σ|y − v₁|)) − ln f(t − m(Σ|y − v₀|))."""

    neighbours: tuple[Array, Array]
    sizes: Array
    quick: Array
    spread: float
    logs: Array

    @classmethod
    def fit(cls, size: Array, seconds: Array, neighbours: tuple[Array, Array]) -> _Clock:
        bins = max(1, min(_BINS, len(size) // _BIN))
        inner = np.unique(np.quantile(size, np.linspace(0, 1, bins + 1)[1:-1]))
        place = np.searchsorted(inner, size, side="right")
        rows = [np.flatnonzero(place == i) for i in np.unique(place)]
        sizes = np.array([np.median(size[r]) for r in rows])
        quick = _monotone(
            np.array([np.quantile(seconds[r], _QUICK) for r in rows]),
            np.array([len(r) for r in rows]),
        )
        rest = seconds - np.interp(size, sizes, quick)
        least = _LEAST_SPREAD * float(np.abs(seconds).max())
        spread = max(float(np.quantile(np.abs(rest), _QUARTER)), least) or 1.0
        counts = np.histogram(_fold(rest, spread), len(_CELLS), (-_REACH, _REACH))[0]
        logs = np.log(
            scipy.ndimage.gaussian_filter1d(counts.astype(np.float64), _SMOOTH) + 1 / len(_CELLS)
        )
        return cls(neighbours, sizes, quick, spread, logs)

    def __call__(self, values: Array, seconds: Array) -> Array:
        logs = []
        for v in self.neighbours:
            u = _fold(
                seconds - np.interp(np.abs(values - v).sum(1), self.sizes, self.quick), self.spread
            )
            logs.append(np.interp(u, _CELLS, self.logs) - np.log(np.cosh(u)))
        return np.asarray(logs[1] - logs[0])


def _fold(rest: Array, spread: float) -> Array:
    """asinh(rest/spread), kept within reach."""
    return np.clip(np.arcsinh(rest / spread), _CELLS[0], _CELLS[-1])


def _monotone(x: Array, weights: npt.NDArray[np.int64]) -> Array:
    """The isotonic regression, rising or falling, that fits better."""
    fits = [
        scipy.optimize.isotonic_regression(x, weights=weights, increasing=up).x
        for up in (True, False)
    ]
    return np.asarray(min(fits, key=lambda fit: float((weights * (x - fit) ** 2).sum())))
