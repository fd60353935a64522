"""SIGKILL at random times and at every point; ``kill_rounds.py`` has the procedure and rules."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.timeout(900)  # a busy machine is no failure


def kill_rounds(*arguments, timeout=800):
    program = Path(__file__).with_name("kill_rounds.py")
    done = subprocess.run(
        [sys.executable, program, *arguments], capture_output=True, text=True, timeout=timeout
    )
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout)


@pytest.mark.slow
def test_nothing_is_lost_or_published_twice():
    code, found = kill_rounds("--rounds", "10", "--seed", "1")
    assert code == 0, found
    assert found["releases"] == 10
    assert sum(found["kills"].values()) >= 10


@pytest.mark.slow
@pytest.mark.parametrize(
    ("forgets", "points", "says"),
    [
        ("seed", ["--party", "answer", "--start", "12"], "differs from the first one|other noise"),
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
def test_a_thousand_rounds():
    code, found = kill_rounds("--rounds", "1000", "--seed", "2", timeout=3500)
    assert code == 0, found
    assert found["releases"] == 1000
    assert sum(found["kills"].values()) >= 1000
    print(found)
