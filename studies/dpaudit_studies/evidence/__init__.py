"""Commands that measured what the documents quote: ``python -m dpaudit_studies.evidence.NAME``.

They run in a checkout: results go to ``docs/studies/results/``, inputs are in ``tests/data``.
"""

from __future__ import annotations

import platform
from importlib import import_module
from pathlib import Path
from typing import Any

from dpaudit.provenance import hardware

__all__ = ["MACHINE", "RESULTS", "ROOT", "plugin_module"]

ROOT = Path(__file__).resolve().parents[3]
"""The checkout."""
RESULTS = ROOT / "docs" / "studies" / "results"

MACHINE = f"{hardware()}, Python {platform.python_version()}"
"""This machine in words."""


def plugin_module(name: str) -> Any:
    """A module of the attacks or mitigations, by name: nothing in dpaudit imports them."""
    return import_module(f"dpaudit_{name}")
