import itertools
import math
from decimal import Decimal, localcontext
from fractions import Fraction

import numpy as np
import pytest
import scipy.stats
from support.laws import largest_ratio, logarithm

from dpaudit.errors import UsageError
from dpaudit.interfaces import LocalMechanism
from dpaudit.local.coins import lying_words
from dpaudit.local.randomized_response import RandomizedResponse, RandomizedResponseServer
from dpaudit.local.reports import CategoryReports
from dpaudit.randomness import KeyedStream

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
        said = mechanism.privatize(np.full(len(ends), x), stream=Words(ends)).category.reshape(
            -1, 2
        )
        assert (said[:, 0] == said[:, 1]).all()
        for answer, (low, high) in zip(
            said[:, 0].tolist(), itertools.pairwise(borders), strict=True
        ):
            law[x, answer] = law.get((x, answer), Fraction(0)) + Fraction(high - low, 2**64)
    return law


@pytest.mark.parametrize(("epsilon", "k"), LAWS)
def test_epsilon_is_the_largest_likelihood_ratio_of_the_sampler_itself(epsilon, k):
    mechanism = RandomizedResponse(epsilon, categories=k)
    law = law_of_the_sampler(mechanism)
    assert set(law) == set(itertools.product(range(k), repeat=2))
    assert all(sum(law[x, answer] for answer in range(k)) == 1 for x in range(k))
    exact = logarithm(largest_ratio([[law[x, answer] for answer in range(k)] for x in range(k)]))
    with localcontext() as context:
        context.prec = 50
        assert exact <= Decimal(epsilon)
        assert (
            Decimal(epsilon) - exact
            <= Decimal(math.exp(epsilon) + k) ** 2 / Decimal(math.exp(epsilon)) / 2**64
        )
    assert mechanism.epsilon == float(exact)
    logs = mechanism.log_likelihood(CategoryReports(np.arange(k)), np.arange(k))
    np.testing.assert_allclose(
        np.exp(logs), [[float(law[x, a]) for x in range(k)] for a in range(k)], rtol=1e-12
    )


def test_one_word_fewer_for_lies_would_break_the_claim():
    words = lying_words(1.0, 2)
    with localcontext() as context:
        context.prec = 50
        assert (
            Decimal(2**64 - words) / words
            <= Decimal(1).exp()
            < Decimal(2**64 - words + 1) / (words - 1)
        )


def test_two_coins_of_the_survey():
    survey = RandomizedResponse.two_coins()
    truth, lie = Fraction(0), Fraction(0)
    # of somebody whose truth is yes
    for first, second in itertools.product(("heads", "tails"), repeat=2):
        said_yes = first == "heads" or second == "heads"
        truth, lie = truth + Fraction(said_yes, 4), lie + Fraction(not said_yes, 4)
    assert survey.words == (truth * 2**64, lie * 2**64)
    assert survey.epsilon == math.log(3)
    assert law_of_the_sampler(survey)[1, 0] == Fraction(1, 4)


@pytest.mark.parametrize("probability", [0.5000001, 0.75, 0.9, 1 - 1e-9])
def test_warners_spinner(probability):
    mechanism = RandomizedResponse.from_truth(probability)
    assert mechanism.truth == pytest.approx(probability, rel=1e-15)
    assert mechanism.epsilon == pytest.approx(math.log(probability / (1 - probability)), rel=1e-7)


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
    mechanism = RandomizedResponse(1.0, categories=2)
    said = mechanism.privatize(
        np.zeros(400_000, np.int64), stream=KeyedStream.from_seed("pairs")
    ).category
    for lag in (1, 1 << 15):  # neighbours, and the same place in the next block of words
        table = np.bincount(2 * said[:-lag] + said[lag:], minlength=4).reshape(2, 2)
        assert scipy.stats.chi2_contingency(table).pvalue > 1e-3


def test_the_estimate_is_unbiased_in_exact_arithmetic():
    mechanism = RandomizedResponse(1.5, categories=4)
    law = law_of_the_sampler(mechanism)
    for x in range(4):
        mean = sum(
            float(law[x, a]) * mechanism.estimate(CategoryReports(np.array([a]))) for a in range(4)
        )
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


def test_servers_add_up():
    mechanism = RandomizedResponse(1.0, categories=3)
    reports = mechanism.privatize(np.arange(3000) % 3, stream=KeyedStream.from_seed("servers"))
    whole, first, second = (RandomizedResponseServer(mechanism) for _ in range(3))
    whole.add(reports)
    first.add(reports[:1000])
    second.add(reports[1000:])
    first.merge(second)
    assert first.reports == 3000
    np.testing.assert_array_equal(first.estimate(), whole.estimate())
    np.testing.assert_array_equal(whole.estimate(np.array([2, 0])), whole.estimate()[[2, 0]])
    np.testing.assert_array_equal(whole.standard_error(np.array([1])), whole.standard_error()[[1]])
    for other in (first, RandomizedResponseServer(RandomizedResponse(1.1, categories=3)), 3):
        with pytest.raises(UsageError, match="server of an equal mechanism"):
            first.merge(other)
    assert first.reports == 3000


def test_the_same_stream_gives_the_same_answers_and_objects_stay_as_they_are():
    mechanism, stream = RandomizedResponse(0.1, categories=9), KeyedStream.from_seed("same")
    objects = np.arange(70_000, dtype=np.uint16) % 9
    before = objects.copy()
    once = mechanism.privatize(objects, stream=stream).category
    np.testing.assert_array_equal(once, mechanism.privatize(objects, stream=stream).category)
    assert (once != mechanism.privatize(objects, stream=stream.child(1)).category).mean() > 0.5
    np.testing.assert_array_equal(objects, before)
    assert once.dtype == np.int64
    assert isinstance(mechanism, LocalMechanism)
    assert len(mechanism.privatize(np.empty(0, np.int64), stream=stream)) == 0


@pytest.mark.parametrize("number", [np.float32, np.int64, Fraction])
def test_numpys_numbers_are_numbers(number):
    assert RandomizedResponse(number(2), categories=np.int64(3)) == RandomizedResponse(
        2.0, categories=3
    )


@pytest.mark.parametrize("epsilon", [0, -1.0, math.nan, math.inf, 33.0, True, "1", None])
def test_epsilon_out_of_range(epsilon):
    with pytest.raises(UsageError, match=r"epsilon=.*"):
        RandomizedResponse(epsilon)


@pytest.mark.parametrize("categories", [1, 0, -3, 2.0, True])
def test_categories_out_of_range(categories):
    with pytest.raises(UsageError, match=r"categories=.*"):
        RandomizedResponse(1.0, categories=categories)


@pytest.mark.parametrize(
    ("epsilon", "categories"), [(1e-9, 1 << 40), (1e-9, (1 << 40) + 1), (1e-30, 2)]
)
def test_more_categories_than_words(epsilon, categories):
    with pytest.raises(UsageError, match=r"epsilon=1e-.*"):
        RandomizedResponse(epsilon, categories=categories)


@pytest.mark.parametrize("probability", [0.5, 1.0, 0.2, math.nan])
def test_spinner_out_of_range(probability):
    with pytest.raises(UsageError, match=r"probability=.*"):
        RandomizedResponse.from_truth(probability)


@pytest.mark.parametrize(
    ("objects", "message"),
    [
        (np.array([0, 3]), r"=3: must lie in 0 … 2; "),
        (np.array([-1, 0]), r"=-1: must lie in 0 … 2; "),
        (np.array([0.0, 1.0]), "type float64: one axis of whole numbers; "),
        (np.array([True]), "type bool: one axis"),
        (np.zeros((2, 2), np.int64), r"shape \(2, 2\)"),
        (np.array(["a"]), "one axis of whole numbers"),
    ],
)
def test_bad_objects_and_reports(objects, message):
    mechanism, stream = RandomizedResponse(1.0, categories=3), KeyedStream.from_seed(0)
    with pytest.raises(UsageError, match="objects.*" + message):
        mechanism.privatize(objects, stream=stream)
    with pytest.raises(UsageError, match="objects.*" + message):
        mechanism.log_likelihood(CategoryReports(np.array([0])), objects)
    with pytest.raises(UsageError, match=r"reports\.category.*" + message):
        mechanism.estimate(CategoryReports(objects))
