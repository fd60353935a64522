"""RAPPOR: a Bloom filter, blurred once for good and once more for each report; sums of its bits."""

from __future__ import annotations

import math
from dataclasses import KW_ONLY, dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from dpaudit.errors import UsageError
from dpaudit.protocols import Stream
from dpaudit.randomness import KeyedStream
from dpaudit_local.mechanisms.coins import WORDS, biased_bits
from dpaudit_local.mechanisms.hashing import HashFamily, RandomHashes
from dpaudit_local.mechanisms.reports import (
    BloomReports,
    check_objects,
    whole_number,
)

__all__ = ["Rappor", "RapporServer"]

LARGEST_UNIVERSE = 1 << 32
"""So many objects at most: what all hash families take, and what a device's memory can number."""

_BLOCK = 1 << 22  # pairs of objects compared at a time


@dataclass(eq=False, repr=False)
class Rappor:
    """Randomized Aggregatable Privacy-Preserving Ordinal Response (RAPPOR).

    Erlingsson, Pihur and Korolova 2014 (arXiv 1407.6981). A device belongs to one of ``cohorts``,
    by chance. In its cohort an object sets h = ``per_object`` bits (fewer where its hash functions
    collide) of a Bloom filter of m = ``bits``. The *permanent* response flips each bit with
    probability f/2 and is kept for the object; the *instantaneous* one reports a permanent 1 as 1
    with probability q and a permanent 0 with p. So a report's bit is 1 with probability q* = ½f(p +
    q) + (1 − f)q where the true bit is 1, and with p* = ½f(p + q) + (1 − f)p where it is 0. With
    ``p=0, q=1`` it is one-time RAPPOR: the permanent response itself.

    Formal guarantee: given the object and the cohort, bits are independent, so the likelihood ratio
    of two objects is a product over the bits in which their filters differ, at most h that only the
    first has and h that only the second has. One report of a device: ``epsilon`` = h·|ln(q*(1 − p*)
    / (p*(1 − q*)))| (the paper's Theorem 2, its ε₁). All reports about one object ever, and the
    permanent response itself: ``permanent_epsilon`` = 2h·ln((1 − f/2)/(f/2)) (Theorem 1, ε∞). Each
    is exact, that is attained, if and only if in some cohort two objects have h bits each and none
    in common; a large universe soon has such a pair. Where bits coincide in all cohorts the
    exact numbers are smaller. A cohort is drawn without looking at objects,
    and public.

    Coins: f/2, p and q are rounded to multiples of 2^-64 (any double from 2^-11 up is one), the
    coins have exactly these probabilities given ideal random words, and every formula here uses
    them. The words are statistical (SFC64), fit for experiments.
    Not claimed: secrecy of a real client's coins; a bound for different objects of one device
    (their ε∞ add up); that a device cannot be linked by its permanent bits or its cohort.

    Raises:
        UsageError: f outside [0, 1); p or q outside [0, 1], or equal; reports without any privacy
            (as f = 0 with q = 1); ``bits`` no multiple of 8 or below 2h; another size out of
            range; ``hashes`` of another shape.
    """

    f: float = 0.5
    _: KW_ONLY
    p: float = 0.5
    q: float = 0.75
    bits: int = 128
    per_object: int = 2
    cohorts: int = 64
    universe: int = LARGEST_UNIVERSE
    """Objects are 0 … ``universe`` − 1."""
    hashes: HashFamily | None = None
    """Cohort c has the functions c·h … c·h + h − 1 of it; None: of a random family."""
    seed: int = 0
    """Makes the random family."""

    def __post_init__(self) -> None:
        f, p, q = self.f, self.p, self.q
        if _words("f", f) == WORDS:
            raise UsageError(f"f={f}: must lie in [0, 1); at 1 reports carry no information")
        self._flip, self._low, self._high = _words("f/2", f / 2), _words("p", p), _words("q", q)
        self.f, self.p, self.q = 2 * self._flip / WORDS, self._low / WORDS, self._high / WORDS
        if self._low == self._high:
            raise UsageError(
                f"p={p}, q={q}: must differ; equal ones do not depend on the permanent response"
            )
        low, high = self._stars()
        if not (0 < low < 1 and 0 < high < 1):
            raise UsageError(
                f"f={f}, p={p}, q={q}: a report would prove an object; "
                "raise f, or keep p and q off 0 and 1"
            )
        self.per_object = whole_number("per_object", self.per_object, 1, 64)
        self.cohorts = whole_number("cohorts", self.cohorts, 1, 1 << 20)
        self.universe = whole_number("universe", self.universe, 2, LARGEST_UNIVERSE)
        self.bits = whole_number("bits", self.bits, 2 * self.per_object, 1 << 20)
        if self.bits % 8:
            raise UsageError(f"bits={self.bits}: must be a multiple of 8; reports are whole bytes")
        count = self.cohorts * self.per_object
        stream = KeyedStream.from_seed(self.seed).child("rappor's hash functions")
        self._hashes = self.hashes or RandomHashes(count, self.bits, stream=stream)
        if self._hashes.size != self.bits or self._hashes.count < count:
            raise UsageError(
                f"hashes={self._hashes.count} functions to {self._hashes.size} positions: "
                f"at least {self.cohorts}·{self.per_object} to {self.bits}"
            )

    def _stars(self) -> tuple[Fraction, Fraction]:
        """p* and q*, exactly."""
        flip, low, high = (Fraction(x, WORDS) for x in (self._flip, self._low, self._high))
        return low + flip * (high - low), high - flip * (high - low)

    @property
    def p_star(self) -> float:
        """P(reported bit is 1 | true bit is 0)."""
        return float(self._stars()[0])

    @property
    def q_star(self) -> float:
        """P(reported bit is 1 | true bit is 1)."""
        return float(self._stars()[1])

    @property
    def _losses(self) -> tuple[float, float]:
        """The most a report's bit can say for an object that has it, and for one that lacks it."""
        low, high = self._stars()
        one, zero = math.log(high / low), math.log((1 - low) / (1 - high))
        return (one, zero) if one > 0 else (-zero, -one)

    @property
    def _permanent_loss(self) -> float:
        """The most one bit of a permanent response can say."""
        return math.log((WORDS - self._flip) / self._flip) if self._flip else math.inf

    @property
    def epsilon(self) -> float:
        """ε₁ of one report of a device, h·|ln(q*(1 − p*) / (p*(1 − q*)))|, for any two objects."""
        return self.per_object * sum(self._losses)

    @property
    def permanent_epsilon(self) -> float:
        """ε∞ of a permanent response and all its reports, 2h·ln((1 − f/2)/(f/2)); inf at f = 0."""
        return 2 * self.per_object * self._permanent_loss

    def _objects(self, objects: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        return np.ascontiguousarray(check_objects(objects, self.universe), dtype=np.int64)

    def positions(self, objects: npt.NDArray[np.int64], cohort: int) -> npt.NDArray[np.uint32]:
        """The bits that objects (n,) set in one cohort, shape (n, h).

        Colliding hash functions repeat a position.

        Raises:
            UsageError: objects of another shape or type, or out of range; a cohort out of range.
        """
        objects = self._objects(objects)
        if not 0 <= cohort < self.cohorts:
            raise UsageError(f"cohort={cohort}: must lie in 0 … {self.cohorts - 1}")
        h = self.per_object
        return np.stack([self._hashes.positions(objects, cohort * h + i) for i in range(h)], axis=1)

    def filters(self, objects: npt.NDArray[np.int64], cohort: int) -> npt.NDArray[np.uint8]:
        """The Bloom filters of objects (n,) in one cohort, 0 or 1, shape (n, m).

        Raises:
            UsageError: as in :meth:`positions`.
        """
        out = np.zeros((len(objects), self.bits), dtype=np.uint8)
        np.put_along_axis(out, self.positions(objects, cohort).astype(np.int64), 1, axis=1)
        return out

    def bloom(
        self, objects: npt.NDArray[np.int64], cohorts: npt.NDArray[np.uint32]
    ) -> npt.NDArray[np.uint8]:
        """The packed Bloom filters of objects (n,), each in its own cohort (n,), shape (n, m / 8).

        Raises:
            UsageError: objects or cohorts of another shape or type, or out of range.
        """
        objects, cohorts = self._objects(objects), self.check_cohorts(cohorts, len(objects))
        out = np.zeros((len(objects), self.bits // 8), dtype=np.uint8)
        row = np.arange(len(objects))
        for i in range(self.per_object):
            position = self._hashes.each(
                objects, cohorts * np.uint32(self.per_object) + np.uint32(i)
            )
            out[row, position >> 3] |= np.uint8(1) << (position & 7).astype(np.uint8)
        return out

    def check_cohorts(self, cohorts: Any, n: int) -> npt.NDArray[np.uint32]:
        """Cohorts (n,) as uint32.

        Raises:
            UsageError: another shape or type, or a cohort out of range.
        """
        checked = check_objects(cohorts, self.cohorts, name="cohorts")
        if len(checked) != n:
            raise UsageError(f"cohorts={len(checked)}: one for each of {n}")
        return np.ascontiguousarray(checked, dtype=np.uint32)

    def check_reports(
        self, reports: BloomReports
    ) -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.uint8]]:
        """Cohorts (n,) and packed bits (n, m / 8) of reports.

        Raises:
            UsageError: another shape or type, or a cohort out of range.
        """
        bits = np.asarray(reports.bits)
        if bits.dtype != np.uint8 or bits.ndim != 2 or bits.shape[1] != self.bits // 8:
            raise UsageError(
                f"reports.bits of shape {bits.shape} and type {bits.dtype}: "
                f"(n, {self.bits // 8}), uint8"
            )
        return self.check_cohorts(reports.cohort, len(bits)), bits

    def draw_cohorts(self, n: int, *, stream: Stream) -> npt.NDArray[np.uint32]:
        """Cohorts for ``n`` devices, uniform."""
        return stream.child("cohorts").numpy().integers(self.cohorts, size=n, dtype=np.uint32)

    def permanent(
        self, objects: npt.NDArray[np.int64], cohorts: npt.NDArray[np.uint32], *, stream: Stream
    ) -> npt.NDArray[np.uint8]:
        """Fresh permanent responses of objects (n,) in cohorts (n,), packed, shape (n, m / 8).

        Each bit is flipped with probability f/2.

        Raises:
            UsageError: objects or cohorts of another shape or type, or out of range.
        """
        true = self.bloom(objects, cohorts)
        return true ^ self._coins(len(true), self._flip, stream=stream.child("permanent"))

    def _coins(self, n: int, words: int, *, stream: Stream) -> npt.NDArray[np.uint8]:
        if words == WORDS:
            return np.full((n, self.bits // 8), 255, dtype=np.uint8)
        return biased_bits(n, self.bits, words=words, stream=stream)

    def instantaneous(
        self, permanent: npt.NDArray[np.uint8], *, stream: Stream
    ) -> npt.NDArray[np.uint8]:
        """One report of each permanent response (n, m / 8), packed: q for a 1, p for a 0."""
        ones = self._coins(len(permanent), self._high, stream=stream.child("ones"))
        zeros = self._coins(len(permanent), self._low, stream=stream.child("zeros"))
        return (permanent & ones) | (~permanent & zeros)

    def privatize(self, objects: npt.NDArray[np.int64], *, stream: Stream) -> BloomReports:
        """A report of each object (n,), each from a fresh device.

        A device has a cohort, a permanent response and an instantaneous one. The same stream gives
        the same reports.

        Raises:
            UsageError: objects of another shape or type, or outside 0 … ``universe`` − 1.
        """
        stream = stream.child("rappor")
        objects = self._objects(objects)
        cohorts = self.draw_cohorts(len(objects), stream=stream)
        permanent = self.permanent(objects, cohorts, stream=stream)
        return BloomReports(cohorts, self.instantaneous(permanent, stream=stream))

    def log_likelihood(
        self, reports: BloomReports, objects: npt.NDArray[np.int64]
    ) -> npt.NDArray[np.float64]:
        """The logarithm of P(report | object), shape (n, u), less that for an empty filter.

        It is for a device's first or only report.

        Raises:
            UsageError: reports or objects of another shape or type, or out of range.
        """
        cohorts, bits = self.check_reports(reports)
        objects = self._objects(objects)
        low, high = self.p_star, self.q_star
        if_one, if_zero = math.log(high / low), math.log((1 - high) / (1 - low))
        out = np.empty((len(bits), len(objects)))
        for cohort in np.unique(cohorts).tolist():
            rows = np.flatnonzero(cohorts == cohort)
            reported = np.unpackbits(bits[rows], axis=1, bitorder="little")
            has = self.filters(objects, cohort)
            ones = (reported.astype(np.float32) @ has.T.astype(np.float32)).astype(np.float64)
            out[rows] = ones * (if_one - if_zero) + has.sum(axis=1, dtype=np.int64) * if_zero
        return out


def _words(name: str, probability: float) -> int:
    """How many of 2^64 words make an event of this probability, rounded."""
    if (
        isinstance(probability, bool)
        or not isinstance(probability, (int, float))
        or not 0 <= probability <= 1
    ):
        raise UsageError(f"{name}={probability}: must be a probability in [0, 1]")
    words = round(Fraction(probability) * WORDS)
    if (words == 0) != (probability == 0):
        raise UsageError(f"{name}={probability}: must be 0 or at least 2^-64")
    return words


_UNPACKED = 1 << 23  # bits that are unpacked at a time, a byte each


class RapporServer:
    """Adds reported bits up by cohort; memory cohorts · m, however many reports."""

    def __init__(self, mechanism: Rappor) -> None:
        """A server with no reports yet, for devices with this ``mechanism``."""
        self.mechanism = mechanism
        self.counts = np.zeros((mechanism.cohorts, mechanism.bits), dtype=np.int64)
        """How many reports of a cohort set a bit, (cohorts, bits)."""
        self.sizes = np.zeros(mechanism.cohorts, dtype=np.int64)
        """How many reports each cohort made, (cohorts,)."""

    @property
    def reports(self) -> int:
        """How many reports were added."""
        return int(self.sizes.sum())

    def add(self, reports: BloomReports) -> None:
        """Take in reports.

        Raises:
            UsageError: cohorts or bits of another shape or type, or out of range; nothing is added
                then.
        """
        cohort, bits = self.mechanism.check_reports(reports)
        order = np.argsort(cohort, kind="stable")
        step = max(1, _UNPACKED // self.mechanism.bits)
        for start in range(0, len(order), step):
            rows = order[start : start + step]
            here, first = np.unique(cohort[rows], return_index=True)
            spread = np.unpackbits(bits[rows], axis=1, bitorder="little", count=self.mechanism.bits)
            self.counts[here] += np.add.reduceat(spread, first, axis=0, dtype=np.int64)
        self.sizes += np.bincount(cohort, minlength=self.mechanism.cohorts)

    def shares(self) -> npt.NDArray[np.float64]:
        """The share of each cohort's people whose Bloom filter has a bit set, (cohorts, bits).

        Unbiased, so not clipped. (c/N − p*) / (q* − p*): Erlingsson et al. 2014, section 4, where
        p* + (q* − p*)·t is the chance of a reported bit whose true one is 1 in a share t of the
        people. NaN for a cohort without reports.
        """
        law = self.mechanism
        with np.errstate(invalid="ignore"):
            reported = self.counts / self.sizes[:, None]
        return np.asarray((reported - law.p_star) / (law.q_star - law.p_star))
