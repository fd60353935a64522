"""The specimen's reports have the honest law, and its coins can be found again."""

import itertools
import math

import numpy as np
import pytest
from scipy import stats

from dpaudit.errors import UsageError
from dpaudit.local.count_mean_sketch import CountMeanSketch
from dpaudit.local.count_median_sketch import CountMedianSketch
from dpaudit.local.hadamard_sketch import HadamardSketch
from dpaudit.local.one_bit_histogram import OneBitHistogram
from dpaudit.local.randomized_response import RandomizedResponse
from dpaudit.local.rappor import Rappor
from dpaudit.local.report_bits import report_bits
from dpaudit.local.seed_in_reports import SeededCoins, SeedInReports
from dpaudit.noise.seed_in_noise.nonces import KeyedNonces
from dpaudit.randomness import KeyedStream

STREAM = KeyedStream.from_seed(23)


def device(mechanism, *, bits=128, series=1):
    return SeedInReports(mechanism, nonces=KeyedNonces(bytes(32), bits=bits), series=series)


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
            which = mine & part
            ones = int((said & which).sum())
            assert stats.binomtest(ones, int(which.sum()), float(chance)).pvalue > 1e-4
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
        (lambda: device(RandomizedResponse(1.0)), "take a shorter nonce"),
        (lambda: device(CountMeanSketch(4.0, m=64)), "take a shorter nonce or a longer series"),
        (lambda: device(RandomizedResponse(1.0, categories=3)), "only yes and no"),
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
