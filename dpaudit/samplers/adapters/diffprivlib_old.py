"""``diffprivlib-old:MECH``: IBM's mechanisms of release 0.4.1, from their own environment.

They have the names and options of ``diffprivlib.mechanisms``; 5 to 20 µs per number, after a second
for the start. Known to be flawed and kept for that: Laplace noise from one uniform, Gaussian noise
by Box–Muller, sine and cosine both used.
"""

from __future__ import annotations

from dataclasses import replace

from dpaudit.samplers.adapters import diffprivlib
from dpaudit.samplers.adapters.environment import OwnEnvironment

__all__ = ["LIBRARY"]

_SINCE = ("Snapping", "sum", "mean", "count_nonzero")  # later, or not mechanisms

LIBRARY = OwnEnvironment(
    name="diffprivlib-old",
    program="diffprivlib_old",
    distribution="diffprivlib",
    tested="0.4.1",
    table={
        name: replace(mechanism, make=None)
        for name, mechanism in diffprivlib.LIBRARY.table.items()
        if name not in _SINCE
    },
)
