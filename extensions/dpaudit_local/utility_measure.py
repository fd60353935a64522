"""The error of popularities that a Count Mean Sketch estimates, by ε and number of records."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from dpaudit.experiments.grid import Grid
from dpaudit.experiments.measure import Measure
from dpaudit.randomness import KeyedStream
from dpaudit_local.pool_inference.measure import origins, setting_of

if TYPE_CHECKING:
    from dpaudit.experiments.cell import Cell

__all__ = ["MEASURE", "errors", "expected_errors", "gather", "measure", "origins", "summary"]

_TOP = 0.8
_FOLDED = math.sqrt(2 / math.pi)  # the mean of |N(0, 1)|
_METRICS = ("MAE", "MAPE80")
_SKETCH = ("m", "functions")


class SketchGrid(Grid, frozen=True, forbid_unknown_fields=False):
    """People of a ``setting``, whose options are further axes, and the sketch of ``records``."""

    setting: str
    epsilon: float
    records: int
    m: int | None = None
    functions: int | None = None


def measure(cell: Cell, arm: None) -> dict[str, Any]:
    """The error of one collection of ``[grid] records`` submissions under ``epsilon``.

    They come from people of a ``setting``. The server's state is drawn at once
    (``dpaudit_local.sketch_sampling``), by the law of as many
    submissions. Hash functions are random ones, drawn anew for each cell; ``m`` (1,024) and
    ``functions`` (65,536) may be given. ``trials`` is not used.

    Raises:
        SpecError: no setting, epsilon or records.
        UsageError: a setting or an ε that makes no sense.
    """
    from dpaudit_local.count_mean_sketch import CountMeanSketch
    from dpaudit_local.sketch_sampling import sample_sketch

    del arm
    grid = cell.grid(SketchGrid)
    own = {
        k: v for k, v in cell.settings["grid"].items() if k not in ("epsilon", "records", *_SKETCH)
    }
    records = grid.records
    popularity: npt.NDArray[np.float64] = setting_of(own).popularity
    stream = KeyedStream.from_seed(cell.settings["seed"]).child("cell", cell.id)
    seed = int.from_bytes(stream.child("hashes").entropy()[:6], "little")
    sketch = {name: value for name in _SKETCH if (value := getattr(grid, name)) is not None}
    mechanism = CountMeanSketch(epsilon=grid.epsilon, seed=seed, **sketch)
    counts = stream.child("people").numpy().multinomial(records, popularity)
    server = sample_sketch(mechanism, counts, stream=stream.child("devices"))
    estimate = server.estimate(np.arange(len(popularity))) / records
    return {
        "epsilon_exact": mechanism.epsilon,
        "found": errors(estimate, popularity),
        "expected": expected_errors(
            server.standard_error(counts.astype(np.float64)) / records, popularity
        ),
    }


def _top(popularity: npt.NDArray[np.float64]) -> npt.NDArray[np.int64]:
    """The most popular four fifths of the objects, without those that nobody chose."""
    top = np.argsort(-popularity, kind="stable")[: int(_TOP * len(popularity))]
    return top[popularity[top] > 0]


def errors(
    estimate: npt.NDArray[np.float64], popularity: npt.NDArray[np.float64]
) -> dict[str, float]:
    """``MAE`` and ``MAPE80``, the mean of |p̂ − p|/p over the top 80 % of objects (Appendix A.5).

    1 is 100 %.
    """
    off, top = np.abs(estimate - popularity), _top(popularity)
    return {"MAE": float(off.mean()), "MAPE80": float((off[top] / popularity[top]).mean())}


def expected_errors(
    error: npt.NDArray[np.float64], popularity: npt.NDArray[np.float64]
) -> dict[str, float]:
    """The mean of :func:`errors` if estimates are normal with standard deviations ``error``."""
    return errors(popularity + _FOLDED * error, popularity)


def gather(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """A row for each cell and kind of error."""
    return [
        {
            **{name: value for name, value in row.items() if name not in ("found", "expected")},
            "metric": metric,
            "error": row["found"][metric],
            "theory": row["expected"][metric],
        }
        for row in rows
        for metric in _METRICS
    ]


def summary(rows: Sequence[Mapping[str, Any]]) -> str:
    """How far measured errors lie from theory at most."""
    apart = max(abs(row["error"] / row["theory"] - 1) for row in rows)
    return f"All {len(rows)} errors are within {100 * apart:.1f} % of what theory expects of them."


MEASURE = Measure(
    run=measure, grid=SketchGrid, needs_arm=False, gather=gather, summary=summary, origins=origins
)
