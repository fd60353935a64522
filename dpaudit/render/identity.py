"""When, with what and by whom a result was made."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dpaudit.wording import date_text

__all__ = ["made_facts"]

_FIRST = ("dpaudit", "python")


def made_facts(provenance: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Date, person and versions, as names and values; what is not known is left out.

    The date is when the result was made, to the second, in UTC. A missing person is said to be.
    """
    versions = provenance.get("versions")
    versions = versions if isinstance(versions, Mapping) else {}
    others = [
        f"{name} {version}"
        for name, version in versions.items()
        if name not in _FIRST and version != "not installed"
    ]
    date = date_text(provenance.get("started"))
    nobody = "not stated" if date else ""
    facts = [
        ("Date", date),
        ("Run by", str(provenance.get("by") or nobody)),
        ("Made with", ", ".join(_version(n, versions) for n in _FIRST if versions.get(n))),
        ("Libraries", ", ".join(others)),
    ]
    return [(name, value) for name, value in facts if value]


def _version(name: str, versions: Mapping[str, Any]) -> str:
    return f"{'Python' if name == 'python' else name} {versions[name]}"
