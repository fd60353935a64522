"""Exact tails against counting everything."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from dpaudit.deployments.apple.bits.tails import at_least, at_most, runs_two_sided


def law(first, second):
    """The law of the sum of two binomials by plain convolution."""

    def one(n, p):
        return np.array([math.comb(n, k) * p**k * (1 - p) ** (n - k) for k in range(n + 1)])

    return np.convolve(one(*first), one(*second))


@pytest.mark.parametrize(
    ("first", "second"), [((12, 0.1), (3, 0.9)), ((5, 0.5), (0, 0.3)), ((9, 0.97), (4, 0.03))]
)
def test_tails_of_two_binomials(first, second):
    exact = law(first, second)
    for k in range(-1, len(exact) + 2):
        assert at_least(k, first, second) == pytest.approx(exact[max(k, 0) :].sum(), abs=1e-12)
        assert at_most(k, first, second) == pytest.approx(exact[: max(k + 1, 0)].sum(), abs=1e-12)


def test_large_counts_against_the_normal_law():
    n, p = 10**6, 0.12
    mean, deviation = n * p + 1000 * 0.88, math.sqrt(n * p * (1 - p) + 1000 * 0.88 * 0.12)
    tail = at_least(round(mean + 3 * deviation), (n, p), (1000, 0.88))
    assert tail == pytest.approx(0.00135, rel=0.03)


def runs_by_counting(circles):
    """How often each total number of runs comes up among all arrangements."""
    laws = []
    for size, ones in circles:
        counts = np.zeros(size + 1)
        for where in itertools.combinations(range(size), ones):
            bits = np.isin(np.arange(size), where)
            counts[int((bits & ~np.roll(bits, 1)).sum())] += 1
        laws.append(counts / counts.sum())
    total = laws[0]
    for more in laws[1:]:
        total = np.convolve(total, more)
    return total


@pytest.mark.parametrize(
    "circles", [[(7, 3)], [(8, 4), (8, 4), (6, 2)], [(5, 0), (5, 5), (6, 3)], [(9, 8)]]
)
def test_runs_around_circles(circles):
    exact = runs_by_counting(circles)
    for k in np.flatnonzero(exact):
        expected = min(1.0, 2 * min(exact[: k + 1].sum(), exact[k:].sum()))
        assert runs_two_sided(int(k), circles) == pytest.approx(expected, abs=1e-12)


def test_which_way_round_a_vector_lies_says_nothing_of_its_object():
    """The theorem behind ``check_neighbours``: runs have the law of ones placed at random."""
    m, q = 6, 0.23
    for place in (0, 4):
        seen: dict[tuple[int, int], float] = {}
        for bits in itertools.product((0, 1), repeat=m):
            x = np.array(bits, dtype=bool)
            p = math.prod(
                (1 - q if b else q) if i == place else (q if b else 1 - q)
                for i, b in enumerate(bits)
            )
            key = int(x.sum()), int((x & ~np.roll(x, 1)).sum())
            seen[key] = seen.get(key, 0.0) + p
        for ones in range(1, m):
            mass = sum(p for (n, _), p in seen.items() if n == ones)
            random = runs_by_counting([(m, ones)])
            for runs in range(1, m):
                assert seen.get((ones, runs), 0.0) / mass == pytest.approx(random[runs], abs=1e-12)
