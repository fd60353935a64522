"""From a Python function to the instructions that are interpreted, checked against what runs."""

from __future__ import annotations

import ast
import hashlib
import linecache
import types
from pathlib import Path
from typing import Any

from dpaudit.errors import RefusedProgramError
from dpaudit_prove.interpreter.code import Code
from dpaudit_prove.interpreter.statements import compile_function

__all__ = ["Sources"]


class Sources:
    """The source files of a program, each read once.

    A function is only interpreted if compiling its file gives exactly the bytecode that Python
    runs: a file that was edited after it was imported, or a function that was patched, is refused.
    """

    def __init__(self) -> None:
        self.files: dict[str, tuple[dict[tuple[str, int], list[Any]], list[types.CodeType]]] = {}
        self.texts: dict[str, str] = {}
        self.codes: dict[types.CodeType, Code] = {}
        self.by_id: dict[int, Code] = {}
        self.references: list[Any] = []

    def code_of(self, function: types.FunctionType) -> Code:
        known = self.by_id.get(id(function.__code__))
        if known is not None:
            return known
        code = self._compile(function)
        self.by_id[id(function.__code__)] = code
        self.references.append(function.__code__)
        return code

    def hashes(self) -> dict[str, str]:
        """SHA-256 of every file of which a function was interpreted, by its name."""
        return {
            name: hashlib.sha256(text.encode()).hexdigest() for name, text in self.texts.items()
        }

    def _compile(self, function: types.FunctionType) -> Code:
        code = function.__code__
        filename = code.co_filename
        nodes, compiled = self._file(filename, function)
        if not any(_same_code(c, code) for c in compiled):
            raise RefusedProgramError(
                f"{_name(function)}: the running bytecode differs from {filename}; "
                "import the file again, and do not patch the function"
            )
        candidates = nodes.get((code.co_name, code.co_firstlineno), [])
        if len(candidates) != 1:
            raise RefusedProgramError(
                f"{_name(function)}: {len(candidates)} functions of that name begin in line "
                f"{code.co_firstlineno} of {filename}; give each a line of its own"
            )
        node, owner = candidates[0]
        return compile_function(node, filename, free=code.co_freevars, owner=owner)

    def _file(self, filename: str, function: types.FunctionType) -> tuple[Any, Any]:
        if filename not in self.files:
            text = "".join(linecache.getlines(filename, function.__globals__))
            if not text and Path(filename).is_file():
                text = Path(filename).read_text(encoding="utf-8")
            if not text:
                raise RefusedProgramError(
                    f"{_name(function)}: its source is not available; "
                    "only functions in Python files can be followed"
                )
            try:
                tree = ast.parse(text)
                module = compile(text, filename, "exec", dont_inherit=True)
            except SyntaxError as error:
                raise RefusedProgramError(f"{filename}: not Python ({error.msg})") from error
            nodes: dict[tuple[str, int], list[Any]] = {}
            _collect(tree, None, nodes)
            self.files[filename] = nodes, _all_codes(module)
            self.texts[filename] = text
        return self.files[filename]


def _name(function: Any) -> str:
    return f"{function.__module__}.{function.__qualname__}"


def _collect(node: ast.AST, owner: str | None, nodes: dict[tuple[str, int], list[Any]]) -> None:
    for child in ast.iter_child_nodes(node):
        inside = owner
        if isinstance(child, ast.ClassDef):
            inside = child.name
        elif isinstance(child, (ast.FunctionDef, ast.Lambda)):
            decorators = getattr(child, "decorator_list", [])
            first = min([child.lineno, *[d.lineno for d in decorators]])
            key = (getattr(child, "name", "<lambda>"), first)
            nodes.setdefault(key, []).append((child, owner))
        _collect(child, inside, nodes)


def _all_codes(code: types.CodeType) -> list[types.CodeType]:
    codes = [code]
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            codes += _all_codes(constant)
    return codes


_SAME = (
    "co_name", "co_firstlineno", "co_code", "co_names", "co_varnames", "co_freevars",
    "co_exceptiontable",
)  # fmt: skip


def _same_code(one: types.CodeType, other: types.CodeType) -> bool:
    if any(getattr(one, name) != getattr(other, name) for name in _SAME):
        return False
    if len(one.co_consts) != len(other.co_consts):
        return False
    for a, b in zip(one.co_consts, other.co_consts, strict=True):
        if isinstance(a, types.CodeType) and isinstance(b, types.CodeType):
            if not _same_code(a, b):
                return False
        elif _constant_text(a) != _constant_text(b):
            return False
    return True


def _constant_text(constant: Any) -> str:
    """A constant of code as text; sets are sorted, as their order hangs on hashes and history."""
    if isinstance(constant, tuple):
        return f"({', '.join(map(_constant_text, constant))})"
    if isinstance(constant, frozenset):
        return f"{{{', '.join(sorted(map(_constant_text, constant)))}}}"
    return f"{type(constant).__name__} {constant!r}"
