"""The supervisor and its limits, with and without namespaces."""

from __future__ import annotations

import functools
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from dpaudit.targets.sandbox import policy, process
from dpaudit.targets.sandbox.policy import Limits
from dpaudit.targets.sandbox.process import Process

HEAD = "import os, resource, signal, sys, time\n"
PRIVATE = "os.getpid() > 299 and not os.listdir('/tmp')"
SCRATCH = f"(os.environ.get('TMPDIR') or ('/tmp' if {PRIVATE} else '.'))"
SLEEPS = "[sys.executable, '-c', 'import time; time.sleep(99)', {0!r}]"


@pytest.fixture(params=["full", "plain", "none"])
def mode(request, monkeypatch):
    """With all that there is, as on a kernel that refuses namespaces, and with limits alone."""
    if request.param == "plain":
        monkeypatch.setattr(process, "_APART", False)
    if request.param == "none":
        monkeypatch.setenv("DPAUDIT_SANDBOX", "none")
    if request.param == "full" and (best := reached()) != "full":
        pytest.skip(f"this kernel gives us {best}")
    with policy.sandbox_policy():
        yield request.param


@functools.cache
def reached() -> str:
    """The level that this kernel gives."""
    with policy.sandbox_policy() as asked:
        run("pass")
    return asked.reached


def run(code: str, **options) -> tuple[str, int, str]:
    """What the code printed, its exit status, and the same in words."""
    process = Process([sys.executable, "-S", "-c", HEAD + code], **options)
    try:
        view = bytearray(10_000)
        got = process.read(memoryview(view), deadline=time.monotonic() + 20)
        return view[:got].decode().strip(), *process.ending(deadline=time.monotonic() + 20)
    finally:
        process.close()


# what no level has a part in, at the cheapest
ONE = pytest.mark.parametrize("mode", ["none"], indirect=True)


@ONE
def test_what_one_process_may_use(mode):
    code = "kinds = (resource.RLIMIT_DATA, resource.RLIMIT_FSIZE, resource.RLIMIT_NOFILE)\n"
    code += "print([resource.getrlimit(k)[0] for k in kinds])"
    small = Limits(reserved=1 << 28, file_size=1 << 20, open_files=40)
    assert run(code, limits=small)[0] == str([1 << 28, 1 << 20, 40])
    raises = "resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 21, 1 << 21))"
    assert "not allowed" in run(raises, limits=small)[2]


GREW = "above the limit of 0.25 GiB"
FORKS = "[os.fork() for _ in range(5)]"
MAP = "import mmap; m = mmap.mmap(-1, 1 << 29); [m.write(bytes(1 << 20)) for _ in range(512)]"
PAST = {
    "memory": (
        "x = [b'x' * (1 << 24) for _ in range(60)]",
        {"memory": 1 << 28},
        f"of memory and were killed, {GREW}",
    ),
    "memory of a family": (f"{FORKS}; x = b'x' * (1 << 24)", {"memory": 1 << 28}, GREW),
    "shared memory": (MAP, {"memory": 1 << 28}, GREW),
    "processes": (
        FORKS,
        {"processes": 20},
        r"it had \d\d processes and all were killed, above the limit of 20",
    ),
    "written": (
        f"os.chdir({SCRATCH}); [open(str(k), 'wb').write(bytes(1 << 20)) for k in range(100)]",
        {"written": 1 << 25},
        r"it wrote 0\.\d+ GiB and was killed, above the limit of 0.0312",
    ),
    "a file": (
        f"os.chdir({SCRATCH}); os.execvp('sh', ['sh', '-c', 'exec cat /dev/zero > x'])",
        {"file_size": 1 << 20},
        "longer than the limit of 1 MiB|File too large",
    ),
    "CPU time": (
        "\nwhile True: pass\nx = 1",
        {},
        "longer than its time limit allows on all cores .signal SIGXCPU after",
    ),
    "reserved": (
        "x = bytearray(1 << 29)",
        {"reserved": 1 << 28},
        "exit status 1; stderr ends with 'MemoryError'",
    ),
}


# limits that the kernel keeps, set in one way at every level
KERNELS = {"a file", "CPU time", "reserved"}


@pytest.mark.parametrize(
    ("mode", "what"),
    [(mode, what) for what in PAST for mode in (["none"] if what in KERNELS else ["full", "plain"])]
    + [("none", "written"), ("none", "processes")],
    indirect=["mode"],
)
def test_past_a_limit_all_are_killed_and_the_message_says_which(what, mode, here, monkeypatch):
    monkeypatch.setattr(policy, "_CORES", 1)
    code, small, match = PAST[what]
    # and 1 s of CPU time, or what a busy machine's page faults do not reach
    seconds = 0.0 if what == "CPU time" else 60.0
    words, status, how = run(f"{code}; time.sleep(9)", limits=Limits(**small), seconds=seconds)
    assert words == ""
    assert status != 0
    assert re.search(match, how), how


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["full", "plain"], indirect=True)
def test_pages_that_forks_share_are_counted_once(mode):
    # eight processes of apparently 100 MiB each
    code = "x = b'x' * (100 << 20); pids = [os.fork() for _ in range(3)]\n"
    code += "time.sleep(0.2); print('.', flush=True)"
    assert run(code, limits=Limits(memory=200 << 20))[1] == 0


def test_what_is_left_when_the_program_has_ended_is_killed(mode, marker, alive):
    code = f"""
for _ in range(3):
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            os.execv(sys.executable, {SLEEPS.format(marker)})
        os._exit(0)
time.sleep(0.1)
print('done')
"""
    assert run(code)[:2] == ("done", 0)
    assert not alive(marker)


def test_an_auditor_that_is_killed_takes_all_with_it(mode, marker, alive, present):
    escape = (
        "import os, sys, time\n"
        "if os.fork() == 0:\n"
        "    os.setsid()\n"
        f"    os.execv(sys.executable, {SLEEPS.format(marker + '-out')})\n"
        "time.sleep(99)"
    )
    code = (
        "import sys, time\nfrom dpaudit.targets.sandbox.process import Process\n"
        f"p = Process([sys.executable, '-c', {escape!r}]); time.sleep(99)"
    )
    auditor = subprocess.Popen([sys.executable, "-c", code])
    try:
        assert present(f"{marker}-out", seconds=20)
    finally:
        os.kill(auditor.pid, signal.SIGKILL)
        auditor.wait()
    assert not alive(marker)


def test_a_supervisor_that_is_stopped_does_not_hold_up_the_end(mode, marker, alive, monkeypatch):
    monkeypatch.setattr("dpaudit.targets.sandbox.process._PATIENCE", 0.1)
    code = f"import time; print('x', flush=True); time.sleep(99); {marker!r}"
    held = Process([sys.executable, "-S", "-c", code])
    assert held.read(memoryview(bytearray(1)), deadline=time.monotonic() + 60) == 1
    os.kill(held._popen.pid, signal.SIGSTOP)
    held.close()
    assert not alive(marker)


@ONE
def test_the_environment_is_an_allow_list_without_a_word_of_being_watched(mode, monkeypatch):
    monkeypatch.setenv("DPAUDIT_DEBUG", "1")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "2")
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    code = "found = [k for k in os.environ if 'DPAUDIT' in k or 'SECRET' in k]\n"
    code += "print(found, os.environ['OMP_NUM_THREADS'])"
    assert run(code)[0] == "[] 2"
    with policy.sandbox_policy(passed=["AWS_SECRET_ACCESS_KEY"]):
        assert run(code)[0] == "['AWS_SECRET_ACCESS_KEY'] 2"


def test_files_where_the_program_lives_are_read_as_before(mode, here):
    (here / "secret").write_text("mine")
    (here / "secret").chmod(0o600)
    me = os.getuid()
    code = "print(open('secret').read(), os.getuid(), os.stat('secret').st_uid)"
    assert run(code, needs=[str(here)])[0] == f"mine {me} {me}"


@ONE
def test_a_bad_program_is_named(mode):
    process = Process(["./no-such"])
    assert "cannot start ./no-such" in process.ending(deadline=time.monotonic() + 10)[1]


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["full"], indirect=True)
def test_namespaces_keep_the_network_and_other_processes_away(mode):
    code = """
pids = sorted(int(p) for p in os.listdir('/proc') if p.isdigit())
alone = pids == [1, os.getpid()] and os.getpid() > 299
print(len(open('/proc/net/dev').readlines()) - 2, alone, os.getppid())
"""
    assert run(code)[0] == "1 True 1"
    here = len(Path("/proc/net/dev").read_text().splitlines()) - 2
    assert run(code, limits=Limits(network=True))[0].split()[0] == str(here)
    talk = (
        "import socket; s = socket.create_server(('127.0.0.1', 0))\n"
        "c = socket.create_connection(s.getsockname()); print('heard')"
    )
    assert run(talk)[0] == "heard"


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["full"], indirect=True)
def test_process_numbers_vary(mode):
    # equal with probability 30,000⁻²
    assert len({run("print(os.getpid())")[0] for _ in range(3)}) > 1


@pytest.mark.parametrize("mode", ["full"], indirect=True)
def test_what_a_namespace_refuses_is_done_without(mode, monkeypatch, tmp_path):
    """As in a container that masks parts of /proc: the supervisor restarts without namespaces."""
    folder = tmp_path / "dpaudit" / "samplers" / "sandbox"
    folder.mkdir(parents=True)
    for path in Path(process.__file__).parent.glob("*.py"):
        (folder / path.name).write_text(
            path.read_text().replace('"/proc", b"proc"', '"/proc", b"no-such"')
        )
    monkeypatch.setattr(
        "dpaudit.targets.sandbox.process._SUPERVISOR", str(folder / "supervisor.py")
    )
    ours = os.readlink("/proc/self/ns/pid")
    with policy.sandbox_policy() as asked:
        assert run("print(os.readlink('/proc/self/ns/pid'))")[:2] == (ours, 0)
    assert asked.reached.startswith("partial: no namespaces (mount: No such device)")


@pytest.mark.parametrize(
    ("passed", "amount", "fate"),
    [
        ("-", "-", (3, "its process ended with exit status 3")),
        ("files", "70,000", (-9, "it had 70,000 files in its scratch and was killed")),
        ("unreadable", "-", (-9, "it hid its counters")),
        ("memory", "0", (-9, "its processes held more memory than is allowed")),
        ("memory", str(5 << 30), (-9, "its processes held 5 GiB of memory")),
    ],
)
def test_only_sizes_are_read_as_numbers(passed, amount, fate):
    unstarted = Process.__new__(Process)
    unstarted._limits = Limits()
    code, how = unstarted._fate("3", "1024", "0.5", "8", passed, amount)
    assert (code, how[: len(fate[1])]) == fate
