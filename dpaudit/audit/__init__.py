"""The black-box audit: a closed sampler and a claim in, a verdict out. It never sees a source, a key or a host."""

from dpaudit.audit.options import AuditOptions
from dpaudit.audit.run import audit_sampler, run_audit

__all__ = ["AuditOptions", "audit_sampler", "run_audit"]
