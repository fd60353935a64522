"""Which verdicts differ between two states of the results."""

from __future__ import annotations

import json
import subprocess
from collections import Counter
from collections.abc import Iterator
from typing import Any

from dpaudit_studies.evidence import measured
from evidence.code import git
from evidence.plan import RESULTS, Study

__all__ = ["changes"]

VERDICTS = (
    "verdict",
    "found",
    "agrees",
    "converged",
    "reads",
    "worse",
    "beats_honest",
    "hit",
    "ok",
)
NAMES = ("name", "mechanism", "case", "row", "program", "generator", "sampler", "function")
"""What a row is called where no grid of settings says it."""


def changes(study: Study, since: str) -> Iterator[str]:
    """Each row of a study whose verdicts are others than at the commit ``since``."""
    for name in study.files:
        path = study.results / name
        if path.suffix != ".json" or not path.exists():
            continue
        try:
            before = git("show", f"{since}:{path.relative_to(RESULTS.parents[2])}")
        except subprocess.CalledProcessError:
            yield f"{study.name}/{name}: new"
            continue
        old, new = _verdicts(json.loads(before)), _verdicts(json.loads(path.read_text("utf-8")))
        for row in sorted(old.keys() | new.keys()):
            if old.get(row) != new.get(row):
                was, now = (_counted(found.get(row, ["no row"])) for found in (old, new))
                yield f"{study.name}: {row}: {was} → {now}"


def _verdicts(document: Any) -> dict[str, list[str]]:
    """By row, as its settings name it, the verdicts of all rows of that name, sorted."""
    document = measured(document)
    rows = document.get("rows", ()) if isinstance(document, dict) else document
    if isinstance(rows, dict):
        rows = [{**row, "name": name} for name, row in rows.items()]
    cells = document.get("cells") if isinstance(document, dict) else None
    grid = cells[0]["settings"].get("grid", {}) if cells else {}
    found: dict[str, list[str]] = {}
    for row in rows:
        keys = [key for key in grid if key in row] or [key for key in NAMES if key in row][:1]
        said = [f"{key}={_word(row[key])}" for key in VERDICTS if key in row]
        if said:
            found.setdefault(", ".join(str(row[key]) for key in keys), []).append(" ".join(said))
    return {name: sorted(said) for name, said in found.items()}


def _counted(said: list[str]) -> str:
    """Verdicts of rows of one name, each with how many rows have it."""
    return ", ".join(f"{n} × {one}" if n > 1 else one for one, n in Counter(said).items())


def _word(value: Any) -> str:
    """A verdict, or of a share with its interval the value."""
    return str(value["value"] if isinstance(value, dict) else value)
