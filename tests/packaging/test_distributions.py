"""sdist and wheel, each installed without extras on every Python that dpaudit supports."""

import json
import os
import subprocess
import sys
import tomllib

import pytest
from support.distributions import CONSTRAINTS, PIP, ROOT, built, environment, run

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]
with (ROOT / "pyproject.toml").open("rb") as file:
    PROJECT = tomllib.load(file)["project"]
VERSION = PROJECT["version"]
PYTHONS = ("3.11", "3.12", "3.13", "3.14")


@pytest.fixture(scope="module")
def distributions(tmp_path_factory):
    """The sdist by its name ``sdist``, the wheel made from it by its name ``wheel``."""
    wheel, sdist = built(tmp_path_factory.mktemp("dist"))
    assert (wheel.suffix, sdist.suffixes[-2:]) == (".whl", [".tar", ".gz"])
    return {"wheel": wheel, "sdist": sdist}


def interpreter(version):
    """A Python of that version which starts, or the reason why the test is skipped."""
    if version == f"{sys.version_info[0]}.{sys.version_info[1]}":
        return sys.executable
    name = f"python{version}"
    prints = [name, "-c", "import sys, venv; print(sys.executable)"]
    try:
        choice = {**os.environ, "PYENV_VERSION": version}
        done = subprocess.run(prints, capture_output=True, text=True, env=choice)
    except FileNotFoundError:
        pytest.skip(f"{name} is not on PATH")
    if done.returncode:
        pytest.skip(f"{name} does not start: {done.stderr.strip()}")
    return done.stdout.strip()


def test_the_page_of_an_index_shows_the_readme(distributions, tmp_path):
    bin_ = environment(tmp_path / "twine", "twine>=6")
    run(bin_ / "python", "-m", "twine", "check", "--strict", *distributions.values())


def test_classifiers_name_the_pythons_that_are_tested():
    start = "Programming Language :: Python :: "
    named = [text.removeprefix(start) for text in PROJECT["classifiers"] if start in text]
    assert tuple(named) == PYTHONS
    assert PROJECT["requires-python"] == f">={PYTHONS[0]}"


@pytest.mark.parametrize("version", PYTHONS)
def test_no_compiler_is_needed(version, distributions, tmp_path):
    """Everything that it needs is published as wheels for that Python."""
    there = ("--python-version", version, "--target", tmp_path, "--only-binary", ":all:")
    out = run(
        *(*PIP, "install", "--dry-run", "--quiet", "--report", "-", *there),
        *("--constraint", CONSTRAINTS, distributions["wheel"]),
    )
    names = {entry["metadata"]["name"].lower() for entry in json.loads(out)["install"]}
    assert {"dpaudit", "numpy", "scipy"} <= names
    assert "torch" not in names


@pytest.mark.parametrize("version", PYTHONS)
@pytest.mark.parametrize("kind", ["wheel", "sdist"])
def test_it_audits(kind, version, distributions, tmp_path):
    """The wheel with the versions that we pin, the sdist with the newest, as pip finds them."""
    pinned = ("--constraint", CONSTRAINTS) if kind == "wheel" else ()
    bin_ = environment(tmp_path / "env", *pinned, distributions[kind], python=interpreter(version))

    def dpaudit(*words, code=0):
        command = [bin_ / "dpaudit", *words]
        done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
        assert done.returncode == code, done.stderr
        assert "Traceback" not in done.stderr
        assert "Warning" not in done.stderr
        return done.stdout

    normal = ("numpy:normal", "--claim", "gaussian:sigma=1", "--samples", "1e6")
    assert dpaudit("--version").strip() == f"dpaudit {VERSION}"
    assert "Exit codes" in dpaudit("--help")
    assert "goodness-of-fit" in dpaudit("list", "tests")
    assert "whitened" in dpaudit("list", "samplers")
    out = dpaudit("audit", *normal, "--alpha", "1e-6", "--format", "json", "--out", "audit")
    assert json.loads(out)["verdict"] == "no-finding"
    dpaudit("demo", "--out", "demo", "--jobs", "1")
    assert all((tmp_path / out / "report.html").is_file() for out in ("audit", "demo"))
    claim = ("--neighbours", "0,1", "--claim-epsilon", "1")
    assert "Finding" in dpaudit("mechanism", "numpy:laplace", *claim, code=1)
