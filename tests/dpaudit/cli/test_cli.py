"""The command line: exit codes, one clear line per error, only the result on stdout."""

import json
import subprocess
import sys

import numpy as np
import pytest
from command_line import apart
from command_line import here as dpaudit

from dpaudit.noise.seed_in_noise.key import SeedKey

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
    words = "audit gaussian --claim gaussian:sigma=1 --samples 5e4 --seed 1 --format json"
    result = apart(*words.split(), *ALONE)
    assert (result.returncode, result.stderr) == (0, "")
    document = json.loads(result.stdout)
    assert document["verdict"] == "no-finding"
    assert {"alpha", "tests", "samples", "seconds", "schema", "kind"} <= document.keys()
    assert {"name", "p", "p_adjusted", "statistic", "looks_at"} <= document["tests"][0].keys()
    assert any("pancake" in spot["flaw"] for spot in document["cannot_rule_out"])
    assert document["provenance"]["seed"] == "1"


def test_wrong_samplers_are_1():
    """2e4 values tell a scale that is off by 5 % by 10 standard errors."""
    for words in ("python:numpy.random:standard_cauchy --claim gaussian:sigma=1",
                  "numpy:normal --claim gaussian:sigma=1.05"):  # fmt: skip
        few = ("--samples", "2e4", "--seed", 1)
        assert dpaudit("audit", *words.split(), *few).returncode == 1


OURS = "--claim gaussian:sigma=1"


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (f"gausian {OURS}", ["did you mean 'gaussian'"]),
        ("gaussian --claim gausian:sigma=1", ["did you mean 'gaussian'"]),
        ("gaussian --claim gaussian:sigma=0", ["sigma=0", "> 0"]),
        ("gaussian --claim gaussian:sigma=nan", ["sigma=nan"]),
        ("gaussian --claim gaussian", ["gaussian:sigma=1"]),
        (f"gaussian:sgma=1 {OURS}", ["did you mean 'sigma'"]),
        (f"gaussian {OURS} --alpha 2", ["alpha=2"]),
        (f"gaussian {OURS} --samples 12.5", ["samples=12.5"]),
        (f"gaussian {OURS} --time-limit 0", ["time-limit=0"]),
        (f"gaussian {OURS} --mitigation rotatoin", ["did you mean 'rotation'"]),
        (f"file:nowhere.npy {OURS}", ["nowhere.npy"]),
        (f"python:no_such_module:f {OURS}", ["no_such_module"]),
    ],
)
def test_usage_errors_are_2(words, says):
    one_clear_line(dpaudit("audit", *words.split()), 2, *says)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("function", "says"),
    [("raises", "no entropy left"), ("shape", "shape"), ("nan", "nan"), ("little", "shape"),
     ("hangs", "time limit")],
)  # fmt: skip
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
    stored = json.loads((module / "o" / "result.json").read_text())
    assert stored["data"]["reason"] == document["reason"]


@pytest.mark.slow
def test_keys(tmp_path):
    def key(*words):
        return dpaudit("key", *words, cwd=tmp_path)

    new = ("new", "--dim", 256, "--beta", 1e-3)
    made = key(*new, "--out", "k.json")
    assert made.returncode == 0
    assert (tmp_path / "k.json").stat().st_mode & 0o777 == 0o600
    secret = json.loads((tmp_path / "k.json").read_text())["secret"]
    shown = key("show", "k.json")
    assert shown.returncode == 0
    assert "gamma" in shown.stdout
    for text in (made.stdout, made.stderr, shown.stdout, shown.stderr):
        assert secret not in text
    one_clear_line(key("show", "nowhere.json"), 2, "nowhere.json", "dpaudit key new")
    one_clear_line(key(*new, "--out", "k.json"), 2, "overwritten")
    one_clear_line(key(*new, "--gamma", 3, "--out", "l"), 2, "--allow-small-gamma")
    (tmp_path / "k.json").chmod(0o644)
    one_clear_line(key("show", "k.json"), 2, "chmod 600")


def test_a_seed_key_is_made_and_shown(tmp_path):
    made = dpaudit("key", "new", "--kind", "seed-in-noise", "--out", "s.json", cwd=tmp_path)
    assert made.returncode == 0
    assert "LAB SPECIMEN" in made.stderr
    file = tmp_path / "s.json"
    assert file.stat().st_mode & 0o777 == 0o600
    key = SeedKey.load(file)
    text = dpaudit("key", "show", "s.json", cwd=tmp_path).stdout
    assert all(part in text for part in (key.fingerprint, key.public_key, "at most 2^-39"))
    shown = json.loads(dpaudit("key", "show", "s.json", "--format", "json", cwd=tmp_path).stdout)
    assert (shown["kind"], shown["public_key"]) == ("seed-in-noise", key.public_key)
    assert key.secret.hex() not in made.stdout + made.stderr + text + json.dumps(shown)


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
    named = ("attack", "likelihood-ratio:key=k.json,sigma=20")
    attack = (*named, "--releases", "y.npy", "--candidates")

    def run(*words):
        return dpaudit(*words, cwd=tmp_path)

    plain = run(*attack, "q.npy", "--format", "json")
    assert plain.returncode == 0
    assert json.loads(plain.stdout)["best"] == truth.tolist()
    right_first = np.stack([np.roll(candidates, -right, axis=0) for right in truth])
    np.save(tmp_path / "own.npy", right_first)
    assert json.loads(run(*attack, "own.npy", "--format", "json").stdout)["best"] == [0] * 60
    np.save(tmp_path / "few.npy", right_first[:7])
    one_clear_line(run(*attack, "few.npy"), 2, "60 releases")
    known = run(*attack, "q.npy", "--truth", "t.npy")
    assert known.returncode == 1
    assert "60 of 60" in known.stdout
    candidates = ("--candidates", "q.npy")
    one_clear_line(run(*named, "--releases", "no.npy", *candidates), 2, "releases=no.npy")
    one_clear_line(run("attack", "likelihood-ratio:sigma=1", *attack[2:], "q.npy"), 2, "key")
    np.save(tmp_path / "o.npy", np.array([{}], dtype=object), allow_pickle=True)
    one_clear_line(run(*named, "--releases", "o.npy", *candidates), 2, "o.npy")


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
        f"for words in ('--help', 'list formats', {audit!r}):\n"
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
def test_a_report_can_be_made_again(tmp_path):
    words = f"audit numpy:normal {OURS} --samples 2e4 --tests moments".split()
    result = dpaudit(*words, "--out", tmp_path / "o")
    assert result.returncode in (0, 1)
    page = tmp_path / "o" / "report.html"
    assert str(page) in result.stderr
    first = page.read_text()
    page.unlink()
    assert dpaudit("report", tmp_path / "o").returncode == 0
    assert page.read_text() == first
    one_clear_line(dpaudit("report", tmp_path), 2, "holds no results")
    assert dpaudit("report", "x" * 300).returncode == 2
