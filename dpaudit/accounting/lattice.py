"""What Gaussian noise on a lattice costs under an accountant of the continuous mechanism."""

from __future__ import annotations

import math
from dataclasses import dataclass

from dpaudit.accounting._checks import below_one, number, positive
from dpaudit.errors import UsageError

__all__ = ["LatticeSlack", "lattice_slack"]


@dataclass(frozen=True, slots=True)
class LatticeSlack:
    """A run on a lattice, as a run of the continuous Gaussian mechanism and a distance from it.

    Attributes:
        noise_multiplier: what to give the accountant.
        total_variation: η, the run's distance from that mechanism's, rounded.
    """

    noise_multiplier: float
    total_variation: float

    def delta(self, epsilon: float, *, delta: float) -> float:
        """δ of the run at ``epsilon``, where the accountant says (``epsilon``, ``delta``)."""
        number(epsilon=epsilon)
        below_one(delta)
        return min(1.0, delta + (1 + math.exp(epsilon)) * self.total_variation)


def lattice_slack(
    noise_multiplier: float, *, dim: int, steps: int, scale: float = 2.0**24
) -> LatticeSlack:
    """Account for ``steps`` releases g·(rint(S/g) + Z), as of ``dpaudit.secure_noise``.

    S is a vector of ``dim`` numbers that one record moves by at most C in ℓ₂; Z is discrete
    Gaussian, of independent integers, at ``scale`` s = σ/g or finer; σ = ``noise_multiplier`` × C.
    ``secure_noise`` has s in [2²⁴, 2²⁵).

    Formal guarantee: where an accountant (RDP, PRV, GDP or any other) gives (ε, δ) for the same run
    of the continuous Gaussian mechanism at ``result.noise_multiplier``, with the same sampling of
    batches, the run is (ε, ``result.delta(ε, delta=δ)``)-DP. Not claimed: anything of S itself, or
    of the generator behind Z.

    Proof. (1) |rint(a) − rint(b)| ≤ |a − b| + 1 in each coordinate, so K = rint(S/g) moves by at
    most C/g + √d. (2) Let R = rint(s·N(0, 1)). K + R = rint(K + s·N(0, 1)) is post-processing of
    the Gaussian mechanism of multiplier s/(C/g + √d) = z/(1 + z√d/s), which grows with s. (3) Let P
    be the law of Z, Q that of R, φ the density of s·N(0, 1), and u uniform on ±½. Then Q(k)/φ(k) =
    E exp(−u²/2s²)·cosh(ku/s²). By Jensen's inequality, log cosh y ≥ y²/2 − y⁴/12, E u² = 1/12 and
    E u⁴ = 1/80, ln(Q(k)/φ(k)) ≥ −1/24s² + k²/24s⁴ − k⁴/960s⁸. P = φ/N with N = Σφ(k) ≥ 1. By
    Poisson summation, with y = 2πms, E_P k² ≥ s²(1 − 2Σ_m y²e^(−y²/2)) and E_P k⁴ ≤ s⁴(3 +
    2Σ_m y⁴e^(−y²/2)); with their factors these sums over m ≥ 1 are below 3·10⁻⁷ and 10⁻⁵ at s = 1
    and fall faster than s⁻⁴. So KL(P‖Q) ≤ 3/960s⁴ + 10⁻⁷/s⁴ < 1/300s⁴ = κ. (4) The run is a
    function of its batches' coins and the T·d numbers Z, so it is within T·d·κ of the run with R in
    KL, and within η = √(T·d·κ/2) in total variation (Pinsker). (5) With P_x, Q_x the runs' laws,
    for neighbours x, x' and any event, P_x ≤ Q_x + η ≤ e^ε·Q_x' + δ + η ≤ e^ε·(P_x' + η) + δ + η.

    >>> slack = lattice_slack(1.0, dim=25_000_000, steps=10_000)
    >>> f"{slack.noise_multiplier:.5f} {slack.total_variation:.1e}"
    '0.99970 7.3e-11'
    >>> f"{slack.delta(3.0, delta=1e-5):.7e} {slack.delta(8.0, delta=1e-5):.3e}"
    '1.0001529e-05 1.022e-05'

    Raises:
        UsageError: an argument that is not a finite number above 0, or a scale below 1.
    """
    positive(noise_multiplier=noise_multiplier, dim=dim, steps=steps, scale=scale)
    if scale < 1:
        raise UsageError(f"scale={scale}: the bound holds from 1 lattice step on; take a finer one")
    distance = math.sqrt(steps * dim / (2 * 300)) / scale**2
    multiplier = noise_multiplier / (1 + noise_multiplier * math.sqrt(dim) / scale)
    return LatticeSlack(multiplier, min(1.0, distance))
