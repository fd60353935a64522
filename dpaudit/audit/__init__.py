"""The black-box audit: from a closed sampler and a claim to a verdict, without source or key."""

from dpaudit.audit.options import AuditOptions
from dpaudit.audit.run import audit_sampler, run_audit

__all__ = ["AuditOptions", "audit_sampler", "run_audit"]
