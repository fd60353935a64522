"""What the attacks on support share: checked arrays, work in pieces, scores.

The lemma they rest on. Let y be a release, v a value and T any set of numbers that the noise can
take. The reals n with fl(v + n) = y form an interval that holds r = y − v, because rounding is
monotone and leaves y where it is. So if any n of T leads from v to y, then the nearest one to r on
one of its two sides does: two numbers to try, whatever T is.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from dpaudit.errors import UsageError
from dpaudit.numeric.arrays import cast_to, device_of, double, to_numpy
from dpaudit.protocols import Array as Either
from dpaudit.protocols import UnitSupport

__all__ = [
    "Array",
    "Kernel",
    "Scored",
    "check_release",
    "finite_array",
    "in_format",
    "in_pieces",
    "parse_number",
]

Array = npt.NDArray[np.float64]
Kernel = Callable[[Array, Array], npt.NDArray[np.bool_]]
"""Releases (t, k) and values (1, k) or (t, k) to feasibility (t, u)."""

_PIECE = 1 << 16


def finite_array(name: str, numbers: npt.ArrayLike, *, axes: int) -> Array:
    """``numbers`` as float64 with ``axes`` axes.

    Raises:
        UsageError: another number of axes, NaN or infinity.
    """
    array = np.asarray(numbers, np.float64)
    if array.ndim != axes:
        raise UsageError(
            f"{name} of shape {array.shape}: needs {axes} axes, one row per release; reshape it"
        )
    if not np.isfinite(array).all():
        raise UsageError(
            f"{name}: contain NaN or infinity; an attack needs finite values, drop those rows"
        )
    return array


def parse_number(name: str, value: object) -> float:
    """``value`` as a float, for options that come as text.

    Raises:
        UsageError: it is not a number.
    """
    if isinstance(value, bool) or not isinstance(value, (int, float, np.integer, np.floating)):
        raise UsageError(f"{name}={value}: must be a number")
    return float(value)


def check_release(releases: npt.ArrayLike, value: npt.ArrayLike) -> tuple[Array, Array]:
    """Releases (t, k) and the value (k,) as one row (1, k).

    Raises:
        UsageError: shapes that do not fit, or numbers that are not finite.
    """
    y, v = finite_array("releases", releases, axes=2), finite_array("value", value, axes=1)
    if y.shape[1] != len(v):
        raise UsageError(
            f"value of {len(v)} numbers: the releases have {y.shape[1]} coordinates; "
            "give one for each"
        )
    return y, v[None]


def in_pieces(each: Kernel, y: Array, v: Array) -> npt.NDArray[np.bool_]:
    """Apply ``each`` to flat arrays of equal length, in pieces that fit the cache; shape (t, k)."""
    out = np.empty(y.shape, np.bool_)
    step = max(1, _PIECE // max(1, y.shape[1]))
    for start in range(0, len(y), step):
        part = y[start : start + step]
        values = np.broadcast_to(v if len(v) == 1 else v[start : start + step], part.shape)
        out[start : start + step] = each(part.ravel(), values.ravel()).reshape(part.shape)
    return out


def in_format(y: Array, kind: type[np.floating[Any]], why: str) -> npt.NDArray[Any]:
    """``y`` in the format ``kind``, exactly.

    Raises:
        UsageError: a number that ``kind`` does not have, so the mechanism is another one.
    """
    with np.errstate(over="ignore"):
        narrow = y.astype(kind)
    if not np.array_equal(narrow, y):
        bad = float(y[narrow != y][0])
        raise UsageError(
            f"releases: {bad!r} is not a {np.dtype(kind).name} number, but {why}; choose another"
        )
    return narrow


class Scored(ABC):
    """Scores the support of units, and candidates, by what ``_feasible`` returns."""

    @abstractmethod
    def _feasible(self, y: Array, v: Array) -> npt.NDArray[np.bool_]:
        """Of releases (t, k) and values (1, k) or (t, k), both checked: (t, u) for u units."""

    def score(self, releases: Either, hypotheses: Either | UnitSupport) -> Either:
        """Of candidates, minus the number of units that rule each out, float64 (t, m).

        Of a :class:`~dpaudit.protocols.UnitSupport`, 0 or −∞ for each unit (t, u), an array.

        Raises:
            UsageError: shapes that do not fit, numbers that are not finite, or releases that such a
                mechanism cannot make.
        """
        if isinstance(hypotheses, UnitSupport):
            y, v = check_release(to_numpy(double(releases)), hypotheses.value)
            return np.where(self._feasible(y, v), 0.0, -np.inf)
        y, q = _rows(releases, hypotheses)
        out = np.zeros((len(y), q.shape[1]))
        for i in range(q.shape[1]):
            out[:, i] -= (~self._feasible(y, q[:, i])).sum(axis=1)
        return cast_to(out, None, device_of(releases))

    def evidence(self, releases: Either, candidates: Either, truth: Either) -> Mapping[str, Any]:
        """How many releases rule out the truth, and how many another candidate.

        The first is 0 if the mechanism is the one meant.

        Raises:
            UsageError: as for :meth:`score`.
        """
        out = to_numpy(self.score(releases, candidates)) < 0
        known = to_numpy(truth)[:, None]
        others = out.copy()
        np.put_along_axis(others, known, False, axis=1)
        return {
            "feasibility": {
                "releases": len(out),
                "truth_ruled_out": int(np.take_along_axis(out, known, axis=1).sum()),
                "another_ruled_out": int(others.any(1).sum()),
                "what": "releases that rule a candidate out",
            }
        }


def _rows(releases: Either, candidates: Either) -> tuple[Array, Array]:
    """As numpy arrays (t, k) and (1, m, k) or (t, m, k)."""
    y = finite_array("releases", to_numpy(double(releases)), axes=2)
    many = candidates if candidates.ndim == 3 else candidates[None]
    q = finite_array("candidates", to_numpy(double(many)), axes=3)
    if q.shape[2] != y.shape[1] or len(q) not in (1, len(y)):
        raise UsageError(
            f"candidates of shape {tuple(candidates.shape)}: there are {len(y)} releases of "
            f"{y.shape[1]} coordinates; give one list for all, shape (m, k), or one per release, "
            "shape (t, m, k)"
        )
    return y, q
