"""Where data files lie: a folder that the user names, else a cache of checked downloads."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)

from dpaudit.errors import MissingExtraError, UsageError
from dpaudit.results.text import one_line

__all__ = ["DownloadBar", "cache_folder", "data_folder", "fetch_file", "find_file"]


class DownloadBar:
    """Counts bytes; draws nothing if stderr is no terminal, or before the first byte."""

    def __init__(self, name: str) -> None:
        console = Console(stderr=True)
        self._bar = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            DownloadColumn(),
            TransferSpeedColumn(),
            TimeRemainingColumn(),
            console=console,
            disable=not console.is_terminal,
            transient=True,
        )
        self._task = self._bar.add_task(one_line(name, limit=100), total=None)

    @property
    def total(self) -> float | None:
        """Bytes to come; None where the server does not say."""
        return self._bar.tasks[0].total

    @total.setter
    def total(self, size: int) -> None:
        self._bar.update(self._task, total=size or None)
        self._bar.start()

    def update(self, count: int) -> None:
        """``count`` more bytes have come."""
        self._bar.advance(self._task, count)

    def reset(self) -> None:
        """Start again at no bytes."""
        self._bar.reset(self._task)

    def close(self) -> None:
        """Remove the bar from the screen."""
        self._bar.stop()

    def __enter__(self) -> DownloadBar:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def data_folder(root: str = "") -> Path | None:
    """The folder ``root``, else the one that ``DPAUDIT_DATA`` names; None without either.

    Raises:
        UsageError: what is named is no folder.
    """
    for name, value in (("data_root", root), ("DPAUDIT_DATA", os.environ.get("DPAUDIT_DATA", ""))):
        if value:
            folder = Path(value).expanduser()
            if not os.path.isdir(folder):
                raise UsageError(
                    f"{name}={value}: is no folder; name one that is there, "
                    "or leave it out to download"
                )
            return folder
    return None


def cache_folder() -> Path:
    """Where downloads are kept: ``DPAUDIT_CACHE``, else the user's cache; it need not exist.

    Raises:
        MissingExtraError: no ``DPAUDIT_CACHE``, and pooch, which knows where users' caches are, is
            not installed.
    """
    named = os.environ.get("DPAUDIT_CACHE", "")
    return Path(named).expanduser() if named else Path(_pooch().os_cache("dpaudit"))


def find_file(relative: str, *, root: str = "") -> Path | None:
    """The file ``relative`` (``weights/resnet20-12fca82f.th``) where data is kept, or None.

    One place is searched: ``root``, without it ``DPAUDIT_DATA``, without that the cache. The
    content is not looked at.

    Raises:
        UsageError: ``root`` or ``DPAUDIT_DATA`` is no folder.
        MissingExtraError: as for :func:`cache_folder`.
    """
    path = (data_folder(root) or cache_folder()) / relative
    return path if os.path.isfile(path) else None


def fetch_file(relative: str, *, url: str, sha256: str) -> Path:
    """The file ``relative`` of the cache, downloaded from ``url`` if need be.

    The checksum (``sha256``, hex) is compared on every call. A download goes to a file of another
    name, which takes its place only when the checksum is right, so an incomplete one is never taken
    for the whole. Downloads are announced on stderr, with a progress bar on a terminal.

    Raises:
        UsageError: the host cannot be reached or refuses, the cache cannot be written, or the
            checksum is wrong.
        MissingExtraError: pooch is not installed.
    """
    pooch = _pooch()
    path = cache_folder() / relative
    try:
        with DownloadBar(path.name) as bar:
            get = pooch.HTTPDownloader(progressbar=bar, chunk_size=1 << 16)
            pooch.retrieve(url, f"sha256:{sha256}", path.name, path.parent, downloader=get)
    except (OSError, ValueError) as error:
        raise UsageError(
            f"file={relative}: could not be fetched from {url} to {path} ({error}); "
            f"fetch it by hand to {relative} in a folder of yours (sha256 {sha256}) "
            "and name that folder with --data-root or DPAUDIT_DATA"
        ) from error
    return path


def _pooch() -> Any:
    try:
        import pooch
    except ImportError as error:
        raise MissingExtraError(
            "data: downloads need pooch, which is not installed; pip install 'dpaudit[opacus]', "
            "or name a folder that has the files with --data-root or DPAUDIT_DATA"
        ) from error
    return pooch
