"""The same coins give the compiled kernels and their plain Python forms the same values."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from fractions import Fraction

import numpy as np
import pytest

from dpaudit.noise.geometric import GeometricInversion
from dpaudit.noise.secure_gaussian import SecureGaussian
from dpaudit.numeric.chacha import BulkWords, block, key_words
from dpaudit.numeric.exact_integers import IntegerLaw, draw_integers
from dpaudit.numeric.random_words import next_word, seed_words, start
from dpaudit.randomness import KeyedStream
from dpaudit_local.mechanisms.coins import _fill
from dpaudit_local.mechanisms.hadamard_sketch import _draw
from dpaudit_local.mechanisms.randomized_response import RandomizedResponse
from tests.data.prove.references import (
    Trials,
    _accepted,
    _below,
    biased_bit,
    geometric_inversion,
    hadamard_choice,
    k_ary_answer,
)


class Words:
    """Coins from 64-bit words, in turn."""

    def __init__(self, words: Iterator[int]) -> None:
        self._words = words

    def getrandbits(self, k: int, /) -> int:
        assert k == 64
        return next(self._words)


class Bits:
    def __init__(self, bits: Iterator[int]) -> None:
        self._bits = bits

    def getrandbits(self, k: int, /) -> int:
        assert k == 1
        return next(self._bits)


def words_of(seed: int, count: int) -> Iterator[int]:
    return iter(np.frombuffer(KeyedStream.from_seed(seed).bytes(8 * count), dtype="<u8").tolist())


def trial_words(key: bytes, position: int, first: int) -> Iterator[int]:
    """The words of a position's trials, as long as each decides."""
    out = np.empty(8, np.uint64)
    for trial in itertools.count():
        block(out, key_words(key), position, trial, 1)
        yield int(out[0]) if trial else first


@pytest.mark.parametrize(
    "law",
    [
        IntegerLaw.gaussian(1.0),
        IntegerLaw.gaussian(3.0),
        IntegerLaw.gaussian(100.0),
        IntegerLaw.laplace(2.0),
        IntegerLaw.laplace(300.0),
        SecureGaussian(sigma=1.0, granularity=2.0**-8)._law,
    ],
)
def test_exact_integers(law: IntegerLaw) -> None:
    n, key = 2000, KeyedStream.from_seed(5).bytes(32)
    bulk, trials = np.empty(n, np.uint64), Trials.of(law)
    BulkWords(key).fill(bulk, counter=0)
    compiled = draw_integers(n, law, stream=KeyedStream.from_seed(5))
    words = (Words(trial_words(key, i, int(word))) for i, word in enumerate(bulk))
    assert [trials.draw(coins) for coins in words] == compiled.tolist()
    assert len(set(compiled.tolist())) > 3


def test_geometric_inversion() -> None:
    compiled = GeometricInversion(scale=3.0).integers(20_000, stream=KeyedStream.from_seed(6))
    coins = Words(words_of(6, 20_000))
    assert [geometric_inversion(3.0, coins=coins) for _ in range(20_000)] == compiled.tolist()


@pytest.mark.parametrize("categories", [2, 5])
def test_randomized_response(categories: int) -> None:
    answer = RandomizedResponse(0.7, categories=categories)
    objects = np.arange(5000) % categories
    stream = KeyedStream.from_seed(8)
    compiled = answer.privatize(objects, stream=stream).category.tolist()
    source = KeyedStream.from_seed(8).child("randomized-response")
    coins = Words(iter(np.frombuffer(source.bytes(8 * 5000), dtype="<u8").tolist()))
    lie = answer.words[1]
    plain = [k_ary_answer(int(x), lie, categories, coins=coins) for x in objects]
    assert plain == compiled
    assert plain != objects.tolist()


@pytest.mark.parametrize("threshold", [1, 2**63, 3 * 2**62 + 5, 2**64 - 1, 0x123456789ABCDEF0])
def test_biased_bits(threshold: int) -> None:
    seed = seed_words(KeyedStream.from_seed(9))
    out = np.empty((1, 1), np.uint64)
    _fill(out, np.uint64(threshold), seed)
    state = [np.uint64(x) for x in start(seed, 0, 0)]
    drawn = []
    with np.errstate(over="ignore"):
        for _ in range(64):
            *state, word = next_word.py_func(*state)
            drawn.append(int(word))
    lanes = [
        biased_bit(threshold, coins=Bits(iter([word >> lane & 1 for word in drawn])))
        for lane in range(64)
    ]
    assert lanes == [int(out[0, 0]) >> lane & 1 for lane in range(64)]


def test_hadamard_reports() -> None:
    """Of the words for a function, about half are refused at this number of functions."""
    seed, sizes, lie = seed_words(KeyedStream.from_seed(10)), (2**31 + 1, 64), 3 * 2**61
    functions, coordinates = np.empty(300, np.uint32), np.empty(300, np.uint32)
    lies = np.empty(300, np.int8)
    _draw(functions, coordinates, lies, *map(np.uint64, (*sizes, lie)), seed)
    plain = [hadamard_choice(*sizes, lie, coins=Words(row_words(seed, i))) for i in range(300)]
    assert plain == list(zip(functions, coordinates, lies, strict=True))
    assert set(lies.tolist()) == {0, 1}


def row_words(seed: np.ndarray, row: int) -> Iterator[int]:
    """The words of one row's generator."""
    state = [np.uint64(x) for x in start(seed, row, 0)]
    while True:
        with np.errstate(over="ignore"):
            *state, word = next_word.py_func(*state)
        yield int(word)


def test_more_words_decide_where_the_first_do_not() -> None:
    law = IntegerLaw.gaussian(1.0)
    trials = Trials.of(law)
    lows, highs = trials.tables[0]
    k = next(k for k, low in enumerate(lows) if low < highs[k])
    border = lows[k] << 39
    for more, found in ((0, k), (2**64 - 1, k + 1)):
        assert trials.draw(Words(iter([border, more]))) == found
    finer = trials.tables[1][0][k] - (lows[k] << 64)
    assert trials.draw(Words(iter([border, finer - 1]))) == k
    assert trials.draw(Words(iter([border, finer, 0]))) == k
    assert trials.draw(Words(iter([border, finer, 2**64 - 1]))) == k + 1
    prefix, half = math.floor(2**13 * math.exp(-0.5)), Fraction(1, 2)
    assert _below(prefix, 13, half) is None
    assert _below(prefix - 1, 13, half) is True
    assert _below(prefix + 1, 13, half) is False
    assert _accepted(prefix, half, Words(iter([0]))) is True
    assert _accepted(prefix, half, Words(iter([2**64 - 1]))) is False
    assert law.decide_accept(0, 1, prefix, 13, iter([0]).__next__) is True
