"""Relations between a few signs: in windows of 16, at two lags, and along whole rows."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from dpaudit.audit.battery.order.loops import biased_pairs, ones_of_pairs
from dpaudit.audit.battery.parts import Part, fair_coins, strongest

__all__ = ["FAR", "FarLags", "Parities", "RowParities", "TwoLags"]

_WINDOW = 16
_WIDEST = 64  # rows whose windows are counted by place as well
_FLUSH = 1 << 16
_FEWEST = 512  # windows of a table
_LAGS = 32
_STRETCH = 1 << 15  # values, whose shifted copies stay in the cache
_SHARE = 4
_WORD = 64
FAR = 2_000  # lags
_FAR_SIGNS = 1 << 16
_FAR_SHARE = 64
_FAR_CHOOSING = 1 << 13
_FAR_SHARE_CHOOSING = 8
_FAR_ERRORS = 2.33  # standard errors, beyond which one pair in 50 is
_FEWEST_WORDS = 4
_SPARE = 128  # rows beyond the number of coordinates
_MOST_COORDINATES = 1024
Bits = npt.NDArray[np.bool_]
Counts = npt.NDArray[np.int64]


class Parities:
    """The product of any signs among 16 consecutive values, from the counts of sign patterns.

    Null: in windows that do not overlap, the product over a set is a fair coin per window, exactly.
    Of sets that are shifted copies of each other no product of products is empty (their lowest
    members differ), so these coins are independent, and shifts are added. For rows of 16, 32, 48
    and 64 also by the place of the window in the row. Exact binomial; Bonferroni over the sets of
    one size, then over sizes and tables.
    """

    def __init__(self) -> None:
        self._tables: dict[str, Counts] = {}
        self._waiting: dict[str, list[npt.NDArray[np.uint16]]] = {}

    def update(self, signs: Bits, d: int) -> None:
        """Take in the signs of rows of ``d`` values, shape (n·d,)."""
        patterns = (
            np.packbits(signs[: len(signs) // _WINDOW * _WINDOW]).view(">u2").astype(np.uint16)
        )
        if d % _WINDOW or d > _WIDEST:
            self._add("neighbours", patterns)
            return
        for i, place in enumerate(patterns.reshape(-1, d // _WINDOW).T):
            self._add(f"coordinates {_WINDOW * i} to {_WINDOW * (i + 1) - 1} of {d}", place)

    def _add(self, name: str, patterns: npt.NDArray[np.uint16]) -> None:
        waiting = self._waiting.setdefault(name, [])
        waiting.append(patterns)
        if sum(map(len, waiting)) >= _FLUSH:
            self._flush(name)

    def _flush(self, name: str) -> None:
        patterns = np.concatenate(self._waiting.pop(name, [np.empty(0, np.uint16)]))
        counts = np.bincount(patterns, minlength=1 << _WINDOW)
        self._tables[name] = self._tables.get(name, 0) + counts

    def parts(self) -> dict[str, Part]:
        """The tables of places in rows, and all of them together with shifts added."""
        for name in list(self._waiting):
            self._flush(name)
        tables = {name: x for name, x in self._tables.items() if x.sum() >= _FEWEST}
        if not tables:
            return {}
        sums = {name: _walsh(counts) for name, counts in tables.items()}
        together = sum(sums.values(), np.zeros(1 << _WINDOW, np.int64))
        parts = {"signs of neighbours": _oddest(*_sum_shifts(together), "neighbours")}
        rows = [_oddest(x, np.full(len(x), x[0]), n) for n, x in sums.items() if n != "neighbours"]
        return parts | ({"signs by place in rows": strongest(rows)} if rows else {})


def _walsh(counts: Counts) -> Counts:
    """Σ over windows of the product of signs, for each of the 2^16 sets; index 0: their number."""
    x = counts.astype(np.int64)
    half = 1
    while half < len(x):
        pairs = x.reshape(-1, 2, half)
        x = np.stack([pairs[:, 0] + pairs[:, 1], pairs[:, 0] - pairs[:, 1]], axis=1).ravel()
        half *= 2
    return x


def _sum_shifts(total: Counts) -> tuple[Counts, Counts]:
    """Sums over all shifts of a set within the window, and their numbers of coins."""
    out, coins = np.zeros_like(total), np.zeros_like(total)
    for shift in range(_WINDOW):
        sets = np.arange(1, 1 << (_WINDOW - shift), 2)
        out[sets] += total[sets << shift]
        coins[sets] += total[0]
    return out, coins


def _oddest(total: Counts, coins: Counts, where: str) -> Part:
    sets = np.flatnonzero(coins)
    sets = sets[sets > 0]
    size = np.bitwise_count(sets)
    score = np.abs(total[sets]) / np.sqrt(np.maximum(coins[sets], 1))
    best, chosen = 1.0, int(sets[0])
    sizes = np.unique(size)
    for k in sizes:
        these = sets[size == k]
        one = int(these[score[size == k].argmax()])
        p = len(sizes) * len(these) * fair_coins(int(total[one]), int(coins[one]))
        if p < best:
            best, chosen = p, one
    members = [_WINDOW - 1 - i for i in range(_WINDOW) if chosen >> i & 1][::-1]
    offsets = ", ".join(str(m - members[0]) for m in members)
    mean = abs(int(total[chosen])) / max(1, int(coins[chosen]))
    start = members[0] if where != "neighbours" else 0
    return Part(
        best,
        f"the product of the signs of {len(members)} {where} (places {start} + {offsets}) is "
        f"biased by {mean:.4f} over {int(coins[chosen]):,} windows",
    )


class TwoLags:
    """Products of three signs, at t, t + a and t + b for all 0 < a < b ≤ 32, of a quarter of all.

    Null: all products of one pair of lags are independent fair coins, exactly (each has a latest
    sign of its own). Bonferroni over 496 pairs.
    """

    def __init__(self) -> None:
        self._first, self._second = (lags + 1 for lags in np.triu_indices(_LAGS, 1))
        self._odd = np.zeros(len(self._first), np.int64)
        self._coins = 0

    def update(self, signs: Bits) -> None:
        """Take in signs in draw order, shape (n,)."""
        few = len(signs) if len(signs) <= _STRETCH else max(_STRETCH, len(signs) // _SHARE)
        for start in range(0, few, _STRETCH):
            self._stretch(signs[start : min(few, start + _STRETCH)])

    def _stretch(self, signs: Bits) -> None:
        words = np.packbits(signs[: len(signs) // _WORD * _WORD]).view(">u8").astype(np.uint64)
        if len(words) < 2:
            return
        now, after = words[:-1], words[1:]
        shifted = np.empty((_LAGS + 1, len(now)), np.uint64)
        shifted[0] = now
        for lag in range(1, _LAGS + 1):
            shifted[lag] = (now << np.uint64(lag)) | (after >> np.uint64(_WORD - lag))
        self._coins += _WORD * len(now)
        ones_of_pairs(shifted, self._first, self._second, self._odd)

    def parts(self) -> dict[str, Part]:
        """One part."""
        if not self._coins:
            return {}
        first, second = self._first, self._second
        return {"signs at two lags": _most_biased(first, second, self._odd, self._coins)}


def _most_biased(first: Counts, second: Counts, odd: Counts, coins: int) -> Part:
    """The least balanced of pairs of lags, of which ``odd`` of ``coins`` products are negative."""
    totals = coins - 2 * odd
    most = int(np.abs(totals).argmax())
    total = int(totals[most])
    effect = (
        f"the product of the signs at lags 0, {first[most]:,} and {second[most]:,} is biased "
        f"by {abs(total) / coins:.4f} over {coins:,} places"
    )
    return Part(min(1.0, len(totals) * fair_coins(total, coins)), effect)


class FarLags:
    """The same for 0 < a < b ≤ 2,000, from the first 2^16 signs of the longest answer.

    An eighth of the coins, up to 2^13, chooses the 2 % of the pairs of lags that are least
    balanced there; all others, which use later signs only, judge these. Of fewer than 2^22 values
    drawn, from one in 64 of them. Null: as for :class:`TwoLags`; which answer is used follows
    from its length, and the coins that judge are independent of those that choose. Bonferroni over
    the pairs chosen.
    """

    def __init__(self) -> None:
        self._signs = np.empty(0, bool)
        self._drawn = 0

    def update(self, signs: Bits, calls: int) -> None:
        """Take in the signs of ``calls`` equal calls in draw order, shape (n,)."""
        self._drawn += len(signs)
        first = signs[: len(signs) // calls][: _FAR_SIGNS + 2 * FAR]
        if len(first) > len(self._signs):
            self._signs = first.copy()

    def parts(self) -> dict[str, Part]:
        """One part."""
        coins = min(self._drawn // _FAR_SHARE, len(self._signs) - 2 * FAR)
        choosing = min(_FAR_CHOOSING, coins // _FAR_SHARE_CHOOSING) // _WORD * _WORD
        judging = (coins - choosing) // _WORD * _WORD
        if choosing < _FEWEST_WORDS * _WORD:
            return {}
        least = math.ceil(_FAR_ERRORS * math.sqrt(choosing) / 2)
        first, second = np.empty((2, FAR * (FAR - 1) // 2), np.int64)
        shifted = _shifted_words(self._signs, choosing)
        chosen = biased_pairs(shifted, least, first, second)
        if not chosen:
            return {}
        # beyond the farthest sign that chose
        shifted = _shifted_words(self._signs[choosing + FAR :], judging)
        odd = np.zeros(chosen, np.int64)
        ones_of_pairs(shifted, first[:chosen], second[:chosen], odd)
        return {"signs at two far lags": _most_biased(first, second, odd, judging)}


def _shifted_words(signs: Bits, count: int) -> npt.NDArray[np.uint64]:
    """The first ``count`` signs, from each lag on, as words, shape (2,001, count // 64)."""
    shifted = np.empty((FAR + 1, count // _WORD), np.uint64)
    for lag in range(FAR + 1):
        shifted[lag] = np.packbits(signs[lag : lag + count]).view(">u8")
    return shifted


class RowParities:
    """A product of coordinates' signs that is the same in every row, by elimination over GF(2).

    For each d up to 1,024, from the first d + 128 rows (or as many as there are). Null: each of the
    2^d − 1 products has the same sign in all n rows with probability 2^(1 − n), so some one does
    with probability below 2^(d + 1 − n), exactly.
    """

    def __init__(self) -> None:
        self._rows: dict[int, list[Bits]] = {}
        self._number: dict[int, int] = {}

    def update(self, signs: Bits) -> None:
        """Take in the signs of rows, shape (n, d)."""
        n, d = signs.shape
        if not 1 < d <= _MOST_COORDINATES:
            return
        rows = self._number.get(d, 0)
        take = min(n, d + _SPARE - rows)
        if take > 0:
            self._rows.setdefault(d, []).append(signs[:take].copy())
            self._number[d] = rows + take

    def parts(self) -> dict[str, Part]:
        """One part, for all d with more rows than coordinates."""
        parts = []
        for d, rows in self._rows.items():
            n = self._number[d]
            if n <= d + 1:
                continue
            members = _relation(np.concatenate(rows))
            p, effect = 1.0, f"no product of signs is the same in {n:,} rows of {d}"
            if members:
                p = math.ldexp(1.0, d + 1 - n)
                some = ", ".join(map(str, members[:8])) + (", …" if len(members) > 8 else "")
                effect = (
                    f"the product of the signs of {len(members)} of {d} coordinates ({some}) is "
                    f"the same in {n:,} of {n:,} rows"
                )
            parts.append(Part(p, effect))
        return {"signs of whole rows": strongest(parts)} if parts else {}


def _relation(rows: Bits) -> list[int]:
    """Columns whose exclusive or is constant over the rows; [] if no set is."""
    packed = np.packbits(rows, axis=0)
    columns = [(1 << 8 * len(packed)) - 1, *(int.from_bytes(c.tobytes()) for c in packed.T)]
    columns[0] >>= 8 * len(packed) - len(rows)
    columns[0] <<= 8 * len(packed) - len(rows)
    basis: dict[int, tuple[int, int]] = {}  # by leading bit: a vector and the columns it is made of
    for i, column in enumerate(columns):
        vector, sources = column, 1 << i
        while vector:
            lead = vector.bit_length()
            if lead not in basis:
                basis[lead] = vector, sources
                break
            other, more = basis[lead]
            vector, sources = vector ^ other, sources ^ more
        if not vector:
            return [j - 1 for j in range(1, len(columns)) if sources >> j & 1]
    return []
