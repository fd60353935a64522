"""Mean, scale or tails that change over a long run."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
import scipy

from dpaudit.audit.battery import detectable_effect
from dpaudit.audit.battery.parts import no_evidence
from dpaudit.claims import Claim
from dpaudit.protocols import Block, Stream
from dpaudit.stats import bonferroni, normal_two_sided
from dpaudit.types import BlindSpot, Evidence, Interval

__all__ = ["Drift", "chi_square_score"]

_LEAST = 4  # segments
_MOST = 4096
_NAMES = ("mean", "scale", "tails")
_INSIDE = slice(6 * 1024, 10 * 1024)  # cells of |z| < 2
_BEYOND = float(2 * scipy.special.ndtr(-2.0))

Array = npt.NDArray[np.float64]
_Segment = tuple[int, float, float, int]  # values, Σz, Σz², beyond 2


class Drift:
    """Partial sums over the run of z, z² and [|z| > 2], against their own straight line.

    Time is the number of values drawn. Every block (neighbours are merged beyond 4096 blocks)
    gives Σz, Σz² and the number beyond 2, each turned into an exact normal score by its own law:
    N(0, n), χ²_n, binomial (spread by a keyed uniform), times √n. Null, exact for any block sizes:
    the partial sums are then a Brownian motion seen at the ends of the segments, less its line a
    Brownian bridge, whose largest excursion there is at most Kolmogorov's; the linear trend is
    normal. Six parts, combined by Bonferroni. Not claimed: changes within a block, or ones that the
    line removes (a wrong scale throughout is for the moments test).
    """

    looks_at = "drift of mean, scale and tails over the run"
    harm = "changes"
    causal_order = 14

    def __init__(self, claim: Claim, stream: Stream) -> None:
        del claim
        self._stream = stream
        self._segments: list[_Segment] = []
        self._merged = 1  # blocks in a full segment
        self._blocks = 0

    def update(self, block: Block) -> None:
        z = block.z.ravel()
        new = (
            len(z),
            float(z.sum()),
            float(np.einsum("i,i->", z, z)),
            len(z) - int(block.cells[_INSIDE].sum()),
        )
        if self._blocks % self._merged:
            self._segments[-1] = _join(self._segments[-1], new)
        else:
            self._segments.append(new)
        self._blocks += 1
        if len(self._segments) > _MOST:
            odd = [*self._segments[1::2], (0, 0.0, 0.0, 0)]
            pairs = zip(self._segments[::2], odd, strict=False)
            self._segments = [_join(a, b) for a, b in pairs]
            self._merged *= 2

    def evidence(self, *, alpha: float) -> Evidence:
        if len(self._segments) < _LEAST:
            return no_evidence("too few blocks to see a drift")
        n, sums, squares, beyond = map(np.array, zip(*self._segments, strict=True))
        spread = self._stream.numpy().random(len(n))
        root = np.sqrt(n)
        scores = (
            sums,
            root * chi_square_score(squares, n),
            root * _binomial_score(beyond, n, spread),
        )
        total = int(n.sum())
        end = np.cumsum(n) / total
        middle = end - 0.5 * n / total
        moment = middle - float(n @ middle) / total
        reach = math.sqrt(float(n @ moment**2))
        parts: dict[str, float] = {}
        where: dict[str, str] = {}
        for name, score in zip(_NAMES, scores, strict=True):
            path = np.cumsum(score)
            bridge = (path - end * path[-1]) / math.sqrt(total)
            top = int(np.abs(bridge).argmax())
            parts[f"{name}, change"] = float(scipy.special.kolmogorov(abs(bridge[top])))
            parts[f"{name}, trend"] = float(normal_two_sided(float(moment @ score) / reach))
            side = "higher" if bridge[top] > 0 else "lower"
            where[name] = f"{name} lies {side} before value {round(end[top] * total):,}"
        worst = min(parts, key=lambda part: parts[part])
        # The trend of z² is twice that of the scale; over the whole run it spans one unit of time.
        slope, error = float(moment @ (squares - n)) / reach**2 / 2, 1 / (math.sqrt(2) * reach)
        blind = BlindSpot(
            test="drift",
            flaw="scale that changes steadily",
            size=100 * detectable_effect(error, alpha=alpha / len(parts)),
            unit="% from the first value to the last",
            says="a steady change of scale over the run smaller than this",
        )
        return Evidence(
            p=bonferroni(list(parts.values())),
            statistic=slope,
            effect=f"strongest: {worst}; {where[worst.split(',')[0]]} than after",
            parts=parts,
            blind_spots=(blind,),
            interval=Interval(
                low=100 * (slope - 1.96 * error),
                high=100 * (slope + 1.96 * error),
                confidence=0.95,
                method="normal",
            ),
            unit="% change of scale over the run (linear)",
        )


def _join(a: _Segment, b: _Segment) -> _Segment:
    return a[0] + b[0], a[1] + b[1], a[2] + b[2], a[3] + b[3]


def _two_sided_score(lower: Array, upper: Array) -> Array:
    """Finite normal score of a probability given by both of its tails."""
    low = scipy.special.ndtri(np.maximum(lower, 1e-300))
    high = -scipy.special.ndtri(np.maximum(upper, 1e-300))
    return np.asarray(np.where(lower < upper, low, high))


def chi_square_score(x: Array, df: Array | np.float64) -> Array:
    """Normal scores of values under χ² with ``df`` degrees of freedom, within ±37."""
    return _two_sided_score(scipy.special.chdtr(df, x), scipy.special.chdtrc(df, x))


def _binomial_score(k: Array, n: Array, spread: Array) -> Array:
    """Score of a binomial count with P(|z| > 2), spread uniformly over its own atom."""
    below = np.where(k > 0, scipy.special.betaincc(np.maximum(k, 1), n - k + 1, _BEYOND), 0.0)
    upto = np.where(k < n, scipy.special.betaincc(k + 1, np.maximum(n - k, 1), _BEYOND), 1.0)
    above = np.where(k < n, scipy.special.betainc(k + 1, np.maximum(n - k, 1), _BEYOND), 0.0)
    atom = upto - below
    return _two_sided_score(below + spread * atom, above + (1 - spread) * atom)
