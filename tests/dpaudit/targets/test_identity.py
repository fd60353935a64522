"""What a target names: its files with their hashes, before anything of it runs."""

from __future__ import annotations

import hashlib
import json
import os
from datetime import UTC, datetime

import numpy as np
import pytest
from command_line import here as dpaudit

from dpaudit.audit import audit_sampler
from dpaudit.provenance import collect, with_identity
from dpaudit.targets.identity import identify
from dpaudit.types import AuditedFile

CONTENT = b"raise SystemExit('this was run')\n"


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "noise.py").write_bytes(CONTENT)
    os.utime("noise.py", (1_700_000_000, 1_700_000_000))
    return tmp_path


def named(target):
    return [file.name for file in identify(target).files]


def test_a_file_is_described_and_not_run(here):
    (file,) = identify("python:./noise.py:draw").files
    assert file == AuditedFile(
        name="./noise.py",
        sha256=hashlib.sha256(CONTENT).hexdigest(),
        size=len(CONTENT),
        modified=datetime.fromtimestamp(1_700_000_000, UTC).isoformat(),
    )


@pytest.mark.parametrize(
    ("target", "names"),
    [
        ("python:noise:draw", ["noise.py"]),
        ("python:package.noise:draw", ["package/noise.py"]),
        ("python:package:draw", ["package/__init__.py"]),
        ("python:os.path:join", []),
        ("library:./noise.py:gauss", ["./noise.py"]),
        ("file:noise.py", ["noise.py"]),
        ("file:noise.py;package/noise.py", ["noise.py", "package/noise.py"]),
        ("scores:noise.py", ["noise.py"]),
        ("command:./noise.py {n} noise.py", ["./noise.py", "noise.py"]),
        ("command:'unbalanced", []),
        ("command:", []),
        ("file:none.npy", []),
        ("file:package", []),
        ("file:pipe.bin", []),
        ("file:a\0b", []),
        ("http://127.0.0.1/noise", []),
        ("gaussian:sigma=1", []),
        ("pancake:key=noise.py", []),
        ("", []),
    ],
)
def test_which_files_a_target_names(here, target, names):
    (here / "package").mkdir()
    for name in ("__init__.py", "noise.py"):
        (here / "package" / name).write_text("")
    os.mkfifo(here / "pipe.bin")  # which is not waited for
    assert named(target) == names


def test_a_file_that_cannot_be_read_is_named_without_a_hash(here, monkeypatch):
    def refused(*_):
        raise PermissionError

    monkeypatch.setattr("hashlib.file_digest", refused)
    unread = AuditedFile(name="noise.py", sha256="", size=0, modified="")
    assert identify("file:noise.py").files == (unread,)


def test_many_arguments_are_cut(here):
    words = []
    for i in range(20):
        (here / f"{i}").write_text("")
        words.append(f"./{i}")
    assert len(named(f"command:./noise.py {' '.join(words)}")) == 8


def test_a_library_has_its_version(here):
    assert identify("numpy:laplace:scale=1").versions.keys() == {"numpy"}
    assert identify("stdlib:gauss").versions == {}  # Python's own is always told
    assert identify("python:./noise.py:draw").versions == {}


def test_who_ran_it_is_printable():
    made = with_identity(collect(seed="1", plugins=()), by="A\x1b[31m\nB", versions={"opendp": "0"})
    assert made.by == "A�[31m B"
    assert made.versions["opendp"] == "0"
    assert "python" in made.versions


@pytest.mark.slow
def test_audits_say_who_ran_them_and_what_they_read(here):
    values = np.random.default_rng(1).normal(size=(2_000, 1))
    np.save("noise.npy", values)
    np.savetxt(
        "scores.csv", np.c_[values, values > 0], "%.17g", ",", header="score,member", comments=""
    )
    expected = hashlib.sha256((here / "noise.npy").read_bytes()).hexdigest()
    by = ("--by", "Me", "--format", "json")
    done = dpaudit(
        "audit", "file:noise.npy", "--claim", "gaussian:sigma=1", "--tests", "moments", *by
    )
    made = json.loads(done.stdout)["provenance"]
    assert (made["by"], made["files"][0]["sha256"]) == ("Me", expected)
    done = dpaudit("mechanism", "scores:scores.csv", "--claim-epsilon", 1, *by)
    made = json.loads(done.stdout)["provenance"]
    assert (made["by"], made["files"][0]["name"]) == ("Me", "scores.csv")
    np.save("small.npy", values[:10])
    done = dpaudit("audit", "file:small.npy", "--claim", "gaussian:sigma=1", *by)
    told = json.loads(done.stdout)
    assert told["verdict"] == "inconclusive"
    assert (told["provenance"]["by"], told["provenance"]["files"][0]["name"]) == ("Me", "small.npy")


def test_a_callable_has_no_file_but_whoever_runs_it_is_told():
    rng = np.random.default_rng(1)
    asked = {"claim": "gaussian:sigma=1", "samples": 2_000, "tests": ["moments"], "by": "Me"}
    made = audit_sampler(lambda n, d: rng.normal(size=(n, d)), **asked).provenance
    assert (made.by, made.files) == ("Me", ())
