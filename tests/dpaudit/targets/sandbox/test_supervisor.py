"""The supervisor by itself: what it leaves without an auditor, and what it imports."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from dpaudit.targets.sandbox import process_tree
from dpaudit.targets.sandbox.policy import DEFAULT

SUPERVISOR = Path(process_tree.__file__).with_name("supervisor.py")


def started(*argv, scratch, options=(), **changes):
    """The supervisor with a report that is not read, as when the auditor has just been killed."""
    heard, report = os.pipe()
    os.close(heard)
    asked = {
        "parent": os.getpid(),
        "report": report,
        "limits": dataclasses.asdict(DEFAULT),
        "level": "full",
        "apart": False,
        "hidden": [],
        "kept": [],
        "home": str(scratch),
        "cwd": str(scratch),
        "shared": None,
        "scratch": str(scratch),
    }
    command = [sys.executable, "-I", "-S", *options, SUPERVISOR, json.dumps(asked | changes), *argv]
    done = subprocess.run(command, pass_fds=(report,), capture_output=True, text=True, timeout=60)
    os.close(report)
    return done


@pytest.mark.skipif(sys.platform != "linux", reason="the scratch is Linux's")
def test_an_auditor_that_is_gone_leaves_no_scratch(tmp_path):
    done = started("true", scratch=tmp_path)
    assert "Traceback" not in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_it_starts_without_the_packages_around_it(tmp_path):
    done = started("true", scratch=tmp_path, options=("-X", "importtime"))
    imported = {
        line.rpartition("|")[2].strip()
        for line in done.stderr.splitlines()
        if line.startswith("import time:")
    }
    ours = {name for name in imported if name.startswith("dpaudit")}
    assert "dpaudit.targets.sandbox.process_tree" in ours
    assert not {name for name in ours if not name.startswith("dpaudit.targets.sandbox.")}


def test_a_family_that_makes_looks_dear_is_looked_at_once_a_second():
    """Forks with many mappings make a check take seconds; fifty times that is too long a pause."""
    from dpaudit.targets.sandbox.supervisor import _pause

    assert _pause(0.0001) == 0.05
    assert _pause(0.01) == pytest.approx(0.5)
    assert _pause(10.0) == 1.0


def test_processes_of_others_that_are_hidden_are_nobodys(monkeypatch):
    """With ``hidepid`` on /proc, other users' processes cannot be read: they are skipped."""
    read, proc = process_tree._read, os.open("/proc", os.O_RDONLY)

    def hidden(proc, pid, name):
        if pid == 1:
            raise PermissionError
        return read(proc, pid, name)

    monkeypatch.setattr(process_tree, "_read", hidden)
    try:
        assert os.getpid() in process_tree.members(proc, os.getppid())
        assert process_tree._stat(proc, 1) == (b"Z", 0)
    finally:
        os.close(proc)
