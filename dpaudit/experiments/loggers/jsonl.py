"""A run as JSON lines: one object per event, appended as it happens."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any

from dpaudit.codec import to_dict
from dpaudit.types import CellFailure, CellResult, RunStart

__all__ = ["JsonLines"]


class JsonLines:
    """``jsonl:path=FILE``: each line has ``event``, ``time`` (UTC) and ``run``.

    Events are start, result, failure and end. A resumed run appends; cells that were finished
    before are not written again. Half a line, which a killed run may leave, stays a line by itself.
    """

    def __init__(self, *, path: str) -> None:
        self._path = Path(str(path))
        self._file: IO[str] | None = None
        self._run = ""

    def start(self, run: RunStart) -> None:
        """The run without its spec, and how many cells were finished before."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._file = self._path.open("a", encoding="utf-8")
        if _is_torn(self._path):
            self._file.write("\n")
        self._run = run.run_id
        told = {k: v for k, v in to_dict(run).items() if k not in ("spec", "earlier", "run_id")}
        self._write("start", {**told, "earlier": len(run.earlier)})

    def result(self, cell: CellResult) -> None:
        """The whole result."""
        self._write("result", to_dict(cell))

    def failure(self, cell: CellFailure) -> None:
        """The whole failure, with its traceback."""
        self._write("failure", to_dict(cell))

    def end(self, document: Mapping[str, Any]) -> None:
        """The document's summary, if it has one, and how many cells there are."""
        self._write(
            "end", {"cells": len(document.get("cells", ())), "summary": document.get("summary", "")}
        )

    def close(self) -> None:
        """Close the file, if it was opened."""
        if self._file is not None:
            self._file.close()

    def _write(self, event: str, what: Mapping[str, Any]) -> None:
        if self._file is None:
            return
        line = {
            "event": event,
            "time": datetime.now(UTC).isoformat(timespec="seconds"),
            "run": self._run,
            **what,
        }
        self._file.write(json.dumps(line, allow_nan=False) + "\n")
        self._file.flush()


def _is_torn(path: Path) -> bool:
    """Whether a regular file's last line has no end."""
    if not path.is_file() or path.stat().st_size == 0:
        return False
    with path.open("rb") as file:
        file.seek(-1, os.SEEK_END)
        return file.read() != b"\n"
