"""What is kept of a run beside its results, and whether that is still what the checkout gives."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from evidence.code import ROOT, file_hash, pins
from evidence.plan import RESULTS, Study

__all__ = ["Record", "stale"]

LISTED = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """``evidence.json``: which code made a folder of results, when, where, at what cost."""

    commit: str
    day: str
    machine: str
    cpu_minutes: float
    run: list[str]
    files: dict[str, str]
    packages: dict[str, str]

    def write(self, folder: Path) -> None:
        """Keep it, one line for each field."""
        lines = [f"{json.dumps(key)}: {json.dumps(value)}" for key, value in asdict(self).items()]
        text = "{\n" + ",\n".join(lines) + "\n}\n"
        (folder / "evidence.json").write_text(text, encoding="utf-8")

    @classmethod
    def of(cls, name: str) -> Record | None:
        """The record of a folder of results; None if `make evidence` did not write it."""
        path = RESULTS / name / "evidence.json"
        return cls(**json.loads(path.read_text(encoding="utf-8"))) if path.exists() else None


def stale(study: Study, record: Record | None) -> Iterator[str]:
    """Why these results are not what the checkout gives; nothing if they are."""
    if record is None:
        yield "not yet run by make evidence"
        return
    if record.run != list(study.run):
        yield "the plan has other commands"
    gone = [name for name in study.files if not (study.results / name).exists()]
    if gone:
        yield f"no {gone[0]}"
    changed = [path for path, before in record.files.items() if _now(path) != before]
    if changed:
        more = f" and {len(changed) - LISTED} more" if len(changed) > LISTED else ""
        yield f"changed: {', '.join(changed[:LISTED])}{more}"
    for name, before in record.packages.items():
        if pins().get(name, before) != before:
            yield f"{name} {before}, now {pins()[name]}"


def _now(path: str) -> str:
    return file_hash(ROOT / path) if (ROOT / path).exists() else "gone"
