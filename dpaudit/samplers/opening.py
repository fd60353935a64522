"""What a worker calls for a library's adapter or a whole mechanism. Imported in the worker only."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from dpaudit import registry
from dpaudit.errors import MissingExtraError, SamplerOutputError, UsageError
from dpaudit.samplers.check import said
from dpaudit.samplers.libraries.adapter import Library, Mechanism, Release
from dpaudit.samplers.targets import Target, named_function

__all__ = ["adapter", "whole_mechanism"]

Array = npt.NDArray[np.float64]


def adapter(spec: Mapping[str, Any]) -> Target:
    """The noise of ``LIB:MECH[:option=value,…]``: what it releases of the value 0, or of another one.

    Raises:
        MissingExtraError: the library is not installed.
        UsageError: it cannot be imported, or refuses the options.
    """
    mechanism, release = _of_library(spec)
    return Target(
        draw=lambda n, d, _: release(np.zeros(d), n),
        draw_at=(lambda value, n, d, _: release(np.full(d, value), n)) if mechanism.told else None,
        ours=True,
    )


def whole_mechanism(spec: Mapping[str, Any]) -> Target:
    """A library's mechanism, or ``f(value, n)`` of a Python module.

    Raises:
        MissingExtraError, UsageError: as above, or as for ``python:`` samplers.
    """
    release = _of_library(spec)[1] if spec["of"] == "library" else _of_python(spec)
    held = _Held(release, spec["name"])
    return Target(draw=held.draw, release=held.release, ours=True)


class _Held:
    """Releases kept until the auditor, told how long one is, asks for them by a draw."""

    def __init__(self, release: Release, name: str) -> None:
        self._release = release
        self._name = name
        self._held: Any = None

    def release(self, value: Array, n: int) -> int:
        given = self._release(value, n)
        call = f"(release n={n} of m={len(value)} numbers); return an array of numbers of shape (n,) or (n, k)"
        try:
            array = np.asarray(given)
        except (TypeError, ValueError) as error:
            raise SamplerOutputError(
                f"mechanism {self._name} returned type={type(given).__name__}, which is no array ({said(error)}) {call}"
            ) from None
        if array.dtype.kind not in "iuf":
            shown = f"type={type(given).__name__}, dtype={array.dtype}"
            raise SamplerOutputError(f"mechanism {self._name} returned {shown}, which is not real numbers {call}")
        if array.ndim not in (1, 2) or len(array) != n or not array.size:
            raise SamplerOutputError(f"mechanism {self._name} returned shape {array.shape} {call}")
        self._held = array.reshape(n, -1)
        return int(self._held.shape[1])

    def draw(self, *_: int) -> Any:
        held, self._held = self._held, None
        return held


def _of_library(spec: Mapping[str, Any]) -> tuple[Mechanism, Release]:
    name = spec["name"]
    library: Library = registry.load("samplers", spec["place"])
    mechanism, options = library.find(spec["member"])
    module = _imported(library, name)
    try:
        make = mechanism.make(module, **options)
    except UsageError:
        raise
    except Exception as error:  # noqa: BLE001 the library's own refusal, whatever its class
        raise UsageError(f"sampler={name}: {library.name} refuses the options ({said(error)}); mend them") from None
    if not mechanism.whole:
        return mechanism, make

    def whole(value: Array, n: int) -> Any:
        broken = value[value != np.rint(value)]
        if broken.size:
            raise UsageError(f"value={broken[0]}: {name} takes whole numbers; choose one")
        return make(value, n)

    return mechanism, whole


def _imported(library: Library, name: str) -> Any:
    try:
        return importlib.import_module(library.module)
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        raise MissingExtraError(f"sampler={name}: needs {missing}, which is not installed; {library.install}") from None
    except BaseException as error:  # noqa: BLE001 importing runs foreign code
        raise UsageError(
            f"sampler={name}: {library.module} cannot be imported ({said(error)}); {library.install}"
        ) from None


def _of_python(spec: Mapping[str, Any]) -> Release:
    function: Callable[[Any, int], Any] = named_function(spec["place"], spec["member"])
    return lambda value, n: function(float(value[0]) if len(value) == 1 else value, n)
