"""What the audit says of a sampler of another language, and how long it takes."""

from __future__ import annotations

import os
import selectors
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import IO, Any, cast

import numpy as np
import numpy.typing as npt

from dpaudit import registry
from dpaudit.audit import AuditOptions, run_audit
from dpaudit.audit.battery import SEARCH
from dpaudit.audit.result import AuditResult
from dpaudit.claims import Claim
from dpaudit.errors import (
    MissingExtraError,
    SamplerCrashError,
    SamplerError,
    SamplerTimeoutError,
    SpecError,
)
from dpaudit.experiments.measure import Cell, Grid, Measure
from dpaudit.protocols import Facts, Reply, Request
from dpaudit.randomness import KeyedStream
from dpaudit.targets.check import timed_calls
from dpaudit_studies.real_samplers import CASES

__all__ = ["MEASURE", "ProgramSampler", "measure", "summary"]

_PIECE = 1 << 20

Array = npt.NDArray[np.float64]


class ProgramSampler:
    """A target, and its session, that asks a running program for n·d values at a time.

    Its last argument is a seed below 2^31, drawn from ``stream``; ``again`` has another one.
    Not claimed: any protection from the program, which runs with this process's rights.
    """

    facts = Facts(frozenset({"noise", "noise in calls"}))

    def __init__(self, command: tuple[str, ...], *, name: str, stream: KeyedStream) -> None:
        self.name = name
        self._command, self._stream = command, stream
        self._started = 0
        self._program: subprocess.Popen[bytes] | None = None
        self._rest = b""

    @contextmanager
    def open(self, *, timeout: float) -> Iterator[ProgramSampler]:
        """Start the program at once."""
        del timeout
        seed = int(self._stream.numpy().integers(1, 1 << 31))
        command = [word.replace("{seed}", str(seed)) for word in (*self._command, str(seed))]
        self._program = program = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "LC_ALL": "C.UTF-8"},
        )
        try:
            yield self
        finally:
            program.kill()
            program.communicate()
            self._program = None

    def again(self) -> ProgramSampler:
        """The same program, to be started with the next seed."""
        self._started += 1
        stream = self._stream.child("again", self._started)
        return ProgramSampler(self._command, name=self.name, stream=stream)

    def ask(self, request: Request, *, timeout: float) -> Reply:
        """Noise, in one call or several.

        Raises:
            SamplerError: it ended, or gave nothing for ``timeout`` seconds.
        """
        draw = partial(self._noise, request)
        if request.calls is not None:
            return Reply(*timed_calls(draw, request, timeout=timeout))
        return Reply(draw(timeout))

    def _noise(self, request: Request, timeout: float) -> Array:
        n, d = request.n, request.dim
        if self._program is None:
            raise SamplerCrashError(f"{self.name}: drawn from outside its with block")
        asks, answers = cast("IO[bytes]", self._program.stdin), self._program.stdout
        try:
            asks.write(b"%d\n" % (n * d))
            asks.flush()
        except OSError:
            raise SamplerCrashError(f"{self.name}: the program has ended") from None
        until = time.monotonic() + timeout
        return self._doubles(cast("IO[bytes]", answers), n * d, until).reshape(n, d)

    def _doubles(self, answers: IO[bytes], count: int, until: float) -> Array:
        out = self._rest
        parts, have = [out], len(out)
        while have < 8 * count:
            parts.append(self._read(answers, until))
            have += len(parts[-1])
        out = b"".join(parts)
        self._rest = out[8 * count :]
        return np.frombuffer(out[: 8 * count], "<f8").astype(float)

    def _read(self, answers: IO[bytes], until: float) -> bytes:
        with selectors.DefaultSelector() as ready:
            ready.register(answers, selectors.EVENT_READ)
            if not ready.select(max(0.0, until - time.monotonic())):
                raise SamplerTimeoutError(f"{self.name}: no answer in time")
        part = os.read(answers.fileno(), _PIECE)
        if not part:
            raise SamplerCrashError(f"{self.name}: the program has ended")
        return part


_NOT_INSTALLED = "not installed"


class RealGrid(Grid, frozen=True):
    """A sampler by name (``dpaudit_studies.real_samplers.CASES``) and its audit.

    Without the search for a pancake's key: these have none. Each ``batch`` has seeds of its own.
    """

    sampler: str
    samples: int
    alpha: float
    batch: int = 0


def measure(cell: Cell, arm: None) -> dict[str, Any]:
    """One audit of a sampler (:class:`RealGrid`), for the claim N(0, 1).

    A sampler that is not installed, or cannot be built, gets a row with the reason.

    Raises:
        SpecError: no such sampler.
    """
    del arm
    grid = cell.grid(RealGrid)
    if grid.sampler not in CASES:
        raise SpecError(f"sampler={grid.sampler}: choose one of {', '.join(CASES)}")
    case = CASES[grid.sampler]
    about = ("language", "version", "method", "generator", "transform")
    row = {name: getattr(case, name) for name in about}
    stream = KeyedStream.from_seed(cell.settings["seed"]).child(case.name)
    seed = f"{cell.settings['seed']}/{case.name}"
    if grid.batch:
        seed, stream = f"{seed}/{grid.batch}", stream.child("batch", grid.batch)
    tests = tuple(name for name in registry.plugins("tests") if name != SEARCH)
    options = AuditOptions(
        samples=grid.samples, alpha=grid.alpha, seed=seed, tests=tests, all_values=True
    )
    began = time.monotonic()
    try:
        with ProgramSampler(case.command(), name=case.name, stream=stream).open(
            timeout=60
        ) as sampler:
            result = run_audit(sampler, claim=Claim.parse("gaussian:sigma=1"), options=options)
    except MissingExtraError as error:
        return {**row, "verdict": _NOT_INSTALLED, "failed": str(error)}
    except SamplerError as error:
        return {**row, "verdict": "failed", "failed": str(error)}
    return {**row, **_outcome(result), "seconds": time.monotonic() - began, "failed": None}


def _outcome(result: AuditResult) -> dict[str, Any]:
    findings = [test for test in result.tests if test.finding]
    return {
        "verdict": result.verdict,
        "found": bool(findings),
        "cause": result.cause or None,
        "effect": f"{findings[0].name}: {findings[0].effect}" if findings else None,
        "by": [test.name for test in findings],
        "p_adjusted": min(test.p_adjusted for test in result.tests if not test.advisory),
        "values": result.samples,
    }


def summary(rows: Sequence[Mapping[str, Any]]) -> str:
    """How many of those that ran are findings, and what did not run."""
    ran = [row for row in rows if row["verdict"] not in (_NOT_INSTALLED, "failed")]
    findings = sum(row["verdict"] == "finding" for row in ran)
    languages = len({row["language"] for row in ran})
    text = f"{findings} of {len(ran)} audits of {languages} languages and libraries are findings."
    for verdict, label in ((_NOT_INSTALLED, "Not installed"), ("failed", "Failed")):
        names = [f"{row['language']}: {row['method']}" for row in rows if row["verdict"] == verdict]
        text += f" {label}: {'; '.join(names)}." if names else ""
    return text


MEASURE = Measure(run=measure, grid=RealGrid, needs_arm=False, summary=summary)
