"""The time a run may still take, from the seconds that similar cells took.

Cells differ a thousandfold, so each remaining cell is expected to take what finished cells of the
same kind, host, source, mitigation and attack took; if there are none, those of the same kind and
host, or else of the same kind.
"""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any

__all__ = ["Remaining", "in_words"]

_PARTS = ("source", "mitigation", "attack")


class Remaining:
    """Seconds that are left, as a range; None while no finished cell is like a remaining one."""

    def __init__(self) -> None:
        self._left: dict[tuple[str, ...], int] = defaultdict(int)
        # number, sum, sum of squares
        self._seen: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0, 0.0])
        self._levels: dict[tuple[str, ...], tuple[str, ...]] = {}

    def add(self, kind: str, settings: Mapping[str, Any]) -> None:
        """A cell still to be done."""
        self._left[self._of(kind, settings)] += 1

    def drop(self, kind: str, settings: Mapping[str, Any]) -> None:
        """A cell that need not be done, or is done in an unknown time."""
        self._left[self._of(kind, settings)] -= 1

    def done(self, kind: str, settings: Mapping[str, Any], seconds: float) -> None:
        """A cell that took so many seconds."""
        levels = self._of(kind, settings)
        self._left[levels] -= 1
        for level in levels:
            seen = self._seen[level]
            seen[0] += 1
            seen[1] += seconds
            seen[2] += seconds * seconds

    def seconds(self, *, workers: int) -> tuple[float, float] | None:
        """The range of seconds that the rest will probably take with so many workers.

        Two standard errors to either side of the expected work, divided by the workers that still
        find some; at least as long as the longest cell. Descriptive: no probability is claimed.
        """
        left = {levels: number for levels, number in self._left.items() if number > 0}
        if not left:
            return (0.0, 0.0)
        work = variance = longest = 0.0
        for levels, number in left.items():
            found = next((self._seen[level] for level in levels if self._seen[level][0]), None)
            if found is None:
                return None
            count, total, squares = found
            mean = total / count
            spread = (
                max(squares / count - mean * mean, 0.0) * count / max(count - 1, 1)
                if count > 1
                else mean * mean
            )
            work += number * mean
            variance += number * spread + number * number * spread / count
            longest = max(longest, mean)
        at_once = max(1, min(workers, sum(left.values())))
        error = 2 * math.sqrt(variance)
        return max(longest, (work - error) / at_once), max(longest, (work + error) / at_once)

    def _of(self, kind: str, settings: Mapping[str, Any]) -> tuple[str, ...]:
        host = json.dumps(settings.get("host", {}), sort_keys=True)
        parts = [settings.get(part, {}).get("label", "") for part in _PARTS]
        levels = tuple(_levels(kind, host, parts))
        return self._levels.setdefault(levels, levels)


def _levels(kind: str, host: str, parts: list[str]) -> Iterator[str]:
    yield json.dumps([kind, host, *parts])
    yield json.dumps([kind, host])
    yield json.dumps([kind])


def in_words(seconds: tuple[float, float] | None) -> str:
    """``unknown``, ``about 40 s`` or ``2–5 min``, rounded up.

    >>> in_words(None), in_words((3.2, 3.3)), in_words((100, 290)), in_words((9000, 9100))
    ('unknown', 'about 4 s', '2–5 min', 'about 2.6 h')
    """
    if seconds is None:
        return "unknown"
    low, high = seconds
    for unit, size, digits in (("s", 1, 0), ("min", 60, 0), ("h", 3600, 1)):
        if high < 90 * size or unit == "h":
            texts = [
                f"{math.ceil(value / size * 10**digits) / 10**digits:g}" for value in (low, high)
            ]
            return (
                f"about {texts[1]} {unit}"
                if texts[0] == texts[1] or high < 1.5 * low
                else f"{texts[0]}–{texts[1]} {unit}"
            )
    raise AssertionError
