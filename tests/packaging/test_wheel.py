"""The wheel, installed into a clean environment without torch."""

import subprocess
import sys
import zipfile
from functools import partial

import pytest
from support.distributions import CONSTRAINTS, PIP, ROOT, built, environment, run

pytestmark = [pytest.mark.packaging, pytest.mark.timeout(600), pytest.mark.xdist_group("wheel")]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    (made,) = built(tmp_path_factory.mktemp("dist"), "--wheel")
    return made


@pytest.fixture(scope="module")
def clean(wheel, tmp_path_factory):
    return environment(tmp_path_factory.mktemp("env"), "--constraint", CONSTRAINTS, wheel)


@pytest.fixture(scope="module")
def installed(clean):
    """The names and versions of what came with it."""
    return run(*PIP, "--python", clean / "python", "list").split()


EXTENSIONS = ("dpaudit_deployments", "dpaudit_local", "dpaudit_prove")
OURS = {"dpaudit", "dpaudit_attacks", "dpaudit_mitigations", "dpaudit_studies", *EXTENSIONS}


def test_top_level_names_are_our_packages(wheel):
    inside = zipfile.ZipFile(wheel).namelist()
    names = {name.split("/")[0] for name in inside}
    assert {n for n in names if not n.endswith(".dist-info")} == OURS
    for needed in (
        "dpaudit/py.typed",
        "dpaudit/queries/data/us_county_population_2000.csv",
        "dpaudit/experiments/specs/demo.toml",
        "dpaudit/ci_templates/github/action.yml",
        "dpaudit_attacks/congruential/known.csv",
        "dpaudit_studies/published/hist-da.csv",
        "dpaudit/render/templates/report.html.j2",
        "dpaudit_local/pool_inference/data/emoji_v11.txt",
        "dpaudit_local/pool_inference/data/LICENSE.unicode",
    ):
        assert needed in inside


def test_it_audits_without_torch(clean, installed, tmp_path):
    assert "scipy" in installed
    assert "torch" not in installed
    assert "Exit codes" in run(clean / "dpaudit", "--help", cwd=tmp_path)
    # numpy's own seed is fresh, and numpy.random draws from the Mersenne Twister
    audit = ("python:numpy.random:standard_normal", "--alpha", "1e-6", "--allow-predictable")
    claimed = ("--claim", "gaussian:sigma=1", "--samples", "1e5")
    ours = ("gaussian", "--seed", "1")
    for words in (audit, ours, (*ours, "--mitigation", "rotation")):
        out = run(clean / "dpaudit", "audit", *words, *claimed, cwd=tmp_path)
        # a permitted prediction makes the verdict longer than a line
        assert any(line.startswith("No finding") for line in out.splitlines()[-4:])


def test_the_core_runs_without_extensions_and_studies(clean, tmp_path):
    """Taken off the disk: the commands of the core work, and the rest is said to be missing."""
    (site,) = (clean.parent / "lib").glob("python*/site-packages")
    (tmp_path / "users.py").write_text(
        "def train(*, records, member, seed):\n"
        "    return [seed * 0.0 + len(records)]\n\n\n"
        "def noise(n, d):\n"
        "    import numpy\n"
        "    return numpy.random.default_rng().normal(size=(n, d))\n"
    )
    aside = (*EXTENSIONS, "dpaudit_studies")
    for name in aside:
        (site / name).rename(tmp_path / name)
    try:
        command = partial(run, clean / "dpaudit", cwd=tmp_path)
        assert "prove" not in command("--help").partition("Commands")[2]
        for words in (
            "audit python:./users.py:noise --claim gaussian:sigma=1 --samples 1e5 --alpha 1e-6",
            "mechanism numpy:laplace --neighbours 0,1 --claim-epsilon 1 --real-numbers",
            "demo --out demo --jobs 1",
            "report demo",
            "run demo --trials 20 --out run",
            "key new --dim 64 --beta 1e-2 --gamma 2sqrtd --out key.json",
            "key show key.json",
            "explain tails",
            "list tests",
            "list experiments",
            "training --help",
        ):
            command(*words.split())
        done = subprocess.run([clean / "dpaudit", "prove", "x"], capture_output=True, text=True)
        assert done.returncode == 2
        assert "dpaudit_prove is not there" in done.stderr
    finally:
        for name in aside:
            (tmp_path / name).rename(site / name)


def test_what_needs_torch_says_so(clean, tmp_path):
    turned = ("--claim", "gaussian:sigma=1", "--mitigation", "structured-rotation")
    for args in (("train", "lenet5-tanh"), ("audit", "gaussian", *turned)):
        command = [clean / "dpaudit", *args]
        done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
        assert done.returncode == 2
        assert "pip install 'dpaudit[torch]'" in done.stderr
        assert "Traceback" not in done.stderr


def test_a_strangers_plugin_is_found_and_runs(tmp_path):
    """examples/own_attack, installed next to this environment's dpaudit."""
    import os

    site = tmp_path / "site"
    own = ROOT / "examples" / "own_attack"
    pip = (sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-build-isolation")
    run(*pip, "--target", site, own)
    env = {**os.environ, "PYTHONPATH": str(site)}
    dpaudit = [sys.executable, "-m", "dpaudit"]
    assert "own-attack 1.0" in run(*dpaudit, "list", "attacks", env=env)
    out = run(*dpaudit, "run", own / "experiment.toml", "--out", tmp_path / "out", env=env)
    assert "nearest-candidate" in out
    run(
        sys.executable, "-m", "pytest", "-q", "-c", os.devnull, own / "tests", env=env, cwd=tmp_path
    )


def test_it_reads_apples_files(clean, tmp_path):
    data = ROOT / "tests" / "data" / "apple"
    words = ("deployment", "apple", "--config", data / "10.12.3", "--out", "out")
    out = run(clean / "dpaudit", *words, cwd=tmp_path)
    assert "the configuration permits ε = 16 per day" in out
    assert (tmp_path / "out" / "report.html").is_file()
