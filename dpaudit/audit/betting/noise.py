"""Betting against the claimed law of noise while its values are drawn."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Protocol

import numpy as np
import numpy.typing as npt
import scipy

from dpaudit.audit.block import CELLS, cell_edges, cell_probabilities
from dpaudit.claims import Claim
from dpaudit.protocols import Block, Stream
from dpaudit.randomness import KeyedStream
from dpaudit.types import TestResult

__all__ = ["Bet", "Betting"]


class Bet(Protocol):
    """One test family's martingale."""

    looks_at: str

    def update(self, block: Block) -> None:
        """Take in one block, in the order drawn."""

    @property
    def log_capital(self) -> float:
        """Natural logarithm of the current capital."""

    @property
    def effect(self) -> str:
        """The evidence so far, in words."""


_PRIOR_STRENGTHS = (2.0, 200.0)  # shapes of the Gamma prior on the precision: far from 1, near 1
_PRIOR_MEANS = (0.3, 0.01)  # standard deviations of the normal prior on the mean, in units of σ


def log_mean(logs: npt.ArrayLike) -> float:
    """Logarithm of the mean of exp(logs): a mixture of martingales is one."""
    return float(scipy.special.logsumexp(np.asarray(logs))) - math.log(np.size(logs))


def log_scale_mixture(n: float, square: float) -> float:
    """Log of ∫ Π N(z_i; 0, 1/τ)/N(z_i; 0, 1) dG(τ), n values, Σz² = ``square``; mean over two G.

    G is Gamma with mean 1.

    Conjugate, hence exact: b^b/Γ(b) · Γ(b + n/2)/(b + square/2)^(b + n/2) · exp(square/2).
    """
    return log_mean(
        [
            b * math.log(b)
            - math.lgamma(b)
            + math.lgamma(b + n / 2)
            - (b + n / 2) * math.log(b + square / 2)
            + square / 2
            for b in _PRIOR_STRENGTHS
        ]
    )


class ScaleBet:
    """All values are N(0, s²) with one unknown s, against s = 1: the exact Bayes factor."""

    looks_at = "scale"

    def __init__(self) -> None:
        self._n = 0
        self._square = 0.0

    def update(self, block: Block) -> None:
        z = block.z.ravel()
        self._n += len(z)
        self._square += float(z @ z)

    @property
    def log_capital(self) -> float:
        return log_scale_mixture(self._n, self._square)

    @property
    def effect(self) -> str:
        scale = math.sqrt(self._square / max(self._n, 1))
        return f"scale {scale:.5f} × claimed after {self._n:,} values"


class MeanBet:
    """All values are N(m, 1) with one unknown m, against m = 0: the exact Bayes factor.

    m ~ N(0, ρ²), for two ρ.
    """

    looks_at = "mean"

    def __init__(self) -> None:
        self._n = 0
        self._sum = 0.0

    def update(self, block: Block) -> None:
        self._n += block.z.size
        self._sum += float(block.z.sum())

    @property
    def log_capital(self) -> float:
        return log_mean(
            [
                self._sum**2 / (2 * (self._n + rho**-2)) - math.log1p(self._n * rho**2) / 2
                for rho in _PRIOR_MEANS
            ]
        )

    @property
    def effect(self) -> str:
        mean = self._sum / max(self._n, 1)
        return f"mean {mean:+.2e} claimed standard deviations after {self._n:,} values"


_GROUPS = (16, 256)
_TAILS = 10.0 ** -np.arange(2, 8)  # one-sided, split off on both sides
_STRENGTH = 32.0  # of the Dirichlet prior, in values per group
Array = npt.NDArray[np.float64]


@functools.cache
def _groups(count: int) -> tuple[npt.NDArray[np.int64], Array]:
    """First cell and probability of each of about ``count`` similar groups, the tails apart."""
    z = np.concatenate(
        [
            scipy.special.ndtri(np.arange(1, count) / count),
            *(s * scipy.special.ndtri(_TAILS) for s in (1, -1)),
        ]
    )
    first = np.unique(np.concatenate([[0], np.searchsorted(cell_edges(), np.sort(z))]))
    return first, np.add.reduceat(cell_probabilities(), first)


class ShapeBet:
    """Groups of cells have other probabilities than claimed: Dirichlet-multinomial alternative.

    The Bayes factor Γ(A)/Γ(A+n) · Π Γ(a_j+n_j)/(Γ(a_j)·p_j^n_j) with a_j = A·p_j is a martingale
    for any A; 16 and 256 groups, mean of both.
    """

    looks_at = "the whole distribution of single values"

    def __init__(self) -> None:
        self._counts = np.zeros(CELLS, np.int64)

    def update(self, block: Block) -> None:
        self._counts += block.cells

    def _one(self, count: int) -> float:
        first, p = _groups(count)
        n = np.add.reduceat(self._counts, first)
        a = _STRENGTH * count * p
        total = a.sum()
        gammaln = scipy.special.gammaln
        terms = gammaln(a + n) - gammaln(a) - n * np.log(p)
        return float(gammaln(total) - gammaln(total + n.sum()) + terms.sum())

    @property
    def log_capital(self) -> float:
        return log_mean([self._one(count) for count in _GROUPS])

    @property
    def effect(self) -> str:
        first, p = _groups(_GROUPS[0])
        n = np.add.reduceat(self._counts, first)
        total = max(int(n.sum()), 1)
        worst = int(np.argmax(np.abs(n - total * p) / np.sqrt(total * p)))
        edges = cell_edges()
        low, high = edges[first[worst]], edges[[*first[1:], CELLS][worst]]
        return (
            f"{n[worst] / total:.5f} of the values, not {p[worst]:.5f}, "
            f"lie in [{low:.3f}, {high:.3f}) σ"
        )


_LAGS = (1, 2, 3, 4, 8, 16)
_PRIOR = 0.03  # standard deviation of the regression coefficient


class LagBet:
    """z_t has mean ρ·z_(t−lag) in draw order or by row, with unknown ρ, against 0.

    One bet per lag, mean of all.

    Π N(z_t; ρ z_(t−lag), 1)/N(z_t; 0, 1) = exp(ρ·C − ρ²V/2) with C = Σ z_t z_(t−lag), V = Σ
    z²_(t−lag) is a martingale; its mixture over ρ ~ N(0, s²) is exact. Pairs lie within one block.
    """

    looks_at = "correlation across values and rows"

    def __init__(self) -> None:
        names = [*(f"lag {lag}" for lag in _LAGS), "next row"]
        self._cross = dict.fromkeys(names, 0.0)
        self._past = dict.fromkeys(names, 0.0)

    def update(self, block: Block) -> None:
        z = block.z.ravel()
        for name, lag in (*((f"lag {lag}", lag) for lag in _LAGS), ("next row", block.z.shape[1])):
            if len(z) > lag:
                self._cross[name] += float(z[lag:] @ z[:-lag])
                self._past[name] += float(z[:-lag] @ z[:-lag])

    @property
    def log_capital(self) -> float:
        c, v = np.array(list(self._cross.values())), np.array(list(self._past.values()))
        scaled = _PRIOR**2 * v
        return log_mean(_PRIOR**2 * c * c / (2 * (1 + scaled)) - np.log1p(scaled) / 2)

    @property
    def effect(self) -> str:
        past = {name: max(past, 1.0) for name, past in self._past.items()}
        worst = max(past, key=lambda name: abs(self._cross[name]) / past[name] ** 0.5)
        return f"strongest: {worst}, correlation {self._cross[worst] / past[worst]:+.2e}"


_LARGEST = 256


class DirectionBet:
    """The next block's variance differs from 1 along the most and least varied directions so far.

    The direction is fixed before the block is seen, so the projections are N(0, 1) under the claim
    and the exact scale mixture of them is a martingale. Uses only rows of the first dimension drawn
    in 2 … 256.
    """

    looks_at = "variance along one direction"

    def __init__(self) -> None:
        self._d = 0
        self._moments: npt.NDArray[np.float64] | None = None
        self._n = 0
        self._square = [0.0, 0.0]

    def update(self, block: Block) -> None:
        rows, d = block.z.shape
        if not self._d and 2 <= d <= _LARGEST:
            self._d = d
        if d != self._d:
            return
        if self._moments is None:
            self._moments = np.zeros((d, d))
        else:
            _, vectors = np.linalg.eigh(self._moments)
            for i, w in enumerate((vectors[:, 0], vectors[:, -1])):
                x = block.z @ w
                self._square[i] += float(x @ x)
            self._n += rows
        self._moments += block.z.T @ block.z

    @property
    def log_capital(self) -> float:
        return log_mean([log_scale_mixture(self._n, square) for square in self._square])

    @property
    def effect(self) -> str:
        low, high = (math.sqrt(square / max(self._n, 1)) for square in self._square)
        return (
            f"scale {low:.4f} and {high:.4f} × claimed "
            f"along the least and most varied direction of {self._d}"
        )


_WINDOW = 16
_MOST = 1 << 18  # windows kept
_ODDS = 2.0**20  # claimed with probability (2^18)²/2 · 2^-64 at most


class RepeatBet:
    """The same 16 magnitudes come twice: capital 2^20 at the first repeat, nothing risked before.

    Under a continuous claim with at least 12 bits per value a repeat has probability below the
    64-bit hash's: with at most 2^18 windows that is 2^-29, so a run ever reaches 2^20 with
    probability below 2^-28, far less than 2^-20. A discrete claim makes no such promise: no bet.
    """

    looks_at = "repeated or replayed blocks"

    def __init__(self, stream: Stream) -> None:
        self._key = np.frombuffer(stream.bytes(8 * _WINDOW), dtype="<u8") | np.uint64(1)
        self._hashes: set[int] = set()
        self._repeats = 0

    def update(self, block: Block) -> None:
        x = np.abs(block.values.ravel())
        whole = len(x) // _WINDOW
        if not whole or len(self._hashes) + whole > _MOST:
            return
        bits = x[: whole * _WINDOW].view(np.uint64)
        mixed = (bits ^ (bits >> np.uint64(32))) * np.uint64(0x9E3779B97F4A7C15)
        hashes = mixed.reshape(whole, _WINDOW) @ self._key
        before = len(self._hashes)
        self._hashes.update(hashes.tolist())
        self._repeats += whole - (len(self._hashes) - before)

    @property
    def log_capital(self) -> float:
        return math.log(_ODDS) if self._repeats else 0.0

    @property
    def effect(self) -> str:
        windows = len(self._hashes) + self._repeats
        return f"{self._repeats:,} of {windows:,} windows of {_WINDOW} values seen before"


BETS: dict[str, Callable[[Stream], Bet]] = {
    "bet on the scale": lambda _: ScaleBet(),
    "bet on the mean": lambda _: MeanBet(),
    "bet on the shape": lambda _: ShapeBet(),
    "bet on correlation": lambda _: LagBet(),
    "bet on a direction": lambda _: DirectionBet(),
    "bet on repeats": RepeatBet,
}


class Betting:
    """All bets of one audit against ``alpha``.

    Formal guarantee: under the claim the probability that any bet ever reaches (number of bets)/α
    is at most α, at any number of looks and any stopping time (Ville's inequality and a union
    bound).
    """

    def __init__(self, claim: Claim, stream: KeyedStream, *, alpha: float) -> None:
        self._alpha = alpha
        self._bets: dict[str, Bet] = {
            name: make(stream.child("bet", name))
            for name, make in BETS.items()
            if not (claim.discrete and name == "bet on repeats")
        }
        self._best = dict.fromkeys(self._bets, 0.0)
        self._effects: dict[str, str] = {}

    def update(self, block: Block) -> bool:
        """Take in one block; True if a bet has won and the audit may stop."""
        for name, bet in self._bets.items():
            bet.update(block)
            capital = bet.log_capital
            if capital > self._best[name]:
                self._best[name] = capital
                self._effects[name] = bet.effect
        return self.won

    @property
    def won(self) -> bool:
        """Whether some bet has reached its threshold."""
        return max(self._best.values()) >= math.log(len(self._bets) / self._alpha)

    def results(self, *, alpha: float) -> list[TestResult]:
        """One row per bet: p is anytime-valid (1 over the best capital).

        ``p_adjusted`` accounts for the number of bets and their part of ``alpha``.
        """
        weight = len(self._bets) * alpha / self._alpha
        lines = []
        for name, bet in self._bets.items():
            p = math.exp(-min(self._best[name], 700.0))
            adjusted = min(1.0, weight * p)
            lines.append(
                TestResult(
                    name=name,
                    p=p,
                    p_adjusted=adjusted,
                    statistic=self._best[name],
                    looks_at=bet.looks_at,
                    effect=self._effects.get(name, bet.effect),
                    finding=adjusted <= alpha,
                    parts={},
                    topic="bets",
                )
            )
        return lines
