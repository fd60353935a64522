"""The exact ε of a record of a tiny device, and the words that a server finds, or invents."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from support.laws import largest_ratio

from dpaudit.errors import UsageError
from dpaudit.local.fragment_puzzle import SequenceFragmentsServer
from dpaudit.local.sequence_fragments import FragmentReports, SequenceFragments, Words
from dpaudit.randomness import KeyedStream
from dpaudit.stats import clopper_pearson

M = 8


TINY = {"letters": "ab", "fragment_width": 1, "fragment_count": 2, "puzzle_count": 2}


def _tiny(parameter, fragment_parameter=None):
    return SequenceFragments(
        parameter, fragment_parameter=fragment_parameter, m=M, functions=2, seed=3, **TINY
    )


def _coins(parameter):
    """P(vector) by position (m, 2^m): m coins of bias 1/(e^p + 1), then one bit flipped.

    Vector v has bit i at 1 << i.
    """
    bias = 1 / (math.exp(parameter) + 1)
    law = np.zeros((M, 1 << M))
    for position, coins in itertools.product(range(M), range(1 << M)):
        ones = coins.bit_count()
        law[position, coins ^ (1 << position)] = bias**ones * (1 - bias) ** (M - ones)
    return law


@pytest.mark.slow
def test_one_record_has_twice_the_sum_of_both_parameters():
    parameter, fragment_parameter = 0.3, 1.5
    device = _tiny(parameter, fragment_parameter)
    whole, part = _coins(parameter), _coins(fragment_parameter)
    words = np.arange(device.words.universe)
    vectors = np.arange(1 << M, dtype=np.uint8)
    largest = 1.0
    for function, position in ((0, 0), (1, 1)):
        a = device.sequence.hashes.positions(words, function)
        b = device.fragment.hashes.positions(device.token(words, position), function)
        pairs = zip(a, b, strict=True)
        law = np.stack([np.outer(whole[i], part[j]).ravel() for i, j in pairs], axis=1)
        assert np.allclose(law.sum(axis=0), 1)
        listed = np.log(law)
        largest = max(largest, largest_ratio(law.T))
        n = len(listed)
        reports = FragmentReports(
            np.full(n, function, np.uint32),
            np.full(n, position, np.uint8),
            np.repeat(vectors, 1 << M)[:, None],
            np.tile(vectors, 1 << M)[:, None],
        )
        ours = device.log_likelihood(reports, words)
        assert np.allclose(ours - ours[:, :1], listed - listed[:, :1], atol=1e-12)
    assert math.log(largest) == pytest.approx(device.epsilon, rel=1e-12)
    assert device.epsilon == pytest.approx(2 * (parameter + fragment_parameter), rel=1e-12)


def test_split_parameters_make_the_epsilon_asked_for():
    for bias in (0.5, 0.2):
        device = _tiny(*SequenceFragments.split(4.0, bias=bias))
        assert device.epsilon == pytest.approx(4.0, rel=1e-12)
    assert SequenceFragments(m=64, functions=4).epsilon == pytest.approx(8.0, rel=1e-12)


def test_a_record_holds_the_word_and_the_fragment_it_names():
    """Where coins hardly ever come up, each vector has the hashed bit alone, of one function."""
    device = SequenceFragments(30.0, m=64, functions=8, puzzle_count=256)
    spelled = ["apple's", "word", "tenletters"] * 200
    words = device.words.encode(spelled)
    reports = device.privatize(words, stream=KeyedStream.from_seed(1))
    assert set(reports.position.tolist()) == set(range(5))
    assert set(reports.function.tolist()) == set(range(8))
    rows = np.arange(len(words))
    packed = reports.sequence, reports.fragment
    first, second = (np.unpackbits(x, axis=1, bitorder="little") for x in packed)
    for vectors in (first, second):
        assert (vectors.sum(axis=1) == 1).all()
    assert first[rows, device.sequence.hashes.each(words, reports.function)].all()
    base, letters = device.words.base, " " + device.words.letters
    for i in (0, 7, 100, 599):
        at = 2 * reports.position[i]
        token = int(device.pieces(words[i : i + 1])[0])
        for letter in spelled[i].ljust(10)[at : at + 2]:
            token = token * base + letters.index(letter)
        place = device.fragment.hashes.positions(np.array([token]), int(reports.function[i]))
        assert second[i, place[0]]


LETTERS = "abcdefg"
PLANTED = ("abc", "gfedcb", "badge", "face", "dead", "cabbag")


def _people(generator, device, *, users, planted):
    """Planted words, 4 % each, and a long tail of 1,000 random ones."""
    lengths = generator.integers(4, 7, 1000)
    tail = ["".join(generator.choice(list(LETTERS), n)) for n in lengths]
    share = 0.04 * planted
    choices = np.r_[np.full(planted, 0.04), np.full(1000, (1 - share) / 1000)]
    numbers = device.words.encode([*PLANTED[:planted], *tail])
    return numbers[generator.choice(len(numbers), users, p=choices / choices.sum())]


def _device():
    parts = {"fragment_width": 2, "fragment_count": 3, "puzzle_count": 16}
    return SequenceFragments(2.0, letters=LETTERS, **parts, m=256, functions=32, seed=1)


def _collected(device, words, *, seed, parts=3):
    server = SequenceFragmentsServer(device)
    for i, part in enumerate(np.array_split(words, parts)):
        server.add(device.privatize(part, stream=KeyedStream.from_seed(seed).child(i)))
    return server


def test_planted_words_are_found_and_counted():
    device = _device()
    words = _people(np.random.default_rng(11), device, users=60_000, planted=6)
    server = _collected(device, words, seed="planted")
    found = server.discover()
    assert {one.word for one in found} == set(PLANTED)
    assert [one.count for one in found] == sorted((one.count for one in found), reverse=True)
    for one in found:
        true = int((words == device.words.encode([one.word])[0]).sum())
        assert abs(one.count - true) < 5 * one.standard_error
    assert server.reports == 60_000
    parts = enumerate(np.array_split(words, 2))
    half, other = (_collected(_device(), part, seed=str(i)) for i, part in parts)
    half.merge(other)
    assert half.reports == 60_000
    assert {one.word for one in half.discover()} == set(PLANTED)


@pytest.mark.slow
def test_hardly_any_word_is_invented():
    """20 collections without a frequent word: at most α = 0.05 of them may have a discovery.

    Five inventions are too many; at 0.6 each, as without the last step's correction for many
    candidates, 5 of 20 are certain.
    """
    device = _device()
    generator = np.random.default_rng(12)
    inventions = joined = 0
    for run in range(20):
        words = _people(generator, device, users=5_000, planted=0)
        server = _collected(device, words, seed=f"tail {run}", parts=1)
        # a low bar for fragments, so that the last step has candidates to refuse
        joined += len(server._candidates(1_000.0, None, 10**6)) > 0
        inventions += len(server.discover(alpha=0.05, stray=1_000.0)) > 0
    assert joined > 15
    assert clopper_pearson(inventions, 20, confidence=0.99).low <= 0.05


def test_a_servers_refusals():
    device = _device()
    server = SequenceFragmentsServer(device)
    with pytest.raises(UsageError, match="reports"):
        server.discover()
    words = _people(np.random.default_rng(1), device, users=6_000, planted=6)
    stream = KeyedStream.from_seed(2)
    good = device.privatize(words, stream=stream)
    server.add(good)
    other = _tiny(1.0).privatize(np.arange(9), stream=stream)
    bits = good.sequence, good.fragment
    for call in (
        lambda: server.discover(alpha=0.0),
        lambda: server.discover(stray=0.0),
        lambda: server.discover(stray=1e9, most=10),
        lambda: server.add(other),
        lambda: server.add(FragmentReports(good.function, good.position + np.uint8(3), *bits)),
        lambda: server.add(FragmentReports(good.function, good.position * 1.0, *bits)),
        lambda: server.merge(server),
        lambda: server.merge(SequenceFragmentsServer(_tiny(1.0))),
        lambda: device.privatize(np.array([device.words.universe]), stream=stream),
        lambda: SequenceFragments(fragment_width=0),
        lambda: SequenceFragments(fragment_count=257),
        lambda: SequenceFragments(puzzle_count=1),
        lambda: SequenceFragments(0.0),
        lambda: SequenceFragments.split(4.0, bias=1.0),
    ):
        with pytest.raises(UsageError):
            call()
    assert server.reports == 6_000


def test_numbers_and_fragments_are_the_words_letters():
    words, letters = Words("xyzäß", length=6), " xyzäß"
    spelled = ["x", "ßäzyxx", "yy", "zxzxz"]
    numbers = words.encode(spelled)
    assert words.decode(numbers) == spelled
    assert len(set(numbers.tolist())) == len(spelled)
    digits = np.array([[letters.index(letter) for letter in w.ljust(6)] for w in spelled])
    for position in range(3):
        expected = digits[:, 2 * position] * 6 + digits[:, 2 * position + 1]
        assert (words.fragments(numbers, position, width=2) == expected).all()


def test_whole_words_are_those_that_can_be_spelled():
    words = Words("ab", length=3)
    every = np.arange(words.universe)
    spelled = [w for w in words.decode(every) if w and " " not in w]
    assert words.whole(every).sum() == len(spelled) == 2 + 4 + 8
    assert words.whole(words.encode(spelled)).all()


def test_what_is_no_word_is_refused():
    words = Words("ab", length=3)
    for call in (
        *(lambda w=w: words.encode([w]) for w in ("", "abab", "ac", "a b")),
        lambda: words.decode(np.array([words.universe])),
        lambda: words.fragments(np.arange(3), 1, width=2),
        *(lambda a=a: Words(a, length=3) for a in ("aa", "a b", "")),
        lambda: Words("ab", length=0),
        lambda: Words("abc", length=31),
    ):
        with pytest.raises(UsageError):
            call()
