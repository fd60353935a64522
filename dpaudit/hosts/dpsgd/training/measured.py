"""Accuracies of files that do not carry their own, measured once and remembered by the file's SHA-256."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from dpaudit.errors import UsageError
from dpaudit.hosts.dpsgd.training.accuracy import Accuracy, accuracy_from_counts
from dpaudit.hosts.dpsgd.training.files import locked, write_atomically

__all__ = ["recalled", "remembered"]


def recalled(path: Path, *, key: str) -> Accuracy | None:
    """The accuracy that the JSON file ``path`` has under ``key``, if it has one.

    Raises:
        UsageError: the file is there and not what :func:`remembered` writes.
    """
    counts = _read(path).get(key)
    return None if counts is None else accuracy_from_counts(*counts)


def remembered(path: Path, *, key: str, measure: Callable[[], Accuracy]) -> Accuracy:
    """What is :func:`recalled`, else ``measure()``, which is then written to ``path``.

    Raises:
        UsageError: as there, or the file cannot be written.
    """
    known = recalled(path, key=key)
    if known is not None:
        return known
    found = measure()
    with locked(path.with_suffix(".lock"), wait=True):
        entries = {**_read(path), key: (found.correct, found.total)}
        text = json.dumps({k: {"correct": c, "total": t} for k, (c, t) in sorted(entries.items())}, indent=2)
        write_atomically(path, lambda file: file.write(text.encode() + b"\n"), what="checkpoints")
    return found


def _read(path: Path) -> dict[str, tuple[int, int]]:
    try:
        entries = json.loads(path.read_text(encoding="utf-8"))
        return {str(k): (int(v["correct"]), int(v["total"])) for k, v in entries.items()}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        raise UsageError(f"checkpoints={path}: cannot be read ({error}); delete it, it is made again") from error
