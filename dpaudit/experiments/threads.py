"""How many threads torch works with, for a while."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

__all__ = ["LARGE", "threads"]

LARGE = 1 << 20
"""Values of a vector from which on more than one thread is worth it."""


@contextmanager
def threads(number: int) -> Iterator[None]:
    """Small tensors gain nothing from torch's threads, and lose much where something else uses the cores."""
    before = torch.get_num_threads()
    torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)
