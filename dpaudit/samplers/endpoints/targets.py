"""What a worker calls: a Python function, a library's symbol, a registered source."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import numpy.typing as npt

from dpaudit.errors import UsageError
from dpaudit.results.text import error_text
from dpaudit.samplers.check import raised_at
from dpaudit.samplers.endpoints.symbols import Symbol
from dpaudit.samplers.functions import noise_by
from dpaudit.samplers.signatures import python_call

__all__ = ["OPENERS", "Target", "named_function"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Something to call as ``draw(n, d, call)``; ``ours`` if its errors are dpaudit's own.

    ``called`` is how a Python function is called, for messages.
    ``draw_at(value, n, d, call)`` returns ``value`` + noise, if the target is told what its noise
    is for. ``release(value, n)``, of a whole mechanism, makes ``n`` releases of ``value`` (m,),
    holds them for the next draw, and returns the length of one. ``release_timed`` does so with one
    call per release; its next draw has the seconds as a last column. ``release_any(dataset, n)``,
    of a mechanism on data sets, holds the packed releases as numbers and returns their bytes.
    """

    draw: Callable[[int, int, int], Any]
    draw_at: Callable[[float, int, int, int], Any] | None = None
    release: Callable[[npt.NDArray[np.float64], int], int] | None = None
    release_timed: Callable[[npt.NDArray[np.float64], int], int] | None = None
    release_any: Callable[[bytes, int], int] | None = None
    dim: int | None = None
    claim: str | None = None
    instead: str | None = None
    ours: bool = False
    called: str = ""


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
    found: Callable[..., Any] = function
    return found


def _python(spec: Mapping[str, Any]) -> Target:
    function = named_function(spec["place"], spec["member"])
    call = python_call(function, spec["call"], name=spec["name"], releases=False)
    noise = noise_by(call, function, name=spec["name"])
    return Target(
        draw=lambda n, d, _: noise(n, d, 0.0),
        draw_at=(lambda value, n, d, _: noise(n, d, value)) if call.any_value else None,
        called=str(call),
    )


def _library(spec: Mapping[str, Any]) -> Target:
    symbol = Symbol(spec, releases=False)
    at = symbol.draw if symbol.call.any_value else None
    return Target(
        draw=lambda n, d, _: symbol.draw(n, d, 0.0),
        draw_at=None if at is None else lambda value, n, d, _: at(n, d, value),
        ours=True,
    )


def _source(spec: Mapping[str, Any]) -> Target:
    from dpaudit import registry
    from dpaudit.randomness import KeyedStream  # imports cryptography; other workers do not need it
    from dpaudit.vectors.arrays import to_numpy

    text, mitigation = spec["place"], spec["member"]
    source = registry.create("sources", text)
    defence = None if mitigation is None else registry.create("mitigations", mitigation)
    root = KeyedStream.from_seed(spec["seed"])

    def draw(n: int, d: int, call: int) -> npt.NDArray[Any]:
        if source.dim is not None and source.dim != d:
            raise UsageError(f"d={d}: source {text} has dim={source.dim}; ask for d={source.dim}")
        stream = root.child("call", call)
        if defence is None:
            noise = source.sample(n, d, stream=stream)
        else:
            noise = defence.release(np.zeros((n, d)), source, stream=stream)
        values: npt.NDArray[Any] = to_numpy(noise)
        return values

    instead = getattr(source, "instead", None)
    stated = defence is None and instead is None
    claim = getattr(source, "claim", None) if stated else None
    return Target(draw=draw, dim=source.dim, claim=claim, instead=instead, ours=True)


OPENERS: dict[str, Callable[[Mapping[str, Any]], Target]] = {
    "python": _python,
    "library": _library,
    "source": _source,
}
