"""Imports the pipeline's own modules so that ``float``, ``int`` and ``sum`` keep following noise.

The files are not changed: the calls are renamed in the syntax tree that is compiled, line by line
as in the file. C code would return plain numbers, and the noise in them would leave our sight.
"""

from __future__ import annotations

import ast
import builtins
import functools
import importlib
import importlib.machinery
import operator
import sys
from collections.abc import Callable, Sequence
from typing import Any

from .noise import derive, follow, meta_of
from .tape import FOLDERS, INSIDE
from .values import base

_NAMES = {name: f"_dpaudit_{name}" for name in ("float", "int", "sum")}


class _Renamed(ast.NodeTransformer):
    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        if isinstance(node.func, ast.Name) and node.func.id in _NAMES and len(node.args) == 1:
            node.func = ast.copy_location(ast.Name(_NAMES[node.func.id], ast.Load()), node.func)
        return node


class Loader(importlib.machinery.SourceFileLoader):
    """Loads a file of the pipeline."""

    def get_code(self, fullname: str) -> Any:
        path = self.get_filename(fullname)
        tree = _Renamed().visit(ast.parse(self.get_data(path), path))
        return compile(ast.fix_missing_locations(tree), path, "exec", dont_inherit=True)


class Finder:
    """Finds the pipeline's other modules, which are beside it."""

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: Any = None) -> Any:
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        origin = getattr(spec, "origin", None) or ""
        own = origin.startswith(tuple(FOLDERS)) and "site-packages" not in origin
        if spec is None or not own or type(spec.loader) is not importlib.machinery.SourceFileLoader:
            return None
        spec.loader = Loader(name, origin)
        return spec


def _converter(kind: type) -> Callable[..., Any]:
    def convert(value: Any, *args: Any, **kwargs: Any) -> Any:
        meta = meta_of(value)
        result = kind(base(value), *args, **kwargs)
        if meta is None:
            return result
        if result == base(value):
            return follow(result, meta)
        return derive(result, kind.__name__, meta)

    return convert


def _sum(items: Any, start: Any = 0) -> Any:
    """The sum of items; of noise alone it is noise, and not noise added to the number 0."""
    items = list(items)
    if not any(meta_of(item) is not None for item in items):
        return sum(items, start)
    if type(start) is int and start == 0:
        start, *items = items
    return functools.reduce(operator.add, items, start)


def _quiet(original: Callable[..., Any]) -> Callable[..., Any]:
    """An import: what a module draws while it is imported is no part of the run."""

    @functools.wraps(original)
    def load(*args: Any, **kwargs: Any) -> Any:
        with INSIDE:
            return original(*args, **kwargs)

    return load


def install() -> None:
    """Place what the renamed calls use, and the finder; once for each process."""
    builtins.__import__ = _quiet(builtins.__import__)
    importlib.import_module = _quiet(importlib.import_module)
    for name, ours in _NAMES.items():
        made = _sum if name == "sum" else _converter(getattr(builtins, name))
        setattr(builtins, ours, made)
    sys.meta_path.insert(0, Finder())
