"""The experiments and published values that packages ship, ours by the door of strangers.

A package that has experiments registers itself in the entry-point group ``dpaudit.experiments``.
Its folder ``specs`` holds them as TOML, ``published`` the values of papers as CSV.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from importlib.resources import files
from importlib.resources.abc import Traversable

from dpaudit import registry

__all__ = ["published_files", "shipped_specs"]


def shipped_specs() -> Mapping[str, Traversable]:
    """The spec files of all packages, by the experiment's name.

    Raises:
        DuplicatePluginError: two distributions register one package name.
    """
    return _files("specs", ".toml")


def published_files() -> Mapping[str, Traversable]:
    """The files of published values of all packages, by name."""
    return _files("published", ".csv")


@functools.cache
def _files(folder: str, ending: str) -> Mapping[str, Traversable]:
    found: dict[str, Traversable] = {}
    for plugin in registry.plugins("experiments").values():
        try:
            place = files(plugin.target) / folder
        except ModuleNotFoundError:  # taken off the disk: its experiments are not there
            continue
        if place.is_dir():
            inside = (p for p in place.iterdir() if p.name.endswith(ending))
            found |= {p.name.removesuffix(ending): p for p in inside}
    return dict(sorted(found.items()))
