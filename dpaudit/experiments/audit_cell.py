"""What the black-box battery says of an arm's noise."""

from __future__ import annotations

import dataclasses
import tempfile
from pathlib import Path
from typing import Any

from dpaudit import registry
from dpaudit.audit import audit_sampler
from dpaudit.audit.result import AuditResult
from dpaudit.codec import to_dict
from dpaudit.experiments.arm import Arm, plugin_options
from dpaudit.experiments.cell import Cell
from dpaudit.experiments.measure import Measure
from dpaudit.noise.key import PancakeKey
from dpaudit.noise.seed_in_noise.key import SeedKey
from dpaudit.types import Reference

__all__ = ["MEASURE", "audit_behind", "measure"]


def measure(cell: Cell, arm: Arm) -> dict[str, Any]:
    """An :class:`~dpaudit.audit.result.AuditResult`, JSON-ready.

    The noise becomes a closed sampler in a process of its own: the audit gets a name and a claim,
    never a key.
    """
    key = arm.key if hasattr(arm.source, "key") else None
    source, mitigation = (
        Reference(table["name"], plugin_options(table))
        for table in (cell.settings["source"], cell.settings["mitigation"])
    )
    result = audit_behind(
        source,
        mitigation,
        key=key,
        sigma=arm.sigma,
        claim=arm.claim,
        dim=arm.host.dim,
        seed=f"{cell.settings['seed']}/{cell.id}",
        **cell.settings["audit"],
    )
    return dict(to_dict(dataclasses.replace(result, sampler=cell.label)))


def audit_behind(
    source: Reference,
    mitigation: Reference,
    *,
    key: PancakeKey | SeedKey | None,
    sigma: float,
    claim: str,
    dim: int,
    seed: str,
    **audit: Any,
) -> AuditResult:
    """The black-box battery on ``source`` at ``sigma`` behind ``mitigation`` as a closed sampler.

    It runs in a process of its own, which reads the source's ``key``, if it has one, from a file
    that is gone afterwards. ``audit`` are options of :func:`~dpaudit.audit.audit_sampler`.
    """
    with tempfile.TemporaryDirectory(prefix="dpaudit-") as folder:
        options = {**source.options, "sigma": repr(sigma)}
        if key is not None:
            path = Path(folder) / "key.json"
            key.save(path)
            options["key"] = str(path)
        through = registry.offered("mitigations", mitigation, dim=dim)
        return audit_sampler(
            str(Reference(source.name, options)),
            claim=claim,
            dim=dim,
            seed=seed,
            mitigation=None if mitigation.name == "none" else str(through),
            **audit,
        )


MEASURE = Measure(run=measure)
