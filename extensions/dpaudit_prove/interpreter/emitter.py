"""Collects the instructions of one function: jumps, lines, handlers, and where names are kept."""

from __future__ import annotations

import ast
from typing import Any

from dpaudit_prove.interpreter.code import JUMPS, Code, liveness
from dpaudit_prove.interpreter.scopes import COMPREHENSIONS, Scope, parameter_names

__all__ = ["Emitter"]

_OF_COMPREHENSIONS = ast.arguments(
    posonlyargs=[ast.arg(arg=".0")], args=[], vararg=None, kwonlyargs=[], kw_defaults=[],
    kwarg=None, defaults=[],
)  # fmt: skip


class Emitter:
    """The code of a scope, while it is made; it begins with what captures parameters.

    `unwind` are the blocks that a jump out of here leaves, outermost first: kind and data.
    `handlers` are the labels of the handlers around it.
    """

    def __init__(self, scope: Scope, filename: str, name: str, owner: str | None) -> None:
        self.scope, self.filename, self.owner = scope, filename, owner
        node: Any = scope.node
        parameters = _OF_COMPREHENSIONS if isinstance(node, COMPREHENSIONS) else node.args
        first = parameter_names(parameters)
        slots = first + [n for n in scope.bound if n not in first and n not in scope.captured]
        own = [n for n in scope.bound if n in scope.captured]
        self.code = Code(
            name=name,
            filename=filename,
            parameters=parameters,
            slots=slots,
            cells=own + sorted(scope.free),
            free=sorted(scope.free),
            is_generator=scope.yields or isinstance(node, ast.GeneratorExp),
        )
        self.slot = {name: i for i, name in enumerate(slots)}
        self.cell = {name: i for i, name in enumerate(self.code.cells)}
        self.handlers: list[int] = []
        self.unwind: list[tuple[str, Any]] = []
        self.line = getattr(node, "lineno", 0)
        self._labels: list[int | None] = []
        self._handler_at: list[int | None] = []
        for name in first:
            if name in scope.captured:
                self.emit("LOAD_FAST", self.slot[name])
                self.emit("STORE_CELL", self.cell[name])

    def emit(self, op: str, arg: Any = None) -> None:
        """Add an instruction; the argument of a jump is a label."""
        self.code.instructions.append((op, arg))
        self.code.lines.append(self.line)
        self._handler_at.append(self.handlers[-1] if self.handlers else None)

    def refuse(self, what: str) -> None:
        """Add what refuses the program if it comes here."""
        self.emit("REFUSE", f"{what} is not supported")

    def label(self) -> int:
        """A new place to jump to."""
        self._labels.append(None)
        return len(self._labels) - 1

    def place(self, label: int) -> None:
        """Say that a label is here."""
        self._labels[label] = len(self.code.instructions)

    def hidden_slot(self) -> int:
        """A variable without a name."""
        self.code.slots.append(f".h{len(self.code.slots)}")
        return len(self.code.slots) - 1

    def attribute(self, op: str, name: str) -> None:
        """Load or store an attribute."""
        if self.owner and name.startswith("__") and not name.endswith("__"):
            name = f"_{self.owner.lstrip('_')}{name}"  # a class's private name
        self.emit(op, name)

    def load(self, name: str) -> None:
        """Load a variable."""
        if name in self.cell:
            self.emit("LOAD_CELL", self.cell[name])
        elif name in self.slot and name in self.scope.bound:
            self.emit("LOAD_FAST", self.slot[name])
        else:
            self.emit("LOAD_GLOBAL", name)

    def store(self, name: str) -> None:
        """Store a variable."""
        if name in self.cell:
            self.emit("STORE_CELL", self.cell[name])
        elif name in self.scope.globals:
            self.emit("STORE_GLOBAL", name)
        else:
            self.emit("STORE_FAST", self.slot[name])

    def finished(self) -> Code:
        """The code, with places for labels."""
        where = self._labels
        self.code.instructions = [
            (op, where[arg]) if op in JUMPS else (op, arg) for op, arg in self.code.instructions
        ]
        handler = [None if label is None else where[label] for label in self._handler_at]
        self.code.live = liveness(self.code.instructions, handler)
        return self.code
