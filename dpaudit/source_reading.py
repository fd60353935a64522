"""What a module's source says, read without importing it: classes, options, needed packages."""

from __future__ import annotations

import ast
import functools
import importlib.util
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Option", "definition", "options_of", "packages", "source_file", "statements"]


@dataclass(frozen=True, slots=True)
class Option:
    """An option of a plug-in: its name, and its default as written; None if it must be given."""

    name: str
    default: str | None


def source_file(module: str) -> Path:
    """The file of a module, found without importing it or its parents.

    Raises:
        ImportError: there is none.
    """
    top, *below = module.split(".")
    spec = importlib.util.find_spec(top)  # finding anything deeper would import the parents
    files = []
    for place in (spec.submodule_search_locations or ()) if spec else ():
        path = Path(place, *below)
        files += [path.with_name(f"{path.name}.py"), path / "__init__.py"]
    if spec and spec.origin and not below:
        files = [Path(spec.origin)]
    found = next((file for file in files if file.is_file()), None)
    if found is None:
        raise ImportError(f"module={module}: has no source file; install it")
    return found


def statements(module: str) -> tuple[ast.stmt, ...]:
    """The statements of a module's source; none if there is no such source."""
    try:
        return _read(source_file(module))
    except (ImportError, OSError, SyntaxError, ValueError):
        return ()


@functools.lru_cache(maxsize=512)
def _read(file: Path) -> tuple[ast.stmt, ...]:
    return tuple(ast.parse(file.read_bytes()).body)


def definition(module: str, name: str) -> tuple[str, ast.stmt]:
    """The class, function or assignment ``name``, and its module: imports of it are followed.

    Raises:
        LookupError: the source does not define or import it at its top level.
    """
    for statement in statements(module):
        match statement:
            case ast.ClassDef() | ast.FunctionDef() if statement.name == name:
                return module, statement
            case ast.Assign(targets=[ast.Name(id=target)]) if target == name:
                return module, statement
            case ast.ImportFrom(module=str(source), names=names, level=0):
                for alias in names:
                    if (alias.asname or alias.name) == name:
                        return definition(source, alias.name)
    raise LookupError(f"{module}:{name}")


def options_of(module: str, made: ast.stmt, *, keyword_only: bool = False) -> tuple[Option, ...]:
    """The options of a class, its base classes' if it adds none; private names are left out.

    They are the arguments of ``__init__`` after ``self``, or a dataclass's fields, where a field
    replaces one of its base.
    """
    if not isinstance(made, ast.ClassDef):
        return ()
    init = next(
        (x for x in made.body if isinstance(x, ast.FunctionDef) and x.name == "__init__"), None
    )
    if init is not None:
        found = list(_arguments(init.args, keyword_only))
    else:
        found = [option for base in made.bases for option in _of_base(module, base, keyword_only)]
        if any("dataclass" in ast.unparse(decorator) for decorator in made.decorator_list):
            found += [_field(x) for x in made.body if isinstance(x, ast.AnnAssign)]
            found = list({option.name: option for option in found}.values())
    return tuple(option for option in found if not option.name.startswith("_"))


def _of_base(module: str, base: ast.expr, keyword_only: bool) -> tuple[Option, ...]:
    if not isinstance(base, ast.Name):
        return ()
    try:
        where, found = definition(module, base.id)
    except LookupError:
        return ()
    return options_of(where, found, keyword_only=keyword_only)


def _arguments(arguments: ast.arguments, keyword_only: bool) -> Iterator[Option]:
    if not keyword_only:
        plain = [*arguments.posonlyargs, *arguments.args][1:]  # without self
        missing: list[ast.expr | None] = [None] * (len(plain) - len(arguments.defaults))
        for argument, default in zip(plain, [*missing, *arguments.defaults], strict=False):
            yield Option(argument.arg, _text(default))
    for argument, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True):
        yield Option(argument.arg, _text(default))


def _field(field: ast.AnnAssign) -> Option:
    return Option(ast.unparse(field.target), _text(field.value))


def _text(default: ast.expr | None) -> str | None:
    if default is None:
        return None
    if isinstance(default, ast.Constant) and isinstance(default.value, str):
        return default.value
    return ast.unparse(default)


def packages(module: str) -> frozenset[str]:
    """The top-level packages that importing ``module`` imports, outside the standard library.

    Those of its own package and of dpaudit are followed, not named. Left out: imports inside
    functions, under ``TYPE_CHECKING``, and those whose failure the module handles.
    """
    own = {module.partition(".")[0], "dpaudit"}
    found: set[str] = set()
    seen: set[str] = set()
    left = [module]
    while left:
        name = left.pop()
        parents = [name.rsplit(".", k)[0] for k in range(name.count(".") + 1)]
        for here in parents:
            if here in seen:
                continue
            seen.add(here)
            for imported in _imported(here):
                top = imported.partition(".")[0]
                if top in own:
                    left.append(imported)
                elif top not in sys.stdlib_module_names:
                    found.add(top)
    return frozenset(found)


def _imported(module: str) -> Iterator[str]:
    for statement in _always_run(statements(module)):
        if isinstance(statement, ast.Import):
            yield from (alias.name for alias in statement.names)
        elif isinstance(statement, ast.ImportFrom) and statement.module and not statement.level:
            yield statement.module
            yield from (f"{statement.module}.{alias.name}" for alias in statement.names)


def _always_run(body: tuple[ast.stmt, ...] | list[ast.stmt]) -> Iterator[ast.stmt]:
    for statement in body:
        yield statement
        if isinstance(statement, ast.If) and "TYPE_CHECKING" not in ast.unparse(statement.test):
            yield from _always_run(statement.body)
