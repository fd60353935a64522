"""Targets in a worker process: Python, shared libraries, registered sources (auditor's side)."""

from __future__ import annotations

import base64
import math
import time
from collections import deque
from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from dpaudit.errors import SamplerOutputError, UsageError
from dpaudit.targets.calls import Call, c_hint
from dpaudit.targets.check import MOST, finite, plain_f64, query_result
from dpaudit.targets.endpoints.channel import Channel
from dpaudit.targets.plain import packed_dataset, unpacked
from dpaudit.targets.sandbox.view import compiled_code, files_of_module, files_of_options
from dpaudit.types import Reference

__all__ = ["PythonTarget", "SourceTarget", "SymbolTarget", "Worker"]

_START_LIMIT = 60.0  # seconds to import a source, if its dimension is asked before the first draw
_START_PATIENCE = 2.0  # seconds to import foreign Python, if asked for its parameters before that
_FORK_SECONDS = 5.0  # limit for a forked child, with half of the time limit

Array = npt.NDArray[np.float64]


class Worker(Channel):
    """What every worker answers: noise, releases of a query result, or releases of a data set.

    One process answers all questions, under the same limits whatever it is asked.
    """

    available: int | None = None
    version: str | None = None
    """The installed version of what is called; only stored."""
    advice = ""

    @property
    def dim(self) -> int | None:
        """None: any dimension can be drawn."""
        return None

    def draw(self, n: int, d: int, *, timeout: float) -> Array:
        """``n`` vectors, shape (n, d), finite; the first draw also waits for the process to start.

        Raises:
            UsageError: the worker cannot find or import what it should call, or it refuses (n, d).
            SamplerTimeoutError: no answer after ``timeout`` seconds; the process is killed.
            SamplerCrashError: it raised, or its process died.
            SamplerOutputError: its answer is not (n, d) finite numbers.
        """
        return self._drawn(n, d, timeout)

    def draw_calls(self, calls: int, n: int, d: int, *, timeout: float) -> tuple[Array, Array]:
        """``calls`` calls of ``n`` vectors in turn: values (calls·n, d), and each call's seconds.

        The worker makes them in a loop and times the target alone, with the clock of
        ``time.perf_counter_ns``; one message brings all. Raises as :meth:`draw` does.
        """
        size = calls * n * d
        both = np.empty(size + calls) if min(calls, n, d) > 0 else np.empty(0)
        self._ask(both.data.cast("B"), n, d, timeout, used=calls, calls=calls)
        return finite(both[:size].reshape(calls * n, d), self.name), both[size:]

    def draw_forked(self, n: int, d: int, *, timeout: float) -> tuple[Array, Array] | None:
        """Draw ``n`` vectors in a fork of the worker, then ``n`` in itself: arrays (n, d), or None.

        State that both share gives the same noise twice. The worker draws once before the fork if
        it has not drawn yet, so that a generator seeded at the first call is seeded. None if the
        child gave nothing in half of the time, or a few seconds: not every program survives a fork.
        Raises as :meth:`draw` does.
        """
        deadline = time.monotonic() + timeout
        if not self._calls:
            self.draw(1, d, timeout=timeout)
        left = max(deadline - time.monotonic(), 1e-3)
        both = np.empty((2, n, d)) if n > 0 and d > 0 else np.empty(0)
        patience = min(_FORK_SECONDS, left / 2)
        answer = self._ask(both.data.cast("B"), n, d, left, used=2, fork_seconds=patience)
        if answer is not None:
            return None
        return finite(both[0], self.name), finite(both[1], self.name)

    def _drawn(self, n: int, d: int, timeout: float, **more: Any) -> Array:
        values = np.empty((n, d)) if n > 0 and d > 0 else np.empty(0)
        self._ask(values.data.cast("B"), n, d, timeout, **more)
        return finite(values, self.name)

    def release(self, value: Array, n: int, *, timeout: float) -> Array:
        """``n`` independent releases of the query result ``value`` (m,), shape (n, k), finite.

        Raises:
            UsageError: ``value`` is not 1 to 4096 finite numbers, the mechanism refuses it, or
                cannot be opened.
            SamplerError: as :meth:`draw`; its answer is not ``n`` rows of finite numbers.
        """
        return finite(self._released(value, n, timeout), self.name, self.role)

    def release_timed(self, value: Array, n: int, *, timeout: float) -> tuple[Array, Array]:
        """``n`` releases (n, k) of ``value`` (m,) in as many calls, and each call's seconds (n,).

        The worker calls the mechanism for one release at a time and times each call alone, with the
        clock of ``time.perf_counter_ns``; a library that gives one number at a time is called m
        times per release. Not claimed: that the seconds are those of the noise alone. Raises as
        :meth:`release` does.
        """
        both = self._released(value, n, timeout, timed=True)
        return finite(both[:, :-1], self.name, self.role), np.ascontiguousarray(both[:, -1])

    def _released(self, value: Array, n: int, timeout: float, *, timed: bool = False) -> Array:
        """Releases (n, k); with ``timed`` the seconds are a last column."""
        value = query_result(value)
        question: dict[str, Any] = {"release": base64.b64encode(value.tobytes()).decode()}
        most = 8 * (MOST + n)
        reply = self._ask(most, n, value.size, timeout, timed=timed, **question)
        if len(reply) % (8 * n):
            raise self._foreign(f" (release n={n})")
        return np.frombuffer(reply).reshape(n, -1)

    def release_any(self, dataset: Any, n: int, *, timeout: float) -> Array | list[Any]:
        """``n`` releases of ``dataset``, plain; the first also waits for the process to start.

        The data set and the releases pass as MessagePack of plain values
        (:mod:`dpaudit.targets.plain`); nothing is unpickled on either side. After a data set at
        which the process died or was too slow, the next call starts another process.

        Raises:
            UsageError: the data set or a release is of no plain kind, or the function cannot be
                opened.
            SamplerError: it raised, did not respond in time, or returned fewer.
        """
        if self._dead:
            self.__exit__()
            self.__enter__()
        encoded = base64.b64encode(packed_dataset(dataset)).decode()
        reply = self._ask(8 * MOST, n, 1, timeout, dataset=encoded)
        try:
            releases = unpacked(bytes(reply))
        except ValueError as error:
            raise SamplerOutputError(
                f"mechanism {self.name}: its releases cannot be read ({error}); fix it"
            ) from None
        many = isinstance(releases, list) or (
            isinstance(releases, np.ndarray) and releases.ndim > 0
        )
        if many and len(releases) == n:
            return releases  # type: ignore[no-any-return]
        raise SamplerOutputError(f"mechanism {self.name} did not release n={n}; fix it")


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
        super().__init__(name, {**spec, "role": role, **more}, needs=self._files)
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
        others = [self._spec.get(what) for what in ("features", "adversary")]
        places = [self._spec["place"], *(one.rpartition(":")[0] for one in others if one)]
        return list(chain.from_iterable(map(files_of_module, places)))

    @property
    def takes_value(self) -> bool:
        """Whether the function has a parameter ``value``; False outside ``with``.

        It is known once the module is imported: before, this waits a few seconds for that, and then
        is False. Not claimed: that the function distinguishes values.

        Raises:
            UsageError: the function cannot be found or imported.
            SamplerCrashError: the process died.
        """
        process = self._process
        if process is not None and self._owed and not self._dead:
            if not process.ready(deadline=time.monotonic() + _START_PATIENCE):
                return False
            self.start(timeout=_START_PATIENCE)
        return bool(self._about.get("takes_value"))

    def draw_at(self, value: float, n: int, d: int, *, timeout: float) -> Array:
        """``n`` noise vectors (n, d) made for ``value``: what was returned, less ``value``.

        The difference carries the rounding of value + noise, as the release itself does.

        Raises:
            UsageError: the function takes no value, or ``value`` is not finite; otherwise as
                :meth:`draw`.
        """
        if not math.isfinite(value):
            raise UsageError(f"value={value}: noise is added to a finite number; choose one")
        self.start(timeout=timeout)
        if not self._about.get("takes_value"):
            raise UsageError(
                f"value={value}: {self.name} has no parameter `value`; write f(n, d, value)"
            )
        return self._drawn(n, d, timeout, value=value)


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
            needs=lambda: files_of_options(text, mitigation),
            shared=lambda: compiled_code(origin.distribution),
        )
        self.version = origin.version
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
            self._prepared.append(self._next().__enter__())

    def __exit__(self, *exc: object) -> None:
        while self._prepared:
            self._prepared.popleft().__exit__()
        super().__exit__(*exc)

    def _next(self) -> SourceTarget:
        self._others += 1
        seed = f"{self._spec['seed']}/again/{self._others}"
        return type(self)(self.name, seed=seed, **self._given)

    @property
    def dim(self) -> int | None:
        """The source's own dimension, asked once, inside ``with``; None before.

        Raises:
            UsageError: the source refuses its options.
            SamplerError: it died, or did not start within a minute.
        """
        dim = self._stated("dim")
        return None if dim is None else int(dim)

    @property
    def claim(self) -> str | None:
        """What the source claims to be, asked as its dimension is; None behind a mitigation.

        Also None if its noise has no law apart from the value; :attr:`instead` has the audit then.

        Raises:
            UsageError, SamplerError: as for :attr:`dim`.
        """
        claim = self._stated("claim")
        return None if claim is None else str(claim)

    @property
    def instead(self) -> str | None:
        """Options of ``dpaudit mechanism`` that audit a source without a law of noise, or None.

        Raises:
            UsageError, SamplerError: as for :attr:`dim`.
        """
        instead = self._stated("instead")
        return None if instead is None else str(instead)

    def _stated(self, what: str) -> Any:
        if self._owed and self._process is not None:
            self.start(timeout=_START_LIMIT)
        return self._about.get(what)
