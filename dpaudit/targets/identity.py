"""What a target is, before it runs: its files, the library's version, and the law it declares."""

from __future__ import annotations

import hashlib
import os
import shlex
import stat
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from dpaudit import registry
from dpaudit.targets.adapters.base import Library, stated_claim
from dpaudit.targets.sandbox.view import files_of_command
from dpaudit.types import AuditedFile, Reference

__all__ = ["Identity", "declared_law", "identify"]

_MOST = 8


class Identity(NamedTuple):
    """Files with their hashes, and the version of an audited library by its name on PyPI."""

    files: tuple[AuditedFile, ...] = ()
    versions: Mapping[str, str] = MappingProxyType({})


def identify(target: str) -> Identity:
    """What ``target``, as on the command line, names, as it is now.

    Files are a Python file, or a module in the working directory; a shared library; recorded
    values; a program with those of its arguments that are files. A file that cannot be read has no
    hash. An endpoint and a registered source have no files.

    Not claimed: that other files play no part (what these import or link), nor that these stay as
    they are while they run.
    """
    kind, _, rest = target.partition(":")
    paths = list(dict.fromkeys(_paths(kind, rest)))
    files = (described for path in paths[:_MOST] if (described := _described(path)))
    return Identity(tuple(files), _versions(kind))


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
    library = registry.load("samplers", kind)
    return stated_claim(*library.find(target)) if isinstance(library, Library) else None


def _versions(kind: str) -> Mapping[str, str]:
    if kind not in registry.plugins("samplers"):
        return {}
    library = registry.load("samplers", kind)
    version = library.version if isinstance(library, Library) else None
    return {library.distribution: version} if version and library.distribution else {}


def _paths(kind: str, rest: str) -> Iterator[str]:
    if kind in ("file", "scores", "whitened"):
        yield from (part.strip() for part in rest.split(";"))
    elif kind == "library":
        yield rest.rpartition(":")[0]
    elif kind == "python":
        yield from _of_module(rest.rpartition(":")[0])
    elif kind == "command":
        try:
            argv = shlex.split(rest)
        except ValueError:
            argv = []
        yield from files_of_command(argv) if argv else ()


def _of_module(place: str) -> Iterator[str]:
    """A path, or the file of a dotted name in the working directory, which comes first."""
    if not place or "/" in place or place.endswith(".py"):
        yield place
        return
    path = Path(*place.split("."))
    yield from map(str, (path / "__init__.py", path.with_suffix(".py")))


def _described(path: str) -> AuditedFile | None:
    """None if it is no file."""
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):  # a FIFO would wait for its writer
            return None
    except (OSError, ValueError):
        return None
    try:
        with open(path, "rb") as opened:
            about = os.fstat(opened.fileno())
            digest = hashlib.file_digest(opened, "sha256").hexdigest()
    except OSError:
        return AuditedFile(name=path, sha256="", size=0, modified="")
    modified = _time(about.st_mtime)
    return AuditedFile(name=path, sha256=digest, size=about.st_size, modified=modified)


def _time(seconds: float) -> str:
    try:
        return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")
    except (OverflowError, ValueError, OSError):
        return ""
