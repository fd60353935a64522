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
import re
import sys
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from importlib.metadata import Distribution, EntryPoint, entry_points
from typing import Any, Literal, get_args

from dpaudit.errors import DuplicatePluginError, MissingExtraError, UnknownNameError, UsageError
from dpaudit.results.text import error_text, one_line
from dpaudit.source_hash import source_hash
from dpaudit.source_reading import (
    Option,
    definition,
    options_of,
    packages,
    source_file,
    statements,
)
from dpaudit.types import PluginOrigin, Reference

__all__ = [
    "KINDS",
    "Description",
    "Kind",
    "Plugin",
    "create",
    "declared",
    "describe",
    "documented",
    "load",
    "missing_extra",
    "nearest",
    "plugin",
    "plugins",
    "source_file",
]

Kind = Literal[
    "sources",
    "samplers",
    "hosts",
    "local",
    "attacks",
    "mitigations",
    "submissions",
    "batches",
    "tests",
    "services",
    "transcripts",
    "loggers",
    "measures",
    "results",
    "formats",
    "deployments",
]
KINDS: tuple[str, ...] = get_args(Kind)

_CPU_BUILD = (
    " (on Linux that is 5 GB with CUDA; without a GPU, first install torch's CPU build: "
    "pytorch.org has the command)"
)
_EXTRAS = {
    "torch": "torch",
    "dp_accounting": "accounting",
    "fpylll": "lattice",
    "pyarrow": "parquet",
    "opendp": "opendp",
    "diffprivlib": "diffprivlib",
    "pydp": "python-dp",
    "pipeline_dp": "pipeline-dp",
    "opacus": "opacus",
    "pooch": "opacus",
    "grpc": "protocols",
    "mpyc": "protocols",
    "rbcl": "protocols",
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


@functools.cache  # each access to a name parses the metadata anew
def _release(dist: Distribution) -> tuple[str, str]:
    return dist.name, dist.version


@functools.cache  # reading all distributions' metadata takes tens of milliseconds
def _scan(kind: str, find: Callable[..., Iterable[EntryPoint]]) -> Mapping[str, Plugin]:
    found: dict[str, Plugin] = {}
    for ep in find(group=f"dpaudit.{kind}"):
        name, version = _release(ep.dist) if ep.dist else ("unknown", "unknown")
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
    classes = (x for x in statements(module) if isinstance(x, ast.ClassDef) and x.name == name)
    made = next(classes, None)
    found = {}
    for statement in made.body if made else ():
        if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
            with contextlib.suppress(ValueError):  # not a literal
                found[statement.targets[0].id] = ast.literal_eval(statement.value)
    return found


def documented(target: str) -> str:
    """The docstring of a class or function ``MODULE:NAME``, not imported; '' if there is none."""
    module, _, name = target.partition(":")
    try:
        _, made = definition(module, name)
    except LookupError:
        return ""
    return (ast.get_docstring(made) or "") if isinstance(made, _DOCUMENTED) else ""


_DOCUMENTED = (ast.ClassDef, ast.FunctionDef)


@dataclass(frozen=True, slots=True, kw_only=True)
class Description:
    """What a plug-in's source says about it; nothing is imported."""

    says: str
    """The first sentence of its docstring, or of its module's; '' if there is none."""
    specimen: bool
    """Whether it is a LAB SPECIMEN."""
    options: tuple[Option, ...]
    """What may be written behind its name: NAME:option=value,…"""
    extra: str | None
    """What brings what it imports: ``pip install 'dpaudit[EXTRA]'``; None if nothing is needed."""
    missing: tuple[str, ...]
    """The packages that it imports and that are not installed."""


def describe(plugin: Plugin) -> Description:
    """Read what a plug-in says about itself from its source, without importing it."""
    module, _, name = plugin.target.partition(":")
    try:
        where, made = definition(module, name)
    except LookupError:
        return Description(says="", specimen=False, options=(), extra=None, missing=())
    own = ast.get_docstring(made) if isinstance(made, _DOCUMENTED) else None
    kind = plugin.origin.kind
    takes = options_of(where, made, keyword_only=kind == "tests") if kind in _OPEN else ()
    text = own or ast.get_docstring(ast.Module([*statements(where)], [])) or ""
    says = _sentence(text, names={option.name for option in takes})
    needed = packages(module) | _library(made)
    return Description(
        says=says.removeprefix(f"{_SPECIMEN}. "),
        specimen=says.startswith(_SPECIMEN),
        options=takes,
        extra=_extra_of(needed),
        missing=tuple(sorted(name for name in needed if importlib.util.find_spec(name) is None)),
    )


_SPECIMEN = "LAB SPECIMEN"
_OPEN = frozenset(KINDS) - {"samplers", "services", "transcripts", "measures"}
_INCLUDES = {"opacus": {"torch"}, "protocols": {"torch"}}


def _sentence(text: str, *, names: Collection[str]) -> str:
    """The first sentence of a docstring, on one line, as plain text; ``names`` stay in quotes."""
    line = " ".join(text.partition("\n\n")[0].split())
    plain = re.sub(r":\w+:`([^`]*)`", r"\1", line)
    plain = re.sub(
        "``([^`]*)``", lambda code: f"`{code[1]}`" if code[1] in names else code[1], plain
    )
    body = plain.removeprefix(f"{_SPECIMEN}. ")
    first = re.split(r"(?<=[.])\s+(?=[A-Z])", body, maxsplit=1)[0]
    return one_line(plain[: len(plain) - len(body)] + first, limit=300)


def _library(made: ast.stmt) -> frozenset[str]:
    """The package whose mechanisms an adapter offers."""
    if not (isinstance(made, ast.Assign) and isinstance(made.value, ast.Call)):
        return frozenset()
    values = {keyword.arg: keyword.value for keyword in made.value.keywords}
    module = values.get("module")
    if not (isinstance(module, ast.Constant) and isinstance(module.value, str)):
        return frozenset()
    top = module.value.partition(".")[0]
    return frozenset() if top in sys.stdlib_module_names else frozenset({top})


def _extra_of(needed: Iterable[str]) -> str | None:
    """The extras that bring all of ``needed``, without those that another one includes."""
    extras = {_EXTRAS[name] for name in needed if name in _EXTRAS}
    included: set[str] = set().union(*(_INCLUDES.get(extra, set()) for extra in extras))
    return ",".join(sorted(extras - included)) or None


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
    remedy = f"needs {missing}, which is not installed; pip install 'dpaudit[{_EXTRAS[missing]}]'"
    return remedy + (_CPU_BUILD if missing == "torch" else "")


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
