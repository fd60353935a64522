"""Commands that measured what the documents quote: ``python -m dpaudit_studies.evidence.NAME``.

They run in a checkout: results go to ``docs/studies/results/``, inputs are in ``tests/data``.
"""

from __future__ import annotations

import argparse
import json
import platform
import subprocess
from importlib import import_module
from pathlib import Path
from typing import Any

from dpaudit.provenance import hardware
from dpaudit.results.files import write_file

__all__ = [
    "MACHINE",
    "RESULTS",
    "ROOT",
    "commit_of",
    "keyless",
    "measured",
    "options",
    "stored_rows",
    "write",
]

ROOT = Path(__file__).resolve().parents[3]
"""The checkout."""
RESULTS = ROOT / "docs" / "studies" / "results"

MACHINE = f"{hardware()}, Python {platform.python_version()}"
"""This machine, as text."""


def keyless(module: str) -> Any:
    """A module of the keyless attack, by name: studies import no attacks."""
    return import_module(f"dpaudit_attacks.keyless.{module}")


def options(about: str | None, **defaults: Any) -> argparse.Namespace:
    """Options of the command line by their defaults: numbers, words, files, and lists of them.

    ``names`` are words without an option; a type stands for no default.
    """
    parser = argparse.ArgumentParser(description=about)
    for name, value in defaults.items():
        if name == "names":
            parser.add_argument("names", nargs="*", choices=value or None)
            continue
        kind = value if isinstance(value, type) else type(value[0] if _many(value) else value)
        default = None if isinstance(value, type) else value
        flag: dict[str, Any] = {"type": _whole if kind is int else kind, "default": default}
        if kind is bool:
            flag = {"action": "store_true"}
        elif issubclass(kind, Path):
            flag["type"] = Path
        elif _many(value):
            flag["nargs"] = "+"
        parser.add_argument(f"--{name.replace('_', '-')}", **flag)
    return parser.parse_args()


def commit_of(checkout: Path | str) -> str:
    """The short hash of a checkout's commit; "-dirty" follows if files have changed."""
    git = ["git", "-C", str(checkout), "describe", "--always", "--dirty", "--exclude=*"]
    return subprocess.run(git, check=True, stdout=subprocess.PIPE, text=True).stdout.strip()


def _many(value: object) -> bool:
    return isinstance(value, list | tuple)


def _whole(text: str) -> int:
    """A whole number, also as 39e6."""
    return int(float(text))


def measured(document: Any) -> Any:
    """What a results file holds: of a report its data, and all of any other document."""
    report = isinstance(document, dict) and str(document.get("schema", "")) == "dpaudit-report/2"
    return document["data"] if report else document


def stored_rows(name: str) -> list[dict[str, Any]]:
    """The rows of a run in ``docs/studies/results/``."""
    found = json.loads((RESULTS / name / "results.json").read_text(encoding="utf-8"))
    rows: list[dict[str, Any]] = measured(found)["rows"]
    return rows


def write(path: Path, document: Any, *, indent: int | None = 1) -> None:
    """Put a document into a file as JSON, whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_file(path, json.dumps(document, indent=indent, ensure_ascii=False) + "\n")
