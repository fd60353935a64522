"""A fingerprint of a package's Python sources as they lie on disk, without importing it."""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import zipfile
from collections.abc import Iterator
from importlib.machinery import ModuleSpec
from pathlib import Path

__all__ = ["source_hash"]


def source_hash(module: str) -> str:
    """SHA-256, in hexadecimal, of the Python sources of the package that ``module`` is in; empty if there are none.

    Over the package's ``.py`` files (a module without a package: its file; in a namespace package: the first package
    below it), each with its path and length, in the order of their paths: any byte, name or file more gives another
    hash, where the package is installed does not. Asked once a process for a package; milliseconds.

    Not claimed: that the process runs these sources (they may have changed since it imported them), nor anything about
    compiled extensions or other packages.
    """
    parts = module.split(".")
    for i in range(1, len(parts) + 1):
        name = ".".join(parts[:i])
        spec = _spec(name)
        if spec is None:
            return ""
        if not _is_namespace(spec):  # a namespace has no sources of its own, only packages of many distributions
            return _hash_of(name)
    return ""


@functools.cache
def _hash_of(name: str) -> str:
    spec = _spec(name)
    if spec is None:
        return ""
    digest, found = hashlib.sha256(), False
    try:
        for path, content in sorted(_sources(spec)):
            digest.update(f"{path}\0{len(content)}\0".encode() + content)
            found = True
    except OSError:
        return ""
    return digest.hexdigest() if found else ""


def _spec(name: str) -> ModuleSpec | None:
    try:
        return importlib.util.find_spec(name)
    except (ImportError, AttributeError, ValueError):  # a parent that is none, or a module put together by hand
        return None


def _is_namespace(spec: ModuleSpec) -> bool:
    return spec.origin is None and spec.submodule_search_locations is not None


def _sources(spec: ModuleSpec) -> Iterator[tuple[str, bytes]]:
    if spec.submodule_search_locations is None:
        if spec.origin is not None and spec.origin.endswith(".py"):
            yield Path(spec.origin).name, _read(Path(spec.origin))
        return
    for place in spec.submodule_search_locations:
        folder = Path(place)
        if folder.is_dir():
            for file in folder.rglob("*.py"):
                if file.is_file():
                    yield file.relative_to(folder).as_posix(), file.read_bytes()
        else:
            yield from _zipped(folder)


def _read(path: Path) -> bytes:
    if path.is_file():
        return path.read_bytes()
    return next((content for name, content in _zipped(path.parent) if name == path.name), b"")


def _zipped(folder: Path) -> Iterator[tuple[str, bytes]]:
    archive = next((p for p in (folder, *folder.parents) if p.is_file()), None)
    if archive is None or not zipfile.is_zipfile(archive):
        return
    inside = folder.relative_to(archive).as_posix()
    prefix = "" if inside == "." else f"{inside}/"
    with zipfile.ZipFile(archive) as opened:
        for name in opened.namelist():
            if name.startswith(prefix) and name.endswith(".py"):
                yield name.removeprefix(prefix), opened.read(name)
