"""pyarrow, if it is installed."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

from dpaudit.errors import MissingExtraError

__all__ = ["parquet_library"]


def parquet_library(path: Path) -> tuple[Any, Any]:
    """``pyarrow`` and ``pyarrow.parquet``, to read or write ``path``.

    Raises:
        MissingExtraError: not installed.
    """
    try:
        return importlib.import_module("pyarrow"), importlib.import_module("pyarrow.parquet")
    except ModuleNotFoundError:
        raise MissingExtraError(
            f"nmf={path}: needs pyarrow, which is not installed; pip install 'dpaudit[parquet]'"
        ) from None
