"""``dpaudit serve aggregate`` and ``contribute`` as they are typed, each a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest

from dpaudit_mitigations.transport.certificates import make_authority

PARTIES = ("alice", "bob", "carol")
TERMS = ["--parties", ",".join(PARTIES), "--threshold", "2", "--bound", "1000"]


@pytest.fixture
def start(tmp_path):
    """Start ``dpaudit serve …`` in a folder with certificates; what still runs at the end is killed."""
    make_authority(tmp_path / "c", ["aggregator", *PARTIES])
    for i, name in enumerate(PARTIES):
        np.save(tmp_path / f"{name}.npy", np.arange(6, dtype=np.float32) * 10**i)
    running = []

    def run(*arguments):
        command = [sys.executable, "-m", "dpaudit", "serve", *arguments]
        process = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
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
    return start("aggregate", *options, *TERMS, "--journal", "aggregator", "--out", "sum.npy", *more)


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


def test_a_round_of_processes(start, tmp_path):
    server = aggregate(start)
    address = json.loads(server.stdout.readline())["address"]
    parties = [contribute(start, name, address) for name in PARTIES]
    out, log = server.communicate(timeout=60)
    told = json.loads(out)
    assert server.returncode == 0
    assert np.array_equal(np.load(tmp_path / "sum.npy"), np.arange(6) * 111.0)
    for party in parties:
        said, errors = party.communicate(timeout=60)
        assert (party.returncode, errors) == (0, "")
        assert json.loads(said) == {key: told[key] for key in ("round", "sha256", "survivors")}
    lines = [json.loads(line) for line in log.splitlines()]
    assert {line["outcome"] for line in lines} == {"started", "served", "published", "stopped"}
    assert (tmp_path / "sum.npy").stat().st_mode & 0o777 == 0o600
    again, errors = (refused := contribute(start, "alice", address)).communicate(timeout=60)
    assert (refused.returncode, again) == (2, "")
    assert "took part in it already" in errors


def test_an_aggregator_killed_amid_a_round(start, tmp_path):
    server = aggregate(start)
    address = json.loads(server.stdout.readline())["address"]
    party = contribute(start, "alice", address)
    while '"started"' not in server.stderr.readline():
        pass
    server.kill()
    said, errors = party.communicate(timeout=60)
    assert (party.returncode, said) == (3, "")
    assert "aggregator at" in errors
    out, errors = (restarted := aggregate(start)).communicate(timeout=60)
    assert (restarted.returncode, out) == (2, "")
    assert "broken off" in errors
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
def test_slips(tmp_path, monkeypatch, command, options, says):
    from typer.testing import CliRunner

    from dpaudit.cli.app import app
    from dpaudit.errors import UsageError

    monkeypatch.chdir(tmp_path)
    kept = []
    command(lambda *arguments: kept.extend(arguments), *options, sigma="1")
    result = CliRunner().invoke(app, ["serve", *kept])
    assert isinstance(result.exception, UsageError)
    assert says in str(result.exception)
