"""JSON-like values with a few fields of another type, size or place."""

from __future__ import annotations

import copy
import random
from typing import Any

__all__ = ["ODD", "deep", "with_odd_fields"]


def deep(levels: int) -> list[Any]:
    """A list of lists of … of a list."""
    made: list[Any] = []
    for _ in range(levels):
        made = [made]
    return made


ODD: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 2, 0.5, -0.0, 1e-320, 1e308, 10**18, -(10**18), 2**63, 10**400, "",
    "x", "inf", "nan", "-1", "1e999", "\x1b[2J\u202e", "\ud800", "a" * 2000, "../../etc/passwd",
    "\0", "😀", [], {}, [[]], [None], [1, "a"], {"": {}}, {"name": []}, ["x"] * 50,
    {"a": 1, "b": {"c": [1]}}, deep(50), deep(80),
)  # fmt: skip


def with_odd_fields(rng: random.Random, value: Any, *, odd: tuple[Any, ...] = ODD) -> Any:
    """A copy of ``value`` with one to three changes: odd values, parts lost, doubled or moved."""
    value = copy.deepcopy(value)
    for _ in range(rng.choice((1, 1, 2, 3))):
        places = list(_places(value))
        if not places:
            return rng.choice(odd)
        container, key = rng.choice(places)
        what = rng.randrange(5)
        if what == 0:
            del container[key]
        elif what == 1:
            other, name = rng.choice(places)
            container[key] = copy.deepcopy(other[name])
        elif what == 2 and isinstance(container, dict):
            container[str(rng.choice(("", "odd", "\x1b[2J", key)))] = copy.deepcopy(rng.choice(odd))
        else:
            container[key] = copy.deepcopy(rng.choice(odd))
    return value


def _places(value: Any) -> Any:
    waiting = [value]
    while waiting:
        container = waiting.pop()
        if isinstance(container, (dict, list)):
            for key in container if isinstance(container, dict) else range(len(container)):
                yield container, key
                waiting.append(container[key])
