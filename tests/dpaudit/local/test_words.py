"""Words, their numbers and their fragments."""

from __future__ import annotations

import numpy as np
import pytest

from dpaudit.errors import UsageError
from dpaudit.local.sequence_fragments import Words


def test_numbers_and_fragments_are_the_words_letters():
    words = Words("xyzäß", length=6)
    spelled = ["x", "ßäzyxx", "yy", "zxzxz"]
    numbers = words.encode(spelled)
    assert words.decode(numbers) == spelled
    assert len(set(numbers.tolist())) == len(spelled)
    letters = " xyzäß"
    for position in range(3):
        expected = [
            letters.index(w.ljust(6)[2 * position]) * 6 + letters.index(w.ljust(6)[2 * position + 1]) for w in spelled
        ]
        assert words.fragments(numbers, position, width=2).tolist() == expected


def test_whole_words_are_those_that_can_be_spelled():
    words = Words("ab", length=3)
    every = np.arange(words.universe)
    spelled = [w for w in words.decode(every) if w and " " not in w]
    assert words.whole(every).sum() == len(spelled) == 2 + 4 + 8
    assert words.whole(words.encode(spelled)).all()


def test_what_is_no_word_is_refused():
    words = Words("ab", length=3)
    for call in (
        lambda: words.encode([""]),
        lambda: words.encode(["abab"]),
        lambda: words.encode(["ac"]),
        lambda: words.encode(["a b"]),
        lambda: words.decode(np.array([words.universe])),
        lambda: words.fragments(np.arange(3), 1, width=2),
        lambda: Words("aa", length=3),
        lambda: Words("a b", length=3),
        lambda: Words("", length=3),
        lambda: Words("ab", length=0),
        lambda: Words("abc", length=31),
    ):
        with pytest.raises(UsageError):
            call()
