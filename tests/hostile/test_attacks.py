"""The table of attacks, at each level of the sandbox, as this user and without privileges."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # importlib mode puts no folder on the path

import attacks
from attacks import ATTACKS, at, attempt, surroundings
from dpaudit.errors import SamplerError
from dpaudit.protocols import Request
from dpaudit.targets import open_sampler
from dpaudit.targets.sandbox import policy, process

NOBODY = 65534
ROOT = os.getuid() == 0


@pytest.fixture(scope="module")
def vendor(tmp_path_factory):
    with surroundings(tmp_path_factory.mktemp("surroundings")) as folder:
        yield folder


@pytest.fixture(scope="module")
def best(vendor):
    """The level that this kernel gives."""
    return attempt(attacks.Attack("pass"), vendor, level="full")[2]


def judge(name: str, level: str, code: int, said: str) -> None:
    attack = ATTACKS[name]
    assert code == attack.code, said
    assert re.search(attack.words, said), said
    assert said.isprintable(), said


SHARE = [name for name, attack in ATTACKS.items() if attack.words.startswith(attacks.KEPT)]
ALONE = [name for name in ATTACKS if name not in SHARE]
LONG = {"a scratch that is full"}  # a smaller one is filled in test_process.py


def cases(names):
    """(name, level); the auditor's side of the channel is level-independent: one per quick run."""
    for name in names:
        for level in ATTACKS[name].levels:
            if ATTACKS[name].user in (None, not ROOT):
                slow = name in LONG or (name in attacks.CHANNEL and level != "full")
                yield pytest.param(name, level, marks=[pytest.mark.slow] if slow else [])


@pytest.fixture(scope="module")
def workers(vendor):
    """``workers(level)`` → the worker that makes all attacks of that level which leave it alive."""
    with contextlib.ExitStack() as stack:
        yield functools.cache(
            lambda level: stack.enter_context(attacks.one_worker(vendor, level=level))
        )


def tried(attempted, name, level, best):
    if level == "full" and best != "full":
        pytest.skip(f"this kernel gives us {best}")
    code, said, reached = attempted(ATTACKS[name])
    assert reached.startswith({"plain": "partial: no namespaces"}.get(level, level))
    judge(name, level, code, said)


@pytest.mark.parametrize(("name", "level"), [*cases(SHARE)])
def test_an_attack(name, level, workers, best):
    tried(workers(level), name, level, best)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "level"), [*cases(ALONE)])
def test_an_attack_by_a_worker_of_its_own(name, level, vendor, best):
    tried(functools.partial(attempt, vendor=vendor, level=level), name, level, best)


def test_what_honest_samplers_need_is_there(vendor, best):
    """The table can fail: the same means, used where they are allowed, are not refused."""
    body = """
import multiprocessing, tempfile, threading
with tempfile.TemporaryFile() as file: file.write(bytes(1 << 20))
with open(os.devnull, "w") as file: file.write("x")
os.urandom(8)
a, b = socket.socketpair()
a.send(b"x"); assert b.recv(1) == b"x"
threading.Thread(target=print).start()
if os.fork() == 0: os._exit(0)
os.wait()
assert subprocess.run(["true"]).returncode == 0
if TOLD["level"] != "plain":  # a semaphore lies in /dev/shm, which others share
    assert multiprocessing.get_context("fork").Pool(1).map(abs, [-1]) == [1]
assert os.getuid() == TOLD["user"] and open(HERE + "/told.json").read()"""
    told = json.loads((vendor / "told.json").read_text())
    for level in ("full", "plain", "none"):
        (vendor / "told.json").write_text(json.dumps({**told, "user": os.getuid(), "level": level}))
        code, said, _ = attempt(attacks.Attack(body), vendor, level=level)
        assert (code, said) == (0, "")


def test_what_is_asked_for_can_be_seen(vendor, best):
    tree = str(Path.cwd())
    look = attacks.Attack("reach(TOLD['tree'] + '/plans')")
    assert "got in" not in attempt(look, vendor, level="full")[1]
    place = vendor / "seen.py"
    place.write_text(f"{attacks.HEAD}def f(n, d): reach(TOLD['tree'] + '/plans')")
    for level in ("full", "plain"):
        with (
            at(level),
            policy.sandbox_policy(visible=[tree]),
            open_sampler(f"python:{place}:f", seed="1").open(timeout=60) as sampler,
            pytest.raises(SamplerError, match="got in"),
        ):
            sampler.ask(Request(1, 1), timeout=30)


def test_a_sampler_in_the_working_tree_sees_it_and_cannot_write_it(vendor, best):
    Path("inside.py").write_text(
        "import os\nimport numpy as np\n"
        "def f(n, d):\n"
        "    assert open('plans').read() == 'ours'\n"
        "    try: open('new', 'w')\n"
        "    except OSError: return np.zeros((n, d))\n"
    )
    for level in ("full", "plain"):
        with at(level), open_sampler("python:inside:f", seed="1").open(timeout=60) as sampler:
            assert (sampler.ask(Request(1, 1), timeout=30).values == 0).all()
    assert not Path("new").exists()


def test_what_is_required_or_nothing(vendor, monkeypatch):
    """With ``require`` a program that cannot be held fully is not started."""
    mark = vendor / "started"
    monkeypatch.setattr(process, "_APART", False)
    with (
        policy.sandbox_policy("require"),
        open_sampler(f"command:touch {mark}", seed="1").open(timeout=60) as sampler,
        pytest.raises(
            SamplerError,
            match="sandbox=require",
        ),
    ):
        sampler.ask(Request(1, 1), timeout=30)
    assert not mark.exists()


def as_nobody(level: str) -> dict[str, tuple[int, str, str]]:
    """The table, run by a user without privileges."""
    python = next(
        (p for p in ("/usr/bin/python3", sys.executable) if Path(p).exists()), sys.executable
    )
    paths = [p for p in sys.path if p and "lib/python" not in p] + [
        p for p in sys.path if "site-packages" in p
    ]
    environment = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": os.pathsep.join(paths),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    user = {"user": NOBODY, "group": NOBODY, "extra_groups": []} if ROOT else {}
    probe = subprocess.run(
        [python, "-c", "import numpy, dpaudit.targets.sandbox.process"],
        env=environment,
        cwd="/",
        capture_output=True,
        **user,
    )
    if probe.returncode:
        pytest.skip(
            f"no Python that user {NOBODY} may run with our packages: {probe.stderr[-200:]!r}"
        )
    done = subprocess.run(
        [python, str(Path(__file__).with_name("attacks.py")), level],
        env=environment,
        cwd="/",
        capture_output=True,
        text=True,
        timeout=600,
        **user,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("level", ["full", "plain", "none"])
def test_all_attacks_by_a_user_without_privileges(level):
    results = as_nobody(level)
    assert len(results) > 5
    for name, (code, said, reached) in results.items():
        if level == "full" and reached != "full":
            pytest.skip(f"this kernel gives such a user {reached}")
        judge(name, level, code, said)
