"""``import dpaudit``: its names, imported on use."""

import importlib
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

import dpaudit
from dpaudit.errors import UsageError
from dpaudit.report import describe
from dpaudit.targets.callables import ONE_PROCESS, SAME_PROCESS


@pytest.fixture(scope="module")
def noise():
    return dpaudit.audit_sampler(
        "numpy:laplace", claim="gaussian:sigma=1", samples=20_000, seed=1, tests=["moments"]
    )


def test_audits_and_a_page(tmp_path, noise):
    asked = {"neighbours": (0, 1), "epsilon": 0.1, "samples": 2e3, "seed": 1}
    for result in (noise, dpaudit.audit_mechanism("numpy:laplace", **asked)):
        assert result.verdict == "finding"
        page = dpaudit.write_report(result, tmp_path / "report.html")
        assert "numpy:laplace" in page.read_text()
    with pytest.raises(UsageError, match="result=str"):
        dpaudit.write_report("report", tmp_path / "report.html")
    with pytest.raises(UsageError, match="cannot be written"):
        dpaudit.write_report(noise, tmp_path / "report.html" / "report.html")


def test_a_recovered_secret_stays_out_of_documents(noise):
    (moments,) = noise.tests
    secret = replace(noise, tests=(replace(moments, details={"w": [0.5], "n": 1}),))
    assert [t["details"] for t in describe(secret).data["tests"]] == [{"n": 1}]


@pytest.mark.parametrize("name", ["dpaudit", "dpaudit.pytest_plugin"])
def test_names_are_there_and_what_takes_time_is_imported_late(name):
    assert all(hasattr(dpaudit, name) for name in dpaudit.__all__)
    slow = {"numpy", "scipy", "torch", "jinja2", "rich", "typer"}
    slow |= {"dpaudit.audit", "dpaudit.pytest_plugin.auditor"}
    code = f"import {name}, sys; print(sorted({slow} & set(sys.modules)))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"


def test_callables_of_this_process_and_of_modules():
    """A lambda is called here and a pass says so; a module's function gets its own process."""
    rng = np.random.default_rng(1)
    asked = {"claim": "gaussian:sigma=1", "samples": 2e4, "seed": 1, "tests": ["moments"]}
    asked["alpha"] = 1e-6
    here = dpaudit.audit_sampler(lambda n, d: rng.normal(size=(n, d)), **asked)
    assert here.verdict == "no-finding"
    assert ONE_PROCESS in here.cannot_rule_out
    wide = dpaudit.audit_sampler(lambda n, d: 1.1 * rng.normal(size=(n, d)), **asked)
    assert [t.reproduce for t in wide.tests if t.finding] == [
        "dpaudit.audit_sampler(…, claim='gaussian:sigma=1', seed='1')"
    ]
    there = dpaudit.audit_sampler(np.random.standard_normal, **asked, in_process=None)
    assert "in this process" in there.sampler  # a method of numpy's generator, bound
    with pytest.raises(UsageError, match="in_process=False"):
        dpaudit.audit_sampler(lambda n, d: rng.normal(size=(n, d)), **asked, in_process=False)
    with pytest.raises(UsageError, match=r"samples=2000\.5"):
        dpaudit.audit_sampler("numpy:normal", samples=2000.5)
    with pytest.raises(UsageError, match="claim=None"):
        dpaudit.audit_sampler(lambda n, d: rng.normal(size=(n, d)))


def test_a_mechanism_as_a_callable():
    rng = np.random.default_rng(1)
    asked = {"neighbours": (0, 1), "epsilon": 1, "samples": 4e3, "seed": 1, "alpha": 1e-6}

    def geometric(value, n, scale=1.0):
        p = 1 - np.exp(-1 / scale)
        return value + rng.geometric(p, n) - rng.geometric(p, n)

    passed = dpaudit.audit_mechanism(geometric, **asked)
    assert passed.verdict == "no-finding"
    assert SAME_PROCESS in passed.cannot_rule_out
    half = dpaudit.audit_mechanism(lambda value, n: geometric(value, n, 0.3), **asked)
    assert half.verdict == "finding"
    again = "dpaudit.audit_mechanism(…, epsilon=1, neighbours='0.0;1.0', "
    again += "samples=4000, alpha=1e-06, seed='1')"
    assert {t.reproduce for t in half.tests if t.finding} == {again}
    assert not any(t.reproduce for t in half.tests if not t.finding)
    assert SAME_PROCESS not in half.cannot_rule_out
    with pytest.raises(UsageError, match="guesses=5"):
        dpaudit.audit_mechanism(geometric, **asked, guesses=5)
    with pytest.raises(UsageError, match="neighbours="):
        dpaudit.audit_mechanism(geometric, **{**asked, "neighbours": (0, "x")})


PACKAGE = """
import numpy as np
rng = np.random.default_rng(1)
def wide(n, d): return 2 * rng.normal(size=(n, d))
def half(value, n): return np.round(value + rng.laplace(0, 0.3, n))
"""


@pytest.mark.slow
def test_the_command_for_a_function_of_a_package_finds_it(tmp_path, monkeypatch):
    """Its folder is on this process's path only, so the command has to name it."""
    package = tmp_path / "s r c" / "pack_of_noise"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "noise.py").write_text(PACKAGE)
    monkeypatch.syspath_prepend(package.parent)
    monkeypatch.chdir(tmp_path)
    module = importlib.import_module("pack_of_noise.noise")
    asked = {"samples": 4e3, "seed": 1}
    noise = dpaudit.audit_sampler(module.wide, claim="gaussian:sigma=1", tests=["moments"], **asked)
    whole = dpaudit.audit_mechanism(module.half, neighbours=(0, 1), epsilon=1, **asked)
    for result, kind, name in ((noise, "audit", "wide"), (whole, "mechanism", "half")):
        commands = {t.reproduce for t in result.tests if t.finding}
        wanted = f"PYTHONPATH='s r c' dpaudit {kind} python:pack_of_noise.noise:{name} "
        assert len(commands) == 1
        assert commands.pop().startswith(wanted)
    for name in [name for name in sys.modules if name.startswith("pack_of_noise")]:
        del sys.modules[name]
