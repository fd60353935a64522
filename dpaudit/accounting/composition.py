"""Many releases through one pancake: an upper bound by privacy loss distributions, and the sum."""

from __future__ import annotations

import math

import numpy as np

from dpaudit.accounting._checks import pld_modules, positive, probability
from dpaudit.accounting._phase import Array, Pair, graded
from dpaudit.accounting.profile import ProfileValue, pancake_epsilon
from dpaudit.errors import UsageError

__all__ = ["compose_epsilon", "compose_epsilon_trivial"]

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
    left = delta * math.exp(-max(log_factor, 0.0))
    fine = _composed(left, n, pair, step)
    return ProfileValue(fine, abs(_composed(left, n, pair, 2 * step) - fine))


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
    kept = np.exp(left[:, None] * step - h)  # e^{−loss} relative to the lower grid point
    ratio = np.divide((p * kept).sum(axis=1), mass, out=np.ones_like(mass), where=mass > 0)
    upper = np.clip((1 - ratio) / -np.expm1(-(right - left) * step), 0, 1)
    origin = int(left.min())
    at = (left - origin).astype(np.int64), (right - origin).astype(np.int64)
    out = np.bincount(at[0], mass * (1 - upper), minlength=int(at[1].max()) + 1)
    out += np.bincount(at[1], mass * upper, minlength=len(out))
    return origin, out / max(1.0, float(out.sum())), infinite
