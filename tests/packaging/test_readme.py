"""Every ``console`` block of the README is run as written, and the demo's table in it is the one the demo prints."""

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.packaging, pytest.mark.timeout(600)]
ROOT = Path(__file__).resolve().parents[2]
BLOCKS = re.findall(r"^```console\n(.*?)^```", (ROOT / "README.md").read_text(encoding="utf-8"), re.M | re.S)


def commands():
    for block in BLOCKS:
        for line in block.splitlines():
            if line.startswith("$ "):
                command, _, comment = line[2:].partition("  # ")
                code = re.search(r"exits? (\d)", comment)
                yield command.strip(), int(code.group(1)) if code else 0


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A place to be, with what the README's reader has: the examples, and the files rebuilt from a paper."""
    path = tmp_path_factory.mktemp("reader")
    shutil.copytree(ROOT / "examples", path / "examples")
    shutil.copytree(ROOT / "tests" / "data" / "apple", path / "tests" / "data" / "apple")
    return path


def test_there_is_something_to_run():
    assert len(list(commands())) >= 5


@pytest.mark.parametrize(("command", "code"), list(commands()))
def test_command(command, code, folder):
    words = shlex.split(command)
    words = [sys.executable, "-m", *words] if words[0] == "dpaudit" else words
    words = [sys.executable, *words[1:]] if words[0] == "python" else words
    if not shutil.which("cc") and (words[0] == "cc" or "libnoise.so" in command):
        pytest.skip("no C compiler")
    named = os.environ | {"PYTHON": sys.executable}  # for shell scripts, as `python` is for the reader
    done = subprocess.run(words, cwd=folder, env=named, capture_output=True, text=True)
    assert done.returncode == code, done.stdout + done.stderr
    if command.startswith("dpaudit demo"):
        shown = (ROOT / "README.md").read_text(encoding="utf-8")
        for line in done.stdout.splitlines():
            assert line.rstrip() in shown
