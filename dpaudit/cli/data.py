"""``--data-root``: the folder of the data sets, passed on as ``DPAUDIT_DATA``."""

from __future__ import annotations

import os
from pathlib import Path

from dpaudit.errors import UsageError

__all__ = ["use_data_root"]


def use_data_root(folder: Path | None) -> None:
    """Make this process and its children look for data in ``folder``; None changes nothing.

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
