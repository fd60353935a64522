"""The pytest plug-in as its users meet it: whole pytest runs over small projects."""

import json
import re
import sys

import numpy as np
import pytest
from command_line import here

import dpaudit
from dpaudit.pytest_plugin.auditor import failure

pytest_plugins = ["pytester"]

SAMPLERS = """
import numpy as np

rng = np.random.default_rng()

def honest(n, d):
    return rng.standard_normal((n, d))

def coarse(n, d):  # the planted flaw: multiples of 1/16
    return np.round(rng.standard_normal((n, d)) * 16) / 16

def breaks(n, d):
    raise ValueError("no entropy left")

def count(value, n):  # exactly 1-DP, in whole numbers
    p = 1 - np.exp(-1.0)
    return value + rng.geometric(p, n) - rng.geometric(p, n)

class Maker:
    def noise(self, n, d):
        return honest(n, d)
"""
# 20 honest audits per run: α is 2e-7 by the union bound
FEW = ("--dpaudit-samples", "2e4", "--dpaudit-alpha", "1e-8")
TOP = """
import mine, numpy as np
NORMAL = dict(claim="gaussian:sigma=1")
QUICK = dict(**NORMAL, tests=("moments", "granularity"))  # the whole battery is not the point
"""


@pytest.fixture(scope="module")
def imported():
    """All that audits and the command line import: pytester forgets what a run imported."""
    from dpaudit.pytest_plugin import Auditor

    few = ("--samples", "2e3", "--tests", "moments")
    here("audit", "numpy:normal", "--claim", "gaussian:sigma=1", *few)
    made = []
    auditor = Auditor(node="tests", samples=2_000, alpha=1e-8, out=None, record=made.append)
    auditor.assert_no_finding("numpy:normal", claim="gaussian:sigma=1")
    auditor.assert_private(
        "numpy:laplace", neighbours=(0, 1), epsilon=9, samples=2_000, real_numbers=True
    )
    assert [(audit["verdict"], audit["alpha"]) for audit in made] == [("no-finding", 1e-8)] * 2


@pytest.fixture
def project(pytester, imported):
    """A project of one module, and tests in one file; a run of it in this process."""
    pytester.makepyfile(mine=SAMPLERS)

    def run(tests, *options):
        pytester.makepyfile(test_noise=TOP + tests)
        return pytester.runpytest_inprocess("-p", "no:randomly", *options)

    return run


def test_honest_passes_and_the_planted_flaw_fails_with_a_message(project):
    run = project(
        "def test_honest(dpaudit): dpaudit.assert_no_finding(mine.honest, **QUICK)\n"
        "def test_flawed(dpaudit): dpaudit.assert_no_finding(mine.coarse, **QUICK)\n"
        "BY = dict(QUICK, by='granularity')\n"
        "def test_control(dpaudit): dpaudit.assert_finding(mine.coarse, **BY)\n"
        "def test_no_flaw(dpaudit): dpaudit.assert_finding(mine.honest, **BY)\n",
        *FEW,
    )
    run.assert_outcomes(passed=2, failed=2)
    run.stdout.fnmatch_lines(
        [
            "E*AssertionError: Finding: * contradict* gaussian:sigma=1 (*",
            "E*audited: python:./mine.py:coarse (sandbox: *)",
            "E*granularity: all values are multiples of *",
            "E*To see it again: dpaudit audit python:./mine.py:coarse --claim gaussian:sigma=1 * "
            "--alpha 1e-08 * --seed *",
            "E*Report: none was kept; --dpaudit-out DIR keeps one",
            "E*AssertionError: A known-bad control was not caught by granularity. No finding: *",
            "dpaudit: 4 audits, 2 with a finding, 2 known-bad controls; *at most 2e-08 "
            "*union bound*cannot exclude a keyed backdoor.",
        ]
    )
    shown = run.stdout.str()
    assert "dpaudit/audit/" not in shown  # none of our own frames
    assert "pytest_plugin/a" not in shown


@pytest.mark.slow
def test_all_values_are_drawn_where_asked_for(imported):
    """Otherwise what is certain ends an audit of more than a million values."""
    from dpaudit.pytest_plugin import Auditor

    rng = np.random.default_rng(3)
    auditor = Auditor(node="all", samples=2_000_000, alpha=1e-4, out=None, record=lambda _: None)

    def drawn(**options):
        wrong = auditor.assert_finding(
            lambda n, d: 1.2 * rng.standard_normal((n, d)),
            claim="gaussian:sigma=1",
            tests=("moments", "drift"),
            **options,
        )
        return wrong.samples

    assert 1_000_000 < drawn() < 1_900_000
    assert drawn(all_values=True) > 1_980_000
    assert drawn(by="moments") > 1_980_000
    assert drawn(by="moments", all_values=False) < 1_900_000


@pytest.mark.slow
def test_callables_that_no_other_process_can_import(project):
    run = project(
        "rng = np.random.default_rng()\n"
        "def check(dpaudit, f, **options):\n"
        "    found = dpaudit.assert_no_finding(f, **QUICK, **options)\n"
        "    blind = any('own process' in s.says for s in found.cannot_rule_out)\n"
        "    assert ('this process' in found.sampler) == blind\n"
        "    return found.sampler\n"
        "def test_size(dpaudit): check(dpaudit, rng.standard_normal)\n"
        "def test_method(dpaudit): assert 'noise (in' in check(dpaudit, mine.Maker().noise)\n"
        "def test_kept_here(dpaudit):\n"
        "    assert 'honest (in' in check(dpaudit, mine.honest, in_process=True)\n"
        "def test_in_its_own(dpaudit):\n"
        "    assert check(dpaudit, mine.honest) == 'python:./mine.py:honest'\n"
        "def test_patched(dpaudit, monkeypatch):\n"
        "    monkeypatch.setattr(mine, 'honest', lambda n, d: mine.coarse(n, d))\n"
        "    dpaudit.assert_finding(mine.honest, **QUICK)\n"
        "def test_refused(dpaudit):\n"
        "    dpaudit.assert_no_finding(mine.Maker().noise, **NORMAL, in_process=False)\n"
        "def test_flawed(dpaudit): check(dpaudit, lambda n, d: mine.coarse(n, d))\n",
        *FEW,
    )
    run.assert_outcomes(passed=5, failed=2)
    again = "E*To see it again: pytest test_noise.py::test_flawed"
    run.stdout.fnmatch_lines(["E*UsageError: in_process=False: Maker.noise *", again])


@pytest.mark.slow
def test_inconclusive_is_a_failure_that_says_so(project):
    run = project(
        "def test_breaks(dpaudit): dpaudit.assert_no_finding(mine.breaks, **NORMAL)\n"
        "def test_here(dpaudit):\n"
        "    dpaudit.assert_no_finding(lambda n, d: mine.breaks(n, d), **NORMAL)\n"
        "def test_control(dpaudit):\n"
        "    dpaudit.assert_finding(lambda n, d: np.full((n, d), np.nan), **NORMAL)\n"
        "def test_shape(dpaudit):\n"
        "    dpaudit.assert_private(lambda v, n: np.zeros(n + 1), neighbours=(0, 1), epsilon=1)\n"
        "def slow(n, d):\n"
        "    import time\n"
        "    time.sleep(0.02)\n"
        "    return mine.honest(n, d)\n"
        "def test_slow(dpaudit):\n"
        "    dpaudit.assert_no_finding(slow, **NORMAL, in_process=True, time_limit=0.01)\n",
        *FEW,
    )
    run.assert_outcomes(failed=5)
    broke = "raised ValueError: no entropy left"
    said = [
        f"{broke}*either way.",
        f"{broke} (*.py, line 12;*",
        "not finite*",
        "shape (*either way.",
    ]
    run.stdout.fnmatch_lines(
        [
            *(f"E*AssertionError: Inconclusive: *{words}" for words in (*said, "time limit*")),
            "dpaudit: 5 audits, 0 with a finding, 5 inconclusive*",
        ]
    )


@pytest.mark.slow
def test_mechanisms(project):
    run = project(
        "def test_private(dpaudit):\n"
        "    found = dpaudit.assert_private(mine.count, neighbours=(0, 1), epsilon=1)\n"
        "    assert 0.8 < found.epsilon.low < 1\n"
        "def test_half(dpaudit):\n"
        "    dpaudit.assert_private(mine.count, neighbours='0,1', epsilon=0.5)\n"
        "def test_another_claim(dpaudit):\n"
        "    dpaudit.assert_private(mine.count, neighbours=(0, 1), rho=0.1)\n"
        "def test_words(dpaudit):\n"
        "    dpaudit.assert_private(mine.count, neighbours=(0, 'one'), epsilon=1)\n",
        *FEW,
    )
    run.assert_outcomes(passed=1, failed=3)
    again = "E*To see it again: dpaudit mechanism python:./mine.py:count"
    run.stdout.fnmatch_lines(
        [
            "E*Finding: python:./mine.py:count is not (0.5, 0)-DP: we can show*",
            f"{again} --claim-epsilon 0.5*--neighbours*",
            "E*Finding: python:./mine.py:count is not 0.1-zCDP: we can show ρ ≥ 0.*",
            f"{again} --claim-delta 1e-05 --claim-rho 0.1*--neighbours*",
            "E*UsageError: neighbours=(0, 'one')*",
        ]
    )


@pytest.mark.slow
def test_a_seed_from_the_test_and_the_same_in_every_run(project):
    audit = "dpaudit.assert_no_finding(lambda n, d: mine.honest(n, d), **NORMAL, tests='moments')"
    tests = (
        f"def test_twice(dpaudit): print('seen', [{audit}.provenance.seed for _ in range(2)])\n"
        f"def test_other(dpaudit): print('seen', [{audit}.provenance.seed])\n"
    )
    seen = []
    for _ in range(2):
        run = project(tests, *FEW, "-s")
        run.assert_outcomes(passed=2)
        seen.append(re.findall("'([0-9a-f]{16})'", run.stdout.str()))
    assert seen[0] == seen[1]
    assert len(set(seen[0])) == 3


@pytest.mark.slow
def test_options_and_what_comes_first(project, pytester):
    pytester.makeini("[pytest]\ndpaudit_samples = 30k\ndpaudit_alpha = 1e-7\ndpaudit_out = kept\n")
    tests = (
        "def check(dpaudit, **options):\n"
        "    options |= dict(NORMAL, in_process=True, tests='tails')\n"
        "    return dpaudit.assert_no_finding(mine.honest, **options).samples_requested\n"
        "def test_set(dpaudit): assert check(dpaudit) == %d\n"
        "def test_own(dpaudit): assert check(dpaudit, samples=1e4, alpha=1e-9) == 10_000\n"
        "def test_plain(): pass\n"
    )
    run = project(tests % 30_000)
    run.assert_outcomes(passed=3)
    run.stdout.fnmatch_lines(["dpaudit: 2 audits*at most 1.01e-07 *"])
    pages = [json.loads(page.read_text()) for page in pytester.path.glob("kept/*/result.json")]
    assert sorted(page["data"]["samples_requested"] for page in pages) == [10_000, 30_000]
    assert all(
        "No finding" in page.read_text() for page in pytester.path.glob("kept/*/report.html")
    )

    files = ("--dpaudit-out", "elsewhere", "--junit-xml", "junit.xml")
    run = project(tests % 20_000, *FEW[:2], *files, "-n", "1")
    run.assert_outcomes(passed=3)  # xdist: the controller hears of its worker's audits
    run.stdout.fnmatch_lines(["dpaudit: 2 audits*at most 1.01e-07 *"])
    assert len(list(pytester.path.glob("elsewhere/*/report.html"))) == 2
    assert "no-finding" in (pytester.path / "junit.xml").read_text()

    project(tests % 0, "-m", "not dpaudit").assert_outcomes(passed=1, deselected=2)
    project(tests % 0, "-p", "no:dpaudit", "-k", "plain").assert_outcomes(passed=1, deselected=2)


@pytest.mark.parametrize(
    ("option", "value"),
    [("samples", "many"), ("samples", "0.9k"), ("samples", "12.5"), ("alpha", "0")],
)
def test_options_that_do_not_fit_stop_the_run(project, option, value):
    run = project("def test_plain(): pass\n", f"--dpaudit-{option}", value)
    assert run.ret == pytest.ExitCode.USAGE_ERROR
    run.stderr.fnmatch_lines([f"ERROR: *dpaudit?{option}={value}:*"])


def test_usage_errors_show_one_line_and_no_internals(project):
    run = project(
        "def test_name(dpaudit): dpaudit.assert_no_finding('gausian', **NORMAL)\n"
        "def test_option(dpaudit): dpaudit.assert_no_finding('gaussian', **NORMAL, sampels=4)\n"
        "def test_claim(dpaudit): dpaudit.assert_no_finding(lambda n, d: None)\n"
    )
    run.assert_outcomes(failed=3)
    shown = ["UnknownNameError: sampler=gausian", "UsageError: sampels", "UsageError: claim=None"]
    run.stdout.fnmatch_lines([f"E*{says}: *" for says in shown])
    assert "dpaudit/audit" not in run.stdout.str()


@pytest.mark.slow
def test_modules_on_the_tests_own_path_and_in_packages(pytester, imported):
    """A package below src/, which only pytest's ini names, and a module that it imports."""
    pytester.makeini("[pytest]\npythonpath = src\n")
    package = pytester.mkpydir("src").parent / "src" / "lib"
    (package.parent / "__init__.py").unlink()
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "parts.py").write_text(SAMPLERS)
    (package / "noise.py").write_text(
        "from .parts import honest, coarse\n\ndef bad(n, d): return coarse(n, d)\n"
    )
    pytester.makepyfile(
        "from lib.noise import bad\n"
        "def test_noise(dpaudit):\n"
        "    dpaudit.assert_no_finding(bad, claim='gaussian:sigma=1', tests='granularity')\n"
    )
    run = pytester.runpytest_inprocess(*FEW)
    run.assert_outcomes(failed=1)
    run.stdout.fnmatch_lines(
        ["E*To see it again: PYTHONPATH=src dpaudit audit python:lib.noise:bad *"]
    )
    for name in [name for name in sys.modules if name.split(".")[0] == "lib"]:
        del sys.modules[name]


@pytest.mark.slow
def test_a_failure_names_the_pair_that_was_found_and_the_event(monkeypatch):
    monkeypatch.setattr("dpaudit.audit.mechanism.judge.learned_scores", lambda *_, **__: [])
    asked = {"dataset": ["a", "b"], "neighbours": "search", "epsilon": 1}
    result = dpaudit.audit_datasets(
        lambda data: dict.fromkeys(data, 1), samples=1000, seed=1, **asked
    )
    told = failure(result, again="pytest t.py::t", page=None)
    assert told.startswith("Finding: ")
    assert all(f" data set: {data}\n" in told for data in result.details["datasets"])
    assert f"  found among {result.details['search']['tried']} pairs (add-remove)\n" in told
    assert "event" in told.partition(" pairs ")[2]
