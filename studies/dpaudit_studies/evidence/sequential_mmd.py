"""A peer: the published sequential test of privacy, by kernel MMD and betting.

    python -m dpaudit_studies.evidence.sequential_mmd

González, Dulce-Rubio, Ramdas and Ribero, "Sequentially Auditing Differential Privacy" (NeurIPS
2025, arXiv 2509.07055). Under (ε, δ)-DP the MMD of the releases at two neighbours, with a Gaussian
kernel, is at most τ = √2·(1 − 2(1 − δ)/(1 + e^ε)) (Theorem 3.1). A witness f in a ball of the
kernel's space is learned by online gradient ascent, the bet λ ≤ 1/(8 + 4τ) by online Newton steps,
and the capital Π(1 + λ·(f(x) − f(y) − τ)) over pairs of releases is compared with 1/α (Algorithm
1). The kernel's bandwidth is the median distance among the first 20 pairs, which are not bet on.

The text has the unit ball. The authors' code (google-research/google-research, folder
dp_sequential_test) has a ball of radius 1/2, so that payoffs are at most √2/2 − τ, and a factor 2
where the theorem has √2. The theorem's τ with the code's ball (``PAPER``) gives the paper's table,
which this command prints beside what it measures. ``UNIT``, the unit ball, is the stronger, and
valid. ``NOTEBOOK`` is the code as it stands, whose capitals a test compares.

Written anew, as theirs take 20 seconds for 5,000 pairs. Two differences: the first pair, if its
releases are equal, bets nothing (the code divides 0 by 0, and its capital is no number from then
on), and a median of 0 becomes a bandwidth of 1.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.spatial.distance import cdist, pdist

from dpaudit_studies.evidence import options

__all__ = ["FOR_BANDWIDTH", "NOTEBOOK", "PAPER", "UNIT", "Variant", "mmd", "pairs_until"]

FOR_BANDWIDTH = 20
"""Pairs that only set the bandwidth."""
_BLOCK = 256
_NEWTON = 2 / (2 - math.log(3))

Array = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Variant:
    """The constants on which text and code differ: of τ, and the radius of the ball."""

    factor: float
    radius: float

    def threshold(self, epsilon: float, delta: float) -> float:
        """τ at the claim."""
        return self.factor * (1 - 2 * (1 - delta) / (1 + math.exp(epsilon)))


NOTEBOOK = Variant(factor=2.0, radius=0.5)
PAPER = Variant(factor=math.sqrt(2), radius=0.5)
UNIT = Variant(factor=math.sqrt(2), radius=1.0)


class _Bets:
    """Witness, bet and capital of Algorithm 1; of the witness only its weights on past pairs."""

    def __init__(self, variant: Variant, threshold: float, pairs: int) -> None:
        self.log_capital = 0.0
        self._threshold, self._radius = threshold, variant.radius
        self._bet, self._curvature = 0.0, 1.0
        self._weights, self._scale = np.zeros(pairs), 1.0
        self._square, self._total = 0.0, 0.0

    def settle(self, products: Array, t: int) -> None:
        """Take in pair ``t``; ``products`` are its inner products with pairs up to itself."""
        value = self._scale * float(self._weights[:t] @ products[:t])
        payoff = value - self._threshold
        factor = 1 + self._bet * payoff
        self.log_capital += math.log(factor)
        slope = -payoff / factor
        self._curvature += slope**2
        bet = self._bet - _NEWTON * slope / self._curvature
        self._bet = min(max(bet, 0.0), 1 / (8 + 4 * self._threshold))
        own = float(products[t])
        self._total += own
        if self._total <= 0:
            return
        step = 1 / (2 * math.sqrt(self._total))
        self._square += 2 * step * value + step**2 * own
        self._weights[t] = step / self._scale
        if self._square > self._radius**2:
            self._scale *= self._radius / math.sqrt(self._square)
            self._square = self._radius**2


def bandwidth(x: Array, y: Array) -> float:
    """The median distance among releases (n, k) of both neighbours; 1 if that is 0."""
    return float(np.median(pdist(np.concatenate([x, y])))) or 1.0


def _products(x: Array, y: Array, start: int, stop: int, width: float) -> Array:
    """Inner products of K(x, ·) − K(y, ·) of pairs from ``start`` with all before ``stop``."""

    def kernel(a: Array, b: Array) -> Array:
        return np.asarray(np.exp(-cdist(a[start:stop], b[:stop], "sqeuclidean") / (2 * width**2)))

    return kernel(x, x) - kernel(x, y) - kernel(y, x) + kernel(y, y)


def pairs_until(
    x: Array,
    y: Array,
    *,
    epsilon: float,
    delta: float,
    alphas: Sequence[float],
    variants: Sequence[Variant] = (PAPER, UNIT),
) -> tuple[list[list[int | None]], list[float]]:
    """Pairs until the claim is contradicted, by variant and α, and the last log capitals.

    ``x`` and ``y`` (n, k) are releases at the two neighbours. Pairs include those for the
    bandwidth; None where the claim stands after all of them.
    """
    width = bandwidth(x[:FOR_BANDWIDTH], y[:FOR_BANDWIDTH])
    x, y = x[FOR_BANDWIDTH:], y[FOR_BANDWIDTH:]
    bets = [_Bets(v, v.threshold(epsilon, delta), len(x)) for v in variants]
    crossed: list[list[int | None]] = [[None] * len(alphas) for _ in variants]
    for start in range(0, len(x), _BLOCK):
        stop = min(start + _BLOCK, len(x))
        products = _products(x, y, start, stop, width)
        for t in range(start, stop):
            for bet, until in zip(bets, crossed, strict=True):
                bet.settle(products[t - start], t)
                for i, alpha in enumerate(alphas):
                    if until[i] is None and bet.log_capital >= -math.log(alpha):
                        until[i] = FOR_BANDWIDTH + t + 1
        if all(None not in until for until in crossed):
            break
    return crossed, [bet.log_capital for bet in bets]


def mmd(x: Array, y: Array) -> float:
    """The MMD of releases (n, k) each at the test's bandwidth, without bias in its square."""
    width, n = bandwidth(x[:FOR_BANDWIDTH], y[:FOR_BANDWIDTH]), len(x)
    products = _products(x, y, 0, n, width)
    return math.sqrt(max(0.0, float(products.sum() - np.trace(products)) / (n * (n - 1))))


def benchmark(kind: str, epsilon: float, rng: np.random.Generator, n: int) -> tuple[Array, Array]:
    """Releases (n, 1) of the paper's NonDPLaplace1 or NonDPGaussian1: means of {0} and {0, 1}.

    The noise has the scale 2/(n·ε) for the true number n of records.
    """
    draw = rng.laplace if kind == "Laplace" else rng.normal
    return draw(0.0, 2 / epsilon, (n, 1)), draw(0.5, 1 / epsilon, (n, 1))


PUBLISHED = {
    ("Gaussian", 0.01): "264 ± 9",
    ("Gaussian", 0.1): "562 ± 29",
    ("Laplace", 0.01): "331 ± 15",
    ("Laplace", 0.1): "920 ± 62",
}
"""Pairs to reject at α = 0.05 on average, by Table 1 of the paper; all of 20 streams reject."""


def main() -> None:
    args = options(__doc__, streams=20, pairs=5000, seed=1)
    rng = np.random.default_rng(args.seed)
    variants = {"PAPER": PAPER, "UNIT": UNIT, "NOTEBOOK": NOTEBOOK}
    print("pairs to reject on average, without those for the bandwidth; standard error; rejected\n")
    for (kind, epsilon), published in PUBLISHED.items():
        print(f"NonDP{kind}1, epsilon {epsilon}: published {published}", end="")
        runs = []
        for _ in range(args.streams):
            x, y = benchmark(kind, epsilon, rng, FOR_BANDWIDTH + args.pairs)
            claim = {"epsilon": epsilon, "delta": 1e-5 * (kind == "Gaussian")}
            kinds = list(variants.values())
            runs.append(pairs_until(x, y, **claim, alphas=[0.05], variants=kinds)[0])
        for name, until in zip(variants, zip(*runs, strict=True), strict=True):
            pairs = np.array([p[0] - FOR_BANDWIDTH for p in until if p[0] is not None])
            error = pairs.std() / math.sqrt(max(1, len(pairs)))
            print(f"; {name} {pairs.mean():.0f} ± {error:.0f}, {len(pairs)}", end="")
        print(flush=True)


if __name__ == "__main__":
    main()
