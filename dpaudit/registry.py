"""Plug-ins by name, through entry points; built-in and third-party ones are treated alike.

The groups are ``dpaudit.`` and one of ``KINDS``. Their names are listed without an import; a
plug-in is imported when it is loaded or described. A name that two distributions register is
refused.
"""

from __future__ import annotations

import difflib
import functools
import importlib.util
import inspect
import os
import re
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from importlib.machinery import ModuleSpec
from importlib.metadata import Distribution, EntryPoint, entry_points
from types import FunctionType
from typing import TYPE_CHECKING, Any, Literal, TypeVar, cast, get_args

from dpaudit.errors import (
    DpauditError,
    DuplicatePluginError,
    MissingExtraError,
    UnknownNameError,
    UsageError,
)
from dpaudit.results.text import error_text, one_line
from dpaudit.types import PluginOrigin, Reference

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

__all__ = [
    "KINDS",
    "PACKAGES",
    "Description",
    "Kind",
    "Plugin",
    "create",
    "declared_attribute",
    "describe",
    "docstring_of",
    "load",
    "missing_extra",
    "nearest",
    "plugin",
    "plugins",
    "source_hash",
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
    "commands",
    "verifiers",
    "experiments",
    "measures",
    "results",
    "formats",
    "deployments",
]
KINDS: tuple[str, ...] = get_args(Kind)
PACKAGES = (
    "dpaudit",
    "dpaudit_attacks",
    "dpaudit_mitigations",
    "dpaudit_deployments",
    "dpaudit_local",
    "dpaudit_prove",
    "dpaudit_studies",
)
"""The import packages of this distribution; the core imports none of the others."""

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
}

_LONGEST = 200


@dataclass(frozen=True, slots=True)
class Plugin:
    """An entry point that has not been imported yet."""

    origin: PluginOrigin
    target: str
    entry_point: EntryPoint

    @property
    def on_disk(self) -> bool:
        """Whether its package is there; an installation may name one that was taken away."""
        return importlib.util.find_spec(self.entry_point.module.partition(".")[0]) is not None


def nearest(name: object, names: Iterable[str]) -> str:
    """``; did you mean 'x'?``, or the list of known names if none is near."""
    names = sorted(names)
    text = str(name).lower()[:_LONGEST]  # the search is quadratic in its length
    close = difflib.get_close_matches(text, names, n=1, cutoff=0.5)
    if close:
        return f"; did you mean {close[0]!r}?"
    return f"; there are: {', '.join(names)}" if names else "; none is installed"


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
    plugins: dict[str, Plugin] = {}
    for ep in find(group=f"dpaudit.{kind}"):
        name, version = _release(ep.dist) if ep.dist else ("unknown", "unknown")
        origin = PluginOrigin(kind=kind, name=ep.name, distribution=name, version=version)
        new = Plugin(origin, ep.value, ep)
        old = plugins.get(ep.name)
        if old is not None and (old.target, old.origin.distribution) != (new.target, name):
            raise DuplicatePluginError(
                f"{kind}={ep.name}: registered by {old.origin.distribution} ({old.target}) "
                f"and by {name} ({new.target}); uninstall one of them"
            )
        plugins[ep.name] = new
    return dict(sorted(plugins.items()))


def plugin(kind: str, name: str) -> Plugin:
    """One plug-in by name, not imported; its origin has the hash of its package's sources.

    Raises:
        UnknownNameError: with the nearest match.
    """
    entry = _known(kind, name)
    sha256 = source_hash(entry.target.partition(":")[0])
    return replace(entry, origin=replace(entry.origin, sha256=sha256))


def source_hash(module: str) -> str:
    """SHA-256, in hexadecimal, of the Python sources of the package that ``module`` is in.

    Empty if there are none, or one cannot be read. The hash covers the package's ``.py`` files (a
    module without a package: its file; in a namespace package: the first package below it), each
    with its path and length, in the order of their paths: any change of a byte, a name or the set
    of files changes it; where the package is installed does not. Nothing is imported. Computed once
    per process and package, in milliseconds.

    Not claimed: that the process runs these sources (they may have changed since it imported them),
    nor anything about compiled extensions or other packages.
    """
    parts = module.split(".")
    for i in range(1, len(parts) + 1):
        name = ".".join(parts[:i])
        spec = _spec(name)
        # a namespace has no sources of its own, only packages of many distributions
        if spec is None or spec.origin is not None or spec.submodule_search_locations is None:
            return _hash_of(name)
    return ""


@functools.cache
def _hash_of(name: str) -> str:
    import hashlib
    import zipfile
    import zlib

    digest, any_source = hashlib.sha256(), False
    try:
        for path, read in sorted(_sources(_spec(name)), key=lambda source: source[0]):
            content = read()
            digest.update(f"{path}\0{len(content)}\0".encode("utf-8", "surrogateescape") + content)
            any_source = True
    except (OSError, RuntimeError, zipfile.BadZipFile, zlib.error):
        return ""
    return digest.hexdigest() if any_source else ""


def _spec(name: str) -> ModuleSpec | None:
    try:
        return importlib.util.find_spec(name)
    except (ImportError, AttributeError, ValueError):  # no such parent, or a hand-made module
        return None


def _sources(spec: ModuleSpec | None) -> Iterator[tuple[str, Callable[[], bytes]]]:
    """The Python files of a package or module, by path, from a folder or a zip file."""
    loader: Any = spec and spec.loader
    if spec is None or not hasattr(loader, "get_resource_reader"):
        return
    if spec.submodule_search_locations is not None:
        yield from _below(loader.get_resource_reader(spec.name).files(), "", set())
    elif str(spec.origin).endswith(".py"):
        name = os.path.basename(str(spec.origin))
        yield name, functools.partial(loader.get_data, spec.origin)


def _below(folder: Traversable, path: str, visited: set[str]) -> Iterator[Any]:
    """Sources below ``folder``, also behind links, as they can be imported; no folder twice."""
    real = os.path.realpath(str(folder))
    if real in visited:
        return
    visited.add(real)
    for entry in sorted(folder.iterdir(), key=lambda entry: entry.name):
        if entry.is_dir():
            yield from _below(entry, f"{path}{entry.name}/", visited)
        elif entry.name.endswith(".py") and entry.is_file():
            yield f"{path}{entry.name}", entry.read_bytes


T = TypeVar("T")


def declared_attribute(plugin: Plugin, attribute: str, default: T) -> T:
    """What a plug-in's class declares as ``attribute``; imports it.

    ``default`` if it declares nothing, or cannot be imported.
    """
    try:
        return cast("T", getattr(plugin.entry_point.load(), attribute, default))
    except (Exception, SystemExit):  # noqa: BLE001 a third party's module can raise anything
        return default


def docstring_of(plugin: Plugin) -> str:
    """The docstring of a plug-in's class or function, or else of its module; imports it.

    Raises:
        Exception: whatever importing it raises.
    """
    factory = plugin.entry_point.load()
    own = factory.__doc__ if isinstance(factory, (type, FunctionType)) else None
    if own is None or own.startswith(f"{factory.__name__}("):  # what a dataclass has without one
        module = factory.__module__ if isinstance(factory, type) else plugin.entry_point.module
        own = sys.modules[module].__doc__
    return inspect.cleandoc(own or "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Description:
    """What a plug-in says about itself."""

    says: str
    """The first sentence of its docstring, or of its module's; '' if there is none."""
    specimen: bool = False
    """Whether it is a LAB SPECIMEN."""
    options: Mapping[str, str | None] = field(default_factory=dict)
    """What may be written behind its name, NAME:option=value,…, with the default, if any."""
    extra: str | None = None
    """What brings a package that it needs: ``pip install 'dpaudit[EXTRA]'``; None if nothing."""
    missing: str = ""
    """The first package that it needs and that is not installed."""


def describe(plugin: Plugin) -> Description:
    """Import a plug-in and say what it is; one that cannot be imported says why."""
    try:
        text = docstring_of(plugin)
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        return Description(says="", extra=_EXTRAS.get(missing), missing=missing)
    except (Exception, SystemExit) as error:  # noqa: BLE001 a third party's module can raise anything
        return Description(says=f"cannot be imported: {error_text(error, limit=200)}")
    factory = plugin.entry_point.load()
    library = str(getattr(factory, "module", "")).partition(".")[0]  # an adapter's
    options = _offered(factory, plugin.origin.kind)
    sentence = _sentence(text, names=options)
    return Description(
        says=sentence.removeprefix(f"{_SPECIMEN}. "),
        specimen=sentence.startswith(_SPECIMEN),
        options=options,
        extra=_EXTRAS.get(library),
        missing=library if library in _EXTRAS and not importlib.util.find_spec(library) else "",
    )


_SPECIMEN = "LAB SPECIMEN"


def _offered(factory: Any, kind: str) -> dict[str, str | None]:
    """The options of a class with their defaults; of a test, those that are keywords only."""
    if not isinstance(factory, type) or kind == "samplers":  # these are named as command:, file:, …
        return {}
    kinds = [inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD]
    kinds = kinds[:1] if kind == "tests" else kinds
    return {
        name: None if option.default is option.empty else str(option.default)
        for name, option in _parameters(factory).items()
        if option.kind in kinds and not name.startswith("_")
    }


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


def _known(kind: str, name: str) -> Plugin:
    registered = plugins(kind)
    if name not in registered:
        raise UnknownNameError(
            f"{kind.removesuffix('s')}={one_line(name)}: not known{nearest(name, registered)}"
        )
    return registered[name]


def load(kind: str, name: str) -> Any:
    """Import one plug-in and return its factory.

    Raises:
        UnknownNameError: no such name.
        MissingExtraError: it needs an optional dependency, or its package was taken away.
        UsageError: its module raises an error, or has no such class.
    """
    plugin = _known(kind, name)
    try:
        return plugin.entry_point.load()
    except ModuleNotFoundError as error:
        hint = missing_extra(error)
        if not plugin.on_disk:
            hint = f"its package {error.name} is not there; reinstall {plugin.origin.distribution}"
        if hint is None:
            raise
        raise MissingExtraError(f"{kind.removesuffix('s')}={name}: {hint}") from error
    except DpauditError:
        raise
    except (Exception, SystemExit) as error:
        raise UsageError(
            f"{kind.removesuffix('s')}={name}: {plugin.target} of {plugin.origin.distribution} "
            f"cannot be loaded ({error_text(error)}); fix that package, or uninstall it"
        ) from error


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


def with_known_options(kind: str, reference: Reference, **known: Any) -> Reference:
    """``reference`` plus those of ``known`` that its plug-in takes, not already given and not None.

    Raises:
        UnknownNameError: no such plug-in.
    """
    takes = _parameters(load(kind, reference.name))
    stated = reference.options
    new = {k: v for k, v in known.items() if k in takes and k not in stated and v is not None}
    return Reference(reference.name, {**new, **stated})


def create(kind: str, reference: Reference | str, *args: Any) -> Any:
    """Load a plug-in and call its factory with ``args`` and the reference's options.

    Raises:
        UnknownNameError: no such plug-in, or no such option (with the nearest match).
        UsageError: a required option is missing, or the factory raised an error that a value of a
            wrong type or size causes.
    """
    ref = Reference.parse(reference) if isinstance(reference, str) else reference
    factory = load(kind, ref.name)
    label = f"{kind.removesuffix('s')} {ref.name}"
    parameters = _parameters(factory).values()
    named = [p for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD][len(args) :]
    options = named + [p for p in parameters if p.kind is p.KEYWORD_ONLY]
    names = [p.name for p in options]
    if not any(p.kind is p.VAR_KEYWORD for p in parameters):
        for option_name, value in ref.options.items():
            if option_name not in names:
                hint = nearest(option_name, names) if names else "; it takes none"
                raise UnknownNameError(
                    f"{one_line(option_name)}={one_line(value)}: {label} has no such option{hint}"
                )
    for option in options:
        if option.default is option.empty and option.name not in ref.options:
            raise UsageError(
                f"{option.name}: {label} needs it; write {ref.name}:{option.name}=VALUE"
            )
    try:
        return factory(*args, **ref.options)
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        if isinstance(error, UsageError):
            message = one_line(error, limit=2000)  # it quotes the options
            raise error if message == str(error) else UsageError(message) from error
        raise UsageError(
            f"{label}: invalid options ({error_text(error)}); see its documentation"
        ) from error
