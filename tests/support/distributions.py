"""dpaudit as users get it: sdist and wheel, built here, installed in empty environments."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CONSTRAINTS = ROOT / "constraints.txt"
PIP = (sys.executable, "-m", "pip", "--disable-pip-version-check")


def run(*args: object, **options) -> str:
    """What a command prints; its errors are shown when it fails."""
    command = [str(arg) for arg in args]
    done = subprocess.run(command, capture_output=True, text=True, **options)
    if done.returncode:
        raise AssertionError(f"{command} exits {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout


def built(out: Path, *kinds: str) -> list[Path]:
    """What ``python -m build`` makes of this checkout; kinds: ``--wheel``, ``--sdist``."""
    run(sys.executable, "-m", "build", *kinds, "--no-isolation", "--outdir", out, ROOT)
    return sorted(out.iterdir())


def environment(at: Path, *wanted: object, python: object = sys.executable) -> Path:
    """The ``bin`` of a new environment at ``at`` in which ``wanted`` is installed by pip."""
    run(python, "-m", "venv", "--without-pip", at)
    run(*PIP, "--python", at / "bin/python", "install", "--quiet", "--no-compile", *wanted)
    return at / "bin"
