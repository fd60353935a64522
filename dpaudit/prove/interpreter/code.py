"""A function's source as instructions of a small stack machine, with what is alive at each.

Python's own bytecode changes with every release and hides a frame's stack; these instructions
come from the syntax tree, so that a program's state at any point is plain data.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from dpaudit.errors import RefusedProgramError

__all__ = ["Code", "Instruction", "compile_function"]

Instruction = tuple[str, Any]
FunctionNode = ast.FunctionDef | ast.Lambda
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)


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
    in_class: bool = False

    def slot_of(self) -> dict[str, int]:
        return {name: i for i, name in enumerate(self.slots)}


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


def _refuse(node: ast.AST, what: str) -> RefusedProgramError:
    return RefusedProgramError(f"line {getattr(node, 'lineno', '?')}: {what} is not supported")


class _Names(ast.NodeVisitor):
    def __init__(self, scope: _Scope) -> None:
        self.scope = scope

    def visit_Global(self, node: ast.Global) -> None:
        self.scope.globals.update(node.names)

    def visit_Nonlocal(self, node: ast.Nonlocal) -> None:
        self.scope.nonlocals.update(node.names)
        self.scope.reads.update(node.names)

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

    def visit_ExceptHandler(self, node: ast.ExceptHandler) -> None:
        if node.name:
            self.scope.bind(node.name)
        self.generic_visit(node)

    def visit_alias(self, node: ast.alias) -> None:
        self.scope.bind((node.asname or node.name).partition(".")[0])

    def visit_Yield(self, node: ast.Yield) -> None:
        self.scope.yields = True
        self.generic_visit(node)

    def visit_YieldFrom(self, node: ast.YieldFrom) -> None:
        self.scope.yields = True
        self.generic_visit(node)

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        raise _refuse(node, f"class {node.name} inside a function")

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        self.scope.bind(node.name)
        for outside in [*node.decorator_list, *node.args.defaults, *node.args.kw_defaults]:
            if outside is not None:
                self.visit(outside)
        self.scope.inner[id(node)] = _scope_of(node, self.scope)

    def visit_Lambda(self, node: ast.Lambda) -> None:
        for outside in [*node.args.defaults, *node.args.kw_defaults]:
            if outside is not None:
                self.visit(outside)
        self.scope.inner[id(node)] = _scope_of(node, self.scope)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> None:
        raise _refuse(node, "async")

    def _comprehension(self, node: Any) -> None:
        self.visit(node.generators[0].iter)
        self.scope.inner[id(node)] = _scope_of(node, self.scope)

    visit_ListComp = visit_SetComp = visit_DictComp = visit_GeneratorExp = _comprehension


def _parameter_names(arguments: ast.arguments) -> list[str]:
    found = [a.arg for a in [*arguments.posonlyargs, *arguments.args]]
    if arguments.vararg:
        found.append(arguments.vararg.arg)
    found += [a.arg for a in arguments.kwonlyargs]
    if arguments.kwarg:
        found.append(arguments.kwarg.arg)
    return found


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
        declared = _Declared(scope)
        body = node.body if isinstance(node.body, list) else [node.body]
        for statement in body:
            declared.visit(statement)
        for name in _parameter_names(node.args):
            scope.bind(name)
        for statement in body:
            names.visit(statement)
    return scope


class _Declared(ast.NodeVisitor):
    """Global and nonlocal declarations of one function, before anything else is read."""

    def __init__(self, scope: _Scope) -> None:
        self.scope = scope

    def visit_Global(self, node: ast.Global) -> None:
        self.scope.globals.update(node.names)

    def visit_Nonlocal(self, node: ast.Nonlocal) -> None:
        self.scope.nonlocals.update(node.names)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        del node

    def visit_Lambda(self, node: ast.Lambda) -> None:
        del node


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


def compile_function(
    node: FunctionNode, filename: str, *, free: tuple[str, ...] = (), owner: str | None = None
) -> Code:
    """Compile one function of a parsed file.

    `free` are the names of its closure, `owner` is the class whose body it is in.
    """
    scope = _scope_of(node, None)
    _resolve(scope, frozenset(free))
    return _Compiler(scope, filename, getattr(node, "name", "<lambda>"), owner).compile()


_BINARY = {
    ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.FloorDiv: "//", ast.Mod: "%",
    ast.Pow: "**", ast.LShift: "<<", ast.RShift: ">>", ast.BitAnd: "&", ast.BitOr: "|",
    ast.BitXor: "^", ast.MatMult: "@",
}  # fmt: skip
_UNARY = {ast.USub: "neg", ast.UAdd: "pos", ast.Invert: "invert", ast.Not: "not"}
_COMPARE = {
    ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.Eq: "==", ast.NotEq: "!=",
    ast.Is: "is", ast.IsNot: "is not", ast.In: "in", ast.NotIn: "not in",
}  # fmt: skip


class _Compiler:
    def __init__(self, scope: _Scope, filename: str, name: str, owner: str | None) -> None:
        self.scope, self.filename, self.owner = scope, filename, owner
        node: Any = scope.node
        parameters = _comprehension_parameters() if isinstance(node, _COMPREHENSIONS) else node.args
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
        self.slot = self.code.slot_of()
        self.cell = {name: i for i, name in enumerate(self.code.cells)}
        self.handlers: list[int] = []  # label of the innermost handler, at this point
        self.handler_at: list[int | None] = []
        self.labels: list[int | None] = []
        self.unwind: list[tuple[str, Any]] = []
        self.current_line = getattr(node, "lineno", 0)
        self.hidden = 0

    # -- output --------------------------------------------------------------------------------
    def emit(self, op: str, arg: Any = None) -> None:
        self.code.instructions.append((op, arg))
        self.code.lines.append(self.current_line)
        self.handler_at.append(self.handlers[-1] if self.handlers else None)

    def label(self) -> int:
        self.labels.append(None)
        return len(self.labels) - 1

    def place(self, label: int) -> None:
        self.labels[label] = len(self.code.instructions)

    def hidden_slot(self) -> int:
        self.code.slots.append(f".h{len(self.code.slots)}")
        return len(self.code.slots) - 1

    def compile(self) -> Code:
        node: Any = self.scope.node
        for name in _parameter_names(self.code.parameters):
            if name in self.scope.captured:
                self.emit("LOAD_FAST", self.slot[name])
                self.emit("STORE_CELL", self.cell[name])
        if isinstance(node, _COMPREHENSIONS):
            self.comprehension_body(node)
        elif isinstance(node, ast.Lambda):
            self.expr(node.body)
            self.emit("RETURN")
        else:
            self.body(node.body)
            self.emit("LOAD_CONST", None)
            self.emit("RETURN")
        self.finish()
        return self.code

    def finish(self) -> None:
        where = self.labels
        jumps = {"JUMP", "JIF", "JIT", "JIF_KEEP", "JIT_KEEP", "FOR_ITER", "SETUP"}
        out: list[Instruction] = []
        for op, arg in self.code.instructions:
            out.append((op, where[arg]) if op in jumps else (op, arg))
        self.code.instructions = out
        self.code.live = _liveness(
            out, [None if h is None else where[h] for h in self.handler_at], len(self.code.slots)
        )

    def attribute(self, op: str, name: str) -> None:
        if self.owner and name.startswith("__") and not name.endswith("__"):
            name = f"_{self.owner.lstrip('_')}{name}"  # a class's private name
        self.emit(op, name)

    # -- names ---------------------------------------------------------------------------------
    def load(self, name: str) -> None:
        if name in self.cell:
            self.emit("LOAD_CELL", self.cell[name])
        elif name in self.slot and name in self.scope.bound:
            self.emit("LOAD_FAST", self.slot[name])
        else:
            self.emit("LOAD_GLOBAL", name)

    def store(self, name: str) -> None:
        if name in self.cell:
            self.emit("STORE_CELL", self.cell[name])
        elif name in self.scope.globals:
            self.emit("STORE_GLOBAL", name)
        else:
            self.emit("STORE_FAST", self.slot[name])

    def assign(self, target: ast.expr) -> None:
        match target:
            case ast.Name():
                self.store(target.id)
            case ast.Tuple() | ast.List():
                starred = [i for i, t in enumerate(target.elts) if isinstance(t, ast.Starred)]
                if starred:
                    after = len(target.elts) - starred[0] - 1
                    self.emit("UNPACK_EX", (starred[0], after))
                else:
                    self.emit("UNPACK", len(target.elts))
                for item in target.elts:
                    self.assign(item.value if isinstance(item, ast.Starred) else item)
            case ast.Attribute():
                self.expr(target.value)
                self.attribute("STORE_ATTR", target.attr)
            case ast.Subscript():
                self.expr(target.value)
                self.expr(target.slice)
                self.emit("STORE_SUB")
            case _:
                raise _refuse(target, type(target).__name__)

    # -- statements ----------------------------------------------------------------------------
    def body(self, statements: list[ast.stmt]) -> None:
        for statement in statements:
            self.current_line = statement.lineno
            method = getattr(self, f"stmt_{type(statement).__name__}", None)
            if method is None:
                raise _refuse(statement, f"the statement {type(statement).__name__}")
            method(statement)

    def stmt_Pass(self, node: ast.Pass) -> None:
        del node

    stmt_Global = stmt_Nonlocal = stmt_Pass

    def stmt_Expr(self, node: ast.Expr) -> None:
        if isinstance(node.value, ast.Constant):
            return
        self.expr(node.value)
        self.emit("POP")

    def stmt_Return(self, node: ast.Return) -> None:
        if node.value is None:
            self.emit("LOAD_CONST", None)
        else:
            self.expr(node.value)
        self.leave(len(self.unwind))
        self.emit("RETURN")

    def leave(self, count: int, *, keeps_value: bool = True) -> None:
        """Emit what leaving the innermost `count` blocks runs: finally bodies, __exit__ calls."""
        del keeps_value
        saved, saved_handlers = list(self.unwind), list(self.handlers)
        for kind, data in reversed(saved[len(saved) - count :]):
            self.unwind.pop()
            if kind == "try":
                self.emit("POP_BLOCK")
                self.handlers.pop()
            elif kind == "finally":
                self.emit("POP_BLOCK")
                self.handlers.pop()
                slot = self.hidden_slot()
                keeps = any(k == "value" for k, _ in [("value", None)])
                if keeps and self._value_on_stack:
                    self.emit("STORE_FAST", slot)
                self.body(data)
                if keeps and self._value_on_stack:
                    self.emit("LOAD_FAST", slot)
            elif kind == "with":
                self.emit("POP_BLOCK")
                self.handlers.pop()
                self.exit_call(data)
            elif kind == "for" and self._value_on_stack:
                self.emit("ROT2")
                self.emit("POP")
            elif kind == "for":
                self.emit("POP")
        self.unwind, self.handlers = saved, saved_handlers

    _value_on_stack = True

    def exit_call(self, slot: int) -> None:
        self.emit("LOAD_FAST", slot)
        for _ in range(3):
            self.emit("LOAD_CONST", None)
        self.emit("CALL", (3, ()))
        self.emit("POP")

    def stmt_Assign(self, node: ast.Assign) -> None:
        self.expr(node.value)
        for target in node.targets[:-1]:
            self.emit("DUP")
            self.assign(target)
        self.assign(node.targets[-1])

    def stmt_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self.expr(node.value)
            self.assign(node.target)

    def stmt_AugAssign(self, node: ast.AugAssign) -> None:
        target, op = node.target, _BINARY[type(node.op)]
        if isinstance(target, ast.Name):
            self.load(target.id)
            self.expr(node.value)
            self.emit("INPLACE", op)
            self.store(target.id)
        elif isinstance(target, ast.Attribute):
            self.expr(target.value)
            self.emit("DUP")
            self.attribute("LOAD_ATTR", target.attr)
            self.expr(node.value)
            self.emit("INPLACE", op)
            self.emit("ROT2")
            self.attribute("STORE_ATTR", target.attr)
        else:
            container, index = self.hidden_slot(), self.hidden_slot()
            self.expr(target.value)
            self.emit("STORE_FAST", container)
            self.expr(target.slice)
            self.emit("STORE_FAST", index)
            self.emit("LOAD_FAST", container)
            self.emit("LOAD_FAST", index)
            self.emit("LOAD_SUB")
            self.expr(node.value)
            self.emit("INPLACE", op)
            self.emit("LOAD_FAST", container)
            self.emit("LOAD_FAST", index)
            self.emit("STORE_SUB")

    def stmt_Delete(self, node: ast.Delete) -> None:
        for target in node.targets:
            if isinstance(target, ast.Name) and target.id in self.slot:
                self.emit("DEL_FAST", self.slot[target.id])
            elif isinstance(target, ast.Subscript):
                self.expr(target.value)
                self.expr(target.slice)
                self.emit("DEL_SUB")
            else:
                raise _refuse(node, "del of this target")

    def stmt_If(self, node: ast.If) -> None:
        other, end = self.label(), self.label()
        self.condition(node.test, other)
        self.body(node.body)
        if node.orelse:
            self.emit("JUMP", end)
        self.place(other)
        self.body(node.orelse)
        self.place(end)

    def condition(self, test: ast.expr, otherwise: int) -> None:
        self.expr(test)
        self.emit("JIF", otherwise)

    def stmt_While(self, node: ast.While) -> None:
        top, other, end = self.label(), self.label(), self.label()
        self.place(top)
        if not (isinstance(node.test, ast.Constant) and node.test.value):
            self.condition(node.test, other)
        self.loop(("while", (top, end)), node.body)
        self.emit("JUMP", top)
        self.place(other)
        self.body(node.orelse)
        self.place(end)

    def loop(self, block: tuple[str, Any], body: list[ast.stmt]) -> None:
        self.unwind.append(block)
        self.body(body)
        self.unwind.pop()

    def stmt_For(self, node: ast.For) -> None:
        top, other, end = self.label(), self.label(), self.label()
        self.expr(node.iter)
        self.emit("GET_ITER")
        self.place(top)
        self.emit("FOR_ITER", other)
        self.assign(node.target)
        self.loop(("for", (top, end)), node.body)
        self.emit("JUMP", top)
        self.place(other)
        self.body(node.orelse)
        self.place(end)

    def _loop_depth(self, node: ast.stmt) -> int:
        for depth, (kind, _) in enumerate(reversed(self.unwind)):
            if kind in {"for", "while"}:
                return depth
        raise _refuse(node, "break or continue outside a loop")

    def stmt_Break(self, node: ast.Break) -> None:
        depth = self._loop_depth(node)
        self._value_on_stack = False
        self.leave(depth)
        kind, (_, end) = self.unwind[-1 - depth]
        if kind == "for":
            self.emit("POP")
        self._value_on_stack = True
        self.emit("JUMP", end)

    def stmt_Continue(self, node: ast.Continue) -> None:
        depth = self._loop_depth(node)
        self._value_on_stack = False
        self.leave(depth)
        self._value_on_stack = True
        self.emit("JUMP", self.unwind[-1 - depth][1][0])

    def stmt_Raise(self, node: ast.Raise) -> None:
        if node.exc is None:
            caught = [data for kind, data in self.unwind if kind == "caught"]
            if not caught:
                raise _refuse(node, "a bare raise outside an except clause")
            self.emit("LOAD_FAST", caught[-1])
        else:
            self.expr(node.exc)
            if node.cause is not None:
                self.expr(node.cause)
                self.emit("POP")
        self.emit("RAISE")

    def stmt_Assert(self, node: ast.Assert) -> None:
        if not __debug__:
            return
        fine = self.label()
        self.expr(node.test)
        self.emit("JIT", fine)
        self.emit("LOAD_CONST", AssertionError)
        if node.msg is not None:
            self.expr(node.msg)
            self.emit("CALL", (1, ()))
        self.emit("RAISE")
        self.place(fine)

    def stmt_Try(self, node: ast.Try) -> None:
        if node.finalbody:
            self.with_finally(node)
        else:
            self.with_handlers(node)

    def with_finally(self, node: ast.Try) -> None:
        failed, end = self.label(), self.label()
        with self.guarded(failed, ("finally", node.finalbody)):
            if node.handlers:
                self.with_handlers(node)
            else:
                self.body(node.body)
                self.body(node.orelse)
        self.body(node.finalbody)
        self.emit("JUMP", end)
        with self.caught(failed):
            self.body(node.finalbody)
        self.place(end)

    @contextmanager
    def guarded(self, failed: int, block: tuple[str, Any]) -> Iterator[None]:
        """What is emitted inside goes to `failed` on an exception; `block` unwinds it."""
        self.emit("SETUP", failed)
        self.handlers.append(failed)
        self.unwind.append(block)
        yield
        self.unwind.pop()
        self.emit("POP_BLOCK")
        self.handlers.pop()

    @contextmanager
    def caught(self, failed: int) -> Iterator[int]:
        """At `failed`, with the exception in a slot; raised again after what is emitted inside."""
        self.place(failed)
        slot = self.hidden_slot()
        self.emit("STORE_FAST", slot)
        self.unwind.append(("caught", slot))
        yield slot
        self.unwind.pop()
        self.emit("LOAD_FAST", slot)
        self.emit("RAISE")

    def with_handlers(self, node: ast.Try) -> None:
        failed, end = self.label(), self.label()
        with self.guarded(failed, ("try", None)):
            self.body(node.body)
        self.body(node.orelse)
        self.emit("JUMP", end)
        with self.caught(failed) as slot:
            self.each_handler(node, slot, end)
        self.place(end)

    def each_handler(self, node: ast.Try, slot: int, end: int) -> None:
        for handler in node.handlers:
            following = self.label()
            if handler.type is not None:
                self.emit("LOAD_FAST", slot)
                self.expr(handler.type)
                self.emit("EXC_MATCH")
                self.emit("JIF", following)
            if handler.name:
                self.emit("LOAD_FAST", slot)
                self.store(handler.name)
            self.body(handler.body)
            if handler.name:  # Python deletes it; a slot that is read then is an error
                self.emit("LOAD_CONST", None)
                self.store(handler.name)
                if handler.name in self.slot and handler.name not in self.cell:
                    self.emit("DEL_FAST", self.slot[handler.name])
            self.emit("JUMP", end)
            self.place(following)

    def stmt_With(self, node: ast.With) -> None:
        self.with_items(node.items, node.body)

    def with_items(self, items: list[ast.withitem], body: list[ast.stmt]) -> None:
        if not items:
            self.body(body)
            return
        failed, end, swallowed = self.label(), self.label(), self.label()
        slot = self.hidden_slot()
        self.expr(items[0].context_expr)
        self.emit("DUP")
        self.emit("LOAD_ATTR", "__exit__")
        self.emit("STORE_FAST", slot)
        self.emit("LOAD_ATTR", "__enter__")
        self.emit("CALL", (0, ()))
        with self.guarded(failed, ("with", slot)):
            if items[0].optional_vars is None:
                self.emit("POP")
            else:
                self.assign(items[0].optional_vars)
            self.with_items(items[1:], body)
        self.exit_call(slot)
        self.emit("JUMP", end)
        self.place(failed)
        caught = self.hidden_slot()
        self.emit("STORE_FAST", caught)
        self.emit("LOAD_FAST", slot)
        self.emit("LOAD_FAST", caught)
        self.emit("EXC_TYPE")
        self.emit("LOAD_FAST", caught)
        self.emit("LOAD_CONST", None)
        self.emit("CALL", (3, ()))
        self.emit("JIT", swallowed)
        self.emit("LOAD_FAST", caught)
        self.emit("RAISE")
        self.place(swallowed)
        self.place(end)

    def stmt_FunctionDef(self, node: ast.FunctionDef) -> None:
        for decorator in node.decorator_list:
            self.expr(decorator)
        self.make_function(node, node.name, node.args)
        for _ in node.decorator_list:
            self.emit("CALL", (1, ()))
        self.store(node.name)

    def make_function(self, node: Any, name: str, arguments: ast.arguments | None) -> None:
        inner = _Compiler(self.scope.inner[id(node)], self.filename, name, self.owner).compile()
        defaults, keywords = 0, []
        if arguments is not None:
            for default in arguments.defaults:
                self.expr(default)
            defaults = len(arguments.defaults)
            for parameter, value in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True):
                if value is not None:
                    self.expr(value)
                    keywords.append(parameter.arg)
        captured = tuple(self.cell[name] for name in inner.free)
        self.emit("MAKE_FUNCTION", (inner, defaults, tuple(keywords), captured))

    def stmt_Import(self, node: ast.Import) -> None:
        for alias in node.names:
            self.emit("IMPORT", (alias.name, alias.asname is None))
            self.store((alias.asname or alias.name).partition(".")[0])

    def stmt_ImportFrom(self, node: ast.ImportFrom) -> None:
        for alias in node.names:
            self.emit("IMPORT_FROM", (node.level, node.module, alias.name))
            self.store(alias.asname or alias.name)

    # -- expressions ---------------------------------------------------------------------------
    def expr(self, node: ast.expr) -> None:
        method = getattr(self, f"expr_{type(node).__name__}", None)
        if method is None:
            raise _refuse(node, f"the expression {type(node).__name__}")
        before = self.current_line
        self.current_line = getattr(node, "lineno", before)
        method(node)
        self.current_line = before

    def expr_Constant(self, node: ast.Constant) -> None:
        self.emit("LOAD_CONST", node.value)

    def expr_Name(self, node: ast.Name) -> None:
        self.load(node.id)

    def expr_NamedExpr(self, node: ast.NamedExpr) -> None:
        self.expr(node.value)
        self.emit("DUP")
        self.store(node.target.id)

    def expr_BinOp(self, node: ast.BinOp) -> None:
        self.expr(node.left)
        self.expr(node.right)
        self.emit("BINARY", _BINARY[type(node.op)])

    def expr_UnaryOp(self, node: ast.UnaryOp) -> None:
        self.expr(node.operand)
        self.emit("UNARY", _UNARY[type(node.op)])

    def expr_BoolOp(self, node: ast.BoolOp) -> None:
        end = self.label()
        jump = "JIF_KEEP" if isinstance(node.op, ast.And) else "JIT_KEEP"
        for value in node.values[:-1]:
            self.expr(value)
            self.emit(jump, end)
        self.expr(node.values[-1])
        self.place(end)

    def expr_Compare(self, node: ast.Compare) -> None:
        self.expr(node.left)
        end, failed = self.label(), self.label()
        for i, (op, right) in enumerate(zip(node.ops, node.comparators, strict=True)):
            self.expr(right)
            if i < len(node.ops) - 1:
                self.emit("DUP")
                self.emit("ROT3")
                self.emit("COMPARE", _COMPARE[type(op)])
                self.emit("JIF_KEEP", failed)
            else:
                self.emit("COMPARE", _COMPARE[type(op)])
        if len(node.ops) > 1:
            self.emit("JUMP", end)
            self.place(failed)
            self.emit("ROT2")
            self.emit("POP")
            self.place(end)

    def expr_IfExp(self, node: ast.IfExp) -> None:
        other, end = self.label(), self.label()
        self.condition(node.test, other)
        self.expr(node.body)
        self.emit("JUMP", end)
        self.place(other)
        self.expr(node.orelse)
        self.place(end)

    def expr_Attribute(self, node: ast.Attribute) -> None:
        self.expr(node.value)
        self.attribute("LOAD_ATTR", node.attr)

    def expr_Subscript(self, node: ast.Subscript) -> None:
        self.expr(node.value)
        self.expr(node.slice)
        self.emit("LOAD_SUB")

    def expr_Slice(self, node: ast.Slice) -> None:
        for part in (node.lower, node.upper, node.step):
            if part is None:
                self.emit("LOAD_CONST", None)
            else:
                self.expr(part)
        self.emit("BUILD_SLICE")

    def sequence(self, elements: list[ast.expr], kind: str) -> None:
        if not any(isinstance(e, ast.Starred) for e in elements):
            for element in elements:
                self.expr(element)
            self.emit("BUILD", (kind, len(elements)))
            return
        self.emit("BUILD", ("list", 0))
        for element in elements:
            starred = isinstance(element, ast.Starred)
            self.expr(element.value if isinstance(element, ast.Starred) else element)
            if starred:
                self.emit("LIST_OF")
                self.emit("LIST_EXTEND")
            else:
                self.emit("LIST_APPEND", 2)
        if kind != "list":
            self.emit("CONVERT", kind)

    def expr_Tuple(self, node: ast.Tuple) -> None:
        self.sequence(node.elts, "tuple")

    def expr_List(self, node: ast.List) -> None:
        self.sequence(node.elts, "list")

    def expr_Set(self, node: ast.Set) -> None:
        self.sequence(node.elts, "set")

    def expr_Dict(self, node: ast.Dict) -> None:
        self.emit("BUILD", ("dict", 0))
        for key, value in zip(node.keys, node.values, strict=True):
            if key is None:
                self.expr(value)
                self.emit("DICT_UPDATE")
            else:
                self.expr(key)
                self.expr(value)
                self.emit("MAP_ADD", 3)

    def expr_JoinedStr(self, node: ast.JoinedStr) -> None:
        for value in node.values:
            self.expr(value)
        self.emit("BUILD_STRING", len(node.values))

    def expr_FormattedValue(self, node: ast.FormattedValue) -> None:
        self.expr(node.value)
        if node.format_spec is None:
            self.emit("LOAD_CONST", "")
        else:
            self.expr(node.format_spec)
        self.emit("FORMAT", node.conversion)

    def expr_Lambda(self, node: ast.Lambda) -> None:
        self.make_function(node, "<lambda>", node.args)

    def expr_Yield(self, node: ast.Yield) -> None:
        if node.value is None:
            self.emit("LOAD_CONST", None)
        else:
            self.expr(node.value)
        self.emit("YIELD")

    def expr_YieldFrom(self, node: ast.YieldFrom) -> None:
        top, end = self.label(), self.label()
        self.expr(node.value)
        self.emit("GET_ITER")
        self.place(top)
        self.emit("FOR_ITER", end)
        self.emit("YIELD")
        self.emit("POP")
        self.emit("JUMP", top)
        self.place(end)
        self.emit("LOAD_CONST", None)

    def expr_Call(self, node: ast.Call) -> None:
        if isinstance(node.func, ast.Name) and node.func.id == "super" and not node.args:
            if self.scope.parent is not None or not self.code.slots:
                raise _refuse(node, "super() in an inner function")
            self.load("__class__")
            self.emit("LOAD_FAST", 0)
            self.emit("SUPER")
            return
        self.expr(node.func)
        simple = not any(isinstance(a, ast.Starred) for a in node.args) and all(
            k.arg is not None for k in node.keywords
        )
        if simple:
            for argument in node.args:
                self.expr(argument)
            for keyword in node.keywords:
                self.expr(keyword.value)
            names = tuple(str(k.arg) for k in node.keywords)
            self.emit("CALL", (len(node.args), names))
            return
        self.sequence(node.args, "list")
        self.emit("BUILD", ("dict", 0))
        for keyword in node.keywords:
            if keyword.arg is None:
                self.expr(keyword.value)
                self.emit("DICT_UPDATE")
            else:
                self.emit("LOAD_CONST", keyword.arg)
                self.expr(keyword.value)
                self.emit("MAP_ADD", 3)
        self.emit("CALL_EX")

    def comprehension(self, node: Any) -> None:
        self.make_function(node, f"<{type(node).__name__.lower()}>", None)
        self.expr(node.generators[0].iter)
        self.emit("GET_ITER")
        self.emit("CALL", (1, ()))

    expr_ListComp = expr_SetComp = expr_DictComp = expr_GeneratorExp = comprehension

    def comprehension_body(self, node: Any) -> None:
        kinds: dict[type, str] = {ast.ListComp: "list", ast.SetComp: "set", ast.DictComp: "dict"}
        kind = kinds.get(type(node))
        if kind:
            self.emit("BUILD", (kind, 0))
        self.generators(node, 0, kind)
        if not kind:
            self.emit("LOAD_CONST", None)
        self.emit("RETURN")

    def generators(self, node: Any, index: int, kind: str | None) -> None:
        if index == len(node.generators):
            depth = 1 + index
            if kind == "dict":
                self.expr(node.key)
                self.expr(node.value)
                self.emit("MAP_ADD", depth + 2)
            elif kind:
                self.expr(node.elt)
                self.emit("LIST_APPEND" if kind == "list" else "SET_ADD", depth + 1)
            else:
                self.expr(node.elt)
                self.emit("YIELD")
                self.emit("POP")
            return
        generator = node.generators[index]
        if generator.is_async:
            raise _refuse(node, "async")
        if index:
            self.expr(generator.iter)
            self.emit("GET_ITER")
        else:
            self.emit("LOAD_FAST", 0)
        top, end = self.label(), self.label()
        self.place(top)
        self.emit("FOR_ITER", end)
        self.assign(generator.target)
        for test in generator.ifs:
            self.expr(test)
            self.emit("JIF", top)
        self.generators(node, index + 1, kind)
        self.emit("JUMP", top)
        self.place(end)


def _comprehension_parameters() -> ast.arguments:
    return ast.arguments(
        posonlyargs=[ast.arg(arg=".0")], args=[], vararg=None, kwonlyargs=[], kw_defaults=[],
        kwarg=None, defaults=[],
    )  # fmt: skip


_ENDS = {"RETURN", "RAISE", "JUMP"}
_BRANCHES = {"JUMP", "JIF", "JIT", "JIF_KEEP", "JIT_KEEP", "FOR_ITER"}


def _liveness(
    instructions: list[Instruction], handler: list[int | None], slots: int
) -> list[frozenset[int]]:
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
    del slots
    return live
