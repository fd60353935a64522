"""Statements as instructions: a function's syntax tree becomes its code.

Python's own bytecode changes with every release and hides a frame's stack; these instructions
come from the syntax tree, so that a program's state at any point is plain data. What is not
supported becomes an instruction too, which refuses the program if it is reached.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from dpaudit_prove.interpreter.code import Code, Emitter, resolved_scope
from dpaudit_prove.interpreter.expressions import (
    BINARY,
    assign,
    expr,
    function,
    lambda_code,
    loop,
    pattern,
    value,
)

__all__ = ["compile_function"]


def compile_function(
    node: ast.FunctionDef | ast.Lambda,
    filename: str,
    *,
    free: tuple[str, ...] = (),
    owner: str | None = None,
) -> Code:
    """Compile one function of a parsed file.

    `free` are the names of its closure, `owner` is the class whose body it is in.
    """
    scope = resolved_scope(node, frozenset(free))
    if isinstance(node, ast.Lambda):
        return lambda_code(Emitter(scope, filename, "<lambda>", owner), node)
    return _function_code(Emitter(scope, filename, node.name, owner), node)


def _function_code(out: Emitter, node: ast.FunctionDef) -> Code:
    _body(out, node.body)
    value(out, None)
    out.emit("RETURN")
    return out.assemble()


def _function_def(out: Emitter, node: ast.FunctionDef) -> None:
    expr(out, *node.decorator_list)
    inner = Emitter(out.scope.inner[id(node)], out.filename, node.name, out.owner)
    function(out, _function_code(inner, node), node.args)
    for _ in node.decorator_list:
        out.emit("CALL", (1, ()))
    out.store(node.name)


def _body(out: Emitter, statements: list[ast.stmt]) -> None:
    for statement in statements:
        out.line = statement.lineno
        emit = _STATEMENTS.get(type(statement))
        if emit:
            emit(out, statement)
        else:
            rewrite = _REWRITES.get(type(statement), "")
            out.refuse(f"the statement {type(statement).__name__}{rewrite}")


_REWRITES = {
    ast.ClassDef: " inside a function (move the class to the module)",
    ast.AsyncFunctionDef: " (write def)",
}


def _pass(out: Emitter, node: ast.stmt) -> None:
    """Emit nothing."""


def _expr(out: Emitter, node: ast.Expr) -> None:
    if not isinstance(node.value, ast.Constant):
        expr(out, node.value)
        out.emit("POP")


def _assign(out: Emitter, node: ast.Assign) -> None:
    expr(out, node.value)
    for target in node.targets[:-1]:
        out.emit("DUP")
        assign(out, target)
    assign(out, node.targets[-1])


# -- control flow ------------------------------------------------------------------------------
def _if(out: Emitter, node: ast.If) -> None:
    other, end = out.label(), out.label()
    expr(out, node.test)
    out.emit("JIF", other)
    _body(out, node.body)
    if node.orelse:
        out.emit("JUMP", end)
    out.place(other)
    _body(out, node.orelse)
    out.place(end)


def _match(out: Emitter, node: ast.Match) -> None:
    end = out.label()
    expr(out, node.subject)
    subject = out.stash()
    for case in node.cases:
        out.line = case.pattern.lineno
        other = out.label()
        for name, slot in pattern(out, case.pattern, subject, other):
            out.emit("LOAD_FAST", slot)
            out.store(name)
        if case.guard is not None:
            expr(out, case.guard)
            out.emit("JIF", other)
        _body(out, case.body)
        out.emit("JUMP", end)
        out.place(other)
    out.place(end)


def _while(out: Emitter, node: ast.While) -> None:
    top, other, end = out.label(), out.label(), out.label()
    out.place(top)
    if not (isinstance(node.test, ast.Constant) and node.test.value):
        expr(out, node.test)
        out.emit("JIF", other)
    _loop_body(out, ("while", (top, end)), node.body)
    out.place(other)
    _body(out, node.orelse)
    out.place(end)


def _for(out: Emitter, node: ast.For) -> None:
    end = out.label()
    expr(out, node.iter)
    out.emit("GET_ITER")
    with loop(out) as top:
        assign(out, node.target)
        _loop_body(out, ("for", (top, end)), node.body)
    _body(out, node.orelse)
    out.place(end)


def _loop_body(out: Emitter, block: tuple[str, tuple[int, int]], body: list[ast.stmt]) -> None:
    """The body of a loop, with the labels of its begin and of what follows it."""
    out.open_blocks.append(block)
    _body(out, body)
    out.open_blocks.pop()
    out.emit("JUMP", block[1][0])


def _break(out: Emitter, _: ast.Break) -> None:
    kind, (_, end) = _leave_to_loop(out)
    if kind == "for":
        out.emit("POP")
    out.emit("JUMP", end)


def _continue(out: Emitter, _: ast.Continue) -> None:
    out.emit("JUMP", _leave_to_loop(out)[1][0])


def _return(out: Emitter, node: ast.Return) -> None:
    value(out, node.value)
    _leave(out, len(out.open_blocks), returns=True)
    out.emit("RETURN")


def _leave_to_loop(out: Emitter) -> tuple[str, Any]:
    kinds = [kind for kind, _ in reversed(out.open_blocks)]
    depth = min(kinds.index(kind) for kind in ("for", "while") if kind in kinds)
    _leave(out, depth)
    return out.open_blocks[-1 - depth]


def _leave(out: Emitter, count: int, *, returns: bool = False) -> None:
    """Emit what leaving the innermost `count` blocks runs: finally bodies, __exit__ calls.

    With `returns` the value on top is kept.
    """
    saved, saved_handlers = list(out.open_blocks), list(out.handlers)
    for kind, data in reversed(saved[len(saved) - count :]):
        out.open_blocks.pop()
        if kind in {"try", "finally", "with"}:
            out.emit("POP_BLOCK")
            out.handlers.pop()
        if kind == "finally":
            slot = out.stash() if returns else None
            _body(out, data)
            if returns:
                out.emit("LOAD_FAST", slot)
        elif kind == "with":
            _exit_call(out, data)
        elif kind == "for":
            if returns:
                out.emit("ROT2")
            out.emit("POP")
    out.open_blocks, out.handlers = saved, saved_handlers


def _exit_call(out: Emitter, slot: int) -> None:
    out.emit("LOAD_FAST", slot)
    for _ in range(3):
        out.emit("LOAD_CONST", None)
    out.emit("CALL", (3, ()))
    out.emit("POP")


def _ann_assign(out: Emitter, node: ast.AnnAssign) -> None:
    if node.value is not None:
        expr(out, node.value)
        assign(out, node.target)


def _aug_assign(out: Emitter, node: ast.AugAssign) -> None:
    target, op = node.target, BINARY[type(node.op)]
    if isinstance(target, ast.Name):
        out.load(target.id)
        expr(out, node.value)
        out.emit("INPLACE", op)
        out.store(target.id)
    elif isinstance(target, ast.Attribute):
        expr(out, target.value)
        out.emit("DUP")
        out.attribute("LOAD_ATTR", target.attr)
        expr(out, node.value)
        out.emit("INPLACE", op)
        out.emit("ROT2")
        out.attribute("STORE_ATTR", target.attr)
    else:
        expr(out, target.value)
        container = out.stash()
        expr(out, target.slice)
        index = out.stash()
        out.emit("LOAD_FAST", container)
        out.emit("LOAD_FAST", index)
        out.emit("LOAD_SUB")
        expr(out, node.value)
        out.emit("INPLACE", op)
        out.emit("LOAD_FAST", container)
        out.emit("LOAD_FAST", index)
        out.emit("STORE_SUB")


def _delete(out: Emitter, node: ast.Delete) -> None:
    for target in node.targets:
        if isinstance(target, ast.Name) and target.id in out.slot and target.id not in out.cell:
            out.emit("DEL_FAST", out.slot[target.id])
        elif isinstance(target, ast.Subscript):
            expr(out, target.value, target.slice)
            out.emit("DEL_SUB")
        else:
            out.refuse("del of this target")


def _raise(out: Emitter, node: ast.Raise) -> None:
    if node.exc is None:
        caught = [data for kind, data in out.open_blocks if kind == "caught"]
        if not caught:
            out.refuse("a bare raise outside an except clause")
            return
        out.emit("LOAD_FAST", caught[-1])
    else:
        expr(out, node.exc)
        if node.cause is not None:
            expr(out, node.cause)
            out.emit("POP")
    out.emit("RAISE")


def _assert(out: Emitter, node: ast.Assert) -> None:
    if not __debug__:
        return
    fine = out.label()
    expr(out, node.test)
    out.emit("JIT", fine)
    out.emit("LOAD_CONST", AssertionError)
    if node.msg is not None:
        expr(out, node.msg)
        out.emit("CALL", (1, ()))
    out.emit("RAISE")
    out.place(fine)


def _try(out: Emitter, node: ast.Try) -> None:
    if node.finalbody:
        _with_finally(out, node)
    else:
        _with_handlers(out, node)


def _with_finally(out: Emitter, node: ast.Try) -> None:
    failed, end = out.label(), out.label()
    with _guard(out, failed, ("finally", node.finalbody)):
        if node.handlers:
            _with_handlers(out, node)
        else:
            _body(out, node.body)
            _body(out, node.orelse)
    _body(out, node.finalbody)
    out.emit("JUMP", end)
    with _exception_slot(out, failed):
        _body(out, node.finalbody)
    out.place(end)


@contextmanager
def _guard(out: Emitter, failed: int, block: tuple[str, Any]) -> Iterator[None]:
    """Emit code that goes to `failed` on an exception; `block` unwinds it."""
    out.emit("SETUP", failed)
    out.handlers.append(failed)
    out.open_blocks.append(block)
    yield
    out.open_blocks.pop()
    out.emit("POP_BLOCK")
    out.handlers.pop()


@contextmanager
def _exception_slot(out: Emitter, failed: int) -> Iterator[int]:
    """At `failed`, with the exception in a slot; raised again after what is emitted inside."""
    out.place(failed)
    slot = out.stash()
    out.open_blocks.append(("caught", slot))
    yield slot
    out.open_blocks.pop()
    out.emit("LOAD_FAST", slot)
    out.emit("RAISE")


def _with_handlers(out: Emitter, node: ast.Try) -> None:
    failed, end = out.label(), out.label()
    with _guard(out, failed, ("try", None)):
        _body(out, node.body)
    _body(out, node.orelse)
    out.emit("JUMP", end)
    with _exception_slot(out, failed) as slot:
        _each_handler(out, node, slot, end)
    out.place(end)


def _each_handler(out: Emitter, node: ast.Try, slot: int, end: int) -> None:
    for handler in node.handlers:
        following = out.label()
        if handler.type is not None:
            out.emit("LOAD_FAST", slot)
            expr(out, handler.type)
            out.emit("EXC_MATCH")
            out.emit("JIF", following)
        if handler.name:
            out.emit("LOAD_FAST", slot)
            out.store(handler.name)
        _body(out, handler.body)
        if handler.name:  # Python deletes it; a slot that is read then is an error
            out.emit("LOAD_CONST", None)
            out.store(handler.name)
            if handler.name in out.slot and handler.name not in out.cell:
                out.emit("DEL_FAST", out.slot[handler.name])
        out.emit("JUMP", end)
        out.place(following)


def _with(out: Emitter, node: ast.With) -> None:
    _with_items(out, node.items, node.body)


def _with_items(out: Emitter, items: list[ast.withitem], body: list[ast.stmt]) -> None:
    if not items:
        _body(out, body)
        return
    failed, end, swallowed = out.label(), out.label(), out.label()
    expr(out, items[0].context_expr)
    out.emit("DUP")
    out.emit("LOAD_ATTR", "__exit__")
    slot = out.stash()
    out.emit("LOAD_ATTR", "__enter__")
    out.emit("CALL", (0, ()))
    with _guard(out, failed, ("with", slot)):
        if items[0].optional_vars is None:
            out.emit("POP")
        else:
            assign(out, items[0].optional_vars)
        _with_items(out, items[1:], body)
    _exit_call(out, slot)
    out.emit("JUMP", end)
    out.place(failed)
    caught = out.stash()
    out.emit("LOAD_FAST", slot)
    out.emit("LOAD_FAST", caught)
    out.emit("EXC_TYPE")
    out.emit("LOAD_FAST", caught)
    out.emit("LOAD_CONST", None)
    out.emit("CALL", (3, ()))
    out.emit("JIT", swallowed)
    out.emit("LOAD_FAST", caught)
    out.emit("RAISE")
    out.place(swallowed)
    out.place(end)


def _import(out: Emitter, node: ast.Import) -> None:
    for alias in node.names:
        out.emit("IMPORT", (alias.name, alias.asname is None))
        out.store((alias.asname or alias.name).partition(".")[0])


def _import_from(out: Emitter, node: ast.ImportFrom) -> None:
    for alias in node.names:
        out.emit("IMPORT_FROM", (node.level, node.module, alias.name))
        out.store(alias.asname or alias.name)


_STATEMENTS: dict[type[ast.stmt], Callable[[Emitter, Any], None]] = {
    ast.AnnAssign: _ann_assign,
    ast.Assert: _assert,
    ast.Assign: _assign,
    ast.AugAssign: _aug_assign,
    ast.Break: _break,
    ast.Continue: _continue,
    ast.Delete: _delete,
    ast.Expr: _expr,
    ast.For: _for,
    ast.FunctionDef: _function_def,
    ast.Global: _pass,
    ast.If: _if,
    ast.Import: _import,
    ast.ImportFrom: _import_from,
    ast.Match: _match,
    ast.Nonlocal: _pass,
    ast.Pass: _pass,
    ast.Raise: _raise,
    ast.Return: _return,
    ast.Try: _try,
    ast.While: _while,
    ast.With: _with,
}
