"""`make setup` on a newcomer's machine: the wrong Python, an old environment, no network.

Python is a script that reports a version and notes what it is asked to do.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")
ROOT = Path(__file__).resolve().parents[2]
PYTHON = f"""#!{sys.executable}
import os, shutil, sys
from pathlib import Path
sys.version_info = (3, {{minor}}, 0)
if sys.argv[1] == "-c":
    exec(sys.argv[2])
elif sys.argv[1:4] == ["-m", "venv", "--clear"]:
    own = Path(sys.argv[4], "bin", "python")
    shutil.rmtree(sys.argv[4], ignore_errors=True)
    own.parent.mkdir(parents=True)
    shutil.copy(__file__, own)
    own.with_name("dpaudit").symlink_to("python")
elif sys.argv[1:4] == ["-m", "pip", "install"]:
    if os.environ["PIP_SAYS"]:
        sys.exit(os.environ["PIP_SAYS"])
    with Path(__file__).parents[1].joinpath("asked").open("a") as asked:
        print(sys.argv[-1], file=asked)
"""


@pytest.fixture
def make(tmp_path):
    """``make(target, minor, pip=…)`` in a checkout with a Python 3.`minor` whose pip fails so."""
    for name in ("Makefile", "pyproject.toml", "constraints.txt"):
        shutil.copy(ROOT / name, tmp_path)

    def run(target, minor, pip=""):
        python = tmp_path / f"python3.{minor}"
        python.write_text(PYTHON.format(minor=minor), encoding="utf-8")
        python.chmod(0o755)
        # as typed by a user, even where a make has started these tests
        outer = {"MAKEFLAGS", "MAKELEVEL", "MFLAGS", "MAKEOVERRIDES"}
        own = {name: value for name, value in os.environ.items() if name not in outer}
        return subprocess.run(
            ["make", target, f"PYTHON={python}"],
            cwd=tmp_path,
            env={**own, "PIP_SAYS": pip},
            capture_output=True,
            text=True,
        )

    return run


def first_words(done):
    assert done.returncode == 0, done.stderr
    return [line.split()[0] for line in done.stdout.splitlines()]


def test_an_old_python_is_refused_before_anything_is_made(make, tmp_path):
    done = make("demo", 10)
    assert done.returncode != 0
    assert done.stdout == ""
    assert done.stderr.startswith("python=3.10: dpaudit needs Python 3.11 or newer; make PYTHON=")
    assert not (tmp_path / ".venv").exists()


def test_an_environment_of_another_version_or_whose_python_is_gone_is_made_again(make, tmp_path):
    assert make("setup", 11, pip="ERROR: disk full").returncode != 0
    assert first_words(make("setup", 12)) == ["Making", "Installing", "Installing"]
    python = tmp_path / ".venv/bin/python"
    assert "3, 12, 0" in python.read_text(encoding="utf-8")
    python.unlink()
    python.symlink_to("/nowhere/python3.12")
    assert first_words(make("setup", 12)) == ["Making", "Installing", "Installing"]


def test_the_demo_says_one_line_per_stage_and_needs_no_extras(make, tmp_path):
    done, asked = make("demo", 12), tmp_path / ".venv" / "asked"
    assert first_words(done) == ["Making", "Installing", "Running"]
    assert done.stderr == ""
    assert first_words(make("demo", 12)) == ["Running"]
    assert asked.read_text(encoding="utf-8").splitlines() == ["."]
    assert first_words(make("setup", 12)) == ["Installing"]
    assert first_words(make("demo", 12)) == ["Running"]
    assert asked.read_text(encoding="utf-8").splitlines() == [".", ".[all,dev]"]


def test_without_a_network_it_says_so_and_the_next_try_resumes(make):
    done = make("demo", 12, pip="WARNING: … after connection broken by …\nERROR: Impossible")
    assert done.returncode != 0
    reason, network, log, _ = done.stderr.splitlines()
    assert reason == "ERROR: Impossible"
    assert "does not respond" in network
    assert ".venv/install.log" in log
    assert "does not respond" not in make("demo", 12, pip="ERROR: disk full").stderr
    assert first_words(make("demo", 12)) == ["Installing", "Running"]
