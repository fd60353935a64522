"""A session of a mechanism in this process, for tests only."""

from __future__ import annotations

import numpy as np

from dpaudit.protocols import Facts, Reply


class InProcess:
    """Releases by ``function(value, n)``, one row each; ``asked`` keeps what was asked."""

    name = "test mechanism"

    def __init__(self, function, advice=""):
        self.function, self.asked = function, []
        self.facts = Facts({"releases"}, advice=advice)

    def ask(self, request, *, timeout):
        value, n = request.input, request.rows
        self.asked.append((tuple(value), n))
        return Reply(np.asarray(self.function(value, n), dtype=np.float64).reshape(n, -1))
