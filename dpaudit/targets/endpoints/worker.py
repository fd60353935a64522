"""Targets in a worker process: Python, shared libraries, registered sources (auditor's side)."""

from __future__ import annotations

import base64
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from dpaudit.errors import SamplerOutputError, UsageError
from dpaudit.protocols import Dataset, Facts, Kind, Reply, Request
from dpaudit.targets.calls import Call, c_hint
from dpaudit.targets.check import MOST, check_request, plain_f64, query_result, require_finite
from dpaudit.targets.endpoints.channel import Channel
from dpaudit.targets.plain import packed_dataset, unpacked
from dpaudit.targets.sandbox.view import compiled_code, files_of_module, files_of_options
from dpaudit.types import Reference

__all__ = ["ACCEPTS", "PythonTarget", "SourceTarget", "SymbolTarget", "Worker", "with_values"]

ACCEPTS: Mapping[str, frozenset[Kind]] = {
    "sampler": frozenset({"noise", "noise in calls", "noise over a fork"}),
    "mechanism": frozenset({"releases", "releases in calls"}),
    "datasets": frozenset({"releases of a data set"}),
}
"""What a worker answers, by the role of what it calls."""
_FORK_SECONDS = 5.0  # limit for a forked child, with half of the time limit

Array = npt.NDArray[np.float64]


def with_values(facts: Facts) -> Facts:
    """The facts of a sampler that is told the value that its noise is for."""
    return replace(facts, accepts={*facts.accepts, "noise for a value"})


class Worker(Channel):
    """What every worker answers: noise, releases of a query result, or releases of a data set.

    One process answers all questions, under the same limits whatever it is asked.
    """

    def ask(self, request: Request, *, timeout: float) -> Reply:
        """Answer a request; the first also waits for the process to start.

        Noise for a value is what was returned, less the value: it carries the rounding of the
        release itself. Calls are made by the worker in a loop, which times the target alone, with
        the clock of ``time.perf_counter_ns``; a library that gives one number at a time is called m
        times per release of m numbers. Not claimed: that the seconds are those of the noise alone.

        Noise over a fork: state that both processes share gives the same noise twice. The worker
        draws once before the fork if it has not drawn yet, so that a generator seeded at the first
        call is seeded. The reply is empty if the child gave nothing in half of the time, or a few
        seconds: not every program survives a fork.

        Data sets and their releases pass as MessagePack of plain values
        (:mod:`dpaudit.targets.plain`); nothing is unpickled on either side. After a data set at
        which the process died or was too slow, the next request starts another process.

        Raises:
            UsageError: the worker cannot find or import what it should call, or it refuses the
                request: a query result is 1 to 4096 finite numbers, a data set is plain.
            SamplerTimeoutError: no answer after ``timeout`` seconds; the process is killed.
            SamplerCrashError: it raised, or its process died.
            SamplerOutputError: its answer is not as many finite numbers, or fewer releases.
        """
        answers = {
            "noise": self._noise,
            "noise for a value": self._noise,
            "noise in calls": self._noise_in_calls,
            "noise over a fork": self._noise_over_fork,
            "releases": self._releases,
            "releases in calls": self._releases,
            "releases of a data set": self._releases_of_data,
        }
        deadline = time.monotonic() + timeout
        if request.kind not in self._facts.accepts and self._process is not None:
            awaited = self._owed
            self._start(timeout)
            timeout = max(deadline - time.monotonic(), 1e-3) if awaited else timeout
        accepts = self._stated(self._about).accepts
        check_request(request, accepts, timeout=timeout, name=self.name, role=self.role)
        return answers[request.kind](request, timeout)

    def _noise(self, request: Request, timeout: float) -> Reply:
        values = np.empty((request.n, request.dim))
        value: dict[str, Any] = {} if request.input is None else {"value": request.input}
        self._ask(values.data.cast("B"), request, timeout, **value)
        return Reply(require_finite(values, self.name))

    def _noise_in_calls(self, request: Request, timeout: float) -> Reply:
        size, calls = request.rows * request.dim, request.rows // request.n
        both = np.empty(size + calls)
        self._ask(both.data.cast("B"), request, timeout, used=calls, calls=calls)
        return Reply(
            require_finite(both[:size].reshape(request.rows, request.dim), self.name), both[size:]
        )

    def _noise_over_fork(self, request: Request, timeout: float) -> Reply:
        deadline = time.monotonic() + timeout
        if not self._calls:
            self._noise(Request(1, request.dim), timeout)
        left = max(deadline - time.monotonic(), 1e-3)
        both = np.empty((2 * request.n, request.dim))
        patience = min(_FORK_SECONDS, left / 2)
        refusal = self._ask(both.data.cast("B"), request, left, used=2, fork_seconds=patience)
        return Reply(both[:0] if refusal is not None else require_finite(both, self.name))

    def _releases(self, request: Request, timeout: float) -> Reply:
        value = query_result(request.input)
        question: dict[str, Any] = {"release": base64.b64encode(value.tobytes()).decode()}
        if request.calls is not None:
            question["calls"] = request.calls
        rows, call = request.rows, f"n={request.rows}, d={value.size}"
        reply = self._ask(8 * (MOST + rows), request, timeout, call=call, **question)
        if len(reply) % (8 * rows):
            raise self._foreign(f" (release n={rows})")
        both = np.frombuffer(reply).reshape(rows, -1)
        if request.calls is None:
            return Reply(require_finite(both, self.name, self.role))
        seconds = np.ascontiguousarray(both[:, -1])
        return Reply(require_finite(both[:, :-1], self.name, self.role), seconds)

    def _releases_of_data(self, request: Request, timeout: float) -> Reply:
        assert isinstance(request.input, Dataset)  # noqa: S101 by its kind
        if self._dead:
            self._end()
            self._launch(self._patience)
        encoded = base64.b64encode(packed_dataset(request.input.records)).decode()
        reply = self._ask(8 * MOST, request, timeout, dataset=encoded)
        try:
            releases = unpacked(bytes(reply))
        except ValueError as error:
            raise SamplerOutputError(
                f"mechanism {self.name}: its releases cannot be read ({error}); fix it"
            ) from None
        many = isinstance(releases, list) or (
            isinstance(releases, np.ndarray) and releases.ndim > 0
        )
        if many and len(releases) == request.n:
            return Reply(releases)
        raise SamplerOutputError(f"mechanism {self.name} did not release n={request.n}; fix it")


class _Function(Worker):
    """A third-party function, written ``KIND:FILE:NAME``."""

    _kind, _form, _file, _name = "", "", "", ""

    def __init__(
        self,
        target: str,
        *,
        seed: str = "",
        dtype: str = "f64",
        text_mode: bool = False,
        call: str | None = None,
        role: str = "sampler",
        **more: Any,
    ) -> None:
        """Read the target; the worker opens it. ``seed`` is not used: the function is closed.

        ``call`` says how to call it, e.g. ``f(value)``; see :mod:`dpaudit.targets.calls`. ``role``
        is sampler or mechanism. With ``calls`` above 1, a mechanism makes sessions
        (:func:`~dpaudit.targets.functions.sessions`).

        Raises:
            UsageError: no name of a function, no such file, a ``dtype`` or ``text_mode``, or a
                ``call`` that is none.
        """
        del seed
        if call is not None:
            Call.parse(call)  # before anything starts
        name = f"{self._kind}:{target}"
        plain_f64(name, dtype, text_mode)
        place, _, member = target.rpartition(":")
        if not place or not member:
            from dpaudit.targets.hints import offers  # not at the top: few targets are wrong

            raise UsageError(
                f"target={name}: needs a {self._name}; write {self._kind}:{self._form}"
                f"{offers(place or member)}"
            )
        if self._is_path(place) and not Path(place).is_file():
            raise UsageError(
                f"{self._file}={place}: no such file (from {Path.cwd()}); check the path"
            )
        spec = {"kind": self._kind, "place": self._place(place), "member": member, "call": call}
        kinds = ACCEPTS["datasets" if "features" in more else role]
        spec = {**spec, "role": role, **more}
        super().__init__(name, spec, facts=Facts(kinds), needs=self._files)
        self._target = target
        self._given: dict[str, Any] = {"call": call, "role": role, **more}

    def _is_path(self, place: str) -> bool:
        return "/" in place

    def _place(self, place: str) -> str:
        return place

    def _files(self) -> Sequence[str]:
        raise NotImplementedError

    def again(self) -> Self:
        """The same function for a process of its own."""
        return type(self)(self._target, **self._given)


class PythonTarget(_Function):
    """``python:MODULE:FUNCTION``: ``f(n, d)``, ``f(size=(n, d))``, …, or what ``--call`` says.

    MODULE is dotted (the working directory is searched first) or the path of a ``.py`` file. The
    function's parameters tell how it is called (:func:`~dpaudit.targets.calls.python_call`), or
    ``call`` does. Noise is an array (n, d), or (n,) when d = 1; ``f(n)`` returns n values and
    ``f()`` one. ``f(size=(n, d))`` fits most of ``numpy.random``. One with a parameter ``value``
    returns value + noise. Of data sets it is ``f(dataset)`` or ``f(dataset, n)``, any release.
    """

    _kind, _form, _file, _name = "python", "MODULE:FUNCTION", "module", "function"

    @classmethod
    def on_datasets(
        cls,
        target: str,
        *,
        call: str | None = None,
        features: str | None = None,
        calls: int = 1,
        sessions: int = 1,
        adversary: str | None = None,
    ) -> PythonTarget:
        """A function of a data set; ``features``, ``MODULE:FUNCTION``, turns releases to numbers.

        With ``calls`` or ``sessions`` above 1, or an ``adversary``, ``MODULE:FUNCTION``, it makes
        sessions (:func:`~dpaudit.targets.functions.transcripts`).

        Raises:
            UsageError: no function, no such file, or a ``call`` that is none.
        """
        for other in (features, adversary):
            if other is not None:
                cls(other)  # checks the name
        return cls(
            target,
            call=call,
            role="mechanism",
            features=features,
            adversary=adversary,
            calls=calls,
            sessions=sessions,
        )

    def _is_path(self, place: str) -> bool:
        return "/" in place or place.endswith(".py")

    def _files(self) -> Sequence[str]:
        others = [self._spec.get(option) for option in ("features", "adversary")]
        places = [self._spec["place"], *(one.rpartition(":")[0] for one in others if one)]
        return list(chain.from_iterable(map(files_of_module, places)))

    def _stated(self, about: Mapping[str, Any]) -> Facts:
        """With noise for a value, if the function has a parameter ``value``.

        Not claimed: that the function distinguishes values.
        """
        return with_values(self._facts) if about.get("takes_value") else self._facts


class SymbolTarget(_Function):
    """``library:./x.so:SYMBOL``: ``void f(double *out, size_t n, size_t d)``, or see ``--call``.

    Values are out[n][d]. ``call`` may say otherwise, e.g. ``f(1.0) -> double``
    (:class:`~.symbols.Symbol`). Values that it does not write and (near) writes past the end are
    detected; a segmentation fault ends the worker only.
    """

    _kind, _form, _file, _name = "library", "PATH:SYMBOL", "library", "symbol"

    def _place(self, place: str) -> str:
        return str(Path(place).resolve()) if Path(place).is_file() else place

    def _files(self) -> Sequence[str]:
        path = str(self._spec["place"])
        return [path] if "/" in path else []

    def _hint(self, message: str) -> str:
        from dpaudit.targets.hints import offers  # as above

        return offers(str(self._spec["place"])) if message.startswith("symbol=") else ""

    def _remedy(self) -> str:
        if self._spec["call"] is not None:
            return f"fix the {self.role}, or --call"
        return f"fix the {self.role} or, {c_hint(releases=self.role == 'mechanism')}"


class SourceTarget(Worker):
    """``NAME[:opt=value,…]``: a registered noise source, behind a mitigation or none, in a worker.

    Call i draws from ``KeyedStream.from_seed(seed)``, by its child ("call", i) for noise and
    ("release", i) for releases, so the same seed and calls give the same numbers, and no two calls
    share randomness.
    """

    def __init__(
        self,
        text: str,
        *,
        seed: str,
        dtype: str = "f64",
        text_mode: bool = False,
        mitigation: str | None = None,
        role: str = "sampler",
    ) -> None:
        """Look the names up; nothing is imported here. Releases stand behind ``none`` by default.

        Raises:
            UnknownNameError: no such source or mitigation.
            UsageError: a broken option, or a ``dtype`` or ``text_mode``.
        """
        from dpaudit import registry  # not at the top: other targets do not need it

        plain_f64(text, dtype, text_mode)
        origin = registry.plugin("sources", Reference.parse(text).name).origin
        if mitigation is None and role == "mechanism":
            mitigation = "none"
        if mitigation is not None:
            registry.plugin("mitigations", Reference.parse(mitigation).name)
        spec = {"kind": "source", "place": text, "member": mitigation, "seed": seed, "role": role}
        super().__init__(
            text,
            spec,
            facts=Facts(ACCEPTS[role], version=origin.version),
            needs=lambda: files_of_options(text, mitigation),
            shared=lambda: compiled_code(origin.distribution),
        )
        self._given: dict[str, Any] = {"mitigation": mitigation, "role": role}
        self._others = 0
        self._prepared: deque[SourceTarget] = deque()

    def again(self) -> SourceTarget:
        """The same source for a process of its own, with a seed that follows from this one's.

        An honest source has no randomness but its stream, so with the same seed we would cause the
        same noise ourselves.
        """
        return self._prepared.popleft() if self._prepared else self._next()

    def prepare(self, others: int) -> None:
        """Start the processes of the next ``others`` calls of :meth:`again` now; inside ``with``.

        It saves the wait for each, and changes no number: a source's noise follows from its seed,
        not from when it started. Unused ones end with this sampler.
        """
        for _ in range(others):
            other = self._next()
            other._launch(self._patience)
            self._prepared.append(other)

    def _end(self) -> None:
        while self._prepared:
            self._prepared.popleft()._end()
        super()._end()

    def _next(self) -> SourceTarget:
        self._others += 1
        seed = f"{self._spec['seed']}/again/{self._others}"
        return type(self)(self.name, seed=seed, **self._given)

    def _stated(self, about: Mapping[str, Any]) -> Facts:
        """With the source's own dimension, and what it claims unless behind a mitigation.

        It claims nothing if its noise has no law apart from the value; ``instead`` has the audit.
        """
        kinds = {"dim": int, "claim": str, "instead": str}
        own: dict[str, Any] = {
            name: kind(about[name]) for name, kind in kinds.items() if about.get(name) is not None
        }
        return replace(self._facts, **own)
