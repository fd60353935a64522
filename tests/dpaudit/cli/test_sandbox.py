"""``--sandbox``, ``--visible`` and ``--pass-env`` as a person meets them."""

from __future__ import annotations

import ctypes
import errno
import json
import struct
import subprocess
import sys

import pytest
from command_line import here as dpaudit

from dpaudit.targets.sandbox import confinement, process
from dpaudit.targets.sandbox.namespaces import prctl, syscall

COMMON = "--seed 1 --alpha 1e-9"
NOISE = f"--claim gaussian:sigma=1 --samples 1e4 --tests moments {COMMON}".split()
EPSILON = f"--neighbours 0,1 --claim-epsilon 2 --samples 2e3 {COMMON}".split()
BOTH = {
    "audit": ("python:./mine.py:good", *NOISE),
    "mechanism": ("python:./mine.py:release", *EPSILON),
}
SHORT = "partial: no namespaces (not tried), other processes can be seen"


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "mine.py").write_text(
        "import os, numpy as np\n"
        "rng = np.random.default_rng((5, 2311))\n"
        "def good(n, d): return rng.standard_normal((n, d))\n"
        "def release(value, n): return np.round((value + rng.laplace(0, 1, n)) * 2**20) / 2**20\n"
        "def told(n, d): raise RuntimeError(os.environ.get('DB_PASSWORD', 'nothing'))\n"
    )
    return tmp_path


@pytest.fixture
def refused(monkeypatch):
    """As on a kernel that refuses namespaces."""
    monkeypatch.setattr(process, "_APART", False)


@pytest.mark.slow
@pytest.mark.parametrize("kind", BOTH)
def test_what_is_required_and_cannot_be_had_is_3_with_a_document(folder, refused, kind):
    result = dpaudit(kind, *BOTH[kind], "--sandbox", "require", "--out", "o", cwd=folder)
    assert result.returncode == 3
    assert "sandbox=require: only «partial: no namespaces" in result.stderr
    document = json.loads((folder / "o" / "result.json").read_text())["data"]
    assert document["verdict"] == "inconclusive"
    assert "sandbox=require" in document["reason"]
    assert document["samples"] == 0
    assert document["sandbox"] == "not needed"  # nothing was started
    printed = dpaudit(kind, *BOTH[kind], "--sandbox", "require", "--format", "json", cwd=folder)
    assert (printed.returncode, json.loads(printed.stdout)["verdict"]) == (3, "inconclusive")


@pytest.mark.slow
@pytest.mark.parametrize("kind", BOTH)
def test_less_than_was_asked_for_is_said(folder, refused, kind):
    result = dpaudit(kind, *BOTH[kind], "--format", "json", cwd=folder)
    assert result.returncode == 0, result.stderr
    assert json.loads(result.stdout)["sandbox"].startswith(SHORT)
    assert f"sandbox: {SHORT}" in result.stderr
    assert "--sandbox require would have refused" in result.stderr


@pytest.mark.slow
@pytest.mark.parametrize("kind", BOTH)
def test_what_was_asked_for_needs_no_note_and_comes_before_the_environment(
    folder, monkeypatch, kind
):
    monkeypatch.setenv("DPAUDIT_SANDBOX", "fulll")
    result = dpaudit(kind, *BOTH[kind], "--sandbox", "none", "--format", "json", cwd=folder)
    assert (result.returncode, json.loads(result.stdout)["sandbox"]) == (0, "none")
    assert "sandbox:" not in result.stderr


@pytest.mark.slow
def test_full_or_the_network_and_nothing_else_lacking(folder):
    def level(*more):
        words = ("mechanism", *BOTH["mechanism"], *more)
        done = dpaudit(*words, "--format", "json", cwd=folder)
        assert "sandbox:" not in done.stderr or not more
        return json.loads(done.stdout)["sandbox"]

    if (full := level()) != "full":
        pytest.skip(f"this kernel gives us {full}")
    assert level("--sandbox", "network") == "partial: the network can be reached"
    assert level("--sandbox", "require") == "full"


def test_no_program_no_sandbox(folder):
    (folder / "recorded.csv").write_text("\n".join(["0.5"] * 2000))
    result = dpaudit("audit", "file:recorded.csv", *NOISE, "--format", "json", cwd=folder)
    assert json.loads(result.stdout)["sandbox"] == "not needed", result.stderr


def refuse_unshare():
    """Refuse ``unshare`` to this process and its children, as without user namespaces."""
    column, _ = confinement._ARCHES[confinement.platform.machine()]
    program = confinement._Filter()
    program.load(confinement._NUMBER)
    program.refuse(confinement._EQUAL, confinement._FORBIDDEN["unshare"][column], errno.EPERM)
    program.give(confinement._ALLOW)
    code = program.code()
    buffer = ctypes.create_string_buffer(code, len(code))
    prctl(confinement._SET_NO_NEW_PRIVS, 1)
    filled = struct.pack("HxxxxxxP", len(code) // 8, ctypes.addressof(buffer))
    syscall(confinement._SECCOMP[column], confinement._SET_MODE_FILTER, 0, ctypes.c_char_p(filled))


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="needs seccomp")
def test_a_kernel_that_refuses_namespaces(folder):
    command = [sys.executable, "-m", "dpaudit", "audit", *BOTH["audit"], "--format", "json"]
    result = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, preexec_fn=refuse_unshare
    )
    assert result.returncode == 0, result.stderr
    said = json.loads(result.stdout)["sandbox"]
    assert (
        "partial: no namespaces (unshare: Operation not permitted), other processes can be seen"
        in said
    )


@pytest.mark.slow
def test_a_variable_is_passed_on_if_it_is_named(folder, monkeypatch):
    monkeypatch.setenv("DB_PASSWORD", "hush")
    told = ("audit", "python:./mine.py:told", *NOISE, "--format", "json")
    without = dpaudit(*told, cwd=folder)
    named = dpaudit(*told, "--pass-env", "DB_PASSWORD", cwd=folder)
    assert "raised RuntimeError: nothing (" in json.loads(without.stdout)["reason"]
    assert "raised RuntimeError: hush (" in json.loads(named.stdout)["reason"]
