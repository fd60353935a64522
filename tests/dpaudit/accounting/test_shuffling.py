"""Shuffling against every histogram of a few people, and the pair of laws summed term by term."""

from __future__ import annotations

import itertools
import math
from collections import Counter

import mpmath
import pytest

from dpaudit.accounting.shuffling import (
    _Clones,
    shuffled_delta,
    shuffled_epsilon,
)
from dpaudit.errors import UsageError


def _histograms(inputs, categories, local):
    """The law of the histogram of k-ary randomised responses to ``inputs``, person by person."""
    truth = math.exp(local) / (math.exp(local) + categories - 1)
    lie = 1 / (math.exp(local) + categories - 1)
    law = {(0,) * categories: 1.0}
    for x in inputs:
        after: Counter[tuple[int, ...]] = Counter()
        for counts, p in law.items():
            for y in range(categories):
                more = (*counts[:y], counts[y] + 1, *counts[y + 1 :])
                after[more] += p * (truth if x == y else lie)
        law = after
    return law


def _true_delta(epsilon, *, local, users, categories):
    """The worst over everybody else's answers; by symmetry the person has 0 or 1."""
    worst = 0.0
    for others in itertools.combinations_with_replacement(range(categories), users - 1):
        one, two = (_histograms((x, *others), categories, local) for x in (0, 1))
        for p, q in ((one, two), (two, one)):
            worst = max(worst, sum(max(0.0, v - math.exp(epsilon) * q[k]) for k, v in p.items()))
    return worst


@pytest.mark.parametrize(("users", "categories"), [(1, 2), (7, 2), (15, 2), (5, 3), (4, 4)])
@pytest.mark.parametrize("local", [0.2, 3.0])
def test_the_bounds_hold_for_every_set_of_answers(users, categories, local):
    for share in (0.0, 0.2, 0.5, 0.9):
        epsilon = share * local
        true = _true_delta(epsilon, local=local, users=users, categories=categories)
        assert true <= shuffled_delta(epsilon, local_epsilon=local, users=users) * (1 + 1e-12)
        if not 0 < true < 1:
            continue
        bound = shuffled_epsilon(local, true, users=users)
        # the bound at the true δ cannot lie below the ε that the δ belongs to
        assert epsilon * (1 - 1e-9) <= bound <= local


def _pair_delta(epsilon, *, local, users, clone):
    """The pair of Theorem 3.2, outcome by outcome (a, C): no cumulative sums, no cut."""
    truth = math.exp(local) / (math.exp(local) + 1)
    total = 0.0
    for c in range(users):
        weight = math.comb(users - 1, c) * clone**c * (1 - clone) ** (users - 1 - c)
        for a in range(c + 2):
            low = math.comb(c, a - 1) / 2**c if a else 0.0
            here = math.comb(c, a) / 2**c
            p, q = truth * low + (1 - truth) * here, (1 - truth) * low + truth * here
            total += weight * max(0.0, p - math.exp(epsilon) * q)
    return total


@pytest.mark.parametrize("users", [1, 2, 10, 101])
@pytest.mark.parametrize("local", [0.1, 1.0, 4.0])
def test_delta_is_the_listed_pairs(users, local):
    for share in (0.0, 0.01, 0.3, 0.99):
        listed = _pair_delta(share * local, local=local, users=users, clone=math.exp(-local))
        ours = shuffled_delta(share * local, local_epsilon=local, users=users)
        assert listed * (1 - 1e-12) <= ours <= listed * (1 + 2e-9) + 1e-17


def _given(epsilon, local, c):
    """δ(ε) of the pair given C = c, in 40 digits: the positive terms of P(a) − e^ε·Q(a)."""
    with mpmath.workdps(40):
        e, s, log_of = mpmath.mpf(epsilon), mpmath.mpf(local), mpmath.loggamma
        truth, lie = 1 / (1 + mpmath.exp(-s)), 1 / (1 + mpmath.exp(s))
        near, far = truth - mpmath.exp(e) * lie, mpmath.exp(e) * truth - lie
        a = int(mpmath.floor((c + 1) * far / (near + far))) + 1
        chosen = log_of(c + 1) - log_of(a) - log_of(c - a + 2)
        before, total = mpmath.exp(chosen - c * mpmath.log(2)), mpmath.mpf(0)
        while a <= c + 1:
            here = before * (c + 1 - a) / a
            total += near * before - far * here
            if here < total * mpmath.mpf(10) ** -22:
                break
            before, a = here, a + 1
        return total


@pytest.mark.parametrize("local", [1e-9, 1.0, 8.0])
@pytest.mark.parametrize(("c", "away"), [(0, 1), (7, 1), (1000, 0.5), (10**5, 8), (3 * 10**6, 6)])
def test_many_clones_and_small_epsilons_lose_no_digits(local, c, away):
    """``away`` standard deviations out; differences of cumulative sums alone lose √c/ε₀ of them."""
    epsilon = local * min(0.7, away / math.sqrt(c + 1) * math.tanh(local / 2) / local * 2)
    clones = _Clones(local, c, 1.0, lost=1e-18)
    assert list(clones._starts) == [c]
    assert abs(clones._given(epsilon)[0] / _given(epsilon, local, c) - 1) < 5e-10


@pytest.mark.parametrize(("local", "users"), [(1.0, 101), (3.0, 60), (0.3, 40)])
def test_epsilon_is_the_least_with_that_delta(local, users):
    def listed(epsilon, clone):
        return _pair_delta(epsilon, local=local, users=users, clone=clone)

    for delta in (1e-8, 1e-3, 0.05):
        epsilon = shuffled_epsilon(local, delta, users=users)
        assert listed(epsilon, math.exp(-local)) <= delta
        if epsilon > 0:
            assert listed(epsilon * (1 - 1e-3), math.exp(-local)) > delta * (1 - 2e-4)


@pytest.mark.slow
def test_blocks_of_clones_round_up_and_only_a_little():
    """Where clones are many, the loss is nearly normal with μ ∝ 1/√n, and δ = μ·g(ε/μ)."""
    scaled = []
    for users in (20_000, 10**7, 10**10):  # the first without blocks
        root = math.sqrt(users)
        scaled.append(root * shuffled_epsilon(1.0, 1e-3 / root, users=users))
    assert scaled == sorted(scaled, reverse=True)
    assert scaled[-1] > scaled[0] * 0.998


@pytest.mark.slow
def test_more_people_or_a_larger_delta_never_cost_more():
    for local in (0.5, 2.0, 6.0):
        found = [shuffled_epsilon(local, 1e-6, users=n) for n in (1, 2, 10, 1_000, 100_000)]
        assert found == sorted(found, reverse=True)
        assert found[0] <= local
        by_delta = [shuffled_epsilon(local, d, users=1_000) for d in (1e-12, 1e-6, 0.1)]
        assert by_delta == sorted(by_delta, reverse=True)


@pytest.mark.parametrize(
    "call",
    [
        lambda: shuffled_epsilon(0.0, 1e-6, users=10),
        lambda: shuffled_epsilon(math.inf, 1e-6, users=10),
        lambda: shuffled_epsilon(1e3, 1e-6, users=10),
        lambda: shuffled_epsilon(1.0, 0.0, users=10),
        lambda: shuffled_epsilon(1.0, 1e-6, users=0),
        lambda: shuffled_epsilon(1.0, 1e-6, users=1.5),
        lambda: shuffled_delta(-1.0, local_epsilon=1.0, users=10),
    ],
)
def test_values_out_of_range_are_refused(call):
    with pytest.raises(UsageError):
        call()
