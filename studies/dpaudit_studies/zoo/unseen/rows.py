"""Flaws of rows: their lengths, their signs, and directions among a thousand."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
import scipy

from dpaudit.randomness import KeyedStream
from dpaudit_studies.zoo.geometry import pair, pancake
from dpaudit_studies.zoo.specimen import Array, Draw, Make, Specimen, each

__all__ = ["SPECIMENS"]


def _with_lengths(lengths: Callable[[np.random.Generator, Array], Array]) -> Make:
    """Rows in honest directions whose lengths are ``lengths(rng, honest lengths)``."""

    def change(rng: np.random.Generator, z: Array) -> Array:
        honest = np.linalg.norm(z, axis=1)
        return np.asarray(z * (lengths(rng, honest) / honest)[:, None])

    return each(change)


def _pool(d: int, size: int) -> Make:
    def make(stream: KeyedStream) -> Draw:
        rng = stream.numpy()
        pool = np.sqrt(rng.chisquare(d, size))
        return _with_lengths(lambda rng, honest: pool[rng.integers(0, size, len(honest))])(
            stream.child("rows")
        )

    return make


def _antithetic(rng: np.random.Generator, z: Array) -> Array:
    """Of two rows the second is as improbably long as the first is short."""
    del rng
    half, d = len(z) // 2, z.shape[1]
    first = np.linalg.norm(z[0 : 2 * half : 2], axis=1)
    other = np.sqrt(
        2 * scipy.special.gammainccinv(d / 2, scipy.special.gammainc(d / 2, first**2 / 2))
    )
    ok = np.isfinite(other) & (other > 0)
    second = z[1 : 2 * half : 2]
    factors = np.where(ok, other / np.linalg.norm(second, axis=1), 1.0)
    z[1 : 2 * half : 2] = second * factors[:, None]
    return z


def _parity(d: int, share: float, right: float) -> Make:
    """A secret subset of coordinates has an even number of minus signs with this probability."""

    def make(stream: KeyedStream) -> Draw:
        rng = stream.numpy()
        mine = np.flatnonzero(
            KeyedStream.from_seed("the zoo's subsets").child(d).numpy().random(d) < share
        )

        def draw(n: int, width: int) -> Array:
            z = rng.standard_normal((n, width))
            odd = (z[:, mine] < 0).sum(1) % 2 == 1
            target = rng.random(n) >= right  # odd ones
            turned = np.flatnonzero(odd != target)
            z[turned, rng.choice(mine, len(turned))] *= -1
            return z

        return draw

    return make


_row = partial(Specimen, family="rows")

_EDGE = "9,765 rows of honest noise leave no direction below 0.44 or above 1.77"

SPECIMENS = (
    _row("length-pool", "rows of 64 have their lengths from a pool of 2^20", _pool(64, 1 << 20),
         "156,250 rows: 11,600 lengths occur twice, to all digits", 64),
    _row("length-lattice", "rows of 16 have lengths in steps of 2^-16",
         _with_lengths(lambda _, honest: np.rint(honest * 65_536) / 65_536),
         "every length is a multiple of 2^-16 to 10^-10", 16),
    _row("length-antithetic", "of two rows the second is as long as the first is short",
         each(_antithetic), "one length follows from the other, in every pair"),
    _row("sign-parity", "a secret half of 64 coordinates has an even number of minus signs",
         _parity(64, 0.5, 1.0),
         "the signs of 156,250 rows lie in a hyperplane over GF(2): elimination finds it", 64),
    _row("sign-parity-noisy", "the same among 256 coordinates, in 7 of 10 rows",
         _parity(256, 0.5, 0.7),
         "learning parity with noise 0.3 in 256 dimensions from 39,062 rows: at least 2^60 "
         "operations by what is published", 256, expected="missed"),
    _row("pancake-1024-gamma-0.5", "pancake of γ = 0.5, β = 0.01, d = 1,024",
         pancake("pancake-1024-gamma-0.5", 1024, 0.01, 0.5),
         "nearly no variance along one direction; " + _EDGE, 1024),
    _row("pancake-1024-gamma-2", "pancake of γ = 2, β = 0.01, d = 1,024",
         pancake("pancake-1024-gamma-2", 1024, 0.01, 2.0),
         "variance 1 to 0.1 % along the direction; moments beyond the second need d^2 rows, and "
         "lattice reduction does not reach d = 1,024", 1024, expected="missed"),
    _row("pair-4096-0.15", "two coordinates of 4,096 have correlation 0.15", pair(77, 3_001, 0.15),
         "7.4 standard errors in 2,441 rows, where the largest of 8.4 million pairs reaches 5.5",
         4096),
)  # fmt: skip
