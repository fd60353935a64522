"""Property lists from files that anybody may have written: XML and binary, bounded in size, depth and nodes."""

from __future__ import annotations

import plistlib
from pathlib import Path
from typing import Any
from xml.parsers.expat import ExpatError

from dpaudit.deployments.apple.plists.binary_form import check_binary
from dpaudit.deployments.apple.plists.limits import MOST_BYTES, MOST_NODES, PlistRefusedError
from dpaudit.deployments.apple.plists.xml_form import read_xml
from dpaudit.deployments.apple.quoting import path_text
from dpaudit.errors import UsageError
from dpaudit.results.foreign import RefusedError, read_plain

__all__ = ["read_plist"]

_BINARY = b"bplist"


def read_plist(path: Path, *, limit: int = MOST_BYTES, nodes: int = MOST_NODES) -> object:
    """The value in a property list: dict, list, str, int, float, bool, bytes or datetime, nested.

    Refused is what would hurt a reader or mislead one: more than ``limit`` bytes or ``nodes`` values (shared ones counted
    each time), nesting deeper than 32, an XML internal subset (so entities of any kind), unknown elements, a key twice in
    one dict; in binary files references that lead back to their own container, objects outside the file or that together
    claim more bytes than the file has. ``plistlib`` builds the value of a binary file once it has passed. Memory stays
    within a multiple of the file's size, time linear in it, and nothing recurses deeper than the nesting allowed.

    Raises:
        UsageError: it cannot be read, is no property list, or is refused; names the file, the rule and the remedy.
    """
    try:
        data = read_plain(path, limit=limit)
    except RefusedError as error:
        raise UsageError(f"file={path_text(path)}: {error}; give a readable .plist file of Apple's size") from error
    try:
        if data.startswith(_BINARY):
            check_binary(data, nodes=nodes)
            return plistlib.loads(data, fmt=plistlib.FMT_BINARY, dict_type=_Once)
        return read_xml(data, nodes=nodes)
    except PlistRefusedError as error:
        raise UsageError(f"file={path_text(path)}: {error}") from error
    except (ValueError, ExpatError, LookupError, OverflowError) as error:
        raise UsageError(
            f"file={path_text(path)}: is no property list ({error}); give a .plist file as Apple's tools write it"
        ) from error


class _Once(dict[str, Any]):
    """A dict that takes each key once: with two values for one key, readers would disagree about the file."""

    def __setitem__(self, key: str, value: Any) -> None:
        if not isinstance(key, str):
            raise PlistRefusedError("has a dict key that is no string; plutil -lint tells where")
        if key in self:
            raise PlistRefusedError(f"has the key {key[:80]!r} twice in one dict; keep one of them")
        super().__setitem__(key, value)
