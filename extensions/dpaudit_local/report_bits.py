"""Reports of every local mechanism as one thing: a public coin, and noisy bits around an object."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from dpaudit.errors import UsageError
from dpaudit_local.coins import WORDS
from dpaudit_local.count_mean_sketch import CountMeanSketch
from dpaudit_local.hadamard_sketch import HadamardSketch
from dpaudit_local.one_bit_histogram import OneBitHistogram
from dpaudit_local.randomized_response import RandomizedResponse
from dpaudit_local.rappor import Rappor
from dpaudit_local.reports import (
    BitReports,
    BloomReports,
    CategoryReports,
    HadamardReports,
    Reports,
    SketchReports,
)

__all__ = ["ReportBits", "report_bits"]

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
    bits: int
    """Noisy bits in a report."""
    low: Fraction
    high: Fraction
    differing: int
    """In so many of the objects' own bits two objects differ at most."""
    balanced: bool
    """Whether the objects' own bits are 1 as often as 0."""
    truth: Callable[[Coins, npt.NDArray[np.int64]], Bits]
    """The own bits (n, bits) of objects (n,) under public coins (n,)."""
    reports: Callable[[Coins, Bits], Reports]
    """Reports with these coins (n,) and bits (n, bits)."""
    parts: Callable[[Any], tuple[Coins, Bits]]
    """The coins and bits of reports."""

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
        """What is reported with these coins, for objects with these own bits."""
        return (first ^ truth) | (first & second & truth)


def report_bits(mechanism: Any) -> ReportBits:
    """The parts of a mechanism's reports.

    Raises:
        UsageError: a mechanism without such parts, more than two categories, or a RAPPOR with
            p* ≥ q*, p* + q* < 1, or p* no multiple of 2^-64.
    """
    for kind, view in _VIEWS:
        if type(mechanism) is kind:
            found: ReportBits = view(mechanism)
            fine = found.low < found.high and found.low + found.high >= 1
            if not fine or (found.low * WORDS).denominator != 1:
                raise UsageError(
                    f"p*={float(found.low):g}, q*={float(found.high):g}: needs p* < q*, p* + q* of "
                    "at least 1, and p* a multiple of 2^-64; take RAPPOR's f=0.5, p=0.5, q=0.75"
                )
            return found
    raise UsageError(
        f"mechanism={type(mechanism).__name__}: one of "
        f"{', '.join(kind.__name__ for kind, _ in _VIEWS)}"
    )


def _packed(bits: Bits) -> npt.NDArray[np.uint8]:
    return np.packbits(bits, axis=1, bitorder="little")


def _unpacked(bits: npt.NDArray[np.uint8]) -> Bits:
    return np.unpackbits(bits, axis=1, bitorder="little").astype(bool)


def _sketch(law: CountMeanSketch) -> ReportBits:
    def truth(coins: Coins, objects: npt.NDArray[np.int64]) -> Bits:
        out = np.zeros((len(objects), law.m), dtype=bool)
        out[np.arange(len(objects)), law.hashes.each(objects, coins.astype(np.uint32))] = True
        return out

    flip = Fraction(law.flip_words, WORDS)
    return ReportBits(
        values=law.functions,
        bits=law.m,
        low=flip,
        high=1 - flip,
        differing=2,
        balanced=False,
        truth=truth,
        reports=lambda coins, bits: SketchReports(coins.astype(np.uint32), _packed(bits)),
        parts=lambda reports: (reports.function.astype(np.int64), _unpacked(reports.bits)),
    )


def _hadamard(law: HadamardSketch) -> ReportBits:
    def truth(coins: Coins, objects: npt.NDArray[np.int64]) -> Bits:
        places = law.hashes.each(objects, (coins // law.m).astype(np.uint32))
        odd = np.bitwise_count(places & (coins % law.m).astype(np.uint32)) & 1
        return np.asarray(odd[:, None] == 1)

    flip = Fraction(law.flip_words, WORDS)
    return ReportBits(
        values=law.functions * law.m,
        bits=1,
        low=flip,
        high=1 - flip,
        differing=1,
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
    flip = Fraction(law._lie, WORDS)
    return ReportBits(
        values=law.positions,
        bits=1,
        low=flip,
        high=1 - flip,
        differing=1,
        balanced=law.vector == "signs",
        truth=lambda coins, objects: law.signs(objects, coins.astype(np.uint32))[:, None] < 0,
        reports=lambda coins, bits: BitReports(coins.astype(np.uint32), _signs(bits)),
        parts=lambda reports: (reports.position.astype(np.int64), reports.sign[:, None] < 0),
    )


def _answer(law: RandomizedResponse) -> ReportBits:
    if law.categories != 2:
        raise UsageError(f"categories={law.categories}: only yes and no; take categories=2")
    flip = Fraction(law.words[1], WORDS)
    return ReportBits(
        values=1,
        bits=1,
        low=flip,
        high=1 - flip,
        differing=1,
        balanced=False,
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
        balanced=False,
        truth=lambda coins, objects: _unpacked(law.bloom(objects, coins.astype(np.uint32))),
        reports=lambda coins, bits: BloomReports(coins.astype(np.uint32), _packed(bits)),
        parts=lambda reports: (reports.cohort.astype(np.int64), _unpacked(reports.bits)),
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
