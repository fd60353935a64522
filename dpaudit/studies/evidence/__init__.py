"""Commands that measured what the documents quote: ``python -m dpaudit.studies.evidence.NAME``.

They run in a checkout: results go to ``docs/results/``, inputs are in ``tests/data``.
"""

from __future__ import annotations

import os
import platform
from pathlib import Path

__all__ = ["MACHINE", "RESULTS", "ROOT"]

ROOT = Path(__file__).resolve().parents[3]
"""The checkout."""
RESULTS = ROOT / "docs" / "results"

MACHINE = (
    f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores, "
    f"Python {platform.python_version()}"
)
"""This machine in words."""
