"""Randomised response: Warner's for yes and no, its k-ary form, and the object itself.

``Identity`` has no privacy: the baseline for everything else.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from dpaudit.protocols import Stream
from dpaudit_local.mechanisms.coins import WORDS, epsilon_of_words, lying_words
from dpaudit_local.mechanisms.reports import CategoryReports, check_objects

__all__ = ["Identity", "RandomizedResponse", "RandomizedResponseServer"]

_BLOCK = 1 << 15  # answers whose words stay in cache


class RandomizedResponse:
    """The truth with probability e^ε/(e^ε + k − 1), else any other category, each equally likely.

    Warner 1965 (k = 2; the spinner points at "the question" or at its opposite) and Kairouz,
    Bonawitz and Ramage 2016 (arXiv 1602.07387, "k-RR") for any k.

    Formal guarantee: ε-differential privacy of one answer, ε = :attr:`epsilon`. An answer has one
    of two probabilities, a truth's T and a lie's L < T, so the likelihood ratio of any two objects
    is 1, T/L or L/T, and T/L = e^ε. One 64-bit word decides each answer, so both are whole
    multiples of 2^-64, L rounded up: ε is never above what was asked for, and less by no more than
    2^-64·(e^ε + k)²/e^ε. The words are ``Stream.bytes``: strong where the stream's key is secret.
    Not claimed: anything about two answers on one object (their ε add up); constant time.
    """

    def __init__(self, epsilon: float = 1.0, *, categories: int = 2) -> None:
        """Objects are 0 … ``categories`` − 1.

        Raises:
            UsageError: ε not above 0 or beyond 32; ``categories`` below 2, or too many for so small
                an ε.
        """
        self._lie = lying_words(epsilon, categories)
        self.categories = int(categories)

    @property
    def epsilon(self) -> float:
        """The exact ε of one answer, ln(T/L)."""
        return epsilon_of_words(self._lie, self.categories)

    @property
    def words(self) -> tuple[int, int]:
        """Of 2^64 words, how many make the truth and how many each lie: the exact law."""
        return WORDS - (self.categories - 1) * self._lie, self._lie

    @property
    def truth(self) -> float:
        """T, the probability of the true category."""
        return self.words[0] / WORDS

    @property
    def lie(self) -> float:
        """L, the probability of each other category."""
        return self.words[1] / WORDS

    @property
    def contrast(self) -> float:
        """T − L, how much likelier an answer is for someone who has it, without rounding either."""
        return (WORDS - self.categories * self._lie) / WORDS

    def privatize(self, objects: npt.NDArray[np.int64], *, stream: Stream) -> CategoryReports:
        """An answer for each object (n,), independent of each other.

        The same stream gives the same answers.

        Raises:
            UsageError: objects of another shape or type, or outside 0 … ``categories`` − 1.
        """
        answers = check_objects(objects, self.categories).astype(np.int64)
        source = stream.child("randomized-response")
        lie, lies = np.uint64(self._lie), np.uint64((self.categories - 1) * self._lie)
        for start in range(0, len(answers), _BLOCK):
            block = answers[start : start + _BLOCK]
            words = np.frombuffer(source.bytes(8 * len(block)), dtype="<u8")
            lying = np.flatnonzero(words < lies)
            other = block[lying] + 1 + (words[lying] // lie).astype(np.int64)
            other[other >= self.categories] -= self.categories
            block[lying] = other
        return CategoryReports(answers)

    def log_likelihood(
        self, reports: CategoryReports, objects: npt.NDArray[np.int64]
    ) -> npt.NDArray[np.float64]:
        """The logarithm of P(report | object), shape (n, u).

        Raises:
            UsageError: objects or reported categories of another shape or type, or outside 0 …
                ``categories`` − 1.
        """
        candidates = check_objects(objects, self.categories)
        answers = check_objects(reports.category, self.categories, name="reports.category")
        return np.where(answers[:, None] == candidates, math.log(self.truth), math.log(self.lie))


class RandomizedResponseServer:
    """Counts devices with x without bias: (answers of x − n·L) / (T − L)."""

    def __init__(self, mechanism: RandomizedResponse) -> None:
        """A server with no answers yet, for devices with this ``mechanism``."""
        self.mechanism = mechanism
        self._answers = np.zeros(mechanism.categories, dtype=np.int64)

    @property
    def reports(self) -> int:
        """How many answers were added."""
        return int(self._answers.sum())

    def add(self, reports: CategoryReports) -> None:
        """Take in answers.

        Raises:
            UsageError: a category of another type, or outside 0 … ``categories`` − 1; nothing is
                added then.
        """
        answers = check_objects(
            reports.category, self.mechanism.categories, name="reports.category"
        )
        self._answers += np.bincount(answers, minlength=self.mechanism.categories)

    def estimate(self, objects: npt.NDArray[np.int64] | None = None) -> npt.NDArray[np.float64]:
        """The unbiased count of each of ``objects``, or of every category; not clipped.

        Raises:
            UsageError: objects outside 0 … ``categories`` − 1.
        """
        law = self.mechanism
        counts = np.asarray(
            (self._answers - self.reports * law.lie) / law.contrast, dtype=np.float64
        )
        return counts if objects is None else counts[check_objects(objects, law.categories)]

    def standard_error(
        self, objects: npt.NDArray[np.int64] | None = None
    ) -> npt.NDArray[np.float64]:
        """The standard error of :meth:`estimate` from the devices' coins alone.

        Its square is (n_x·T(1 − T) + (n − n_x)·L(1 − L)) / (T − L)², with the estimate, clipped to
        0 … n, for n_x.

        Raises:
            UsageError: objects outside 0 … ``categories`` − 1.
        """
        law, n = self.mechanism, self.reports
        have = np.clip(self.estimate(objects), 0, n)
        variance = have * law.truth * (1 - law.truth) + (n - have) * law.lie * (1 - law.lie)
        return np.asarray(np.sqrt(variance) / law.contrast)


class Identity:
    """The report is the object. ε is infinite: two objects never make the same report.

    It has no server: ``numpy.bincount(reports.category)`` is the exact count of every object.

    >>> from dpaudit.randomness import KeyedStream
    >>> Identity().privatize(np.array([3, 1]), stream=KeyedStream.from_seed(1)).category.tolist()
    [3, 1]
    """

    epsilon = math.inf

    def privatize(self, objects: npt.NDArray[np.int64], *, stream: Stream) -> CategoryReports:  # noqa: ARG002
        """The objects (n,); nothing is drawn from ``stream``.

        Raises:
            UsageError: ``objects`` are not whole numbers from 0.
        """
        return CategoryReports(check_objects(objects, 1 << 63).astype(np.int64))

    def log_likelihood(
        self, reports: CategoryReports, objects: npt.NDArray[np.int64]
    ) -> npt.NDArray[np.float64]:
        """The logarithm of P(report | object), (n, u): 0 for the object itself, else −∞.

        Raises:
            UsageError: ``objects`` are not whole numbers from 0.
        """
        return np.where(
            reports.category[:, None] == check_objects(objects, 1 << 63)[None, :], 0.0, -math.inf
        )
