"""The worker process in another environment's Python: ``python -I elsewhere_main.py PLACES NAME``.

PLACES is JSON: the ``packages`` that this Python may import although it does not have them, with
the path of each one's ``__init__.py``, and ``empty`` modules, for parts of a library that are not
needed and cannot be imported here. Nothing else of the auditor's environment is seen.
"""

from __future__ import annotations

import importlib.util
import json
import os
import runpy
import sys
import types
from collections.abc import Mapping, Sequence
from importlib.abc import Loader
from importlib.machinery import ModuleSpec
from typing import Any


class Packages:
    """A finder of some packages, wherever they are; all others are left to this Python."""

    def __init__(self, places: Mapping[str, str], empty: Sequence[str]) -> None:
        self._places, self._empty = places, empty

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        """The package of that name, if it is one of ours."""
        del path, target
        place = self._places.get(name)
        if place is not None:
            inside = [os.path.dirname(place)]
            return importlib.util.spec_from_file_location(
                name, place, submodule_search_locations=inside
            )
        if any(name == one or name.startswith(f"{one}.") for one in self._empty):
            return ModuleSpec(name, Empty(), is_package=True)
        return None


class Empty(Loader):
    """A loader of modules without code, in which every public name is a class that does nothing."""

    def create_module(self, spec: ModuleSpec) -> types.ModuleType:
        """A module that makes up each name on first use."""
        return _Module(spec.name)

    def exec_module(self, module: types.ModuleType) -> None:
        """There is no code to run."""


class _Module(types.ModuleType):
    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _Nothing(name, (), {})


class _Nothing(type):
    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda *_, **__: None


def _main() -> None:
    request = json.loads(sys.argv.pop(1))
    sys.meta_path.insert(0, Packages(request["packages"], request["empty"]))
    runpy.run_module("dpaudit.targets.endpoints.worker_main", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    _main()
