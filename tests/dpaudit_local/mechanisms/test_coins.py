"""Biased bits and bounded whole numbers: the same as with Python's integers, and their law."""

import numpy as np
import pytest
import scipy.stats

from dpaudit.errors import UsageError
from dpaudit.numeric.random_words import below, jit, seed_words, start
from dpaudit.randomness import KeyedStream
from dpaudit_local.mechanisms.coins import biased_bits

MASK = 2**64 - 1
FINE, BAD = 1e-4, 1e-9
THRESHOLDS = [1, 2**63, 2**63 + 1, 2**62 * 3, MASK, int(0.1192 * 2**64) | 1, 2**54 + 2**20]


def mixed(x):
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & MASK
    return x ^ (x >> 31)


def sfc64(seed, row, block):
    """The words of one generator, by Python's integers."""
    a = (seed[0] + mixed((row + 0x9E3779B97F4A7C15) & MASK)) & MASK
    b = seed[1] ^ mixed((block + 0xD1B54A32D192ED03) & MASK)
    c, n, step = seed[2], 1, 0
    while True:
        word = (a + b + n) & MASK
        a, b, c = b ^ (b >> 11), (c + (c << 3)) & MASK, (((c << 24) | (c >> 40)) + word) & MASK
        n, step = n + 1, step + 1
        if step > 18:
            yield word


def fractions_below(words, threshold):
    """Which of 64 lanes' binary fractions, first bits first, are below the threshold."""
    lanes = [0] * 64
    for word in words:
        lanes = [2 * lane + (word >> i & 1) for i, lane in enumerate(lanes)]
    return sum((lane < threshold) << i for i, lane in enumerate(lanes))


@pytest.mark.parametrize("threshold", THRESHOLDS)
def test_a_lane_is_one_where_its_fraction_is_less(stream, threshold):
    bits = biased_bits(20, 64, words=threshold, stream=stream)
    seed = [int(w) for w in seed_words(stream)]
    for row in range(20):
        words = sfc64(seed, row, 0)
        expected = fractions_below([next(words) for _ in range(64)], threshold)
        assert int.from_bytes(bits[row].tobytes(), "little") == expected


def test_no_words_no_ones_and_the_edges_of_what_is_asked(stream):
    assert not biased_bits(5, 128, words=0, stream=stream).any()
    assert biased_bits(0, 8, words=1, stream=stream).shape == (0, 1)
    whole = biased_bits(9, 128, words=2**60, stream=stream)
    assert (biased_bits(4, 72, words=2**60, stream=stream) == whole[:4, :9]).all()
    for bits, words in ((0, 1), (12, 1), (8, -1), (8, 2**64)):
        with pytest.raises(UsageError):
            biased_bits(1, bits, words=words, stream=stream)


def law_p(bits, q):
    """The least p-value of: ones at each place, ones in all, neighbours that are both one."""
    b = np.unpackbits(bits, axis=1, bitorder="little").astype(np.int64)
    n = len(b)
    one = scipy.stats.chi2.sf(
        (((b.sum(axis=0) - n * q) ** 2) / (n * q * (1 - q))).sum(), b.shape[1]
    )
    total = scipy.stats.binomtest(int(b.sum()), b.size, q).pvalue
    pairs = [
        scipy.stats.binomtest(int((x & y).sum()), x.size, q * q).pvalue
        for x, y in ((b[:, 1::2], b[:, ::2]), (b[1::2], b[::2]), (b[:, 64:], b[:, :64]))
    ]
    return min(one, total, *pairs)


@pytest.mark.parametrize("words", [THRESHOLDS[5], 2**64 // 56, 2**62 * 3])
def test_every_place_has_the_probability_and_none_depends_on_another(words):
    bits = biased_bits(20_000, 128, words=words, stream=KeyedStream.from_seed("law"))
    assert law_p(bits, words / 2**64) > FINE
    assert law_p(bits, words / 2**64 * 1.05) < BAD
    assert law_p(np.concatenate([bits[:, :8], bits[:, :8]], axis=1), words / 2**64) < BAD


@jit
def _numbers(out, bound, seed):
    for i in range(out.size):
        a, b, c, n = start(seed, i, 0)
        a, b, c, n, out[i] = below(bound, a, b, c, n)


def test_numbers_below_a_bound_are_equally_likely(stream):
    # of 3·2^30 numbers a third would be twice as likely without refusing words
    for bound in (3 << 30, 7, 65536):
        out = np.empty(60_000, np.uint64)
        _numbers(out, np.uint64(bound), seed_words(stream))
        assert out.max() < bound
        for kinds in (3, 7, 2):
            share = np.array([len(range(r, bound, kinds)) for r in range(kinds)]) / bound
            expected = share * out.size
            seen = np.bincount((out % np.uint64(kinds)).astype(np.int64), minlength=kinds)
            assert scipy.stats.chisquare(seen, expected).pvalue > FINE
    _numbers(out, np.uint64(1), seed_words(stream))
    assert not out.any()
