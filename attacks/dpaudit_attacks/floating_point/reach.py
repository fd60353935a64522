"""Is there any floating-point number n with fl(v + n) = y? If not, v is not behind y."""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from dpaudit.errors import UsageError
from dpaudit_attacks.floating_point._support import (
    Array,
    Scored,
    in_format,
    in_pieces,
    parse_number,
)

__all__ = ["Reach"]

_FORMATS: dict[str, type[np.floating[Any]]] = {
    "float16": np.float16,
    "float32": np.float32,
    "float64": np.float64,
}
_INTEGERS: dict[str, type[np.signedinteger[Any]]] = {
    "float16": np.int16,
    "float32": np.int32,
    "float64": np.int64,
}
_WHOLE = 2.0**53
"""Below it every whole number is a float64, and so is what an integer mechanism does with them."""


@dataclass(frozen=True, kw_only=True)
class Reach(Scored):
    """Which values cannot lead to a release by adding a float to them, whatever the sampler.

    The mechanism is release = fl(fl(v + n) / divisor), rounded to nearest even at each step, in the
    format ``dtype``; v is rounded to that format first, as the mechanism's own array does.

    Two floats suffice. The reals n with fl(v + n) = y form an interval that holds r = y − v
    (rounding is monotone, and y is a float). If a float lies in it on the side below r, so does the
    greatest float ≤ r; above, the least float ≥ r. One of the two is fl(y − v), the other its
    neighbour on the far side of r; trying both neighbours spares the question which. Only the order
    of floats is used, so it holds at binade edges, among subnormals (where sums are exact) and
    where y − v overflows (then fl(y − v) = ±∞, whose neighbour is the largest float). Numbers are
    compared as numbers: −0.0 and 0.0 are the same release and the same value, so neither rules the
    truth out. With a divisor, n ↦ fl(fl(v + n) / divisor) is monotone too, and the least n that
    gives at least y is found by bisection over all floats: no list of z with fl(z / divisor) = y
    has to be complete, and there is none where y is subnormal. A power of two divides normal
    numbers exactly, so there y·divisor takes the place of y.

    ``dtype="auto"`` takes releases for float32 if all that are given are float32 numbers, and for
    float64 otherwise; so give all of a mechanism's releases at once, or ask :meth:`settled`, as an
    audit does, which decides that once. Where more than one reading is likely one suffices: whole
    numbers below 2^53 are feasible from each other (integer noise), and of float32 releases that
    are whole, or where v is no float32 (0.1, which a float32 mechanism rounds), both formats are
    tried. A mechanism that clamps to [lower, upper] can release a bound from any value.

    Formal guarantee: False means that no n exists, so for a mechanism of this form the true value
    is never ruled out. Not claimed: anything about a mechanism that does something else to the sum
    (multiplies by 1/divisor, snaps, adds twice); nor, with "auto", about few releases of a float64
    lattice so coarse that all of them happen to be float32 numbers. Any event is still a valid one
    for an ε lower bound. Source: Mironov 2012; Jin et al. 2022 (arXiv 2112.05307); the proof and
    the divisor are ours.

    Raises:
        UsageError: an unknown dtype, a divisor that is not finite and > 0 in that format, or bounds
            out of order.
    """

    games = ("support", "scoring")
    harm = "last-bits"

    dtype: str = "auto"
    divisor: float = 1.0
    lower: float | None = None
    upper: float | None = None
    _all_narrow: bool | None = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        if self.dtype != "auto" and self.dtype not in _FORMATS:
            raise UsageError(
                f"dtype={self.dtype}: no such format; choose auto, {', '.join(_FORMATS)}"
            )
        with np.errstate(over="ignore", under="ignore"):
            divisors = [
                float(_FORMATS[name](parse_number("divisor", self.divisor)))
                for name in self._formats
            ]
        if not all(d > 0 and math.isfinite(d) for d in divisors):
            raise UsageError(f"divisor={self.divisor}: must be a finite number > 0 in {self.dtype}")
        for name, bound in (("lower", self.lower), ("upper", self.upper)):
            if bound is not None and not math.isfinite(parse_number(name, bound)):
                raise UsageError(f"{name}={bound}: must be a finite number; leave it out for none")
        if self.lower is not None and self.upper is not None and not self.lower < self.upper:
            raise UsageError(
                f"lower={self.lower}, upper={self.upper}: lower must be below upper; swap them"
            )

    def settled(self, *releases: npt.NDArray[np.float64]) -> Reach:
        """The same attack with "auto" decided once, by these parts of ``releases`` (t, k).

        From then on each release is read by itself; one that is no float32 number, where these all
        were, as float64.
        """
        if self.dtype != "auto":
            return self
        attack = copy.copy(self)
        object.__setattr__(attack, "_all_narrow", all(_narrow(y).all() for y in releases))
        return attack

    @property
    def _formats(self) -> tuple[str, ...]:
        return ("float32", "float64") if self.dtype == "auto" else (self.dtype,)

    def _feasible(self, y: Array, v: Array) -> npt.NDArray[np.bool_]:
        if self.dtype != "auto":
            return in_pieces(self._in_one_format, y, v) | self._at_bound(y)
        all_narrow = bool(_narrow(y).all()) if self._all_narrow is None else self._all_narrow
        return in_pieces(
            partial(self._in_either_format, all_narrow=all_narrow), y, v
        ) | self._at_bound(y)

    def _in_one_format(self, y: Array, v: Array) -> npt.NDArray[np.bool_]:
        in_format(y, _FORMATS[self.dtype], f"dtype={self.dtype}")
        return self._reachable(y, v, self.dtype)

    def _in_either_format(self, y: Array, v: Array, *, all_narrow: bool) -> npt.NDArray[np.bool_]:
        with np.errstate(over="ignore", under="ignore"):
            v32 = v.astype(np.float32)
        whole = np.rint(y) == y
        narrow = _narrow(y) & np.isfinite(v32) if all_narrow else np.zeros(y.shape, np.bool_)
        wide = ~narrow | (v32 != v) | whole
        out: npt.NDArray[np.bool_] = (
            whole & (np.rint(v) == v) & (np.maximum(np.abs(y), np.abs(v)) < _WHOLE)
        )
        for name, chosen in (("float32", narrow), ("float64", wide)):
            at = np.flatnonzero(chosen & ~out)
            out[at] = self._reachable(y[at], v[at], name)
        return out

    def _reachable(self, y: Array, v: Array, name: str) -> npt.NDArray[np.bool_]:
        kind = _FORMATS[name]
        with np.errstate(over="ignore", under="ignore"):
            value = v.astype(kind)
            if not np.isfinite(value).all():
                raise UsageError(f"value: above the largest {name} number; choose another dtype")
            divisor, release = kind(self.divisor), y.astype(kind)
            if divisor == 1:
                return _reachable_by_sum(release, value)
            sums = release * divisor
            exact = (
                np.isfinite(sums)
                & (np.abs(release) > np.finfo(kind).tiny)
                & (math.frexp(divisor)[0] == 0.5)
            )
            out = np.empty(y.shape, np.bool_)
            out[exact] = _reachable_by_sum(sums[exact], value[exact])
            out[~exact] = _reachable_by_quotient(
                release[~exact], value[~exact], divisor, _INTEGERS[name]
            )
            return out

    def _at_bound(self, y: Array) -> npt.NDArray[np.bool_]:
        """Where releases sit at a bound, as each format writes it."""
        out = np.zeros(y.shape, np.bool_)
        for bound, beyond, pick, word in (
            (self.lower, np.less, min, "below"),
            (self.upper, np.greater, max, "above"),
        ):
            if bound is None:
                continue
            with np.errstate(over="ignore"):
                written = [float(_FORMATS[name](bound)) for name in self._formats]
            if beyond(y, pick(written)).any():
                raise UsageError(
                    f"releases: some are {word} the bound {bound} that the mechanism is said "
                    "to clamp to; correct it"
                )
            out |= np.isin(y, written)
        return out


def _narrow(y: Array) -> npt.NDArray[np.bool_]:
    """Which are float32 numbers."""
    with np.errstate(over="ignore", under="ignore"):
        return np.asarray(y.astype(np.float32) == y)


def _reachable_by_sum(y: npt.NDArray[Any], v: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    """Whether fl(v + n) = y for some n, all in the arrays' format."""
    noise = y - v
    out: npt.NDArray[np.bool_] = v + noise == y
    left = np.flatnonzero(~out)
    y, v, noise = y[left], v[left], noise[left]
    below, above = (np.nextafter(noise, noise.dtype.type(side)) for side in (-np.inf, np.inf))
    out[left] = (v + below == y) | (v + above == y)
    return out


def _reachable_by_quotient(
    y: npt.NDArray[Any],
    v: npt.NDArray[Any],
    divisor: np.floating[Any],
    integer: type[np.signedinteger[Any]],
) -> npt.NDArray[np.bool_]:
    """Whether fl(fl(v + n) / divisor) = y for some n.

    Finds the least n that gives at least y, by bisection. Floats are numbered in their order: their
    bits as an integer, with the bits of negative ones below the sign flipped.
    """
    width = np.dtype(integer).itemsize * 8
    most = integer(np.iinfo(integer).max)

    def released(number: npt.NDArray[Any]) -> npt.NDArray[Any]:
        bits = number ^ ((number >> (width - 1)) & most)
        out: npt.NDArray[Any] = (v + bits.view(y.dtype)) / divisor
        return out

    infinity = np.array([np.inf], y.dtype).view(integer)[0]
    high = np.full(y.shape, infinity)
    low = np.full(y.shape, ~infinity)  # −∞
    for _ in range(width):
        middle = (low >> 1) + (high >> 1) + (low & high & 1)
        enough = released(middle) >= y
        high = np.where(enough, middle, high)
        low = np.where(enough, low, middle)
    return np.asarray(released(high) == y)
