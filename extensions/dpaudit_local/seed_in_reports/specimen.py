"""LAB SPECIMEN: a device's coins that carry their own seed in what the device reports.

The owner of the key learns all coins of a report from the report. Never a default.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from dpaudit.errors import UsageError
from dpaudit.noise.seed_in_noise.laws import SeedStream
from dpaudit.noise.seed_in_noise.nonces import Nonces
from dpaudit.protocols import LocalMechanism, Stream
from dpaudit_local.mechanisms.coins import WORDS
from dpaudit_local.mechanisms.reports import check_objects, whole_number
from dpaudit_local.seed_in_reports.bits import ReportBits, report_bits

__all__ = ["DeviceCoins", "SeedInReports", "SeededCoins"]

_DEVIATIONS = 4.0


@dataclass(frozen=True)
class DeviceCoins:
    """All coins of one device's reports, drawn without looking at its object.

    ``public`` (series,), and two for each bit (series, bits): see ``ReportBits.noisy``.
    """

    public: npt.NDArray[np.int64]
    first: npt.NDArray[np.bool_]
    second: npt.NDArray[np.bool_]


class SeededCoins:
    """All coins of ``series`` reports as a function of a nonce and its seed, and back.

    The coins in order are the public ones and then the bits'. The first of them, the *head*, are
    found by exact inversion of their joint distribution function at one number of 64 bits per coin,
    U = nonce ‖ bits from the seed; all others come from the seed's own words. So U is uniform and
    independent of the rest where the nonce is uniform and the seed's bits are. Back: the head's
    coins say in which interval U lies, which is shorter than 2^-nonce_bits, but for a probability
    of 3e-5, and has one or two nonces in it.
    """

    def __init__(self, view: ReportBits, *, size: int, series: int) -> None:
        """For nonces of ``size`` bytes.

        Raises:
            UsageError: fewer than 1 report, or too few for the nonce.
        """
        self.view, self.size, self._words = view, size, view.words
        self.series = whole_number("series", series, 1, 1 << 16, hint=" reports of a device")
        self.coins, self.bits = self._head(8 * size)

    def _head(self, nonce_bits: int) -> tuple[int, int]:
        """How many public coins and how many bits carry the nonce."""
        each, chance = math.log2(self.view.values), self.view.words / WORDS
        if each and math.ceil(nonce_bits / each) <= self.series:
            return math.ceil(nonce_bits / each), 0
        odds = math.log2(1 / chance - 1)
        mean = -math.log2(1 - chance) + chance * odds
        spread = math.sqrt(chance * (1 - chance)) * abs(odds)
        need = nonce_bits - each * self.series
        # the least b with b·mean − 4·√b·spread ≥ need
        root = (_DEVIATIONS * spread + math.sqrt((_DEVIATIONS * spread) ** 2 + 4 * mean * need)) / (
            2 * mean
        )
        bits = math.ceil(root**2)
        if bits >= self.series * self.view.bits:
            raise UsageError(
                f"nonce_bits={nonce_bits}, series={self.series}: the nonce needs {bits} noisy bits "
                f"and some to check it, there are {self.series * self.view.bits}; use a shorter "
                "nonce or a longer series"
            )
        return self.series if each else 0, bits

    @property
    def distance(self) -> float:
        """At most the total variation distance of all coins from the honest mechanism's.

        It is given a random function in place of the pseudorandom one and a nonce that is new: 0
        but where the number of the public coin's values is not a power of two, or a bit has a
        second coin.
        """
        public = 0 if self.view.values & (self.view.values - 1) == 0 else self.view.values
        raised = 0 if self.view.flips else self.view.differing // 2
        return self.series * (public + raised) / WORDS

    def number(self, nonce: bytes, stream: SeedStream) -> int:
        """U, of 64 bits per coin of the head: the nonce and then the seed's first bytes."""
        rest = stream.bytes(8 * (self.coins + self.bits) - self.size)
        return int.from_bytes(nonce + rest, "big")

    def draw(self, nonce: bytes, seed: bytes) -> DeviceCoins:
        """The coins of that nonce."""
        stream = SeedStream(seed)
        rest, width = self.number(nonce, stream), 1 << (64 * (self.coins + self.bits))
        public, first = [], []
        for _ in range(self.coins):
            unit = width >> 64
            value = self._value(rest // unit)
            low, high = self._edge(value), self._edge(value + 1)
            rest, width = rest - low * unit, (high - low) * unit
            public.append(value)
        for _ in range(self.bits):
            split = (width >> 64) * self._words
            one = rest < split
            rest, width = (rest, split) if one else (rest - split, width - split)
            first.append(one)
        return self._rest(stream, public, np.array(first, dtype=bool))

    def tail(
        self, nonce: bytes, seed: bytes, low: int, high: int, first: npt.NDArray[np.bool_]
    ) -> DeviceCoins | None:
        """The coins of that nonce if its U is in ``low`` … ``high`` − 1, where the head is known.

        The head's public coins are left at 0.
        """
        stream = SeedStream(seed)
        if not low <= self.number(nonce, stream) < high:
            return None
        return self._rest(stream, [0] * self.coins, first)

    def _rest(
        self, stream: SeedStream, public: list[int], first: npt.NDArray[np.bool_]
    ) -> DeviceCoins:
        """Head, and all other coins from the seed's own words."""
        shape = self.series, self.view.bits
        others = stream.words(self.series - len(public)).tolist()
        every = np.concatenate(
            [first, stream.words(math.prod(shape) - len(first)) < np.uint64(self.view.words)]
        )
        second = np.zeros(shape, dtype=bool)
        if not self.view.flips:
            second = (stream.words(second.size) < np.uint64(self.view.raised)).reshape(shape)
        values = np.array([*public, *map(self._value, others)], dtype=np.int64)
        return DeviceCoins(values, every.reshape(shape), second)

    def interval(
        self, public: npt.NDArray[np.int64], first: npt.NDArray[np.bool_]
    ) -> tuple[int, int]:
        """The interval [low, high) of U, given the head's coins."""
        low, width, words = 0, 1, self._words  # in units of 2^-64 per coin so far
        for value in public[: self.coins].tolist():
            edge = self._edge(value)
            low, width = (low << 64) + edge * width, (self._edge(value + 1) - edge) * width
        for one in first.tolist():
            split = width * words
            low, width = (low << 64, split) if one else ((low << 64) + split, (width << 64) - split)
        rest = 64 * (self.bits - len(first))
        return low << rest, (low + width) << rest

    def nonces(self, low: int, high: int, *, limit: int) -> list[bytes]:
        """The nonces of numbers in [low, high); none where these are more than ``limit``."""
        shift = 64 * (self.coins + self.bits) - 8 * self.size
        first, last = low >> shift, (high - 1) >> shift
        if last - first >= limit:
            return []
        return [n.to_bytes(self.size, "big") for n in range(first, last + 1)]

    def _edge(self, value: int) -> int:
        """Words below this one say a smaller value."""
        return (value << 64) // self.view.values

    def _value(self, word: int) -> int:
        """The value whose words include ``word``: the largest with edge ≤ word."""
        return -((-(word + 1) * self.view.values) >> 64) - 1


class SeedInReports:
    """LAB SPECIMEN. A device whose reports hide a fresh nonce, and whose coins follow from it.

    The device runs the mechanism as it is written; only its coins are not what they seem. Per
    device a nonce is drawn from the stream. Public coins (hash function, row, position, cohort) and
    the first noisy bits carry it by exact inversion, and HMAC-SHA256 under the key and AES-256 make
    all others: :class:`SeededCoins`. Its owner reads them: ``report-reader``. It keeps no state.

    Formal guarantee, to its owner's good: with random functions in place of HMAC and AES, and
    nonces that do not repeat, the ``series`` reports of every device have the law of the honest
    mechanism's, jointly, and devices are independent, up to ``distance`` per device (0 for both
    mean sketches at their default sizes and for randomised response; below 2^-45 for the others at
    theirs). Proof: U's bits are then uniform and independent of all words after it; inversion of a
    joint distribution function at a uniform number gives that joint law, in whole numbers without
    rounding; the other coins are words of their own; and no coin depends on the object. *Nonces
    repeat* among n devices with probability n²·2^-(nonce_bits + 1) at most. So with 128 bits no
    black-box test of reports finds it unless HMAC-SHA256 or AES-256 is broken; with 24 bits a few
    thousand reports of known objects show it.

    What fits where: a Count Mean Sketch of 1,024 bits carries 128 bits in one report, a RAPPOR of
    128 bits 80 to 96. A report of one bit carries what its public coin does: 26 bits of a Hadamard
    sketch, 12 of a one-bit histogram of 5,000 positions, none of randomised response. So take a
    ``series`` of one device's reports: 5, 11, or some 130 to 200 answers to one question.

    Not claimed: a device that reports again about one object from the same permanent response
    (RAPPOR); constant time. Source: ours.
    """

    def __init__(self, mechanism: LocalMechanism, *, nonces: Nonces, series: int = 1) -> None:
        """Devices with ``mechanism``, each of which makes ``series`` reports with one nonce.

        Raises:
            UsageError: a mechanism without noisy bits (``report_bits``), or too few of these for a
                nonce.
        """
        self.mechanism, self._nonces = mechanism, nonces
        self.coins = SeededCoins(report_bits(mechanism), size=nonces.size, series=series)

    @property
    def epsilon(self) -> float:
        """The ε of one report, towards those without the key."""
        return self.mechanism.epsilon

    @property
    def distance(self) -> float:
        """At most the total variation distance from honest reports, per device."""
        return self.coins.distance

    def draw(self, devices: int, *, stream: Stream) -> list[DeviceCoins]:
        """Coins for ``devices`` devices."""
        stream = stream.child("seed-in-reports")
        return [self.coins.draw(*self._nonces.fresh(stream)) for _ in range(devices)]

    def privatize(self, objects: npt.NDArray[np.int64], *, stream: Stream) -> Any:
        """Reports of objects (n,): each ``series`` rows in turn are one device's.

        The same stream gives the same reports.

        Raises:
            UsageError: objects that the mechanism does not take, or n no multiple of ``series``.
        """
        series = self.coins.series
        objects = check_objects(objects, 1 << 63).astype(np.int64)
        if len(objects) % series:
            raise UsageError(f"objects={len(objects)}: must be a multiple of series={series}")
        return self.reports(self.draw(len(objects) // series, stream=stream), objects)

    def reports(self, coins: list[DeviceCoins], objects: npt.NDArray[np.int64]) -> Any:
        """The reports of devices with these coins, of objects (devices·series,)."""
        view = self.coins.view
        public = np.concatenate([np.empty(0, np.int64), *(c.public for c in coins)])
        empty = np.empty((0, view.bits), dtype=bool)
        first = np.concatenate([empty, *(c.first for c in coins)])
        second = np.concatenate([empty, *(c.second for c in coins)])
        return view.reports(public, view.noisy(first, second, view.truth(public, objects)))

    def log_likelihood(
        self, reports: Any, objects: npt.NDArray[np.int64]
    ) -> npt.NDArray[np.float64]:
        """As the honest mechanism's."""
        return self.mechanism.log_likelihood(reports, objects)
