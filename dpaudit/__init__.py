"""dpaudit audits third-party differential-privacy noise.

>>> import dpaudit
>>> result = dpaudit.audit_sampler(
...     "python:numpy.random:standard_normal", claim="gaussian:sigma=1", samples=20_000, seed=1
... )
>>> result.verdict in {"no-finding", "finding"}
True
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__all__ = [
    "__version__",
    "assert_private_step",
    "audit_datasets",
    "audit_loader",
    "audit_mechanism",
    "audit_optimizer",
    "audit_sampler",
    "audit_training",
    "replay",
    "secure_noise",
    "write_report",
]

__version__ = "0.1.0"

if TYPE_CHECKING:
    from dpaudit.audit import audit_sampler
    from dpaudit.audit.mechanism import audit_datasets, audit_mechanism
    from dpaudit.audit.replay.run import replay
    from dpaudit.audit.training import audit_loader, audit_training
    from dpaudit.optimizers import assert_private_step, audit_optimizer
    from dpaudit.queries.opacus import secure_noise
    from dpaudit.report import write_report


_HOMES = {
    "assert_private_step": "optimizers",
    "audit_datasets": "audit.mechanism",
    "audit_loader": "audit.training",
    "audit_mechanism": "audit.mechanism",
    "audit_optimizer": "optimizers",
    "audit_sampler": "audit",
    "audit_training": "audit.training",
    "replay": "audit.replay.run",
    "secure_noise": "queries.opacus",
    "write_report": "report",
}


def __getattr__(name: str) -> Any:
    if name in _HOMES:  # imported on use: --version and --help do not wait for numpy
        return getattr(importlib.import_module(f"dpaudit.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'dpaudit' has no attribute {name!r}")
