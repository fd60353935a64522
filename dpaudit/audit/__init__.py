"""The black-box audit: from a closed sampler and a claim to a verdict, without source or key."""

from typing import TYPE_CHECKING, Any

from dpaudit.audit.options import AuditOptions

__all__ = ["AuditOptions", "audit_sampler", "run_audit"]

if TYPE_CHECKING:
    from dpaudit.audit.run import audit_sampler, run_audit


def __getattr__(name: str) -> Any:
    if name in __all__:  # on use: options are checked before scipy and numba are loaded
        from dpaudit.audit import run

        return getattr(run, name)
    raise AttributeError(f"module 'dpaudit.audit' has no attribute {name!r}")
