"""Many releases about the same person: basic, advanced and optimal composition."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
import scipy

from dpaudit.accounting._checks import below_one, bisect, positive
from dpaudit.errors import UsageError

__all__ = [
    "Loss",
    "Method",
    "compose",
    "optimal_delta",
]


@dataclass(frozen=True, slots=True)
class Loss:
    """An (ε, δ)-DP release of which nothing else is known.

    δ = 0: a local report, randomised response.

    Raises:
        UsageError: ε not a finite number above 0, or δ outside [0, 1).
    """

    epsilon: float
    delta: float = 0.0

    def __post_init__(self) -> None:
        positive(epsilon=self.epsilon)
        below_one(self.delta)


Method = Literal["best", "basic", "advanced", "optimal"]
Array = npt.NDArray[np.float64]

_ATOMS = 1 << 21
_SUM = 1e-11  # relative error of sums over atoms, to which 1e-15·Σ ln kᵢ! of the binomials comes
_ROOT = 1e-14  # of the root, relative to Σεᵢ, and of the atoms' losses
_SMALLEST = 1e-290  # of δ: below, probabilities that matter underflow


def compose(losses: Sequence[Loss], *, delta: float, method: Method = "best") -> float:
    """An ε such that all of ``losses`` together are (ε, ``delta``)-DP.

    It is infinite where the method has none at this δ.

    - ``basic``: ε = Σεᵢ if Σδᵢ ≤ δ (Dwork, Kenthapadi, McSherry, Mironov and Naor 2006; adaptively
      Dwork and Roth 2014, Theorem B.1).
    - ``advanced``: ε = Σεᵢ(e^εᵢ − 1) + √(2·ln(1/δ′)·Σεᵢ²) with δ′ = δ − Σδᵢ (Dwork, Rothblum and
      Vadhan 2010, Theorem III.3, and its proof for unequal εᵢ).
    - ``optimal``: the least ε that holds for *all* mechanisms with these (εᵢ, δᵢ), exact but for
      rounding; see :func:`optimal_delta`.
    - ``best``: the least of these that can be had (``optimal`` cannot where there are too
      many different εᵢ).

    Formal guarantee: an upper bound (but for the last digit of Σεᵢ), for releases chosen
    adaptively, each of which has its loss whatever came before (the composition that Kairouz, Oh
    and Viswanath 2015 define). Not claimed: parameters that are themselves chosen adaptively; those
    need a filter or an odometer. Noise of a known law composes to less by its own profile: take
    dp-accounting.

    Raises:
        UsageError: no losses; δ outside [0, 1); another method; too many different losses for
            ``optimal``.

    >>> compose([Loss(4.0)] * 3, delta=0.0)
    12.0
    >>> methods = ("basic", "advanced", "optimal")
    >>> [round(compose([Loss(0.1)] * 100, delta=1e-6, method=m), 4) for m in methods]
    [10.0, 6.3082, 4.7746]
    """
    if not losses:
        raise UsageError("losses=[]: at least one release")
    below_one(delta)
    if method not in ("best", "basic", "advanced", "optimal"):
        raise UsageError(f"method={method}: must be best, basic, advanced or optimal")
    pure = Counter(losses)
    if method == "basic":
        return _basic(pure, delta)
    if method == "advanced":
        return _advanced(pure, delta)
    if method == "optimal":
        return _optimal(pure, delta)
    bounds = [_basic(pure, delta), _advanced(pure, delta)]
    return min([*bounds, _optimal(pure, delta)] if _atoms(pure) <= _ATOMS else bounds)


def optimal_delta(epsilon: float, *, losses: Sequence[Loss]) -> float:
    """The δ at ε of the worst mechanisms with these (εᵢ, δᵢ), composed.

    No bound for all of them can be smaller. Such a mechanism is a function of one that gives the
    input away with probability δᵢ and is randomised response with εᵢ otherwise (Kairouz, Oh and
    Viswanath 2015, the proof of Theorem 3.3), and so is their composition. With k equal losses this
    is the curve through Theorem 3.3's points; for unequal ones Murtagh and Vadhan 2016, Theorem
    1.5:

        δ = 1 − Π(1 − δᵢ)·(1 − Σ_s P(s)·(1 − e^(ε − L(s)))₊),  L(s) = Σ ±εᵢ,  P(s) = Π 1/(1 +
        e^(∓εᵢ)).

    Equal losses are counted, not listed: the sum has Π(kᵢ + 1) terms, at most 2^21. Exact but for
    rounding: of the terms (about 1e-15·Σ ln kᵢ! relative, 1e-12 for thousands), of Σδᵢ (1e-15), and
    of the losses' last digit, which matters where ε comes near the largest.

    Raises:
        UsageError: ε negative or NaN; no losses; more than 2^21 terms.
    """
    if not epsilon >= 0:
        raise UsageError(f"epsilon={epsilon}: must be a number ≥ 0")
    if not losses:
        raise UsageError("losses=[]: at least one release")
    pure = Counter(losses)
    loss, log_mass = _response(pure)
    log_kept = sum(n * math.log1p(-one.delta) for one, n in pure.items())
    return -math.expm1(log_kept) + math.exp(log_kept) * _hockey_stick(epsilon, loss, log_mass)


def _basic(pure: Counter[Loss], delta: float) -> float:
    spent = math.fsum(n * one.delta for one, n in pure.items())
    return math.fsum(n * one.epsilon for one, n in pure.items()) if spent <= delta else math.inf


def _advanced(pure: Counter[Loss], delta: float) -> float:
    remaining = delta - math.fsum(n * one.delta for one, n in pure.items())
    if remaining <= 0:
        return math.inf
    if max(one.epsilon for one in pure) > 700:
        return math.inf
    mean = math.fsum(n * one.epsilon * math.expm1(one.epsilon) for one, n in pure.items())
    squares = math.fsum(n * one.epsilon**2 for one, n in pure.items())
    return mean + math.sqrt(-2 * math.log(remaining) * squares)


def _atoms(pure: Counter[Loss]) -> int:
    return math.prod(n + 1 for n in _by_epsilon(pure).values())


def _by_epsilon(pure: Counter[Loss]) -> Counter[float]:
    together: Counter[float] = Counter()
    for one, n in pure.items():
        together[one.epsilon] += n
    return together


def _response(pure: Counter[Loss]) -> tuple[Array, Array]:
    """Losses above 0 of all the randomised responses together, and their log probabilities."""
    if _atoms(pure) > _ATOMS:
        raise UsageError(
            f"losses: {_atoms(pure):.2g} different outcomes, at most {_ATOMS}; take method best"
        )
    loss, log_mass = np.zeros(1), np.zeros(1)
    for epsilon, n in _by_epsilon(pure).items():
        lies = np.arange(n + 1, dtype=np.float64)
        choose = (
            scipy.special.gammaln(n + 1)
            - scipy.special.gammaln(lies + 1)
            - scipy.special.gammaln(n - lies + 1)
        )
        # P(truth) = 1/(1 + e^−ε), P(lie) = e^−ε·P(truth)
        own = choose - n * math.log1p(math.exp(-epsilon)) - lies * epsilon
        loss = np.add.outer(loss, (n - 2 * lies) * epsilon).ravel()
        log_mass = np.add.outer(log_mass, own).ravel()
    above = loss > 0
    return loss[above], log_mass[above]


def _hockey_stick(epsilon: float, loss: Array, log_mass: Array) -> float:
    counts = loss > epsilon
    return min(1.0, math.fsum(np.exp(log_mass[counts]) * -np.expm1(epsilon - loss[counts])))


def _optimal(pure: Counter[Loss], delta: float) -> float:
    log_kept = sum(n * math.log1p(-one.delta) for one, n in pure.items())
    if log_kept < 0 and -math.expm1(log_kept) > delta:
        return _basic(pure, delta)  # infinite, but where the two differ by rounding alone
    # 1 − Π(1 − δᵢ)(1 − h) ≤ δ needs h ≤ 1 − (1 − δ)/Π(1 − δᵢ), rounded down throughout
    remaining = -math.expm1(math.log1p(-delta) * (1 - 1e-15) - log_kept * (1 + 1e-15))
    remaining /= (
        1 + _SUM + 1e-15 * math.fsum(math.lgamma(n + 1) for n in _by_epsilon(pure).values())
    )
    top = math.fsum(n * one.epsilon for one, n in pure.items())
    if remaining < _SMALLEST or math.isinf(top):
        return top
    loss, log_mass = _response(pure)

    def beyond(share: float) -> float:
        return _hockey_stick(share * top, loss, log_mass) - remaining

    if beyond(0.0) <= 0:
        return 0.0
    if beyond(1.0) > 0:  # a loss that rounding put above the sum
        return top
    return min(top, top * (bisect(beyond, 0.0, 1.0) + _ROOT))
