"""A results file, and how its numbers are written in a table."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from evidence.plan import RESULTS

from dpaudit_studies.evidence import measured

READ: set[str] = set()
"""The studies whose results were read since this was last cleared."""


def results(study: str, file: str = "results.json") -> Mapping[str, Any]:
    READ.add(study)
    return _document(RESULTS / study / file)


@cache
def _document(path: Path) -> Mapping[str, Any]:
    found: Mapping[str, Any] = measured(json.loads(path.read_text(encoding="utf-8")))
    return found


def rows(name: str) -> list[Mapping[str, Any]]:
    found: list[Mapping[str, Any]] = results(name)["rows"]
    return found


def line(values: Iterable[object]) -> str:
    return f"| {' | '.join(map(str, values))} |"


def interval(share: Mapping[str, float], *, digits: int = 1) -> str:
    value, low, high = (f"{100 * share[key]:.{digits}f}" for key in ("value", "low", "high"))
    return f"{value} % [{low}, {high}]"


def share(p: float | None) -> str:
    return "" if p is None else f"{p:.3f}" if 0 < p < 1 else f"{p:g}"
