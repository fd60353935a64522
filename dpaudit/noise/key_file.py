"""Key files: JSON of mode 0600, written once, read with suspicion."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from dpaudit.errors import KeyFileError
from dpaudit.randomness import KEY_BYTES
from dpaudit.results.files import write_file
from dpaudit.results.foreign import RefusedError, open_plain, read_json, shown

__all__ = ["OtherKindError", "load_fields", "save_fields", "secret_of"]

_MOST_BYTES = 1 << 16


class OtherKindError(KeyFileError):
    """The file is no key of the kind that was asked for; it may be one of another."""


def save_fields(path: str | Path, fields: Mapping[str, Any]) -> None:
    """Write ``fields`` to a new file of mode 0600; an existing file is never overwritten.

    Raises:
        KeyFileError: the file exists, or its folder cannot be written.
    """
    try:
        write_file(Path(path), json.dumps(fields, indent=2) + "\n", mode=0o600, replace=False)
    except FileExistsError as error:
        raise KeyFileError(
            f"key={path}: exists already and keys are never overwritten; choose another --out"
        ) from error
    except OSError as error:
        raise KeyFileError(
            f"key={path}: cannot be written ({error.strerror}); choose another --out"
        ) from error


def load_fields(
    path: str | Path,
    *,
    format: str,  # noqa: A002  the field's name
    version: int,
    fields: Collection[str],
    optional: Collection[str],
    make: str,
) -> dict[str, Any]:
    """The fields of a key file; ``make`` is the command that makes one.

    Raises:
        OtherKindError: of another format or version.
        KeyFileError: unreadable, readable by others than its owner, or a field missing or unknown.
    """
    try:
        with open_plain(path) as file:
            mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
            if mode & 0o077:
                raise KeyFileError(
                    f"key={path}: mode={mode:04o} lets others in, must be 0600; "
                    f"run chmod 600 {path}"
                )
            data = read_json(file.read(_MOST_BYTES))
    except (RefusedError, OSError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise KeyFileError(f"key={path}: {why}; make a key with {make}") from error
    if not isinstance(data, dict) or data.get("format") != format or data.get("version") != version:
        raise OtherKindError(
            f"key={path}: is not a {format} of version {version}; make one with "
            f"{make.partition(' --out')[0]}"
        )
    expected = {"format", "version", *fields}
    if unknown := set(data) - expected - set(optional):
        raise KeyFileError(f"key={path}: field {shown(min(unknown))} is not known; remove it")
    if missing := expected - set(data):
        raise KeyFileError(f"key={path}: field {min(missing)!r} is missing")
    return data


def secret_of(data: Mapping[str, Any], path: str | Path) -> bytes:
    """The 32 bytes of the field ``secret``.

    Raises:
        KeyFileError: something else stands there.
    """
    secret = data["secret"]
    if not (
        isinstance(secret, str)
        and len(secret) == 2 * KEY_BYTES
        and set(secret) <= set("0123456789abcdef")
    ):
        raise KeyFileError(
            f"key={path}: field 'secret' must be {2 * KEY_BYTES} lower-case hex digits"
        )
    return bytes.fromhex(secret)
