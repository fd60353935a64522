"""Periods, ranks and relations between a few signs."""

from __future__ import annotations

from dpaudit.audit.battery.order.part import Part
from dpaudit.audit.battery.order.periods import LONGEST, Harmonics, Periods
from dpaudit.audit.battery.order.ranks import Ranks
from dpaudit.audit.battery.order.signs import FAR, FarLags, Parities, RowParities, TwoLags
from dpaudit.claims import Claim
from dpaudit.protocols import Block, Stream
from dpaudit.stats import bonferroni
from dpaudit.types import BlindSpot, Evidence

__all__ = ["Order"]

_DENSE = 1 << 24  # values; of later blocks every eighth
_STEP = 8


class Order:
    """Periods to 8,192 and longer smooth ones, places of extremes, products of a few signs.

    Looks at every value of the first 2^24 (a quarter for signs at two lags), then at every eighth
    block. Null: exact, part by part
    (:class:`~dpaudit.audit.battery.order.periods.Periods`,
    :class:`~dpaudit.audit.battery.order.periods.Harmonics`,
    :class:`~dpaudit.audit.battery.order.ranks.Ranks`, and the four of
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
        found: dict[str, Part] = {}
        for look in (
            self._periods,
            self._harmonics,
            self._ranks,
            self._parities,
            self._lags,
            self._far,
            self._rows,
        ):
            found |= look.parts()
        if not found:
            return Evidence(p=1.0, statistic=0.0, effect="too few values to see an order")
        parts = {name: part.p for name, part in found.items()}
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
            effect=found[worst].effect,
            parts=parts,
            blind_spots=(blind,),
            details={"look": worst},
        )
