"""The sealed opening, a secret: it shows an authorised auditor the used noise, hence the query."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Literal

from dpaudit.errors import KeyFileError, MessageError
from dpaudit.results.files import write_file
from dpaudit_mitigations.codec import Digest, Hex64, Record, read_json, write_json

__all__ = ["Opening"]

_LARGEST = 4096


class Opening(Record, frozen=True, kw_only=True):
    """Both shares ‖ nonces of the used candidate, and both salts of the query's commitment.

    ``session`` names the session (``Record.session``). Together with the release this is the query
    result itself, bit for bit: hand it to an auditor as you would hand over the data, or never.
    """

    opening: Literal["joint-seeds"] = "joint-seeds"
    query: Hex64
    server: Hex64
    session: Digest
    verifier: Hex64
    version: Literal[1] = 1

    def __repr__(self) -> str:
        return f"Opening(session={self.session.hex()})"

    def save(self, path: Path) -> None:
        """Write to a new file of mode 0600.

        Raises:
            KeyFileError: the file exists, or cannot be written.
        """
        try:
            write_file(path, write_json(self) + b"\n", mode=0o600, replace=False)
        except OSError as error:
            raise KeyFileError(f"opening={path}: not written ({error.strerror})") from error

    @classmethod
    def load(cls, path: Path) -> Opening:
        """Read it back from its file.

        Raises:
            KeyFileError: no such file, readable by others, or not an opening.
        """
        try:
            with path.open("rb") as file:
                if os.fstat(file.fileno()).st_mode & 0o077:
                    raise KeyFileError(f"opening={path}: readable by others; run chmod 600 on it")
                data = file.read(_LARGEST + 1)
            return read_json(data.removesuffix(b"\n"), cls, most=_LARGEST, what="opening")
        except OSError as error:
            raise KeyFileError(f"opening={path}: cannot be read ({error.strerror})") from error
        except MessageError as error:
            raise KeyFileError(f"opening={path}: {error}; give the server's saved file") from error
