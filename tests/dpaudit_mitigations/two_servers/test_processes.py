"""Both servers as processes: started by the command line, and killed at every point."""

import hashlib
import json
import os
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from dpaudit.cli.app import app
from dpaudit_mitigations.transport.certificates import make_authority

QUERY = np.array([120, 45, 300, 8, 77, 210, 0, 19], np.float32)


SERVE = [sys.executable, "-m", "dpaudit", "serve"]


@pytest.fixture
def noise(tmp_path):
    np.save(tmp_path / "query.npy", QUERY)
    make_authority(tmp_path / "c", ["answer", "noise"])
    options = shlex.split("noise --identity c/noise --journal n --sigma 2 --bound 1000 --dim 8")
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    server = subprocess.Popen([*SERVE, *options], cwd=tmp_path, **pipes)
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
    command = [*SERVE, *command_line(address)]
    first = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60)
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


pytestmark = pytest.mark.timeout(900)  # a busy machine is no failure


def kill_rounds(*arguments, timeout=800):
    program = Path(__file__).with_name("kill_rounds.py")
    done = subprocess.run(
        [sys.executable, program, *arguments], capture_output=True, text=True, timeout=timeout
    )
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("forgets", "points", "says"),
    [
        ("seed", ["--party", "answer", "--start", "12"], "differs|other noise"),
        ("noise", ["--party", "noise", "--start", "16"], "published, but not"),
    ],
)
def test_a_journal_that_forgets_is_found_out(forgets, points, says):
    """Killed at one point after another: the first that shows it is always the same."""
    code, found = kill_rounds("--events", *points, "--seed", "1", "--forget", forgets)
    assert code == 1
    assert re.search(says, found["broken"])


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("rounds", [10, 1000])
def test_nothing_is_lost_or_published_twice(rounds):
    options = ("--rounds", str(rounds), "--seed", "1" if rounds == 10 else "2")
    code, found = kill_rounds(*options, timeout=3500)
    assert code == 0, found
    assert found["releases"] == rounds
    assert sum(found["kills"].values()) >= rounds


@pytest.mark.slow
def test_every_point_at_which_a_server_can_die():
    code, found = kill_rounds("--events")
    assert code == 0, found
    assert found["points in noise"] >= 20  # so the sweep really went through the protocol
    assert found["points in answer"] >= 15
    assert found["kills"]["noise"] >= 20
