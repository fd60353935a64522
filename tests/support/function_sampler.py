"""A closed sampler in this process, for tests only."""

from __future__ import annotations

import numpy as np


class FunctionSampler:
    """Draws by ``function(n, d)``."""

    dim = None
    available = None

    def __init__(self, function, *, name="test sampler", dim=None, available=None):
        self.function, self.name, self.dim, self.available = function, name, dim, available

    def draw(self, n, d, *, timeout):
        return np.asarray(self.function(n, d), dtype=np.float64)

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        return None
