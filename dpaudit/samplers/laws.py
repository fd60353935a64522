"""The law that a mechanism's noise is said to have, known without drawing any."""

from __future__ import annotations

from dpaudit import registry
from dpaudit.samplers.adapters.base import Adapter, claimed
from dpaudit.types import Reference

__all__ = ["declared_law"]


def declared_law(name: str) -> str | None:
    """The claim of a library's mechanism or of one of dpaudit's sources; None if there is none.

    ``numpy:normal:scale=2`` gives ``gaussian:sigma=2``. Programs, functions, endpoints, recordings
    and other distributions' sources are not asked: nothing foreign is run for this.

    Raises:
        UnknownNameError, UsageError: no such mechanism, or options that it does not take.
    """
    kind, _, target = name.partition(":")
    if kind in registry.plugins("sources"):
        plugin = registry.plugins("sources")[kind]
        if plugin.origin.distribution != "dpaudit":
            return None
        law: str = registry.create("sources", Reference.parse(name)).claim
        return law
    if kind not in registry.plugins("samplers"):
        return None
    found = registry.load("samplers", kind)
    return claimed(*found.find(target)) if isinstance(found, Adapter) else None
