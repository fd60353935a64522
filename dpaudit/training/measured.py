"""Accuracies of files that do not carry their own, measured once and remembered by the file and the test images."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from dpaudit.errors import UsageError
from dpaudit.training.accuracy import Accuracy, accuracy_from_counts
from dpaudit.training.files import locked, write_atomically

__all__ = ["recalled", "remembered"]


def recalled(path: Path, *, key: str) -> Accuracy | None:
    """The accuracy that the JSON file ``path`` has under ``key``, if it has one.

    Raises:
        UsageError: the file is there and not what :func:`remembered` writes.
    """
    found = _read(path).get(key)
    return None if found is None else accuracy_from_counts(*found[:2])


def remembered(path: Path, *, key: str, of: str, measure: Callable[[], Accuracy]) -> Accuracy:
    """What is :func:`recalled`, if measured on the images of digest ``of``; else ``measure()``, then written to ``path``.

    Raises:
        UsageError: as there, or the file cannot be written.
    """
    known = _read(path).get(key)
    if known is not None and known[2] == of:
        return accuracy_from_counts(*known[:2])
    found = measure()
    with locked(path, wait=True):
        entries = {**_read(path), key: (found.correct, found.total, of)}
        text = json.dumps(
            {k: {"correct": c, "total": t, "of": o} for k, (c, t, o) in sorted(entries.items())}, indent=2
        )
        write_atomically(path, lambda file: file.write(text.encode() + b"\n"), what="checkpoints")
    return found


def _read(path: Path) -> dict[str, tuple[int, int, str]]:
    try:
        entries = json.loads(path.read_text(encoding="utf-8"))
        return {str(k): (int(v["correct"]), int(v["total"]), str(v.get("of", ""))) for k, v in entries.items()}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        raise UsageError(f"checkpoints={path}: cannot be read ({error}); delete it, it is made again") from error
