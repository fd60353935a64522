"""Reports of every local mechanism as one thing: a public coin, and noisy bits around an object.

``SecondCoins`` randomises them once more, with coins of the device's owner.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from dpaudit.errors import UsageError
from dpaudit.protocols import LocalMechanism, Stream
from dpaudit_local.mechanisms.coins import WORDS, biased_bits, lying_words
from dpaudit_local.mechanisms.count_mean_sketch import CountMeanSketch
from dpaudit_local.mechanisms.hadamard_sketch import HadamardSketch
from dpaudit_local.mechanisms.one_bit_histogram import OneBitHistogram
from dpaudit_local.mechanisms.randomized_response import RandomizedResponse
from dpaudit_local.mechanisms.rappor import Rappor
from dpaudit_local.mechanisms.reports import (
    BitReports,
    BloomReports,
    CategoryReports,
    HadamardReports,
    Reports,
    SketchReports,
)

__all__ = ["ReportBits", "SecondCoins", "report_bits"]

Bits = npt.NDArray[np.bool_]
Coins = npt.NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class ReportBits:
    """A mechanism whose report is a public coin, uniform, and independent noisy bits.

    A bit is 1 with probability ``low`` where the object's own bit is 0, and ``high`` where it is 1.
    Coins decide each of them without looking at the object. The first is "flip it", with
    probability ``low``. Where ``low + high`` is above 1 (RAPPOR), a second one, ``raised`` of 2^64
    words, makes it 1 where the first would flip a 1, so that a 1 stays one with probability
    ``high``, to within 2^-65.
    """

    values: int
    """Values of the public coin."""
    bits: int = 1
    """Noisy bits in a report."""
    low: Fraction
    high: Fraction
    differing: int = 1
    """The largest number of own bits in which two objects differ."""
    balanced: bool = False
    """Whether the objects' own bits are 1 as often as 0."""
    truth: Callable[[Coins, npt.NDArray[np.int64]], Bits]
    """The own bits (n, bits) of objects (n,) under public coins (n,)."""
    reports: Callable[[Coins, Bits], Reports]
    """Reports with these coins (n,) and bits (n, bits)."""
    parts: Callable[[Any], tuple[Coins, Bits]]
    """The coins and bits of reports."""

    @classmethod
    def flipping(cls, words: int, **parts: Any) -> ReportBits:
        """A mechanism that flips each bit with probability ``words`` / 2^64."""
        flip = Fraction(words, WORDS)
        return cls(low=flip, high=1 - flip, **parts)

    @property
    def flips(self) -> bool:
        """Whether the first coin is all there is."""
        return self.low + self.high == 1

    @property
    def words(self) -> int:
        """Of 2^64 words, how many make the first coin 1: exactly ``low``."""
        return int(self.low * WORDS)

    @property
    def raised(self) -> int:
        """Of 2^64 words, how many make the second coin 1."""
        return round((self.low + self.high - 1) / self.low * WORDS)

    def epsilon(self, low: Fraction, high: Fraction) -> float:
        """ε of a report if its bits had these probabilities."""
        apart = math.log(high / low) + math.log((1 - low) / (1 - high))
        return self.differing / 2 * abs(apart)

    def error(self, low: Fraction, high: Fraction) -> float:
        """A rare object's standard error of a count, per √report and up to a constant."""
        mean = (low + high) / 2 if self.balanced else low
        return math.sqrt(mean * (1 - mean)) / float(abs(high - low))

    def log_odds(
        self, bits: Bits, truth: Bits, low: Fraction, high: Fraction
    ) -> npt.NDArray[np.float64]:
        """The logarithm of P(bits | truth), up to a constant: ``bits`` (b,) and ``truth`` (u, b)
        give (u,).
        """
        one, zero = math.log(high / low), math.log((1 - high) / (1 - low))
        return np.asarray(truth @ np.where(bits, one, zero))

    def noisy(self, first: Bits, second: Bits, truth: Bits) -> Bits:
        """The reported bits for these coins and objects with these own bits."""
        return (first ^ truth) | (first & second & truth)


def report_bits(mechanism: Any) -> ReportBits:
    """The parts of a mechanism's reports.

    Raises:
        UsageError: a mechanism without such parts, more than two categories, or a RAPPOR with
            p* ≥ q*, p* + q* < 1, or p* no multiple of 2^-64.
    """
    for kind, view in _VIEWS:
        if type(mechanism) is kind:
            parts: ReportBits = view(mechanism)
            fine = parts.low < parts.high and parts.low + parts.high >= 1
            if not fine or (parts.low * WORDS).denominator != 1:
                raise UsageError(
                    f"p*={float(parts.low):g}, q*={float(parts.high):g}: needs p* < q*, p* + q* of "
                    "at least 1, and p* a multiple of 2^-64; e.g. RAPPOR's f=0.5, p=0.5, q=0.75"
                )
            return parts
    raise UsageError(
        f"mechanism={type(mechanism).__name__}: one of "
        f"{', '.join(kind.__name__ for kind, _ in _VIEWS)}"
    )


def _pack(bits: Bits) -> npt.NDArray[np.uint8]:
    return np.packbits(bits, axis=1, bitorder="little")


def _unpack(bits: npt.NDArray[np.uint8]) -> Bits:
    return np.unpackbits(bits, axis=1, bitorder="little").astype(bool)


def _sketch(law: CountMeanSketch) -> ReportBits:
    def truth(coins: Coins, objects: npt.NDArray[np.int64]) -> Bits:
        out = np.zeros((len(objects), law.m), dtype=bool)
        out[np.arange(len(objects)), law.hashes.each(objects, coins.astype(np.uint32))] = True
        return out

    return ReportBits.flipping(
        law.flip_words,
        values=law.functions,
        bits=law.m,
        differing=2,
        truth=truth,
        reports=lambda coins, bits: SketchReports(coins.astype(np.uint32), _pack(bits)),
        parts=lambda reports: (reports.function.astype(np.int64), _unpack(reports.bits)),
    )


def _hadamard(law: HadamardSketch) -> ReportBits:
    def truth(coins: Coins, objects: npt.NDArray[np.int64]) -> Bits:
        places = law.hashes.each(objects, (coins // law.m).astype(np.uint32))
        odd = np.bitwise_count(places & (coins % law.m).astype(np.uint32)) & 1
        return np.asarray(odd[:, None] == 1)

    return ReportBits.flipping(
        law.flip_words,
        values=law.functions * law.m,
        balanced=True,
        truth=truth,
        reports=lambda coins, bits: HadamardReports(
            (coins // law.m).astype(np.uint32), (coins % law.m).astype(np.uint32), _signs(bits)
        ),
        parts=lambda reports: (
            reports.function.astype(np.int64) * law.m + reports.coordinate,
            reports.sign[:, None] < 0,
        ),
    )


def _one_bit(law: OneBitHistogram) -> ReportBits:
    return ReportBits.flipping(
        law.flip_words,
        values=law.positions,
        balanced=law.vector == "signs",
        truth=lambda coins, objects: law.signs(objects, coins.astype(np.uint32))[:, None] < 0,
        reports=lambda coins, bits: BitReports(coins.astype(np.uint32), _signs(bits)),
        parts=lambda reports: (reports.position.astype(np.int64), reports.sign[:, None] < 0),
    )


def _answer(law: RandomizedResponse) -> ReportBits:
    if law.categories != 2:
        raise UsageError(f"categories={law.categories}: must be 2, yes and no")
    return ReportBits.flipping(
        law.words[1],
        values=1,
        truth=lambda _, objects: objects[:, None] == 1,
        reports=lambda _, bits: CategoryReports(bits[:, 0].astype(np.int64)),
        parts=lambda reports: (
            np.zeros(len(reports), dtype=np.int64),
            reports.category[:, None] == 1,
        ),
    )


def _rappor(law: Rappor) -> ReportBits:
    low, high = law._stars()
    return ReportBits(
        values=law.cohorts,
        bits=law.bits,
        low=low,
        high=high,
        differing=2 * law.per_object,
        truth=lambda coins, objects: _unpack(law.bloom(objects, coins.astype(np.uint32))),
        reports=lambda coins, bits: BloomReports(coins.astype(np.uint32), _pack(bits)),
        parts=lambda reports: (reports.cohort.astype(np.int64), _unpack(reports.bits)),
    )


def _signs(bits: Bits) -> npt.NDArray[np.int8]:
    return (1 - 2 * bits[:, 0].astype(np.int8)).astype(np.int8)


_VIEWS: tuple[tuple[type, Callable[[Any], ReportBits]], ...] = (
    (CountMeanSketch, _sketch),
    (HadamardSketch, _hadamard),
    (OneBitHistogram, _one_bit),
    (RandomizedResponse, _answer),
    (Rappor, _rappor),
)


class SecondCoins:
    """Flips each noisy bit of a report once more, with probability r and coins of its own.

    For a device whose vendor's coins are not trusted. The owner's coins must come from another
    source. Public coins pass as they are.

    Formal guarantee. *Towards those without the vendor's key*: a bit that the mechanism made 1 with
    probability x is 1 with probability x(1 − r) + (1 − x)r, independently of all others, so the law
    of a report is known exactly, and its ε is :attr:`epsilon`: less than either stage's. *Towards
    the vendor*, who may know every coin of the first stage: ``second_epsilon`` = d·ln((1 − r)/r),
    if the first stage's coins do not look at the object; d is the number of own bits in which two
    objects differ (2 for a sketch, 2h for RAPPOR, 1 for a sign). Proof: fix these coins; the
    reports of two objects then differ in at most d bits before the second stage, each of which
    changes the likelihood by a factor of at most (1 − r)/r; this holds for all values of the coins,
    and so on average over any law of them that does not depend on the object. Not claimed: that
    for a first stage that looks: it may write the object into all m bits, for m·ln((1 − r)/r).
    """

    def __init__(self, mechanism: LocalMechanism, *, epsilon: float) -> None:
        """Reports of ``mechanism`` with a second stage of ``epsilon``.

        Raises:
            UsageError: a mechanism without noisy bits, or ε not above 0 or too large.
        """
        self._view = report_bits(mechanism)
        self.mechanism = mechanism
        self._words = lying_words(epsilon / self._view.differing, 2)
        r = Fraction(self._words, WORDS)
        self.low, self.high = (x * (1 - r) + (1 - x) * r for x in (self._view.low, self._view.high))
        """Probability of a 1 where the object's own bit is 0, and where it is 1."""
        self.second_epsilon = self._view.epsilon(r, 1 - r)
        """ε towards a party that knows the first stage's coins."""

    @property
    def epsilon(self) -> float:
        """ε of both stages towards all others."""
        return self._view.epsilon(self.low, self.high)

    @property
    def error(self) -> float:
        """A rare object's standard error of a count, relative to that of the first stage alone."""
        view = self._view
        return view.error(self.low, self.high) / view.error(view.low, view.high)

    def again(self, reports: Any, *, stream: Stream) -> Any:
        """Reports after the second stage.

        Raises:
            UsageError: no reports of the mechanism.
        """
        public, bits = self._view.parts(reports)
        wide = -(-bits.shape[1] // 8) * 8
        flips = biased_bits(len(bits), wide, words=self._words, stream=stream.child("second coins"))
        flipped = np.unpackbits(flips, axis=1, bitorder="little")[:, : bits.shape[1]] == 1
        return self._view.reports(public, bits ^ flipped)

    def privatize(self, objects: npt.NDArray[np.int64], *, stream: Stream) -> Any:
        """Reports of objects (n,) after both stages."""
        first = self.mechanism.privatize(objects, stream=stream.child("first coins"))
        return self.again(first, stream=stream)

    def log_likelihood(
        self, reports: Any, objects: npt.NDArray[np.int64]
    ) -> npt.NDArray[np.float64]:
        """The logarithm of P(report | object), (n, u), up to a constant of each report."""
        public, bits = self._view.parts(reports)
        out = np.empty((len(public), len(objects)))
        for row, coin, own in zip(out, public, bits, strict=True):
            truth = self._view.truth(np.full(len(objects), coin), np.asarray(objects))
            row[:] = self._view.log_odds(own, truth, self.low, self.high)
        return out
