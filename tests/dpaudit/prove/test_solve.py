"""Certified visits: exact where they can be, never above the truth where they cannot."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from dpaudit.prove.exploration import solve
from dpaudit.prove.exploration.solve import SCALE_BITS, exact_visits, lower_visits


def random_chain(seed: int, size: int = 40) -> list[tuple[int, int, int, int]]:
    chance = np.random.default_rng(seed)
    edges: dict[tuple[int, int], int] = {}
    for source in range(size):
        for _ in range(3):  # of 4 shares; the fourth leaves the chain
            to = int(chance.integers(size))
            edges[source, to] = edges.get((source, to), 0) + 1
    return [(s, t, n, 4) for (s, t), n in edges.items()]


@pytest.mark.parametrize("seed", range(5))
def test_the_two_solvers_agree_and_the_bounds_are_below(seed) -> None:
    edges = random_chain(seed)
    exact = exact_visits(40, 0, edges)
    lower = lower_visits(40, 0, edges)
    assert exact is not None
    for truth, bound in zip(exact, lower, strict=True):
        assert Fraction(bound, 1 << SCALE_BITS) <= truth
        assert truth - Fraction(bound, 1 << SCALE_BITS) < Fraction(1, 1 << 80)
    for state, visits in enumerate(exact):  # v = e + v·P, exactly
        arrived = sum((exact[s] * n / d for s, t, n, d in edges if t == state), Fraction(0))
        assert visits == arrived + (state == 0)


def test_what_floats_propose_too_high_is_lowered() -> None:
    edges = random_chain(7)
    exact = exact_visits(40, 0, edges)
    scale = 1 << SCALE_BITS
    proposed = [int(v * scale * Fraction(11, 10)) for v in exact]
    for truth, bound in zip(exact, solve._lowered(proposed, 40, 0, edges, scale), strict=True):
        assert Fraction(bound, scale) <= truth


def test_a_chain_without_an_end_gives_nothing() -> None:
    edges = [(0, 1, 1, 2), (1, 1, 1, 1)]
    assert exact_visits(2, 0, edges) is None
    assert all(v >= 0 for v in lower_visits(2, 0, edges))
