"""Messages, counters and copies in the last binary digits of values."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy

from dpaudit.audit.battery.parts import DISCRETE, Part, no_evidence
from dpaudit.audit.battery.predictable.berlekamp_massey import shortest_recurrence
from dpaudit.audit.battery.resolution import Precision, strip_edges
from dpaudit.claims import Claim
from dpaudit.protocols import Block, Stream
from dpaudit.stats import bonferroni
from dpaudit.types import BlindSpot, Evidence

__all__ = ["LastDigits"]

_BIAS = 2.0**-5  # a sum of digits modulo 2 is 1 with probability within (1 ± this)/2
_LAST_BIAS = 0.5  # the same for the last digit alone, which sums leave 0 more often than 1
_ANY_BIAS = 0.75  # the same for any digit of small values too
_DIGITS = 8
_LEADING = 12  # digits that are left to other tests
_STRETCH = 1 << 13
_VALUES = 1 << 18
_FEWEST = 64
_LAGS = 1 << 12
_HEAD = 512  # values of each call that are compared with those of the call before
_HEADS = 256
_PLACE_BITS = 16
_LEARNED, _PREDICTED = 512, 256  # digits of a register
_LONGEST_REGISTER = 200
_REGISTERS = 4  # stretches that are tried
_CERTAIN = 1e-3  # p-value below which the deciding part is reported
_ALIKE = 1e-300  # of p-values below this the likeliest cause is reported
_SIGNS, _SIZES = _DIGITS, _DIGITS + 1  # series in addition to the digits

Array = npt.NDArray[np.float64]
Places = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class _Stretch:
    """Values in a row, and where they lie: in the run, in their call, in their vector."""

    values: Array
    drawn: int  # before them
    call: int  # number of the block's first call
    each: int  # values per call
    start: int  # in the block
    d: int

    def places(self) -> dict[str, npt.NDArray[np.int64]]:
        """Numbers that digits may follow."""
        at = self.start + np.arange(len(self.values))
        within = at % self.each
        return {
            "the call": self.call + at // self.each,
            "the place in the call": within,
            "the row": within // self.d,
            "the coordinate": within % self.d,
            "the place in the run": self.drawn + np.arange(len(self.values)),
        }


class LastDigits:
    """The last eight binary digits: their frequency, order, place and recurrence.

    For continuous claims only, in up to 2^18 values, in stretches of 2^13 at keyed places of the
    run. The last digits are those of the format that the values show: double, float32, float32
    times the scale, or a grid. Parts: how often each sum modulo 2 of the eight is 1, alone and
    with the sign; each digit against each other one, the sign and whether |value| is above its
    median, up to 4,096 places before and after; against the binary digits of five numbers of the
    place (call, place in the call, row, coordinate, place in the run); against the same place of
    the call before; and whether a linear recurrence of length up to 200 over GF(2), found in 512
    digits (Massey 1969), predicts 256 more.

    Noise that was made for a value is left out: adding and subtracting that value rounds the last
    digits away.

    Null: values are independent and have one law, whatever call or place they are drawn at; nothing
    is assumed of how fair their digits are, except for frequencies and recurrences. A digit times
    a fixed number of the place, less means: Hoeffding's inequality, exact. A digit times another
    one, n pairs, in two sets of disjoint pairs, less the product of two means: by the same
    inequality their covariance is beyond t with probability at most 8·exp(−n t²/24). Frequencies
    are of values beyond half a standard deviation. There sums and some inverse CDFs leave the last
    digit alone unfair (0 in 64 % of sums of four normals), and all other sums of digits fair to
    within what two million values show; allowed are 3/4 and (1 + 2^-5)/2, and Hoeffding's
    inequality beyond them. A recurrence predicts a digit of small values too, which sums leave 0
    more often: it is right with probability at most 7/8 each time, binomial. Combined by
    Bonferroni.

    Not claimed: encrypted messages, which are fair and independent; digits of a frequency within
    1.6 %, or a last digit that is 1 at least every fourth time; copies from farther away; longer
    recurrences.
    """

    looks_at = "counters, copies and messages in the last binary digits"
    harm = "messages"
    causal_order = 7
    costly = True
    loops = "dpaudit.audit.battery.predictable.loops"

    def __init__(self, claim: Claim, stream: Stream) -> None:
        self._claim = claim
        self._rng = stream.numpy()
        self._stretches: list[_Stretch] = []
        self._heads: list[tuple[int, Array]] = []
        self._drawn = self._blocks = self._size = 0
        self._stride = 1

    def update(self, block: Block) -> None:
        if self._claim.discrete:
            return
        x = block.values.ravel()
        drawn = self._drawn
        self._drawn += len(x)
        if block.value:  # of value + noise, less the value: that rounds the last digits away
            return
        each = len(x) // block.calls
        if block.calls == 1 and len(self._heads) < _HEADS:
            self._heads.append((block.call, x[:_HEAD].copy()))
        self._blocks += 1
        if self._blocks % self._stride or len(x) < _FEWEST:
            return
        start = int(self._rng.integers(max(0, len(x) - _STRETCH) + 1))
        part = x[start : start + _STRETCH].copy()
        self._stretches.append(
            _Stretch(part, drawn + start, block.call, each, start, block.values.shape[1])
        )
        self._size += len(part)
        # drop every second stretch, and take half as many from now on
        while self._size > _VALUES:
            self._stretches = self._stretches[1::2]
            self._size = sum(len(s.values) for s in self._stretches)
            self._stride *= 2

    def evidence(self, *, alpha: float) -> Evidence:
        del alpha
        if self._claim.discrete:
            return no_evidence(DISCRETE)
        if not self._stretches:
            return no_evidence("too few values")
        x = np.concatenate([s.values for s in self._stretches])
        precision = Precision.of(x, self._claim.scale)
        digits = min(_DIGITS, precision.bits - _LEADING)
        if digits < 1:
            return no_evidence(f"not applicable: values have {precision.bits} digits")
        last = [precision.last_digits(s.values) for s in self._stretches]
        views = (
            ("place", self._by_place(last, digits)),
            ("recurrence", _registers(last, digits)),
            ("order", _order(last, [s.values for s in self._stretches], self._claim, digits)),
            ("call before", self._by_call(precision, digits)),
            ("frequency", self._frequencies(np.concatenate(last), x, digits)),
        )
        strongest = {name: min(view, default=Part(1.0, "")) for name, view in views}
        parts = {name: view.p for name, view in strongest.items()}
        worst = min(parts, key=lambda name: max(parts[name], _ALIKE))
        effect = f"nothing in the last {digits} of {precision.bits} digits of {len(x):,} values"
        if parts[worst] < _CERTAIN:
            effect = strongest[worst].effect
        details: dict[str, Any] = {"digits": precision.bits, "values": len(x)}
        blind = BlindSpot(
            test="last-digits",
            flaw="patterns in the last digits",
            size=None,
            unit="",
            says="digits that a cipher makes fair and independent; copies from more than "
            f"{_LAGS:,} values before; recurrences longer than {_LONGEST_REGISTER}",
        )
        return Evidence(
            p=bonferroni(list(parts.values())),
            statistic=float(-math.log10(max(parts[worst], 1e-300))),
            effect=effect,
            parts=parts,
            blind_spots=(blind,),
            details=details,
        )

    def _frequencies(self, last: npt.NDArray[np.uint8], x: Array, digits: int) -> Iterator[Part]:
        """How often each sum of digits modulo 2 is 1, alone and with the sign."""
        large = np.abs(x) >= self._claim.standard_deviation / 2  # where sums lose one digit at most
        last, x = last[large], x[large]
        if not len(x):
            return
        last = last & np.uint8((1 << digits) - 1)
        allowed = np.full(1 << digits, _BIAS)
        allowed[0], allowed[1] = 1.0, _LAST_BIAS  # the sign alone is no digit's
        for name, weights in (("", np.ones(len(x))), (" and the sign", np.sign(x))):
            counts = np.bincount(last, weights, minlength=1 << digits)
            means = scipy.linalg.hadamard(1 << digits) @ counts / len(x)
            beyond = np.maximum(np.abs(means) - allowed, 0.0)
            which = int(np.argmax(beyond))
            places = ", ".join(str(j + 1) for j in range(digits) if which >> j & 1)
            p = min(1.0, (4 << digits) * math.exp(-0.5 * len(x) * beyond[which] ** 2))
            odd = (1 - means[which]) / 2
            effect = f"the sum of digits {places} from the end{name} is odd in {odd:.2%}"
            yield Part(p, f"{effect} of {len(x):,} values")

    def _by_place(self, last: list[npt.NDArray[np.uint8]], digits: int) -> Iterator[Part]:
        """Each digit against each binary digit of a place."""
        names = list(self._stretches[0].places())
        shift = np.arange(_PLACE_BITS)[:, None]
        products = np.zeros((len(names), _PLACE_BITS, digits))
        of_places, of_digits = np.zeros((len(names), _PLACE_BITS)), np.zeros(digits)
        for stretch, digit in zip(self._stretches, last, strict=True):
            signs = _signs(digit, digits)
            for number, product, of_place in zip(
                stretch.places().values(), products, of_places, strict=True
            ):
                place = 1.0 - 2.0 * ((number >> shift) & 1)
                product += place @ signs.T
                of_place += place.sum(1)
            of_digits += signs.sum(1)
        n = sum(map(len, last))
        # of ±1 with fixed places c: Σ s·(c − mean c), with terms in ±|c − mean c|
        centred = products - of_places[:, :, None] * of_digits / n
        spread = np.maximum(n - of_places**2 / n, 1e-9)[:, :, None]
        score = centred**2 / spread
        i, k, j = map(int, np.unravel_index(int(np.argmax(score)), score.shape))
        effect = f"{_digit(j)} follows binary digit {k} of {names[i]}"
        p = min(1.0, 2 * score.size * math.exp(-0.5 * float(score[i, k, j])))
        yield Part(p, f"{effect}: {_share(products[i, k, j] / n, n)}")

    def _by_call(self, precision: Precision, digits: int) -> Iterator[Part]:
        """Each digit against the same place of the call before."""
        total, sums, n = np.zeros(digits), np.zeros((2, digits)), 0
        for (call, before), (following, after) in itertools.pairwise(self._heads):
            many = min(len(before), len(after))
            if following == call + 1:
                a, b = (_signs(precision.last_digits(x[:many]), digits) for x in (before, after))
                total += (a * b).sum(1)
                sums += [a.sum(1), b.sum(1)]
                n += many
        if n:
            beyond = np.abs(total / n - sums[0] * sums[1] / n**2)
            j = int(np.argmax(beyond))
            effect = f"{_digit(j)} is that of the same place of the call before"
            yield Part(
                _covariance_p(beyond, n, tries=digits), f"{effect}: {_share(total[j] / n, n)}"
            )


def _signs(last: npt.NDArray[np.uint8], digits: int) -> Array:
    """Digits as ±1, shape (digits, n); the last digit first."""
    places = np.arange(digits, dtype=np.uint8)[:, None]
    return np.where((last >> places) & 1, -1.0, 1.0)


def _covariance_p(beyond: npt.NDArray[np.float64] | float, n: Any, *, tries: int) -> float:
    """Bound for the largest of ``tries`` covariances of n pairs of ±1, less the means' product."""
    return min(1.0, 8 * tries * math.exp(-float(np.max(np.square(beyond) * n)) / 24))


def _order(
    last: list[npt.NDArray[np.uint8]], values: list[Array], claim: Claim, digits: int
) -> Iterator[Part]:
    """Each digit against each other one, signs and sizes, at other places."""
    reach = min(_LAGS, max(map(len, values)) - 1)
    series = [*range(digits), _SIGNS, _SIZES]
    pairs = [(a, b) for a in range(digits) for b in range(len(series)) if b >= a]
    left, right = (np.array(side) for side in zip(*pairs, strict=True))
    median = strip_edges(claim, 2)[0]
    lags = np.arange(-reach, reach + 1)
    totals, terms = np.zeros((len(pairs), len(lags))), np.zeros(len(lags), np.int64)
    sums, count = np.zeros(len(series)), 0
    alike: dict[int, list[Array]] = {}  # stretches, by the length that they are filled up to
    for digit, x in zip(last, values, strict=True):
        rows = np.vstack([_signs(digit, digits), np.sign(x), np.where(np.abs(x) > median, 1, -1)])
        sums, count = sums + rows.sum(1), count + len(x)
        terms += np.maximum(0, len(x) - np.abs(lags))
        alike.setdefault(1 << (len(x) - 1).bit_length(), []).append(rows)
    for length, stretches in alike.items():
        near = min(reach, length - 1)
        within = slice(reach - near, reach + near + 1)
        totals[:, within] += _correlations(stretches, length, left, right)[:, lags[within]]
    shares = totals / np.maximum(terms, 1)
    mean = sums / count
    beyond = np.abs(shares - (mean[left] * mean[right])[:, None])
    beyond[:, reach] = 0.0  # the same value: its frequency
    pair, at = np.unravel_index(int(np.argmax(beyond * beyond * terms)), beyond.shape)
    a, b, lag = left[pair], series[right[pair]], int(lags[at])
    p = _covariance_p(beyond, terms, tries=beyond.size)
    other = {_SIGNS: "the sign", _SIZES: "whether |value| is large"}.get(b, _digit(b))
    where = f"{abs(lag):,} {'after' if lag > 0 else 'before'}"
    yield Part(p, f"{_digit(a)} is {other} {where}: {_share(shares[pair, at], int(terms[at]))}")


def _correlations(stretches: list[Array], length: int, left: Places, right: Places) -> Array:
    """Σ_t a(t)·b(t + lag) of pairs of series a ≤ b of stretches (series, n ≤ length), by lag.

    Shape (pairs, 2·length); lags from the middle on are negative ones.
    """
    series = len(stretches[0])
    total = np.zeros((series, series, length + 1), np.complex128)
    for rows in stretches:
        by_frequency = scipy.fft.rfft(rows, 2 * length)
        for a in np.unique(left):
            total[a, a:] += by_frequency[a].conj() * by_frequency[a:]
    return np.asarray(scipy.fft.irfft(total[left, right], 2 * length))


def _registers(last: list[npt.NDArray[np.uint8]], digits: int) -> Iterator[Part]:
    """Held-out digits that a short linear recurrence predicts."""
    long = [x for x in last if len(x) >= _LEARNED + _PREDICTED][:_REGISTERS]
    for x in long:
        for j in range(digits):
            bits = (x[: _LEARNED + _PREDICTED] >> j & 1).astype(np.uint8)
            recurrence = shortest_recurrence(bits[:_LEARNED])
            length = recurrence.length
            if not 0 < length <= _LONGEST_REGISTER:
                continue
            held_out = recurrence.one_ahead(bits[_LEARNED - length :]) == bits[_LEARNED:]
            hits = int(np.count_nonzero(held_out))
            p = float(scipy.special.bdtrc(hits - 1, _PREDICTED, (1 + _ANY_BIAS) / 2))
            effect = (
                f"{_digit(j)} follows from the {length} before it (a shift register): {hits:,} "
            )
            yield Part(
                min(1.0, len(long) * digits * p),
                f"{effect}of {_PREDICTED:,} held-out digits predicted",
            )


def _digit(j: int) -> str:
    return "the last digit" if j == 0 else f"the digit {j + 1} from the end"


def _share(mean: float, n: int) -> str:
    agree = (1 + abs(float(mean))) / 2
    return f"in {agree:.2%} of {n:,} values" + (" (inverted)" if mean < 0 else "")
