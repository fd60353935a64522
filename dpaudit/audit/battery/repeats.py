"""Noise that was drawn before: repeats, replays, and what a forked child shares with its parent."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy

from dpaudit.audit.battery.parts import no_evidence
from dpaudit.claims import Claim
from dpaudit.protocols import Block, Stream
from dpaudit.stats import bonferroni
from dpaudit.types import BlindSpot, Evidence

__all__ = ["Forks", "Repeat", "Repeats", "WindowTable", "poisson_tail"]

_WINDOW_BITS = 96.0  # least collision entropy of a long window
_LEAST_BITS = 32.0  # shorter calls are not hashed one by one
_REAL_BITS = 12.0  # collision entropy of one |value| of the coarsest real law that is honest here
_HASH_BITS = 62.0
_LONGEST = 4096
_TABLE = 1 << 21
_ANCHORS = 128  # about one value in so many starts a window
_CHUNK = 1 << 15  # values per step, so that they stay in the cache

Hashes = npt.NDArray[np.uint64]


@dataclass(frozen=True, slots=True)
class Repeat:
    """One run of magnitudes at two places, each ``{"process": …, "call": …, "row": …}``."""

    first: Mapping[str, int]
    again: Mapping[str, int]

    @property
    def across_processes(self) -> bool:
        """Whether the two places lie in different processes."""
        return self.first["process"] != self.again["process"]


@dataclass(frozen=True, slots=True)
class _Law:
    """Windows of the claimed law: length, bits, and the strip of |value| that starts one."""

    length: int
    bits: float  # collision entropy of one |value|
    low: float
    high: float
    rate: float  # probability of the strip

    @classmethod
    def of(cls, claim: Claim) -> _Law:
        """For a discrete law: the exact −log2 Σ P(|X| = k)², and a length by its min-entropy.

        Two windows that overlap, shifted by s, agree with a probability of the form
        Σ P(|X| = k)^(L/s + 1), which only the min-entropy bounds: 2^-(L·H∞).
        """
        if not claim.discrete:
            sd = claim.standard_deviation
            low, high = 1.5 * sd, (1.5 + 4 / _ANCHORS) * sd
            length = math.ceil(_WINDOW_BITS / _REAL_BITS)
            return cls(length, _REAL_BITS, low, 0.5 * (low + high), 1 / _ANCHORS)
        k = np.arange(math.ceil(40 * claim.scale) + 2, dtype=np.float64)
        gaussian = claim.family == "discrete-gaussian"
        mass = np.exp(-0.5 * (k / claim.scale) ** 2) if gaussian else np.exp(-k / claim.scale)
        mass[1:] *= 2
        mass /= mass.sum()
        length = min(_LONGEST, math.ceil(_WINDOW_BITS / max(-math.log2(mass.max()), 1e-3)))
        rate_limit = min(1 / _ANCHORS, 1 / (8 * length))
        first = 1 + int(np.argmax(mass[1:] <= rate_limit))
        last = min(len(k) - 1, first + int(np.searchsorted(np.cumsum(mass[first:]), rate_limit)))
        rate = float(mass[first : last + 1].sum())
        return cls(length, -math.log2(float(mass @ mass)), first - 0.5, last + 0.5, rate)


_EVERY_CALL = 0.5  # share of windows that repeat where every call is seeded alike


class WindowTable:
    """Hashes of runs of magnitudes and their places: at most 2^21 of them, for a run of any length.

    Two kinds of window. *Runs* are L values long; they begin with each call (and continue into the
    next ones of its block) and wherever the magnitude of a value falls into a fixed narrow strip
    (about one place in 128): the content chooses the places, so a replay is found at any offset.
    *Calls* shorter than L are hashed whole instead, if they have 32 bits. When the table is full,
    half of the hashes are dropped, by a bit of their own (consistent sampling: equal windows stay
    or go together).

    Null: two windows of independent noise agree with probability at most 2^-bits, exactly for an
    exact discrete law, with 12 bits per value for a real one (float32 has 24), and their hashes
    with 2^-62 more: a sum of mixed 64-bit words times random odd factors collides with 2^-63 if the
    words differ in one lowest bit (Dietzfelbinger et al. 1997).
    """

    def __init__(self, claim: Claim, stream: Stream) -> None:
        self._law = _Law.of(claim)
        self.length = self._law.length
        keys = np.frombuffer(stream.bytes(8 * (self.length + 2)), dtype="<u8").astype(np.uint64)
        self._key, self._call_key, self._mask = keys[:-2] | np.uint64(1), keys[-2], keys[-1]
        self._hashes: list[Hashes] = []
        self._places: list[Hashes] = []
        self._size = self._dropped = 0
        self._modulus = 1
        # how many of each length were seen; whole calls have negative lengths
        self.windows: dict[int, int] = {}

    def add(self, block: Block) -> None:
        """Take in one block of calls."""
        x = np.ascontiguousarray(block.values).ravel()
        size = len(x) // block.calls
        begins = np.arange(block.calls, dtype=np.int64) * size
        runs = self._anchors(x)
        if size < self.length and size * self._law.bits >= _LEAST_BITS:
            self._take(block, x, begins, size, calls=True)
        elif size == self.length:
            self._take(block, x, begins, size, calls=False)
            runs = runs[runs % size != 0]
        else:
            runs = np.union1d(begins, runs)
        self._take(block, x, runs[runs <= len(x) - self.length], self.length, calls=False)

    @property
    def reach(self) -> float | None:
        """Length of a replayed run found with probability 0.9; None if no value starts a window."""
        return math.log(10) / self._law.rate + self.length if self._law.rate > 0 else None

    def _anchors(self, x: npt.NDArray[np.float64]) -> npt.NDArray[np.int64]:
        anchors = []
        for start in range(0, len(x), _CHUNK):
            size = np.abs(x[start : start + _CHUNK])
            here = np.flatnonzero((size >= self._law.low) & (size < self._law.high))
            # a sampler that returns hardly anything else must not cost more
            anchors.append(here[: max(1, len(size) // (4 * self.length))] + start)
        return np.concatenate(anchors)

    def _take(
        self,
        block: Block,
        x: npt.NDArray[np.float64],
        begins: npt.NDArray[np.int64],
        length: int,
        *,
        calls: bool,
    ) -> None:
        if not len(begins):
            return
        kind = -length if calls else length
        self.windows[kind] = self.windows.get(kind, 0) + len(begins)
        step = max(1, (1 << 20) // length)
        for part in (begins[i : i + step] for i in range(0, len(begins), step)):
            hashes = self._hash(x, part, length)
            if calls:
                hashes ^= self._call_key + np.uint64(length)
            self._keep(hashes, _pack(block, part, calls=calls))

    def _hash(
        self, x: npt.NDArray[np.float64], begins: npt.NDArray[np.int64], length: int
    ) -> Hashes:
        first, last = int(begins[0]), int(begins[-1]) + length
        # consecutive calls need no gathering
        dense = last - first == length * len(begins) and bool((np.diff(begins) == length).all())
        places = None if dense else begins[:, None] + np.arange(length)
        runs = x[first:last].reshape(-1, length) if places is None else x[places]
        words = np.abs(runs).view(np.uint64)
        words ^= words >> np.uint64(32)  # so that trailing zeros do not stay zeros
        words *= np.uint64(0x9E3779B97F4A7C15)
        words ^= words >> np.uint64(29)
        total: Hashes = words @ self._key[:length]
        total ^= total >> np.uint64(31)
        return total

    def _keep(self, hashes: Hashes, places: Hashes) -> None:
        if self._modulus > 1:
            hashes, places = self._select(hashes, places)
        self._hashes.append(hashes)
        self._places.append(places)
        self._size += len(hashes)
        if self._size > _TABLE:
            self._thin()

    def _select(self, hashes: Hashes, places: Hashes) -> tuple[Hashes, Hashes]:
        chosen = ((hashes ^ self._mask) & np.uint64(self._modulus - 1)) == 0
        return hashes[chosen], places[chosen]

    def _thin(self) -> None:
        """Keep two places per hash at most, then halve the hashes until the table is half empty."""
        hashes, places = np.concatenate(self._hashes), np.concatenate(self._places)
        order = np.argsort(hashes, kind="stable")
        hashes, places = hashes[order], places[order]
        third = np.zeros(len(hashes), bool)
        third[2:] = hashes[2:] == hashes[:-2]
        self._dropped += int(third.sum())
        hashes, places = hashes[~third], places[~third]
        while len(hashes) > _TABLE // 2:
            self._modulus *= 2
            hashes, places = self._select(hashes, places)
        self._hashes, self._places, self._size = [hashes], [places], len(hashes)

    def expected(self, *, calls: bool) -> float:
        """Upper bound for the expected number of false repeats of one kind in the table."""
        total = 0.0
        for length, count in self.windows.items():
            if (length < 0) == calls:
                # a run's first value lies in the strip: its bits are not counted
                free = -length if calls else length - 1
                total += count**2 / 2 * (2.0 ** -(free * self._law.bits) + 2.0**-_HASH_BITS)
        return total / self._modulus

    def repeats(self, *, calls: bool) -> tuple[int, list[Repeat]]:
        """Number of windows of one kind that repeat an earlier one, and the first 1000 repeats."""
        if not self._size:
            return 0, []
        hashes, places = np.concatenate(self._hashes), np.concatenate(self._places)
        kind = (places & np.uint64(1)).astype(bool) == calls
        hashes, places = hashes[kind], places[kind]
        ordered = np.sort(hashes)
        twice = np.unique(ordered[1:][ordered[1:] == ordered[:-1]])
        if not len(twice):
            return 0, []
        hit = np.isin(hashes, twice)
        hashes, places = hashes[hit], places[hit]
        order = np.argsort(hashes, kind="stable")
        hashes, places = hashes[order], places[order]
        again = np.flatnonzero(hashes[1:] == hashes[:-1]) + 1
        examples = [
            Repeat(_unpack(int(places[i - 1])), _unpack(int(places[i]))) for i in again[:1000]
        ]
        return len(again) + self._dropped, examples


# A place is one word: process + 1 (7 bits), call (32), row within the block's call (24), kind (1).
def _pack(block: Block, begins: npt.NDArray[np.int64], *, calls: bool) -> Hashes:
    rows, d = block.values.shape
    row = begins // d
    each = rows // block.calls
    call = (block.call + row // each) & 0xFFFFFFFF
    process = (block.process + 1) & 0x7F
    word = process << 57 | call << 25 | np.minimum(row % each, 0xFFFFFF) << 1 | int(calls)
    return np.asarray(word, np.int64).astype(np.uint64)


def _unpack(word: int) -> dict[str, int]:
    return {
        "process": (word >> 57) - 1,
        "call": word >> 25 & 0xFFFFFFFF,
        "row": word >> 1 & 0xFFFFFF,
    }


class Repeats:
    """Looks for the same run of magnitudes twice, with or without the signs flipped.

    In one call, in two, or in two processes. Memory is bounded (see :class:`WindowTable`). Null:
    the number of windows that repeat an earlier one is at most Poisson with the expected number of
    colliding pairs, for whole short calls and for long runs separately; combined by Bonferroni. The
    Poisson tail is used where collisions are so rare that they do not cluster (windows of 32 bits
    or more). Not claimed: replays shorter than the blind spot says, and runs in noise that is
    almost always 0.
    """

    looks_at = "repeated or replayed noise, within and across processes"
    harm = "reuse"
    causal_order = 5
    compares_processes = True

    def __init__(self, claim: Claim, stream: Stream) -> None:
        self._table = WindowTable(claim, stream)

    def update(self, block: Block) -> None:
        if block.process >= 0:  # the fork test compares a forked child
            self._table.add(block)

    def evidence(self, *, alpha: float) -> Evidence:
        del alpha
        table = self._table
        total = sum(table.windows.values())
        if not total:
            return no_evidence("too few values for one window")
        parts, examples, repeated = {}, list[Repeat](), 0
        for name, calls in (("whole calls", True), ("runs", False)):
            count, places = table.repeats(calls=calls)
            parts[name] = poisson_tail(count, table.expected(calls=calls))
            repeated += count
            examples += places
        effect = f"{repeated:,} of {total:,} windows seen before"
        details: dict[str, Any] = {}
        cause = ""
        if examples:
            # across processes first: it proves more than a process that repeats itself
            example = min(examples, key=lambda repeat: not repeat.across_processes)
            details = _places(example) | {"windows": repeated}
            cause = _cause(example, share=repeated / total)
            effect += f", such as {_place(example.first)} again in {_place(example.again)}"
        blind = BlindSpot(
            test="repeats",
            flaw="replayed noise",
            size=table.reach,
            unit="values",
            says="repeats of runs shorter than this (unless they begin a call), and any that lie "
            "farther apart than this audit looked",
        )
        return Evidence(
            p=bonferroni(list(parts.values())),
            statistic=float(repeated),
            effect=effect,
            parts=parts,
            cause=cause,
            cause_rank=6,
            blind_spots=(blind,),
            details=details,
        )


def _cause(example: Repeat, *, share: float) -> str:
    first, again = example.first, example.again
    if first["process"] != again["process"]:
        return "every process is seeded alike"
    if first["row"] == again["row"] == 0 and first["call"] != again["call"]:
        return "reseeded every call" if share > _EVERY_CALL else "calls repeat earlier calls"
    return "noise repeats earlier noise"


def _places(repeat: Repeat) -> dict[str, Any]:
    return {"first": dict(repeat.first), "again": dict(repeat.again)}


def _place(where: Mapping[str, int]) -> str:
    return f"call {where['call']}, row {where['row']} of process {where['process']}"


def poisson_tail(count: int, expected: float) -> float:
    """P(Poisson(expected) ≥ count)."""
    return float(scipy.special.gammainc(count, expected)) if count else 1.0


_PAIRS = 16
CHILD = -1


class Forks:
    """Compares what a forked child drew (process −1) with what its parent drew next (process 0).

    Null: the child draws its own noise; the number of windows seen on both sides of one call is at
    most Poisson as in :class:`~dpaudit.audit.battery.repeats.WindowTable`. Advisory, because every
    fork copies a generator kept in memory and reseeding may be the caller's duty: not a finding
    about the law. Not claimed: anything about forks at other moments than the first 16 that were
    tried.
    """

    looks_at = "state shared over fork"
    harm = "reuse"
    advisory = True
    compares_processes = True

    def __init__(self, claim: Claim, stream: Stream) -> None:
        self._table = WindowTable(claim, stream)
        self._child: Block | None = None
        self._pairs = 0

    def update(self, block: Block) -> None:
        if block.process == CHILD:
            self._child = block
        elif self._child is not None:
            child, self._child = self._child, None
            if block.process == 0 and block.call == child.call and self._pairs < _PAIRS:
                self._table.add(child)
                self._table.add(block)
                self._pairs += 1

    def evidence(self, *, alpha: float) -> Evidence:
        del alpha
        if not self._pairs:
            return no_evidence("nothing was drawn over a fork")
        shared, expected = [], 0.0
        for calls in (True, False):
            shared += [r for r in self._table.repeats(calls=calls)[1] if r.across_processes]
            expected += self._table.expected(calls=calls)
        effect = f"{self._pairs} forks, no noise in common"
        details: dict[str, Any] = {}
        if shared:
            effect = (
                f"parent and child share noise ({len(shared):,} windows): state shared over fork; "
                "reseed in the child, e.g. with os.register_at_fork(after_in_child=…), "
                "or draw from the operating system"
            )
            details = _places(shared[0])
        p = poisson_tail(len(shared), expected)
        return Evidence(p=p, statistic=float(len(shared)), effect=effect, details=details)
