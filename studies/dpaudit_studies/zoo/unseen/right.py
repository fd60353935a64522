"""Right samplers: no test may accuse them, and none can predict them without their keys."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import numpy as np

from dpaudit.randomness import KeyedStream
from dpaudit_studies.zoo.claims import discrete_gaussian
from dpaudit_studies.zoo.specimen import Array, Draw, Make, Series, Specimen, each
from dpaudit_studies.zoo.transforms import Uniforms, box_muller, dealt, polar

__all__ = ["SPECIMENS"]


def _rows(following: Series) -> Draw:
    return lambda n, d: following(n * d).reshape(n, d)


def _chacha(transform: Callable[[Uniforms], Callable[[], Array]]) -> Make:
    """What ``transform`` makes of a ChaCha20 stream, 52 bits a uniform."""
    return lambda stream: _rows(dealt(transform(stream.uniform)))


def _sfc64(stream: KeyedStream) -> Draw:
    rng = np.random.Generator(np.random.SFC64(int.from_bytes(stream.entropy(), "big")))
    return lambda n, d: rng.standard_normal((n, d))


def _philox_polar(stream: KeyedStream) -> Draw:
    rng = np.random.Generator(np.random.Philox(int.from_bytes(stream.entropy(), "big")))
    return _rows(dealt(polar(rng.random)))


def _ratio(uniforms: Uniforms) -> Callable[[], Array]:
    """Kinderman and Monahan's ratio of uniforms (1977), without their quick tests."""

    def chunk() -> Array:
        u = uniforms(1 << 16).reshape(-1, 2)
        x = math.sqrt(8 / math.e) * (u[:, 1] - 0.5) / u[:, 0]
        return np.asarray(x[x * x <= -4 * np.log(u[:, 0])])

    return chunk


_right = partial(
    Specimen,
    why="the claimed law, from a generator with a secret state of at least 128 bits",
    family="right",
    expected="passed",
)

SPECIMENS = (
    _right("right-ziggurat", "numpy's ziggurat on SFC64 with 256 bits of seed", _sfc64),
    _right("right-box-muller", "Box-Muller, both outputs, of a ChaCha20 stream",
           _chacha(box_muller)),
    _right("right-polar", "polar method of Philox with 256 bits of seed", _philox_polar),
    _right("right-ratio", "ratio of uniforms of a ChaCha20 stream", _chacha(_ratio)),
    _right("right-float32", "normal values rounded to float32",
           each(lambda _, z: z.astype(np.float32).astype(np.float64))),
    _right("right-laplace", "numpy's Laplace with 256 bits of seed",
           each(lambda rng, z: rng.laplace(0, 1, z.shape)), claim="laplace:scale=1"),
    _right("right-discrete", "the discrete Gaussian by the right table of probabilities",
           each(lambda rng, z: discrete_gaussian(rng, 10.0, z.shape)),
           claim="discrete-gaussian:sigma=10"),
)  # fmt: skip
