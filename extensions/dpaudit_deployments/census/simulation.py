"""Small noisy measurement files in the Bureau's layout, with the noise that a test asks for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Protocol

import numpy as np
import numpy.typing as npt

from dpaudit.noise.discrete import DiscreteGaussian
from dpaudit.randomness import KeyedStream
from dpaudit_deployments.census.law import IntegerGaussian
from dpaudit_deployments.census.model import ALL, Constraint, Integers, Measurement
from dpaudit_deployments.census.writing import UNBOUNDED, write_level

__all__ = ["AXES", "LEVELS", "PRODUCT", "QUERIES", "Noise", "honest", "make_files"]

PRODUCT = "US_Person_PL_SIMULATED"
LEVELS = ("US", "State", "County")
AXES: Mapping[str, int] = {"hhgq": 8, "votingage": 2, "hispanic": 2, "cenrace": 7}
"""As in the redistricting schema, with 7 races for its 63."""
QUERIES: Mapping[str, tuple[tuple[str, ...], float]] = {
    "total": ((), 6.0),
    "hhgq": (("hhgq",), 3.0),
    "votingage * hispanic * cenrace": (("votingage", "hispanic", "cenrace"), 2.0),
    "detailed": (tuple(AXES), 1.5),
}
"""The axes that each query keeps, and σ in counties; above it is a quarter larger per level."""


class Noise(Protocol):
    """Where the noise of a query at a level comes from."""

    def __call__(
        self, rows: int, cells: int, *, sigma: float, level: str, query: str, stream: KeyedStream
    ) -> Integers:
        """Noise of shape (rows, cells) int64; ``sigma`` is what the files state."""


def honest(
    rows: int, cells: int, *, sigma: float, level: str, query: str, stream: KeyedStream
) -> Integers:
    """Exact discrete Gaussian noise."""
    del level, query
    noise = DiscreteGaussian(sigma=sigma).sample(rows, cells, stream=stream)
    return np.asarray(noise).astype(np.int64)


def make_files(
    folder: Path,
    *,
    stream: KeyedStream,
    noise: Noise = honest,
    states: int = 8,
    counties: int = 12,
) -> Path:
    """Write files of a made-up country with ``counties`` in each of ``states``; returns ``folder``.

    A county lacks each of the seven kinds of group quarters with probability ½, and nobody below 18
    lives in a nursing facility: the constraint files say so, as the Bureau's do.

    Raises:
        MissingExtraError: pyarrow is not installed.
    """
    counts, lacking = _people(states, counties, stream.child("people"))
    place = folder / PRODUCT
    for depth, level in enumerate(LEVELS):
        own = _summed(counts, depth)
        missing = _summed(lacking, depth, everywhere=True)
        geocodes = _geocodes(level, states, counties)
        measured = list(_measured(own, geocodes, level, noise, stream.child("noise", level)))
        parts = [""] if level == "US" else [f"State={s:02d}" for s in range(1, states + 1)]
        for part in parts:
            state = part.removeprefix("State=")
            write_level(
                place,
                level,
                axes=tuple(AXES),
                measurements=(m for m in measured if m.geocode.startswith(state)),
                constraints=_constraints(own, missing, geocodes, level, state),
                partition=part,
            )
    return folder


def _people(
    states: int, counties: int, stream: KeyedStream
) -> tuple[Integers, npt.NDArray[np.bool_]]:
    """Counts (states·counties, *axes), and which group quarters each county lacks."""
    rng = stream.numpy()
    lacking = rng.random((states * counties, AXES["hhgq"])) < 0.5
    lacking[:, 0] = False
    counts = rng.poisson(9.0, (states * counties, *AXES.values()))
    counts[lacking] = 0
    counts[:, 3, 0] = 0
    return counts.reshape(states, counties, *AXES.values()), lacking.reshape(states, counties, -1)


def _summed(counts: npt.NDArray[np.generic], depth: int, *, everywhere: bool = False) -> Integers:
    """Totals of a level, (geographies, …); ``everywhere`` is true where all below are."""
    axes = {0: (0, 1), 1: (1,), 2: ()}[depth]
    found = counts.all(axis=axes) if everywhere else counts.sum(axis=axes)
    return np.asarray(found).reshape(-1, *counts.shape[2:])


def _geocodes(level: str, states: int, counties: int) -> list[str]:
    if level == "US":
        return ["1"]
    codes = [f"{s:02d}" for s in range(1, states + 1)]
    return (
        codes
        if level == "State"
        else [s + f"{c:03d}" for s in codes for c in range(1, counties + 1)]
    )


def _measured(
    counts: Integers, geocodes: list[str], level: str, noise: Noise, stream: KeyedStream
) -> Iterator[Measurement]:
    for query, (kept, county) in QUERIES.items():
        sigma = county * 1.25 ** (len(LEVELS) - 1 - LEVELS.index(level))
        away = tuple(1 + i for i, axis in enumerate(AXES) if axis not in kept)
        answers = counts.sum(axis=away).reshape(len(geocodes), -1)
        drawn = noise(
            *answers.shape, sigma=sigma, level=level, query=query, stream=stream.child(query)
        )
        full = len(kept) == len(AXES)
        for geocode, value in zip(geocodes, answers + drawn, strict=True):
            yield Measurement(
                geocode=geocode,
                query=query,
                specs=tuple("detailed" if full else a if a in kept else ALL for a in AXES),
                shape=tuple(n if a in kept else 1 for a, n in AXES.items()),
                value=value,
                variance=IntegerGaussian(sigma).variance,
            )


def _constraints(
    counts: Integers, lacking: npt.NDArray[np.generic], geocodes: list[str], level: str, state: str
) -> Iterator[Constraint]:
    for i, geocode in enumerate(geocodes):
        if not geocode.startswith(state):
            continue
        if level == "US":
            total = np.array([counts[i].sum()])
            yield _constraint(geocode, "total", (ALL,) * 4, (1,) * 4, total, "=")
        nobody = ("gqNursingTotal", "nonvoting", ALL, ALL)
        yield _constraint(geocode, "nurse_nva_0", nobody, (1,) * 4, np.zeros(1, np.int64), "=")
        bounds = np.where(lacking[i], 0, UNBOUNDED)
        quarters = ("hhgq", ALL, ALL, ALL)
        yield _constraint(geocode, "hhgq_total_ub", quarters, (8, 1, 1, 1), bounds, "<=")


def _constraint(
    geocode: str,
    name: str,
    specs: tuple[str, ...],
    shape: tuple[int, ...],
    value: npt.NDArray[np.int64],
    sign: str,
) -> Constraint:
    return Constraint(geocode=geocode, query=name, specs=specs, shape=shape, value=value, sign=sign)
