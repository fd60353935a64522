"""The examples run as they stand and show what they say."""

import re
import subprocess
import sys
from pathlib import Path

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"


def run(name):
    done = subprocess.run([sys.executable, EXAMPLES / name], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_audit_a_closed_sampler():
    out = run("01_audit_a_closed_sampler.py")
    assert all(name in out for name in ("finding: ", "tails", "repeats")) or "no C compiler" in out


def test_plant_and_catch():
    out = run("02_plant_and_catch.py")
    assert "black-box audit: no-finding" in out
    right = [int(line.split("right in ")[1].split()[0]) for line in out.splitlines() if "right in" in line]
    assert right[0] >= 490
    assert 190 <= right[1] <= 310  # 500 fair coins, 5 standard deviations either side


def test_floating_point():
    shares = [float(share) for share in re.findall(r"(\d+\.\d) %", run("03_floating_point.py"))]
    assert shares[0] >= 97
    assert 70 < shares[-1] < 80  # 76 % is what the numbers' size alone tells
