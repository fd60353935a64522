"""Which version of a library is installed, read from its metadata: nothing of it is imported."""

from __future__ import annotations

import platform
import sys
from collections.abc import Sequence
from importlib import metadata

__all__ = ["advice", "installed"]


def installed(distribution: str, *, path: Sequence[str] | None = None) -> str | None:
    """The installed version of a distribution by its PyPI name, '' for Python itself; None if it is not installed.

    ``path`` are the folders to look in, those of this interpreter unless given.
    """
    if not distribution:
        return platform.python_version()
    folders = sys.path if path is None else list(path)
    found = next(iter(metadata.Distribution.discover(name=distribution, path=folders)), None)
    return None if found is None else found.version


def advice(name: str, distribution: str, *, tested: str, installed: str | None) -> str:
    """What to know of an ``installed`` version that is not the ``tested`` one; '' if it is, or if there is none.

    A build's own suffix (``2.13.0+cpu``) makes no difference.
    """
    if installed is None or installed.partition("+")[0] == tested:
        return ""
    return (
        f"{name}: adapter tested with {distribution or 'Python'} {tested}, installed {installed}: what is known of how it "
        "makes noise may no longer hold; read its release notes, or install the tested version"
    )
