"""``dpaudit mechanism`` as a person meets it."""

import json
import shlex

import numpy as np
import pytest
from command_line import here as dpaudit


@pytest.fixture
def module(tmp_path):
    (tmp_path / "mine.py").write_text(
        "import time, numpy as np\n"
        "rng = np.random.default_rng(5)\n"
        "def grid(x): return np.round(x * 2**20) / 2**20\n"
        "def honest(value, n): return grid(value + rng.laplace(0, 1, n))\n"
        "def half(value, n): return grid(value + rng.laplace(0, 0.5, n))\n"
        "def vectors(value, n): return grid(value + rng.laplace(0, 1, (n, len(value))))\n"
        "def raises(value, n): raise RuntimeError('no entropy left')\n"
        "def hangs(value, n): time.sleep(1000)\n"
    )
    return tmp_path


def test_honest_is_0_and_half_the_noise_is_1(module):
    common = ("--neighbours", "0,1", "--claim-epsilon", 1, "--samples", 20_000, "--seed", 1)
    result = dpaudit(
        "mechanism", "python:./mine.py:honest", *common, "--format", "json", cwd=module
    )
    assert result.returncode == 0, result.stderr
    document = json.loads(result.stdout)
    assert document["verdict"] == "no-finding"
    for key in (
        "alpha",
        "tests",
        "samples",
        "seconds",
        "provenance",
        "cannot_rule_out",
        "epsilon",
        "mu",
        "curve",
    ):
        assert key in document
    assert {"name", "p", "p_adjusted", "statistic", "looks_at"} <= set(document["tests"][0])
    assert 0.7 < document["epsilon"]["low"] <= 1

    found = dpaudit("mechanism", "python:./mine.py:half", *common, "--out", "there", cwd=module)
    assert found.returncode == 1
    *above, verdict = found.stdout.splitlines()
    assert verdict.startswith("Finding: python:./mine.py:half is not (1, 0)-DP")
    shown = next(line for line in above if line.startswith("dpaudit mechanism"))
    assert "--seed 1" in shown
    assert "dpaudit explain event" in above
    assert "<svg" in (module / "there" / "report.html").read_text()
    again = dpaudit("report", "there", cwd=module)
    assert again.returncode == 0, again.stderr
    tests = json.loads((module / "there" / "result.json").read_text())["result"]["tests"]
    assert all(bool(t["reproduce"]) == t["finding"] for t in tests)
    assert {t["reproduce"] for t in tests if t["finding"]} == {shown}
    assert dpaudit(*shlex.split(shown)[1:], cwd=module).returncode == 1


@pytest.mark.slow
def test_vectors(module):
    args = ("--neighbours", "0,0,0;1,0,0", "--claim-epsilon", 1, "--samples", 20_000, "--seed", 1)
    assert dpaudit("mechanism", "python:./mine.py:vectors", *args, cwd=module).returncode == 0
    args = ("--neighbours", "0,0,0;1,1,1", "--claim-epsilon", 1, "--samples", 20_000, "--seed", 1)
    assert dpaudit("mechanism", "python:./mine.py:vectors", *args, cwd=module).returncode == 1


@pytest.mark.slow
def test_crash_and_hang_are_3(module):
    common = ("--neighbours", "0,1", "--claim-epsilon", 1)
    for name, more, says in (
        ("raises", (), "no entropy left"),
        ("hangs", ("--time-limit", 1), "time limit"),
    ):
        result = dpaudit(
            "mechanism", f"python:./mine.py:{name}", *common, *more, "--format", "json", cwd=module
        )
        assert result.returncode == 3
        document = json.loads(result.stdout)
        assert document["verdict"] == "inconclusive"
        assert says in document["reason"]
    result = dpaudit("mechanism", "python:./mine.py:raises", *common, cwd=module)
    assert result.returncode == 3
    assert "Traceback" not in result.stderr
    assert "no entropy left" in result.stderr


@pytest.mark.slow
def test_one_run(tmp_path):
    rng = np.random.default_rng(5)
    member = rng.random(1000) < 0.5
    for name, right, code in (("honest", 0.7, 0), ("leaky", 0.95, 1)):
        told = np.where(rng.random(1000) < right, member, ~member)
        rows = [f"{s},{int(m)}" for s, m in zip(told + 0.0, member, strict=True)]
        (tmp_path / f"{name}.csv").write_text("\n".join(["score,member", *rows]) + "\n")
        args = ("--claim-epsilon", 1, "--claim-delta", 1e-5, "--seed", 1, "--out", name)
        result = dpaudit("mechanism", f"scores:{name}.csv", *args, "-v", cwd=tmp_path)
        assert result.returncode == code, result.stderr
        assert "one run" in result.stdout
        assert (tmp_path / name / "report.html").exists()


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (
            ("python:./mine.py:honest", "--claim-epsilon", 1),
            ["neighbours=None", "--neighbours 0,1"],
        ),
        (
            ("python:./mine.py:honest", "--claim-epsilon", 1, "--neighbours", "0,0"),
            ["neighbours=0,0", "equal"],
        ),
        (
            ("python:./mine.py:honest", "--claim-epsilon", -1, "--neighbours", "0,1"),
            ["claim-epsilon=-1"],
        ),
        (
            (
                "python:./mine.py:honest",
                "--claim-epsilon",
                1,
                "--claim-delta",
                2,
                "--neighbours",
                "0,1",
            ),
            ["claim-delta=2"],
        ),
        (
            (
                "python:./mine.py:honest",
                "--claim-epsilon",
                1,
                "--neighbours",
                "0,1",
                "--samples",
                1.5,
            ),
            ["samples=1.5"],
        ),
        (
            (
                "python:./mine.py:honest",
                "--claim-epsilon",
                1,
                "--neighbours",
                "0,1",
                "--guesses",
                5,
            ),
            ["guesses=5"],
        ),
        (("scores:none.csv", "--claim-epsilon", 1), ["scores=none.csv", "check the path"]),
        (
            ("scores:none.csv", "--claim-epsilon", 1, "--neighbours", "0,1"),
            ["leave --neighbours out"],
        ),
    ],
)
def test_slips_are_2_and_one_line(module, args, says):
    result = dpaudit("mechanism", *args, cwd=module)
    assert result.returncode == 2
    assert result.stdout == ""
    lines = result.stderr.strip().splitlines()
    assert len(lines) == 1
    for word in says:
        assert word in lines[0]
