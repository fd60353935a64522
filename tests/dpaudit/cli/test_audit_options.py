"""`dpaudit audit` and `dpaudit frontier`: modes, chosen tests, files left behind, bad input."""

import dataclasses
import json
import shlex

import numpy as np
import pytest
from command_line import here as dpaudit

from dpaudit.audit.run import audit_subject
from dpaudit.noise.pancake import Pancake

MODULE = """
import numpy as np
rng = np.random.default_rng()
def good(n, d): return rng.standard_normal((n, d))
def wide(n, d): return 1.1 * rng.standard_normal((n, d))
seeded = np.random.default_rng(5)  # for what an unseeded sampler would fail one time in a hundred
def always_wide(n, d): return 1.1 * seeded.standard_normal((n, d))
def one(value, scale): return value + rng.normal(0, scale)
"""


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "mine.py").write_text(MODULE)
    return tmp_path


@pytest.mark.slow
def test_sequential_stops_early_and_says_how_to_see_it_again(folder):
    args = ("audit", "python:mine:always_wide", "--claim", "gaussian:sigma=1", "--seed", 1)
    result = dpaudit(*args, "--sequential", "--format", "json", cwd=folder)
    document = json.loads(result.stdout)
    assert result.returncode == 1
    assert document["sequential"]
    assert document["samples"] < 100_000
    first = document["tests"][0]
    assert first["finding"]
    assert first["name"].startswith("bet on")
    words = first["reproduce"].split()
    assert words[0] == "dpaudit"
    again = dpaudit(*words[1:], cwd=folder)
    assert again.returncode == 1


CLAIM = ("--claim", "gaussian:sigma=1")


@pytest.mark.slow
def test_a_registered_source_is_audited_against_its_own_claim(folder):
    words = "audit gaussian:sigma=3 --samples 1e4 --tests moments --seed 1 --format json"
    document = json.loads(dpaudit(*words.split(), cwd=folder).stdout)
    assert (document["claim"], document["verdict"]) == ("gaussian:sigma=3", "no-finding")


@pytest.mark.slow
def test_a_finding_is_reproduced_by_its_command(folder):
    args = ("audit", "python:mine:always_wide", *CLAIM, "--seed", 1, "--samples", "2e5")
    done = dpaudit(*args, "--tests", "moments,tails", "--format", "json", cwd=folder)
    tests = {t["name"]: t for t in json.loads(done.stdout)["tests"]}
    assert tests.keys() == {"moments", "tails"}
    assert tests["moments"]["interval"]["low"] < 1.1 < tests["moments"]["interval"]["high"]
    words = tests["moments"]["reproduce"].split()
    assert words[:2] == ["dpaudit", "audit"]
    assert int(words[words.index("--samples") + 1]) < 200_000
    assert dpaudit(*words[1:], cwd=folder).returncode == 1


@pytest.mark.slow
def test_the_terminal_and_the_page_show_the_command_and_bits_are_written(folder):
    args = ("audit", "python:mine:wide", *CLAIM, "--samples", "1e5", "--tests", "moments")
    result = dpaudit(*args, "--out", "o", "--bits", "bits.bin", cwd=folder)
    assert "To see it again:" in result.stdout
    page = (folder / "o" / "report.html").read_text()
    assert "To see it again:" in page
    assert "--tests moments" in page
    assert (folder / "bits.bin").stat().st_size > 150_000  # for another battery


@pytest.mark.slow
def test_a_recovered_direction_goes_to_a_file_of_its_own(folder, make_key, stream):
    pytest.importorskip("fpylll")
    key = make_key(dim=8, beta=1e-2)
    np.save(folder / "x.npy", Pancake(key=key).sample(6_000, 8, stream=stream))
    args = ("audit", "file:x.npy", *CLAIM, "--samples", "5e4", "--time-limit", 200)
    result = dpaudit(*args, "--tests", "keyless-search", "--out", "o", cwd=folder)
    assert result.returncode == 1, result.stdout
    test = json.loads((folder / "o" / "result.json").read_text())["data"]["tests"][0]
    # honest noise: 52 %
    assert test["details"]["proof"]["told_apart"] > 0.95 * test["details"]["proof"]["of"]
    assert "w" not in test["details"]
    recovered = folder / "o" / "keyless-search.json"
    assert recovered.stat().st_mode & 0o777 == 0o600
    direction = json.loads(recovered.read_text())["w"]
    assert len(direction) == 8
    for name in ("result.json", "report.html"):
        assert repr(direction[0]) not in (folder / "o" / name).read_text()


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("audit python:mine:good", ["claim=None", "states no claim"]),
        ("audit gaussian --mitigation rotation", ["behind a mitigation"]),
        (
            "audit snapping:epsilon=2,sensitivity=3",
            ["dpaudit mechanism snapping:epsilon=2,sensitivity=3 --neighbours 0,3"],
        ),
        (
            "audit python:mine:good --claim gaussian:sigma=1 --tests momets",
            ["did you mean 'moments'"],
        ),
        ("frontier --dim 0", ["dim=0"]),
        ("frontier --samples 1e3", ["samples=1000", "at least 100,000"]),
        ("frontier --seconds -1", ["seconds=-1"]),
    ],
)
def test_usage_errors_are_2(folder, words, says):
    result = dpaudit(*words.split(), cwd=folder)
    assert result.returncode == 2, result.stderr
    assert "Traceback" not in result.stderr
    assert all(word in result.stderr for word in says)


@pytest.mark.slow
def test_the_frontier_as_table_document_and_page(folder):
    document = json.loads(
        dpaudit("frontier", "--samples", "1e6", "--format", "json", cwd=folder).stdout
    )
    sizes = {row["flaw"]: row["size"] for row in document["rows"]}
    assert 0.2 < sizes["wrong scale"] < 1
    assert sizes["Gaussian pancake, γ = 2√d, d = 16"] > 0.05
    result = dpaudit("frontier", "--samples", "1e6", "--dim", 64, "--out", "f", cwd=folder)
    assert "variance along a direction" in result.stdout
    page = (folder / "f" / "report.html").read_text()
    assert "Smallest flaws found" in page
    assert "<svg" in page


@pytest.mark.parametrize("seconds", ["0", "-1", "nan", "inf", "1e300"])
@pytest.mark.parametrize(
    "command",
    ["audit numpy:normal --claim gaussian:sigma=1", "mechanism numpy:normal --claim-epsilon 1"],
)
def test_a_time_limit_that_no_clock_keeps(command, seconds):
    done = dpaudit(*command.split(), f"--time-limit={seconds}")
    assert done.returncode == 2
    assert "time-limit=" in done.stderr


@pytest.mark.slow
def test_a_slow_sampler_is_reported_with_its_speed(folder, monkeypatch):
    slow = (
        "2 of 9 values fit into the time limit of 3 s at the sampler's speed (about 1 per second)"
    )

    def shortened(*args, **options):
        return dataclasses.replace(audit_subject(*args, **options), shortened=slow)

    monkeypatch.setattr("dpaudit.audit.run.audit_subject", shortened)
    words = "audit python:mine:good --claim gaussian:sigma=1 --samples 2e3 --tests moments"
    result = dpaudit(*words.split(), "--alpha", "1e-9", cwd=folder)
    assert result.returncode == 0, result.stderr
    assert result.stderr.strip() == f"{slow}; --time-limit gives it more"


@pytest.mark.slow
def test_a_finding_of_a_call_says_how_to_see_it_again(folder):
    result = dpaudit(
        "audit", "python:mine:one", "--call", "f(value,scale=2.5)", "--claim", "gaussian:sigma=1",
        "--samples", "3e3", "--tests", "moments", "--format", "json", cwd=folder,
    )  # fmt: skip
    assert result.returncode == 1, result.stderr
    words = shlex.split(json.loads(result.stdout)["tests"][0]["reproduce"])
    assert words[words.index("--call") + 1] == "f(value,scale=2.5)"
    assert dpaudit(*words[1:], cwd=folder).returncode == 1
