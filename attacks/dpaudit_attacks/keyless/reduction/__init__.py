"""Reducers of lattices, and which of them are installed."""

from __future__ import annotations

import importlib.util

from dpaudit.errors import UsageError
from dpaudit_attacks.keyless.reduction.interface import Reducer
from dpaudit_attacks.keyless.reduction.with_blaster import BlasterReducer
from dpaudit_attacks.keyless.reduction.with_fpylll import FpylllReducer

__all__ = ["installed_reducers", "reducer"]

_MODULES: dict[str, type[BlasterReducer | FpylllReducer]] = {
    "fpylll": FpylllReducer,
    "blaster_core": BlasterReducer,
}


def installed_reducers() -> tuple[Reducer, ...]:
    """The reducers whose libraries are there; none is imported."""
    return tuple(
        kind() for module, kind in _MODULES.items() if importlib.util.find_spec(module) is not None
    )


def reducer(name: str | None = None) -> Reducer:
    """The reducer of this name; None: of those installed, the one that takes most rows.

    Raises:
        UsageError: no reducer has this name.
    """
    if name is None:
        return max(installed_reducers(), key=lambda one: one.most_rows, default=FpylllReducer())
    kinds = {kind.name: kind for kind in _MODULES.values()}
    if name not in kinds:
        raise UsageError(f"reducer={name}: must be one of {', '.join(kinds)}")
    return kinds[name]()
