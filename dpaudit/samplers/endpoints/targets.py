"""What a worker calls: a Python function, a library's symbol, a registered source."""

from __future__ import annotations

import ctypes
import importlib
import importlib.util
import inspect
import sys
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import numpy.typing as npt

from dpaudit.errors import SamplerOutputError, UsageError
from dpaudit.results.text import error_text

__all__ = ["OPENERS", "Target", "answered", "named_function", "numbers", "parameters"]

_GUARD = 512  # doubles past the end of a library's buffer
_EXACT = 1 << 53  # float64 holds all whole numbers up to here
_UNWRITTEN = np.uint64(0x7FF8_6470_6175_6469)  # a NaN that no sampler writes by chance


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Something to call as ``draw(n, d, call)``; ``ours`` if its errors are dpaudit's own.

    ``draw_at(value, n, d, call)`` returns ``value`` + noise, if the target is told what its noise
    is for. ``release(value, n)``, of a whole mechanism, makes ``n`` releases of ``value`` (m,),
    holds them for the next draw, and returns the length of one. ``release_timed`` does so with one
    call per release; its next draw has the seconds as a last column.
    """

    draw: Callable[[int, int, int], Any]
    draw_at: Callable[[float, int, int, int], Any] | None = None
    release: Callable[[npt.NDArray[np.float64], int], int] | None = None
    release_timed: Callable[[npt.NDArray[np.float64], int], int] | None = None
    dim: int | None = None
    ours: bool = False


def answered(given: Any, n: int, d: int, name: str) -> npt.NDArray[np.float64]:
    """An answer as a contiguous float64 array (n, d); (n,) is accepted if d = 1.

    Raises:
        SamplerOutputError: not numbers, or another shape.
    """
    call = f"(call n={n}, d={d}); return an array of numbers of shape (n, d)"
    array = numbers(given, f"sampler {name} returned", call)
    if array.shape != (n, d) and not (d == 1 and array.shape == (n,)):
        raise SamplerOutputError(
            f"sampler {name} returned shape {array.shape}, wanted (n={n}, d={d}) {call}"
        )
    return np.ascontiguousarray(array, dtype=np.float64).reshape(n, d)


def numbers(given: Any, who: str, call: str) -> npt.NDArray[Any]:
    """An answer as an array of real numbers that float64 holds exactly.

    ``who`` and ``call`` are for the message.

    Raises:
        SamplerOutputError: it is not an array of real numbers, or rounding them to float64 would
            change them.
    """
    try:
        array = np.asarray(given)
    except (TypeError, ValueError) as error:
        raise SamplerOutputError(
            f"{who} type={type(given).__name__}, which is not an array ({error_text(error)}) {call}"
        ) from None
    kind = array.dtype.kind
    if kind == "O" and array.size and all(type(x) is int for x in array.flat):
        raise _rounded(who, max(array.flat, key=abs))
    if kind not in "iuf":
        raise SamplerOutputError(
            f"{who} type={type(given).__name__}, dtype={array.dtype}, which is not real numbers "
            f"{call}"
        )
    if kind in "iu" and array.itemsize == 8 and array.size:
        for extreme in (int(array.max()), int(array.min())):
            if abs(extreme) > _EXACT:
                raise _rounded(who, extreme)
    if kind == "f" and array.itemsize > 8:
        with np.errstate(over="ignore"):
            changed = array[(array.astype(np.float64) != array) & ~np.isnan(array)]
        if changed.size:
            raise _rounded(who, changed[0])
    return array


def _rounded(who: str, number: Any) -> SamplerOutputError:
    return SamplerOutputError(
        f"{who} {number}, which float64 would round: whole numbers are accepted up to 2^53, others "
        "as float64; choose a smaller value or scale"
    )


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
        raise UsageError(
            f"module={place}: cannot be imported ({error_text(error)}); {remedy}"
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
    taken = parameters(function)
    if "value" in taken:
        return Target(
            draw=lambda n, d, _: function(n, d, value=0.0),
            draw_at=lambda value, n, d, _: function(n, d, value=value),
        )
    if "size" in taken and "n" not in taken:
        return Target(draw=lambda n, d, _: function(size=(n, d)))
    return Target(draw=lambda n, d, _: function(n, d))


def parameters(function: Callable[..., Any]) -> Collection[str]:
    """The names of a function's parameters, as far as they can be known."""
    try:
        return inspect.signature(function).parameters
    except (TypeError, ValueError):  # compiled: numpy's docstring starts with the signature
        first = (getattr(function, "__doc__", None) or "").lstrip().split("\n")[0]
        return ["size"] if "size=None" in first else []


def _library(spec: Mapping[str, Any]) -> Target:
    path, symbol, name = spec["place"], spec["member"], spec["name"]
    try:
        library = ctypes.CDLL(path)
    except OSError as error:
        raise UsageError(
            f"library={path}: cannot be loaded ({error_text(error)}); build it for this machine"
        ) from None
    try:
        function = library[symbol]
    except AttributeError:
        raise UsageError(
            f'symbol={symbol}: not in {path}; export it (in C++ as extern "C")'
        ) from None
    function.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t)
    function.restype = None

    def draw(n: int, d: int, _: int) -> npt.NDArray[np.float64]:
        bits = np.full(n * d + _GUARD, _UNWRITTEN)
        function(bits.ctypes.data, n, d)
        if (bits[n * d :] != _UNWRITTEN).any():
            raise SamplerOutputError(
                f"sampler {name} wrote past the end of its buffer, wanted n*d={n * d} values "
                f"(call n={n}, d={d}); write out[0] to out[n*d - 1] only"
            )
        missing = int(np.count_nonzero(bits[: n * d] == _UNWRITTEN))
        if missing:
            raise SamplerOutputError(
                f"sampler {name} wrote {n * d - missing} values, wanted n*d={n * d} "
                f"(call n={n}, d={d}); write them all"
            )
        return bits[: n * d].view(np.float64).reshape(n, d)

    return Target(draw=draw, ours=True)


def _source(spec: Mapping[str, Any]) -> Target:
    from dpaudit import registry
    from dpaudit.randomness import KeyedStream  # imports cryptography; other workers do not need it

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
            torch = importlib.import_module("torch")  # by name: import-linter forbids it here
            noise = defence.release(torch.zeros((n, d), dtype=torch.float64), source, stream=stream)
        values: npt.NDArray[Any] = noise.detach().cpu().numpy()
        return values

    return Target(draw=draw, dim=source.dim, ours=True)


OPENERS: dict[str, Callable[[Mapping[str, Any]], Target]] = {
    "python": _python,
    "library": _library,
    "source": _source,
}
