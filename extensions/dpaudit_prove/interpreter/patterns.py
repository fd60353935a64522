"""Patterns of `match` as instructions: jumps to where the next case begins, and what is captured.

Names are stored after the whole pattern has matched, as CPython does. Patterns whose meaning is the
class's own (mappings, attributes) are refused where they are reached, with what to write instead.
"""

from __future__ import annotations

import ast

from dpaudit_prove.interpreter import prelude
from dpaudit_prove.interpreter.emitter import Emitter
from dpaudit_prove.interpreter.expressions import expr

__all__ = ["pattern"]

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
        return _sequence(out, node, subject, other)
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


def _sequence(out: Emitter, node: ast.MatchSequence, subject: int, other: int) -> Captures:
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
        slot, from_end = out.hidden_slot(), i - len(parts)
        if isinstance(part, ast.MatchStar):
            out.emit("LOAD_CONST", list)
            out.emit("LOAD_FAST", subject)
            for end in (i, from_end + 1 or None, None):
                out.emit("LOAD_CONST", end)
            out.emit("BUILD_SLICE")
            out.emit("LOAD_SUB")
            out.emit("CALL", (1, ()))
            out.emit("STORE_FAST", slot)
            captures.append((str(part.name), slot))
        else:
            out.emit("LOAD_FAST", subject)
            out.emit("LOAD_CONST", from_end if stars and i > stars[0] else i)
            out.emit("LOAD_SUB")
            out.emit("STORE_FAST", slot)
            captures += pattern(out, part, slot, other)
    return captures
