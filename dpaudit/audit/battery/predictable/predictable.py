"""Noise that follows from a common generator and a common seed.

Common seeds are small numbers, the time, and numbers made of the noise itself.
"""

from __future__ import annotations

import hashlib
import math
import struct
import time
import zlib
from collections.abc import Iterable
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from dpaudit.audit.battery.parts import DISCRETE, no_evidence
from dpaudit.audit.battery.predictable.catalogue import PREFIX, Seeding, seedings
from dpaudit.audit.battery.predictable.windows import TOLERANCE, Index, Place, Windows
from dpaudit.claims import Claim
from dpaudit.protocols import Block, Stream
from dpaudit.types import BlindSpot, Evidence

__all__ = ["WELL_KNOWN", "Predictable", "dates", "near", "seeds_from", "small"]

Seeds = npt.NDArray[np.uint64]

WELL_KNOWN = (
    *(10**k for k in range(4, 19)),
    *(int("123456789"[:k]) for k in range(4, 10)),
    *range(1970, 2036),  # years
    *(1111, 1337, 1729, 2222, 2718, 3141, 3333, 4096, 4242, 4321, 5489, 5555, 6666, 7777, 8888),
    *(9999, 31337, 31415, 42424, 54321, 65535),
    *range(19_700_101, 19_700_132),
    987_654_321,
    1_234_567_890,
    31_415_926,
    314_159_265,
    3_141_592_653,
    27_182_818,
    271_828_182,
    16_180_339,
    161_803_398,
    19_650_218,
    67_280_421_310_721,
    0xDEADBEEF,
    0xCAFEBABE,
    0xBADC0FFEE,
    0xC0FFEE,
    0x12345678,
    0x9E3779B9,
    0x9E3779B97F4A7C15,
    0x0123456789ABCDEF,
    (1 << 31) - 1,
    (1 << 32) - 1,
    (1 << 63) - 1,
    (1 << 64) - 1,
)
"""Numbers above 1,023 that many programs use as seeds."""
_LATER = 16
_ALL = (1 << 64) - 1


def small(count: int) -> Seeds:
    """0 … count − 1, and the well-known ones."""
    return np.concatenate([np.arange(count, dtype=np.uint64), np.array(WELL_KNOWN, np.uint64)])


def near(now: float, count: int) -> Seeds:
    """The last ``count`` whole seconds before ``now`` and the next 16, and ``count`` milliseconds.

    Half of the latter are after ``now``.
    """
    second, millisecond = int(now), int(now * 1000)
    return np.concatenate(
        [
            np.arange(second - count, second + _LATER, dtype=np.uint64),
            np.arange(millisecond - count // 2, millisecond + count // 2, dtype=np.uint64),
        ]
    )


def dates(now: float) -> Seeds:
    """Days of the nine years before this one, of it and of the next, as 20261123."""
    year = time.gmtime(now).tm_year
    leap = np.arange("2000-01-01", "2001-01-01", dtype="datetime64[D]").astype(str)
    days = [int(day[5:7] + day[8:]) for day in leap]
    return np.array([y * 10_000 + d for y in range(year - 9, year + 2) for d in days], np.uint64)


def seeds_from(numbers: Iterable[float]) -> Seeds:
    """What is commonly made of each number: its bits, its whole part, digits, or a hash."""
    seeds = [seed & _ALL for number in numbers if math.isfinite(number) for seed in _of(number)]
    return np.array(seeds, np.uint64)


def _of(number: float) -> list[int]:
    double = struct.pack("<d", number)
    single = struct.pack("<f", max(-3e38, min(3e38, number)))
    bits = int.from_bytes(double, "little")
    digests = [hashlib.new(kind, double).digest() for kind in ("md5", "sha1", "sha256")]
    digests.append(hashlib.sha256(repr(number).encode()).digest())
    return [
        bits,
        bits & 0xFFFFFFFF,
        bits >> 32,
        int.from_bytes(single, "little"),
        hash(number),  # what random.seed(float) takes
        *(round(abs(number) * 10**k) for k in (0, 3, 6, 9)),
        *(int(abs(number) * 10**k) for k in (0, 3, 6, 9)),
        int((abs(number) % 1) * 2**32),
        zlib.crc32(double),
        *(int.from_bytes(d[:size], "little") for d in digests for size in (4, 8)),
        *(int.from_bytes(d[:size], "big") for d in digests for size in (4, 8)),
    ]


_ALIKE = 2.0**-16  # an honest magnitude lies within the tolerance of a number at most so often
_FEW = 1 << 10  # small seeds that are always tried, and kept
_MOST = 1 << 16
_DATES_TOO = 1 << 14
_VALUES_PER_SEED = 150  # so that the search takes a fraction of the audit's time
_CHUNK = 1 << 14
_COMPARED = 1 << 10  # values of a fitting seeding
_FITS = 256  # windows that are compared in full

Floats = npt.NDArray[np.float64]
Places = npt.NDArray[np.intp]

_FIRST = small(_FEW)


class Predictable:
    """Looks for a common generator under a common seed at the beginnings of processes and calls.

    For continuous claims only. Each *seeding* is a generator (MT19937 seeded as numpy, Python, R,
    torch or C++ do it; numpy's PCG64, PCG64DXSM, Philox and SFC64; minstd, drand48,
    ``java.util.Random``, glibc's and ANSI C's ``rand``; xorshift, xoshiro, splitmix, pcg32) and a
    transform of its uniforms. Seeds are small numbers (up to 65,536, in proportion to the number of
    values), some well-known ones, dates, the time in seconds and milliseconds, and what is commonly
    made of the values that the sampler received or of its own first ones: their bits, their
    digits, ``hash`` and cryptographic hashes. The first three magnitudes of each are looked up
    among all windows at once; where they fit, the rest of the window is computed and compared.

    Null: W windows, C tries with seeds that do not come from the values and D with seeds that do.
    An honest magnitude lies within 2^-19 (times the number, above 1) of any fixed number with
    probability at most 2^-16: with 2^-18 for the exact laws, and whatever is no coarser than
    ``granularity`` allows. So some window agrees with some try in its first L values with
    probability at most W·(C·2^-16L + D·2^-16(L − 1)), the latter because one value of the window
    may be what its seed was made from. That bound at the longest L found is the p-value: valid at
    any sample size.

    Not claimed: any other generator, transform or seed; generators that begin elsewhere; a nonce of
    128 bits in the noise, which no black-box test finds.
    """

    looks_at = "noise that follows from a common generator and seed"
    harm = "predictable"
    causal_order = 1
    costly = True
    loops = "dpaudit.audit.battery.predictable.loops"
    predictability = True
    compares_processes = True

    def __init__(self, claim: Claim, stream: Stream) -> None:
        del stream
        self._claim = claim
        self._windows = Windows(claim.scale)
        self._started = time.time()
        self._count = 0

    def update(self, block: Block) -> None:
        if not self._claim.discrete and block.process >= 0:
            self._count += block.values.size
            self._windows.add(block)

    def evidence(self, *, alpha: float) -> Evidence:
        del alpha
        if self._claim.discrete:
            return no_evidence(DISCRETE)
        family = self._claim.family
        most = min(_MOST, max(_FEW, self._count // _VALUES_PER_SEED))
        search = _Search(self._windows.index())
        for seeding, places, values in _small_seedings(family):
            search.look_up(seeding, _FIRST, places, values)
        fixed = [np.arange(_FEW, most, dtype=np.uint64), near(self._started, most // 16)]
        if most >= _DATES_TOO:
            fixed.append(dates(self._started))
        seeds = np.concatenate([*fixed, seeds_from(self._windows.numbers())])
        own = len(seeds) - sum(map(len, fixed))
        for start in range(0, len(seeds), _CHUNK):
            part = seeds[start : start + _CHUNK]
            own_in_part = max(0, min(len(part), start + len(part) - len(seeds) + own))
            likely = search.index.likely
            for seeding, places, values in seedings(family, part, common=True, likely=likely):
                search.look_up(seeding, part, places, values, own=own_in_part)
        return self._evidence(search, most)

    def _evidence(self, search: _Search, most: int) -> Evidence:
        tries = search.tries
        effect = f"no seeding fits: {tries:,} at {len(search.index):,} places"
        details: dict[str, Any] = {"tries": tries, "places": len(search.index)}
        best, cause = search.best, ""
        if best is not None and best.agreeing > PREFIX:
            cause = f"{best.seeding.name}, seeded with {best.seed}"
            effect = (
                f"{best.seeding.name} with seed {best.seed} gives the noise: "
                f"{best.predicted:,} of {best.compared:,} held-out values predicted"
            )
            details |= {
                "generator": best.seeding.name,
                "seed": str(best.seed),
                "at": dict(best.place.where),
                "predicted": f"{best.predicted} of {best.compared}",
                "values in a row": best.agreeing,
            }
        blind = BlindSpot(
            test="predictable",
            flaw="a common generator under a guessable seed",
            size=float(most),
            unit="small seeds per generator",
            says="seeds other than the numbers below this, well-known ones, the time, and what is "
            "commonly made of a sampler's first values; generators, transforms and places other "
            "than dpaudit explain predictable lists; a secret nonce of 128 bits, at any size",
        )
        return Evidence(
            p=search.p(),
            statistic=float(search.longest),
            effect=effect,
            cause=cause,
            cause_rank=2,
            blind_spots=(blind,),
            details=details,
        )


class _Fit:
    """A window that begins with the values of a seeding."""

    def __init__(self, seeding: Seeding, seed: int, place: Place) -> None:
        self.seeding, self.seed, self.place = seeding, seed, place
        magnitudes = place.values[:_COMPARED]
        computed = seeding.values(seed, len(magnitudes))
        alike = np.abs(computed - magnitudes) <= TOLERANCE * np.maximum(magnitudes, 1.0)
        self.agreeing = len(alike) if alike.all() else int(np.argmin(alike))
        self.predicted = int(alike[PREFIX:].sum())
        self.compared = len(alike) - PREFIX


class _Search:
    """Looks seedings up in an index, and keeps the best fit."""

    def __init__(self, index: Index) -> None:
        self.index = index
        self.tries = 0
        self.best: _Fit | None = None
        self._fits = 0
        self.longest = 0

    def look_up(
        self, seeding: Seeding, seeds: Seeds, places: Places, values: Floats, *, own: int = 0
    ) -> None:
        """Compare a seeding's first ``values`` (3, m), and the rest where they fit.

        They are those of the seeds at ``places``; no other seed fits. The last ``own`` seeds come
        from the noise.
        """
        self.tries += len(seeds)
        for column, place in self.index.find(values):
            if self._fits == _FITS:
                return
            which = int(places[column])
            fit = _Fit(seeding, int(seeds[which]), place)
            if fit.agreeing < PREFIX:
                continue
            self._fits += 1
            counted = fit.agreeing - (which >= len(seeds) - own)
            self.longest = max(self.longest, counted)
            if self.best is None or fit.predicted > self.best.predicted:
                self.best = fit

    def p(self) -> float:
        """The bound for the longest run of agreeing values."""
        if self.best is None:
            return 1.0
        return min(1.0, len(self.index) * self.tries * _ALIKE**self.longest)


@cache
def _small_seedings(family: str) -> tuple[tuple[Seeding, Places, Floats], ...]:
    """What every audit tries: 3 MB of values."""
    return tuple(seedings(family, _FIRST, common=False))
