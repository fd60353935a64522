"""ε of a rotated release against the source's owner: proven where the norm's law is known.

Of a Haar-rotated pancake: its density's distance from the Gaussian's, and its exact profile.
"""

from __future__ import annotations

import functools
import math

import numpy as np
import numpy.typing as npt
import scipy

from dpaudit.accounting import ProfileValue, gaussian_epsilon
from dpaudit.accounting.profile import invert
from dpaudit.noise.gaussian import Gaussian
from dpaudit.noise.norm_channel import NormChannel
from dpaudit.noise.pancake import Pancake
from dpaudit.numeric.lattice import RoundedHost, lattice_step
from dpaudit.protocols import Host, NoiseSource
from dpaudit.types import EpsilonBounds

__all__ = [
    "gaussian_on_lattice",
    "haar_rotated",
    "haar_rotated_together",
    "norm_deviation",
    "orthogonally_turned",
    "rotated_epsilon",
]

_SHELLS = 64

Array = npt.NDArray[np.float64]


def norm_deviation(
    *, dim: int, beta: float, gamma: float, outside: float, directions: int = 1
) -> float:
    """η: a rotated pancake's density is within 1 ± η of the Gaussian's, except for short noise.

    "Short" is a squared length below a·σ², with P(χ²_{d−k} < a) = ``outside``, k the
    ``directions``. Both the Gaussian (χ²_d) and the pancake (χ²_{d−k} and more) are that short with
    probability at most ``outside``. inf where nothing is proven.

    Proof. By Poisson summation (smoothing/PROOF.md, Sections 1 and 3, τ = 0) a pancake's density
    over the Gaussian's is Σ_m exp(−π|m|²β²)·exp(i⟨a_m, v⟩)/(1+L)^k, m over Z^k, |a_m| =
    √(2π)·γ|m|/σ, L = 2Σ exp(−πj²r²). A Haar rotation averages that over the sphere of radius |v|,
    where exp(i⟨a, v⟩) has the mean Λ(|a||v|), Λ(x) = Γ(ν+1)(2/x)^ν·J_ν(x), ν = d/2 − 1. So the
    ratio is (1 + Σ_{m≠0} exp(−π|m|²β²)·Λ(√(2π)γ|m||v|/σ))/(1+L)^k, exactly. And |Λ(x)| is at most
    1; at most Γ(ν+1)(2/x)^ν, as |J_ν| ≤ 1; and below Λ's first zero, which is above ν, at most
    exp(−x²/4(ν+1)) (Euler's product, and Rayleigh's sum of the inverse squares of its zeros).
    Together these bounds fall with x, so with W the sum of their terms at |v|² = aσ² the ratio lies
    within (1 ± W)/(1+L)^k. Of the (2t+1)^k − (2t−1)^k integer points with largest coordinate t none
    is shorter than t.
    """
    nu, count = dim / 2 - 1, directions
    low = 0.0
    if dim > count:
        low = 2 * float(scipy.special.gammaincinv((dim - count) / 2, outside)) * (1 - 1e-6)
    if not (nu > count and low > 0):
        return math.inf
    one = math.sqrt(2 * math.pi * low) * gamma
    last = max(_SHELLS, math.ceil(nu / one))
    t = np.arange(1, last + 1, dtype=np.float64)
    points = (2 * t + 1) ** count - (2 * t - 1) ** count
    most = _at_most(t * one, nu)
    # from the last on E falls as t^−ν
    rest = 2 * count * 3.0 ** (count - 1) * float(most[-1]) * last**count / (nu - count)
    wave = float((points * np.exp(-math.pi * (beta * t) ** 2) * most).sum()) + rest
    r2 = beta * beta + gamma * gamma
    j = np.arange(1, 2 + math.ceil(4 / math.sqrt(r2)))
    lattice = (1 + 2 * float(np.exp(-math.pi * r2 * j**2).sum())) ** count - 1
    return (wave + lattice) / (1 + lattice) if wave < 1 else math.inf


def _at_most(x: Array, nu: float) -> Array:
    """A bound on |Λ| from each x on."""
    tail = np.minimum(0.0, math.lgamma(nu + 1) + nu * np.log(2 / np.maximum(x, nu)))
    short = np.where(x < nu, -x * x / (4 * (nu + 1)), -math.inf)
    out: Array = np.exp(np.maximum(tail, short))
    return out


_WAVES = 3000
_ALONG, _ACROSS, _FINE = 2401, 401, 200  # points of the grid's axes, and more of them near 0 and Δ
_LOST = 1e-6  # of δ, left out at each end of each axis


@functools.lru_cache(maxsize=64)
def rotated_epsilon(
    delta: float, *, dim: int, sigma: float, beta: float, gamma: float, sensitivity: float
) -> ProfileValue:
    """ε at ``delta`` of a pancake's noise under a secret Haar rotation, at two queries Δ apart.

    The rotated noise has the density φ_σ(v)·w(|v|/σ), with w of :func:`radial_ratio`. So
    ``δ(ε) = ∫∫ φ(x)·χ_{d−1}(y)·w(r)·(1 − e^{ε−l})₊ dy dx``, ``r² = x²+y²``,
    ``l = ln w(r) − ln w(r′) + (t² − 2tx)/2``, ``r′² = (x−t)²+y²``, ``t = Δ/σ``: x along the
    queries' difference, y across.

    ``error`` is an estimate: twice the change on doubling the grid's steps (the trapezoid rule,
    extrapolated), and what is left out. For one release and one secret direction. Not claimed:
    distances below Δ, whose ε need not be smaller where w is far from 1; the lattice.
    """
    t = sensitivity / sigma
    lost = _LOST * delta
    far = (
        float(scipy.special.ndtri(1 - lost)) if lost > 1e-16 else -float(scipy.special.ndtri(lost))
    )
    step = np.geomspace(1e-5, 1.0, _FINE)
    x = _axis(-far - t, far + t, _ALONG, -step, step, t - step, t + step)
    low, high = (
        2 * f((dim - 1) / 2, lost) for f in (scipy.special.gammaincinv, scipy.special.gammainccinv)
    )
    y = _axis(
        math.sqrt(low),
        math.sqrt(high),
        _ACROSS,
        np.geomspace(math.sqrt(low), math.sqrt(high), _FINE),
    )
    reach = math.hypot(far + 2 * t, y[-1]) * 1.001
    shells = reach * gamma / math.sqrt(2 * math.pi)
    radius = _axis(
        0.0, reach, min(20_000, max(1000, math.ceil(24 * shells))), np.geomspace(1e-7, 1.0, _FINE)
    )
    ratio, left_out = radial_ratio(radius, dim=dim, beta=beta, gamma=gamma)
    if not np.isfinite(ratio).all():  # Λ overflows in hundreds of dimensions
        return ProfileValue(0.0, math.inf)
    log_ratio = scipy.interpolate.CubicSpline(radius, np.log(np.maximum(ratio, 1e-300)))
    doubt = left_out / np.maximum(ratio, 1e-12)
    here, there = np.hypot(x[:, None], y), np.hypot(x[:, None] - t, y)
    near = log_ratio(here)
    loss = near - log_ratio(there) + (t * t - 2 * t * x[:, None]) / 2
    unsure = np.interp(here, radius, doubt) + np.interp(there, radius, doubt)
    log_chi = (
        (dim - 2) * np.log(y) - y * y / 2 - math.lgamma((dim - 1) / 2) - (dim - 3) / 2 * math.log(2)
    )
    mass = np.exp(near + log_chi - x[:, None] ** 2 / 2) / math.sqrt(2 * math.pi)

    possible = mass * unsure
    highest = (loss + unsure).max(1)

    def over(values: Array, rows: slice, every: int) -> float:
        """The integral of what is 0 outside ``rows``, on every point or every other one."""
        lines = np.zeros(len(x))
        lines[rows] = np.trapezoid(values[:, ::every], y[::every])
        return float(np.trapezoid(lines[::every], x[::every]))

    def profile(epsilon: float) -> ProfileValue:
        above = np.flatnonzero(highest > epsilon)
        rows = slice(above[0], above[-1] + 1) if len(above) else slice(0)
        lost_here = loss[rows]
        inside = mass[rows] * -np.expm1(np.minimum(0.0, epsilon - lost_here))
        fine, coarse = over(inside, rows, 1), over(inside, rows, 2)
        doubtful = np.where(lost_here > epsilon - unsure[rows], possible[rows], 0.0)
        missing = over(doubtful, rows, 1) + 4 * lost
        return ProfileValue(max(0.0, fine + (fine - coarse) / 3), 2 * abs(fine - coarse) + missing)

    start = gaussian_epsilon(delta, sigma=sigma, sensitivity=sensitivity) + 1e-3
    return invert(profile, delta, start=start)


def _axis(low: float, high: float, points: int, *more: Array) -> Array:
    """Ascending points from ``low`` to ``high``, evenly spaced, and ``more`` at narrow features."""
    every = np.concatenate([np.linspace(low, high, points), *more])
    return np.unique(every[(low <= every) & (every <= high)])


def radial_ratio(radius: Array, *, dim: int, beta: float, gamma: float) -> tuple[Array, Array]:
    """A rotated pancake's density over the Gaussian's at each |v|/σ (n,), and its error (n,).

    ``w(r) = (1 + 2Σ_m exp(−πm²β²)·Λ(√(2π)γmr))/(1 + 2Σ exp(−πm²(β²+γ²)))``, Λ the sphere's
    transform: the identity that :func:`norm_deviation` proves. The error bounds the waves left out.
    """
    nu, total, left = dim / 2 - 1, np.ones(len(radius)), np.zeros(len(radius))
    active = np.arange(len(radius))
    log_gamma = math.lgamma(nu + 1)
    for m in range(1, _WAVES + 1):
        weight = 2 * math.exp(-math.pi * (m * beta) ** 2)
        x = math.sqrt(2 * math.pi) * gamma * m * radius[active]
        total[active] += weight * scipy.special.hyp0f1(nu + 1, -x * x / 4)
        # |J_ν(x)| < x^−½ past its turning point; the following waves sum to below m + 1/β of them
        far = np.maximum(x, 2 * nu + 2)
        rest = np.where(x < far, 1.0, np.exp(log_gamma + nu * np.log(2 / far)) / np.sqrt(far))
        rest *= weight * min(m / max(nu - 0.5, 0.05), 0.5 / beta)
        left[active] = rest
        active = active[rest > 1e-13]
        if weight < 1e-17 or not active.size:
            break
    r2 = beta * beta + gamma * gamma
    lattice = 1 + 2 * sum(
        math.exp(-math.pi * r2 * j * j) for j in range(1, 2 + math.ceil(4 / math.sqrt(r2)))
    )
    return total / lattice, left / lattice


_SHARES = (0.1, 1e-3, 1e-6, 1e-9)
_TIGHT = 1e-3  # nats between the theorem's bounds: tight enough


def gaussian_on_lattice(delta: float, *, sigma: float, host: Host) -> EpsilonBounds:
    """N(0, σ²I) and the query, each rounded to the lattice of g = ``lattice_step(sigma)``.

    In real arithmetic.

    ``high``: K + rint(N/g) = rint(K + N/g) for integers K, so the release is post-processing of the
    Gaussian mechanism at K·g, whose sensitivity is Δ + g√d. ``low``: with u the neighbours'
    difference over its length, the two roundings move ⟨release, u⟩ by at most g√d, so the test {⟨y
    − q, u⟩ ≥ c} does as well as on Gaussian noise at Δ − 2g√d. It takes Δ to be attained, and a
    release that no narrower dtype has rounded further.
    """
    high = gaussian_epsilon(
        delta, sigma=sigma, sensitivity=RoundedHost(host, lattice_step(sigma)).sensitivity
    )
    near = host.sensitivity - 2 * lattice_step(sigma) * math.sqrt(host.dim)
    low = gaussian_epsilon(delta, sigma=sigma, sensitivity=near) if near > 0 else 0.0
    return EpsilonBounds(
        low=low, high=high, says="Gaussian profile at Δ − 2g√d and Δ + g√d: rounded to a lattice"
    )


def haar_rotated(source: NoiseSource, delta: float, *, host: Host) -> EpsilonBounds:
    """ε of one noise vector under a secret Haar rotation, released on the lattice.

    Exact but for the lattice for Gaussian noise, which no rotation changes. For a pancake the
    Gaussian's, up to how far the norms' laws differ (:func:`pancake_under_haar`). Unknown for every
    other source.
    """
    if isinstance(source, Pancake):
        return pancake_under_haar(source, delta, host=host)
    return orthogonally_turned(
        source, delta, host=host, statement="unknown: rests on the law of the source's norm"
    )


def haar_rotated_together(source: NoiseSource, delta: float, *, host: Host) -> EpsilonBounds:
    """ε of one vector of a call with one Haar rotation, against somebody who may know the others.

    Gaussian vectors stay independent. A pancake's share a secret direction, which the others can
    reveal, so that nothing bounds ε from above except in a call of one release, where it is
    :func:`haar_rotated`'s.
    """
    own = haar_rotated(source, delta, host=host)
    if isinstance(source, Gaussian) or own.high == math.inf:
        return own
    statement = (
        "unknown: others of the call tell of the direction; "
        f"≤ {own.high:.4g} in a call of one release"
    )
    return EpsilonBounds(low=own.low, high=math.inf, says=statement)


def pancake_under_haar(source: Pancake, delta: float, *, host: Host) -> EpsilonBounds:
    """ε by a theorem where the norm's law is near χ; else by integration over the radius.

    The theorem uses the density's ratio to the Gaussian's, within 1 ± η except on a set A of short
    noise (``norm_deviation``). With κ = P(A) at most, F the rotated pancake's law at a query, G the
    Gaussian's (ε, δ′), and a prime for the neighbour's: F(S) ≤ κ + (1+η)·G(S∖A) ≤ κ + (1+η)·(δ′ +
    e^ε·(κ + F′(S)/(1−η))), and from below, for S with G(S) = δ′ + e^ε·G′(S), F(S) ≥ (1−η)·(G(S) −
    κ) ≥ (1−η)·(δ′ − κ + e^ε·(F′(S) − κ)/(1+η)). κ ≤ share·δ·e^−ε/4, for the share that leaves the
    bounds closest: a smaller A costs η, a larger one δ.

    The exact profile (``rotated_epsilon``) is numerical, for one direction and a host whose
    neighbours are all Δ apart.
    """
    proven = min(
        (_by_theorem(source, delta, host=host, share=s) for s in _SHARES),
        key=lambda b: b.high - b.low,
    )
    if proven.high - proven.low <= _TIGHT or source.key.directions > 1 or hasattr(host, "slack"):
        return proven
    exact = rotated_epsilon(
        delta,
        dim=host.dim,
        sigma=source.sigma,
        beta=source.key.beta,
        gamma=source.key.gamma,
        sensitivity=host.sensitivity,
    )
    if not 2 * exact.error < proven.high - proven.low:
        return proven
    low, high = max(0.0, exact.value - exact.error), exact.value + exact.error
    return EpsilonBounds(
        low=low, high=high, says="exact profile by radial integration; the lattice neglected"
    )


def _by_theorem(source: Pancake, delta: float, *, host: Host, share: float) -> EpsilonBounds:
    g, k = lattice_step(source.sigma), source.key.directions

    def gaussian(at: float, sensitivity: float) -> float:
        return gaussian_epsilon(at, sigma=source.sigma, sensitivity=sensitivity)

    most = RoundedHost(host, g).sensitivity
    least = host.sensitivity - 2 * g * math.sqrt(host.dim)
    outside = share / 4 * delta * math.exp(-min(gaussian(0.45 * delta, most), 700.0))
    eta = norm_deviation(
        dim=host.dim, beta=source.key.beta, gamma=source.key.gamma, outside=outside, directions=k
    )
    if not eta < 1:
        return EpsilonBounds(
            low=0.0, high=math.inf, says="unknown: the norm's law may be far from χ"
        )
    more = math.log1p(eta) - math.log1p(-eta)
    high = more + gaussian((1 - share) * delta / (1 + eta), most)
    raised = delta / (1 - eta) + share / 2 * delta
    low = gaussian(raised, least) - more if least > 0 and raised < 1 else 0.0
    return EpsilonBounds(
        low=max(0.0, low), high=high, says=f"Poisson summation on spheres, η = {eta:.2g}"
    )


def orthogonally_turned(
    source: NoiseSource, delta: float, *, host: Host, statement: str
) -> EpsilonBounds:
    """ε of noise under an independent orthogonal map, on the lattice; else ``statement``."""
    if isinstance(source, Gaussian):
        return gaussian_on_lattice(delta, sigma=source.sigma, host=host)
    if isinstance(source, NormChannel):  # its reader uses what the map keeps
        own = source.epsilon(delta, host=host)
        return EpsilonBounds(
            low=own.low, high=math.inf, says=f"the norm passes a rotation: {own.says}"
        )
    return EpsilonBounds(low=0.0, high=math.inf, says=statement)
