"""dpaudit: the tool to reach for before trusting someone else's differential-privacy noise.

>>> import dpaudit
>>> result = dpaudit.audit_sampler(
...     "python:numpy.random:standard_normal", claim="gaussian:sigma=1", samples=20_000, seed=1
... )
>>> result.verdict in {"no-finding", "finding"}
True
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__all__ = ["__version__", "audit_sampler"]

__version__ = "0.1.0"

if TYPE_CHECKING:
    from dpaudit.audit import audit_sampler


def __getattr__(name: str) -> Any:
    if name == "audit_sampler":
        from dpaudit.audit import audit_sampler

        return audit_sampler
    raise AttributeError(f"module 'dpaudit' has no attribute {name!r}")
