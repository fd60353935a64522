"""Where the largest and the smallest of a few neighbours stand, and in which order three do."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from dpaudit.audit.battery.order.part import Part, least
from dpaudit.stats import binomial_two_sided

__all__ = ["Ranks"]

_EIGHT, _THREE = 8, 3
_GROUPS = ("in draw order", "of an answer")
_WIDEST = 64
_ROWS = 1 << 15  # values of an answer whose rows are looked at
# by the bits a < b, b < c, a < c
_ORDERS = {7: "a < b < c", 5: "a < c < b", 3: "b < a < c", 2: "b < c < a", 4: "c < a < b"}
_ORDERS[0] = "c < b < a"
Array = npt.NDArray[np.float64]
Counts = npt.NDArray[np.int64]


class Ranks:
    """Counts of the place of the largest and of the smallest, and of the six orders of three.

    In groups of eight (of three, in every second answer) consecutive values in draw order; in
    groups that begin with an answer (every second one, where these are others); and by coordinate
    in rows of up to 64 (of the first 2^15 values of an answer). Null: each place has probability
    1/8 (each order 1/6, each coordinate 1/d) in every group, exactly for any continuous law; of
    equal values the first counts. Exact binomial tails; Bonferroni.
    """

    def __init__(self) -> None:
        # largest or smallest, place
        self._places = {name: np.zeros((2, _EIGHT), np.int64) for name in _GROUPS}
        self._orders = {name: np.zeros(8, np.int64) for name in _GROUPS}
        self._rows: dict[int, Counts] = {}  # by d: largest or smallest, coordinate
        self._answers = 0

    def update(self, z: Array, at: int) -> None:
        """Take in rows (n, d) whose first value is number ``at`` in draw order."""
        from dpaudit.audit.battery.order.loops import count_orders, count_places  # a compiler

        self._answers += 1
        flat = z.ravel()
        for name, skip in self._counted(_EIGHT, at).items():
            count_places(flat[skip:], *self._places[name])
        if self._answers % 2:
            for name, skip in self._counted(_THREE, at).items():
                count_orders(flat[skip:], self._orders[name])
        d = z.shape[1]
        if 2 < d <= _WIDEST:
            counts = self._rows.setdefault(d, np.zeros((2, d), np.int64))
            few = z[: max(1, _ROWS // d)]
            counts[0] += np.bincount(few.argmax(1), minlength=d)
            counts[1] += np.bincount(few.argmin(1), minlength=d)

    def _counted(self, size: int, at: int) -> dict[str, int]:
        """The ways to group this answer's values, and how many values lie before the first."""
        in_order, of_answer = _GROUPS
        skip = -at % size
        both = not skip or self._answers % 2
        return {in_order: skip, of_answer: 0} if both else {in_order: skip}

    def parts(self) -> dict[str, Part]:
        """Largest and smallest of eight, orders of three, and coordinates of rows."""
        parts = {}
        for name in _GROUPS:
            for kind, which in enumerate(("largest", "smallest")):
                says = [f"value {i} of eight {name} is the {which}" for i in range(_EIGHT)]
                parts[f"{which} of eight {name}"] = _oddest(self._places[name][kind], says)
            says = [f"three values a, b, c {name} have {order}" for order in _ORDERS.values()]
            parts[f"orders of three {name}"] = _oddest(self._orders[name][list(_ORDERS)], says)
        rows = [
            _oddest(counts[kind], [f"coordinate {i} of {d} is the {which}" for i in range(d)])
            for d, counts in self._rows.items()
            for kind, which in enumerate(("largest", "smallest"))
        ]
        return parts | ({"extremes of rows": least(rows)} if rows else {})


def _oddest(counts: Counts, says: list[str]) -> Part:
    """The least likely of equally likely counts."""
    n, cells = int(counts.sum()), len(counts)
    if not n:
        return Part(1.0, "too few values for a rank")
    one = int(np.abs(counts - n / cells).argmax())
    p = min(1.0, cells * binomial_two_sided(int(counts[one]), n, 1 / cells))
    effect = f"{says[one]} {int(counts[one]):,} times of {n:,}, where {n / cells:,.0f} are expected"
    return Part(p, effect)
