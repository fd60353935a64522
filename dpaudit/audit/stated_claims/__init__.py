"""Claims other than (ε, δ) and μ: ρ-zCDP, Rényi, a δ(ε) curve, f as a table, and DP-SGD.

Each says what it implies as (ε, δ), at one δ and at many ε at once, and whether a simultaneous band
of event probabilities contradicts it directly, which is the sharper test.
"""

from dpaudit.audit.stated_claims.claim import StatedClaim
from dpaudit.audit.stated_claims.composition import composed
from dpaudit.audit.stated_claims.parameters import (
    Gaussian,
    Renyi,
    ZeroConcentrated,
    delta_of_renyi,
    epsilon_of_renyi,
)
from dpaudit.audit.stated_claims.steps import Steps
from dpaudit.audit.stated_claims.tables import DeltaCurve, Table, TradeOff

__all__ = [
    "DeltaCurve",
    "Gaussian",
    "Renyi",
    "StatedClaim",
    "Steps",
    "Table",
    "TradeOff",
    "ZeroConcentrated",
    "composed",
    "delta_of_renyi",
    "epsilon_of_renyi",
]
