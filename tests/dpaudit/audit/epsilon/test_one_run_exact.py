"""The one-run bounds against the worst mechanism there is, written down and checked exactly."""

import importlib.util
import itertools
import math
from pathlib import Path

import pytest

from dpaudit.audit.epsilon.one_run import (
    Guesses,
    one_run_p,
    one_run_p_tradeoff,
    tradeoff_of_epsilon,
)

_FILE = Path(__file__).parents[4] / "benchmarks" / "one_run_exact.py"
_SPEC = importlib.util.spec_from_file_location("one_run_exact", _FILE)
exact = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(exact)


def outputs(m, r, law, coins):
    """The mechanism's output, which canaries are guessed and how, with its probability."""
    found = {}
    for guessed in itertools.combinations(range(m), r):
        for bits in itertools.product((0, 1), repeat=r):
            t = sum(coins[i] == bit for i, bit in zip(guessed, bits, strict=True))
            found[guessed, bits] = law[t] / (math.comb(m, r) * math.comb(r, t))
    return found


@pytest.mark.parametrize(("m", "r", "v"), [(5, 5, 4), (6, 3, 3), (5, 2, 2)])
@pytest.mark.parametrize(("epsilon", "delta"), [(0.5, 0.0), (0.5, 0.05), (1.0, 0.01)])
def test_the_worst_mechanism_is_as_private_as_claimed_and_keeps_the_bounds(m, r, v, epsilon, delta):
    tail, law = exact.largest_tail(m, r, v, epsilon=epsilon, delta=delta)
    here = outputs(m, r, law, (0,) * m)
    there = outputs(m, r, law, (1,) + (0,) * (m - 1))
    assert sum(here.values()) == pytest.approx(1)
    grow = math.exp(epsilon)
    assert sum(max(0.0, p - grow * there[o]) for o, p in here.items()) <= delta + 1e-9
    assert sum(max(0.0, p - grow * here[o]) for o, p in there.items()) <= delta + 1e-9
    assert sum(p for (_, bits), p in here.items() if bits.count(0) >= v) == pytest.approx(tail)
    guesses = Guesses(r, 0, v)
    for bound in (
        one_run_p(m, guesses, epsilon=epsilon, delta=delta),
        one_run_p_tradeoff(m, guesses, tradeoff_of_epsilon(epsilon, delta)),
    ):
        assert tail <= bound * (1 + 2e-3)


def test_the_bounds_are_near_the_best_there_is():
    for m, r, v, epsilon, delta in exact.CASES[3:6]:
        tail, _ = exact.largest_tail(m, r, v, epsilon=epsilon, delta=delta)
        guesses = Guesses(r, 0, v)
        found = one_run_p_tradeoff(m, guesses, tradeoff_of_epsilon(epsilon, delta))
        assert tail <= found <= 1.1 * tail
