"""Count Median Sketch of macOS 10.12: biased coins, the hashed bit flipped, a server of medians."""

from __future__ import annotations

import math
from typing import Literal

import numpy as np
import numpy.typing as npt

from dpaudit.errors import UsageError
from dpaudit.local.coins import LARGEST_EPSILON
from dpaudit.local.count_mean_server import CountMeanServer
from dpaudit.local.count_mean_sketch import CountMeanSketch
from dpaudit.local.hashing import HashFamily
from dpaudit.local.inputs import check_merge, check_objects, privacy_number
from dpaudit.local.reports import SketchReports
from dpaudit.local.sketch_sums import at_positions

__all__ = ["CountMedianServer", "CountMedianSketch"]

# reports of a group, on average, from which a median of groups is near what it estimates
_LEAST = 30
_VALUES = 1 << 21


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
        hashes: HashFamily | Literal["random", "three-wise"] = "random",
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
        if isinstance(hashes, str):
            m, functions = 32768 if m is None else m, 285 if functions is None else functions
        super().__init__(
            2 * self.privacy_parameter, m=m, functions=functions, hashes=hashes, seed=seed
        )


class CountMedianServer:
    """Counts as :class:`CountMeanServer` does, and takes the median over hash functions.

    A function of N_j reports, s of them with the object's bit set, says (s − N_j·q)/(1 − 2q), which
    is unbiased for the number of reports with something at that position. Functions are put into
    groups, by default each is its own (the sketch of Charikar, Chen and Farach-Colton 2002, to
    which the name refers), a group's sum is scaled by N/N_group, and the median over groups loses
    what other objects leave there by chance: (median − N/m)·m/(m − 1).

    Formal guarantee: a group's value is unbiased over the coins and the choice of a pairwise
    independent family; the median is what more than half of the groups agree on, so that a popular
    object which shares positions with this one under fewer functions leaves little trace. Not
    claimed: an unbiased median (a group's value is skew, which moves the median by less than the
    standard error; the mean sketch's estimate is unbiased). Not documented: Apple's server.
    """

    def __init__(
        self, mechanism: CountMeanSketch, *, counts: CountMeanServer | None = None
    ) -> None:
        """A server for devices with this ``mechanism``.

        It has no reports yet, or those of ``counts`` (kept, not copied).

        Raises:
            UsageError: the ``counts`` are of another mechanism.
        """
        if counts is not None and counts.mechanism != mechanism:
            raise UsageError(
                "counts: of another mechanism; a server estimates from reports of its own"
            )
        self.mechanism = mechanism
        self._counts = CountMeanServer(mechanism) if counts is None else counts

    @property
    def reports(self) -> int:
        """How many reports were added."""
        return self._counts.reports

    def add(self, reports: SketchReports) -> None:
        """Take in reports (n); refuses as :meth:`CountMeanServer.add` does."""
        self._counts.add(reports)

    def merge(self, other: CountMedianServer) -> None:
        """Take in what another server of an equal mechanism has.

        Refuses as :meth:`CountMeanServer.merge` does.
        """
        check_merge(self, other)
        self._counts.merge(other._counts)

    def estimate(
        self, objects: npt.NDArray[np.int64], *, groups: int | None = None
    ) -> npt.NDArray[np.float64]:
        """How many of the reports were of each of ``objects`` (u,), shape (u,); may be negative.

        Raises:
            UsageError: fewer than 30 reports a group, whose median would say next to nothing;
                ``groups`` not from 1 to the number of functions; objects that the hash family does
                not know.
        """
        groups = self._checked(groups)
        objects = check_objects(objects, 1 << 63).astype(np.int64, copy=False)
        out = np.empty(len(objects))
        step = max(1, _VALUES // groups)
        for first in range(0, len(objects), step):
            part = slice(first, first + step)
            out[part] = np.median(self._by_group(objects[part], groups), axis=0)
        m = self.mechanism.m
        return (out - self.reports / m) * (m / (m - 1))

    def _by_group(self, objects: npt.NDArray[np.int64], groups: int) -> npt.NDArray[np.float64]:
        """What each group with reports says, shape (at most ``groups``, u), collisions and all."""
        sketch, visits, row = self.mechanism, self._counts.visits, self._counts.ones.__getitem__
        values = []
        for functions in np.array_split(np.arange(sketch.functions), groups):
            heard = int(visits[functions].sum())
            if heard:
                ones = at_positions(row, functions=functions, objects=objects, hashes=sketch.hashes)
                values.append(
                    (ones - heard * sketch.flip) * (self.reports / heard / (1 - 2 * sketch.flip))
                )
        return np.array(values)

    def standard_error(self, *, groups: int | None = None) -> float:
        """The standard deviation of an estimate of something rare.

        It covers the coins, and chance collisions with things as rare:

        √(N·(q(1 − q)/(1 − 2q)² + 1/m)), times √(π/2) for a median of three groups or more, the
        usual approximation for many normal groups of equal size. What popular objects add where
        they collide is not in it.

        Raises:
            UsageError: as for :meth:`estimate`.
        """
        groups = self._checked(groups)
        q = self.mechanism.flip
        single = math.sqrt(self.reports * (q * (1 - q) / (1 - 2 * q) ** 2 + 1 / self.mechanism.m))
        return single * (math.sqrt(math.pi / 2) if groups > 2 else 1.0)

    def _checked(self, groups: int | None) -> int:
        groups = self.mechanism.functions if groups is None else groups
        if not 1 <= groups <= self.mechanism.functions:
            raise UsageError(
                f"groups={groups}: must be from 1 to the number of functions, "
                f"{self.mechanism.functions}"
            )
        if self.reports < _LEAST * groups:
            raise UsageError(
                f"groups={groups}: {self.reports} reports are fewer than {_LEAST} per group, "
                "whose median says nothing; take "
                f"groups={max(1, self.reports // _LEAST)}, or more reports"
            )
        return groups
