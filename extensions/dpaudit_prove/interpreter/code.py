"""A function as instructions of a small stack machine, with what is alive at each."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field
from typing import Any

__all__ = ["JUMPS", "Code", "liveness"]

Instruction = tuple[str, Any]
_BRANCHES = frozenset({"JUMP", "JIF", "JIT", "JIF_KEEP", "JIT_KEEP", "FOR_ITER"})
JUMPS = _BRANCHES | {"SETUP"}
"""Instructions whose argument is a place in the code."""
_ENDS = frozenset({"RETURN", "RAISE", "JUMP", "REFUSE"})


@dataclass(eq=False)
class Code:
    """A compiled function; compared by identity.

    `slots` are the plain locals (parameters first), `cells` the captured ones followed by the free
    ones. `live[i]` are the slots that an execution from instruction i may still read.
    """

    name: str
    filename: str
    parameters: ast.arguments
    slots: list[str]
    cells: list[str]
    free: list[str]
    is_generator: bool = False
    instructions: list[Instruction] = field(default_factory=list)
    lines: list[int] = field(default_factory=list)
    live: list[frozenset[int]] = field(default_factory=list)


def liveness(instructions: list[Instruction], handler: list[int | None]) -> list[frozenset[int]]:
    """For every instruction the slots that may be read from there on; one more entry at the end."""
    count = len(instructions)
    live: list[frozenset[int]] = [frozenset()] * (count + 1)
    changed = True
    while changed:
        changed = False
        for i in range(count - 1, -1, -1):
            op, arg = instructions[i]
            after: set[int] = set() if op in _ENDS else set(live[i + 1])
            if op in _BRANCHES:
                after |= live[arg]
            if op == "STORE_FAST":
                after.discard(arg)
            elif op in {"LOAD_FAST", "DEL_FAST"}:
                after.add(arg)
            caught = handler[i]
            if caught is not None:
                after |= live[caught]
            if after != live[i]:
                live[i] = frozenset(after)
                changed = True
    return live
