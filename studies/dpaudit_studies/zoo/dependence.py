"""Flaws of dependence between values, within and between rows; every value is N(0, 1)."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import scipy

from dpaudit.randomness import KeyedStream
from dpaudit_studies.zoo.specimen import Array, Draw, Make, Specimen, carried, each

__all__ = ["SPECIMENS", "equicorrelated"]


def _before(count: int) -> Callable[[np.random.Generator], Array]:
    return lambda rng: rng.standard_normal(count)


def _autoregressive(rho: float) -> Make:
    def step(rng: np.random.Generator, last: Array, m: int) -> tuple[Array, Array]:
        out, _ = scipy.signal.lfilter(
            [math.sqrt(1 - rho * rho)], [1.0, -rho], rng.standard_normal(m), zi=rho * last
        )
        return np.asarray(out), out[-1:]

    return carried(_before(1), step)


def _lagged(rho: float, lag: int) -> Make:
    """Value t shares an innovation with value t + lag: correlation ``rho`` at that lag only."""
    weight = (1 - math.sqrt(1 - 4 * rho * rho)) / (2 * rho)  # ρ = w / (1 + w²)

    def step(rng: np.random.Generator, kept: Array, m: int) -> tuple[Array, Array]:
        e = np.concatenate([kept, rng.standard_normal(m)])
        out = (e[lag:] + weight * e[:-lag]) / math.sqrt(1 + weight * weight)
        return np.asarray(out), e[-lag:].copy()

    return carried(_before(lag), step)


def _rows_autoregressive(rho: float) -> Make:
    """Each coordinate depends on the same one of the row before, as long as d stays the same."""

    def make(stream: KeyedStream) -> Draw:
        rng = stream.numpy()
        last = np.empty((1, 0))

        def draw(n: int, d: int) -> Array:
            nonlocal last
            if last.shape[1] != d:
                last = rng.standard_normal((1, d))
            out, _ = scipy.signal.lfilter(
                [math.sqrt(1 - rho * rho)],
                [1.0, -rho],
                rng.standard_normal((n, d)),
                axis=0,
                zi=rho * last,
            )
            last = out[-1:].copy()
            return np.asarray(out)

        return draw

    return make


def equicorrelated(rho: float) -> Make:
    """Any two coordinates of a row have this correlation."""
    return each(
        lambda rng, z: math.sqrt(1 - rho) * z + math.sqrt(rho) * rng.standard_normal((len(z), 1))
    )


def _volatile(phi: float, spread: float) -> Make:
    """The logarithm of the scale is a stationary AR(1) of standard deviation ``spread``.

    Variance 1 in all.
    """

    def step(rng: np.random.Generator, last: Array, m: int) -> tuple[Array, Array]:
        steps = spread * math.sqrt(1 - phi * phi) * rng.standard_normal(m)
        log_scale, _ = scipy.signal.lfilter([1.0], [1.0, -phi], steps, zi=phi * last)
        out = rng.standard_normal(m) * np.exp(log_scale - spread * spread)
        return np.asarray(out), log_scale[-1:]

    return carried(lambda rng: spread * rng.standard_normal(1), step)


def _scale_follows(share: float) -> Make:
    """The variance of a value is ``share`` the square of the last innovation (an ARCH effect)."""

    def step(rng: np.random.Generator, last: Array, m: int) -> tuple[Array, Array]:
        e = np.concatenate([last, rng.standard_normal(m)])
        return np.asarray(e[1:] * np.sqrt(1 - share + share * e[:-1] ** 2)), e[-1:]

    return carried(_before(1), step)


def _sign_follows(bias: float) -> Make:
    """The sign is that of the value before with probability 1/2 + bias."""

    def step(rng: np.random.Generator, last: float, m: int) -> tuple[Array, float]:
        signs = last * np.cumprod(np.where(rng.random(m) < 0.5 + bias, 1.0, -1.0))
        return np.asarray(np.abs(rng.standard_normal(m)) * signs), float(signs[-1])

    return carried(lambda _: 1.0, step)


def _turned(rate: float) -> Make:
    """At this rate a value is the one before it with its sign turned."""

    def step(rng: np.random.Generator, last: Array, m: int) -> tuple[Array, Array]:
        e = np.concatenate([last, rng.standard_normal(m)])
        return np.where(rng.random(m) < rate, -e[:-1], e[1:]), e[-1:]

    return carried(_before(1), step)


def _antithetic(rng: np.random.Generator, z: Array) -> Array:
    del rng
    half = len(z) // 2
    z[1 : 2 * half : 2] = -z[0 : 2 * half : 2]
    return z


def _stratified(rng: np.random.Generator, z: Array) -> Array:
    """One value of a call from each of as many equally likely strata: better than chance allows."""
    u = (rng.permutation(z.size) + rng.random(z.size)) / z.size
    return np.asarray(scipy.special.ndtri(np.clip(u, 1e-17, 1 - 1e-16))).reshape(z.shape)


def _golden() -> Make:
    """Φ⁻¹ of the additive recurrence with the golden ratio, started at random."""

    def step(_: np.random.Generator, kept: tuple[float, int], m: int) -> tuple[Array, Any]:
        start, at = kept
        u = (start + np.arange(at, at + m) * ((math.sqrt(5) - 1) / 2)) % 1.0
        return np.asarray(scipy.special.ndtri(np.clip(u, 1e-17, 1 - 1e-16))), (start, at + m)

    return carried(lambda rng: (rng.random(), 0), step)


def _centred(rng: np.random.Generator, z: Array) -> Array:
    """Every row sums to 0; variances and other directions are kept as far as possible (d > 1)."""
    del rng
    d = z.shape[1]
    return z if d == 1 else (z - z.mean(1, keepdims=True)) * math.sqrt(d / (d - 1))


_dependence = partial(Specimen, family="dependence")

SPECIMENS = (
    _dependence("ar1-0.01", "AR(1) with 0.01 from value to value", _autoregressive(0.01)),
    _dependence("ma1-minus-0.01", "MA(1) with correlation -0.01", _lagged(-0.01, 1)),
    _dependence("lag-64", "correlation 0.01 at lag 64", _lagged(0.01, 64)),
    _dependence("lag-1000", "correlation 0.01 at lag 1,000", _lagged(0.01, 1000)),
    _dependence("lag-10007", "correlation 0.01 at lag 10,007", _lagged(0.01, 10_007),
                expected="borderline",
                why="seen only by a test that looks as far back as 10,007 values, or at the "
                    "spectrum as finely"),
    _dependence("row-lag-plus", "correlation 0.01 with the same coordinate of the row before",
                _rows_autoregressive(0.01)),
    _dependence("row-lag-minus", "correlation -0.01 with the same coordinate of the row before",
                _rows_autoregressive(-0.01)),
    _dependence("equicorrelated-0.01", "any two coordinates of a row have correlation 0.01",
                equicorrelated(0.01)),
    _dependence("volatile-3pc", "the scale wanders by 3 % over about 100 values",
                _volatile(0.99, 0.03)),
    _dependence("scale-follows", "1 % of the variance is the square of the value before",
                _scale_follows(0.01)),
    _dependence("sign-follows", "the sign of the value before with probability 0.502",
                _sign_follows(0.002)),
    _dependence("turned-1e-3", "one value in 1,000 is the one before with its sign turned",
                _turned(1e-3)),
    _dependence("antithetic-rows", "every second row is minus the one before", each(_antithetic)),
    _dependence("stratified", "each call stratified: more even than chance", each(_stratified)),
    _dependence("golden-ratio", "Φ⁻¹ of a quasi-random sequence", _golden()),
    _dependence("centred-rows", "every row sums to 0", each(_centred)),
)  # fmt: skip
