"""A second randomisation of reports, with coins of the device's owner."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from dpaudit.protocols import LocalMechanism, Stream
from dpaudit_local.biased_bits import biased_bits
from dpaudit_local.coins import WORDS, lying_words
from dpaudit_local.report_bits import report_bits

__all__ = ["SecondCoins"]


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
        """ε towards whoever knows the first stage's coins."""

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
