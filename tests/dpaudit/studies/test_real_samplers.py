"""Programs of other languages as samplers: what they are asked, what a row says."""

from __future__ import annotations

import sys
import tomllib
from dataclasses import replace
from importlib.resources import files

import numpy as np
import pytest

from dpaudit.audit import AuditOptions
from dpaudit.errors import MissingExtraError, SamplerCrashError, SamplerTimeoutError
from dpaudit.experiments.cell import Cell
from dpaudit.randomness import KeyedStream
from dpaudit.studies.real_samplers import CASES
from dpaudit.studies.real_samplers import measure as module
from dpaudit.studies.real_samplers.measure import measure, summary
from dpaudit.studies.real_samplers.programs import LANGUAGES
from dpaudit.studies.real_samplers.sampler import ProgramSampler

STREAM = KeyedStream.from_seed("programs")
COUNTING = """
import sys, struct
at = 0
for line in sys.stdin:
    n = int(line)
    {send}
    sys.stdout.flush()
    at += n
"""
BINARY = COUNTING.format(
    send="sys.stdout.buffer.write(struct.pack(f'<{n}d', *range(at, at + n)));"
    "sys.stdout.buffer.flush()"
)
TEXT = COUNTING.format(send="print(*(f'{i:.17g}' for i in range(at, at + n)), sep='\\n')")


def _program(source: str, *, text: bool = False) -> ProgramSampler:
    command = (sys.executable, "-c", source)
    return ProgramSampler(command, name="counting", stream=STREAM, text=text)


@pytest.mark.parametrize("text", [False, True])
def test_calls_are_cut_from_one_series(text: bool) -> None:
    with _program(TEXT if text else BINARY, text=text) as sampler:
        first = sampler.draw(2, 3, timeout=20)
        values, seconds = sampler.draw_calls(4, 1, 5, timeout=20)
    np.testing.assert_array_equal(first, np.arange(6.0).reshape(2, 3))
    np.testing.assert_array_equal(values, np.arange(6.0, 26.0).reshape(4, 5))
    assert seconds.shape == (4,)


def test_a_program_that_ends_or_is_silent_is_an_error() -> None:
    with _program("pass") as ended, pytest.raises(SamplerCrashError, match="has ended"):
        ended.draw(1, 1, timeout=20)
    silent = _program("import time; time.sleep(30)")
    with silent, pytest.raises(SamplerTimeoutError, match="in time"):
        silent.draw(1, 1, timeout=0.2)


def test_seeds_repeat_and_differ_between_processes() -> None:
    case = CASES["Python: gauss"]
    command = (*LANGUAGES["Python"].command(), case.method)

    def drawn(sampler: ProgramSampler) -> np.ndarray:
        with sampler:
            return sampler.draw(1, 4, timeout=20)

    start = ProgramSampler(command, name="gauss", stream=STREAM)
    first = drawn(start)
    np.testing.assert_array_equal(
        first, drawn(ProgramSampler(command, name="gauss", stream=STREAM))
    )
    assert not np.any(first == drawn(start.again()))


def _cell(sampler: str, **more: int) -> Cell:
    grid = {"sampler": sampler, "samples": 60_000, "alpha": 0.01, **more}
    settings = {"seed": 7, "trials": 1, "grid": grid}
    return Cell(kind="real-samplers", settings=settings)


@pytest.mark.slow
def test_a_row_names_the_cause() -> None:
    row = measure(_cell("Python: gauss"), None)
    assert row["version"] == sys.version.split()[0]
    assert row["verdict"] == "finding"
    assert "predicted" in row["effect"]
    assert "MT19937" in row["cause"]


def test_what_is_not_installed_has_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    absent = replace(LANGUAGES["Ruby"], run=("no-such-language", "{source}"))
    monkeypatch.setattr(module, "LANGUAGES", {**LANGUAGES, "Ruby": absent})
    row = measure(_cell("Ruby: Random"), None)
    assert row["verdict"] == "not installed"
    assert row["failed"] == (
        "no-such-language: not installed; install it with your system's packages"
    )
    assert summary([row]).endswith("Not installed: Ruby: Random.")


def test_what_cannot_be_built_says_why() -> None:
    broken = replace(LANGUAGES["C"], build=(sys.executable, "-c", "raise SystemExit('no header')"))
    with pytest.raises(MissingExtraError, match="cannot be built \\(no header\\)"):
        broken.command()


def test_the_spec_names_every_sampler() -> None:
    text = (files("dpaudit.studies.specs") / "real-samplers.toml").read_text("utf-8")
    assert tomllib.loads(text)["grid"]["sampler"] == list(CASES)
    assert len(CASES) >= 100
    assert len({case.language for case in CASES.values()}) >= 30


def test_the_right_ones_are_audited_three_hundred_times() -> None:
    text = (files("dpaudit.studies.specs") / "real-samplers-right.toml").read_text("utf-8")
    grid = tomllib.loads(text)["grid"]
    assert set(grid["sampler"]) < set(CASES)
    assert len(set(grid["sampler"])) * len(set(grid["batch"])) == 300


def test_each_batch_has_values_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = []

    def audited(sampler: ProgramSampler, *, options: AuditOptions, **_: object) -> None:
        drawn.append((options.seed, sampler.draw(4, 1, timeout=30).tobytes()))
        raise SamplerCrashError("enough")

    monkeypatch.setattr(module, "run_audit", audited)
    for batch in (0, 1, 2):
        measure(_cell("Python: numpy.PCG64", batch=batch), None)
    seeds, values = zip(*drawn, strict=True)
    assert len(set(seeds)) == len(set(values)) == 3
