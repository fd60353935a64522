"""Property lists, XML and binary, read within bounds."""

from __future__ import annotations

from dpaudit.deployments.apple.plists.reading import read_plist

__all__ = ["read_plist"]
