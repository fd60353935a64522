"""Periods, ranks and relations between a few signs."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from dpaudit.audit.battery.order.loops import count_orders, count_places
from dpaudit.audit.battery.order.periods import LONGEST, Harmonics, Periods
from dpaudit.audit.battery.order.signs import FAR, FarLags, Parities, RowParities, TwoLags
from dpaudit.audit.battery.parts import Part, no_evidence, strongest
from dpaudit.claims import Claim
from dpaudit.protocols import Block, Stream
from dpaudit.stats import binomial_two_sided, bonferroni
from dpaudit.types import BlindSpot, Evidence

__all__ = ["Order", "Ranks"]

_EIGHT, _THREE = 8, 3
_GROUPS = ("in draw order", "of an answer")
_WIDEST = 64
_ROWS = 1 << 15  # values of an answer whose rows are counted
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
                effects = [f"value {i} of eight {name} is the {which}" for i in range(_EIGHT)]
                parts[f"{which} of eight {name}"] = _oddest(self._places[name][kind], effects)
            effects = [f"three values a, b, c {name} have {order}" for order in _ORDERS.values()]
            parts[f"orders of three {name}"] = _oddest(self._orders[name][list(_ORDERS)], effects)
        rows = [
            _oddest(counts[kind], [f"coordinate {i} of {d} is the {which}" for i in range(d)])
            for d, counts in self._rows.items()
            for kind, which in enumerate(("largest", "smallest"))
        ]
        return parts | ({"extremes of rows": strongest(rows)} if rows else {})


def _oddest(counts: Counts, effects: list[str]) -> Part:
    """The least likely of equally likely counts."""
    n, cells = int(counts.sum()), len(counts)
    if not n:
        return Part(1.0, "too few values for a rank")
    one = int(np.abs(counts - n / cells).argmax())
    p = min(1.0, cells * binomial_two_sided(int(counts[one]), n, 1 / cells))
    effect = (
        f"{effects[one]} {int(counts[one]):,} times of {n:,}, where {n / cells:,.0f} are expected"
    )
    return Part(p, effect)


_DENSE = 1 << 24  # values; of later blocks every eighth
_STEP = 8


class Order:
    """Periods to 8,192 and longer smooth ones, places of extremes, products of a few signs.

    Looks at every value of the first 2^24 (a quarter for signs at two lags), then at every eighth
    block. Null: exact, part by part
    (:class:`~dpaudit.audit.battery.order.periods.Periods`,
    :class:`~dpaudit.audit.battery.order.periods.Harmonics`,
    :class:`~dpaudit.audit.battery.order.order.Ranks`, and the four of
    :mod:`dpaudit.audit.battery.order.signs`); the parts are combined by Bonferroni. Not claimed:
    periods of single values beyond 8,192, products of signs farther apart, or of more than 16.
    """

    looks_at = "periods, ranks and sign relations of neighbours and places"
    harm = "dependence"
    causal_order = 16
    costly = True
    loops = "dpaudit.audit.battery.order.loops"

    def __init__(self, claim: Claim, stream: Stream) -> None:
        del claim, stream
        self._periods, self._harmonics, self._ranks = Periods(), Harmonics(), Ranks()
        self._parities, self._rows = Parities(), RowParities()
        self._lags, self._far = TwoLags(), FarLags()
        self._values = self._blocks = 0

    def update(self, block: Block) -> None:
        flat = block.z.ravel()
        at, self._values = self._values, self._values + len(flat)
        self._blocks += 1
        self._periods.update(flat, block.calls)
        self._harmonics.update(flat, block.calls)
        if at >= _DENSE and self._blocks % _STEP:
            return
        signs = block.z > 0
        self._parities.update(signs.ravel(), block.z.shape[1])
        self._lags.update(signs.ravel())
        self._far.update(signs.ravel(), block.calls)
        self._rows.update(signs)
        self._ranks.update(block.z, at)

    def evidence(self, *, alpha: float) -> Evidence:
        del alpha
        looks: dict[str, Part] = {}
        for look in (
            self._periods,
            self._harmonics,
            self._ranks,
            self._parities,
            self._lags,
            self._far,
            self._rows,
        ):
            looks |= look.parts()
        if not looks:
            return no_evidence("too few values to see an order")
        parts = {name: part.p for name, part in looks.items()}
        worst = min(parts, key=lambda name: parts[name])
        blind = BlindSpot(
            test="order",
            flaw="rare places and relations",
            size=None,
            unit="",
            says=f"single special values with a period beyond {LONGEST:,}, weak products of three "
            f"signs more than 32 values apart, any more than {FAR:,} apart, and those of a set "
            "that no window of 16 holds unless it is the same in every row",
        )
        return Evidence(
            p=bonferroni(list(parts.values())),
            statistic=float(self._values),
            effect=looks[worst].effect,
            parts=parts,
            blind_spots=(blind,),
            details={"look": worst},
        )
