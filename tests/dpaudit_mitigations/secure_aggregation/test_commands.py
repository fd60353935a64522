"""``dpaudit serve aggregate`` and ``contribute`` as they are typed, each a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from typer.testing import CliRunner

from dpaudit.cli.app import app
from dpaudit.errors import PeerError, UsageError
from dpaudit_mitigations.secure_aggregation import commands
from dpaudit_mitigations.transport.certificates import make_authority

PARTIES = ("alice", "bob", "carol")
TERMS = ["--parties", ",".join(PARTIES), "--threshold", "2", "--bound", "1000"]


def here(*arguments):
    """The command in this process: what it raised, or None, and its stdout."""
    result = CliRunner().invoke(app, ["serve", *arguments])
    return result.exception, result.stdout


@pytest.fixture
def start(tmp_path):
    """Start ``dpaudit serve …`` in a folder with certificates; leftovers are killed at the end."""
    make_authority(tmp_path / "c", ["aggregator", *PARTIES])
    for i, name in enumerate(PARTIES):
        np.save(tmp_path / f"{name}.npy", np.arange(6, dtype=np.float32) * 10**i)
    running = []

    def run(*arguments):
        command = [sys.executable, "-m", "dpaudit", "serve", *arguments]
        process = subprocess.Popen(
            command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        running.append(process)
        return process

    yield run
    for process in running:
        process.kill()
        process.wait()
        process.stdout.close()
        process.stderr.close()


def aggregate(start, *more, sigma="0", number="r1"):
    options = ["--identity", "c/aggregator", "--dim", "6", "--round", number, "--sigma", sigma]
    return start(
        "aggregate", *options, *TERMS, "--journal", "aggregator", "--out", "sum.npy", *more
    )


def contribute(start, name, address, *more, sigma="0", number="r1"):
    options = [
        "--identity",
        f"c/{name}",
        "--peer",
        address,
        "--input",
        f"{name}.npy",
        "--round",
        number,
        "--sigma",
        sigma,
    ]
    return start("contribute", *options, *TERMS, "--journal", f"j-{name}", *more)


def contributor(folder, name, address):
    """A contributor in a thread of this process."""
    terms = {
        "parties": ",".join(PARTIES),
        "threshold": 2,
        "bound": 1000.0,
        "sigma": 0.0,
        "number": "r1",
    }
    files = {
        "identity": folder / "c" / name,
        "source": folder / f"{name}.npy",
        "journal": folder / f"j-{name}",
    }
    return ThreadPoolExecutor(1).submit(commands.contribute, peer=address, **files, **terms)


@pytest.mark.slow
def test_a_round_of_processes(start, tmp_path, monkeypatch):
    server = aggregate(start)
    address = json.loads(server.stdout.readline())["address"]
    alice = contribute(start, "alice", address)
    others = [contributor(tmp_path, name, address) for name in PARTIES[1:]]
    out, log = server.communicate(timeout=60)
    told = json.loads(out)
    assert server.returncode == 0
    assert np.array_equal(np.load(tmp_path / "sum.npy"), np.arange(6) * 111.0)
    for other in others:
        other.result(60)
    said, errors = alice.communicate(timeout=60)
    assert (alice.returncode, errors) == (0, "")
    assert json.loads(said) == {key: told[key] for key in ("round", "sha256", "survivors")}
    lines = [json.loads(line) for line in log.splitlines()]
    assert {line["outcome"] for line in lines} == {"started", "served", "published", "stopped"}
    assert (tmp_path / "sum.npy").stat().st_mode & 0o777 == 0o600
    monkeypatch.chdir(tmp_path)
    error, again = contribute(here, "alice", address)
    assert (error.exit_code, again) == (2, "")
    assert "already took part" in str(error)


def test_an_aggregator_killed_amid_a_round(start, tmp_path, monkeypatch):
    server = aggregate(start)
    address = json.loads(server.stdout.readline())["address"]
    party = contributor(tmp_path, "alice", address)
    while '"started"' not in server.stderr.readline():
        pass
    server.kill()
    with pytest.raises(PeerError, match="aggregator at"):
        party.result(60)
    monkeypatch.chdir(tmp_path)
    error, out = aggregate(here)
    assert (error.exit_code, out) == (2, "")
    assert "interrupted" in str(error)
    assert not (tmp_path / "sum.npy").exists()


@pytest.mark.parametrize(
    ("command", "options", "says"),
    [
        (aggregate, ["--threshold", "1"], "threshold=1"),
        (aggregate, ["--bits", "24"], "bits=24"),
        (aggregate, ["--noise", "gaussian"], "noise=gaussian"),
        (aggregate, ["--parties", "alice,bob"], "3 to"),
        (aggregate, ["--bound", "nan"], "nan"),
        (aggregate, ["--round", "../x"], "round="),
        (aggregate, ["--stage-timeout", "0"], "stage-timeout=0"),
        (aggregate, ["--identity", "c"], "identity"),
    ],
)
def test_usage_errors(tmp_path, monkeypatch, command, options, says):
    monkeypatch.chdir(tmp_path)
    error, _ = command(here, *options, sigma="1")
    assert isinstance(error, UsageError)
    assert says in str(error)


def test_a_journal_that_others_may_write_to(tmp_path):
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o770)
    with pytest.raises(UsageError, match="writable by others"):
        commands._journal(tmp_path / "open", "secure-aggregation/aggregator")
