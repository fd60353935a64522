"""Expressions, targets and patterns of `match` as instructions.

Names in a pattern are stored after the whole of it has matched, as CPython does. Patterns whose
meaning is the class's own (mappings, attributes) are refused where they are reached, with what to
write instead.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from dpaudit_prove.interpreter import prelude
from dpaudit_prove.interpreter.code import Code, Emitter

__all__ = ["BINARY", "assign", "expr", "function", "lambda_code", "loop", "pattern", "value"]

BINARY = {
    ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.FloorDiv: "//", ast.Mod: "%",
    ast.Pow: "**", ast.LShift: "<<", ast.RShift: ">>", ast.BitAnd: "&", ast.BitOr: "|",
    ast.BitXor: "^", ast.MatMult: "@",
}  # fmt: skip
_UNARY = {ast.USub: "neg", ast.UAdd: "pos", ast.Invert: "invert", ast.Not: "not"}
_COMPARE = {
    ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.Eq: "==", ast.NotEq: "!=",
    ast.Is: "is", ast.IsNot: "is not", ast.In: "in", ast.NotIn: "not in",
}  # fmt: skip
Comprehension = ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp
_BUILT: dict[type, str] = {ast.ListComp: "list", ast.SetComp: "set", ast.DictComp: "dict"}


def expr(out: Emitter, *nodes: ast.expr) -> None:
    """Push the values of expressions, in order."""
    for node in nodes:
        before = out.line
        out.line = getattr(node, "lineno", before)
        if parts := _OPERATIONS.get(type(node)):
            operands, *instruction = parts(node)
            expr(out, *operands)
            out.emit(*instruction)
        elif emit := _EXPRESSIONS.get(type(node)):
            emit(out, node)
        else:
            out.refuse(f"the expression {type(node).__name__}")
        out.line = before


def value(out: Emitter, node: ast.expr | None) -> None:
    """Push the value of an expression, or None where there is none."""
    expr(out, node or _NONE)


@contextmanager
def loop(out: Emitter) -> Iterator[int]:
    """Emit code that runs for each item of the iterator on top; yields the label of its start."""
    top, end = out.label(), out.label()
    out.place(top)
    out.emit("FOR_ITER", end)
    yield top
    out.place(end)


def assign(out: Emitter, target: ast.expr) -> None:
    """Store the value on top in a target."""
    match target:
        case ast.Name():
            out.store(target.id)
        case ast.Tuple() | ast.List():
            starred = [i for i, t in enumerate(target.elts) if isinstance(t, ast.Starred)]
            if starred:
                after = len(target.elts) - starred[0] - 1
                out.emit("UNPACK_EX", (starred[0], after))
            else:
                out.emit("UNPACK", len(target.elts))
            for item in target.elts:
                assign(out, item.value if isinstance(item, ast.Starred) else item)
        case ast.Attribute():
            expr(out, target.value)
            out.attribute("STORE_ATTR", target.attr)
        case ast.Subscript():
            expr(out, target.value, target.slice)
            out.emit("STORE_SUB")
        case _:
            out.refuse(f"assignment to {type(target).__name__}")


def _name(out: Emitter, node: ast.Name) -> None:
    out.load(node.id)


def _named_expr(out: Emitter, node: ast.NamedExpr) -> None:
    expr(out, node.value)
    out.emit("DUP")
    out.store(node.target.id)


def _bool_op(out: Emitter, node: ast.BoolOp) -> None:
    end = out.label()
    jump = "JIF_KEEP" if isinstance(node.op, ast.And) else "JIT_KEEP"
    for operand in node.values[:-1]:
        expr(out, operand)
        out.emit(jump, end)
    expr(out, node.values[-1])
    out.place(end)


def _compare(out: Emitter, node: ast.Compare) -> None:
    expr(out, node.left)
    end, failed = out.label(), out.label()
    for i, (op, right) in enumerate(zip(node.ops, node.comparators, strict=True)):
        expr(out, right)
        if i < len(node.ops) - 1:
            out.emit("DUP")
            out.emit("ROT3")
            out.emit("COMPARE", _COMPARE[type(op)])
            out.emit("JIF_KEEP", failed)
        else:
            out.emit("COMPARE", _COMPARE[type(op)])
    if len(node.ops) > 1:
        out.emit("JUMP", end)
        out.place(failed)
        out.emit("ROT2")
        out.emit("POP")
        out.place(end)


def _if_exp(out: Emitter, node: ast.IfExp) -> None:
    other, end = out.label(), out.label()
    expr(out, node.test)
    out.emit("JIF", other)
    expr(out, node.body)
    out.emit("JUMP", end)
    out.place(other)
    expr(out, node.orelse)
    out.place(end)


def _attribute(out: Emitter, node: ast.Attribute) -> None:
    expr(out, node.value)
    out.attribute("LOAD_ATTR", node.attr)


def function(out: Emitter, code: Code, arguments: ast.arguments | None = None) -> None:
    """Make a function of some code, with the values of its defaults."""
    keywords: list[str] = []
    defaults = arguments.defaults if arguments else []
    expr(out, *defaults)
    if arguments:
        for parameter, value in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True):
            if value is not None:
                expr(out, value)
                keywords.append(parameter.arg)
    captured = tuple(out.cell[name] for name in code.free)
    out.emit("MAKE_FUNCTION", (code, len(defaults), tuple(keywords), captured))


def _elements(out: Emitter, node: ast.Tuple | ast.List | ast.Set) -> None:
    _sequence(out, node.elts, type(node).__name__.lower())


def _sequence(out: Emitter, elements: list[ast.expr], kind: str) -> None:
    if not any(isinstance(e, ast.Starred) for e in elements):
        expr(out, *elements)
        out.emit("BUILD", (kind, len(elements)))
        return
    out.emit("BUILD", ("list", 0))
    for element in elements:
        if isinstance(element, ast.Starred):
            expr(out, element.value)
            out.emit("LIST_OF")
            out.emit("LIST_EXTEND")
        else:
            expr(out, element)
            out.emit("LIST_APPEND", 2)
    if kind != "list":
        out.emit("CONVERT", kind)


def _dict(out: Emitter, node: ast.Dict) -> None:
    out.emit("BUILD", ("dict", 0))
    for key, value in zip(node.keys, node.values, strict=True):
        if key is None:
            expr(out, value)
            out.emit("DICT_UPDATE")
        else:
            expr(out, key, value)
            out.emit("MAP_ADD", 3)


def _yield_from(out: Emitter, node: ast.YieldFrom) -> None:
    expr(out, node.value)
    out.emit("GET_ITER")
    with loop(out) as top:
        out.emit("YIELD")
        out.emit("POP")
        out.emit("JUMP", top)
    out.emit("LOAD_CONST", None)


def _call(out: Emitter, node: ast.Call) -> None:
    if isinstance(node.func, ast.Name) and node.func.id == "super" and not node.args:
        if out.scope.parent is not None or not out.code.slots:
            out.refuse("super() in an inner function")
            return
        out.load("__class__")
        out.emit("LOAD_FAST", 0)
        out.emit("SUPER")
        return
    expr(out, node.func)
    starred = any(isinstance(a, ast.Starred) for a in node.args)
    if not starred and all(k.arg for k in node.keywords):
        expr(out, *node.args, *[k.value for k in node.keywords])
        out.emit("CALL", (len(node.args), tuple([k.arg for k in node.keywords])))
        return
    _sequence(out, node.args, "list")
    names: list[ast.expr | None] = [ast.Constant(k.arg) if k.arg else None for k in node.keywords]
    _dict(out, ast.Dict(names, [k.value for k in node.keywords]))
    out.emit("CALL_EX")


def _inner(out: Emitter, node: ast.Lambda | Comprehension) -> Emitter:
    name = "lambda" if isinstance(node, ast.Lambda) else type(node).__name__.lower()
    return Emitter(out.scope.inner[id(node)], out.filename, f"<{name}>", out.owner)


def _lambda(out: Emitter, node: ast.Lambda) -> None:
    function(out, lambda_code(_inner(out, node), node), node.args)


def lambda_code(out: Emitter, node: ast.Lambda) -> Code:
    """The code of a lambda, in an emitter of its own."""
    expr(out, node.body)
    out.emit("RETURN")
    return out.assemble()


def _comprehension(out: Emitter, node: Comprehension) -> None:
    inner = _inner(out, node)
    kind = _BUILT.get(type(node))
    if kind:
        inner.emit("BUILD", (kind, 0))
    _generators(inner, node, 0, kind)
    if not kind:
        inner.emit("LOAD_CONST", None)
    inner.emit("RETURN")
    function(out, inner.assemble())
    expr(out, node.generators[0].iter)
    out.emit("GET_ITER")
    out.emit("CALL", (1, ()))


def _generators(out: Emitter, node: Any, index: int, kind: str | None) -> None:
    if index == len(node.generators):
        depth = 1 + index
        if kind == "dict":
            expr(out, node.key, node.value)
            out.emit("MAP_ADD", depth + 2)
        elif kind:
            expr(out, node.elt)
            out.emit("LIST_APPEND" if kind == "list" else "SET_ADD", depth + 1)
        else:
            expr(out, node.elt)
            out.emit("YIELD")
            out.emit("POP")
        return
    generator = node.generators[index]
    if generator.is_async:
        out.refuse("async")
    if index:
        expr(out, generator.iter)
        out.emit("GET_ITER")
    else:
        out.emit("LOAD_FAST", 0)
    with loop(out) as top:
        assign(out, generator.target)
        for test in generator.ifs:
            expr(out, test)
            out.emit("JIF", top)
        _generators(out, node, index + 1, kind)
        out.emit("JUMP", top)


_NONE = ast.Constant(None)
_OPERATIONS: dict[type[ast.expr], Callable[[Any], tuple[Any, ...]]] = {
    ast.BinOp: lambda node: ([node.left, node.right], "BINARY", BINARY[type(node.op)]),
    ast.Constant: lambda node: ([], "LOAD_CONST", node.value),
    ast.FormattedValue: lambda node: (
        [node.value, node.format_spec or ast.Constant("")], "FORMAT", node.conversion
    ),
    ast.JoinedStr: lambda node: (node.values, "BUILD_STRING", len(node.values)),
    ast.Slice: lambda node: (
        [part or _NONE for part in (node.lower, node.upper, node.step)], "BUILD_SLICE"
    ),
    ast.Subscript: lambda node: ([node.value, node.slice], "LOAD_SUB"),
    ast.UnaryOp: lambda node: ([node.operand], "UNARY", _UNARY[type(node.op)]),
    ast.Yield: lambda node: ([node.value or _NONE], "YIELD"),
}  # fmt: skip
"""Expressions that are one instruction after the values of some others."""
_EXPRESSIONS: dict[type[ast.expr], Callable[[Emitter, Any], None]] = {
    ast.Attribute: _attribute,
    ast.BoolOp: _bool_op,
    ast.Call: _call,
    ast.Compare: _compare,
    ast.Dict: _dict,
    ast.DictComp: _comprehension,
    ast.GeneratorExp: _comprehension,
    ast.IfExp: _if_exp,
    ast.Lambda: _lambda,
    ast.List: _elements,
    ast.ListComp: _comprehension,
    ast.Name: _name,
    ast.NamedExpr: _named_expr,
    ast.Set: _elements,
    ast.SetComp: _comprehension,
    ast.Tuple: _elements,
    ast.YieldFrom: _yield_from,
}

Captures = list[tuple[str, int]]


def pattern(out: Emitter, node: ast.pattern, subject: int, other: int) -> Captures:
    """Go to the label ``other`` unless the variable ``subject`` matches; what names capture."""
    if isinstance(node, ast.MatchValue):
        out.emit("LOAD_FAST", subject)
        expr(out, node.value)
        _or_else(out, "==", other)
    elif isinstance(node, ast.MatchSingleton):
        out.emit("LOAD_FAST", subject)
        out.emit("LOAD_CONST", node.value)
        _or_else(out, "is", other)
    elif isinstance(node, ast.MatchAs):
        inside = pattern(out, node.pattern, subject, other) if node.pattern else []
        return [*inside, (node.name, subject)] if node.name else inside
    elif isinstance(node, ast.MatchOr):
        return _any_of(out, node, subject, other)
    elif isinstance(node, ast.MatchSequence):
        return _sequence_pattern(out, node, subject, other)
    elif isinstance(node, ast.MatchClass) and not node.kwd_attrs and len(node.patterns) <= 1:
        check = prelude.matches_itself if node.patterns else prelude.matches_class
        out.emit("LOAD_CONST", check)
        out.emit("LOAD_FAST", subject)
        expr(out, node.cls)
        out.emit("CALL", (2, ()))
        out.emit("JIF", other)
        return pattern(out, node.patterns[0], subject, other) if node.patterns else []
    elif isinstance(node, ast.MatchClass):
        out.emit("REFUSE", "a class pattern with attributes: use isinstance() and an if")
    else:
        out.emit("REFUSE", "a mapping pattern: use `in` and an if")
    return []


def _or_else(out: Emitter, comparison: str, other: int) -> None:
    out.emit("COMPARE", comparison)
    out.emit("JIF", other)


def _any_of(out: Emitter, node: ast.MatchOr, subject: int, other: int) -> Captures:
    matched = out.label()
    for choice in node.patterns:
        following = out.label()
        if pattern(out, choice, subject, following):
            out.emit("REFUSE", "a | pattern that captures a name: write two cases")
        out.emit("JUMP", matched)
        out.place(following)
    out.emit("JUMP", other)
    out.place(matched)
    return []


def _ignored(part: ast.pattern) -> bool:
    """Whether it is `_` or `*_`."""
    if isinstance(part, ast.MatchAs):
        return part.name is None and part.pattern is None
    return isinstance(part, ast.MatchStar) and part.name is None


def _sequence_pattern(out: Emitter, node: ast.MatchSequence, subject: int, other: int) -> Captures:
    out.emit("LOAD_CONST", prelude.matches_sequence)
    out.emit("LOAD_FAST", subject)
    out.emit("CALL", (1, ()))
    out.emit("JIF", other)
    parts, captures = node.patterns, Captures()
    stars = [i for i, part in enumerate(parts) if isinstance(part, ast.MatchStar)]
    out.emit("LOAD_CONST", len)
    out.emit("LOAD_FAST", subject)
    out.emit("CALL", (1, ()))
    out.emit("LOAD_CONST", len(parts) - len(stars))
    _or_else(out, ">=" if stars else "==", other)
    for i, part in enumerate(parts):
        if _ignored(part):
            continue
        from_end = i - len(parts)
        if isinstance(part, ast.MatchStar):
            out.emit("LOAD_CONST", list)
            out.emit("LOAD_FAST", subject)
            for end in (i, from_end + 1 or None, None):
                out.emit("LOAD_CONST", end)
            out.emit("BUILD_SLICE")
            out.emit("LOAD_SUB")
            out.emit("CALL", (1, ()))
            captures.append((str(part.name), out.stash()))
        else:
            out.emit("LOAD_FAST", subject)
            out.emit("LOAD_CONST", from_end if stars and i > stars[0] else i)
            out.emit("LOAD_SUB")
            captures += pattern(out, part, out.stash(), other)
    return captures
