"""What a worker calls for a library's adapter or a whole mechanism."""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from dpaudit import registry
from dpaudit.errors import MissingExtraError, SamplerOutputError, UsageError
from dpaudit.results.text import error_text
from dpaudit.samplers.adapters.base import (
    Library,
    LibraryMechanism,
    Release,
    one_release,
    whole_numbers,
)
from dpaudit.samplers.check import RELEASES, numbers, released
from dpaudit.samplers.endpoints.symbols import Symbol
from dpaudit.samplers.endpoints.targets import Target, named_function
from dpaudit.samplers.functions import AnyReleasesBy, ReleasesBy, sessions
from dpaudit.samplers.plain import packed, unpacked_dataset
from dpaudit.samplers.signatures import python_call
from dpaudit.samplers.transcripts import transcripts
from dpaudit.vectors.arrays import to_numpy

__all__ = ["adapter", "on_datasets", "whole_mechanism"]

Array = npt.NDArray[np.float64]


def adapter(spec: Mapping[str, Any]) -> Target:
    """The noise of ``LIB:MECH[:option=value,…]``: its releases of the value 0, or of another one.

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
    """A registered source, a library's mechanism, or a function of Python or of a shared library.

    Raises:
        MissingExtraError, UsageError: as above, or as for ``python:`` samplers.
    """
    release, called = _RELEASES[spec["of"]](spec)
    held = _Held(release, spec["name"])
    return Target(
        draw=held.draw,
        release=held.release,
        release_timed=held.release_timed,
        ours=True,
        called=called,
    )


def on_datasets(spec: Mapping[str, Any]) -> Target:
    """A Python function of a data set, with any release, and a function of features or none.

    Raises:
        UsageError: as for ``python:`` samplers.
    """
    function = named_function(spec["place"], spec["member"])
    features, adversary = (_named(spec[what]) for what in ("features", "adversary"))
    calls, sessions_ = int(spec["calls"]), int(spec["sessions"])
    if calls * sessions_ > 1 or adversary is not None:
        function = transcripts(
            function, calls=calls, sessions=sessions_, adversary=adversary, name=spec["name"]
        )
    call = python_call(function, spec["call"], name=spec["name"], releases=True, dataset=True)
    held = _Packed(AnyReleasesBy(call, function, name=spec["name"], features=features))
    return Target(draw=held.draw, release_any=held.release, ours=True, called=str(call))


def _named(target: str | None) -> Callable[..., Any] | None:
    if target is None:
        return None
    place, _, member = target.rpartition(":")
    return named_function(place, member)


class _Packed:
    """Releases of any kind, kept as bytes in numbers until the auditor draws them."""

    def __init__(self, releases: AnyReleasesBy) -> None:
        self._releases = releases
        self._known: tuple[bytes, Any] = b"", None
        self._held: Any = None

    def release(self, dataset: bytes, n: int) -> int:
        if self._known[0] != dataset:
            self._known = dataset, unpacked_dataset(dataset)
        data = packed(self._releases(self._known[1], n))
        self._held = np.frombuffer(data + bytes(-len(data) % 8), dtype=np.float64).reshape(-1, 1)
        return len(data)

    def draw(self, *_: int) -> Any:
        held, self._held = self._held, None
        return held


class _SourceRelease:
    """``(value, n)`` → releases (n, m), for :class:`~.releases.SourceMechanism`.

    Raises:
        UnknownNameError, UsageError, MissingExtraError: the source or the mitigation cannot be
            made, or refuses a value.
    """

    def __init__(self, spec: Mapping[str, Any]) -> None:
        from dpaudit.randomness import KeyedStream  # imports cryptography; other workers do not

        self._name = spec["place"]
        self._source = registry.create("sources", spec["place"])
        self._mitigation = registry.create("mitigations", spec["member"])
        self._root = KeyedStream.from_seed(spec["seed"])
        self._calls = 0

    def __call__(self, value: Array, n: int) -> Array:
        return self._released(self._query(value, n))

    def once(self, value: Array) -> Callable[[], Array]:
        """A function that makes one release per call, for timing."""
        query = self._query(value, 1)
        return lambda: self._released(query)

    def _query(self, value: Array, n: int) -> Any:
        dim = self._source.dim
        if dim is not None and dim != len(value):
            raise UsageError(
                f"value of {len(value)} numbers: source {self._name} has dim={dim}; give it {dim}"
            )
        return np.tile(value, (n, 1))

    def _released(self, query: Any) -> Array:
        stream = self._root.child("release", self._calls)
        self._calls += 1
        released = self._mitigation.release(query, self._source, stream=stream)
        array: Array = to_numpy(released)
        return array


class _Held:
    """Releases kept until the auditor, which first gets the length of one, draws them."""

    def __init__(self, release: Release, name: str) -> None:
        self._release = release
        self._name = name
        self._held: Any = None

    def release(self, value: Array, n: int) -> int:
        given = self._no_text(self._release(value, n))
        self._held = released(given, n, len(value), self._name)
        return int(self._held.shape[1])

    def release_timed(self, value: Array, n: int) -> int:
        once, clock = one_release(self._release, value), time.perf_counter_ns
        given, taken = [], np.empty(n, dtype=np.int64)
        for i in range(n):
            started = clock()
            one = once()
            taken[i] = clock() - started
            given.append(one)
        who, call = f"mechanism {self._name} returned", RELEASES.format(1, len(value))
        rows = [numbers(self._no_text(one), who, call).ravel() for one in given]
        lengths = {len(row) for row in rows}
        if len(lengths) != 1 or not rows[0].size:
            raise SamplerOutputError(f"{who} shape {tuple(sorted(lengths))} {call}")
        self._held = np.column_stack([np.array(rows, dtype=np.float64), taken * 1e-9])
        return len(rows[0])

    def _no_text(self, given: Any) -> Any:
        if isinstance(given, (str, bytes)):  # whatever was drawn, it will never be numbers
            raise UsageError(
                f"mechanism {self._name} returned type={type(given).__name__}, which is not "
                "numbers; return an array of numbers of shape (n,) or (n, k)"
            )
        return given

    def draw(self, *_: int) -> Any:
        held, self._held = self._held, None
        return held


def _of_library(spec: Mapping[str, Any]) -> tuple[LibraryMechanism, Release]:
    name, who = spec["name"], f"{spec['role']}={spec['name']}"
    library = _library(spec["place"])
    mechanism, options = library.find(spec["member"])
    module = _imported(library, who)
    assert mechanism.make is not None  # noqa: S101 a library of this interpreter has one
    try:
        release = mechanism.make(module, **options)
    except UsageError:
        raise
    except Exception as error:  # noqa: BLE001 the library's own refusal, whatever its class
        raise UsageError(
            f"{who}: {library.name} refuses the options ({error_text(error)}); change them"
        ) from None
    return mechanism, _Whole(release, name) if mechanism.whole else release


def _library(place: str) -> Library:
    """The adapter by its registered name, or by where it is, ``MODULE:NAME``."""
    module, colon, name = place.partition(":")
    found: Library = (
        getattr(importlib.import_module(module), name)
        if colon
        else registry.load("samplers", place)
    )
    return found


class _Whole:
    """A release that takes whole numbers only."""

    def __init__(self, release: Release, name: str) -> None:
        self._release = release
        self._name = name

    def __call__(self, value: Array, n: int) -> Any:
        whole_numbers(value, self._name)
        return self._release(value, n)

    def once(self, value: Array) -> Callable[[], Any]:
        whole_numbers(value, self._name)
        return one_release(self._release, value)


def _imported(library: Library, who: str) -> Any:
    try:
        return importlib.import_module(library.module)
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        raise MissingExtraError(
            f"{who}: needs {missing}, which is not installed; {library.install}"
        ) from None
    except BaseException as error:  # noqa: BLE001 importing runs foreign code
        raise UsageError(
            f"{who}: {library.module} cannot be imported ({error_text(error)}); {library.install}"
        ) from None


def _of_python(spec: Mapping[str, Any]) -> tuple[Release, str]:
    function = named_function(spec["place"], spec["member"])
    if (calls := int(spec["calls"])) > 1:
        function = sessions(function, calls, name=spec["name"])
    call = python_call(function, spec["call"], name=spec["name"], releases=True)
    return ReleasesBy(call, function), str(call)


class _OfSymbol:
    """``(value, n)`` → releases, by a C function."""

    def __init__(self, spec: Mapping[str, Any]) -> None:
        self._symbol = Symbol(spec, releases=True)
        self.once = self._symbol.once

    def __call__(self, value: Array, n: int) -> Any:
        return self._symbol.release(value, n)


_RELEASES: Mapping[str, Callable[[Mapping[str, Any]], tuple[Release, str]]] = {
    "source": lambda spec: (_SourceRelease(spec), ""),
    "library": lambda spec: (_of_library(spec)[1], ""),
    "python": _of_python,
    "symbol": lambda spec: (_OfSymbol(spec), ""),
}
