"""What a report is of: when, with what and by whom it was made, and which files were audited."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dpaudit.report import format as fmt
from dpaudit.results.text import one_line
from dpaudit.types import AuditedFile, Provenance, to_dict

__all__ = ["file_facts", "made_facts"]

_FIRST = ("dpaudit", "python")


def made_facts(provenance: Provenance | Mapping[str, Any]) -> list[tuple[str, str]]:
    """Date, person and versions, as names and values; what is not known is left out.

    The date is when the result was made, to the second, in UTC. A missing person is said to be.
    """
    facts = to_dict(provenance)
    versions = facts.get("versions")
    versions = versions if isinstance(versions, Mapping) else {}
    others = [
        f"{one_line(name, limit=60)} {one_line(version, limit=60)}"
        for name, version in versions.items()
        if name not in _FIRST and version != "not installed"
    ]
    date = _date(facts.get("started"))
    nobody = "not stated" if date else ""
    told = [
        ("Date", date),
        ("Run by", one_line(facts.get("by") or nobody, limit=200)),
        ("Made with", ", ".join(_version(n, versions) for n in _FIRST if versions.get(n))),
        ("Libraries", ", ".join(others)),
    ]
    return [(name, value) for name, value in told if value]


def file_facts(provenance: Provenance) -> list[list[tuple[str, str]]]:
    """The audited files, each as names and values."""
    return [_facts(file) for file in provenance.files]


def _facts(file: AuditedFile) -> list[tuple[str, str]]:
    told = [
        ("Audited file", one_line(file.name, limit=400)),
        ("SHA-256", one_line(file.sha256, limit=64) or "the file could not be read"),
        ("Size", f"{fmt.count(file.size)} bytes" if file.sha256 else ""),
        ("Modified", _date(file.modified)),
    ]
    return [(name, value) for name, value in told if value]


def _date(value: object) -> str:
    """``2026-11-23T06:20:01+00:00`` as people write it."""
    text = one_line(value or "", limit=60)
    return text.replace("T", " ").replace("+00:00", " UTC")


def _version(name: str, versions: Mapping[str, Any]) -> str:
    shown = "Python" if name == "python" else name
    return f"{shown} {one_line(versions[name], limit=60)}"
