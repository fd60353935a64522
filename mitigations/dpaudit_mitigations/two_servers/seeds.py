"""Each release's noise seed on disk: made once, durable before use, erased when published."""

from __future__ import annotations

import secrets
from pathlib import Path

from dpaudit.errors import UsageError
from dpaudit.randomness import KEY_BYTES, KeyedStream
from dpaudit_mitigations.transport.journal import durable_write

__all__ = ["Seeds"]


class Seeds:
    """Files ``NAME.seed`` of mode 0600 in a folder.

    A stream is bound to its release's name too: if two names share a file (on a case-insensitive
    disk, say), their noises are still independent.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def make(self, name: str, seed: bytes | None = None) -> KeyedStream:
        """The stream of a release for which nothing is drawn yet; its seed is made if missing.

        Raises:
            UsageError: the seed cannot be written, or the existing one is damaged.
        """
        if not self._path(name).exists():
            durable_write(self._path(name), seed or secrets.token_bytes(KEY_BYTES), replace=False)
        return self.read(name)

    def read(self, name: str) -> KeyedStream:
        """The stream of a release that has begun.

        Raises:
            UsageError: its seed is missing or damaged.
        """
        try:
            return KeyedStream(self._path(name).read_bytes()).child(name)
        except (OSError, UsageError) as error:
            raise UsageError(
                f"release={name}: begun, but its seed is missing or damaged; noise is never drawn "
                "twice for one release, so it cannot be finished"
            ) from error

    def erase(self, name: str) -> None:
        """Delete the seed: a published release needs none. No promise about the disk's blocks."""
        self._path(name).unlink(missing_ok=True)

    def names(self) -> list[str]:
        """The releases that have seeds here."""
        return [path.stem for path in self._folder.glob("*.seed")]

    def _path(self, name: str) -> Path:
        return self._folder / f"{name}.seed"
