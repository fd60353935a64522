"""dp-accounting's privacy loss distributions, an optional library."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType

from dpaudit.errors import MissingExtraError

__all__ = ["pld_modules"]


def pld_modules(asked: str, *names: str) -> tuple[ModuleType, ...]:
    """Modules of ``dp_accounting.pld``; without the library an error that says what was ``asked`` and what to install."""
    try:
        return tuple(import_module(f"dp_accounting.pld.{name}") for name in names)
    except ImportError as error:
        raise MissingExtraError(
            f"{asked}: dp-accounting is not installed; pip install 'dpaudit[accounting]'"
        ) from error
