"""A recovered direction as a file: a secret of the sampler's maker, so kept like a key."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dpaudit.errors import KeyFileError
from dpaudit.results.files import write_file

__all__ = ["load", "save"]

_FORMAT = "dpaudit-recovered-direction"


def save(details: Mapping[str, Any], path: str | Path) -> None:
    """Write what the search recovered (its evidence's ``details``) to a new file of mode 0600.

    Raises:
        KeyFileError: the file exists, or cannot be written.
    """
    document = {"format": _FORMAT, **{name: details[name] for name in ("d", "w", "beta", "gamma")}}
    try:
        write_file(Path(path), json.dumps(document), mode=0o600, replace=False)
    except FileExistsError as error:
        raise KeyFileError(
            f"recovered={path}: exists already and is never overwritten; choose another name"
        ) from error
    except OSError as error:
        raise KeyFileError(
            f"recovered={path}: cannot be written ({error.strerror}); choose another name"
        ) from error


def load(path: str | Path) -> Mapping[str, Any]:
    """What :func:`save` wrote.

    Raises:
        KeyFileError: the file is unreadable, readable by others, or something else.
    """
    try:
        with open(path, encoding="utf-8") as file:
            mode, text = stat.S_IMODE(os.fstat(file.fileno()).st_mode), file.read()
    except OSError as error:
        raise KeyFileError(
            f"recovered={path}: cannot be read ({error.strerror}); check the name"
        ) from error
    if mode & 0o077:
        raise KeyFileError(
            f"recovered={path}: mode={mode:04o} lets others in, must be 0600; run chmod 600 {path}"
        )
    try:
        data = json.loads(text)
    except ValueError as error:
        raise KeyFileError(
            f"recovered={path}: is not JSON; write it with the keyless search's details"
        ) from error
    if not isinstance(data, dict) or data.get("format") != _FORMAT:
        raise KeyFileError(
            f"recovered={path}: is not a {_FORMAT}; write it with the keyless search's details"
        )
    return data
