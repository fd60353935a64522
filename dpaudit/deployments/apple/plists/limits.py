"""How large and how deep a property list may be, and how a refusal is said."""

from __future__ import annotations

__all__ = ["MOST_BYTES", "MOST_DEPTH", "MOST_NODES", "PlistRefusedError"]

MOST_BYTES = 16 * 2**20
"""Apple's four files together have about 100 kB."""
MOST_DEPTH = 32
"""Apple's files nest four deep."""
MOST_NODES = 500_000
"""Values in one file, keys among them; a value that is referred to twice counts twice."""


class PlistRefusedError(Exception):
    """Why a property list is refused: the rule and the remedy; :func:`~.plists.read_plist` names the file."""
