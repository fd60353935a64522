"""What a user probably meant by a bare path, address or name, and what a file offers to call."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import time
from collections.abc import Sequence
from pathlib import Path

from dpaudit.errors import SamplerError, UsageError
from dpaudit.results.foreign import RefusedError, open_plain
from dpaudit.results.text import one_line

__all__ = ["offers", "suggested_target"]

_LIBRARY = re.compile(r"\.(so(\.\d+)*|dylib)$")
_HOST = re.compile(r"(localhost|[\w-]+(\.[\w-]+)+)(:\d{1,5}(/\S*)?|/\S+)")
_SCHEME = re.compile(r"([a-z]{2,6}):/{1,3}(?=\w)|(https?)[:/]/*(?=\w)")
_NAME = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")
_FUNCTION = re.compile(r"^(?:async )?def ([A-Za-z]\w*)", re.MULTILINE)
_SYMBOL = re.compile(r"^\S+ ([TWi]) (\w+)(?:@\S*)?$", re.MULTILINE)
_READ = 1 << 18  # bytes of a module, or of a list of symbols
_SECONDS = 5.0
_SECOND = ";SECOND-FILE"
_SHOWN = 12


def suggested_target(text: str, *, releases: bool) -> str:
    """A question with the target that ``text`` was meant to be; '' if there is no good guess.

    ``releases`` is for mechanisms. Nothing of a file is run; its symbols are listed in the sandbox.
    """
    target, place = _target(text, releases=releases)
    if not target:
        return ""
    known = offers(place).removeprefix(";")
    return f"did you mean '{one_line(target, limit=300)}'?{known or _absent(target)}"


def _absent(target: str) -> str:
    """That a file which the target names does not exist, as the end of a message."""
    kind, _, rest = target.partition(":")
    path = rest.rpartition(":")[0]
    paths = {
        "file": rest.removesuffix(_SECOND).split(";"),
        "library": [path],
        "python": [path] if path.endswith(".py") else [],
    }.get(kind, [])
    absent = next((p for p in paths if not os.path.exists(p)), None)
    return "" if absent is None else f" there is no file {one_line(absent, limit=300)}"


def _are_recordings(text: str) -> bool:
    endings = {Path(part.strip()).suffix.lower() for part in text.split(";")}
    if "" in endings:
        return False
    from dpaudit.targets.endpoints.file import READERS

    return endings <= set(READERS)


def _target(text: str, *, releases: bool) -> tuple[str, str]:
    """The target, and the file that it names, if a part of the target is missing."""
    place, colon, member = text.rpartition(":") if ":" in text else (text, "", "")
    known = "" if member else place
    if _LIBRARY.search(place):
        return f"library:{place}:{member or 'SYMBOL'}", known
    if place.endswith(".py"):
        return f"python:{place}:{member or 'FUNCTION'}", known
    if _are_recordings(text):
        second = _SECOND if releases and ";" not in text else ""
        return f"file:{text}{second}", ""
    if scheme_match := _SCHEME.match(text):
        scheme = "https" if "s" in (scheme_match[1] or scheme_match[2]) else "http"
        return f"{scheme}://{text[scheme_match.end() :]}", ""
    if _HOST.fullmatch(text):
        return f"http://{text}", ""
    if os.path.isfile(text) and os.access(text, os.X_OK):
        fields = "--value={value} {n}" if releases else "{n} {d}"
        return f"command:{text} {fields}", ""
    if colon and _NAME.fullmatch(member) and _NAME.fullmatch(place) and _is_module(place):
        return f"python:{text}", ""
    return "", ""


def _is_module(name: str) -> bool:
    """Whether its first part can be imported; nothing is."""
    top = name.partition(".")[0]
    if os.path.isfile(f"{top}.py") or os.path.isdir(top):
        return True
    try:
        return importlib.util.find_spec(top) is not None
    except (ImportError, ValueError):
        return False


def offers(path: str) -> str:
    """The functions that a shared library or a Python file holds, as the end of a message.

    '' if there are none, or they cannot be listed.
    """
    if not path or not os.path.isfile(path):
        return ""
    names = _functions(path) if path.endswith(".py") else _symbols(path)
    if not names:
        return ""
    listing = ", ".join(one_line(name, limit=60) for name in names[:_SHOWN])
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return f"; it has {listing}{more}"


def _functions(path: str) -> Sequence[str]:
    # by a pattern: the parser of Python is not made for files that mean harm
    try:
        with open_plain(Path(path)) as file:
            text = file.read(_READ).decode(errors="replace")
    except (OSError, RefusedError):
        return ()
    return list(dict.fromkeys(_FUNCTION.findall(text)))


def _symbols(path: str) -> Sequence[str]:
    """What ``nm`` lists, in the sandbox: it reads a foreign file.

    C functions, or those of C++ by their mangled names if there are none of C.
    """
    nm = shutil.which("nm")
    if nm is None:
        return ()
    from dpaudit.targets.sandbox.process import Process

    place = str(Path(path).resolve())
    listed = memoryview(bytearray(_READ))
    deadline = time.monotonic() + _SECONDS
    try:
        process = Process([nm, "-D", "--defined-only", place], seconds=_SECONDS, needs=[place])
        try:
            got = process.read(listed, deadline=deadline)
        finally:
            process.close()
    except (SamplerError, UsageError, TimeoutError, OSError):
        return ()
    symbols = _SYMBOL.findall(bytes(listed[:got]).decode(errors="replace"))
    of_c = [name for _, name in symbols if not name.startswith("_")]
    return of_c or [name for kind, name in symbols if kind == "T" and name.startswith("_Z")]
