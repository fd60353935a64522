"""Many releases through one pancake, and the most exposed of a host's neighbours."""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import numpy.typing as npt

from dpaudit.accounting._checks import pld_modules, positive, probability
from dpaudit.accounting._phase import ROOT_2PI, Array, Pair, graded
from dpaudit.accounting.profile import ProfileValue, delta_of, independent, inverse, pancake_epsilon
from dpaudit.errors import UsageError

__all__ = [
    "compose_epsilon",
    "compose_epsilon_trivial",
    "pancake_host_composition",
    "pancake_host_epsilon",
]

_CELLS = 2_000_000

_LOST = 1e-15  # probability per release given up to an infinite loss

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(8)


def compose_epsilon_trivial(
    delta: float, *, n: int, sigma: float, beta: float, gamma: float, along: float, across: float
) -> float:
    """Basic composition: n times one release's ε at δ/n, an upper bound for any n and any loss."""
    _count(n)
    probability(delta)
    one = pancake_epsilon(
        delta / n, sigma=sigma, beta=beta, gamma=gamma, along=along, across=across
    )
    return n * (one.value + one.error)


def compose_epsilon(
    delta: float,
    *,
    n: int,
    sigma: float,
    beta: float,
    gamma: float,
    along: float,
    across: float,
    discretization: float | None = None,
) -> ProfileValue:
    """An upper bound on the key holder's ε after ``n`` releases with independent noise.

    All have the same key. By :func:`~dpaudit.accounting.pancake_delta`'s identity n losses add up
    to one Gaussian's at ``√n·Δ/σ`` plus n independent phase losses, with δ larger by at most
    ``((1+W)/(1+2Σexp(−πm²r²)))^n``. The phase loss goes on a grid of ``discretization`` nats
    (default 0.02·min(1/√n, Δ/σ)), each piece split between two grid points so that E e^{−loss}
    stays: that can only raise a hockey-stick divergence, which is convex in e^{−loss} ("connect the
    dots", Doroshenko et al. 2022). dp-accounting convolves it with itself and with its own
    pessimistic Gaussian.

    Guarantee: ``value`` is no smaller than the exact ε but for rounding (the Fourier transforms' is
    of the order of 1e-15 in δ, hence δ ≥ 1e-11 here). It holds for adaptively chosen neighbours too
    if each has a difference of norm at most Δ, a phase no farther from a whole number than this
    pair's (the order proved in :func:`pancake_host_epsilon`) and no larger W. ``error`` is an
    estimate of what the grid gives away: the change on doubling it. Not claimed: the exact ε, or a
    bound from below.

    Raises:
        MissingExtraError: dp-accounting is not installed.
        UsageError: a parameter out of range; δ < 1e-11; more than two million cells (large losses,
            as for small β), where :func:`compose_epsilon_trivial` remains; or W so large that
            nothing is left of δ.
    """
    _count(n)
    probability(delta)
    if delta < 1e-11:
        raise UsageError(f"delta={delta}: must be at least 1e-11 here; use compose_epsilon_trivial")
    pair = Pair(sigma, beta, gamma, along, across)
    if pair.t == 0:
        return ProfileValue(0.0, 0.0)
    step = 0.02 * min(1 / math.sqrt(n), pair.t) if discretization is None else discretization
    positive(discretization=step)
    log_factor = n * (math.log1p(pair.wave) - math.log(pair.lattice))
    if math.log(delta) - log_factor < math.log(1e-11):
        raise UsageError(
            f"gamma={gamma}: phase and Gaussian loss depend on each other too much for n={n} "
            f"(W={pair.wave:.2g}); "
            "use compose_epsilon_trivial"
        )
    remaining = delta * math.exp(-max(log_factor, 0.0))
    fine = _composed(remaining, n, pair, step)
    return ProfileValue(fine, abs(_composed(remaining, n, pair, 2 * step) - fine))


def _count(n: int) -> None:
    if n < 1 or n != int(n):
        raise UsageError(f"n={n}: must be a whole number ≥ 1, the number of releases")


def _composed(delta: float, n: int, pair: Pair, step: float) -> float:
    pld_pmf, distribution = pld_modules("compose_epsilon", "pld_pmf", "privacy_loss_distribution")
    t = math.sqrt(n) * pair.t
    first, probabilities, infinite = _phase_losses(pair, step, n, t)
    # the library discards e^-50 of the Gaussian into the infinite loss
    total = distribution.from_gaussian_mechanism(1 / t, value_discretization_interval=step)
    if len(probabilities) > 1:
        phases = pld_pmf.DensePLDPmf(step, first, probabilities, infinite, True)
        total = total.compose(distribution.PrivacyLossDistribution(phases).self_compose(n))
    return max(0.0, float(total.get_epsilon_for_delta(delta)))


def _phase_losses(pair: Pair, step: float, n: int, t: float) -> tuple[int, Array, float]:
    """The phase loss on the grid, rounded up: first index, probabilities, mass at infinity."""
    phase = pair.phase
    half = min(phase.half, 8.5)
    infinite = 2e-17 if half < phase.half else 0.0  # 2Φ(−8.5), rigorous
    kinks = [v for v in phase.kinks if abs(v) <= half]
    ends = graded(kinks, half=half)
    loss = phase.loss(ends)
    spread = float(loss.max() - loss.min())
    reach = min(n * spread, spread * math.sqrt(2 * n * math.log(2 / _LOST))) + n * 1e-12
    cells = max(10 * spread, reach + 20 * t) / step
    if cells > _CELLS:
        raise UsageError(
            f"discretization={step:.3g}: losses range over {spread:.3g} nats per release, "
            f"{cells:.2g} cells (at most "
            f"{_CELLS:.0e}); take a coarser grid, fewer releases, or compose_epsilon_trivial"
        )
    if spread == 0:
        return 0, np.ones(1), 0.0
    # pieces that lie between neighbouring grid points but for rounding: no more than a fraction of
    # a cell each
    pieces = np.ceil(np.abs(np.diff(loss)) / step * 2).astype(np.int64) + 2
    index = np.repeat(np.arange(len(pieces)), pieces)
    inside = np.arange(len(index)) - np.repeat(np.cumsum(pieces) - pieces, pieces)
    width = (np.diff(ends) / pieces)[index]
    low = ends[:-1][index] + inside * width
    edges_loss = phase.loss(np.append(low, half))
    v = low[:, None] + width[:, None] * (_NODES + 1) / 2
    h = phase.loss(v)
    p = phase.density(v) * _WEIGHTS * width[:, None] / 2
    mass = p.sum(axis=1)
    bottom = np.minimum(np.minimum(edges_loss[:-1], edges_loss[1:]), h.min(axis=1))
    top = np.maximum(np.maximum(edges_loss[:-1], edges_loss[1:]), h.max(axis=1))
    left, right = np.floor(bottom / step), np.ceil(top / step)
    right = np.maximum(right, left + 1)
    weight = np.exp(left[:, None] * step - h)  # e^{−loss} relative to the lower grid point
    ratio = np.divide((p * weight).sum(axis=1), mass, out=np.ones_like(mass), where=mass > 0)
    upper = np.clip((1 - ratio) / -np.expm1(-(right - left) * step), 0, 1)
    origin = int(left.min())
    at = (left - origin).astype(np.int64), (right - origin).astype(np.int64)
    out = np.bincount(at[0], mass * (1 - upper), minlength=int(at[1].max()) + 1)
    out += np.bincount(at[1], mass * upper, minlength=len(out))
    return origin, out / max(1.0, float(out.sum())), infinite


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
    offsets = np.abs(np.asarray(along, np.float64).ravel())
    if not offsets.size:
        raise UsageError(
            "along=[]: must hold one component per neighbour; pass host.differences(direction)"
        )
    largest = float(offsets.max())
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
        np.minimum(offsets, sensitivity), slack=slack, most=sensitivity, period=period
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

    def bound(remaining: float) -> float:
        epsilon = inverse(independent, reference, remaining)
        return epsilon.value + epsilon.error

    kappa = ROOT_2PI * along / (reference.gamma * reference.sigma)
    own = 2 * sum(math.exp(-math.pi * (m * reference.gamma) ** 2) for m in range(1, 1000))
    most = bound(delta / (1 + 2 * own)) + kappa
    return min(most, bound(delta / (1 + wave))) if wave < math.inf else most
