"""The ε audit of whole mechanisms: lower bounds for ε, δ and μ from releases at two neighbours, or from one run."""

from dpaudit.audit.epsilon.recorded import audit_scores
from dpaudit.audit.epsilon.run import audit_mechanism, run_mechanism_audit

__all__ = ["audit_mechanism", "audit_scores", "run_mechanism_audit"]
