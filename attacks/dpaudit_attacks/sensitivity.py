"""Neighbouring datasets on which machine sums move by more than they should.

Sums in floating-point or integer arithmetic. After Casacuberta, Shoemate, Vadhan and Wagaman 2022
("Widespread underestimation of sensitivity in differentially private libraries and how to fix it",
arXiv 2207.10635): rounding, reordering, wrap-around, saturation; and a count that a filter makes
private. Threat model: the attacker chooses the other records and knows the bounds and the number of
records.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from dpaudit.errors import UsageError
from dpaudit.protocols import ProbingAttack
from dpaudit.randomness import KeyedStream
from dpaudit.registry import nearest

__all__ = ["KINDS", "Excess", "SensitivityProbes", "excess"]

_LARGEST_SIZE = 10_000_000
_WORTH_IT = 1.01  # of upper − lower, of a replaced record
_WORTH_REORDERING = 0.01
_LIMITS = (7, 8, 15, 16, 31, 32, 63, 64)
_SATURATES = 2.0**15

Array = npt.NDArray[np.float64]
Pair = tuple[str, Array, Array]
Sum = Callable[[Array], float]
Float = type[np.float64] | type[np.float32]


def _in_order(dtype: Float) -> Sum:
    return lambda x: float(np.cumsum(x.astype(dtype), dtype=dtype)[-1])


def _by_numpy(dtype: Float) -> Sum:
    return lambda x: float(x.astype(dtype).sum())


_ARITHMETIC: tuple[tuple[str, Float, Sum], ...] = (
    ("float64 in order", np.float64, _in_order(np.float64)),
    ("float64 by numpy.sum", np.float64, _by_numpy(np.float64)),
    ("float32 in order", np.float32, _in_order(np.float32)),
    ("float32 by numpy.sum", np.float32, _by_numpy(np.float32)),
)


class SensitivityProbes:
    """Pairs of datasets of ``size`` records that differ in one record, or in order only.

    Records lie within [``lower``, ``upper``]. By ``kind``:

    - ``rounding``: one record replaced where a partial sum is about to round the other way; found
      by halving the way between two datasets, record by record, towards the larger move, in four
      arithmetics (float64 and float32, in order and as numpy adds). Where the ends' sums differ, a
      pair with a move of at least one unit in the last place is found.
    - ``reordering``: the same records with the large ones first, which swallow the small ones, and
      last.
    - ``wrap-around``: one record that takes the sum past a power of two above all records: an
      integer type's (2^7 … 2^64) or the largest within reach (fixed point). Whole numbers where the
      bounds hold two of them.
    - ``saturation``: positive records before negative ones, and after; for a sum that may pass
      2^15.
    - ``few-rows``: one record other than 0, or two: what a mean of the rows that a filter leaves
      moves by.
    - ``all``: all of these that the bounds allow.

    Rounding and reordering keep only what moves a sum by more than 1.01 and 0.01 times upper −
    lower in the named arithmetic: less is no use to an attacker. The same arguments always give the
    same pairs.

    Formal guarantee: exact sums of a pair differ by at most upper − lower, of a reordered one not
    at all. Not claimed: the worst pair there is.
    """

    games = ("probing",)
    harm = "epsilon"

    def __init__(
        self, *, lower: float = 0.0, upper: float = 1.0, size: int = 1000, kind: str = "all"
    ) -> None:
        """Datasets of ``size`` records in [``lower``, ``upper``].

        Raises:
            UsageError: bounds that are not finite or not in order, a sum that overflows, a size
                outside 2 … 10^7, or an unknown kind.
        """
        for name, value in (("lower", lower), ("upper", upper)):
            if isinstance(value, (str, bool)) or not math.isfinite(value):
                raise UsageError(f"{name}={value}: must be a finite number")
        if not lower < upper:
            raise UsageError(f"lower={lower}, upper={upper}: lower must be below upper")
        if isinstance(size, (str, bool)) or size != int(size) or not 2 <= size <= _LARGEST_SIZE:
            raise UsageError(f"size={size}: must be a whole number in 2 … {_LARGEST_SIZE}")
        if not math.isfinite(2.0 * size * max(abs(lower), abs(upper))):
            raise UsageError(
                f"lower={lower}, upper={upper}, size={size}: sums overflow; choose smaller bounds"
            )
        if kind != "all" and kind not in KINDS:
            raise UsageError(f"kind={kind}: is not known{nearest(kind, ('all', *KINDS))}")
        self.lower, self.upper, self.size, self.kind = float(lower), float(upper), int(size), kind

    def pairs(self) -> list[Pair]:
        """What is probed in a few words, and the two datasets (m,).

        Raises:
            UsageError: the bounds allow no pair of this kind.
        """
        kinds = KINDS if self.kind == "all" else {self.kind: KINDS[self.kind]}
        probes = [pair for make in kinds.values() for pair in make(self)]
        if not probes:
            raise UsageError(
                f"kind={self.kind}, lower={self.lower}, upper={self.upper}, size={self.size}: "
                "these bounds allow no such pair; give the mechanism's own bounds, or try another "
                "kind or more records"
            )
        return probes

    @property
    def _wide(self) -> float:
        return self.upper - self.lower

    @property
    def _large(self) -> float:
        """The bound of larger magnitude."""
        return self.upper if abs(self.upper) >= abs(self.lower) else self.lower

    @property
    def _whole(self) -> tuple[int, int] | None:
        """The least and the largest whole number within the bounds, if there are two."""
        low, high = math.ceil(self.lower), math.floor(self.upper)
        return (low, high) if low < high else None

    def _rng(self) -> np.random.Generator:
        return KeyedStream.from_seed("sensitivity probes").numpy()

    def _random(self, rng: np.random.Generator, *, whole: bool) -> Array:
        x = np.clip(self.lower + rng.random(self.size) * self._wide, self.lower, self.upper)
        return np.clip(np.rint(x), *self._whole) if whole and self._whole else x

    def _rounding(self) -> Iterator[Pair]:
        for name, _, add in _ARITHMETIC:
            rng = self._rng()
            ends = [(np.full(self.size, self.lower), np.full(self.size, self.upper))]
            ends += [
                (self._random(rng, whole=i % 2 == 0), self._random(rng, whole=i % 2 == 0))
                for i in range(6)
            ]
            moves = [_bisect(add, *pair) for pair in ends]
            move, a, b = max(moves, key=lambda triple: triple[0])
            if move > _WORTH_IT * self._wide:
                yield f"one record replaced, rounding ({name})", a, b

    def _reordering(self) -> Iterator[Pair]:
        for name, dtype, add in _ARITHMETIC:
            rng, half = self._rng(), self.size // 2
            large = np.full(half, self._large)
            small = np.full(self.size - half, self._small(dtype, half))
            orders = [(np.concatenate([large, small]), np.concatenate([small, large]))]
            for i in range(4):
                x = np.sort(self._random(rng, whole=i % 2 == 0))
                orders.append((x[::-1].copy(), x))
            move, a, b = max(
                ((abs(add(b) - add(a)), a, b) for a, b in orders), key=lambda triple: triple[0]
            )
            if move > _WORTH_REORDERING * self._wide:
                yield f"reordered, rounding ({name})", a, b

    def _small(self, dtype: Float, half: int) -> float:
        """The least record whose last part, below half a unit, is lost in a sum of large ones."""
        unit = float(np.spacing(dtype(abs(half * self._large))))
        low, high = (self.lower, self.upper) if self._large > 0 else (-self.upper, -self.lower)
        rest = max(1.0, math.floor(0.49 * unit)) if unit >= 2 else 0.49 * unit
        if not math.isfinite(unit):
            return self.lower
        steps = math.ceil((max(low, 0.0) - rest) / unit)
        small = min(max(steps * unit + rest, low), high)
        return small if self._large > 0 else -small

    def _wrap_around(self) -> Iterator[Pair]:
        for sign in (1, -1):
            low, high = (self.lower, self.upper) if sign == 1 else (-self.upper, -self.lower)
            if high <= 0:
                continue
            reach = self.size * high
            largest = math.frexp(reach)[1] - 1
            for power in sorted(
                {p for p in (*_LIMITS, largest) if 2.0**p <= reach and 2.0**p > high}
            ):
                others = self._below(2.0**power, low, high)
                if others is not None:
                    rest, first, second = others
                    # + 0.0: no −0.0
                    a, b = (sign * np.append(rest, last) + 0.0 for last in (first, second))
                    yield f"one record replaced, past {'−' if sign < 0 else ''}2^{power}", a, b

    def _below(self, limit: float, low: float, high: float) -> tuple[Array, float, float] | None:
        """Records (m − 1,), and two for the last: the sum stays below ``limit`` or reaches it."""
        whole = self._whole
        if whole is not None and limit >= 1:
            least, most = math.ceil(low), math.floor(high)
            first, second = least, min(most, least + max(1, (most - least) // 2))
            each, more = divmod(int(limit) - second, self.size - 1)
            if not (least <= each and each + (more > 0) <= most):
                return None
            rest = np.full(self.size - 1, float(each))
            rest[:more] += 1
            return rest, float(first), float(second)
        each_float = (limit - (low + high) / 2) / (self.size - 1)
        if not low <= each_float <= high:
            return None
        return np.full(self.size - 1, each_float), low, high

    def _saturation(self) -> Iterator[Pair]:
        if not self.lower < 0 < self.upper:
            return
        low, high = self._whole or (self.lower, self.upper)
        half = self.size // 2
        if half * max(-low, high) > _SATURATES and low < 0 < high:
            up, down = np.full(half, float(high)), np.full(self.size - half, float(low))
            yield (
                "reordered, positive records first and last",
                np.concatenate([up, down]),
                np.concatenate([down, up]),
            )

    def _few_rows(self) -> Iterator[Pair]:
        if self.lower <= 0 <= self.upper:
            a = np.zeros(self.size)
            a[-1] = self._large
            b = a.copy()
            b[0] = self._large / 1024
            yield "one record replaced, one row left or two", a, b


KINDS: dict[str, Callable[[SensitivityProbes], Iterator[Pair]]] = {
    "rounding": SensitivityProbes._rounding,
    "reordering": SensitivityProbes._reordering,
    "wrap-around": SensitivityProbes._wrap_around,
    "saturation": SensitivityProbes._saturation,
    "few-rows": SensitivityProbes._few_rows,
}


def _bisect(add: Sum, a: Array, b: Array) -> tuple[float, Array, Array]:
    """Two datasets between ``a`` and ``b``, one record apart, and how far ``add`` moves."""
    low, high = 0, len(a)
    at_low, at_high = add(a), add(b)
    while high - low > 1:
        middle = (low + high) // 2
        at = add(np.concatenate([b[:middle], a[middle:]]))
        if abs(at - at_low) >= abs(at_high - at):
            high, at_high = middle, at
        else:
            low, at_low = middle, at
    return (
        abs(at_high - at_low),
        np.concatenate([b[:low], a[low:]]),
        np.concatenate([b[:high], a[high:]]),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Excess:
    """How far a sum moved on one pair: ``claimed`` is what it may (0 where only the order differs).

    ``exact`` is the exact sums' difference, ``observed`` the difference of what the function
    returned, and ``factor`` the observed move over upper − lower, what noise is calibrated to:
    about the factor by which ε is understated.
    """

    probe: str
    claimed: float
    exact: float
    observed: float
    factor: float

    @property
    def broken(self) -> bool:
        """Whether the sum moved by more than claimed."""
        return self.observed > self.claimed


def excess(
    sum_function: Callable[[Array], float],
    probes: ProbingAttack,
    *,
    sensitivity: float | None = None,
) -> list[Excess]:
    """Probe a sum without noise: how far it moves on each pair of ``probes``.

    The largest factor comes first. ``sensitivity`` is what the function claims for a replaced
    record; upper − lower of :class:`SensitivityProbes` if left out. Differences are exact, then
    correctly rounded; whole numbers that the function returns are taken as such.

    Raises:
        UsageError: no sensitivity known, or a sum that is not a finite number.
    """
    wide = sensitivity
    if wide is None:
        if not isinstance(probes, SensitivityProbes):
            raise UsageError(
                "sensitivity=None: these probes know no bounds; "
                "say the sensitivity that the sum claims"
            )
        wide = probes.upper - probes.lower
    if not (math.isfinite(wide) and wide > 0):
        raise UsageError(f"sensitivity={wide}: must be a finite number > 0")
    results = []
    for name, a, b in probes.pairs():
        sums = [_number(sum_function(x.copy())) for x in (a, b)]
        if not all(map(math.isfinite, sums)):
            raise UsageError(
                f"sum_function: returned {sums} for {name!r}; it must return finite numbers"
            )
        observed = float(abs(Fraction(sums[1]) - Fraction(sums[0])))
        exact = abs(math.fsum(np.concatenate([b, -a])))
        claimed = 0.0 if np.array_equal(np.sort(a), np.sort(b)) else wide
        results.append(
            Excess(
                probe=name, claimed=claimed, exact=exact, observed=observed, factor=observed / wide
            )
        )
    return sorted(results, key=lambda result: -result.factor)


def _number(x: float | np.number[Any]) -> int | float:
    """Integers stay exact: above 2^53 a float would add a rounding of its own."""
    return int(x) if isinstance(x, (int, np.integer)) else float(x)
