"""Reports as coins: the specimen's have the honest law and are found again; coins tossed twice."""

import itertools
import math

import numpy as np
import pytest
from scipy import stats

from dpaudit.errors import UsageError
from dpaudit.noise.seed_in_noise.nonces import KeyedNonces
from dpaudit.randomness import KeyedStream
from dpaudit_local.mechanisms.count_mean_sketch import CountMeanSketch, CountMedianSketch
from dpaudit_local.mechanisms.hadamard_sketch import HadamardSketch
from dpaudit_local.mechanisms.one_bit_histogram import OneBitHistogram
from dpaudit_local.mechanisms.randomized_response import RandomizedResponse
from dpaudit_local.mechanisms.rappor import Rappor
from dpaudit_local.seed_in_reports.bits import SecondCoins, report_bits
from dpaudit_local.seed_in_reports.specimen import SeededCoins, SeedInReports

STREAM = KeyedStream.from_seed(23)


def device(mechanism, *, bits=128, series=1):
    return SeedInReports(mechanism, nonces=KeyedNonces(bytes(32), bits=bits), series=series)


def agrees(seen, mine, chance):
    """Whether the share of ones where ``mine`` is as it should be."""
    ones = int((seen & mine).sum())
    return stats.binomtest(ones, int(mine.sum()), float(chance)).pvalue > 1e-4


@pytest.mark.slow
def test_patterns_of_answers_have_the_honest_law_across_head_and_rest():
    honest, series, n = RandomizedResponse(1.0), 100, 4000
    made = device(honest, bits=32, series=series)
    edge = made.coins.bits
    assert 0 < edge < series
    objects = np.tile(np.arange(series) % 3 == 0, n).astype(np.int64)
    said = made.privatize(objects, stream=STREAM).category.reshape(n, series)
    lies = said != objects.reshape(n, series)
    for at in (0, 20, edge - 4, series - 8):  # start, middle, border and end
        pattern = np.packbits(lies[:, at : at + 8], axis=1)[:, 0]
        wrong = np.bitwise_count(np.arange(256, dtype=np.uint8))
        chance = honest.lie**wrong * honest.truth ** (8.0 - wrong)
        assert stats.chisquare(np.bincount(pattern, minlength=256), n * chance).pvalue > 1e-4
    assert stats.kstest(stats.zscore(lies.sum(1) + STREAM.uniform(n)), "norm").pvalue > 1e-4


@pytest.mark.slow
def test_public_coins_have_the_honest_law():
    made, n = device(OneBitHistogram(1.0, positions=12), bits=64, series=20), 3000
    assert (made.coins.coins, made.coins.bits) == (18, 0)
    said = made.privatize(np.zeros(20 * n, dtype=np.int64), stream=STREAM)
    places = said.position.reshape(n, 20).astype(int)
    for one, two in ((0, 1), (9, 17), (17, 18), (18, 19)):
        found = np.bincount(places[:, one] * 12 + places[:, two], minlength=144)
        assert stats.chisquare(found).pvalue > 1e-4
    flipped = (said.sign < 0) != (said.position != 0)
    assert stats.binomtest(int(flipped.sum()), 20 * n, made.mechanism.flip).pvalue > 1e-4


@pytest.mark.slow
@pytest.mark.parametrize(
    ("mechanism", "bits"),
    [(Rappor(), 80), (CountMeanSketch(2.0, m=512, functions=4), 64)],
    ids=["rappor", "sketch"],
)
def test_bits_have_the_honest_law_given_the_object(mechanism, bits):
    made, n = device(mechanism, bits=bits), 1000
    view = made.coins.view
    coins, said = view.parts(made.privatize(np.full(n, 7), stream=STREAM))
    own = view.truth(coins, np.full(n, 7))
    head = np.arange(view.bits) < made.coins.bits
    for part in (head, ~head):
        for mine, chance in ((own, view.high), (~own, view.low)):
            assert agrees(said, mine & part, chance)
    pairs = said[:, :-1] * 2 + said[:, 1:]
    low = float(view.low)
    both = (~own[:, :-1] & ~own[:, 1:])[:, ::2]
    found = np.bincount(pairs[:, ::2][both].astype(int), minlength=4)
    law = np.array([(1 - low) ** 2, low * (1 - low), low * (1 - low), low**2])
    assert stats.chisquare(found, found.sum() * law).pvalue > 1e-4
    assert stats.chisquare(np.bincount(coins, minlength=view.values)).pvalue > 1e-4


def test_the_intervals_of_all_heads_part_the_numbers_by_the_exact_law():
    coins = SeededCoins(report_bits(RandomizedResponse(0.5)), size=1, series=60)
    whole, words, at = 1 << (64 * coins.bits), coins.view.words, 0
    for head in sorted(itertools.product((False, True), repeat=6), reverse=True):
        low, high = coins.interval(np.zeros(0, np.int64), np.array(head))
        ones = sum(head)
        assert low == at
        assert (high - low) << 384 == whole * words**ones * ((1 << 64) - words) ** (6 - ones)
        at = high
    assert at == whole
    coins = SeededCoins(report_bits(OneBitHistogram(1.0, positions=5)), size=1, series=4)
    at = 0
    for head in itertools.product(range(5), repeat=4):
        low, high = coins.interval(np.array(head), np.zeros(0, bool))
        assert low == at
        assert (high - low) / 2**256 == pytest.approx(1 / 625, abs=coins.distance)
        at = high
    assert at == 1 << 256


@pytest.mark.parametrize(
    ("mechanism", "bits", "series"),
    [
        (CountMeanSketch(4.0), 128, 1),
        (Rappor(), 80, 1),
        (HadamardSketch(4.0), 128, 5),
        (OneBitHistogram(1.0), 128, 11),
        (RandomizedResponse(0.1), 128, 192),
    ],
    ids=["sketch", "rappor", "hadamard", "one-bit", "answers"],
)
def test_coins_are_found_again_from_the_head(mechanism, bits, series):
    nonces = KeyedNonces(bytes(32), bits=bits)
    coins = device(mechanism, bits=bits, series=series).coins
    for i in range(5):
        nonce, seed = nonces.fresh(STREAM.child(i))
        made = coins.draw(nonce, seed)
        first = made.first.ravel()[: coins.bits]
        low, high = coins.interval(made.public, first)
        assert nonce in coins.nonces(low, high, limit=64)
        again = coins.tail(nonce, seed, low, high, first)
        assert (again.first == made.first).all()
        assert (again.second == made.second).all()
        assert (again.public[coins.coins :] == made.public[coins.coins :]).all()
        assert coins.tail(nonce, seed, high, high + 1, first) is None
        assert coins.nonces(0, 1 << (64 * (coins.coins + coins.bits)), limit=64) == []
    assert coins.distance <= 1e-14


def test_log_odds_are_the_mechanism_s_own():
    for mechanism in (CountMeanSketch(2.0, m=64, functions=4), Rappor(cohorts=2)):
        view, objects = report_bits(mechanism), np.arange(6)
        reports = mechanism.privatize(objects, stream=STREAM)
        coins, bits = view.parts(reports)
        said = mechanism.log_likelihood(reports, objects)
        for row, coin, own in zip(said, coins, bits, strict=True):
            mine = view.log_odds(own, view.truth(np.full(6, coin), objects), view.low, view.high)
            assert np.allclose(mine - mine[0], row - row[0])
        assert view.epsilon(view.low, view.high) == pytest.approx(mechanism.epsilon)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: device(RandomizedResponse(1.0)), "use a shorter nonce"),
        (lambda: device(CountMeanSketch(4.0, m=64)), "use a shorter nonce or a longer series"),
        (lambda: device(RandomizedResponse(1.0, categories=3)), "must be 2, yes and no"),
        (lambda: device(CountMedianSketch()), "one of CountMeanSketch"),
        (lambda: device(Rappor(f=0.5, p=0.1, q=0.3)), "needs p"),
        (lambda: device(CountMeanSketch(4.0), series=0), "series=0"),
        (
            lambda: device(HadamardSketch(4.0), series=5).privatize(
                np.zeros(7, int), stream=STREAM
            ),
            "a multiple of series=5",
        ),
    ],
)
def test_refusals(make, says):
    with pytest.raises(UsageError, match=says):
        make()


def test_a_short_nonce_repeats_and_then_so_do_all_coins():
    made = device(HadamardSketch(1.0, m=64, functions=16), bits=8)
    n = 2000
    said = made.privatize(np.full(n, 5), stream=STREAM)
    coin = said.function.astype(int) * 64 + said.coordinate
    assert all(len(set(said.sign[coin == c].tolist())) == 1 for c in set(coin.tolist()))
    assert len(set(coin.tolist())) <= 256
    assert math.isclose(made.epsilon, 1.0)


# the second randomisation: its law, both ε, and its price


def test_two_stages_of_four_make_2_65_and_cost_a_factor():
    twice = SecondCoins(CountMeanSketch(4.0), epsilon=4.0)
    q = 1 / (1 + math.e**2)
    both = 2 * q * (1 - q)
    assert twice.epsilon == pytest.approx(2 * math.log((1 - both) / both))
    assert twice.second_epsilon == pytest.approx(4.0)
    error = math.sqrt(both * (1 - both)) / (1 - 2 * both)
    assert twice.error == pytest.approx(error / (math.sqrt(q * (1 - q)) / (1 - 2 * q)))
    sign = SecondCoins(HadamardSketch(1.0), epsilon=1.0)
    kept = (math.e - 1) / (math.e + 1)
    assert sign.error == pytest.approx(1 / kept)
    assert sign.epsilon == pytest.approx(math.log((1 + kept**2) / (1 - kept**2)))


@pytest.mark.parametrize(
    "mechanism",
    [CountMeanSketch(4.0, m=64, functions=4), Rappor(bits=64), RandomizedResponse(1.0)],
    ids=["sketch", "rappor", "answer"],
)
def test_reports_have_the_composed_law(mechanism):
    twice, view = SecondCoins(mechanism, epsilon=2.0), report_bits(mechanism)
    objects = np.ones(4000, dtype=np.int64)
    coins, bits = view.parts(twice.privatize(objects, stream=KeyedStream.from_seed(5)))
    own = view.truth(coins, objects)
    assert agrees(bits, own, twice.high)
    assert own.all() or agrees(bits, ~own, twice.low)
    assert len(bits) == 4000


def test_second_coins_do_not_depend_on_the_first():
    """With the first stage's coins known, what is left has the second's ε and no less."""
    stream, sketch = KeyedStream.from_seed(5), CountMeanSketch(4.0, m=64, functions=4)
    twice, view = SecondCoins(sketch, epsilon=4.0), report_bits(sketch)
    first = sketch.privatize(np.arange(3000), stream=stream)
    again = twice.again(first, stream=stream)
    flips = view.parts(first)[1] != view.parts(again)[1]
    assert stats.binomtest(int(flips.sum()), flips.size, 1 / (1 + math.e**2)).pvalue > 1e-4
    own = view.truth(view.parts(first)[0], np.arange(3000))
    lies = view.parts(first)[1] != own
    table = np.bincount((flips * 2 + lies).ravel(), minlength=4).reshape(2, 2)
    assert stats.chi2_contingency(table).pvalue > 1e-4
