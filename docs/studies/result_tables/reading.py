"""A results file, and how its numbers are written in a table."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[3]
RESULTS = ROOT / "docs" / "studies" / "results"


@cache
def results(name: str) -> Mapping[str, Any]:
    path = RESULTS / name / "results.json"
    found: Mapping[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    inner: Mapping[str, Any] = found.get("data", found)  # "data": since dpaudit-report/2
    return inner


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
