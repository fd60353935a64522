"""Dependence in draw order: periods, signs, ranks, lags; every value alone is nearly N(0, 1)."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import scipy

from dpaudit.numeric.generators import jit
from dpaudit_studies.zoo.specimen import Array, Make, Series, Specimen, carried, each, flat, placed
from dpaudit_studies.zoo.transforms import CHUNK, dealt

__all__ = ["SPECIMENS"]

_LONG_CALL = 1_000


def _every(period: int, factor: float) -> Make:
    """Every ``period``-th value in draw order is scaled."""

    def change(z: Array, at: int) -> None:
        z[(period - 1 - at) % period :: period] *= factor

    return placed(change)


def _harmonics(period: int, count: int, amplitude: float) -> Make:
    def begin(rng: np.random.Generator) -> tuple[Array, int]:
        turn = 2 * math.pi * np.arange(1, count + 1)[:, None]
        phases = rng.random((count, 1)) + np.arange(period) / period
        return amplitude * np.cos(turn * phases).sum(0), 0

    def step(rng: np.random.Generator, kept: tuple[Array, int], m: int) -> tuple[Array, Any]:
        mean, at = kept
        z = rng.standard_normal(m) + mean[np.arange(at, at + m) % period]
        return z, (mean, (at + m) % period)

    return carried(begin, step)


@jit
def _signs(past, coins, lags):  # type: ignore[no-untyped-def]
    """Replace each coin by its product with the signs at these lags; ``past`` is kept."""
    size, at = len(past), 0
    for i in range(len(coins)):
        s = coins[i]
        for lag in lags:
            s *= past[(at + size - lag) % size]
        coins[i] = past[at] = s
        at = (at + 1) % size
    past[:] = np.concatenate((past[at:], past[:at]))


def _sign_relation(lags: tuple[int, ...], bias: float) -> Make:
    """A sign is the product of those at these lags with probability 1/2 + bias."""

    def begin(rng: np.random.Generator) -> Series:
        past = np.sign(rng.standard_normal(max(lags)))
        places = np.array(lags)

        def chunk() -> Array:
            coins = np.where(rng.random(CHUNK) < 0.5 + bias, 1.0, -1.0)
            _signs(past, coins, places)
            return np.abs(rng.standard_normal(CHUNK)) * coins

        return dealt(chunk)

    return flat(begin)


def _product(first: int, second: int, weight: float) -> Make:
    """A part of each value is the product of two innovations before it."""

    def step(rng: np.random.Generator, kept: Array, m: int) -> tuple[Array, Array]:
        e = np.concatenate([kept, rng.standard_normal(m)])
        product = e[second - first : len(e) - first] * e[: len(e) - second]
        z = math.sqrt(1 - weight * weight) * e[second:] + weight * product
        return z, e[-second:].copy()

    return carried(lambda rng: rng.standard_normal(second), step)


def _in_groups(size: int, share: float, change: Callable[[Array], Array]) -> Make:
    """A ``share`` of consecutive groups of values is changed; ``change`` takes them (m, size)."""

    def begin(rng: np.random.Generator) -> Series:
        def chunk() -> Array:
            groups = rng.standard_normal((CHUNK // size, size))
            hit = np.flatnonzero(rng.random(len(groups)) < share)
            groups[hit] = change(groups[hit])
            return groups.ravel()

        return dealt(chunk)

    return flat(begin)


def _largest_first(groups: Array) -> Array:
    places = groups.argmax(1)
    rows = np.arange(len(groups))
    groups[rows, 0], groups[rows, places] = groups[rows, places], groups[rows, 0]
    return groups


def _mirrored(rng: np.random.Generator, z: Array) -> Array:
    """The second half of a long call is minus its first half, in random order."""
    half = z.size // 2
    if z.size >= _LONG_CALL:
        values = z.reshape(-1)
        values[half : 2 * half] = -rng.permutation(values[:half])
    return z


def _in_long_calls(change: Callable[[Array], Array]) -> Make:
    return each(lambda _, z: change(z) if z.size >= _LONG_CALL else z)


@jit
def _logistic(state, out):  # type: ignore[no-untyped-def]
    x = state[0]
    for i in range(len(out)):
        x = 4 * x * (1 - x)
        if not 0 < x < 1 or x == 0.75:
            x = 0.3141592653589793
        out[i] = x
    state[0] = x


def _chaotic(rng: np.random.Generator) -> Series:
    state = rng.random(1)

    def chunk() -> Array:
        x = np.empty(CHUNK)
        _logistic(state, x)
        u = 2 / math.pi * np.arctan2(np.sqrt(x), np.sqrt(1 - x))
        return np.asarray(scipy.special.ndtri(np.clip(u, 1e-17, 1 - 1e-16)))

    return dealt(chunk)


_order = partial(Specimen, family="order")

SPECIMENS = (
    _order("every-1009th-1.1", "every 1,009th value has σ = 1.1", _every(1_009, 1.1),
           "15 standard errors of a residue class among 10^6 of periods up to 1,500"),
    _order("every-100003rd-1.5", "every 100,003rd value has σ = 1.5", _every(100_003, 1.5),
           "a χ² of 100 degrees at 225, p about 10^-11, among 5·10^9 classes of periods that far",
           expected="borderline"),
    _order("harmonics-1237", "a mean of period 1,237: ten harmonics of amplitude 0.0018 each",
           _harmonics(1_237, 10, 0.0018),
           "a noncentrality of 16 each, lost among 5·10^6 frequencies, but 162 in the sum over the "
           "multiples of one"),
    _order("sign-lags-7-31", "a sign is the product of those 7 and 31 before, probability 0.505",
           _sign_relation((7, 31), 0.005), "32 standard errors, among 500 pairs of lags to 32"),
    _order("sign-lags-1013-1999",
           "a sign is the product of those 1,013 and 1,999 before, probability 0.5009",
           _sign_relation((1_013, 1_999), 0.0009),
           "5.7 standard errors, where the largest of 2·10^6 pairs of lags reaches 5.1",
           expected="borderline"),
    _order("product-5-19", "1 % of a value is the product of those 5 and 19 before",
           _product(5, 19, 0.01), "32 standard errors, among 500 pairs of lags to 32"),
    _order("largest-first", "of every eight values the first is the largest, probability 0.1275",
           _in_groups(8, 0.0025 * 8 / 7, _largest_first), "8.5 standard errors of one rank"),
    _order("mirrored-halves", "a long call's second half is minus its first in random order",
           each(_mirrored), "every magnitude occurs twice in its call"),
    _order("calls-of-size-1", "the mean square of a long call is 1",
           _in_long_calls(lambda z: z / math.sqrt(float((z * z).mean()))),
           "forty calls whose mean squares are 1 to rounding"),
    _order("logistic-map", "Φ⁻¹ of the logistic map x → 4x(1 - x)", flat(_chaotic),
           "each value is a function of the one before"),
)  # fmt: skip
