"""Published values compared with ours, joined by setting.

::

    [published]
    file = "hist-da"                       # published/hist-da.csv; or a list of such names
    on = { d = "num_bins", beta = "beta" } # our column = theirs; matching rows are averaged
    value = "success_rate"
    over = { mech = ["GPM", "GM"] }        # not a value, but the ratio of two groups' means
    ours = "success"                       # our column to compare with it
    trials = 1000                          # theirs: agreement by Fisher's exact test
    level = 0.01                           # its level; 0.001 by default
    tolerance = 0.01                       # or: agreement within so much, relative
    within = 0.01                          # or: within so much, absolute
    users = 5000                           # with it: theirs; allows for chance on both sides
"""

from __future__ import annotations

import csv
import functools
import math
from collections.abc import Iterator, Mapping
from typing import Any

from dpaudit.errors import SpecError
from dpaudit.experiments.measure import listed
from dpaudit.experiments.shipped import published_files
from dpaudit.registry import nearest

__all__ = ["LEVEL", "agrees", "beside_published", "published_value"]

LEVEL = 0.001


@functools.cache
def _rows(*names: str) -> tuple[dict[str, str], ...]:
    return tuple(row for name in names for row in _read(name))


def _read(name: str) -> Iterator[dict[str, str]]:
    path = published_files().get(name)
    if path is None:
        raise SpecError(f"published file={name}: no such file{nearest(name, published_files())}")
    yield from csv.DictReader(path.read_text(encoding="utf-8").splitlines())


def _same(ours: Any, theirs: str) -> bool:
    try:
        return math.isclose(float(ours), float(theirs), rel_tol=1e-6)
    except (TypeError, ValueError):
        return str(ours) == theirs


def published_value(spec: Mapping[str, Any], row: Mapping[str, Any]) -> float | None:
    """The published value for a row of ours, or None where nothing was published.

    Raises:
        SpecError: an unknown file or column.
    """
    rows = _rows(*listed(spec["file"]))
    try:
        match = [
            r
            for r in rows
            if all(_same(row.get(mine), r[theirs]) for mine, theirs in spec["on"].items())
        ]
        if "over" not in spec:
            return _mean(match, spec["value"])
        ((column, groups),) = spec["over"].items()
        top, bottom = (
            _mean([r for r in match if r[column] == group], spec["value"]) for group in groups
        )
    except KeyError as error:
        raise SpecError(f"published file={spec['file']}: no column {error}") from error
    return None if top is None or bottom is None else top / bottom


def beside_published(
    spec: Mapping[str, Any], row: Mapping[str, Any], *, trials: int | None = None
) -> tuple[float | None, bool | None]:
    """The published value for a row of ours, and whether ours fits; None where nothing is known.

    ``trials`` are ours, by default the row's.

    Raises:
        SpecError: as :func:`published_value`.
    """
    theirs, ours = published_value(spec, row), row[spec["ours"]]
    if theirs is None or ours is None:
        return theirs, None
    own = row["trials"] if trials is None else trials
    return theirs, agrees(spec, ours, theirs, trials=own)


def _mean(rows: list[dict[str, str]], column: str) -> float | None:
    return sum(float(r[column]) for r in rows) / len(rows) if rows else None


def agrees(
    spec: Mapping[str, Any], ours: Mapping[str, Any] | float, theirs: float, *, trials: int
) -> bool | None:
    """Whether ours fits the published value; None if the spec asks for no comparison.

    With ``trials``: Fisher's exact two-sided test of two binomial shares at ``level`` (0.001), so
    at most that share of the cells that do agree are called misses. With ``tolerance``: within that
    share of the published value. With ``within``: that far from it; if it also says from how many
    ``users`` the published value comes, then beyond that as far as the standard error of the
    difference explains at ``level``, two-sided: ours is a mean over ``trials`` users with a 95 %
    interval, theirs has the same spread per user.
    """
    value = float(ours["value"]) if isinstance(ours, Mapping) else float(ours)
    if "within" in spec:
        chance = _by_chance(spec, ours, trials=trials) if "users" in spec else 0.0
        return abs(value - theirs) <= float(spec["within"]) + chance + 1e-9
    if "tolerance" in spec:
        return abs(value / theirs - 1) <= float(spec["tolerance"])
    if "trials" not in spec:
        return None
    from scipy.stats import fisher_exact  # late: looking at runs does not need it

    n = int(spec["trials"])
    a, b = round(value * trials), round(theirs * n)
    p = float(fisher_exact([[a, trials - a], [b, n - b]])[1])
    return p >= float(spec.get("level", LEVEL))


def _by_chance(spec: Mapping[str, Any], ours: Mapping[str, Any] | float, *, trials: int) -> float:
    """How far two equal means over ``trials`` and ``users`` users lie apart at most.

    Exceeded in a share ``level`` of cases.
    """
    if not isinstance(ours, Mapping):
        raise SpecError(
            f"published ours={spec['ours']}: has no interval, so users={spec['users']} has no use; "
            "leave users out"
        )
    from scipy.special import ndtri

    error = (float(ours["high"]) - float(ours["low"])) / 2 / float(ndtri(0.975))
    z = float(ndtri(1 - float(spec.get("level", LEVEL)) / 2))
    return z * error * math.sqrt(1 + trials / int(spec["users"]))
