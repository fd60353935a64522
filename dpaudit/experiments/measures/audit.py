"""What the black-box battery says of an arm's noise."""

from __future__ import annotations

import dataclasses
import tempfile
from pathlib import Path
from typing import Any

from dpaudit.audit import audit_sampler
from dpaudit.experiments.arm import Arm, plugin_options
from dpaudit.experiments.spec import Cell
from dpaudit.types import Reference, to_dict

__all__ = ["measure"]


def measure(cell: Cell, arm: Arm) -> dict[str, Any]:
    """An :class:`~dpaudit.types.AuditResult`, JSON-ready.

    The noise becomes a closed sampler in a process of its own: the audit gets a name and a claim, never a key.
    """
    with tempfile.TemporaryDirectory(prefix="dpaudit-") as folder:
        options = plugin_options(cell.settings["source"])
        options["sigma"] = repr(arm.sigma)
        if arm.key is not None and hasattr(arm.source, "key"):
            path = Path(folder) / "key.json"
            arm.key.save(path)
            options["key"] = str(path)
        mitigation = cell.settings["mitigation"]
        through = plugin_options(mitigation)
        if hasattr(arm.mitigation, "tau"):
            through = {"tau": repr(arm.mitigation.tau)}
        result = audit_sampler(
            str(Reference(cell.settings["source"]["name"], options)),
            claim=arm.claim,
            dim=arm.host.dim,
            seed=f"{cell.settings['seed']}/{cell.id}",
            mitigation=None if mitigation["name"] == "none" else str(Reference(mitigation["name"], through)),
            **cell.settings["audit"],
        )
    return dict(to_dict(dataclasses.replace(result, sampler=cell.label)))
