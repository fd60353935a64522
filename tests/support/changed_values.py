"""JSON values with one random change each."""

from __future__ import annotations

import copy
import random
from typing import Any

ODD = (
    -1, -2, 0, 1, 7, 1 << 70, -(1 << 70), 1.5, True, None, "", "x", "-1", "1/0", "1/7",
    "1e99999999", "ln(0)", "ln(1e99999999)", "9" * 4000, [], [0], [[]], [-1, 0], {}, {"x": 1},
    {"/": "1/0"}, {"/": "1e99999999"}, {"/": 1}, ["new", -1], ["register", 10**6],
    ["swap", ["new", 0], 1 << 60], ["mod", ["new", 0], 0], ["div", ["new", 0], -2],
)  # fmt: skip


def one_change(value: Any, rng: random.Random) -> tuple[str, Any]:
    """Where something was changed, and a copy of `value` with that change."""
    value = copy.deepcopy(value)
    inside, key, where = _place(value, rng)
    old = inside[key]
    change = rng.randrange(5)
    if change == 0 and isinstance(old, int) and not isinstance(old, bool):
        inside[key] = rng.choice((old + 1, old - 1, -old, -old - 1, 2 * old))
    elif change == 1:
        del inside[key]
    elif change == 2 and isinstance(inside, list):
        inside.insert(key, copy.deepcopy(old))
    elif change == 3:
        other, at, _ = _place(value, rng)
        inside[key] = copy.deepcopy(other[at])
    else:
        inside[key] = copy.deepcopy(rng.choice(ODD))
    return where, value


def _place(value: Any, rng: random.Random) -> tuple[Any, Any, str]:
    """A container, one of its keys, and the path to it; 1 in 5 steps down ends early."""
    inside, where = value, ""
    while True:
        key = rng.choice([*inside] if isinstance(inside, dict) else range(len(inside)))
        where += f".{key}" if isinstance(inside, dict) else f"[{key}]"
        below = inside[key]
        if not isinstance(below, (dict, list)) or not below or rng.randrange(5) == 0:
            return inside, key, where
        inside = below
