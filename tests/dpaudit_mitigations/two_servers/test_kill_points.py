"""SIGKILL before and after every change of a journal or file, and at every frame, on both sides."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.timeout(900)  # a busy machine is no failure


@pytest.mark.slow
def test_every_point_at_which_a_server_can_die():
    program = Path(__file__).with_name("kill_rounds.py")
    done = subprocess.run(
        [sys.executable, program, "--events"], capture_output=True, text=True, timeout=800
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(done.stdout)
    assert found["points in noise"] >= 20  # so the sweep really went through the protocol
    assert found["points in answer"] >= 15
    assert found["kills"]["noise"] >= 20
