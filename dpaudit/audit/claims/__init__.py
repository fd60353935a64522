"""Privacy claims, of which each is a trade-off function: (ε, δ), μ, ρ, Rényi, tables, DP-SGD.

A :class:`PrivacyClaim` is what an audit judges. A claim other than (ε, δ) and μ brings its own
terms (:class:`StatedClaim`): what it implies as (ε, δ), at one δ and at many ε at once, what
several calls keep together, and whether a simultaneous band of event probabilities contradicts it
directly, which is the sharper test.
"""

from dpaudit.audit.claims.claim import PrivacyClaim, StatedClaim
from dpaudit.audit.claims.parameters import (
    Gaussian,
    Renyi,
    Steps,
    ZeroConcentrated,
    epsilon_of_renyi,
)
from dpaudit.audit.claims.tables import DeltaCurve, TradeOff

__all__ = [
    "DeltaCurve",
    "Gaussian",
    "PrivacyClaim",
    "Renyi",
    "StatedClaim",
    "Steps",
    "TradeOff",
    "ZeroConcentrated",
    "epsilon_of_renyi",
]
