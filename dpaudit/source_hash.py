"""A fingerprint of a package's Python sources as they lie on disk, without importing it."""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import os
import zipfile
import zlib
from collections.abc import Callable, Iterator
from importlib.machinery import ModuleSpec
from pathlib import Path

__all__ = ["source_hash"]

_Source = tuple[str, Callable[[], bytes]]


def source_hash(module: str) -> str:
    """SHA-256, in hexadecimal, of the Python sources of the package that ``module`` is in.

    Empty if there are none, or one cannot be read. The hash covers the package's ``.py`` files (a
    module without a package: its file; in a namespace package: the first package below it), each
    with its path and length, in the order of their paths: any change of a byte, a name or the set
    of files changes it; where the package is installed does not. Computed once per process and
    package, in milliseconds.

    Not claimed: that the process runs these sources (they may have changed since it imported them),
    nor anything about compiled extensions or other packages.
    """
    parts = module.split(".")
    for i in range(1, len(parts) + 1):
        name = ".".join(parts[:i])
        spec = _spec(name)
        if spec is None:
            return ""
        # a namespace has no sources of its own, only packages of many distributions
        if not _is_namespace(spec):
            return _hash_of(name)
    return ""


@functools.cache
def _hash_of(name: str) -> str:
    spec = _spec(name)
    if spec is None:
        return ""
    digest, found = hashlib.sha256(), False
    try:
        for path, read in sorted(_sources(spec), key=lambda source: source[0]):
            content = read()
            digest.update(f"{path}\0{len(content)}\0".encode("utf-8", "surrogateescape") + content)
            found = True
    except (OSError, RuntimeError, zipfile.BadZipFile, zlib.error):
        return ""
    return digest.hexdigest() if found else ""


def _spec(name: str) -> ModuleSpec | None:
    try:
        return importlib.util.find_spec(name)
    except (ImportError, AttributeError, ValueError):  # no such parent, or a hand-made module
        return None


def _is_namespace(spec: ModuleSpec) -> bool:
    return spec.origin is None and spec.submodule_search_locations is not None


def _sources(spec: ModuleSpec) -> Iterator[_Source]:
    if spec.submodule_search_locations is None:
        if spec.origin is not None and spec.origin.endswith(".py"):
            path = Path(spec.origin)
            if path.is_file():
                yield path.name, path.read_bytes
            else:
                yield from _zipped(path.parent, only=path.name)
        return
    for place in spec.submodule_search_locations:
        yield from _below(Path(place)) if Path(place).is_dir() else _zipped(Path(place))


def _below(folder: Path) -> Iterator[_Source]:
    """Sources below ``folder``, also behind links, as they can be imported; no folder twice."""
    seen = {os.path.realpath(folder)}
    for place, folders, files in os.walk(folder, followlinks=True):
        for name in files:
            path = Path(place, name)
            if name.endswith(".py") and path.is_file():
                yield path.relative_to(folder).as_posix(), path.read_bytes
        fresh = [(name, os.path.realpath(Path(place, name))) for name in sorted(folders)]
        folders[:] = [name for name, real in fresh if real not in seen]
        seen |= {real for _, real in fresh}


def _zipped(folder: Path, *, only: str = "") -> Iterator[_Source]:
    archive = next((p for p in (folder, *folder.parents) if p.is_file()), None)
    if archive is None or not zipfile.is_zipfile(archive):
        return
    inside = folder.relative_to(archive).as_posix()
    prefix = "" if inside == "." else f"{inside}/"
    with zipfile.ZipFile(archive) as opened:
        for name in opened.namelist():
            below = name.removeprefix(prefix)
            if name.startswith(prefix) and name.endswith(".py") and only in ("", below):
                yield below, functools.partial(bytes, opened.read(name))
