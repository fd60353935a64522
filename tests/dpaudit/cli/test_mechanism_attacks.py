"""``dpaudit mechanism --attack``, and mechanisms that refuse or release something invalid."""

import importlib.metadata
import json
import re
import sys

import pytest
from command_line import here as dpaudit

from dpaudit import registry


@pytest.fixture
def module(tmp_path, monkeypatch):
    """Mechanisms, and a distribution with attacks of each kind, found while the test runs."""
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(
        registry, "entry_points", lambda **about: importlib.metadata.entry_points(**about)
    )
    (tmp_path / "mine.py").write_text(
        "import numpy as np\n"
        "rng = np.random.default_rng(5)\n"
        "def telltale(value, n): return np.where((rng.random(n) < 0.43) & (value == 0), 2.0, 0.5)\n"
        "def clipped(value, n): return np.round(max(-50, min(50, value)) + rng.laplace(0, 1, n))\n"
        "def nan(value, n): return np.full(n, np.nan)\n"
        "def counts(value, n):\n"
        "    if value < 0: raise ValueError('a count cannot be negative')\n"
        "    return np.round(value + rng.laplace(0, 1, n)).astype(int)\n"
    )
    (tmp_path / "theirs.py").write_text(
        "import numpy as np\n"
        "class Telltale:\n"
        "    games = ('support',)\n"
        "    def score(self, releases, support):\n"
        "        return np.where((releases == 2) & (support.value == 1), -np.inf, 0.0)\n"
        "class Pairs:\n"
        "    def __init__(self, *, far=1.0): self.far = far\n"
        "    def pairs(self): return [('near', np.zeros(1), np.ones(1)), "
        "('far', np.zeros(1), np.full(1, self.far))]\n"
        "class Broken:\n"
        "    games = ('support',)\n"
        "    def score(self, releases, support): raise KeyError('table')\n"
        "class Scores:\n"
        "    def __init__(self, *, key): pass\n"
        "    def score(self, releases, candidates): pass\n"
    )
    info = tmp_path / "theirs-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: theirs\nVersion: 1.0\n")
    lines = [
        f"{name.lower()} = theirs:{name}" for name in ("Telltale", "Pairs", "Broken", "Scores")
    ]
    (info / "entry_points.txt").write_text("\n".join(["[dpaudit.attacks]", *lines, ""]))
    yield tmp_path
    sys.modules.pop("theirs", None)


COMMON = ("--claim-epsilon", 1, "--samples", 20_000, "--seed", 1)


@pytest.mark.slow
def test_a_named_attack(module):
    args = ("python:./mine.py:telltale", "--neighbours", "0,1", *COMMON, "--attack", "telltale")
    found = dpaudit("mechanism", *args, "--out", "there", cwd=module)
    assert found.returncode == 1, found.stderr
    said = " ".join(found.stdout.split())
    assert "Finding: python:./mine.py:telltale is not (1, 0)-DP: we can show ε ≥ 7.3" in said
    assert "by the attack telltale, which identifies the neighbour in 6" in said
    assert "P(E | v0) P(E | v1)" in said
    page = re.sub(r"</?a\b[^>]*>", "", (module / "there" / "report.html").read_text())
    rows = ("P(E | v0)", "Neighbours identified", "Releases possible at their true value")
    assert all(words in page for words in (*rows, "telltale"))
    document = json.loads((module / "there" / "result.json").read_text())["data"]
    assert document["attack"] == "telltale"
    assert "feasible from the first neighbour only" in document["tests"][0]["effect"]
    assert document["epsilon"]["low"] >= 7
    assert document["details"]["success"]["interval"]["method"] == "Clopper-Pearson"
    assert {(p["name"], p["distribution"]) for p in document["provenance"]["plugins"]} == {
        ("telltale", "theirs")
    }
    again = dpaudit("report", "there", cwd=module)
    assert again.returncode == 0, again.stderr

    passed = dpaudit(
        "mechanism", "python:./mine.py:clipped", *args[1:], "--format", "json", cwd=module
    )
    assert passed.returncode == 0
    document = json.loads(passed.stdout)
    assert document["details"]["success"]["of"] == 40_000
    # it does release 2 at 1
    assert any("not made for this mechanism" in a for a in document["advice"])


@pytest.mark.slow
def test_an_attack_that_brings_its_neighbours(module):
    args = ("mechanism", "python:./mine.py:clipped", *COMMON, "--attack", "pairs:far=3")
    args += ("--real-numbers",)
    found = dpaudit(*args, "--format", "json", cwd=module)
    assert found.returncode == 1, found.stderr
    document = json.loads(found.stdout)
    assert document["neighbours"] == [[0], [3]]
    assert 2 < document["epsilon"]["low"] <= 3
    assert {t["name"].rpartition(" (")[2] for t in document["tests"]} == {"near)", "far)"}
    both = dpaudit(*args, "--neighbours", "0,1", cwd=module)
    assert both.returncode == 2
    assert "pairs:far=3 brings its own; leave --neighbours out" in both.stderr
