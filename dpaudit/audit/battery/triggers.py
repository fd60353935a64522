"""Noise that differs at certain calls, dimensions or places in a call."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import scipy

from dpaudit.audit.battery.drift import chi_square_score
from dpaudit.audit.battery.parts import no_evidence
from dpaudit.claims import Claim
from dpaudit.protocols import Block, Stream
from dpaudit.stats import bonferroni, chi_square_two_sided, normal_two_sided
from dpaudit.types import BlindSpot, Evidence

__all__ = ["Triggers"]

_PERIODS = (
    *range(2, 65),
    *(100, 128, 200, 256, 500, 512, 1000, 1024, 2000, 2048, 4096, 5000, 8192, 10_000, 16_384),
)
_SHORT = 256  # values in a call that counts as short
_LARGE = 1 << 14  # above: one of the largest calls
_CALLS = 1 << 17  # call numbers whose sums are kept

Array = npt.NDArray[np.float64]


@dataclass(slots=True)
class _Sums:
    """n, Σz and Σz² of all values added: N(0, n) and χ²_n under the claim."""

    n: int = 0
    total: float = 0.0
    square: float = 0.0

    def add(self, z: Array) -> None:
        self.n += z.size
        self.total += float(z.sum())
        self.square += float(np.einsum("ij,ij->", z, z))

    def p(self) -> float:
        mean = float(normal_two_sided(self.total / math.sqrt(self.n)))
        return bonferroni([mean, chi_square_two_sided(self.square, self.n)])

    @property
    def scale(self) -> float:
        return math.sqrt(self.square / self.n)


@dataclass(slots=True)
class _Extremes:
    """Extremes over all calls of one size, and their calls.

    The least and greatest Σz², the least Σ(z − z̄)², the greatest (Σz)².
    """

    calls: int
    values: Array
    where: npt.NDArray[np.int64]

    def add(self, numbers: npt.NDArray[np.int64], total: Array, square: Array, size: int) -> None:
        within = np.maximum(square - total * total / size, 0.0)
        stack = np.stack([square, -square, within, -total * total])
        least = stack.argmin(1)
        values = stack[np.arange(4), least]
        better = values < self.values
        self.values = np.where(better, values, self.values)
        self.where = np.where(better, numbers[least], self.where)
        self.calls += len(numbers)

    def tails(self, size: int) -> list[float]:
        """One-sided p-values of the four extremes, each as of a single call."""
        low, high, within, mean = self.values
        # float32 noise is exactly 0, or twice the same, too often in calls of 1 or 2 values
        fine = size > 2
        return [
            float(scipy.special.chdtr(size, low)) if fine else 1.0,
            float(scipy.special.chdtrc(size, -high)),
            float(scipy.special.chdtr(size - 1, within)) if fine else 1.0,
            float(normal_two_sided(math.sqrt(-mean / size))),
        ]


@dataclass(slots=True)
class _Between:
    """Σ of the squared normal scores of calls' sums, and of their sums of squares: χ²_calls."""

    calls: int = 0
    means: float = 0.0
    sizes: float = 0.0

    def add(self, total: Array, square: Array, size: int) -> None:
        self.calls += len(total)
        self.means += float(total @ total) / size
        if size > _SHORT:  # the lengths of short ones are for the norms test
            scores = chi_square_score(square, np.float64(size))
            self.sizes += float(scores @ scores)

    def p(self, *, long: bool) -> dict[str, tuple[float, float]]:
        """By what varies: p, and the variance × what independent noise has."""
        return {
            name: (chi_square_two_sided(x, self.calls), x / self.calls)
            for name, x in (("means", self.means), ("mean squares", self.sizes))
            if long or name == "means"
        }


class Triggers:
    """Sums of z and z² by call, by call number modulo k, by dimension and by place within the call.

    Null, exact: Σz ~ N(0, n), Σz² ~ χ²_n and, independent of Σz, Σ(z − z̄)² ~ χ²_(n−1), for every
    group that is chosen without a look at the noise. Parts: each call by itself (a constant
    answer has no spread within it); how much the means of calls vary, and the mean squares of long
    ones (Σ of their squared normal scores is χ², two-sided: balanced calls vary too little), apart
    for calls above 256 and above 2^14 values; the residue classes of the call's number modulo
    2…64, 100, 128, 200, … 16,384, for short calls (up to 256 values) and long ones apart; each
    dimension d; the first and last row of the calls with several; the first and last value of every
    call. Bonferroni within each part over all its groups, then over the parts. Memory is bounded:
    the sums of the first 2^17 calls of process 0 are kept, later ones count for the other parts
    only. Not claimed: rare events that are not periodic, unless a single call shows them.
    """

    looks_at = "calls, dimensions and places where the noise is different"
    harm = "changes"
    causal_order = 13

    def __init__(self, claim: Claim, stream: Stream) -> None:
        del claim, stream
        self._extremes: dict[int, _Extremes] = {}
        self._between: dict[str, _Between] = {}
        self._dims: dict[int, _Sums] = {}
        self._places = {
            name: _Sums() for name in ("first row", "last row", "first value", "last value")
        }
        # n, Σz, Σz² by number
        self._by_call = {kind: np.zeros((3, 0)) for kind in ("short calls", "long calls")}

    def update(self, block: Block) -> None:
        calls = block.z.reshape(block.calls, -1)
        size, d = calls.shape[1], block.z.shape[1]
        if not size:
            return
        total = calls.sum(1) if size > _SHORT else calls @ np.ones(size)
        square = np.einsum("ij,ij->i", calls, calls)
        numbers = block.call + np.arange(len(calls))
        nothing = _Extremes(0, np.full(4, np.inf), np.zeros(4, np.int64))
        self._extremes.setdefault(size, nothing).add(numbers, total, square, size)
        kind = "short calls" if size <= _SHORT else "long calls"
        alike = kind if size <= _LARGE else "largest calls"
        self._between.setdefault(alike, _Between()).add(total, square, size)
        dim = self._dims.setdefault(d, _Sums())
        dim.n += calls.size
        dim.total += float(total.sum())
        dim.square += float(square.sum())
        if size > d:
            self._places["first row"].add(calls[:, :d])
            self._places["last row"].add(calls[:, -d:])
        if size > 1:
            self._places["first value"].add(calls[:, :1])
            self._places["last value"].add(calls[:, -1:])
        if block.process == 0 and block.call < _CALLS:
            self._remember(kind, block.call, size, total, square)

    def _remember(self, kind: str, first: int, size: int, total: Array, square: Array) -> None:
        end = min(first + len(total), _CALLS)
        table = self._by_call[kind]
        if table.shape[1] < end:
            grown = np.zeros((3, min(_CALLS, 1 << end.bit_length())))
            grown[:, : table.shape[1]] = table
            self._by_call[kind] = table = grown
        table[0, first:end] += size
        table[1, first:end] += total[: end - first]
        table[2, first:end] += square[: end - first]

    def evidence(self, *, alpha: float) -> Evidence:
        if not self._dims:
            return no_evidence("no values")
        parts: dict[str, float] = {}
        effects: dict[str, str] = {}
        tried = 4 * sum(e.calls for e in self._extremes.values())
        size, which, least = min(
            ((s, i, p) for s, e in self._extremes.items() for i, p in enumerate(e.tails(s))),
            key=lambda x: x[2],
        )
        parts["single calls"] = min(1.0, tried * least)
        unusual = (
            "size is too small",
            "size is too large",
            "spread is too small",
            "mean is too large",
        )
        call = int(self._extremes[size].where[which])
        effects["single calls"] = f"call {call} of {size} values: its {unusual[which]}"
        varied = {
            f"the {sums_of} of {between.calls:,} {kind} vary {ratio:.3g} × as much as chance": p
            for kind, between in self._between.items()
            for sums_of, (p, ratio) in between.p(long=kind != "short calls").items()
        }
        effects["between calls"] = min(varied, key=lambda name: varied[name])
        parts["between calls"] = bonferroni(list(varied.values()))
        for kind, table in self._by_call.items():
            if table[0].any():
                first = int(np.flatnonzero(table[0])[0])
                parts[kind], effects[kind] = _residues(table[:, first:], kind, first)
        for name, groups in (
            ("dimensions", {f"d={d}": s for d, s in self._dims.items()}),
            ("places", self._places),
        ):
            p = {group: sums.p() for group, sums in groups.items() if sums.n}
            if p:
                group = min(p, key=lambda g: p[g])
                sums = groups[group]
                parts[name] = bonferroni(list(p.values()))
                effects[name] = f"{group}: scale {sums.scale:.4f} × claimed over {sums.n:,} values"
        worst = min(parts, key=lambda name: parts[name])
        values = sum(sums.n for sums in self._dims.values())
        blind = BlindSpot(
            test="triggers",
            flaw="single odd calls",
            size=-math.log10(alpha / len(parts) / tried),
            unit="−log10 of a call's own probability",
            says="a call whose size, spread and mean are each likelier than this, "
            "and one of no fixed period",
        )
        effect = effects[worst]
        if parts[worst] >= 1e-3:
            effect = f"{tried // 4:,} calls alike; most unusual: {effect}"
        return Evidence(
            p=bonferroni(list(parts.values())),
            statistic=float(values),
            effect=effect,
            parts=parts,
            blind_spots=(blind,),
        )


def _residues(table: Array, kind: str, first: int) -> tuple[float, str]:
    """Smallest p-value over all residue classes of all periods, and its effect in words.

    ``table`` begins with call ``first``.
    """
    calls = int(np.flatnonzero(table[0])[-1]) + 1
    table = table[:, :calls]
    least, effect, tried = 1.0, f"{kind}: too few for a period", 0
    for period in (k for k in _PERIODS if 2 * k <= calls):
        n, total, square = _fold(table, period)
        here = n > 0
        tried += 2 * int(here.sum())
        n = np.maximum(n, 1)
        # Wilson and Hilferty's score finds the oddest class; its own p-value is exact.
        score = (np.cbrt(square / n) - (1 - 2 / (9 * n))) * np.sqrt(4.5 * n)
        odd = int(np.argmax(np.abs(score) * here))
        shifted = int(np.argmax(np.abs(total) / np.sqrt(n)))
        for residue, p in (
            (odd, chi_square_two_sided(square[odd], n[odd])),
            (shifted, float(normal_two_sided(total[shifted] / math.sqrt(n[shifted])))),
        ):
            if p < least:
                scale = math.sqrt(square[residue] / n[residue])
                mean = total[residue] / n[residue]
                number = f"{kind} of number {(residue + first) % period} modulo {period}"
                least, effect = p, f"{number}: scale {scale:.4f} × claimed, mean {mean:+.3f}"
    return (min(1.0, tried * least) if tried else 1.0), effect


def _fold(table: Array, period: int) -> Array:
    """Sums of ``table`` (3, calls) over columns equal modulo ``period``, shape (3, period)."""
    # adding long rows is many times faster than adding short ones
    wide = period * -(-2048 // period)
    whole = table.shape[1] // wide * wide
    rest = np.zeros((3, wide))
    rest[:, : table.shape[1] - whole] = table[:, whole:]
    rest += table[:, :whole].reshape(3, -1, wide).sum(1)
    return np.asarray(rest.reshape(3, -1, period).sum(1))
