"""A publication is a whole file or none, written once: private, made durable, then linked."""

from __future__ import annotations

import fcntl
import hashlib
import io
import os
import re
import secrets
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from dpaudit.errors import MessageError, UsageError
from dpaudit.results.files import sync_folder
from dpaudit_mitigations.transport.journal import file_digest, write_all

__all__ = ["Draft", "Publications"]

_DRAFT = re.compile(r".+@[0-9]+\.[0-9a-f]{16}")


class Publications:
    """A folder of published vectors ``NAME.npy``, with drafts in its ``.drafts``, mode 0700.

    A draft must stay private: it holds noise that a later attempt would draw anew, and the mean of
    the two has less.
    """

    def __init__(self, folder: Path) -> None:
        """Make missing folders, lock out other processes, and check that files can be published.

        Raises:
            UsageError: they cannot be made or written, have no hard links, are another user's, or
                in use by another process.
        """
        self._folder, self._drafts = folder, folder / ".drafts"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._drafts.mkdir(mode=0o700, exist_ok=True)
            self._lock = os.open(
                self._drafts, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
            )
        except OSError as error:
            raise UsageError(f"publish={folder}: cannot be written ({error.strerror})") from error
        try:
            self._take()
        except BaseException:
            self.close()
            raise

    def _take(self) -> None:
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise UsageError(f"publish={self._folder}: another process publishes there") from error
        if os.fstat(self._lock).st_uid != os.geteuid():
            raise UsageError(f"publish={self._folder}: its .drafts is another user's")
        trial, public = self._drafts / "trial", self._folder / ".trial"
        try:
            os.fchmod(self._lock, 0o700)
            for path in (trial, public):
                path.unlink(missing_ok=True)
            trial.touch()
            os.link(trial, public)
            for path in (trial, public):
                path.unlink()
        except OSError as error:
            raise UsageError(
                f"publish={self._folder}: nothing can be published there ({error.strerror}); "
                "choose a local folder that this user can write to"
            ) from error

    def path(self, name: str) -> Path:
        """Where ``name`` is published."""
        return self._folder / f"{name}.npy"

    def draft(self, name: str, dim: int, dtype: str) -> Draft:
        """A new draft of ``dim`` values of ``dtype``, under its own name."""
        return Draft(self._drafts / f"{name}.{secrets.token_hex(8)}", dim, dtype)

    def publish(self, name: str, draft: str, digest: bytes, *, just_written: bool = False) -> None:
        """Give the durable draft its public name; idempotent. :meth:`discard` deletes the draft.

        Raises:
            MessageError: neither draft nor publication has this digest, or the name is
                another publication's.
        """
        target, source = self.path(name), self._drafts / draft
        if not just_written and not target.exists() and file_digest(source) != digest:
            raise MessageError(f"release {name}: its draft is missing or damaged; not drawn again")
        try:
            os.link(source, target)  # never over another file, unlike a rename
        except (FileExistsError, FileNotFoundError) as error:
            if file_digest(target) != digest:
                raise MessageError(f"release {name}: {target.name} has other content") from error
        sync_folder(self._folder)

    def taken(self, name: str) -> bool:
        """Whether that public name exists, even as a dangling link."""
        return os.path.lexists(self.path(name))

    def discard(self, draft: str) -> None:
        """Delete a draft that is no longer needed."""
        (self._drafts / draft).unlink(missing_ok=True)

    def discard_others(self, keep: set[str]) -> None:
        """Delete the drafts that killed processes left, except ``keep``; spare other files."""
        for path in self._drafts.iterdir():
            if path.name not in keep and _DRAFT.fullmatch(path.name):
                path.unlink(missing_ok=True)

    def close(self) -> None:
        """Let another process publish here. May be called repeatedly."""
        lock, self._lock = self._lock, -1
        if lock >= 0:
            os.close(lock)


class Draft:
    """One draft: an ``.npy`` file that grows chunk by chunk and is hashed as it grows."""

    def __init__(self, path: Path, dim: int, dtype: str) -> None:
        self._path = path
        self._hash = hashlib.sha256()
        self._file: BinaryIO = path.open("xb", buffering=0)
        header = io.BytesIO()
        np.lib.format.write_array_header_1_0(
            header,
            {
                "descr": np.dtype(dtype).newbyteorder("<").str,
                "fortran_order": False,
                "shape": (dim,),
            },
        )
        try:
            self._write(header.getvalue())
        except OSError:
            self.abandon()
            raise

    @property
    def name(self) -> str:
        return self._path.name

    def write(self, values: npt.NDArray[Any]) -> None:
        """The next values, in the draft's dtype."""
        self._write(values.data.cast("B"))

    def finish(self) -> bytes:
        """Make it durable; the file's SHA-256."""
        os.fsync(self._file.fileno())
        self._file.close()
        sync_folder(self._path.parent)
        return self._hash.digest()

    def abandon(self) -> None:
        """Delete it."""
        self._file.close()
        self._path.unlink(missing_ok=True)

    def _write(self, data: bytes | memoryview) -> None:
        self._hash.update(data)
        write_all(self._file.fileno(), memoryview(data))
