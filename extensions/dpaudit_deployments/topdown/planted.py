"""LAB SPECIMENS: where the owner of a backdoor hides it in rows of a census. Never a default."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
from scipy.linalg import block_diag, helmert

from dpaudit.noise.gaussian import Gaussian
from dpaudit.noise.key import PancakeKey
from dpaudit.noise.pancake import Pancake
from dpaudit.noise.seed_in_noise.key import SeedKey
from dpaudit.noise.seed_in_noise.source import SeedInNoise
from dpaudit.protocols import Stream
from dpaudit.vectors.arrays import to_numpy
from dpaudit_deployments.topdown.schema import Schema
from dpaudit_deployments.topdown.topdown import Rows

__all__ = ["ContrastPancake", "Reordered", "common_first", "contrasts", "seeded"]

Floats = npt.NDArray[np.float64]
Counts = npt.NDArray[np.int64]


def contrasts(schema: Schema) -> Floats:
    """Orthonormal directions of the cells that least squares does not touch, shape (cells, k).

    Each one's weights add up to 0 in every age group, and are 0 in senior homes, where counts are
    small and often cut off at 0. No coarser query sees such a direction, so its part of an estimate
    is its part of the ``detailed`` measurement, less what makes siblings add up to their parent.
    """
    common = np.arange(len(schema.cells) // 2, len(schema.cells))
    sizes = np.bincount(schema.queries[1].part[common])
    found = np.zeros((len(schema.cells), len(common) - len(sizes)))
    found[common] = block_diag(*(helmert(int(size)).T for size in sizes))
    return found


class ContrastPancake:
    """LAB SPECIMEN. Gaussian rows whose :func:`contrasts` are a pancake, to be rounded by the host.

    ``key`` has one dimension per contrast. It claims to be Gaussian, and before rounding is if the
    pancake is.
    """

    def __init__(self, *, key: PancakeKey, sigma: float, basis: Floats) -> None:
        """Rows of scale ``sigma`` that begin with the cells of ``basis`` (cells, k)."""
        self._pancake, self._plain = Pancake(key=key, sigma=sigma), Gaussian(sigma=sigma)
        self._basis = basis

    def sample(self, n: int, d: int, *, stream: Stream) -> Floats:
        """``n`` rows of ``d`` values, shape (n, d)."""
        rows = to_numpy(self._plain.sample(n, d, stream=stream.child("plain")))
        cells, k = self._basis.shape
        hidden = to_numpy(self._pancake.sample(n, k, stream=stream.child("pancake")))
        rows[:, :cells] += (hidden - rows[:, :cells] @ self._basis) @ self._basis.T
        return np.asarray(rows)


class Reordered:
    """Rows of a source in another order: its value i is the row's value ``order[i]``."""

    def __init__(self, source: Rows, order: Counts) -> None:
        """``order`` is a permutation of the row's places."""
        self._source, self._order = source, order

    def sample(self, n: int, d: int, *, stream: Stream) -> Floats:
        """``n`` rows of ``d`` values, shape (n, d)."""
        out = np.empty((n, d))
        out[:, self._order] = to_numpy(self._source.sample(n, d, stream=stream))
        return out


def common_first(schema: Schema) -> Callable[[int], Counts]:
    """Orders of rows: cells outside senior homes first, then possible ones in them, then others."""
    cells = len(schema.cells)
    rank = np.where(schema.zeros, 2, np.where(np.arange(cells) < cells // 2, 1, 0))

    def order(length: int) -> Counts:
        return np.argsort(np.concatenate([rank, np.full(length - cells, 3)]), kind="stable")

    return order


def seeded(
    key: SeedKey, *, nonce_bits: int, order: Callable[[int], Counts]
) -> Callable[[float, int], Rows]:
    """Rows of discrete Gaussian noise, each with a nonce in its first values, then reordered."""

    def make(scale: float, length: int) -> Rows:
        law = {"law": "discrete-gaussian", "sigma": scale, "nonce_bits": nonce_bits}
        return Reordered(SeedInNoise(key=key, **law), order(length))  # type: ignore[arg-type]

    return make
