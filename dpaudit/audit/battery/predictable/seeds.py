"""Seeds that people use: small numbers, the time, and numbers that the noise itself shows."""

from __future__ import annotations

import hashlib
import math
import struct
import time
import zlib
from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

__all__ = ["WELL_KNOWN", "dates", "made_from", "near", "small"]

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
"""Numbers above 1,023 that stand in many programs."""
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


def made_from(numbers: Iterable[float]) -> Seeds:
    """What is commonly made of each number: its bits, its whole part, digits, or a hash."""
    found = [seed & _ALL for number in numbers if math.isfinite(number) for seed in _of(number)]
    return np.array(found, np.uint64)


def _of(number: float) -> list[int]:
    double, single = struct.pack("<d", number), struct.pack("<f", _single(number))
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


def _single(number: float) -> float:
    return max(-3e38, min(3e38, number))
