"""Plug-ins by name, through entry points; built-in and third-party ones are treated alike.

The groups are ``dpaudit.`` and one of ``KINDS``. Listing imports nothing; a plug-in is imported
when it is loaded. A name that two distributions register is refused.
"""

from __future__ import annotations

import ast
import contextlib
import difflib
import functools
import importlib.util
import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any, Literal, get_args

from dpaudit.errors import DuplicatePluginError, MissingExtraError, UnknownNameError, UsageError
from dpaudit.results.text import error_text, one_line
from dpaudit.source_hash import source_hash
from dpaudit.types import PluginOrigin, Reference

__all__ = [
    "KINDS",
    "Kind",
    "Plugin",
    "create",
    "declared",
    "load",
    "missing_extra",
    "nearest",
    "plugin",
    "plugins",
]

Kind = Literal[
    "sources",
    "samplers",
    "hosts",
    "local",
    "attacks",
    "mitigations",
    "submissions",
    "tests",
    "services",
    "transcripts",
    "loggers",
    "measures",
]
KINDS: tuple[str, ...] = get_args(Kind)

_EXTRAS = {
    "torch": "torch",
    "numba": "local",
    "dp_accounting": "accounting",
    "fpylll": "lattice",
    "pyarrow": "parquet",
    "opendp": "opendp",
    "diffprivlib": "diffprivlib",
    "opacus": "opacus",
    "pooch": "opacus",
    "grpc": "protocols",
    "mpyc": "protocols",
    "rbcl": "protocols",
    "flwr": "flower",
    "mlflow": "mlflow",
}

_LONGEST = 200


@dataclass(frozen=True, slots=True)
class Plugin:
    """An entry point that has not been imported yet."""

    origin: PluginOrigin
    target: str
    entry_point: EntryPoint


def nearest(name: object, known: Iterable[str]) -> str:
    """``; did you mean 'x'?``, or the list of known names if none is near."""
    known = sorted(known)
    text = str(name).lower()[:_LONGEST]  # the search is quadratic in its length
    close = difflib.get_close_matches(text, known, n=1, cutoff=0.5)
    if close:
        return f"; did you mean {close[0]!r}?"
    return f"; there are: {', '.join(known)}" if known else "; none is installed"


def plugins(kind: str) -> dict[str, Plugin]:
    """All plug-ins of a kind by name, without importing any.

    Raises:
        UnknownNameError: no such kind.
        DuplicatePluginError: one name, two targets.
    """
    if kind not in KINDS:
        raise UnknownNameError(f"kind={kind}: no such kind of plug-in{nearest(kind, KINDS)}")
    return dict(_scan(kind, entry_points))


@functools.cache  # reading all distributions' metadata takes tens of milliseconds
def _scan(kind: str, find: Callable[..., Iterable[EntryPoint]]) -> Mapping[str, Plugin]:
    found: dict[str, Plugin] = {}
    for ep in find(group=f"dpaudit.{kind}"):
        dist = ep.dist
        name, version = (dist.name, dist.version) if dist else ("unknown", "unknown")
        origin = PluginOrigin(kind=kind, name=ep.name, distribution=name, version=version)
        new = Plugin(origin, ep.value, ep)
        old = found.get(ep.name)
        if old is not None and (old.target, old.origin.distribution) != (new.target, name):
            raise DuplicatePluginError(
                f"{kind}={ep.name}: registered by {old.origin.distribution} ({old.target}) "
                f"and by {name} ({new.target}); uninstall one of them"
            )
        found[ep.name] = new
    return dict(sorted(found.items()))


def plugin(kind: str, name: str) -> Plugin:
    """One plug-in by name, not imported; its origin has the hash of its package's sources.

    Raises:
        UnknownNameError: with the nearest match.
    """
    found = _known(kind, name)
    sha256 = source_hash(found.target.partition(":")[0])
    return replace(found, origin=replace(found.origin, sha256=sha256))


def declared(plugin: Plugin) -> dict[str, Any]:
    """The literal attributes of a plug-in's class, read from its source without importing it.

    Empty if the target is not a class, or its source is not a file. Not included: what a base class
    or running the module adds.
    """
    module, _, name = plugin.target.partition(":")
    try:
        parsed = ast.parse(_source(module)).body
        body = next(x for x in parsed if isinstance(x, ast.ClassDef) and x.name == name).body
    except (ImportError, OSError, StopIteration, SyntaxError, ValueError):
        return {}
    found = {}
    for statement in body:
        if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
            with contextlib.suppress(ValueError):  # not a literal
                found[statement.targets[0].id] = ast.literal_eval(statement.value)
    return found


def _source(module: str) -> bytes:
    top, *below = module.split(".")
    spec = importlib.util.find_spec(top)  # finding anything deeper would import the parents
    files = []
    for place in (spec.submodule_search_locations or ()) if spec else ():
        path = Path(place, *below)
        files += [path.with_name(f"{path.name}.py"), path / "__init__.py"]
    if spec and spec.origin and not below:
        files = [Path(spec.origin)]
    return next(file for file in files if file.is_file()).read_bytes()


def _known(kind: str, name: str) -> Plugin:
    known = plugins(kind)
    if name not in known:
        raise UnknownNameError(
            f"{kind.removesuffix('s')}={one_line(name)}: not known{nearest(name, known)}"
        )
    return known[name]


def load(kind: str, name: str) -> Any:
    """Import one plug-in and return its factory.

    Raises:
        UnknownNameError: no such name.
        MissingExtraError: it needs an optional dependency.
    """
    found = _known(kind, name)
    try:
        return found.entry_point.load()
    except ModuleNotFoundError as error:
        hint = missing_extra(error)
        if hint is None:
            raise
        raise MissingExtraError(f"{kind.removesuffix('s')}={name}: {hint}") from error


def missing_extra(error: ModuleNotFoundError) -> str | None:
    """What to install, if the missing module comes with one of dpaudit's extras."""
    missing = (error.name or "").partition(".")[0]
    if missing not in _EXTRAS:
        return None
    return f"needs {missing}, which is not installed; pip install 'dpaudit[{_EXTRAS[missing]}]'"


def _parameters(factory: Callable[..., Any]) -> Mapping[str, inspect.Parameter]:
    try:
        return _signature(factory).parameters
    except TypeError:  # not hashable
        return inspect.signature(factory).parameters


# cached: a cell makes a source and an attack for each of its keys
_signature = functools.lru_cache(maxsize=256)(inspect.signature)


def offered(kind: str, reference: Reference, **known: Any) -> Reference:
    """``reference`` plus those of ``known`` that its plug-in takes, not already given and not None.

    Raises:
        UnknownNameError: no such plug-in.
    """
    takes = _parameters(load(kind, reference.name))
    given = reference.options
    new = {k: v for k, v in known.items() if k in takes and k not in given and v is not None}
    return Reference(reference.name, {**new, **given})


def create(kind: str, reference: Reference | str, *args: Any) -> Any:
    """Load a plug-in and call its factory with ``args`` and the reference's options.

    Raises:
        UnknownNameError: no such plug-in, or no such option (with the nearest match).
        UsageError: a required option is missing, or the factory raised an error that a value of a
            wrong type or size causes.
    """
    ref = Reference.parse(reference) if isinstance(reference, str) else reference
    factory = load(kind, ref.name)
    what = f"{kind.removesuffix('s')} {ref.name}"
    parameters = _parameters(factory).values()
    named = [p for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD][len(args) :]
    options = named + [p for p in parameters if p.kind is p.KEYWORD_ONLY]
    names = [p.name for p in options]
    if not any(p.kind is p.VAR_KEYWORD for p in parameters):
        for given, value in ref.options.items():
            if given not in names:
                hint = nearest(given, names) if names else "; it takes none"
                raise UnknownNameError(
                    f"{one_line(given)}={one_line(value)}: {what} has no such option{hint}"
                )
    for option in options:
        if option.default is option.empty and option.name not in ref.options:
            raise UsageError(
                f"{option.name}: {what} needs it; write {ref.name}:{option.name}=VALUE"
            )
    try:
        return factory(*args, **ref.options)
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        if isinstance(error, UsageError):
            words = one_line(error, limit=2000)  # it quotes the options
            raise error if words == str(error) else UsageError(words) from error
        raise UsageError(
            f"{what}: invalid options ({error_text(error)}); see its documentation"
        ) from error
