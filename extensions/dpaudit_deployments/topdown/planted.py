"""What an attacker of a census sees, and LAB SPECIMENS: where the owner of a backdoor hides it.

Never a default.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
import numpy.typing as npt
from scipy.linalg import block_diag, helmert

from dpaudit.errors import UsageError
from dpaudit.noise.gaussian import Gaussian
from dpaudit.noise.key import PancakeKey
from dpaudit.noise.pancake import Pancake
from dpaudit.noise.seed_in_noise.key import SeedKey
from dpaudit.noise.seed_in_noise.source import SeedInNoise
from dpaudit.numeric.arrays import to_numpy
from dpaudit.protocols import Stream
from dpaudit_deployments.topdown.census import Schema
from dpaudit_deployments.topdown.topdown import NoisyMeasurements, Rows, TopDown

__all__ = ["ContrastPancake", "Reordered", "Sight", "common_first", "contrasts", "seeded", "sights"]

Counts = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Sight:
    """The children of one parent, of whom ``target`` is attacked.

    ``known`` (n, cells) are the children's counts as the attacker knows them, and ``matrix``
    (cells, row) makes them a row of answers, whose noise has the scale ``scale``. It sees either
    the noisy rows ``released`` (n, row), or only the published ``table`` (n, cells); the ``parent``
    (cells,) is published too. ``zeros`` (cells,) are structural. ``replay`` makes a table, not yet
    rounded, from rows.
    """

    scale: float
    matrix: Floats
    known: Counts
    target: int
    released: Counts | None
    table: Counts | None
    parent: Counts | None
    zeros: npt.NDArray[np.bool_]
    replay: Callable[[Floats], Floats]

    @property
    def residual(self) -> Floats:
        """What is seen less what is known, as rows of answers (n, row)."""
        known = self.known @ self.matrix
        if self.released is not None:
            return np.asarray(self.released - known)
        assert self.table is not None  # noqa: S101
        return np.asarray(self.table @ self.matrix - known)


def sights(
    run: TopDown,
    *,
    known: tuple[Counts, ...],
    county: int,
    measured: NoisyMeasurements | None = None,
    tables: tuple[Counts, ...] | None = None,
) -> tuple[Sight, ...]:
    """The county's siblings, its state's, and the nation: lowest first.

    Of the counts that an attacker knows, ``known``, and either the measurements or the tables.

    Raises:
        UsageError: neither is given, or queries of one level with different scales.
    """
    if (measured is None) == (tables is None):
        raise UsageError("an attacker sees either measurements or tables")
    views, at = [], county
    for index in range(len(run.census.levels) - 1, -1, -1):
        level = run.census.levels[index]
        if len(run.rows(level.name)) != 1:
            raise UsageError(f"level={level.name}: attacks need one scale for all its queries")
        ((scale, queries),) = run.rows(level.name)
        parent = int(level.parents[at])
        rows = level.parents == parent
        above = tables[index - 1][parent] if index and tables is not None else None
        totals = known[index][rows].sum(1) if run.holds_totals(level.name) else None
        released = None
        if measured is not None:
            parts = [measured.of(level.name, query.name).values[rows] for query in queries]
            released = np.concatenate(parts, axis=1)
        views.append(
            Sight(
                scale=scale,
                matrix=np.concatenate([query.matrix for query in queries], axis=1),
                known=known[index][rows],
                target=int(np.flatnonzero(rows).searchsorted(at)),
                released=released,
                table=None if tables is None else tables[index][rows],
                parent=above,
                zeros=run.census.schema.zeros,
                replay=partial(_replayed, run, level.name, parent=above, totals=totals),
            )
        )
        at = parent
    return tuple(views)


def _replayed(
    run: TopDown, level: str, values: Floats, *, parent: Counts | None, totals: Counts | None
) -> Floats:
    """A table before rounding, from rows of noisy answers (n, row)."""
    queries = run.queries(level)
    parts = np.split(values, np.cumsum([len(query.cells) for query in queries])[:-1], axis=1)
    answers = {query.name: part for query, part in zip(queries, parts, strict=True)}
    return run.fractional(level, answers, parent=parent, totals=totals)


def contrasts(schema: Schema) -> Floats:
    """Orthonormal directions of the cells that least squares does not touch, shape (cells, k).

    Each one's weights add up to 0 in every age group, and are 0 in senior homes, where counts are
    small and often cut off at 0. No coarser query sees such a direction, so its part of an estimate
    is its part of the ``detailed`` measurement, less what makes siblings add up to their parent.
    """
    common = np.arange(len(schema.cells) // 2, len(schema.cells))
    sizes = np.bincount(schema.queries[1].part[common])
    directions = np.zeros((len(schema.cells), len(common) - len(sizes)))
    directions[common] = block_diag(*(helmert(int(size)).T for size in sizes))
    return directions


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
