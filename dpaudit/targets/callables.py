"""A Python callable as something to audit, in a process of its own or in this one.

A module-level function is named as on the command line and runs behind the samplers' limits. A
closure, a lambda, a bound method or any other object exists in this process only, and is called
here.
"""

from __future__ import annotations

import os
import shlex
import sys
import sysconfig
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from operator import attrgetter
from pathlib import Path
from typing import Any, Self, TypeVar

import numpy as np

from dpaudit.errors import SamplerCrashError, SamplerOutputError, SamplerTimeoutError, UsageError
from dpaudit.protocols import Dataset, Facts, Kind, Reply, Request
from dpaudit.results.text import error_text
from dpaudit.targets.check import check_request, raised_at, release_array, require_finite
from dpaudit.targets.endpoints.callees import datasets_callee, function_callee
from dpaudit.types import BlindSpot, WithTests

__all__ = [
    "ONE_PROCESS",
    "SAME_PROCESS",
    "CallableTarget",
    "Subject",
    "reproducible",
    "same_search_path",
    "subject",
]

_KINDS: dict[str, Kind] = {
    "sampler": "noise",
    "mechanism": "releases",
    "datasets": "releases of a data set",
}

R = TypeVar("R", bound=WithTests)
T = TypeVar("T")

ONE_PROCESS = BlindSpot(
    test="",
    flaw="noise shared by two processes, or over a fork",
    size=None,
    unit="",
    says="the callable ran in the auditor's own process: nothing else was started to compare it "
    "with; a module-level function gets a process of its own, and a second one",
)
"""What an audit of noise in this process additionally cannot see."""

SAME_PROCESS = BlindSpot(
    test="",
    flaw="a mechanism that sees its auditor",
    size=None,
    unit="",
    says="the callable ran in the auditor's own process, without a sandbox: it can read what is "
    "compared, and when; a module-level function gets a process of its own",
)
"""What an audit of a mechanism in this process additionally cannot see."""


@dataclass(frozen=True, slots=True)
class Subject:
    """What is audited: a ``target`` for a process of its own, or a ``function`` to call here.

    ``root`` is a folder that ``PYTHONPATH`` must hold for the target, if any; ``ours`` is true if
    the target names a callable of this process.
    """

    name: str
    target: str | None = None
    function: Callable[..., Any] | None = None
    root: str | None = None
    ours: bool = False

    @property
    def called(self) -> Callable[..., Any]:
        """The function to call here, of a subject without a target."""
        assert self.function is not None  # noqa: S101 it has the one or the other
        return self.function

    def command(self, line: str) -> str:
        """``line``, a command about the target, so that it finds the target's module."""
        if self.root is None:
            return line
        return f"PYTHONPATH={shlex.quote(os.path.relpath(self.root))} {line}"


def reproducible(result: R, subject: Subject, *, again: str = "") -> R:
    """``result`` with commands that work here; ``again`` is that of a callable of this process."""
    tests = tuple(
        replace(t, reproduce=again if subject.target is None else subject.command(t.reproduce))
        if t.finding
        else t
        for t in result.tests
    )
    return replace(result, tests=tests)  # type: ignore[type-var]  # each is a dataclass


def subject(sampler: str | Callable[..., Any], *, in_process: bool | None) -> Subject:
    """What to audit, and where: ``in_process`` True keeps a callable here, False runs it elsewhere.

    Raises:
        UsageError: neither a target nor a callable, or ``in_process`` cannot be met.
    """
    if isinstance(sampler, str):
        if in_process:
            raise UsageError(
                f"in_process=True: {sampler} is a target and runs in its own process; "
                "pass a callable"
            )
        return Subject(sampler, target=sampler)
    if not callable(sampler):
        raise UsageError(
            f"sampler={sampler!r}: neither a target nor a callable; "
            "pass e.g. 'numpy:laplace' or f(n, d)"
        )
    importable = None if in_process else _importable(sampler)
    if importable is not None:
        return importable
    name = getattr(sampler, "__qualname__", None) or type(sampler).__qualname__
    if in_process is False:
        raise UsageError(
            f"in_process=False: {name} is not a function that its module holds under its name, so "
            "no other process can import it; define it at the top level of a module, or leave "
            "in_process out"
        )
    return Subject(f"{name} (in this process)", function=sampler)


def _importable(function: Callable[..., Any]) -> Subject | None:
    """``python:MODULE:FUNCTION``; MODULE is a file from the working directory, or a dotted name."""
    module = sys.modules.get(getattr(function, "__module__", None) or "")
    name, file = getattr(function, "__qualname__", ""), getattr(module, "__file__", None) or ""
    try:
        member = attrgetter(name)(module) if name else None
    except AttributeError:
        member = None
    if module is None or member is not function or module.__name__ == "__main__":
        return None
    path, root = Path(file), None
    parts = [] if path.stem == "__init__" else [path.stem]
    while (path.parent / "__init__.py").is_file():
        path = path.parent
        parts.insert(0, path.name)
    if not file.endswith(".py"):  # compiled, as numpy's
        place = module.__name__
    elif path == Path(file):
        place = os.path.relpath(file)
        place = place if place.startswith(os.pardir) else os.path.join(os.curdir, place)
    else:
        place, root = ".".join(parts), str(path.parent)
    target = f"python:{place}:{name}"
    return Subject(
        target, target=target, root=None if root is None or _known_to_all(root) else root, ours=True
    )


@contextmanager
def same_search_path() -> Iterator[None]:
    """Let processes that are started inside import from where this one does."""
    before = os.environ.get("PYTHONPATH")
    here = [p for p in sys.path if os.path.isdir(p) and not _known_to_all(p)]
    os.environ["PYTHONPATH"] = os.pathsep.join(
        dict.fromkeys([*here, *([before] if before else [])])
    )
    try:
        yield
    finally:
        if before is None:
            del os.environ["PYTHONPATH"]
        else:
            os.environ["PYTHONPATH"] = before


def _known_to_all(folder: str) -> bool:
    """Whether every Python started here imports from this folder (the working or a library one)."""
    path, paths = os.path.realpath(folder), sysconfig.get_paths()
    libraries = {
        os.path.realpath(paths[key]) for key in ("stdlib", "platstdlib", "purelib", "platlib")
    }
    return path == os.path.realpath(os.getcwd()) or any(
        f"{path}/".startswith(f"{one}/") for one in libraries
    )


class CallableTarget:
    """A function called in this process, as ``python:`` would elsewhere.

    How it can be called is said by :func:`~.endpoints.callees.function_callee`, and of data sets by
    :func:`~.endpoints.callees.datasets_callee`. Not claimed: any protection from it. There is no
    limit on memory; a time limit is checked after each call and interrupts none; a crash ends this
    process; there is no other process to compare with.
    """

    def __init__(
        self, function: Callable[..., Any], *, name: str, role: str = "sampler", **how: Any
    ) -> None:
        """``role`` is sampler, mechanism or datasets; ``how`` says how to call it.

        Raises:
            UsageError: it cannot be called so, or its parameters do not tell.
        """
        self.name, self._role = name, "sampler" if role == "sampler" else "mechanism"
        self.facts = Facts({_KINDS[role]})
        if role == "datasets":
            self._callee = datasets_callee(function, name=name, **how)
        else:
            self._callee = function_callee(function, name=name, role=role, **how)

    @contextmanager
    def open(self, *, timeout: float) -> Iterator[Self]:
        """Nothing starts; ``timeout`` is not needed."""
        del timeout
        yield self

    def ask(self, request: Request, *, timeout: float) -> Reply:
        """Call the function; a data set, or a query result, is a copy of its own.

        Raises:
            SamplerCrashError: it raised.
            SamplerTimeoutError: the call took more than ``timeout`` seconds.
            SamplerOutputError: its answer is not as many finite numbers.
        """
        accepts = self.facts.accepts
        check_request(request, accepts, timeout=timeout, name=self.name, role=self._role)
        n, d, callee = request.n, request.dim, self._callee
        if isinstance(request.input, Dataset):
            dataset = request.input.records
            values = self._called(callee.release_any, f"release n={n}", timeout, dataset, n)
            return Reply(values)
        if request.input is None:
            values = self._called(callee.noise, f"call n={n}, d={d}", timeout, n, d, 0, 0.0)
            return Reply(require_finite(values, self.name))
        value = np.asarray(request.input)
        m = len(value)
        releases = self._called(
            callee.release, f"release n={n} of m={m} numbers", timeout, value, n
        )
        array = np.ascontiguousarray(release_array(releases, n, m, self.name), dtype=np.float64)
        return Reply(require_finite(array, self.name, "mechanism"))

    def _called(self, answer: Callable[..., T], call: str, timeout: float, *arguments: Any) -> T:
        began = time.monotonic()
        try:
            values = answer(*arguments)
        except SamplerOutputError:
            raise
        except Exception as error:  # noqa: BLE001 foreign code may raise anything
            at = "; ".join(filter(None, (raised_at(error), call)))
            raise SamplerCrashError(
                f"{self.name} raised {error_text(error)} ({at}); fix it"
            ) from None
        if (took := time.monotonic() - began) > timeout:
            raise SamplerTimeoutError(
                f"{self.name} took {took:.3g} s, more than was left of the time limit ({call})"
            )
        return values
