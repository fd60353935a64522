"""An installable plug-in for the runner's tests: an attack that sleeps, raises, lies or dies."""

from __future__ import annotations

import textwrap
from pathlib import Path

__all__ = ["SPEC", "install"]

_MODULE = """
import os, time
import torch

class Planted:
    name = "planted"

    def __init__(self, *, what="fine", work=0, seconds=0.0, dim=None):
        self.what, self.work, self.seconds, self.dim = what, work, seconds, dim

    def score(self, releases, candidates):
        time.sleep(self.seconds)
        for _ in range(self.work):
            torch.linalg.vector_norm(releases, dim=1)
        if self.what == "raises":
            raise ArithmeticError("planted\\x1b[31m <b>error</b>")
        if self.what == "unprintable":
            raise type("Mute", (Exception,), {"__str__": lambda self: 1 / 0})
        if self.what == "exits":
            raise SystemExit(0)
        if self.what == "interrupts":
            raise KeyboardInterrupt
        if self.what == "memory":
            raise MemoryError
        if self.what == "dies":
            os._exit(13)
        if self.what.startswith("file:") and not os.path.exists(self.what[5:]):
            raise OSError("not yet")
        if self.what == "slip":
            from dpaudit.errors import UsageError
            raise UsageError("what=slip: must be something else")
        distance = ((releases[:, None, :] - candidates) ** 2).sum(2)
        return -distance

    def evidence(self, releases, candidates, truth):
        if self.what == "where":
            from distributed import get_worker
            return {"worker": get_worker().name}
        return {"nan": float("nan")} if self.what == "nan" else {}
"""
SPEC = """
name = "planted"
seed = 3
epsilon = 0.5
delta = 1e-10
trials = 20
[host]
name = "histogram"
table = "uniform"
bins = 64
[[source]]
name = "gaussian"
[[attack]]
name = "planted"
"""


def install(folder: Path) -> Path:
    """Put the plug-in into ``folder``, as a distribution that is found once that is on the path."""
    about = folder / "planted-1.0.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: planted\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[dpaudit.attacks]\nplanted = planted_attack:Planted\n")
    (folder / "planted_attack.py").write_text(textwrap.dedent(_MODULE))
    return folder
