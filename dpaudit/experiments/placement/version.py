"""Which dpaudit this is: a cell's numbers are those of the code that made them, so all workers must have the same."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from importlib.metadata import version

from dpaudit.source_hash import source_hash

__all__ = ["difference", "identity"]

_PACKAGES = ("dpaudit", "dpaudit_attacks", "dpaudit_mitigations")


@functools.cache
def identity() -> dict[str, str]:
    """The version of dpaudit, and the SHA-256 of the Python sources of it and of its two plug-in packages."""
    return {"version": version("dpaudit"), **{package: source_hash(package) for package in _PACKAGES}}


def difference(wanted: Mapping[str, str], found: Mapping[str, str]) -> str:
    """What a worker with ``found`` has other than a runner with ``wanted``, and the remedy; empty if they are the same."""
    unlike = next((name for name in wanted if wanted[name] != found.get(name)), None)
    if unlike is None:
        return ""
    if unlike == "version":
        what = f"has dpaudit {found.get('version', '?')}, this is {wanted['version']}"
    else:
        what = f"has other sources of {unlike} (sha256 {found.get(unlike, '')[:12]}, here {wanted[unlike][:12]})"
    return f"{what}; install the same dpaudit there and restart the worker"
