"""The command line: exit codes, one clear line per error, only the result on stdout."""

import json
import subprocess
import sys

import numpy as np
import pytest
from command_line import apart
from command_line import here as dpaudit

ALONE = ("--dim", 1024)  # too few vectors for other processes, each of which would import torch


def one_clear_line(result, code, *says):
    assert result.returncode == code, result.stderr
    assert "Traceback" not in result.stderr
    lines = result.stderr.strip().splitlines()
    assert len(lines) == 1
    assert lines[0].startswith("dpaudit: ")
    for word in says:
        assert word in lines[0]


@pytest.fixture
def module(tmp_path):
    (tmp_path / "mine.py").write_text(
        "import time, numpy as np\n"
        "def good(n, d): return np.random.standard_normal((n, d))\n"
        "def raises(n, d): raise RuntimeError('no entropy left')\n"
        "def shape(n, d): return np.zeros((d, n, 2))\n"
        "def nan(n, d): return np.full((n, d), np.nan)\n"
        "def little(n, d): return np.random.standard_normal((n - 1, d)) if n > 1 "
        "else np.zeros((0, d))\n"
        "def hangs(n, d): time.sleep(1000)\n"
    )
    return tmp_path


@pytest.mark.slow
def test_honest_is_0_and_says_what_it_cannot_exclude():
    args = (
        "gaussian",
        "--claim",
        "gaussian:sigma=1",
        "--samples",
        "5e4",
        "--seed",
        1,
        "--format",
        "json",
        *ALONE,
    )
    result = apart("audit", *args)
    assert result.returncode == 0
    assert result.stderr == ""
    document = json.loads(result.stdout)
    assert document["verdict"] == "no-finding"
    for key in ("alpha", "tests", "samples", "seconds", "provenance", "cannot_rule_out"):
        assert key in document
    assert {"name", "p", "p_adjusted", "statistic", "looks_at"} <= set(document["tests"][0])
    assert any("pancake" in spot["flaw"] for spot in document["cannot_rule_out"])
    assert document["provenance"]["seed"] == "1"


def test_wrong_samplers_are_1():
    """2e4 values tell a scale that is off by 5 % by 10 standard errors."""
    few = ("--samples", "2e4", "--seed", 1)
    assert (
        dpaudit(
            "audit", "python:numpy.random:standard_cauchy", "--claim", "gaussian:sigma=1", *few
        ).returncode
        == 1
    )
    assert dpaudit("audit", "numpy:normal", "--claim", "gaussian:sigma=1.05", *few).returncode == 1


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (("gausian", "--claim", "gaussian:sigma=1"), ["did you mean 'gaussian'"]),
        (("gaussian", "--claim", "gausian:sigma=1"), ["did you mean 'gaussian'"]),
        (("gaussian", "--claim", "gaussian:sigma=0"), ["sigma=0", "> 0"]),
        (("gaussian", "--claim", "gaussian:sigma=nan"), ["sigma=nan"]),
        (("gaussian", "--claim", "gaussian"), ["gaussian:sigma=1"]),
        (("gaussian:sgma=1", "--claim", "gaussian:sigma=1"), ["did you mean 'sigma'"]),
        (("gaussian", "--claim", "gaussian:sigma=1", "--alpha", "2"), ["alpha=2"]),
        (("gaussian", "--claim", "gaussian:sigma=1", "--samples", "12.5"), ["samples=12.5"]),
        (("gaussian", "--claim", "gaussian:sigma=1", "--time-limit", "0"), ["time-limit=0"]),
        (
            ("gaussian", "--claim", "gaussian:sigma=1", "--mitigation", "rotatoin"),
            ["did you mean 'rotation'"],
        ),
        (("file:nowhere.npy", "--claim", "gaussian:sigma=1"), ["nowhere.npy"]),
        (("python:no_such_module:f", "--claim", "gaussian:sigma=1"), ["no_such_module"]),
    ],
)
def test_usage_errors_are_2(args, says):
    one_clear_line(dpaudit("audit", *args), 2, *says)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("function", "says"),
    [
        ("raises", "no entropy left"),
        ("shape", "shape"),
        ("nan", "nan"),
        ("little", "shape"),
        ("hangs", "time limit"),
    ],
)
def test_samplers_that_let_us_down_are_3(module, function, says):
    args = ["audit", f"python:mine:{function}", "--claim", "gaussian:sigma=1", "--samples", "1e5"]
    args += ["--time-limit", 1] if function == "hangs" else []
    if function == "raises":
        one_clear_line(apart(*args, cwd=module), 3, says)
        one_clear_line(dpaudit(*args, cwd=module), 3, says)
    done = dpaudit(*args, "--format", "json", "--out", "o", cwd=module)
    document = json.loads(done.stdout)
    assert (done.returncode, document["verdict"]) == (3, "inconclusive")
    assert says in document["reason"]
    assert (
        json.loads((module / "o" / "result.json").read_text())["result"]["reason"]
        == document["reason"]
    )


@pytest.mark.slow
def test_keys(tmp_path):
    made = dpaudit("key", "new", "--dim", 256, "--beta", 1e-3, "--out", "k.json", cwd=tmp_path)
    assert made.returncode == 0
    assert (tmp_path / "k.json").stat().st_mode & 0o777 == 0o600
    secret = json.loads((tmp_path / "k.json").read_text())["secret"]
    shown = dpaudit("key", "show", "k.json", cwd=tmp_path)
    assert shown.returncode == 0
    assert "gamma" in shown.stdout
    one_clear_line(
        dpaudit("key", "show", "nowhere.json", cwd=tmp_path), 2, "nowhere.json", "dpaudit key new"
    )
    for text in (made.stdout, made.stderr, shown.stdout, shown.stderr):
        assert secret not in text
    one_clear_line(
        dpaudit("key", "new", "--dim", 256, "--beta", 1e-3, "--out", "k.json", cwd=tmp_path),
        2,
        "overwritten",
    )
    one_clear_line(
        dpaudit(
            "key", "new", "--dim", 256, "--beta", 1e-3, "--gamma", 3, "--out", "l", cwd=tmp_path
        ),
        2,
        "--allow-small-gamma",
    )
    (tmp_path / "k.json").chmod(0o644)
    one_clear_line(dpaudit("key", "show", "k.json", cwd=tmp_path), 2, "chmod 600")


@pytest.mark.slow
def test_attack_on_recorded_releases(tmp_path):
    import torch

    from dpaudit.noise.key import PancakeKey
    from dpaudit.noise.pancake import Pancake
    from dpaudit.randomness import KeyedStream

    key = PancakeKey.new(dim=64, beta=1e-4, secret=bytes(32))
    key.save(tmp_path / "k.json")
    candidates = np.zeros((3, 64))
    candidates[1, 5], candidates[2, 9] = 1, 1
    truth = np.arange(60) % 3
    noise = Pancake(key=key, sigma=20.0).sample(
        60, 64, stream=KeyedStream.from_seed(1), dtype=torch.float64
    )
    releases = (torch.from_numpy(candidates[truth]) + noise).numpy()
    for name, array in (("q", candidates), ("y", releases), ("t", truth)):
        np.save(tmp_path / f"{name}.npy", array)
    args = (
        "attack",
        "likelihood-ratio:key=k.json,sigma=20",
        "--releases",
        "y.npy",
        "--candidates",
        "q.npy",
    )
    plain = dpaudit(*args, "--format", "json", cwd=tmp_path)
    assert plain.returncode == 0
    assert json.loads(plain.stdout)["best"] == truth.tolist()
    right_first = np.stack([np.roll(candidates, -right, axis=0) for right in truth])
    np.save(tmp_path / "own.npy", right_first)
    of_each = dpaudit(*args[:5], "own.npy", "--format", "json", cwd=tmp_path)
    assert json.loads(of_each.stdout)["best"] == [0] * 60
    np.save(tmp_path / "few.npy", right_first[:7])
    one_clear_line(dpaudit(*args[:5], "few.npy", cwd=tmp_path), 2, "60 releases")
    known = dpaudit(*args, "--truth", "t.npy", cwd=tmp_path)
    assert known.returncode == 1
    assert "60 of 60" in known.stdout
    one_clear_line(
        dpaudit(*args[:2], "--releases", "no.npy", "--candidates", "q.npy", cwd=tmp_path),
        2,
        "releases=no.npy",
    )
    one_clear_line(dpaudit("attack", "likelihood-ratio:sigma=1", *args[2:], cwd=tmp_path), 2, "key")
    np.save(tmp_path / "o.npy", np.array([{}], dtype=object), allow_pickle=True)
    one_clear_line(
        dpaudit(*args[:2], "--releases", "o.npy", "--candidates", "q.npy", cwd=tmp_path), 2, "o.npy"
    )


@pytest.mark.slow
def test_starting_does_not_import_torch(tmp_path):
    (tmp_path / "mine.py").write_text(
        "import numpy as np\ndef f(n, d): return np.random.standard_normal((n, d))\n"
    )
    audit = (
        "audit python:mine:f --claim gaussian:sigma=1 --samples 1000 --tests moments --alpha 1e-6"
    )
    code = (
        "import sys\nfrom dpaudit.cli import main\n"
        f"for words in ('--help', 'list attacks', {audit!r}):\n"
        "    sys.argv[1:] = words.split()\n"
        "    try:\n        main()\n"
        "    except SystemExit as end:\n        assert end.code == 0, (words, end.code)\n"
        "    heavy = {'torch', 'matplotlib', 'scipy.stats', 'pandas'} & set(sys.modules)\n"
        "    assert not heavy, heavy\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_audit_report(tmp_path):
    result = dpaudit(
        *(
            "audit",
            "numpy:normal",
            "--claim",
            "gaussian:sigma=1",
            "--samples",
            "2e4",
            "--tests",
            "moments",
        ),
        *("--out", tmp_path / "o"),
    )
    assert result.returncode in (0, 1)
    assert str(tmp_path / "o" / "report.html") in result.stderr
    first = (tmp_path / "o" / "report.html").read_text()
    (tmp_path / "o" / "report.html").unlink()
    assert dpaudit("report", tmp_path / "o").returncode == 0
    assert (tmp_path / "o" / "report.html").read_text() == first
    one_clear_line(dpaudit("report", tmp_path), 2, "holds no results")
