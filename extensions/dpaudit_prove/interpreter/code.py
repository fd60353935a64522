"""A function as instructions of a small stack machine: names, jumps, what is alive."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field
from typing import Any

__all__ = ["Code", "Emitter", "resolved_scope"]

Instruction = tuple[str, Any]
_BRANCHES = frozenset({"JUMP", "JIF", "JIT", "JIF_KEEP", "JIT_KEEP", "FOR_ITER"})
_JUMPS = _BRANCHES | {"SETUP"}
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


def _liveness(instructions: list[Instruction], handler: list[int | None]) -> list[frozenset[int]]:
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


_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


class _Scope:
    """The names that a function-like node binds, declares and reads, and its inner scopes."""

    def __init__(self, node: ast.AST, parent: _Scope | None) -> None:
        self.node, self.parent = node, parent
        self.bound: dict[str, None] = {}
        self.reads: set[str] = set()
        self.globals: set[str] = set()
        self.nonlocals: set[str] = set()
        self.inner: dict[int, _Scope] = {}
        self.free: set[str] = set()
        self.captured: set[str] = set()
        self.yields = False

    def bind(self, name: str) -> None:
        if name in self.globals or name in self.nonlocals:
            return
        self.bound[name] = None


class _Names(ast.NodeVisitor):
    def __init__(self, scope: _Scope) -> None:
        self.scope = scope

    def visit_Name(self, node: ast.Name) -> None:
        if isinstance(node.ctx, ast.Load):
            self.scope.reads.add(node.id)
            if node.id == "super":
                self.scope.reads.add("__class__")
        else:
            self.scope.bind(node.id)

    def visit_NamedExpr(self, node: ast.NamedExpr) -> None:
        scope = self.scope
        while isinstance(scope.node, _COMPREHENSIONS):
            scope.reads.add(node.target.id)
            if scope.parent is None:
                break
            scope = scope.parent
        scope.bind(node.target.id)
        self.visit(node.value)

    def visit_alias(self, node: ast.alias) -> None:
        self.scope.bind((node.asname or node.name).partition(".")[0])

    def _yield(self, node: ast.Yield | ast.YieldFrom) -> None:
        self.scope.yields = True
        self.generic_visit(node)

    visit_Yield = visit_YieldFrom = _yield

    def _visit_all(self, *nodes: ast.AST | None) -> None:
        for node in nodes:
            if node is not None:
                self.visit(node)

    def visit_Lambda(self, node: ast.Lambda | ast.FunctionDef) -> None:
        self._visit_all(*node.args.defaults, *node.args.kw_defaults)
        self.scope.inner[id(node)] = _scope_of(node, self.scope)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        self.scope.bind(node.name)
        self._visit_all(*node.decorator_list)
        self.visit_Lambda(node)

    def visit_ClassDef(self, node: ast.ClassDef) -> None:  # refused: what is inside never runs
        self.scope.bind(node.name)
        self._visit_all(*node.decorator_list, *node.bases, *node.keywords)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> None:  # refused as well
        self.scope.bind(node.name)
        self._visit_all(*node.decorator_list, *node.args.defaults, *node.args.kw_defaults)

    def _captured(self, node: Any) -> None:
        if node.name:
            self.scope.bind(node.name)
        self.generic_visit(node)

    visit_ExceptHandler = visit_MatchAs = visit_MatchStar = _captured

    def visit_MatchMapping(self, node: ast.MatchMapping) -> None:
        if node.rest:
            self.scope.bind(node.rest)
        self.generic_visit(node)

    def _comprehension(self, node: Any) -> None:
        self.visit(node.generators[0].iter)
        self.scope.inner[id(node)] = _scope_of(node, self.scope)

    visit_ListComp = visit_SetComp = visit_DictComp = visit_GeneratorExp = _comprehension


def _parameter_names(arguments: ast.arguments) -> list[str]:
    """The parameters, in the order of a function's variables."""
    names = [a.arg for a in [*arguments.posonlyargs, *arguments.args]]
    if arguments.vararg:
        names.append(arguments.vararg.arg)
    names += [a.arg for a in arguments.kwonlyargs]
    if arguments.kwarg:
        names.append(arguments.kwarg.arg)
    return names


def _scope_of(node: Any, parent: _Scope | None) -> _Scope:
    scope = _Scope(node, parent)
    names = _Names(scope)
    if isinstance(node, _COMPREHENSIONS):
        scope.bind(".0")
        for i, generator in enumerate(node.generators):
            names.visit(generator.target)
            if i:
                names.visit(generator.iter)
            for test in generator.ifs:
                names.visit(test)
        if isinstance(node, ast.DictComp):
            names.visit(node.key)
            names.visit(node.value)
        else:
            names.visit(node.elt)
    else:
        declared = _Declarations(scope)
        body = node.body if isinstance(node.body, list) else [node.body]
        for statement in body:
            declared.visit(statement)
        for name in _parameter_names(node.args):
            scope.bind(name)
        for statement in body:
            names.visit(statement)
    return scope


class _Declarations(ast.NodeVisitor):
    """Global and nonlocal declarations of one function, before anything else is read."""

    def __init__(self, scope: _Scope) -> None:
        self.scope = scope

    def visit_Global(self, node: ast.Global) -> None:
        self.scope.globals.update(node.names)

    def visit_Nonlocal(self, node: ast.Nonlocal) -> None:
        self.scope.nonlocals.update(node.names)
        self.scope.reads.update(node.names)

    def _skip(self, node: ast.AST) -> None:
        """Skip: inner functions have declarations of their own."""

    visit_FunctionDef = visit_AsyncFunctionDef = visit_ClassDef = visit_Lambda = _skip


def resolved_scope(node: ast.AST, free: frozenset[str]) -> _Scope:
    """The scope of a function, with those inside it; `free` are the names of its closure."""
    scope = _scope_of(node, None)
    _resolve(scope, free)
    return scope


def _resolve(scope: _Scope, outside: frozenset[str]) -> None:
    """Find the free names of every scope; `outside` are free names of the outermost function."""
    for inner in scope.inner.values():
        _resolve(inner, outside)
        for name in inner.free:
            if name in scope.bound:
                scope.captured.add(name)
            elif name not in scope.globals:
                scope.free.add(name)
    for name in scope.reads | scope.nonlocals:
        if name in scope.bound or name in scope.globals:
            continue
        above = scope.parent
        while above is not None and name not in above.bound:
            if name in above.globals:
                break
            above = above.parent
        if (above is not None and name in above.bound) or (above is None and name in outside):
            scope.free.add(name)


_OF_COMPREHENSIONS = ast.arguments(
    posonlyargs=[ast.arg(arg=".0")], args=[], vararg=None, kwonlyargs=[], kw_defaults=[],
    kwarg=None, defaults=[],
)  # fmt: skip


class Emitter:
    """The code of a scope, while it is made; it begins with what captures parameters.

    `open_blocks` are the blocks that a jump out of here leaves, outermost first: kind and data.
    `handlers` are the labels of the handlers around it.
    """

    def __init__(self, scope: _Scope, filename: str, name: str, owner: str | None) -> None:
        self.scope, self.filename, self.owner = scope, filename, owner
        node: Any = scope.node
        parameters = _OF_COMPREHENSIONS if isinstance(node, _COMPREHENSIONS) else node.args
        first = _parameter_names(parameters)
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
        self.open_blocks: list[tuple[str, Any]] = []
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

    def refuse(self, construct: str) -> None:
        """Add what refuses the program if it comes here."""
        self.emit("REFUSE", f"{construct} is not supported")

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

    def stash(self) -> int:
        """A variable without a name for the value on top."""
        slot = self.hidden_slot()
        self.emit("STORE_FAST", slot)
        return slot

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

    def assemble(self) -> Code:
        """The code, with places for labels."""
        where = self._labels
        self.code.instructions = [
            (op, where[arg]) if op in _JUMPS else (op, arg) for op, arg in self.code.instructions
        ]
        handler = [None if label is None else where[label] for label in self._handler_at]
        self.code.live = _liveness(self.code.instructions, handler)
        return self.code
