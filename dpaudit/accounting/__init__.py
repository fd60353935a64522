"""Privacy of noise: calibrations, exact profiles, the pancake's bounds, composition, shuffling.

δ is a probability, ε is in nats, Δ and σ share the query's unit.
"""

from __future__ import annotations

from dpaudit.accounting.composition import (
    compose_epsilon,
    compose_epsilon_trivial,
    pancake_host_composition,
    pancake_host_epsilon,
)
from dpaudit.accounting.discrete import LatticeSlack, lattice_slack
from dpaudit.accounting.mechanisms import (
    gaussian_delta,
    gaussian_epsilon,
    gaussian_sigma,
    gaussian_sigma_paper,
    laplace_epsilon,
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
    Loss,
    compose,
    optimal_delta,
)
from dpaudit.accounting.shuffling import (
    shuffled_delta,
    shuffled_epsilon,
)

__all__ = [
    "LatticeSlack",
    "Loss",
    "ProfileValue",
    "compose",
    "compose_epsilon",
    "compose_epsilon_trivial",
    "gaussian_delta",
    "gaussian_epsilon",
    "gaussian_sigma",
    "gaussian_sigma_paper",
    "laplace_epsilon",
    "lattice_slack",
    "optimal_delta",
    "pancake_delta",
    "pancake_epsilon",
    "pancake_epsilon_lower",
    "pancake_epsilon_upper",
    "pancake_host_composition",
    "pancake_host_epsilon",
    "peak_spacing",
    "peak_width",
    "shuffled_delta",
    "shuffled_epsilon",
    "smoothed_pancake",
    "smoothing_epsilon",
    "smoothing_eta",
    "smoothing_ratio",
    "smoothing_tau",
    "smoothing_tau_at_ratio",
]
