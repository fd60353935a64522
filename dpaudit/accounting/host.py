"""The most exposed of a host's neighbours, without a profile for each."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from dpaudit.accounting._checks import positive, probability
from dpaudit.accounting._phase import ROOT_2PI, Pair
from dpaudit.accounting.profile import ProfileValue, averaged, delta_of, invert, pair_start
from dpaudit.errors import UsageError

__all__ = ["pancake_host_epsilon"]

_FARTHEST = 2  # candidates by their phase's distance
_APART = 6  # candidates among those whose phase and Gaussian loss depend on each other


def pancake_host_epsilon(
    delta: float, *, sigma: float, beta: float, gamma: float, sensitivity: float, along: npt.ArrayLike
) -> ProfileValue:
    """The largest :func:`pancake_epsilon` over neighbours at distance Δ with these components on the key.

    ``along`` is :meth:`~dpaudit.interfaces.Host.differences` for the secret direction; each neighbour's ``across`` is
    ``√(Δ²−along²)``, so all differences have norm exactly Δ (a shorter one is then over-, never underestimated in its
    Gaussian part).

    Up to the factor 1 ± W of :func:`pancake_delta` the profile depends on a neighbour only through the distance of
    ``along·γ/(√(2π)σ)`` from the nearest whole number, and increases with it. Proof: let θ± = θ(u ∓ a/2) be symmetric
    and falling with circular distance. {θ₊ > e^ε·θ₋}, ε ≥ 0, lies in (0, 1/2), in arcs (u₁, u₂), and the hockey-stick
    divergence grows with a at the rate Σ(θ₊(u₁) − θ₊(u₂)); θ₊(u₁) < θ₊(u₂) would need θ₋(u₁) < θ₋(u₂) too, hence
    ``a > u₁+u₂ > 1−a``, which a ≤ 1/2 excludes. ε < 0 follows by exchanging the two, and averaging over the Gaussian
    loss keeps the order. So two neighbours farthest from whole numbers are computed, and up to six for which W is not
    negligible (the largest ``|along|`` among them).

    Guarantee: ``value`` less its error is attained by a neighbour; none exceeds ``value + error``, as far as
    :func:`pancake_epsilon` promises for those computed, and for the others by that order and their largest W (``error``
    is infinite if that bound is). Phases are compared in doubles: at 1e6 turns two within 1e-10 of each other count as equal.

    Raises:
        UsageError: a parameter out of range, no neighbour, or ``|along| > Δ``.
    """
    positive(sensitivity=sensitivity)
    probability(delta)
    values = np.abs(np.asarray(along, np.float64).ravel())
    if not values.size:
        raise UsageError("along=[]: must hold one component per neighbour; pass host.differences(direction)")
    largest = float(values.max())
    if not largest <= sensitivity * (1 + 1e-9):
        raise UsageError(
            f"along={largest}: must be at most sensitivity={sensitivity}; check Δ or normalise the direction"
        )
    values = np.unique(np.minimum(values, sensitivity))

    def pair(i: int) -> Pair:
        a = float(values[i])
        return Pair(sigma, beta, gamma, a, math.sqrt((sensitivity - a) * (sensitivity + a)))

    pair(0)  # checks the parameters before arrays are built on them
    turns = values * (gamma / (ROOT_2PI * sigma))
    distance = np.abs(turns - np.round(turns))
    order = np.argsort(-distance)
    ratio = gamma * np.sqrt(np.maximum(0.0, 1 - (values / sensitivity) ** 2))
    apart = order[ratio[order] < 3.1]  # W > 1e-13
    chosen = {*order[:_FARTHEST].tolist(), *apart[: _APART - 1].tolist(), *apart[apart == len(values) - 1].tolist()}
    results = []
    for i in chosen:
        p = pair(i)
        results.append(invert(lambda e, p=p: delta_of(e, p), delta, start=pair_start(p, delta)))  # type: ignore[misc]
    best = max(results, key=lambda r: r.value)
    upper = max(r.value + r.error for r in results)
    others = np.setdiff1d(np.arange(len(values)), list(chosen))
    if not others.size:
        return ProfileValue(best.value, upper - best.value)
    wave = pair(int(others[np.argmin(ratio[others])])).wave
    if wave == math.inf:
        return ProfileValue(best.value, math.inf)
    if wave > 1e-13 or any(pair(i).wave > 1e-13 for i in order[:1].tolist()):
        reference = pair(int(others[np.argmax(distance[others])]))
        bound = invert(
            lambda e: averaged(e, reference), delta / (1 + wave), start=pair_start(reference, delta / (1 + wave))
        )
        upper = max(upper, bound.value + bound.error)
    return ProfileValue(best.value, upper - best.value)
