"""The tables of libraries and of other languages: rows as the audit found, absence noted."""

from __future__ import annotations

import shlex
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

from dpaudit.audit import AuditOptions
from dpaudit.errors import (
    MissingExtraError,
    SamplerCrashError,
    SamplerTimeoutError,
    UnknownNameError,
)
from dpaudit.experiments import load_spec
from dpaudit.experiments.measure import Cell
from dpaudit.protocols import Request
from dpaudit.randomness import KeyedStream
from dpaudit_studies import real_samplers
from dpaudit_studies.libraries import measures
from dpaudit_studies.libraries.cases import CASES, case
from dpaudit_studies.real_samplers import CASES as PROGRAMS
from dpaudit_studies.real_samplers import measure as module
from dpaudit_studies.real_samplers.measure import ProgramSampler, measure, summary
from dpaudit_studies.real_samplers.programs import LANGUAGES


def line(name, **grid):
    grid = {"case": name, "samples": 2_000, "alpha": 0.01, **grid}
    cell = Cell("libraries", {"grid": grid, "seed": "tests", "trials": 1})
    return measures.libraries(cell, None)


def test_the_experiments_name_all_cases():
    named = {
        spec: {cell.settings["grid"]["case"] for cell in load_spec(spec).cells()}
        for spec in ("libraries", "floating-point", "controls")
    }
    ours = {name for name, one in CASES.items() if one.promise == "specimen"}
    assert named["libraries"] == set(CASES) - ours
    assert named["floating-point"] == ours
    assert named["controls"] <= set(CASES)
    assert len(CASES) == 87
    with pytest.raises(UnknownNameError, match="did you mean"):
        case("numpy:norml reach")


@pytest.mark.slow
def test_noise_added_in_floating_point_is_broken_and_says_how_to_see_it_again():
    row = line("numpy:laplace reach")
    assert row["verdict"] == "broken"
    assert 0.38 < row["p0"] < 0.48
    assert row["p1"] == 0
    assert row["epsilon"] > 4
    assert 0.55 < row["success"]["low"] < row["success"]["value"] < 0.66
    assert "mechanism numpy:laplace --neighbours '0,1'" in row["reproduce"]


@pytest.mark.slow
def test_our_own_sound_noise_is_not_and_the_command_of_a_line_works():
    row = line("secure-gaussian:sigma=1 reach")
    assert (row["verdict"], row["p0"], row["p1"], row["failed"]) == ("not broken", 0, 0, None)
    command = case("numpy:laplace reach").command.replace("--samples 20000", "--samples 2000")
    done = subprocess.run([sys.executable, "-m", *shlex.split(command)], capture_output=True)
    assert (done.returncode, b"reach" in done.stdout) == (1, True), done.stderr


def test_a_library_that_is_absent_is_a_line_that_says_so(monkeypatch):
    def absent(text, **options):
        raise MissingExtraError(f"{text}: needs opendp, which is not installed; pip install opendp")

    monkeypatch.setattr(measures, "open_mechanism", absent)
    row = line("opendp:laplace:scale=1 reach")
    assert row["verdict"] == "not installed"
    assert "pip install opendp" in row["failed"]
    assert "Not installed: opendp" in measures.libraries_summary([row])
    grid = {"case": "opendp:laplace:scale=1 reach", "samples": 1_000, "alpha": 0.05}
    told = measures.controls(Cell("controls", {"grid": grid, "seed": "t", "trials": 1}), None)
    assert "pip install opendp" in told["failed"]
    assert measures.controls_summary([told]) == "No control could be run."


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "exceeded"), [("discrete-laplace:scale=10 reach", 0), ("numpy:laplace reach", 3)]
)
def test_controls_count_what_exceeds_the_claim(name, exceeded):
    grid = {"case": name, "samples": 1_000, "alpha": 0.05}
    row = measures.controls(Cell("controls", {"grid": grid, "seed": "t", "trials": 3}), None)
    assert (row["repeats"], row["exceeded"]) == (3, exceeded)
    assert row["within"]["value"] == 1 - exceeded / 3


def test_the_summary_counts_mechanisms_not_lines():
    names = ("library", "mechanism", "promise", "verdict", "failed")
    told = (
        ("a 1", "m:x=1", "DP", "broken", None),
        ("a 1", "m:x=2", "DP", "not broken", None),
        ("b 2", "n", "DP", "leaks by its time", None),
    )
    rows = [dict(zip(names, row, strict=True)) for row in told]
    text = measures.libraries_summary(rows)
    assert "Of 2 mechanisms that promise differential privacy 1 broke: a 1 m." in text


STREAM = KeyedStream.from_seed("programs")
COUNTING = """
import sys, struct
at = 0
for line in sys.stdin:
    n = int(line)
    sys.stdout.buffer.write(struct.pack(f'<{n}d', *range(at, at + n)))
    sys.stdout.buffer.flush()
    at += n
"""


def _program(source: str) -> ProgramSampler:
    return ProgramSampler((sys.executable, "-c", source), name="counting", stream=STREAM)


def test_calls_are_cut_from_one_series() -> None:
    with _program(COUNTING).open(timeout=60) as sampler:
        first = sampler.ask(Request(2, 3), timeout=20).values
        reply = sampler.ask(Request(1, 5, calls=4), timeout=20)
        values, seconds = reply.values, reply.seconds
    np.testing.assert_array_equal(first, np.arange(6.0).reshape(2, 3))
    np.testing.assert_array_equal(values, np.arange(6.0, 26.0).reshape(4, 5))
    assert seconds.shape == (4,)


def test_a_program_that_ends_or_is_silent_is_an_error() -> None:
    with (
        _program("pass").open(timeout=60) as ended,
        pytest.raises(SamplerCrashError, match="has ended"),
    ):
        ended.ask(Request(1, 1), timeout=20)
    silent = _program("import time; time.sleep(30)")
    with silent.open(timeout=60), pytest.raises(SamplerTimeoutError, match="in time"):
        silent.ask(Request(1, 1), timeout=0.2)


def test_seeds_repeat_and_differ_between_processes() -> None:
    command = (*LANGUAGES["Python"].command(), PROGRAMS["Python: gauss"].method)
    start, same = (ProgramSampler(command, name="gauss", stream=STREAM) for _ in range(2))
    drawn = []
    for each in (start, same, start.again()):
        with each.open(timeout=60) as sampler:
            drawn.append(sampler.ask(Request(1, 4), timeout=20).values)
    np.testing.assert_array_equal(drawn[0], drawn[1])
    assert not np.any(drawn[0] == drawn[2])


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
    absent = replace(LANGUAGES["Octave"], run=("no-such-language", "{source}"))
    monkeypatch.setattr(real_samplers, "LANGUAGES", {**LANGUAGES, "Octave": absent})
    row = measure(_cell("Octave: randn"), None)
    assert (row["verdict"], row["failed"].split("; ")) == (
        "not installed", ["no-such-language: not installed", "apt install octave"]
    )  # fmt: skip
    assert summary([row]).endswith("Not installed: Octave: randn.")
    monkeypatch.setattr(real_samplers, "version", lambda command: "")
    row = measure(_cell("Python: duckdb"), None)
    assert (row["verdict"], row["failed"].split("; ")[1]) == ("not installed", "pip install duckdb")


def test_what_cannot_be_built_says_why() -> None:
    broken = replace(LANGUAGES["C"], build=(sys.executable, "-c", "raise SystemExit('no header')"))
    with pytest.raises(MissingExtraError, match="cannot be built \\(no header\\)"):
        broken.command()


def test_the_specs_name_every_sampler_and_the_right_ones_sixteen_times() -> None:
    named = [cell.settings["grid"]["sampler"] for cell in load_spec("real-samplers").cells()]
    assert named == list(PROGRAMS)
    right = load_spec("real-samplers-right").cells()
    assert {cell.settings["grid"]["sampler"] for cell in right} < set(PROGRAMS)
    assert len(right) == 16 * 19


@pytest.mark.slow
def test_each_batch_has_values_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = []

    def audited(sampler: ProgramSampler, *, options: AuditOptions, **_: object) -> None:
        drawn.append((options.seed, sampler.ask(Request(4, 1), timeout=30).values.tobytes()))
        raise SamplerCrashError("enough")

    monkeypatch.setattr(module, "run_audit", audited)
    for batch in (0, 1, 2):
        measure(_cell("Python: numpy.PCG64", batch=batch), None)
    seeds, values = zip(*drawn, strict=True)
    assert len(set(seeds)) == len(set(values)) == 3
