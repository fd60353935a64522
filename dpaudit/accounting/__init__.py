"""How much noise, how much privacy: Gaussian calibration, the pancake's bounds and its exact profile, composition.

δ is a probability, ε is in nats, Δ and σ share the query's unit.
"""

from __future__ import annotations

from dpaudit.accounting.bounds import pancake_epsilon_lower, pancake_epsilon_upper, peak_spacing, peak_width
from dpaudit.accounting.composition import compose_epsilon, compose_epsilon_trivial
from dpaudit.accounting.gaussian import gaussian_delta, gaussian_epsilon, gaussian_sigma, gaussian_sigma_paper
from dpaudit.accounting.host import pancake_host_epsilon
from dpaudit.accounting.profile import ProfileValue, pancake_delta, pancake_epsilon
from dpaudit.accounting.smoothing import (
    smoothed_pancake,
    smoothing_epsilon,
    smoothing_eta,
    smoothing_ratio,
    smoothing_tau,
    smoothing_tau_at_ratio,
)

__all__ = [
    "ProfileValue",
    "compose_epsilon",
    "compose_epsilon_trivial",
    "gaussian_delta",
    "gaussian_epsilon",
    "gaussian_sigma",
    "gaussian_sigma_paper",
    "pancake_delta",
    "pancake_epsilon",
    "pancake_epsilon_lower",
    "pancake_epsilon_upper",
    "pancake_host_epsilon",
    "peak_spacing",
    "peak_width",
    "smoothed_pancake",
    "smoothing_epsilon",
    "smoothing_eta",
    "smoothing_ratio",
    "smoothing_tau",
    "smoothing_tau_at_ratio",
]
