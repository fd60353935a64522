"""Two hundred audits of hostile samplers, two at a time: each ends as it must, nothing is left."""

from __future__ import annotations

import contextlib
import json
import os
import random
import shlex
import subprocess
import sys
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest

sys.path.insert(0, str(Path(__file__).parent))  # importlib mode puts no folder on the path

from support import rude_samplers as rude

import attacks
from attacks import ATTACKS, attempt, surroundings
from dpaudit.targets.sandbox.namespaces import become_subreaper, call, prctl

AUDITS = 200
LIMIT, PATIENCE = 4.0, 60.0  # seconds: for what hangs, for what is honest
LONGEST = 120.0  # seconds that one audit may take in all on a machine in use
SETTLES = 30.0  # seconds: others on this machine make and remove the same kinds of things
NEW_IPC, PR_SET_CHILD_SUBREAPER = 0x0800_0000, 36
CALM = {  # what must not end with 3, so that 3 means something
    "honest": ("return np.random.default_rng().normal(size=(n, d))", 0),
    "too wide": ("return np.random.default_rng().normal(size=(n, d)) * 2", 1),
}
RUN = """
import json, os, sys
from dpaudit.targets.sandbox import process
level, place = sys.argv[1:3]
process._APART = level != "plain"
with open(place) as file: told = json.load(file)
with open(place, "w") as file: json.dump(told | {"auditor": os.getpid()}, file)
sys.argv[1:] = sys.argv[3:]
from dpaudit.cli import main
main()
"""


def kinds(best: str) -> list[tuple[str, str, str, str, int]]:
    """(name, level, ``python`` or ``command``, code, exit code) of what must end in one way."""
    user = os.getuid() != 0
    found = [
        (name, level, "python", attacks.HEAD + function(attack.body), attack.code)
        for name, attack in ATTACKS.items()
        for level in attack.levels
        if attack.user in (None, user)
    ]
    for name, (code, _) in rude.PYTHON.items():
        levels = ("full", "plain", "none") if name in rude.HARD else ("full",)
        found += [(name, level, "python", rude.HEAD + function(code), 3) for level in levels]
    found += [
        (name, "full", "command", rude.HEAD + code, 3) for name, (code, _) in rude.COMMAND.items()
    ]
    for name, (code, status) in CALM.items():
        found += [
            (name, level, "python", function(code), status) for level in ("full", "plain", "none")
        ]
    return [kind for kind in found if best == "full" or kind[1] != "full"]


def function(body: str) -> str:
    return (
        f"import numpy as np\ndef f(n, d):\n{rude.indent(body)}\n"
        "    return np.random.default_rng().normal(size=(n, d))\n"
    )


def audit(
    number: int, kind: tuple[str, str, str, str, int], folder: Path, told: str, marker: str
) -> str:
    """Audit it as a user would; '' if it ended as it must, and otherwise what happened."""
    name, level, way, code, status = kind
    place = folder / f"{marker}-{number}"
    place.mkdir()
    (place / "told.json").write_text(told)
    (place / f"{marker}.py").write_text(code)
    target = f"python:{place}/{marker}.py:f"
    if way == "command":
        target = "command:" + shlex.join([sys.executable, "-c", code, marker])
    limit = PATIENCE if name in CALM else LIMIT
    words = [
        "audit", target, "--claim", "gaussian:sigma=1", "--samples", "10000", "--seed", "1",
        "--alpha", "1e-9",
    ]  # fmt: skip
    words += ["--tests", "moments", "--format", "json", "--time-limit", str(limit)]
    command = [sys.executable, "-c", RUN, level, str(place / "told.json"), *words]
    environment = {
        **os.environ,
        "DPAUDIT_SANDBOX": "none" if level == "none" else "full",
        "TMPDIR": str(folder / "tmp"),
    }
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=LONGEST, env=environment
        )
        document = json.loads(done.stdout) if done.stdout else {}
    except (subprocess.TimeoutExpired, ValueError) as error:
        return f"{number} {name} at {level}: {type(error).__name__}"
    verdict, reason = document.get("verdict"), document.get("reason", "")
    as_expected = (
        done.returncode == status
        and verdict == {0: "no-finding", 1: "finding", 3: "inconclusive"}[status]
    )
    if as_expected and "got in" not in reason and done.stderr.replace("\n", "").isprintable():
        return ""
    return (
        f"{number} {name} at {level}: exit {done.returncode}, {verdict}, "
        f"{reason[:200]!r}, {done.stderr[-300:]!r}"
    )


@contextlib.contextmanager
def ours_alone():
    """Whoever escapes an auditor becomes our child; shared memory is apart where possible."""
    become_subreaper()
    with open("/proc/self/ns/ipc") as before, contextlib.ExitStack() as undone:
        undone.callback(prctl, PR_SET_CHILD_SUBREAPER, 0)
        with contextlib.suppress(OSError):  # not root: then what others leave is counted as well
            call("unshare", NEW_IPC)
            undone.callback(call, "setns", before.fileno(), NEW_IPC)
        yield


def left(marker: str, folder: Path, known: set[int]) -> set[str]:
    """Processes, files, shared memory, semaphores, mounts and groups that are there now."""
    places = [*(folder / "tmp").iterdir(), *Path("/dev/shm").glob("*"), Path("/tmp/endless")]
    found = {f"file {path}" for path in places if path.exists()}
    for kind in ("shm", "sem", "msg"):
        table = Path("/proc/sysvipc") / kind
        rows = table.read_text().splitlines()[1:] if table.exists() else []
        found |= {f"{kind} {' '.join(row.split()[:2])}" for row in rows}
    found |= {
        f"mount {line.split()[4]}" for line in Path("/proc/self/mountinfo").read_text().splitlines()
    }
    for process in psutil.process_iter(["cmdline"]):
        if any(marker in word for word in process.info["cmdline"] or ()):
            found.add(f"process {process.pid} {process.info['cmdline'][:3]}")
    orphans = [p for p in psutil.Process().children(recursive=True) if p.pid not in known]
    found |= {
        f"child {p.pid}" for p in orphans if p.is_running() and p.status() != psutil.STATUS_ZOMBIE
    }
    groups = [p for p in Path("/sys/fs/cgroup").rglob("dpaudit-*") if p.is_dir()]
    return found | {
        f"group {p}" for p in groups if not psutil.pid_exists(int(p.name.removeprefix("dpaudit-")))
    }


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="looks at /proc")
@pytest.mark.timeout(7200)
def test_after_many_hostile_audits_nothing_is_left(tmp_path, capsys):
    marker = f"dpaudit-test-{uuid.uuid4().hex}"
    (tmp_path / "tmp").mkdir()
    known = {p.pid for p in psutil.Process().children(recursive=True)}
    with ours_alone():
        before = left(marker, tmp_path, known)
        with surroundings(tmp_path / "s") as vendor:
            told = (vendor / "told.json").read_text()
            every = kinds(attempt(attacks.Attack("pass"), vendor, level="full")[2])
            choice, rng = [], random.Random(17)
            while len(choice) < AUDITS:
                choice += rng.sample(every, len(every))  # each at least once, in any order
            started = time.monotonic()
            with ThreadPoolExecutor(2) as pool:
                tasks = [
                    pool.submit(audit, k, kind, tmp_path, told, marker)
                    for k, kind in enumerate(choice[:AUDITS])
                ]
                wrong = [said for task in tasks if (said := task.result())]
        minutes = (time.monotonic() - started) / 60
        with capsys.disabled():
            print(f"\n{AUDITS} audits of {len(every)} kinds in {minutes:.1f} minutes")
        assert wrong == []
        end = time.monotonic() + SETTLES
        while (more := left(marker, tmp_path, known) - before) and time.monotonic() < end:
            time.sleep(0.5)
        assert sorted(more) == []
