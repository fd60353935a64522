"""Hidden directions: pancakes, from plain to unfindable, and other laws along one direction.

The pancakes' keys are fixed laboratory keys from a public seed: they protect nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from dpaudit.randomness import KeyedStream
from dpaudit_studies.zoo.specimen import Array, Draw, Make, Specimen

__all__ = ["SPECIMENS"]


def _pancake(name: str, dim: int, beta: float, gamma: float | str) -> Make:
    def make(stream: KeyedStream) -> Draw:
        from dpaudit.noise.key import PancakeKey
        from dpaudit.noise.pancake import Pancake

        secret = KeyedStream.from_seed("the zoo's keys").child(name).bytes(32)
        key = PancakeKey.new(dim=dim, beta=beta, gamma=gamma, secret=secret, allow_small_gamma=True)
        source = Pancake(key=key)
        call = 0

        def draw(n: int, d: int) -> Array:
            nonlocal call
            call += 1
            return np.asarray(source.sample(n, d, stream=stream.child("call", call)))

        return draw

    return make


def _along(law: Callable[[np.random.Generator, int], Array]) -> Make:
    """One secret direction, fixed per d, with noise of another law of mean 0 and variance 1."""

    def make(stream: KeyedStream) -> Draw:
        rng = stream.numpy()

        def draw(n: int, d: int) -> Array:
            w = stream.child("direction", d).numpy().standard_normal(d)
            w /= np.linalg.norm(w)
            z = rng.standard_normal((n, d))
            return np.asarray(z + np.outer(law(rng, n) - z @ w, w))

        return draw

    return make


def _specimen(
    name: str, says: str, dim: int, beta: float, gamma: float | str, **rest: str
) -> Specimen:
    pancake = _pancake(name, dim, beta, gamma)
    return Specimen(name, "direction", says, pancake, dim, **rest)  # type: ignore[arg-type]


_NOBODY = (
    "the keyless search does not reach it: at d = 256 and β = 1e-5 lattice reduction is estimated "
    "at 2^58 operations"
)

SPECIMENS = (
    _specimen("pancake-gamma-1", "pancake of γ = 1, β = 0.1, d = 64", 64, 0.1, 1.0),
    _specimen("pancake-gamma-1.5", "pancake of γ = 1.5, β = 0.1, d = 32", 32, 0.1, 1.5),
    _specimen("pancake-d2", "pancake of γ = 2√d, β = 0.1, d = 2", 2, 0.1, "2sqrtd"),
    _specimen("pancake-d3", "pancake of γ = 2√d, β = 0.1, d = 3", 3, 0.1, "2sqrtd"),
    _specimen("pancake-d16", "pancake of γ = 2√d, β = 0.1, d = 16", 16, 0.1, "2sqrtd"),
    _specimen("pancake-d32", "pancake of γ = 2√d, β = 0.01, d = 32", 32, 0.01, "2sqrtd"),
    _specimen("pancake-d48", "pancake of γ = 2√d, β = 1e-3, d = 48", 48, 1e-3, "2sqrtd",
              expected="borderline",
              why="a lattice search of a minute or more: found if it gets the time"),
    _specimen("pancake-d256", "pancake of γ = 2√d, β = 1e-5, d = 256: the paper's smallest", 256,
              1e-5, "2sqrtd",
              expected="missed", why=_NOBODY),
    _specimen("pancake-d4096", "pancake of γ = 2√d, β = 1e-4, d = 4,096", 4096, 1e-4, "2sqrtd",
              expected="missed",
              why=_NOBODY),
    Specimen("laplace-direction", "direction", "one hidden direction is Laplace",
             _along(lambda rng, n: rng.laplace(scale=math.sqrt(0.5), size=n))),
    Specimen("uniform-direction", "direction", "one hidden direction of 64 is uniform",
             _along(lambda rng, n: rng.uniform(-math.sqrt(3), math.sqrt(3), n)), 64),
)  # fmt: skip
