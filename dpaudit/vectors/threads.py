"""How many threads compiled loops use: torch's number where torch is loaded, else its default."""

from __future__ import annotations

import os
import sys

__all__ = ["number_of_threads"]


def number_of_threads() -> int:
    """``torch.get_num_threads()``; without torch ``OMP_NUM_THREADS``, or the cores it may use."""
    if (torch := sys.modules.get("torch")) is not None and hasattr(torch, "get_num_threads"):
        return int(torch.get_num_threads())
    given = os.environ.get("OMP_NUM_THREADS", "")
    if given.isdecimal() and int(given) > 0:
        return int(given)
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity is not None else os.cpu_count() or 1
