"""The examples run as they stand and show what they say; most of them in this process."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from command_line import here, script

import dpaudit

pytest_plugins = ["pytester"]

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"


def run(name, *arguments):
    done = script(EXAMPLES / name, *arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def fewer(monkeypatch):
    """A function that makes the audits of an example smaller."""
    whole = dpaudit.audit_sampler
    return lambda samples: monkeypatch.setattr(
        dpaudit,
        "audit_sampler",
        lambda *args, **options: whole(*args, **{**options, "samples": samples}),
    )


@pytest.fixture
def no_classifiers(monkeypatch):
    """Fixed statistics are enough for these, and take no seconds."""
    monkeypatch.setattr("dpaudit.audit.mechanism.judge.learned_scores", lambda *_, **__: [])


@pytest.mark.slow
def test_audit_a_closed_sampler(fewer):
    fewer(200_000)
    out = run("01_audit_a_closed_sampler.py")
    assert all(name in out for name in ("finding: ", "tails", "repeats")) or "no C compiler" in out


@pytest.mark.slow
def test_plant_and_catch(fewer):
    # no 50 vectors: one process imports torch, not four; README has the whole run by make check
    fewer(12_500)
    out = run("02_plant_and_catch.py")
    assert "black-box audit: no-finding" in out
    key_holder, without = map(int, re.findall(r"right in (\d+)", out)[:2])
    assert key_holder >= 490
    assert 190 <= without <= 310  # 500 fair coins, 5 standard deviations either side


def test_floating_point():
    shares = [float(share) for share in re.findall(r"(\d+\.\d) %", run("03_floating_point.py"))]
    assert shares[0] >= 97
    assert 70 < shares[-1] < 80  # 76 % is what the numbers' size alone tells


@pytest.mark.slow  # README has it run by make check
def test_opacus_backdoor():
    pytest.importorskip("opacus")
    out = run("04_opacus_backdoor.py", "synthetic", "10")
    honest, pancake, rotated = (int(n) for n in re.findall(r"in (\d+) of 40 steps", out))
    assert pancake >= 36
    # 40 fair coins, 5 standard deviations either side
    assert all(4 <= n <= 36 for n in (honest, rotated))
    assert len(set(re.findall(r"ε (\d+\.\d+)", out))) == 1
    plain, planted, turned = (float(x) for x in re.findall(r"accuracy (\d+\.\d)%", out))
    assert abs(plain - planted) <= 1  # the same noise but for one direction
    assert abs(plain - turned) <= 8  # 4 standard deviations of the noise's effect


@pytest.mark.slow
def test_secure_aggregation():
    pytest.importorskip("mpyc")
    out = run("06_secure_aggregation.py")
    assert "exact: True" in out
    alone, together = (float(x) for x in re.findall(r"right in (\d+\.\d)% of 2000", out))
    assert alone > 99
    assert 44 < together < 56  # 2,000 fair coins, 5 standard deviations either side


@pytest.mark.slow  # its page has it run by make check
def test_pool_inference():
    out = run("08_pool_inference.py")
    last = re.findall(r"^day 180: +(.+?)  +([\d.]+)%", out, re.M)[0]
    assert last[0] == re.findall(r"^the truth: (.+)$", out, re.M)[0]
    lines = re.findall(r"^epsilon (\d), (\S+) +AUC-PN: (.+)$", out, re.M)
    areas = {
        (epsilon, adversary): [float(a) for a in re.findall(r"days (\d\.\d\d)", line)]
        for epsilon, adversary, line in lines
    }
    assert areas["4", "weak"][-1] < areas["4", "strong"][-1] < areas["4", "non-private"][-1]
    assert areas["4", "strong"][0] < areas["4", "strong"][-1]
    assert areas["1", "strong"][-1] < 0.26  # a guess has 0.17; one standard error is 0.013
    said = re.findall(r"with (\d+)% confidence on average, (\d+)% of them right", out)
    assert len(said) == 3
    assert all(abs(int(a) - int(b)) <= 10 for a, b in said)


@pytest.mark.slow
def test_transcripts(tmp_path, monkeypatch):
    pytest.importorskip("rbcl")

    def started(command, **options):
        assert command[:3] == [sys.executable, "-m", "dpaudit"]
        return here(*command[3:])

    monkeypatch.setattr(subprocess, "run", started)  # ten processes would import torch ten times
    out = run("09_transcripts.py", tmp_path)
    said = re.findall(r"^(\S+), exit (\d)", out, re.M)
    assert [code for name, code in said if name in ("honest", "counts")] == ["0", "0", "0"]
    assert "bit for bit; signed" in out
    assert [code for name, code in said if name == "forged"] == ["1"]
    # of 7, P(none) = 1e-7
    assert sum(code == "1" for name, code in said if name.startswith("swapped")) >= 1


@pytest.mark.slow
def test_apple_budget():
    out = run("07_apple_budget.py")
    assert "together: ε = 16 per day, 480 in 30 days" in out
    assert "SessionAmount for com.apple.keyboard.NewWords: 1 → 2" in out
    low, high = map(float, re.findall(r"Emoji\.ru_RU\.EmojiKeyboard: (\S+) … (\S+)", out)[0])
    assert 3 < low < 4 < high < 5


@pytest.mark.slow
def test_the_gate_that_init_writes_runs_as_it_is(pytester):
    """Honest noise passes, and the control catches; an honest run fails once in 5 million."""
    assert here("init", "pytest", cwd=pytester.path).returncode == 0
    run = pytester.runpytest_subprocess("tests", "--dpaudit-samples=2e4", "--dpaudit-alpha=1e-7")
    run.assert_outcomes(passed=3)


@pytest.mark.slow
def test_pytest_gate(pytester):
    """The planted flaw fails, the rest passes; an honest sampler fails one run in 5 million."""
    for file in (EXAMPLES / "pytest_gate").iterdir():
        if file.is_file():
            shutil.copy(file, pytester.path)
    run = pytester.runpytest_inprocess("--dpaudit-samples=2e4", "--dpaudit-alpha=1e-7")
    run.assert_outcomes(passed=3, failed=1)
    failed = run.stdout.str().partition("_ test_flawed _")[2]
    assert "AssertionError: Finding: " in failed
    assert "To see it again: dpaudit audit python:./noise.py:flawed --claim gaussian" in failed


@pytest.mark.slow
def test_seed_in_noise(fewer):
    fewer(20_000)
    out = run("10_seed_in_noise.py")
    assert "black-box audit: no-finding" in out
    assert "key holder: 3,143 of 3,143 counts read" in out
    assert "anybody else: 0 of 3,143 counts read" in out


@pytest.mark.slow
def test_fsdp2_secure_noise():
    """Two processes; the honest step is accused once in 10,000 runs."""
    pytest.importorskip("opacus")
    out = run("12_fsdp2_secure_noise.py")
    assert out.startswith("No finding: nothing contradicts noise of σ = 1 on the clipped sum")
    assert re.findall(r"^rank (\d): .* \(8, 1, 8, 8\) of the first layer$", out, re.M) == ["0", "1"]
    shares = [re.findall(r"\[(.*?)\]", line)[0] for line in out.splitlines()[-2:]]
    assert shares[0] != shares[1]  # batches of their own


MECHANISMS = EXAMPLES / "mechanisms"
OLD = {"age": 120, "city": "Oslo"}
PAIRS = {
    "empty": ([], [{"age": 0, "city": "Bonn"}]),
    "oldest": ([{"age": 1, "city": "Bonn"}] * 3, [{"age": 1, "city": "Bonn"}] * 3 + [OLD]),
}


def released(file, function, pair, *, samples=2000, **options):
    """The audit of a function of ``examples/mechanisms`` at two data sets, without classifiers."""
    return dpaudit.audit_mechanism(
        f"python:{MECHANISMS / file}:{function}",
        neighbours=PAIRS[pair],
        samples=samples,
        alpha=1e-4,
        seed=1,
        **{"epsilon": 1, **options},
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("query", "scale", "pair", "verdict"),
    [
        ("SELECT TOTAL(MIN(age, 100)) FROM people", 100, "oldest", "no-finding"),
        ("SELECT SUM(MIN(age, 100)) FROM people", 100, "empty", "finding"),  # of none, NULL
        ("SELECT city, COUNT(*) FROM people GROUP BY city", 1, "oldest", "finding"),
    ],
)
def test_sqlite_query(no_classifiers, query, scale, pair, verdict):
    call = f"f(dataset, n, query={query!r}, scale={scale})"
    result = released("sqlite_query.py", "released", pair, call=call)
    assert result.verdict == verdict
    if pair == "empty":
        assert "is None, in 1 of those at the first" in " ".join(result.advice)


def test_smartnoise_query(no_classifiers):
    """An average costs ε twice: what is shown of one that has ε = 1 per column may be above 1."""
    pytest.importorskip("snsql")
    call = 'f(dataset, n, query="SELECT AVG(age) AS age FROM t.people", epsilon=1.0)'
    result = released("smartnoise_query.py", "released", "oldest", call=call, epsilon=2)
    assert result.verdict == "no-finding"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("library", "file", "function", "verdict"),
    [
        ("pipeline_dp", "pipeline_dp_sum.py", "by_city", "no-finding"),
        # the order of the cities gives away which of them occur
        ("pipeline_dp", "pipeline_dp_sum.py", "as_returned", "text of release#keys"),
        ("opendp", "opendp_sum.py", "fixed_bounds", "no-finding"),
        ("opendp", "opendp_sum.py", "bounds_from_data", ""),
        ("pandas", "synthetic_data.py", "marginals", "no-finding"),
        ("pandas", "synthetic_data.py", "copies", "release.age#max"),
    ],
)
def test_a_mechanism_of_a_library(no_classifiers, library, file, function, verdict):
    """The ``verdict`` of a wrong one is a finding that says the words in its place."""
    pytest.importorskip(library)
    result = released(file, function, "oldest", samples=1500 if library == "pandas" else 1000)
    assert result.verdict == ("no-finding" if verdict == "no-finding" else "finding")
    if result.verdict == "finding":
        said = [*result.advice[-1:], *(test.effect for test in result.tests if test.finding)]
        assert any(verdict in words for words in said)
