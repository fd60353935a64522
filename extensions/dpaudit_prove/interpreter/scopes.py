"""Which names a function binds, declares and reads, and which of them its inner functions share."""

from __future__ import annotations

import ast
from typing import Any

__all__ = ["COMPREHENSIONS", "Scope", "parameter_names", "resolved_scope"]

COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


class Scope:
    """The names that a function-like node binds, declares and reads, and its inner scopes."""

    def __init__(self, node: ast.AST, parent: Scope | None) -> None:
        self.node, self.parent = node, parent
        self.bound: dict[str, None] = {}
        self.reads: set[str] = set()
        self.globals: set[str] = set()
        self.nonlocals: set[str] = set()
        self.inner: dict[int, Scope] = {}
        self.free: set[str] = set()
        self.captured: set[str] = set()
        self.yields = False

    def bind(self, name: str) -> None:
        if name in self.globals or name in self.nonlocals:
            return
        self.bound[name] = None


class _Names(ast.NodeVisitor):
    def __init__(self, scope: Scope) -> None:
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
        while isinstance(scope.node, COMPREHENSIONS):
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

    def _each(self, *nodes: ast.AST | None) -> None:
        for node in nodes:
            if node is not None:
                self.visit(node)

    def visit_Lambda(self, node: ast.Lambda | ast.FunctionDef) -> None:
        self._each(*node.args.defaults, *node.args.kw_defaults)
        self.scope.inner[id(node)] = _scope_of(node, self.scope)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        self.scope.bind(node.name)
        self._each(*node.decorator_list)
        self.visit_Lambda(node)

    def visit_ClassDef(self, node: ast.ClassDef) -> None:  # refused: what is inside never runs
        self.scope.bind(node.name)
        self._each(*node.decorator_list, *node.bases, *node.keywords)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> None:  # refused as well
        self.scope.bind(node.name)
        self._each(*node.decorator_list, *node.args.defaults, *node.args.kw_defaults)

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


def parameter_names(arguments: ast.arguments) -> list[str]:
    """The parameters, in the order of a function's variables."""
    found = [a.arg for a in [*arguments.posonlyargs, *arguments.args]]
    if arguments.vararg:
        found.append(arguments.vararg.arg)
    found += [a.arg for a in arguments.kwonlyargs]
    if arguments.kwarg:
        found.append(arguments.kwarg.arg)
    return found


def _scope_of(node: Any, parent: Scope | None) -> Scope:
    scope = Scope(node, parent)
    names = _Names(scope)
    if isinstance(node, COMPREHENSIONS):
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
        for name in parameter_names(node.args):
            scope.bind(name)
        for statement in body:
            names.visit(statement)
    return scope


class _Declared(ast.NodeVisitor):
    """Global and nonlocal declarations of one function, before anything else is read."""

    def __init__(self, scope: Scope) -> None:
        self.scope = scope

    def visit_Global(self, node: ast.Global) -> None:
        self.scope.globals.update(node.names)

    def visit_Nonlocal(self, node: ast.Nonlocal) -> None:
        self.scope.nonlocals.update(node.names)

    def _skip(self, node: ast.AST) -> None:
        """What is inside has declarations of its own."""

    visit_FunctionDef = visit_AsyncFunctionDef = visit_ClassDef = visit_Lambda = _skip


def resolved_scope(node: ast.AST, free: frozenset[str]) -> Scope:
    """The scope of a function, with those inside it; `free` are the names of its closure."""
    scope = _scope_of(node, None)
    _resolve(scope, free)
    return scope


def _resolve(scope: Scope, outside: frozenset[str]) -> None:
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
