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
from dpaudit.errors import DuplicatePluginError

__all__ = ["published_files", "shipped_specs"]


def shipped_specs() -> Mapping[str, Traversable]:
    """The spec files of all packages, by the experiment's name.

    Raises:
        DuplicatePluginError: two packages have an experiment of one name.
    """
    return _files("specs", ".toml")


def published_files() -> Mapping[str, Traversable]:
    """The files of published values of all packages, by name.

    Raises:
        DuplicatePluginError: two packages have a file of one name.
    """
    return _files("published", ".csv")


@functools.cache
def _files(folder: str, ending: str) -> Mapping[str, Traversable]:
    by_name: dict[str, Traversable] = {}
    for plugin in filter(lambda p: p.on_disk, registry.plugins("experiments").values()):
        place = files(plugin.target) / folder
        for file in place.iterdir() if place.is_dir() else ():
            name = file.name.removesuffix(ending)
            if name == file.name:
                continue
            if name in by_name:
                raise DuplicatePluginError(
                    f"{folder}={name}: {by_name[name]} and {file}; rename one, or uninstall it"
                )
            by_name[name] = file
    return dict(sorted(by_name.items()))
