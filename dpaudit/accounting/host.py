"""The most exposed of a host's neighbours, without a profile for each."""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import numpy.typing as npt

from dpaudit.accounting._checks import positive, probability
from dpaudit.accounting._phase import ROOT_2PI, Array, Pair
from dpaudit.accounting.composition import compose_epsilon
from dpaudit.accounting.profile import ProfileValue, delta_of, independent, inverse
from dpaudit.errors import UsageError

__all__ = ["pancake_host_composition", "pancake_host_epsilon"]

_FARTHEST = 2  # candidates by their phase's distance
_APART = 6  # candidates among those whose phase and Gaussian loss depend on each other
_CERTAIN = 1e-13
_INDEPENDENT = 3.1  # γ·across/Δ from which on W < 1e-13


def pancake_host_epsilon(
    delta: float,
    *,
    sigma: float,
    beta: float,
    gamma: float,
    sensitivity: float,
    along: npt.ArrayLike,
    slack: float = 0.0,
) -> ProfileValue:
    """The largest :func:`pancake_epsilon` over neighbours at distance Δ with these components.

    ``along`` is :meth:`~dpaudit.protocols.Host.differences` for the secret direction. With
    ``slack`` each component may be up to that much larger or smaller, but no larger than Δ:
    ``along=[0]``, ``slack=Δ`` is the whole ball. Each neighbour's ``across`` is ``√(Δ²−along²)``,
    so all differences have norm exactly Δ (a shorter one is then over-, never underestimated in its
    Gaussian part).

    Up to the factor 1 ± W of :func:`pancake_delta` the profile depends on a neighbour only through
    the distance of ``along·γ/(√(2π)σ)`` from the nearest whole number, and increases with it.
    Proof: let θ± = θ(u ∓ a/2) be symmetric and falling with circular distance. {θ₊ > e^ε·θ₋}, ε ≥
    0, lies in (0, 1/2), in arcs (u₁, u₂), and the hockey-stick divergence grows with a at the rate
    Σ(θ₊(u₁) − θ₊(u₂)); θ₊(u₁) < θ₊(u₂) would need θ₋(u₁) < θ₋(u₂) too, hence ``a > u₁+u₂ > 1−a``,
    which a ≤ 1/2 excludes. ε < 0 follows by exchanging the two, and averaging over the Gaussian
    loss keeps the order. So two neighbours farthest from whole numbers are computed, and up to six
    for which W is not negligible (the largest ``|along|`` among them). Of an interval the ends and
    its first and last half turn count.

    Where W is not negligible the others are bounded twice, and the smaller bound counts: by that
    order and W, and by ``δ(ε) ≤ (1+2w)·δ₀(ε − κ)``, δ₀ the profile with phase and Gaussian loss
    independent, ``w = 2Σ exp(−πm²γ²)``, ``κ = √(2π)·along/(γσ)``. Proof of the second: given the
    phase u, the periods j have weights g(j+u), g the Gaussian, and the loss rises by κ with each. A
    sum of g over j ≥ c is at most its integral from c−1 on where c−1 is past the mode. Elsewhere
    Σ_{j<c} is at least the integral up to c−1, so the sum is at most the integral from c−1 on,
    which is above a half, plus w. Hence P(loss > s) is at most (1+2w) times that of the continuous
    Gaussian's loss + κ, and δ(ε) = ∫_{s>ε} e^{ε−s} P(loss > s) ds.

    Guarantee: ``value`` less its error is attained by a neighbour; none exceeds ``value + error``,
    as far as :func:`pancake_epsilon` promises for those computed, and for the others by the bounds
    above. Phases are compared in doubles: at 1e6 turns two within 1e-10 of each other count as
    equal.

    Raises:
        UsageError: a parameter out of range, no neighbour, ``|along| > Δ``, or a negative slack.
    """
    values, distance, ratio = _neighbours(
        delta,
        sigma=sigma,
        beta=beta,
        gamma=gamma,
        sensitivity=sensitivity,
        along=along,
        slack=slack,
    )

    def pair(i: int) -> Pair:
        a = float(values[i])
        return Pair(sigma, beta, gamma, a, math.sqrt((sensitivity - a) * (sensitivity + a)))

    order = np.argsort(-distance, kind="stable")  # of equal ones the least along first
    apart = order[ratio[order] < _INDEPENDENT]
    chosen = {
        *order[:_FARTHEST].tolist(),
        *apart[: _APART - 1].tolist(),
        *apart[apart == len(values) - 1].tolist(),
    }

    def result(i: int) -> ProfileValue:
        p = pair(i)
        return inverse(delta_of, p, delta)

    # numpy lets the other thread run; the numbers are the same
    with ThreadPoolExecutor(_FARTHEST) as side:
        results = list(side.map(result, chosen))
    best = max(results, key=lambda r: r.value)
    upper = max(r.value + r.error for r in results)
    others = np.arange(len(values)) if slack else np.setdiff1d(np.arange(len(values)), list(chosen))
    if others.size:
        wave = pair(int(others[np.argmin(ratio[others])])).wave
        if wave > _CERTAIN or any(pair(i).wave > _CERTAIN for i in order[:1].tolist()):
            reference = pair(int(others[np.argmax(distance[others])]))
            upper = max(
                upper, _others(delta, reference, wave=wave, along=float(values[others].max()))
            )
    return ProfileValue(best.value, upper - best.value)


def pancake_host_composition(
    delta: float,
    *,
    n: int,
    sigma: float,
    beta: float,
    gamma: float,
    sensitivity: float,
    along: npt.ArrayLike,
    slack: float = 0.0,
) -> ProfileValue:
    """:func:`compose_epsilon` of ``n`` releases under one key, each at the most exposed neighbour.

    The neighbours are chosen adaptively. Arguments as in :func:`pancake_host_epsilon`, what
    ``value`` and ``error`` are as in :func:`compose_epsilon`.

    Raises:
        MissingExtraError: dp-accounting is not installed.
        UsageError: as there; or phase and Gaussian loss of some neighbour depend on each other (W >
            1e-13): γ below about 3, or a difference that may lie along the key alone, as in a whole
            ball.
    """
    values, distance, ratio = _neighbours(
        delta,
        sigma=sigma,
        beta=beta,
        gamma=gamma,
        sensitivity=sensitivity,
        along=along,
        slack=slack,
    )
    if ratio.min() < _INDEPENDENT:
        raise UsageError(
            f"along={float(values[np.argmin(ratio)])!r}: no exact composition for a difference "
            f"of sensitivity={sensitivity} "
            "this far along the key; use n times the ε at delta/n"
        )
    a = float(values[np.argmax(distance)])
    across = math.sqrt((sensitivity - a) * (sensitivity + a))
    return compose_epsilon(delta, n=n, sigma=sigma, beta=beta, gamma=gamma, along=a, across=across)


def _neighbours(
    delta: float,
    *,
    sigma: float,
    beta: float,
    gamma: float,
    sensitivity: float,
    along: npt.ArrayLike,
    slack: float,
) -> tuple[Array, Array, Array]:
    """Components that may be worst, ascending; their distances from whole turns; γ·across/Δ."""
    positive(sensitivity=sensitivity)
    probability(delta)
    given = np.abs(np.asarray(along, np.float64).ravel())
    if not given.size:
        raise UsageError(
            "along=[]: must hold one component per neighbour; pass host.differences(direction)"
        )
    largest = float(given.max())
    if not largest <= sensitivity * (1 + 1e-9):
        raise UsageError(
            f"along={largest}: must be at most sensitivity={sensitivity}; "
            "check Δ or normalise the direction"
        )
    if not slack >= 0:
        raise UsageError(
            f"slack={slack}: must be a number ≥ 0; pass how far a component may be off"
        )
    # checks the parameters before arrays are built on them
    Pair(sigma, beta, gamma, 0.0, sensitivity)
    period = ROOT_2PI * sigma / gamma
    values = _candidates(
        np.minimum(given, sensitivity), slack=slack, most=sensitivity, period=period
    )
    turns = values / period
    ratio = gamma * np.sqrt(np.maximum(0.0, 1 - (values / sensitivity) ** 2))
    return values, np.abs(turns - np.round(turns)), ratio


def _candidates(values: Array, *, slack: float, most: float, period: float) -> Array:
    """The components that may be worst, ascending: intervals' ends, first and last half turns."""
    if not slack:
        return np.unique(values)
    low, high = np.maximum(0.0, values - slack), np.minimum(most, values + slack)
    first = (np.ceil(low / period - 0.5) + 0.5) * period
    last = (np.floor(high / period - 0.5) + 0.5) * period
    halves = [half[(low <= half) & (half <= high)] for half in (first, last)]
    return np.unique(np.concatenate([low, high, *halves]))


def _others(delta: float, reference: Pair, *, wave: float, along: float) -> float:
    """An ε that neighbours no farther from whole turns than ``reference`` do not exceed.

    ``wave`` and ``along`` are the largest of those neighbours.
    """

    def bound(left: float) -> float:
        found = inverse(independent, reference, left)
        return found.value + found.error

    kappa = ROOT_2PI * along / (reference.gamma * reference.sigma)
    own = 2 * sum(math.exp(-math.pi * (m * reference.gamma) ** 2) for m in range(1, 1000))
    most = bound(delta / (1 + 2 * own)) + kappa
    return min(most, bound(delta / (1 + wave))) if wave < math.inf else most
