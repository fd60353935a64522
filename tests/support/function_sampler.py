"""A target of noise in this process, and its session, for tests only."""

from __future__ import annotations

from contextlib import contextmanager

import numpy as np

from dpaudit.protocols import Facts, Reply


class FunctionSampler:
    """Draws by ``function(n, d)``."""

    def __init__(self, function, *, name="test sampler", dim=None, available=None):
        self.function, self.name = function, name
        self.facts = Facts({"noise"}, dim=dim, available=available)

    @contextmanager
    def open(self, *, timeout):
        yield self

    def ask(self, request, *, timeout):
        return Reply(np.asarray(self.function(request.n, request.dim), dtype=np.float64))
