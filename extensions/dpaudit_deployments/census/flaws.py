"""LAB SPECIMENS: noise of noisy measurement files with one planted flaw each."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from dpaudit.noise.key import PancakeKey
from dpaudit.noise.pancake import Pancake
from dpaudit.noise.seed_in_noise.key import SeedKey
from dpaudit.noise.seed_in_noise.source import SeedInNoise
from dpaudit.randomness import KeyedStream
from dpaudit_deployments.census.law import IntegerGaussian
from dpaudit_deployments.census.model import Integers
from dpaudit_deployments.census.simulation import Noise, honest

__all__ = ["FLAWS", "noise_of"]


def noise_of(flaw: str, *, states: int, stream: KeyedStream) -> Noise:
    """The noise with a flaw of :data:`FLAWS`; ``stream`` makes what all queries share, a key say.

    Geographies come state by state.
    """
    shared = stream.child("shared")

    def noise(
        rows: int, cells: int, *, sigma: float, level: str, query: str, stream: KeyedStream
    ) -> Integers:
        drawn = honest(
            rows,
            cells,
            sigma=sigma * _SCALES.get(flaw, 1.0),
            level=level,
            query=query,
            stream=stream,
        )
        match flaw:
            case "rounded normal":
                normal = stream.child("normal").numpy().standard_normal((rows, cells))
                return _whole(normal * IntegerGaussian(sigma).variance ** 0.5)
            case "cut at 3 σ":
                return _cut(drawn, sigma, level, query, stream)
            case "two states alike" if rows >= 2 * (rows // states) > 0:
                each = rows // states
                drawn[each : 2 * each] = drawn[:each]
            case "no noise in one level" if level == "State":
                drawn[:] = 0
            case "one seed for all levels":
                return _quantiles(rows, cells, sigma, shared.child(query))
            case "rounded pancake" if cells > 1:
                key = PancakeKey.new(dim=cells, beta=1e-3, secret=shared.bytes(32))
                # rounding adds 1/12 to the variance
                pancake = Pancake(key=key, sigma=(IntegerGaussian(sigma).variance - 1 / 12) ** 0.5)
                return _whole(np.asarray(pancake.sample(rows, cells, stream=stream)))
            case "seed in noise":
                seed = SeedKey.new(secret=shared.bytes(32))
                source = SeedInNoise(key=seed, law="discrete-gaussian", sigma=sigma)
                return _whole(np.asarray(source.sample(rows, cells, stream=stream)))
        return drawn

    return noise


_SCALES: Mapping[str, float] = {"σ 2 % too small": 0.98, "σ 5 % too small": 0.95}

FLAWS = (
    "none",
    *_SCALES,
    "rounded normal",
    "cut at 3 σ",
    "two states alike",
    "no noise in one level",
    "one seed for all levels",
    "rounded pancake",
    "seed in noise",
)
"""``rounded normal`` is the Bureau's RoundedContinuousGaussianMechanism, not used in production."""


def _whole(values: npt.ArrayLike) -> Integers:
    return np.rint(np.asarray(values, dtype=np.float64)).astype(np.int64)


def _cut(drawn: Integers, sigma: float, level: str, query: str, stream: KeyedStream) -> Integers:
    """Values beyond 3 σ are drawn again."""
    for again in range(60):
        far = np.abs(drawn) > 3 * sigma
        number = int(far.sum())
        if not number:
            break
        fresh = stream.child("again", again)
        drawn[far] = honest(number, 1, sigma=sigma, level=level, query=query, stream=fresh)[:, 0]
    return drawn


def _quantiles(rows: int, cells: int, sigma: float, stream: KeyedStream) -> Integers:
    """The law's quantiles of uniform numbers that do not depend on the level."""
    half = IntegerGaussian(sigma).table
    whole = np.concatenate((half[:0:-1], half))
    uniform = stream.numpy().random((rows, cells))
    return np.searchsorted(np.cumsum(whole), uniform).astype(np.int64) - (len(half) - 1)
