"""The two commands as real processes, started by the command line."""

import hashlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from dpaudit.cli.app import app
from dpaudit.errors import UsageError
from dpaudit_mitigations.transport.certificates import make_authority
from dpaudit_mitigations.two_servers.commands import _vector

QUERY = np.array([120, 45, 300, 8, 77, 210, 0, 19], np.float32)


def dpaudit(folder, *arguments, **options):
    command = [sys.executable, "-m", "dpaudit", "serve", *map(str, arguments)]
    return subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=60, **options
    )


@pytest.fixture
def noise(tmp_path):
    np.save(tmp_path / "query.npy", QUERY)
    make_authority(tmp_path / "c", ["answer", "noise"])
    command = [
        sys.executable,
        "-m",
        "dpaudit",
        "serve",
        "noise",
        "--identity",
        "c/noise",
        "--journal",
        "n",
    ]
    command += ["--sigma", "2", "--bound", "1000", "--dim", "8"]
    server = subprocess.Popen(
        command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    yield server
    if server.poll() is None:
        server.kill()
    server.communicate()


def command_line(address):
    identity = ["--identity", "c/answer", "--peer", address, "--journal", "a"]
    return ["answer", *identity, "--query", "query.npy", "--sigma", "2", "--release", "week-7"]


def here(*arguments):
    """The command in this process."""
    return CliRunner().invoke(app, ["serve", *arguments])


@pytest.mark.slow
def test_a_release_by_two_processes(noise, tmp_path, monkeypatch):
    address = json.loads(noise.stdout.readline())["address"]
    first = dpaudit(tmp_path, *command_line(address))
    monkeypatch.chdir(tmp_path)
    assert first.returncode == 0, first.stderr
    receipt = json.loads(first.stdout)
    path = tmp_path / "n" / "published" / receipt["file"]
    assert receipt["sha256"] == hashlib.sha256(path.read_bytes()).hexdigest()
    assert np.abs(np.load(path) - QUERY).max() < 8 * 2 * 2**0.5
    again = here(*command_line(address))
    assert (again.exit_code, again.stdout) == (0, first.stdout)
    np.save(tmp_path / "query.npy", QUERY + 1)
    other = here(*command_line(address))
    assert isinstance(other.exception, UsageError)
    assert "begun with another query" in str(other.exception)
    noise.send_signal(signal.SIGTERM)
    _, text = noise.communicate(timeout=20)
    assert noise.returncode == 0
    outcomes = [json.loads(line)["outcome"] for line in text.splitlines()]
    assert (outcomes[0], outcomes[-1]) == ("started", "stopped")
    assert outcomes.count("published") == 1
    for value in [*QUERY, *np.load(path)]:
        if value > 99:
            assert str(value) not in text + first.stderr


@pytest.mark.parametrize(
    "name", ["text.npy", "pickle.npy", "archive.npz", "missing.npy", "huge.npy", "cut.npy"]
)
def test_query_files_that_are_none(tmp_path, name):
    (tmp_path / "text.npy").write_text("1 2 3")
    np.save(tmp_path / "pickle.npy", np.array([{}], dtype=object), allow_pickle=True)
    np.savez(tmp_path / "archive.npz", a=QUERY)
    for file, shape in (("huge.npy", "(1000000000000000,), }"), ("cut.npy", "(8,")):
        header = ("{'descr': '<f4', 'fortran_order': False, 'shape': " + shape).ljust(
            117
        ).encode() + b"\n"
        (tmp_path / file).write_bytes(b"\x93NUMPY\x01\x00\x76\x00" + header)
    with pytest.raises(UsageError, match="query="):
        _vector(tmp_path / name)


def test_a_service_that_is_none():
    done = here("nois")
    assert done.exception.exit_code == 2
    assert str(done.exception) == "service=nois: not known; did you mean 'noise'?"


@pytest.mark.slow
def test_the_example_leaves_no_server_behind():
    example = Path(__file__).parents[3] / "examples" / "05_two_servers.sh"
    env = os.environ | {"PYTHON": sys.executable}
    running = subprocess.Popen(
        ["bash", example], env=env, stdout=subprocess.DEVNULL, start_new_session=True
    )
    assert running.wait(60) == 0
    with pytest.raises(ProcessLookupError):  # nobody is left in its group
        os.killpg(running.pid, signal.SIGKILL)


def test_help_teaches_and_needs_no_torch(monkeypatch):
    for name, value in {"COLUMNS": "200", "NO_COLOR": "1"}.items():
        monkeypatch.setenv(name, value)
    for command, words in (
        ("answer", ("--release", "same", "again", "secure-gaussian")),
        ("noise", ("--bound", "journal", "exactly once")),
    ):
        done = here(command, "--help")
        assert done.exit_code == 0
        assert all(word in done.stdout for word in words)
    code = (
        "import dpaudit_mitigations.two_servers.answer_side, sys\n"
        "import dpaudit_mitigations.two_servers.noise_side"
    )
    done = subprocess.run([sys.executable, "-c", f"{code}; sys.exit('torch' in sys.modules)"])
    assert done.returncode == 0
