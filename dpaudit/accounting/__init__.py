"""Privacy of noise: calibrations, exact profiles, the pancake's bounds, composition, shuffling.

δ is a probability, ε is in nats, Δ and σ share the query's unit.
"""

from __future__ import annotations

from dpaudit.accounting.composition import compose_epsilon, compose_epsilon_trivial
from dpaudit.accounting.host import pancake_host_composition, pancake_host_epsilon
from dpaudit.accounting.mechanisms import (
    exponential_delta,
    exponential_epsilon,
    gaussian_delta,
    gaussian_epsilon,
    gaussian_sigma,
    gaussian_sigma_classical,
    gaussian_sigma_paper,
    laplace_delta,
    laplace_epsilon,
    laplace_scale,
)
from dpaudit.accounting.profile import (
    ProfileValue,
    pancake_delta,
    pancake_epsilon,
    pancake_epsilon_lower,
    pancake_epsilon_upper,
    peak_spacing,
    peak_width,
    smoothed_pancake,
    smoothing_epsilon,
    smoothing_eta,
    smoothing_ratio,
    smoothing_tau,
    smoothing_tau_at_ratio,
)
from dpaudit.accounting.sequences import (
    GaussianLoss,
    LaplaceLoss,
    Loss,
    PrivacyLoss,
    compose,
    optimal_delta,
)
from dpaudit.accounting.shuffling import (
    shuffled_closed_form,
    shuffled_delta,
    shuffled_epsilon,
    shuffled_response_epsilon,
)

__all__ = [
    "GaussianLoss",
    "LaplaceLoss",
    "Loss",
    "PrivacyLoss",
    "ProfileValue",
    "compose",
    "compose_epsilon",
    "compose_epsilon_trivial",
    "exponential_delta",
    "exponential_epsilon",
    "gaussian_delta",
    "gaussian_epsilon",
    "gaussian_sigma",
    "gaussian_sigma_classical",
    "gaussian_sigma_paper",
    "laplace_delta",
    "laplace_epsilon",
    "laplace_scale",
    "optimal_delta",
    "pancake_delta",
    "pancake_epsilon",
    "pancake_epsilon_lower",
    "pancake_epsilon_upper",
    "pancake_host_composition",
    "pancake_host_epsilon",
    "peak_spacing",
    "peak_width",
    "shuffled_closed_form",
    "shuffled_delta",
    "shuffled_epsilon",
    "shuffled_response_epsilon",
    "smoothed_pancake",
    "smoothing_epsilon",
    "smoothing_eta",
    "smoothing_ratio",
    "smoothing_tau",
    "smoothing_tau_at_ratio",
]
