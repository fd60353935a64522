"""Control groups: in a hierarchy made of plain files, and in the kernel's if it is writable."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from dpaudit.targets.sandbox.process_tree import Group

LIMITS = {"memory": 1 << 30, "written": 1 << 20, "tasks": 50}
FILES = (
    "memory.max",
    "memory.swap.max",
    "memory.oom.group",
    "pids.max",
    "cgroup.procs",
    "cgroup.kill",
    "memory.events",
)


@pytest.fixture
def machine(tmp_path):
    """``machine(cgroup, mountinfo)``: a process's /proc in group ``/ours`` of ``tmp/tree``."""
    (tmp_path / "tree" / "ours").mkdir(parents=True)
    (tmp_path / "proc").mkdir()

    def make(cgroup="0::/ours\n", kind="cgroup2"):
        (tmp_path / "proc" / "cgroup").write_text(f"5:memory:/other\n{cgroup}")
        mounts = "29 1 0:25 / / rw - ext4 /dev/vda rw\n"
        mounts += f"30 29 0:26 / {tmp_path}/tree rw,nosuid - {kind} none rw\n"
        (tmp_path / "proc" / "mountinfo").write_text(mounts)
        return str(tmp_path / "proc")

    return make


@pytest.fixture
def controlled(monkeypatch):
    """A folder made in the hierarchy has the kernel's files."""
    make = Path.mkdir

    def with_files(self, *arguments, **options):
        make(self, *arguments, **options)
        for name in FILES:
            (self / name).touch()

    monkeypatch.setattr(Path, "mkdir", with_files)


def test_a_group_below_ours_with_its_limits(machine, controlled, tmp_path):
    group = Group.below_ours(LIMITS, proc=machine())
    assert group.folder == tmp_path / "tree" / "ours" / f"dpaudit-{os.getpid()}"
    read = {name: (group.folder / name).read_text() for name in FILES}
    assert read["memory.max"] == str((1 << 30) + (1 << 20))  # the scratch is memory
    assert (read["memory.swap.max"], read["memory.oom.group"], read["pids.max"]) == ("0", "1", "50")
    group.add(1234)
    assert (group.folder / "cgroup.procs").read_text() == "1234"


@pytest.mark.parametrize(
    ("events", "over"), [("", False), ("oom 3\noom_kill 0\n", False), ("oom 1\noom_kill 2\n", True)]
)
def test_what_the_kernel_ended_for_its_memory(machine, controlled, events, over):
    group = Group.below_ours(LIMITS, proc=machine())
    (group.folder / "memory.events").write_text(events)
    assert group.over_memory() == over


def test_no_controllers_no_limits_but_a_group(machine):
    group = Group.below_ours(LIMITS, proc=machine())
    assert list(group.folder.iterdir()) == []
    assert not group.over_memory()
    with pytest.raises(OSError, match=r"cgroup\.procs"):
        group.add(1234)
    group.end()
    assert not group.folder.exists()
    group.end()  # twice is harmless


@pytest.mark.slow
def test_the_end_kills(machine, controlled):
    group = Group.below_ours(LIMITS, proc=machine())
    group.end()  # the plain files keep the folder, which is given up after a second
    assert (group.folder / "cgroup.kill").read_text() == "1"


@pytest.mark.parametrize("how", [{"cgroup": ""}, {"kind": "cgroup"}, {"cgroup": "0::/gone\n"}])
def test_where_none_can_be_had_there_is_none(machine, how):
    assert Group.below_ours(LIMITS, proc=machine(**how)) is None


def test_no_proc_no_group(tmp_path):
    assert Group.below_ours(LIMITS, proc=str(tmp_path)) is None


def test_in_the_kernels_hierarchy_nobody_escapes_the_end():
    group = Group.below_ours(LIMITS)
    if group is None:
        pytest.skip("no hierarchy of version 2 that can be written")
    code = "import os, signal, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\ninput()\n"
    code += "if os.fork() == 0:\n os.setsid()\n os.fork()\n"
    code += "os.write(1, b'%d\\n' % os.getpid())\ntime.sleep(1000)"
    program = subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        group.add(program.pid)
        program.stdin.write("go\n")
        program.stdin.flush()
        pids = {program.stdout.readline().strip() for _ in range(3)}
        assert len(pids) == 3
        assert set((group.folder / "cgroup.procs").read_text().split()) == pids
        group.end()
        assert program.wait(10) == -signal.SIGKILL
        assert not group.folder.exists()  # the kernel lets go of a folder when all in it have ended
    finally:
        program.kill()
        program.wait()
        group.end()


@pytest.mark.parametrize(
    ("controllers", "made"), [("", False), ("cpu io\n", False), ("cpu memory pids\n", True)]
)
def test_a_group_that_would_limit_nothing_is_not_made(machine, controllers, made):
    proc = machine()
    plain = Group.below_ours(LIMITS, proc=proc)
    plain.folder.parent.joinpath("cgroup.subtree_control").write_text(controllers)
    shutil.rmtree(plain.folder)
    assert (Group.below_ours(LIMITS, to_limit=True, proc=proc) is not None) is made
