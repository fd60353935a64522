"""Where data sets lie: ``--data-root`` stands for the environment variable ``DPAUDIT_DATA``."""

from __future__ import annotations

import os
from pathlib import Path

from dpaudit.errors import UsageError

__all__ = ["use_data_root"]


def use_data_root(folder: Path | None) -> None:
    """Let this process, and those that it starts, look for data in ``folder``; None leaves things as they are.

    Raises:
        UsageError: it is not a folder.
    """
    if folder is None:
        return
    if not folder.is_dir():
        raise UsageError(
            f"data-root={folder}: must be a folder with the data; leave it out to download"
        )
    os.environ["DPAUDIT_DATA"] = str(folder.resolve())
