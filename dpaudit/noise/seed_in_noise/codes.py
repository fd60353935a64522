"""Where the nonce travels: in leading bits, in fractional parts, or in signs."""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np
import numpy.typing as npt
import scipy.special

from dpaudit.errors import UnknownNameError, UsageError
from dpaudit.noise.seed_in_noise.laws import ContinuousLaw, Law, last_digits
from dpaudit.registry import nearest
from dpaudit.results.foreign import quoted

__all__ = ["CODES", "Code", "Head", "Symbols", "code_of", "likeliest", "uniform"]

_CERTAIN = 40.0  # nats; a symbol that is so likely is not doubted
_DOUBTED = 64
CODES = ("fraction", "head", "signs")
_LEAST, _MOST = 0.5, 1e4
_DEPTH = 24

Floats = npt.NDArray[np.float64]
Bytes = npt.NDArray[np.uint8]


@dataclass(frozen=True)
class Symbols:
    """A nonce as it is read: ``best`` (m,), the next likely ``other`` (m,), and its ``cost`` (m,).

    ``cost`` is the logarithm of how much likelier the best one is: 0 where nothing is known.
    ``sure`` (m,) is at least the logarithm of the best one's probability.
    """

    best: npt.NDArray[np.int64]
    other: npt.NDArray[np.int64]
    cost: Floats
    sure: Floats


class Code(Protocol):
    """Writes a nonce into the first values of a row, and reads it."""

    name: str
    symbols: int
    """How many symbols a nonce has, each in a value of its own."""

    @property
    def distance(self) -> float:
        """At most the total variation distance of a row's law from the honest one.

        In real arithmetic, given random bits: uniform numbers have 52 bits, between which densities
        are taken for constant.
        """

    def place(self, out: Floats, nonces: Bytes, rest: npt.NDArray[np.uint64]) -> None:
        """Write ``nonces`` (n, bytes) into the first values of ``out`` (n, d).

        ``rest`` (n, symbols, 3) are random words. Where d is smaller than the number of symbols,
        the last ones are not sent.
        """

    def read(self, values: Floats, *, blur: float) -> Symbols:
        """The nonce in values (d,) that are off by about ``blur``; NaN where nothing is known."""

    def nonce(self, symbols: npt.NDArray[np.int64]) -> bytes:
        """The nonce that these symbols spell."""


class _Cells:
    """One byte per value: which of 256 equally likely cells it lies in."""

    def __init__(self, law: ContinuousLaw, *, size: int) -> None:
        self.law, self.symbols = law, size

    def _where(self, nonces: Bytes, rest: npt.NDArray[np.uint64]) -> Floats:
        """Uniform numbers in (0, 1) whose leading bytes are the nonce's."""
        low = rest[:, : nonces.shape[1], 0] >> np.uint64(20)
        words = (nonces.astype(np.uint64) << np.uint64(44)) | low
        return np.asarray((words.astype(np.float64) + 0.5) * 2.0**-52)

    def _rounded(self, value: Floats, density: Floats, rest: npt.NDArray[np.uint64]) -> Floats:
        """``value`` with random last digits, rounded as the values that carry nothing.

        These are numbers with 53 random digits times the scale. A shift within the step of
        :meth:`_where` fills digits that this leaves out near 0, one of 2^-48 of the value the last.
        """
        words = rest[:, : value.shape[1]]
        step = (uniform(words[:, :, 2]) - 0.5) * 2.0**-52 / density
        low = words[:, :, 0] & np.uint64((1 << 20) - 1)
        unit = (value + step) / self.law.claim.scale
        unit += unit * last_digits(low)
        return np.asarray(unit * self.law.claim.scale)

    def nonce(self, symbols: npt.NDArray[np.int64]) -> bytes:
        return symbols.astype(np.uint8).tobytes()

    def _nearest(self, values: Floats, edges: Floats, *, blur: float) -> Symbols:
        """The likeliest cells, between ``edges`` (257,)."""
        known = np.isfinite(values)
        cell = np.clip(np.searchsorted(edges, values, side="right") - 1, 0, 255)
        below, above = values - edges[cell], edges[cell + 1] - values
        other = (cell + np.where(below < above, -1, 1)) % 256
        cost = _cost(np.minimum(below, above), blur, known)
        inside = np.where(known, (below + above) / (math.sqrt(2 * math.pi) * blur), 1 / 256)
        with np.errstate(divide="ignore"):
            return Symbols(cell, other, cost, np.minimum(_sure(cost), np.log(inside)))


class Head(_Cells):
    """The leading byte of the uniform number that each value is the quantile of."""

    name = "head"

    @property
    def distance(self) -> float:
        return self.symbols * 2.0**-44

    @cached_property
    def _edges(self) -> Floats:
        return self.law.quantile(np.arange(257) / 256)

    def place(self, out: Floats, nonces: Bytes, rest: npt.NDArray[np.uint64]) -> None:
        some = nonces[:, : out.shape[1]]
        value = self.law.quantile(self._where(some, rest))
        out[:, : some.shape[1]] = self._rounded(value, self.law.density(value), rest)

    def read(self, values: Floats, *, blur: float) -> Symbols:
        return self._nearest(values[: self.symbols], self._edges, blur=blur)


class Fraction(_Cells):
    """The leading byte of each value's fractional part, by the part's own law.

    The fraction is drawn from the exact wrapped law, and the whole part from the conditional law
    given the fraction.
    """

    name = "fraction"

    @property
    def distance(self) -> float:
        """More than ``head``'s: the whole part is chosen among 18·scale by one uniform number."""
        return self.symbols * 2.0**-44 * (1 + self.law.claim.scale / 8)

    @cached_property
    def _edges(self) -> Floats:
        return self.law.fraction(np.arange(257) / 256)

    def place(self, out: Floats, nonces: Bytes, rest: npt.NDArray[np.uint64]) -> None:
        some = nonces[:, : out.shape[1]]
        part = self.law.fraction(self._where(some, rest))
        value = self.law.given_fraction(part, uniform(rest[:, : some.shape[1], 1]))
        out[:, : some.shape[1]] = self._rounded(value, self.law.fraction_density(part), rest)

    def read(self, values: Floats, *, blur: float) -> Symbols:
        first = values[: self.symbols]
        return self._nearest(first - np.floor(first), self._edges, blur=blur)


class Signs:
    """One bit per value: its sign. Any law; integers that are 0 pass their bit on.

    Bit i goes to the first value that is not 0 among those numbered i, i + m, i + 2m, ….
    """

    name, distance = "signs", 0.0

    def __init__(self, law: Law, *, size: int) -> None:
        self.law, self.symbols = law, 8 * size

    def place(self, out: Floats, nonces: Bytes, rest: npt.NDArray[np.uint64]) -> None:
        del rest
        signs = 1.0 - 2.0 * np.unpackbits(nonces, axis=1, bitorder="little")
        free = np.ones(signs.shape, dtype=bool)
        for part in self._parts(out):
            width = part.shape[1]
            here = free[:, :width] & (part != 0)
            np.copyto(part, np.abs(part) * signs[:, :width], where=here)
            free[:, :width] &= ~here
            if not free.any():
                break

    def _parts(self, out: Floats) -> list[Floats]:
        m = self.symbols
        depth = _DEPTH if self.law.claim.discrete else 1
        return [out[:, at : at + m] for at in range(0, min(m * depth, out.shape[1]), m)]

    def read(self, values: Floats, *, blur: float) -> Symbols:
        amplitudes = np.zeros(self.symbols)
        free = np.ones(self.symbols, dtype=bool)
        for row in self._parts(values[None]):
            part, width = row[0], len(row[0])
            here = free[:width] & ~(np.abs(part) < 0.5 * self.law.claim.discrete)
            amplitudes[:width][here] = part[here]
            free[:width] &= ~here
        cost = _cost(np.abs(amplitudes), blur, np.isfinite(amplitudes))
        best = (amplitudes < 0).astype(np.int64)
        return Symbols(best, 1 - best, cost, _sure(cost))

    def nonce(self, symbols: npt.NDArray[np.int64]) -> bytes:
        return np.packbits(symbols.astype(np.uint8), bitorder="little").tobytes()


def uniform(words: npt.NDArray[np.uint64]) -> Floats:
    """In (0, 1), from 52 bits each."""
    return np.asarray(((words >> np.uint64(12)).astype(np.float64) + 0.5) * 2.0**-52)


def _cost(distance: Floats, blur: float, known: npt.NDArray[np.bool_]) -> Floats:
    """Log odds that a normal error of scale ``blur`` did not cross a border so far away."""
    x = np.where(known, distance, 0.0) / blur
    return np.asarray(scipy.special.log_ndtr(x) - scipy.special.log_ndtr(-x))


def _sure(cost: Floats) -> Floats:
    """Log of the best one's probability if there is but one other."""
    return np.asarray(-np.log1p(np.exp(-cost)))


def code_of(name: str | None, law: Law, *, size: int) -> Code:
    """The code ``name`` for nonces of ``size`` bytes; None: fraction, or signs for integers.

    Raises:
        UnknownNameError: no such code.
        UsageError: one that the law has no room for.
    """
    claim = law.claim
    name = ("signs" if claim.discrete else "fraction") if name is None else name
    if name not in CODES:
        raise UnknownNameError(
            f"code={quoted(name)}: is not known{nearest(str(name), CODES)}; "
            f"take one of {', '.join(CODES)}"
        )
    if name == "signs":
        return Signs(law, size=size)
    if claim.discrete:
        raise UsageError(
            f"code={name}: needs a continuous law, as integers have no further bits; "
            "take code=signs"
        )
    if name == "head":
        return Head(law, size=size)  # type: ignore[arg-type]
    if not _LEAST <= claim.scale <= _MOST:
        raise UsageError(
            f"code=fraction: needs a scale in {_LEAST:g}…{_MOST:g}, is {claim.scale:g}; "
            "take code=head or code=signs"
        )
    return Fraction(law, size=size)  # type: ignore[arg-type]


def likeliest(code: Code, symbols: Symbols, *, tries: int) -> Iterator[bytes]:
    """Nonces of a reading in order of likelihood, at most ``tries``."""
    doubted = np.argsort(symbols.cost)[:_DOUBTED]
    doubted = doubted[symbols.cost[doubted] < _CERTAIN]
    for _, changed in zip(range(tries), _subsets(symbols.cost[doubted]), strict=False):
        spelled = symbols.best.copy()
        spelled[doubted[changed]] = symbols.other[doubted[changed]]
        yield code.nonce(spelled)


def _subsets(costs: Floats) -> Iterator[list[int]]:
    """Subsets of positions by their total cost; ``costs`` (k,) ascending and not negative."""
    yield []
    heap: list[tuple[float, list[int]]] = [(float(costs[0]), [0])] if len(costs) else []
    while heap:
        total, chosen = heapq.heappop(heap)
        yield chosen
        last = chosen[-1]
        if last + 1 < len(costs):
            step = float(costs[last + 1])
            heapq.heappush(heap, (total + step, [*chosen, last + 1]))
            heapq.heappush(heap, (total + step - float(costs[last]), [*chosen[:-1], last + 1]))
