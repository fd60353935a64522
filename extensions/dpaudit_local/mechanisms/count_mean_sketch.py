"""Apple's Count Mean Sketch: a random hash function and m noisy bits, and exact counts of them.

``CountMedianSketch`` is the device of macOS 10.12, with the same server. ``sample_sketch`` draws a
server's state after any number of submissions at once.
"""

from __future__ import annotations

from typing import Self

import numpy as np
import numpy.typing as npt

from dpaudit.errors import UsageError
from dpaudit.numeric.random_words import below, jit, seed_words, start
from dpaudit.protocols import Stream
from dpaudit_local.mechanisms.coins import LARGEST_EPSILON, biased_word, pack_words, unpack_words
from dpaudit_local.mechanisms.hashing import HashFamily
from dpaudit_local.mechanisms.mean_sketches import MeanServer, MeanSketch, read_only, smallest_type
from dpaudit_local.mechanisms.reports import SketchReports, check_indices, privacy_number

__all__ = ["CountMeanServer", "CountMeanSketch", "CountMedianSketch", "sample_sketch"]

_U = np.uint64
_ROWS = 1 << 13  # rows of bits that are revisited while still in cache


@jit
def _draw(functions, bits, first, count, threshold, seed):  # type: ignore[no-untyped-def]
    for i in range(bits.shape[0]):
        a, b, c, n = start(seed, first + i, 0)
        a, b, c, n, function = below(count, a, b, c, n)
        functions[i] = function
        for w in range(bits.shape[1]):
            a, b, c, n, word = biased_word(threshold, a, b, c, n)
            bits[i, w] = word


@jit
def _flip(bits, positions):  # type: ignore[no-untyped-def]
    for i in range(bits.shape[0]):
        bits[i, positions[i] >> 6] ^= _U(1) << _U(positions[i] & 63)


class CountMeanSketch(MeanSketch):
    """Count Mean Sketch: Apple, "Learning with Privacy at Scale" (2017), Algorithm A_client-CMS.

    A report is (j, b): j uniform among ``functions`` hash functions, b the one-hot vector of
    h_j(object) with each of its m bits flipped independently with probability q = 1 / (1 +
    e^(ε/2)).

    Formal guarantee: one report is ε-differentially private, locally, and no smaller ε holds (where
    two objects have different positions under some function): j does not depend on the object, and
    the vectors of two objects differ in at most two bits, each of which changes the probability of
    b by a factor of at most (1 − q)/q, so by ((1 − q)/q)² = e^ε in all. q is a whole number of
    2^-64, rounded up; :attr:`epsilon` is 2·ln((1 − q)/q) of that very q, never above what was asked
    for and less than it by no more than 2·(e^(ε/2) + 2)² / (e^(ε/2)·2^64): 6e-18 at ε = 8, 1e-12 at
    32. j is exactly uniform.

    Not claimed: that ``privatize`` keeps anything secret from someone who knows the stream or can
    predict its generator: it simulates devices (SFC64 under 192 bits of ``stream.entropy()``, one
    generator per report). And ε is of one report: n of a person's reports together have nε.

    >>> from dpaudit.randomness import KeyedStream
    >>> sketch = CountMeanSketch(epsilon=4.0, m=64, functions=8)
    >>> reports = sketch.privatize(np.array([3, 3, 5]), stream=KeyedStream.from_seed(1))
    >>> reports.bits.shape, sketch.epsilon, round(sketch.flip, 4)
    ((3, 8), 4.0, 0.1192)
    """

    differing = 2

    def _check_m(self) -> None:
        if self.m % 8:
            raise UsageError(
                f"m={self.m}: the must be a multiple of 8, as bits are packed in bytes"
            )

    def privatize(self, objects: npt.NDArray[np.int64], *, stream: Stream) -> SketchReports:
        """One report per object (n,).

        The same stream gives the same reports, and report i does not depend on n.

        Raises:
            UsageError: ``objects`` are not whole numbers that the hash family knows.
        """
        objects = self._objects(objects)
        functions = np.empty(objects.shape, np.uint32)
        bits = np.empty((len(objects), -(-self.m // 64)), np.uint64)
        seed = seed_words(stream)
        for first in range(0, len(objects), _ROWS):
            rows = slice(first, first + _ROWS)
            _draw(functions[rows], bits[rows], first, _U(self.functions), _U(self.flip_words), seed)
            _flip(bits[rows], self.hashes.each(objects[rows], functions[rows]))
        return SketchReports(functions, pack_words(bits, self.m))

    def check(self, reports: SketchReports) -> None:
        """Whether these can be reports of this mechanism.

        Raises:
            UsageError: a shape, a type or a function that this mechanism does not make.
        """
        bits = reports.bits
        if bits.dtype != np.uint8 or bits.ndim != 2 or bits.shape[1] != self.m // 8:
            raise UsageError(
                f"bits={bits.shape} {bits.dtype}: "
                f"m = {self.m} needs uint8 of shape (n, {self.m // 8})"
            )
        check_indices("function", reports.function, len(bits), self.functions)

    def log_likelihood(
        self, reports: SketchReports, objects: npt.NDArray[np.int64]
    ) -> npt.NDArray[np.float64]:
        """The logarithm of P(report | object), shape (n, u), up to a constant.

        It is ε/2 where the object's bit is 1, −ε/2 where it is 0.

        Raises:
            UsageError: not reports of this mechanism, or objects that the hash family does not
                know.
        """
        self.check(reports)
        places = self._places(reports.function, objects)
        bytes_ = np.take_along_axis(reports.bits, (places >> 3).astype(np.intp), axis=1)
        ones = (bytes_ >> (places & 7).astype(np.uint8)) & 1
        return np.where(ones, self.epsilon / 2, -self.epsilon / 2)


class CountMedianSketch(CountMeanSketch):
    """The device's side of ``CountMedianSketch``, from its ``PrivacyParameter`` p.

    Coins have bias 1/(1 + e^p), and one of them is flipped.

    What is documented (Tang et al. 2017, arXiv 1709.02753, Figures 16, 17 and 20):
    ``_DPBiasedCoin`` has bias 1/(e^PrivacyParameter + 1), 0.1192 at 2; all m bits are such coins;
    the bit at the hashed position is turned over. That the hash function is uniform is our reading.
    It is the law of :class:`CountMeanSketch` at ε = 2p, and we draw it there.

    Formal guarantee: :attr:`epsilon` = 2·PrivacyParameter is the exact ε of one vector, *twice what
    the parameter says*: the vectors of two objects with different positions differ in two bits,
    either of which changes a vector's probability by up to (1 − q)/q = e^p, so that some vector is
    e^(2p) times as likely under one object as under the other.

    The ``epsilon`` of Apple's reports does not count that: Figure 12 has ten vectors of 256 bits
    under ``"epsilon": 2`` with 303 bits set, which is a bias of 0.118 (0.1192 is 1/(1 + e²); an ε
    of 2 would need 0.269), and so ε = 4. The ``"epsilon": 4`` of Figure 11's records may be read as
    2p of one vector, or as p for each of a record's *two* vectors (a word, and a fragment of it);
    Figure 12 has the same p and one vector, and supports the latter.

    Not claimed: as for :class:`CountMeanSketch`; and ε of one vector, a record of two has twice
    that.

    >>> sketch = CountMedianSketch(2.0, m=256, functions=16)
    >>> sketch.epsilon, round(sketch.flip, 4)
    (4.0, 0.1192)
    """

    def __init__(
        self,
        privacy_parameter: float = 2.0,
        *,
        m: int | None = None,
        functions: int | None = None,
        hashes: HashFamily | None = None,
        seed: int = 0,
    ) -> None:
        """``functions`` (285) hash functions to ``m`` (32,768) positions, or your own ``hashes``.

        The defaults are those of Figure 6.

        Raises:
            UsageError: the parameter not above 0 or beyond 32; else as for
                :class:`CountMeanSketch`.
        """
        self.privacy_parameter = privacy_number(
            "privacy_parameter", privacy_parameter, LARGEST_EPSILON
        )
        if hashes is None:
            m, functions = 32768 if m is None else m, 285 if functions is None else functions
        super().__init__(
            2 * self.privacy_parameter, m=m, functions=functions, hashes=hashes, seed=seed
        )


@jit
def _add(ones, functions, words):  # type: ignore[no-untyped-def]
    m = ones.shape[1]
    for i in range(functions.size):
        row = ones[functions[i]]
        for w in range(m >> 6):
            word, first = words[i, w], w << 6
            for b in range(64):
                row[first + b] += (word >> _U(b)) & _U(1)
        for p in range(m & ~63, m):
            row[p] += (words[i, p >> 6] >> _U(p & 63)) & _U(1)


class CountMeanServer(MeanServer[CountMeanSketch]):
    """Algorithms Sketch-CMS and A_server of Apple's paper, in whole numbers.

    "Learning with Privacy at Scale" (2017). The state is how many reports each hash function had,
    (k,), and how many of them had each bit set, (k, m): exact, and of the smallest unsigned type
    that can hold the busiest function's reports (k = 65,536 and m = 1,024: 128 MiB up to about 4e9
    reports, then 256 MiB). Reports are added as they come and forgotten; the order does not matter.

    Apple's sketch matrix is M[j, l] = k·(c·(ones − n_j / 2) + n_j / 2) with c = (e^(ε/2) + 1) /
    (e^(ε/2) − 1) in these terms, so its estimate m/(m − 1)·(Σ_j M[j, h_j(x)] / k − n/m) needs only
    S = Σ_j ones[j, h_j(x)]: m/(m − 1)·(c·S − (c − 1)·n/2 − n/m).
    """

    @classmethod
    def of_counts(
        cls,
        mechanism: CountMeanSketch,
        ones: npt.NDArray[np.unsignedinteger],
        visits: npt.NDArray[np.int64],
    ) -> Self:
        """A server with that state (kept, not copied): set bits (k, m) and reports (k,).

        Raises:
            UsageError: shapes that are not the mechanism's, or more set bits than reports.
        """
        shape = (mechanism.functions, mechanism.m)
        if ones.shape != shape or visits.shape != shape[:1]:
            raise UsageError(
                f"ones={ones.shape}, visits={visits.shape}: need {shape} and {shape[:1]}"
            )
        if (ones.max(axis=1) > visits).any():
            raise UsageError("ones=…: a function has more set bits than reports")
        server = cls.__new__(cls)
        server.mechanism, server._sums, server._visits = mechanism, ones, visits
        return server

    @property
    def ones(self) -> npt.NDArray[np.unsignedinteger]:
        """How many reports of each function had each bit set, (k, m); read only."""
        return read_only(self._sums)

    def add(self, reports: SketchReports) -> None:
        """Take in reports (n).

        Raises:
            UsageError: they are not reports of this mechanism; nothing was added then.
        """
        self.mechanism.check(reports)
        self._count_visits(np.bincount(reports.function, minlength=self.mechanism.functions))
        _add(self._sums, reports.function, unpack_words(reports.bits))

    def estimate(self, objects: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
        """How many of the reports were of each of ``objects`` (n,); may be negative.

        Unbiased over devices and hash families. About 2 ns per object and hash function that has
        reports: 250,000 objects and 65,536 functions take half a minute.

        Raises:
            UsageError: objects that the hash family does not know.
        """
        m, n, c = self.mechanism.m, self.reports, self._c
        total = self._total(objects)
        return np.asarray(m / (m - 1) * (c * (total - n / 2) + n / 2 - n / m), np.float64)

    def _variances(self) -> tuple[float, float]:
        """Both q(1 − q)/(1 − 2q)² = (c² − 1)/4, the variance of a debiased bit."""
        c = self._c
        noise = (c * c - 1) / 4
        return noise, noise


# reports per function from which on drawing counts is cheaper than drawing each report's function
_MANY = 8
_REPORTS = 1 << 20  # reports whose functions are drawn at a time
_CELLS = 1 << 20  # cells whose bits are drawn at a time


@jit
def _scatter(cells, functions, positions):  # type: ignore[no-untyped-def]
    for i in range(functions.size):
        cells[functions[i], positions[i]] += 1


@jit
def _add_column(cells, positions, added):  # type: ignore[no-untyped-def]
    for function in range(cells.shape[0]):
        cells[function, positions[function]] += added[function]


@jit
def _owners(out, ends, first):  # type: ignore[no-untyped-def]
    """The object of each report from number ``first`` on; object x's end before number ends[x]."""
    x = np.searchsorted(ends, first, side="right")
    for i in range(out.size):
        while ends[x] <= first + i:
            x += 1
        out[i] = x


def _count_cells(
    mechanism: CountMeanSketch, counts: npt.NDArray[np.int64], rng: np.random.Generator
) -> npt.NDArray[np.unsignedinteger]:
    """How many reports have each hash function and the one-hot position, (k, m)."""
    k, hashes = mechanism.functions, mechanism.hashes
    cells: npt.NDArray[np.unsignedinteger] = np.zeros(
        (k, mechanism.m), "u4" if counts.sum() < 1 << 32 else "u8"
    )
    every, even = np.arange(k, dtype=np.uint32), np.full(k, 1 / k)
    many = counts >= _MANY * k
    for x in np.flatnonzero(many).tolist():
        _add_column(cells, hashes.each(np.full(k, x), every), rng.multinomial(counts[x], even))
    few = np.where(many, 0, counts)
    ends = np.cumsum(few)
    for first in range(0, int(ends[-1]) if ends.size else 0, _REPORTS):
        objects = np.empty(min(_REPORTS, int(ends[-1]) - first), np.int64)
        _owners(objects, ends, first)
        functions = rng.integers(0, k, objects.size, dtype=np.uint32)
        _scatter(cells, functions, hashes.each(objects, functions))
    return cells


def sample_sketch(
    mechanism: CountMeanSketch, counts: npt.NDArray[np.int64], *, stream: Stream
) -> CountMeanServer:
    """A server as if devices had submitted ``counts[x]`` reports of each object x (u,).

    The cost stays bounded as the number of reports Z grows.

    Formal guarantee: the server's state has the law of
    ``CountMeanServer.add(mechanism.privatize(objects))`` for such ``objects``. Each report's
    function is uniform, so object x's reports are multinomial over the functions; given how many C
    of a function's n_j reports have their one-hot bit at a position, that position's bits are
    independent of all others, and the number set is Binomial(C, 1 − q) + Binomial(n_j − C, q).
    Exact but for numpy's multinomial and binomial, which reject or invert in double precision (and
    end an inversion some ten standard deviations out, beyond which about 1e-13 lies), and q rounded
    to a double (relative 2^-53).

    At most min(Z, 8·u·k) report functions are drawn and then k multinomial counts per object, and
    2·k·m binomials always.

    Raises:
        UsageError: ``counts`` are negative, no whole numbers, or of more objects than the hash
            family knows.
    """
    counts = np.asarray(counts)
    if counts.ndim != 1 or counts.dtype.kind not in "iu" or (counts < 0).any():
        raise UsageError("counts=…: needs a whole number from 0 for each object, (u,)")
    rng, q = stream.child("sketch").numpy(), mechanism.flip
    cells = _count_cells(mechanism, counts.astype(np.int64, copy=False), rng)
    visits = cells.sum(axis=1, dtype=np.int64)
    ones: npt.NDArray[np.unsignedinteger] = np.empty(cells.shape, smallest_type(int(visits.max())))
    step = max(1, _CELLS // mechanism.m)
    for first in range(0, mechanism.functions, step):
        rows = slice(first, first + step)
        own = cells[rows].astype(np.int64)
        ones[rows] = own - rng.binomial(own, q) + rng.binomial(visits[rows, None] - own, q)
    return CountMeanServer.of_counts(mechanism, ones, visits)
