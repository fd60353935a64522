"""What devices submit: who, how often, in which order, and what that costs."""

import itertools
import math

import numpy as np
import pytest
import scipy

from dpaudit import registry
from dpaudit.accounting.sequences import Loss, compose
from dpaudit.accounting.shuffling import shuffled_epsilon
from dpaudit.errors import UsageError
from dpaudit.protocols import SubmissionPolicy
from dpaudit.randomness import KeyedStream
from dpaudit.testing import check_submission_policy
from dpaudit_local.mechanisms.randomized_response import Identity, RandomizedResponse
from dpaudit_local.submissions import Capped, Every, Memoised, Shuffled

STREAM = KeyedStream.from_seed("submissions")
TRUTH = RandomizedResponse(30.0, categories=1000)  # answers truthfully but once in 10¹⁰
COIN = RandomizedResponse(1.0, categories=2)


@pytest.mark.parametrize("name", list(registry.plugins("submissions")))
def test_policies_conform(name):
    check_submission_policy(
        registry.create("submissions", name), RandomizedResponse(1.5, categories=6), universe=6
    )


class Unshuffled(Every):
    """Says that nobody can tell whose the reports are."""

    linked = False


class Nobodys(Every):
    def submit(self, objects, mechanism, *, stream):
        reports, owners = super().submit(objects, mechanism, stream=stream)
        return reports, owners + 1


class Fickle(Every):
    def submit(self, objects, mechanism, *, stream):
        return super().submit(objects, mechanism, stream=KeyedStream.fresh())


class Cheaper(Every):
    def epsilon(self, mechanism, *, objects, users, delta):
        return mechanism.epsilon / objects


class Negative(Every):
    def epsilon(self, mechanism, *, objects, users, delta):
        return -1.0


class Boundless(Every):
    def epsilon(self, mechanism, *, objects, users, delta):
        return 0.0 if delta == 0 else mechanism.epsilon


BROKEN = [
    (Unshuffled, "order of owners"),
    (Nobodys, "owner is not a user"),
    (Fickle, "other submissions"),
    (Cheaper, "objects is"),
    (Negative, "objects is"),
    (Boundless, "δ = 0"),
]


@pytest.mark.parametrize(("broken", "why"), BROKEN)
def test_the_check_fails_what_is_broken(broken, why):
    with pytest.raises(AssertionError, match=why):
        check_submission_policy(broken(), RandomizedResponse(1.5, categories=6), universe=6)


@pytest.mark.parametrize("policy", [Every(), Capped(limit=3), Memoised()])
def test_linked_reports_are_their_owners_in_order(policy):
    objects = np.arange(40).reshape(5, 8) % 7
    reports, owners = policy.submit(objects, TRUTH, stream=STREAM.child("order"))
    for user in range(5):
        kept = objects[user, : 3 if isinstance(policy, Capped) else 8]
        assert np.array_equal(reports.category[owners == user], kept)


def test_memoised_reports_repeat_and_fresh_ones_do_not():
    objects = np.zeros((200, 50), dtype=np.int64)
    for policy, varied in ((Memoised(), 0), (Every(), 200)):
        reports, owners = policy.submit(objects, COIN, stream=STREAM.child("repeat"))
        answers = reports.category.reshape(200, 50)
        assert np.count_nonzero(np.ptp(answers, axis=1)) == varied
        assert np.array_equal(owners, np.repeat(np.arange(200), 50))
    # different people, and different objects of one person, are independent
    answers = (
        Memoised()
        .submit(np.arange(4000).reshape(2000, 2) % 2, COIN, stream=STREAM.child("pairs"))[0]
        .category
    )
    table = np.histogram2d(*answers.reshape(2000, 2).T, bins=2)[0]
    assert scipy.stats.chi2_contingency(table).pvalue > 1e-3


def test_memoised_large_objects_stay_what_they_are():
    objects = np.array([[2**62, 3, 2**62], [5, 2**62, 5], [7, 8, 2**63 - 1]])
    reports, owners = Memoised().submit(objects, Identity(), stream=STREAM)
    assert np.array_equal(reports.category.reshape(3, 3), objects)
    assert np.array_equal(owners, np.repeat(np.arange(3), 3))


def test_memoised_shows_the_pattern_of_repetition_so_its_epsilon_is_infinite():
    """Two of the four pairs of answers cannot come from one object twice: an event rules it out."""
    p = math.exp(COIN.epsilon) / (1 + math.exp(COIN.epsilon))
    same = np.array([p, 0, 0, 1 - p])  # object 0 twice: answers 00, 01, 10, 11
    other = np.outer([p, 1 - p], [1 - p, p]).ravel()  # objects 0, 1
    assert same.sum() == pytest.approx(1)
    assert other.sum() == pytest.approx(1)
    with np.errstate(divide="ignore"):
        assert np.abs(np.log(other / same)).max() == math.inf
    assert Memoised().epsilon(COIN, objects=2, users=1000, delta=1e-6) == math.inf
    assert Memoised().epsilon(COIN, objects=1, users=1000, delta=1e-6) == COIN.epsilon


def test_the_shuffler_sends_every_round_whole_and_in_any_order():
    objects = np.tile(np.arange(6)[:, None], (1, 3000))
    reports, owners = Shuffled().submit(objects, TRUTH, stream=STREAM.child("shuffle"))
    rounds = owners.reshape(3000, 6)
    assert np.array_equal(np.sort(rounds, axis=1), np.tile(np.arange(6), (3000, 1)))
    assert np.array_equal(reports.category, owners)  # the second array says whose each really is
    seen = np.array([np.bincount(rounds[:, place], minlength=6) for place in range(6)])
    assert scipy.stats.chisquare(seen.ravel()).pvalue > 1e-3
    ranks = np.array([np.flatnonzero(r == 0)[0] for r in rounds])
    assert (
        scipy.stats.chi2_contingency(np.histogram2d(ranks[:-1], ranks[1:], bins=6)[0]).pvalue > 1e-3
    )


def test_epsilon_of_many_reports():
    """At δ = 0 the basic bound; at δ > 0 the exact one of repeated randomised response."""
    assert Every().epsilon(COIN, objects=180, users=10, delta=0.0) == pytest.approx(180)
    assert Capped(limit=30).epsilon(COIN, objects=180, users=10, delta=0.0) == pytest.approx(30)
    bound = Every().epsilon(COIN, objects=20, users=10, delta=1e-3)
    assert (
        _delta_of_coins(20, 1.0, bound - 1e-6)
        > 1e-3 * (1 - 1e-3)
        >= _delta_of_coins(20, 1.0, bound + 0.1)
    )
    assert _delta_of_coins(20, 1.0, bound) <= 1e-3 * (1 + 1e-9)


def _delta_of_coins(n, epsilon, at):
    p = math.exp(epsilon) / (1 + math.exp(epsilon))
    k = np.arange(n + 1)
    a, b = scipy.stats.binom.pmf(k, n, p), scipy.stats.binom.pmf(k, n, 1 - p)
    return np.maximum(a - math.exp(at) * b, 0).sum()


def test_shuffling_amplifies_in_a_crowd_and_never_costs():
    alone = Every().epsilon(COIN, objects=10, users=1, delta=1e-6)
    crowd = [
        Shuffled().epsilon(COIN, objects=10, users=n, delta=1e-6) for n in (2, 10_000, 1_000_000)
    ]
    assert alone >= crowd[0] >= crowd[1] >= crowd[2] > 0
    assert crowd[2] < alone / 50
    assert Shuffled().epsilon(COIN, objects=10, users=1_000_000, delta=0.0) == pytest.approx(10)


@pytest.mark.parametrize(("lies", "delta"), [*itertools.product([0, 29], [1e-4, 0.05])])
def test_shuffled_rounds_are_no_further_apart_than_epsilon(lies, delta):
    """Three rounds of 60 coins, by each round's number of ones, ``lies`` of the others at 1."""
    p = math.exp(COIN.epsilon) / (1 + math.exp(COIN.epsilon))
    ones = np.convolve(_coins(59 - lies, 1 - p), _coins(lies, p))
    here, there = np.convolve(ones, [p, 1 - p]), np.convolve(ones, [1 - p, p])
    one, other = (np.multiply.outer(np.multiply.outer(x, x), x).ravel() for x in (here, there))
    epsilon = Shuffled().epsilon(COIN, objects=3, users=60, delta=delta)
    assert epsilon < Every().epsilon(COIN, objects=3, users=60, delta=delta)
    assert np.maximum(one - math.exp(epsilon) * other, 0).sum() <= delta
    assert np.maximum(other - math.exp(epsilon) * one, 0).sum() <= delta
    round_delta = delta / 6
    once = Loss(shuffled_epsilon(1.0, round_delta, users=60), round_delta)
    assert epsilon == compose([once] * 3, delta=delta)


def _coins(n, p):
    return scipy.stats.binom.pmf(np.arange(n + 1), n, p)


def test_a_limit_is_a_number_of_reports_and_objects_are_a_table():
    for limit in (0, -1, 1.5, True):
        with pytest.raises(UsageError, match="limit="):
            Capped(limit=limit)
    some = np.zeros((2, 2), int)
    for bad in (some[0], some[:0], some * 1.0, some - 1, np.full((2, 2), 2**63, np.uint64)):
        for policy in (Every(), Capped(), Memoised(), Shuffled()):
            assert isinstance(policy, SubmissionPolicy)
            with pytest.raises(UsageError, match="objects of"):
                policy.submit(bad, COIN, stream=STREAM)
