"""Plug-ins by name, through entry points: ours come through the same door as anyone's.

Groups are ``dpaudit.`` and one of ``KINDS``. Listing imports nothing; a plug-in is imported when it
is loaded; two distributions with one name are refused, never silently preferred.
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
    """``; did you mean 'x'?`` or, with nothing near, the list of what there is."""
    known = sorted(known)
    # quadratic in its length
    close = difflib.get_close_matches(str(name).lower()[:_LONGEST], known, n=1, cutoff=0.5)

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


# reading every distribution's metadata takes tens of milliseconds; a process's plug-ins do not change
@functools.cache
def _scan(kind: str, find: Callable[..., Iterable[EntryPoint]]) -> Mapping[str, Plugin]:
    found: dict[str, Plugin] = {}
    for ep in find(group=f"dpaudit.{kind}"):
        dist = ep.dist
        name, version = (dist.name, dist.version) if dist else ("unknown", "unknown")
        new = Plugin(
            PluginOrigin(kind=kind, name=ep.name, distribution=name, version=version), ep.value, ep
        )
        old = found.get(ep.name)
        if old is not None and (old.target, old.origin.distribution) != (new.target, name):
            raise DuplicatePluginError(
                f"{kind}={ep.name}: registered by {old.origin.distribution} ({old.target}) and by {name} "
                f"({new.target}); uninstall one of them"
            )
        found[ep.name] = new
    return dict(sorted(found.items()))


def plugin(kind: str, name: str) -> Plugin:
    """One plug-in by name, not imported; its origin with the hash of its package's sources.

    Raises:
        UnknownNameError: with the nearest match.
    """
    found = _known(kind, name)
    sha256 = source_hash(found.target.partition(":")[0])
    return replace(found, origin=replace(found.origin, sha256=sha256))


def declared(plugin: Plugin) -> dict[str, Any]:
    """The literal attributes of a plug-in's class, read from its source, so that nothing of it is imported.

    Empty where the target is no class, or its source no file. Not claimed: what a base class or
    running the module adds.
    """
    module, _, name = plugin.target.partition(":")
    try:
        classes = (
            x
            for x in ast.parse(_source(module)).body
            if isinstance(x, ast.ClassDef) and x.name == name
        )
        body = next(classes).body
    except (ImportError, OSError, StopIteration, SyntaxError, ValueError):
        return {}
    found = {}
    for statement in body:
        if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
            with contextlib.suppress(ValueError):  # no literal
                found[statement.targets[0].id] = ast.literal_eval(statement.value)
    return found


def _source(module: str) -> bytes:
    top, *below = module.split(".")
    spec = importlib.util.find_spec(top)  # of anything deeper, the parents would be imported
    places = list(spec.submodule_search_locations or ()) if spec else []
    paths = [Path(place, *below) for place in places]
    files = [
        file for path in paths for file in (path.with_name(f"{path.name}.py"), path / "__init__.py")
    ]
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
    """What to install, if the module that is missing comes with one of dpaudit's extras."""
    missing = (error.name or "").partition(".")[0]
    if missing not in _EXTRAS:
        return None
    return f"needs {missing}, which is not installed; pip install 'dpaudit[{_EXTRAS[missing]}]'"


def _parameters(factory: Callable[..., Any]) -> Mapping[str, inspect.Parameter]:
    try:
        return _signature(factory).parameters
    except TypeError:  # cannot be hashed
        return inspect.signature(factory).parameters


_signature = functools.lru_cache(maxsize=256)(
    inspect.signature
)  # a cell makes a source and an attack for each of its keys


def offered(kind: str, reference: Reference, **known: Any) -> Reference:
    """``reference`` with those of ``known`` that the plug-in takes, was not given, and that are not None.

    Raises:
        UnknownNameError: no such plug-in.
    """
    takes = _parameters(load(kind, reference.name))
    fitting = {
        k: v
        for k, v in known.items()
        if k in takes and k not in reference.options and v is not None
    }
    return Reference(reference.name, {**fitting, **reference.options})


def create(kind: str, reference: Reference | str, *args: Any) -> Any:
    """Load a plug-in and call its factory with ``args`` and the reference's options.

    Raises:
        UnknownNameError: no such plug-in, or no such option (with the nearest match).
        UsageError: a required option is missing, or the factory raised what a value of a wrong type
            or size raises.
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
            words = one_line(error, limit=2000)  # they quote the options
            raise error if words == str(error) else UsageError(words) from error
        raise UsageError(
            f"{what}: cannot be made with these options ({error_text(error)}); see its documentation"
        ) from error
