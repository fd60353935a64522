"""What a worker calls: a Python function, a library's symbol, a registered source, an adapter."""

from __future__ import annotations

import importlib
import importlib.util
import itertools
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt

from dpaudit.errors import UsageError
from dpaudit.results.text import error_text
from dpaudit.targets.calls import python_call
from dpaudit.targets.check import raised_at
from dpaudit.targets.endpoints.symbols import Symbol
from dpaudit.targets.functions import Adversary, ReleasesBy, noise_by, sessions, transcripts
from dpaudit.targets.plain import dataset_copy, releases_of

__all__ = ["Callee", "datasets_callee", "function_callee", "named_function", "open_callee"]

Array = npt.NDArray[np.float64]


def _lacking(*_: Any) -> NoReturn:
    raise UsageError("question: it is of another kind; ask for what the target accepts")


@dataclass(frozen=True, slots=True, kw_only=True)
class Callee:
    """What a worker can call; the auditor asks for nothing that it lacks.

    ``noise(n, d, call, value)`` is n·d numbers, and with ``takes_value`` ``value`` + noise;
    ``release(value, n)`` is ``n`` releases of ``value`` (m,), and ``once(value)`` a call that makes
    one of them, with as little overhead as there can be; ``release_any(dataset, n)`` is ``n``
    releases of any kind, plain. ``called`` is how a Python function is called, for messages;
    ``ours`` says that its errors are dpaudit's own.
    """

    noise: Callable[[int, int, int, float], Any] = _lacking
    release: Callable[[Array, int], Any] = _lacking
    once: Callable[[Array], Callable[[], Any]] = _lacking
    release_any: Callable[[Any, int], Array | list[Any]] = _lacking
    takes_value: bool = False
    dim: int | None = None
    claim: str | None = None
    instead: str | None = None
    ours: bool = False
    called: str = ""


def open_callee(spec: Mapping[str, Any]) -> Callee:
    """Import or load what the specification names, for its ``role``.

    Raises:
        MissingExtraError: a library is not installed.
        UsageError: it does not exist, or cannot be imported.
    """
    if spec["kind"] == "adapter":
        # not at the top: a worker that calls no library starts without it
        from dpaudit.targets.adapters.base import open_adapter

        return open_adapter(spec)
    return {"python": _python, "library": _library, "source": _source}[spec["kind"]](spec)


def _import(place: str) -> ModuleType:
    remedy = "run from the folder that holds it, or write its path as ./file.py"
    try:
        if "/" not in place and not place.endswith(".py"):
            return importlib.import_module(place)
        path = Path(place).resolve()
        remedy = "fix the file"
        sys.path.insert(0, str(path.parent))
        spec = importlib.util.spec_from_file_location(path.stem, path)
        if spec is None or spec.loader is None:
            raise ImportError("not a Python file")
        module = importlib.util.module_from_spec(spec)
        sys.modules.setdefault(path.stem, module)
        spec.loader.exec_module(module)
        return module
    except BaseException as error:  # noqa: BLE001 importing runs foreign code; SystemExit too
        at = raised_at(error)
        raise UsageError(
            f"module={place}: cannot be imported ({error_text(error)}{at and f'; {at}'}); {remedy}"
        ) from None


def named_function(place: str, member: str) -> Callable[..., Any]:
    """A function of a module or a file.

    Raises:
        UsageError: it does not exist, is not callable, or cannot be imported.
    """
    module = _import(place)
    try:
        function = attrgetter(member)(module)
    except AttributeError:
        # not at the top: most workers never need it, and it is a sixth of their start
        from dpaudit import registry

        names = [n for n, value in vars(module).items() if callable(value)]
        names = [name for name in names if not name.startswith("_")]
        near = registry.nearest(member, names[:50]) if names else "; it has no functions"
        raise UsageError(f"function={member}: not in {place}{near}") from None
    if not callable(function):
        kind = type(function).__name__
        raise UsageError(
            f"function={member}: in {place} it is {kind}, not callable; name a function"
        )
    return function  # type: ignore[no-any-return]


def _python(spec: Mapping[str, Any]) -> Callee:
    function, name, call = named_function(spec["place"], spec["member"]), spec["name"], spec["call"]
    calls = spec.get("calls", 1)
    if "features" not in spec:
        return function_callee(function, name=name, call=call, role=spec["role"], calls=calls)
    features, adversary = (
        None if place is None else named_function(*place.rsplit(":", 1))
        for place in (spec["features"], spec["adversary"])
    )
    return datasets_callee(
        function,
        name=name,
        call=call,
        features=features,
        calls=calls,
        sessions=spec["sessions"],
        adversary=adversary,
    )


def function_callee(
    function: Callable[..., Any],
    *,
    name: str,
    call: str | None = None,
    role: str,
    calls: int = 1,
) -> Callee:
    """A Python function as noise or, of ``role`` mechanism, as releases of a query result.

    ``call`` says how to call it, e.g. ``f(value)``; otherwise its parameters do. With ``calls``
    above 1, it makes sessions (:func:`~dpaudit.targets.functions.sessions`).

    Raises:
        UsageError: it cannot be called so, or its parameters do not tell.
    """
    if calls > 1:
        function = sessions(function, calls, name=name)
    how = python_call(function, call, name=name, releases=role == "mechanism")
    if role == "mechanism":
        by = ReleasesBy(how, function)
        return Callee(release=by, once=by.once, ours=True, called=str(how))
    noise = noise_by(how, function, name=name)
    return Callee(
        noise=lambda n, d, _, value: noise(n, d, value),
        takes_value=how.any_value,
        called=str(how),
    )


def datasets_callee(
    function: Callable[..., Any],
    *,
    name: str,
    call: str | None = None,
    features: Callable[[Any], Any] | None = None,
    calls: int = 1,
    sessions: int = 1,
    adversary: Adversary | None = None,
) -> Callee:
    """A Python function of a data set, with any release, plain and in the order made.

    The function gets a copy of the data set in each call, which it may sort or append to; records
    themselves are shared. ``features`` turns a release, as the function returned it, to numbers.
    With ``calls`` or ``sessions`` above 1, or an ``adversary``, it makes sessions
    (:func:`~dpaudit.targets.functions.transcripts`).

    Raises:
        UsageError: as :func:`function_callee`.
    """
    if calls * sessions > 1 or adversary is not None:
        function = transcripts(
            function, calls=calls, sessions=sessions, adversary=adversary, name=name
        )
    how = python_call(function, call, name=name, releases=True, dataset=True)
    releases = ReleasesBy(how, function, copied=dataset_copy)

    def release_any(dataset: Any, n: int) -> Array | list[Any]:
        released = releases(dataset, n)
        if features is not None:
            released = [features(release) for release in released]
        return releases_of(released, n, who=f"mechanism {name}")

    return Callee(release_any=release_any, ours=True, called=str(how))


def _library(spec: Mapping[str, Any]) -> Callee:
    releases = spec["role"] == "mechanism"
    symbol = Symbol(spec, releases=releases)
    if releases:
        return Callee(release=symbol.release, once=symbol.once, ours=True)
    return Callee(noise=lambda n, d, _, value: symbol.draw(n, d, value), ours=True)


def _source(spec: Mapping[str, Any]) -> Callee:
    from dpaudit import registry
    from dpaudit.numeric.arrays import to_numpy
    from dpaudit.randomness import KeyedStream  # imports cryptography; other workers do not need it

    text, mitigation = spec["place"], spec["member"]
    source = registry.create("sources", text)
    defence = None if mitigation is None else registry.create("mitigations", mitigation)
    root, dim, releases = KeyedStream.from_seed(spec["seed"]), source.dim, itertools.count()

    def noise(n: int, d: int, call: int, _: float) -> npt.NDArray[Any]:
        if dim is not None and dim != d:
            raise UsageError(f"d={d}: source {text} has dim={dim}; ask for d={dim}")
        stream = root.child("call", call)
        if defence is None:
            return to_numpy(source.sample(n, d, stream=stream))
        return to_numpy(defence.release(np.zeros((n, d)), source, stream=stream))

    def made(value: Array, n: int) -> Callable[[], npt.NDArray[Any]]:
        if dim is not None and dim != len(value):
            raise UsageError(
                f"value of {len(value)} numbers: source {text} has dim={dim}; give it {dim}"
            )
        assert defence is not None  # noqa: S101 of releases, at least ``none``
        query, released = np.tile(value, (n, 1)), defence.release

        def release() -> npt.NDArray[Any]:
            stream = root.child("release", next(releases))
            return to_numpy(released(query, source, stream=stream))

        return release

    if spec["role"] == "mechanism":
        return Callee(
            release=lambda value, n: made(value, n)(), once=lambda value: made(value, 1), ours=True
        )
    instead = getattr(source, "instead", None)
    stated = defence is None and instead is None
    claim = getattr(source, "claim", None) if stated else None
    return Callee(noise=noise, dim=dim, claim=claim, instead=instead, ours=True)
