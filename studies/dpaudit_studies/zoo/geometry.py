"""Flaws of the covariance and of norms: directions, coordinates and pairs that differ."""

from __future__ import annotations

import math

import numpy as np
import scipy

from dpaudit.randomness import KeyedStream
from dpaudit_studies.zoo.specimen import Array, Draw, Make, Specimen, each

__all__ = ["SPECIMENS"]


def _stretched(variances: tuple[float, ...]) -> Make:
    """Random orthogonal directions (fixed per d) have these variances, where d has room."""

    def make(stream: KeyedStream) -> Draw:
        rng = stream.numpy()
        bases: dict[int, Array] = {}

        def draw(n: int, d: int) -> Array:
            z = rng.standard_normal((n, d))
            if d <= len(variances):
                return z
            if d not in bases:
                seeds = stream.child("directions", d).numpy().standard_normal((d, len(variances)))
                bases[d] = np.linalg.qr(seeds)[0]
            return np.asarray(z + ((z @ bases[d]) * (np.sqrt(variances) - 1)) @ bases[d].T)

        return draw

    return make


def _coordinates(scales: Array) -> Make:
    return each(lambda _, z: z * scales)


def _one_wrong(d: int, index: int, scale: float) -> Make:
    scales = np.ones(d)
    scales[index] = scale
    return _coordinates(scales)


def _by_parity(part: float) -> Make:
    """Even coordinates have variance 1 + part, odd ones 1 - part."""
    return each(lambda _, z: z * np.sqrt(1 + part * (-1.0) ** np.arange(z.shape[1])))


def _pair(i: int, j: int, rho: float) -> Make:
    def change(rng: np.random.Generator, z: Array) -> Array:
        del rng
        z[:, j] = rho * z[:, i] + math.sqrt(1 - rho * rho) * z[:, j]
        return z

    return each(change)


def _sphere(rng: np.random.Generator, z: Array) -> Array:
    del rng
    return np.asarray(z * (math.sqrt(z.shape[1]) / np.linalg.norm(z, axis=1, keepdims=True)))


def _tight_norms(share: float) -> Make:
    """Squared norms vary by ``share`` of what they should, around the right mean."""

    def change(rng: np.random.Generator, z: Array) -> Array:
        del rng
        d = z.shape[1]
        squares = (z * z).sum(1, keepdims=True)
        return np.asarray(z * np.sqrt((d + share * (squares - d)) / squares))

    return each(change)


def _orthogonal(rng: np.random.Generator, z: Array) -> Array:
    """Up to d rows of a call at a time are orthogonal to each other; their norms are right."""
    n, d = z.shape
    for start in range(0, n, d):
        part = z[start : start + d]
        q, r = np.linalg.qr(part.T)
        signs = np.copysign(1.0, np.diag(r))  # else Q is not uniform
        norms = np.sqrt(rng.chisquare(d, len(part)))
        z[start : start + d] = (q * signs).T * norms[:, None]
    return z


def _radial_gap(rng: np.random.Generator, z: Array) -> Array:
    """Row norms are drawn from the right law with its central 2 % left out."""
    d = z.shape[1]
    u = rng.random((len(z), 1))
    u = np.where(np.abs(u - 0.5) < 0.01, u + np.copysign(0.01, u - 0.5), u)
    return np.asarray(
        z * np.sqrt(2 * scipy.special.gammaincinv(d / 2, u) / (z * z).sum(1, keepdims=True))
    )


def _geometry(name: str, says: str, make: Make, *, dim: int | None = None) -> Specimen:
    return Specimen(name, "geometry", says, make, dim)


SPECIMENS = (
    _geometry("low-rank", "two hidden directions have variance 1.1", _stretched((1.1, 1.1))),
    _geometry("one-direction-flat", "one hidden direction has variance 0.9", _stretched((0.9,))),
    _geometry(
        "one-direction-halved",
        "one hidden direction of 1,024 has variance 0.5",
        _stretched((0.5,)),
        dim=1024,
    ),
    _geometry(
        "one-of-4096", "one coordinate in 4,096 has σ = 1.2", _one_wrong(4096, 1234, 1.2), dim=4096
    ),
    _geometry("one-of-64", "one coordinate in 64 has σ = 1.02", _one_wrong(64, 17, 1.02), dim=64),
    _geometry("parity-2pc", "even coordinates have variance 1.02, odd ones 0.98", _by_parity(0.02)),
    _geometry(
        "one-pair-0.03", "two coordinates of 64 have correlation 0.03", _pair(5, 41, 0.03), dim=64
    ),
    _geometry("sphere", "every row of 64 has norm 8", each(_sphere), dim=64),
    _geometry(
        "tight-norms", "squared norms vary by 95 % of what they should", _tight_norms(0.95), dim=64
    ),
    _geometry("radial-gap", "the middle 2 % of row norms are missing", each(_radial_gap), dim=16),
    _geometry("orthogonal-rows", "rows of a call are orthogonal", each(_orthogonal)),
)
