"""The SARIF location of a sampler: the file it comes from, or else its name."""

from __future__ import annotations

import posixpath
import re
from typing import Any
from urllib.parse import quote

__all__ = ["location_of"]

_FILE = re.compile(r"(file):(.+)|(library):(.+):[^:]*|(python):(.+\.py):[^:]*", re.S)


def location_of(target: str) -> dict[str, Any]:
    """The SARIF location of a sampler or mechanism: a logical one, and a physical one if in a file.

    ``file:PATH``, ``library:PATH:SYMBOL`` and ``python:PATH.py:FUNCTION`` are in a file. Its URI is
    relative to ``%SRCROOT%``, the folder that dpaudit was started in. An absolute path is a
    ``file:`` URI; one that leads out of the folder (``../``) is a name only, as SARIF permits no
    such URI.
    """
    location: dict[str, Any] = {
        "logicalLocations": [{"fullyQualifiedName": target, "kind": "module"}]
    }
    found = _FILE.fullmatch(target)
    if found is None:
        return location
    path = posixpath.normpath(next(filter(None, found.groups()[1::2])))
    if path == ".." or path.startswith("../"):
        return location
    if path.startswith("/"):
        artifact = {"uri": "file://" + quote("/" + path.lstrip("/"))}
    else:
        artifact = {"uri": quote(path), "uriBaseId": "%SRCROOT%"}
    region = {"region": {"startLine": 1}} if path.endswith(".py") else {}
    return {"physicalLocation": {"artifactLocation": artifact, **region}, **location}
