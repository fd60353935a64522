"""What people draw noise with, and what to try on it: the cases of ``dpaudit run libraries``, one library a block."""

from __future__ import annotations

from dpaudit.studies.libraries.case import Case
from dpaudit.studies.libraries.catalogue import CASES, case

__all__ = ["CASES", "Case", "case"]
