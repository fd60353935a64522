"""The ε audit of whole mechanisms: lower bounds for ε, δ and μ from releases or from one run."""

from dpaudit.audit.claims import PrivacyClaim
from dpaudit.audit.mechanism.one_run_audits import audit_scores
from dpaudit.audit.mechanism.question import parse_neighbours
from dpaudit.audit.mechanism.run import audit_datasets, audit_mechanism, run_mechanism_audit
from dpaudit.audit.options import MechanismOptions

__all__ = [
    "MechanismOptions",
    "PrivacyClaim",
    "audit_datasets",
    "audit_mechanism",
    "audit_scores",
    "parse_neighbours",
    "run_mechanism_audit",
]
