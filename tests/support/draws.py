"""One draw of a target by its text, or one release, in a process of its own."""

from __future__ import annotations

import numpy as np

from dpaudit.protocols import Request
from dpaudit.targets import open_sampler
from dpaudit.targets.resolve import open_mechanism


def draw(text, n=4, d=2, *, timeout=20.0, **options):
    with open_sampler(text, **{"seed": "1", **options}).open(timeout=60) as sampler:
        return sampler.ask(Request(n, d), timeout=timeout).values


def release(text, value=(1.0,), n=3, *, timeout=60.0, **options):
    with open_mechanism(text, seed="1", **options).open(timeout=60) as mechanism:
        return mechanism.ask(
            Request(n, input=np.asarray(value, dtype=np.float64)), timeout=timeout
        ).values
