"""diffprivlib 0.4.1's mechanisms, run in its environment: ``python diffprivlib_old.py JSON``.

Its models cannot be imported with a scikit-learn that runs on this Python; they are not needed and
left out.
"""

from __future__ import annotations

import importlib
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any


def _imported() -> Any:
    sys.modules["diffprivlib.models"] = types.ModuleType("diffprivlib.models")
    return importlib.import_module("diffprivlib.mechanisms")


def _made(library: Any, name: str, options: dict[str, float]) -> Callable[[Any], Any]:
    """The ``randomise`` of the mechanism ``name``."""
    randomise: Callable[[Any], Any] = getattr(library, name)(**options).randomise
    return randomise


if __name__ == "__main__":
    sys.path.append(str(Path(__file__).parent))  # an isolated Python leaves it out
    importlib.import_module("released").write_releases(_imported, _made)
