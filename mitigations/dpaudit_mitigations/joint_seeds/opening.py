"""The sealed opening: what shows an authorised auditor the used candidate, hence the noise and the query. A secret."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path

from dpaudit.errors import KeyFileError, MessageError
from dpaudit.results.files import write_file
from dpaudit_mitigations.joint_seeds.encoding import decode, encode
from dpaudit_mitigations.joint_seeds.fields import Hex, Schema, Whole, Word, read, write

__all__ = ["Opening"]

_SCHEMA: Schema = {
    "opening": Word(("joint-seeds",)),
    "version": Whole(1, 1),
    "session": Hex(),
    "server": Hex(64),
    "verifier": Hex(64),
    "query": Hex(64),
}
_LARGEST = 4096


@dataclass(frozen=True, kw_only=True)
class Opening:
    """Of the used candidate: the server's and the verifier's share ‖ nonce; of the query's commitment: both salts.

    ``session`` names the session (``Record.session``). Together with the release this is the query result
    itself, bit for bit: to be handed to an auditor as one would hand over the data, or never.
    """

    session: bytes
    server: bytes = field(repr=False)
    verifier: bytes = field(repr=False)
    query: bytes = field(repr=False)

    def save(self, path: Path) -> None:
        """Write to a new file of mode 0600.

        Raises:
            KeyFileError: the file exists, or cannot be written.
        """
        values = {"opening": "joint-seeds", "version": 1, **vars(self)}
        try:
            write_file(path, encode(write(values, _SCHEMA)) + b"\n", mode=0o600, replace=False)
        except OSError as error:
            raise KeyFileError(f"opening={path}: cannot be made ({error.strerror}); give a new path") from error

    @classmethod
    def load(cls, path: Path) -> Opening:
        """Back from the file.

        Raises:
            KeyFileError: no such file, readable by others, or not an opening.
        """
        try:
            with path.open("rb") as file:
                if os.fstat(file.fileno()).st_mode & 0o077:
                    raise KeyFileError(f"opening={path}: others may read it; run chmod 600 on it")
                data = file.read(_LARGEST + 1)
            values = read(
                decode(data.removesuffix(b"\n"), most=_LARGEST, what="opening"), _SCHEMA, count=0, what="opening"
            )
        except OSError as error:
            raise KeyFileError(f"opening={path}: cannot be read ({error.strerror})") from error
        except MessageError as error:
            raise KeyFileError(f"opening={path}: {error}; give the file that the server saved") from error
        return cls(
            session=values["session"], server=values["server"], verifier=values["verifier"], query=values["query"]
        )
