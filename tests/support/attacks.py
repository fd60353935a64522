"""What attacks say, in the shape that tests compare."""

from __future__ import annotations

import numpy as np

from dpaudit.protocols import UnitSupport


def possible(attack, releases, value):
    """Whether each unit of releases (t, k) can have come from ``value`` (k,): (t, u), bool."""
    return attack.score(releases, UnitSupport(value)) == 0


class Support:
    """A support attack from a rule ``rule(releases, value)``, bool (t, u)."""

    games = ("support",)

    def __init__(self, rule):
        self.rule = rule

    def score(self, releases, hypotheses):
        scores = self.rule(releases, hypotheses.value)
        return np.where(scores, 0.0, -np.inf) if scores.dtype == bool else scores
