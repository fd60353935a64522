"""The optional library for lattice reduction."""

from __future__ import annotations

import importlib
from typing import Any

from dpaudit.errors import MissingExtraError

__all__ = ["lattice_library"]


def lattice_library(method: str) -> Any:
    """The module ``fpylll``, which ``method`` needs.

    Raises:
        MissingExtraError: it is not installed.
    """
    try:
        return importlib.import_module("fpylll")
    except ImportError as error:
        raise MissingExtraError(
            f"{method}: needs fpylll, which cannot be imported ({error}); "
            "pip install 'dpaudit[lattice]'"
        ) from error
