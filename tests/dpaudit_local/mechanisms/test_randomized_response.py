"""The exact law and ε of the sampler itself, estimates and their errors, and refusals."""

import itertools
import math
from decimal import Decimal, localcontext
from fractions import Fraction

import numpy as np
import pytest
import scipy.stats
from support.laws import largest_ratio, logarithm

from dpaudit.errors import UsageError
from dpaudit.randomness import KeyedStream
from dpaudit_local.mechanisms.coins import lying_words
from dpaudit_local.mechanisms.randomized_response import (
    RandomizedResponse,
    RandomizedResponseServer,
)
from dpaudit_local.mechanisms.reports import CategoryReports

LAWS = [(0.01, 2), (1.0, 2), (math.log(3), 2), (0.5, 3), (2.0, 7), (8.0, 5), (32.0, 3)]


class Words:
    """A stream that says what it is told to."""

    def __init__(self, words):
        self.words = words

    def child(self, *labels):
        return self

    def bytes(self, n):
        assert n == 8 * len(self.words)
        return np.array(self.words, dtype="<u8").tobytes()


def law_of_the_sampler(mechanism):
    """P(answer | object), exactly: how many of 2^64 words make the sampler say what.

    Words that follow each other make one answer but at the borders of the intervals; each interval
    is probed at both ends.
    """
    k, (_, lie) = mechanism.categories, mechanism.words
    borders = [i * lie for i in range(k)] + [2**64]
    ends = [word for low, high in itertools.pairwise(borders) for word in (low, high - 1)]
    law = {}
    for x in range(k):
        said = mechanism.privatize(np.full(len(ends), x), stream=Words(ends)).category
        assert (said[::2] == said[1::2]).all()
        for i, answer in enumerate(said[::2].tolist()):
            share = Fraction(borders[i + 1] - borders[i], 2**64)
            law[x, answer] = law.get((x, answer), Fraction(0)) + share
    return law


@pytest.mark.parametrize(("epsilon", "k"), LAWS)
def test_epsilon_is_the_largest_likelihood_ratio_of_the_sampler_itself(epsilon, k):
    mechanism = RandomizedResponse(epsilon, categories=k)
    law = law_of_the_sampler(mechanism)
    assert set(law) == set(itertools.product(range(k), repeat=2))
    assert all(sum(law[x, answer] for answer in range(k)) == 1 for x in range(k))
    exact = logarithm(largest_ratio([[law[x, answer] for answer in range(k)] for x in range(k)]))
    word = Decimal(math.exp(epsilon) + k) ** 2 / Decimal(math.exp(epsilon)) / 2**64
    with localcontext() as context:
        context.prec = 50
        assert 0 <= Decimal(epsilon) - exact <= word
    assert mechanism.epsilon == float(exact)
    logs = mechanism.log_likelihood(CategoryReports(np.arange(k)), np.arange(k))
    np.testing.assert_allclose(
        np.exp(logs), [[float(law[x, a]) for x in range(k)] for a in range(k)], rtol=1e-12
    )


def test_one_word_fewer_for_lies_would_break_the_claim():
    words = lying_words(1.0, 2)
    ratios = (Fraction(2**64 - lies, lies) for lies in (words, words - 1))
    assert next(map(logarithm, ratios)) <= 1 < next(map(logarithm, ratios))


def frequencies(mechanism, x, n, name):
    said = mechanism.privatize(np.full(n, x), stream=KeyedStream.from_seed(name)).category
    return np.bincount(said, minlength=mechanism.categories)


@pytest.mark.parametrize(("epsilon", "k"), [(1.0, 2), (2.0, 7)])
def test_answers_follow_the_law_and_a_little_more_truth_would_be_seen(epsilon, k):
    n = 200_000
    expected = np.full(k, n / (math.exp(epsilon) + k - 1))
    expected[1] *= math.exp(epsilon)
    honest = frequencies(RandomizedResponse(epsilon, categories=k), 1, n, "frequencies")
    assert scipy.stats.chisquare(honest, expected).pvalue > 1e-3
    leaky = frequencies(RandomizedResponse(epsilon + 0.05, categories=k), 1, n, "frequencies")
    assert scipy.stats.chisquare(leaky, expected).pvalue < 1e-6


def test_answers_are_independent_of_each_other():
    objects, stream = np.zeros(400_000, np.int64), KeyedStream.from_seed("pairs")
    said = RandomizedResponse(1.0, categories=2).privatize(objects, stream=stream).category
    for lag in (1, 1 << 15):  # neighbours, and the same place in the next block of words
        table = np.bincount(2 * said[:-lag] + said[lag:], minlength=4).reshape(2, 2)
        assert scipy.stats.chi2_contingency(table).pvalue > 1e-3


def counted(mechanism, answers):
    server = RandomizedResponseServer(mechanism)
    server.add(CategoryReports(answers))
    return server


def test_the_estimate_is_unbiased_in_exact_arithmetic():
    mechanism = RandomizedResponse(1.5, categories=4)
    law = law_of_the_sampler(mechanism)
    each = [counted(mechanism, np.array([answer])).estimate() for answer in range(4)]
    for x in range(4):
        mean = sum(float(law[x, answer]) * each[answer] for answer in range(4))
        np.testing.assert_allclose(mean, np.arange(4) == x, atol=1e-12)


def test_the_contrast_of_a_tiny_epsilon_is_exact():
    mechanism = RandomizedResponse(1e-13, categories=2)
    truth, lie = mechanism.words
    assert mechanism.contrast == float(Fraction(truth - lie, 2**64))
    assert mechanism.contrast == pytest.approx(0.5e-13, rel=1e-5)


def test_the_standard_error_is_that_of_repeated_surveys():
    mechanism = RandomizedResponse(1.0, categories=5)
    people = np.repeat(np.arange(5), [5000, 2500, 1500, 900, 100])
    root = KeyedStream.from_seed("surveys")
    z = []
    for i in range(400):
        server = RandomizedResponseServer(mechanism)
        server.add(mechanism.privatize(people, stream=root.child(i)))
        z.append((server.estimate() - np.bincount(people)) / server.standard_error())
    z = np.array(z)
    low, high = scipy.stats.chi2.ppf([0.0005, 0.9995], len(z))  # for each category
    assert (low < (z**2).sum(axis=0)).all()
    assert ((z**2).sum(axis=0) < high).all()
    assert ((1.2 * z) ** 2).sum(axis=0).max() > high  # a fifth less would be seen


def test_servers_estimate_some_categories():
    mechanism = RandomizedResponse(1.0, categories=3)
    server = RandomizedResponseServer(mechanism)
    server.add(mechanism.privatize(np.arange(3000) % 3, stream=KeyedStream.from_seed("servers")))
    for found in (server.estimate, server.standard_error):
        np.testing.assert_array_equal(found(np.array([2, 0])), found()[[2, 0]])


def test_numpys_numbers_are_numbers():
    for number in (np.float32(2), np.int64(2), Fraction(2)):
        made = RandomizedResponse(number, categories=np.int64(3))
        same = RandomizedResponse(2.0, categories=3)
        assert (made.epsilon, made.lie, made.categories) == (same.epsilon, same.lie, 3)


@pytest.mark.parametrize(
    ("name", "make", "values"),
    [
        ("epsilon", RandomizedResponse, (0, -1.0, math.nan, math.inf, 33.0, True, "1", None)),
        ("categories", lambda k: RandomizedResponse(1.0, categories=k), (1, 0, -3, 2.0, True)),
        # more categories than words
        ("epsilon", lambda k: RandomizedResponse(1e-9, categories=k), (1 << 40, (1 << 40) + 1)),
        ("epsilon", RandomizedResponse, (1e-30,)),
    ],
)
def test_what_is_out_of_range(name, make, values):
    for value in values:
        with pytest.raises(UsageError, match=f"{name}="):
            make(value)


@pytest.mark.parametrize(
    ("objects", "message"),
    [
        (np.array([0, 3]), r"=3: must lie in 0 … 2"),
        (np.array([-1, 0]), r"=-1: must lie in 0 … 2"),
        (np.array([0.0, 1.0]), "type float64"),
        (np.array([True]), "type bool"),
        (np.zeros((2, 2), np.int64), r"shape \(2, 2\)"),
        (np.array(["a"]), "one axis of whole numbers"),
    ],
)
def test_bad_objects_and_reports(objects, message):
    mechanism = RandomizedResponse(1.0, categories=3)
    for name, call in (
        ("objects", lambda: mechanism.privatize(objects, stream=Words([]))),
        ("objects", lambda: mechanism.log_likelihood(CategoryReports(np.array([0])), objects)),
        (r"reports\.category", lambda: counted(mechanism, objects)),
    ):
        with pytest.raises(UsageError, match=f"{name}.*{message}"):
            call()
