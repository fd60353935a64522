"""Amplification by shuffling: the cost of a local report once nobody can tell whose it is."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import scipy

from dpaudit.accounting._checks import positive, probability
from dpaudit.errors import UsageError

__all__ = [
    "shuffled_delta",
    "shuffled_epsilon",
]

Array = npt.NDArray[np.float64]

_BLOCKS = 1024
_TAIL = 1e-4  # the share of δ given up to numbers of clones that are not summed
# relative, what a computed δ is raised by; for very many users, more: see ``_Clones.delta``
_ROUNDING = 1e-9
_HALVINGS = 60
_MOST = 1 << 53
_LARGEST = 700.0


def shuffled_delta(epsilon: float, *, local_epsilon: float, users: int) -> float:
    """An upper bound on δ at ε of ``users`` shuffled reports, each ``local_epsilon``-DP.

    Each other person's report is, with probability e^−ε₀ at least, a draw from one of the two laws
    that an observer has to tell apart, either one equally often: a clone. Given those, the pair to
    tell apart is P = (A + B, C − A + 1 − B) and Q = (A + 1 − B, C − A + B), with C ~ Bin(n − 1,
    e^−ε₀), A ~ Bin(C, ½), B ~ Bernoulli(e^ε₀/(e^ε₀ + 1)) (Feldman, McMillan and Talwar 2021, arXiv
    2012.12803, Section 3; their own program sums the same pair). P and Q are mirror images, so one
    direction is both.

    Formal guarantee: no less than the pair's δ: C's tails count as if they gave everything away,
    blocks of values of C are put to their lower end (one more clone is post-processing, so δ given
    C never rises with C), and the sum is raised for rounding, by 1e-9 relative and a little more
    from 10^9 users on. Not claimed: tightness beyond that; randomised response hides more (the
    privacy blanket of Balle, Bell, Gascón and Nissim 2019), and later work (Feldman, McMillan and
    Talwar 2023) has more clones.

    Raises:
        UsageError: ε negative or NaN, ε₀ not a finite number above 0, or ``users`` not from 1 to
            2^53.
    """
    if not epsilon >= 0:
        raise UsageError(f"epsilon={epsilon}: must be a number ≥ 0")
    _check(local_epsilon, users)
    clones = _Clones(local_epsilon, users - 1, math.exp(-local_epsilon), lost=1e-18)
    return min(1.0, clones.delta(epsilon))


def shuffled_epsilon(local_epsilon: float, delta: float, *, users: int) -> float:
    """An ε at which ``users`` shuffled reports, each ``local_epsilon``-DP, are (ε, δ)-DP.

    It is never above ``local_epsilon``: the least ε at which :func:`shuffled_delta`'s sum is at
    most ``delta``, by bisection, rounded up. Formal guarantee: towards anyone who sees the shuffled
    reports and nothing else, for one report of each person, all ``users`` of whom report by ε₀-DP
    randomisers that do not depend on the person (chosen adaptively, too: Theorem 3.1). People who
    do not report, or lie, hide nobody: count honest people only. Not claimed: anything where the
    shuffler and the server are one, or where a report reveals its sender by other means (time,
    address, language).

    Raises:
        UsageError: a parameter out of range.

    >>> round(shuffled_epsilon(1.0, 1e-6, users=1_000_000), 5)
    0.00433
    """
    _check(local_epsilon, users)
    probability(delta)
    clones = _Clones(local_epsilon, users - 1, math.exp(-local_epsilon), lost=_TAIL * delta)
    return _invert(clones, delta, local_epsilon)


def _check(local_epsilon: float, users: int) -> None:
    positive(local_epsilon=local_epsilon)
    if local_epsilon > _LARGEST:
        raise UsageError(
            f"local_epsilon={local_epsilon}: at most {_LARGEST:g}; "
            "such reports hide nothing, shuffled or not"
        )
    if (
        isinstance(users, bool)
        or not isinstance(users, (int, np.integer))
        or not 1 <= users <= _MOST
    ):
        raise UsageError(f"users={users}: must be a whole number from 1 to 2^53")


def _at_most(k: Array, n: int, p: float) -> Array:
    """P(Bin(n, p) ≤ k) for whole k."""
    inner = scipy.special.betaincc(np.maximum(k, 0) + 1, np.maximum(n - k, 1), p)
    return np.where(k < 0, 0.0, np.where(k >= n, 1.0, inner))


def _at_least(k: Array, n: Array | int, p: float) -> Array:
    """P(Bin(n, p) ≥ k) for whole k."""
    inner = scipy.special.betainc(np.maximum(k, 1), np.maximum(n - k, 0) + 1, p)
    return np.where(k <= 0, 1.0, np.where(k > n, 0.0, inner))


def _fair(k: Array, n: Array) -> Array:
    """P(Bin(n, ½) = k), whole k ≥ 0, by Loader's saddle point: relative error ~1e-15·ln(1/P)."""
    inside = (k > 0) & (k < n)
    m, j = np.where(inside, n, 2.0), np.where(inside, k, 1.0)
    x = (2 * j - m) / m
    deviance = m / 2 * (2 * x * np.arctanh(x) + np.log1p(-x * x))
    root = np.sqrt(m / (2 * math.pi * j * (m - j)))
    inner = root * np.exp(_stirling(m) - _stirling(j) - _stirling(m - j) - deviance)
    return np.where(inside, inner, np.where((k == 0) | (k == n), np.exp2(-n), 0.0))


def _stirling(n: Array) -> Array:
    """What ln n! has above Stirling's formula, for n ≥ 1."""
    near = np.minimum(n, 20.0)
    direct = (
        scipy.special.gammaln(near + 1)
        - (near + 0.5) * np.log(near)
        + near
        - math.log(2 * math.pi) / 2
    )
    series = (1 / 12 - (1 / 360 - (1 / 1260 - 1 / 1680 / n**2) / n**2) / n**2) / n
    return np.where(n < 20, direct, series)


def _first(meets: Callable[[int], bool], low: int, high: int) -> int:
    """The least whole number from ``low`` on that meets a condition; ``high`` and all after do."""
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if meets(middle) else (middle + 1, high)
    return high


class _Clones:
    """C ~ Bin(others, p) clones: blocks of its values, each one's least value and probability."""

    def __init__(self, local_epsilon: float, others: int, p: float, *, lost: float) -> None:
        self._local, self._rest = local_epsilon, lost
        # betainc is right to about 1e-15·√n; z standard deviations out, δ's two terms cancel to
        # 1/z² of them, z² ≈ 2 ln 1/δ
        self._rounding = _ROUNDING + 1e-15 * math.sqrt(others) * (
            4 - 2 * math.log(max(lost, 1e-300))
        )

        def at_least(k: int) -> float:
            return float(_at_least(np.array(k, np.float64), others, p))

        def at_most(k: int) -> float:
            return float(_at_most(np.array(k, np.float64), others, p))

        mean = min(others, math.ceil(others * p))
        low = _first(lambda k: at_most(k) > lost / 2, 0, mean)  # P(C < low) ≤ lost/2
        high = _first(lambda k: at_least(k + 1) <= lost / 2, mean, others)
        width = -(-(high - low + 1) // _BLOCKS)
        starts = np.arange(low, high + 1, width, dtype=np.float64)
        ends = np.minimum(starts + width - 1, high)
        lower = _at_most(ends, others, p) - _at_most(starts - 1, others, p)
        upper = _at_least(starts, others, p) - _at_least(ends + 1, others, p)
        self._starts, self._mass = starts, np.maximum(np.where(ends < mean, lower, upper), 0.0)

    def delta(self, epsilon: float) -> float:
        """The upper bound on δ(ε), raised for rounding; 0 from the local ε on."""
        if epsilon >= self._local:
            return 0.0
        return math.fsum(self._mass * self._given(epsilon)) * (1 + self._rounding) + self._rest

    def _given(self, epsilon: float) -> Array:
        """δ(ε) given C = c: the sum over a > β(c + 1) of P(a) − e^ε·Q(a).

        Here a counts the reports that look like the person's. With b(a) = C(c, a)/2^c and T =
        e^ε₀/(e^ε₀ + 1): P(a) = T·b(a − 1) + (1 − T)·b(a), Q(a) = (1 − T)·b(a − 1) + T·b(a). Their
        ratio grows with a, as b(a − 1)/b(a) = a/(c + 1 − a) does, and is e^ε at a = β(c + 1). From
        the first such a on the sum is T·(1 − e^(ε − ε₀))·b(a − 1) − (e^ε − 1)·Σ b, two terms of the
        order of √c less than those of P and Q.
        """
        away, c = math.exp(-self._local), self._starts
        beta = math.expm1(-self._local - epsilon) / (
            math.expm1(-self._local) * (1 + math.exp(-epsilon))
        )
        first = np.floor(beta * (c + 1)) + 1
        edge = -math.expm1(epsilon - self._local) / (1 + away) * _fair(first - 1, c)
        return np.maximum(0.0, edge - math.expm1(epsilon) * _at_least(first, c, 0.5))


def _invert(clones: _Clones, delta: float, high: float) -> float:
    """The least ε, rounded up, with clones.delta(ε) ≤ δ; at ``high`` that is so."""
    low = 0.0
    if clones.delta(low) <= delta:
        return low
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (low, middle) if clones.delta(middle) <= delta else (middle, high)
    return high
