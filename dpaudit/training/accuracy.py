"""A network's accuracy on test images, with its interval, remembered for files without it."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from dpaudit.errors import UsageError
from dpaudit.stats import clopper_pearson
from dpaudit.training.files import locked, write_atomically
from dpaudit.types import Interval

__all__ = ["Accuracy", "accuracy_from_counts", "recalled", "remembered"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Accuracy(Interval):
    """``value`` = ``correct`` / ``total`` test images, with an exact interval."""

    value: float
    correct: int
    total: int


def accuracy_from_counts(correct: int, total: int, *, confidence: float = 0.95) -> Accuracy:
    """The accuracy of a network that named the classes of ``correct`` of ``total`` test images.

    Formal guarantee: as :func:`~dpaudit.stats.clopper_pearson`, over test images drawn like these
    ones.

    Raises:
        UsageError: correct outside 0 … total, no images, or a confidence outside (0, 1).
    """
    interval = clopper_pearson(correct, total, confidence=confidence)
    return Accuracy(
        low=interval.low,
        high=interval.high,
        confidence=confidence,
        method=interval.method,
        value=correct / total,
        correct=correct,
        total=total,
    )


def recalled(path: Path, *, key: str) -> Accuracy | None:
    """The accuracy under ``key`` in the JSON file ``path``, if there is one.

    Raises:
        UsageError: the file is there and not what :func:`remembered` writes.
    """
    found = _read(path).get(key)
    return None if found is None else accuracy_from_counts(*found[:2])


def remembered(path: Path, *, key: str, of: str, measure: Callable[[], Accuracy]) -> Accuracy:
    """What is :func:`recalled` for images of digest ``of``; else ``measure()``, kept in ``path``.

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
            {k: {"correct": c, "total": t, "of": o} for k, (c, t, o) in sorted(entries.items())},
            indent=2,
        )
        write_atomically(path, lambda file: file.write(text.encode() + b"\n"), what="checkpoints")
    return found


def _read(path: Path) -> dict[str, tuple[int, int, str]]:
    try:
        entries = json.loads(path.read_text(encoding="utf-8"))
        return {
            str(k): (int(v["correct"]), int(v["total"]), str(v.get("of", "")))
            for k, v in entries.items()
        }
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        raise UsageError(
            f"checkpoints={path}: cannot be read ({error}); delete it, it is made again"
        ) from error
