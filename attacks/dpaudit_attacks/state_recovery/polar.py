"""The Mersenne Twister behind the polar method, which drops the words of rejected tries.

A try takes two uniform numbers, four words, and is accepted with probability π/4. The recurrence
ties words k + 1, k + 397 and k + 624 together. Those stand in the tries T, T + 99 and T + 156, at
places that do not depend on T. So where all three were accepted, some forty parities of their bits
show it, and how many tries lie between; enough of such triples give the number of each try.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import cache

import numpy as np
import numpy.typing as npt

from dpaudit.numeric.random_words import jit
from dpaudit_attacks.state_recovery.inversions import CANONICAL, DOUBLE, Layout, Uniforms
from dpaudit_attacks.state_recovery.mersenne_state import recover_state, relations

__all__ = ["WAYS", "join", "polar_fits"]

Floats = npt.NDArray[np.float64]
Words = npt.NDArray[np.uint32]
Places = npt.NDArray[np.int64]

_UNIT = 2.0**-53
_TRY = 4  # words
_SECOND, _THIRD = 99, 156  # tries from the first of a triple to the others: 396 and 624 words
_WIDTH = 4.5  # standard deviations of the number accepted in between
_TRIPLES = 30  # that fewer of leave to chance
_SURE = {DOUBLE: (27, 22, 27, 22), CANONICAL: (18, 32, 18, 32)}  # top bits that are nearly sure
_KNOWN = {
    DOUBLE: "the polar method, as in numpy.random.normal",
    CANONICAL: "the polar method, as in C++'s std::normal_distribution",
}
WAYS = 4 * len(_SURE)


def polar_fits(values: Floats, sizes: Sequence[int]) -> Iterator[Iterator[tuple[str, int, Floats]]]:
    """The ways in which consecutive ``values`` (n,) of scale 1 come from the polar method.

    For each of them, and for each of the ``sizes`` that is large enough: what it is, how many
    values it was learned from, and what it predicts for the values after them.
    """
    for layout in _SURE:
        for start in (0, 1):
            pairs = values[start : start + (len(values) - start) // 2 * 2].reshape(-1, 2)
            for second_first in (True, False):
                yield _fits(pairs, start, sizes, layout, second_first=second_first)


def _fits(
    pairs: Floats, start: int, sizes: Sequence[int], layout: Layout, *, second_first: bool
) -> Iterator[tuple[str, int, Floats]]:
    turned = pairs[:, ::-1] if second_first else pairs
    transform = _KNOWN[layout] + ("" if second_first else ", first value first")
    uniforms = _uniform_pairs(turned[: max(sizes) // 2])
    triples = _triples(layout.nearest(uniforms.values).reshape(-1, _TRY), layout)
    words_and_masks = layout.certain_bits(uniforms) if len(triples) else None
    for size in sizes:
        used = size // 2
        numbers = _numbers(triples[triples[:, 2] < used], used)
        sure = np.flatnonzero(numbers >= 0)
        if words_and_masks is None or not len(sure):
            continue
        words = np.zeros((numbers[sure].max() + 1, _TRY), np.uint32)
        known = np.zeros_like(words)
        words[numbers[sure]], known[numbers[sure]] = (
            x.reshape(-1, _TRY)[sure] for x in words_and_masks
        )
        generator = recover_state(words.ravel(), known.ravel())
        if generator is None:
            continue
        remaining = len(pairs) - int(sure[0])  # which stands at try 0
        tries = int(1.4 * remaining) + 100  # too few with probability 1e-6
        outputs = _accepted_pairs(
            layout.numbers(generator.random_raw(_TRY * tries).astype(np.uint32))
        )
        rest = outputs[used - int(sure[0]) : remaining]
        yield transform, start + 2 * used, (rest[:, ::-1] if second_first else rest).ravel()


def _uniform_pairs(pairs: Floats) -> Uniforms:
    """The two uniform numbers behind each pair, in turn."""
    square = (pairs * pairs).sum(axis=1, keepdims=True)
    with np.errstate(all="ignore"):
        x = pairs * np.sqrt(np.exp(-square / 2) / square)
    errors = _UNIT * (1.5 + np.abs(x) * (2 + square))
    return Uniforms(((x + 1) / 2).ravel(), errors.ravel())


def _accepted_pairs(uniforms: Floats) -> Floats:
    """The pairs (n, 2) that the polar method makes of uniform numbers."""
    x = 2 * uniforms.reshape(-1, 2) - 1
    square = (x * x).sum(axis=1, keepdims=True)
    inside = ((square < 1) & (square != 0))[:, 0]
    x, square = x[inside], square[inside]
    return np.asarray(x * np.sqrt(-2 * np.log(square) / square))


def _triples(words: Words, layout: Layout) -> Places:
    """Pairs i, j, l (n, 3) whose tries are 0, 99 and 156 after the first one's."""
    keys = [np.zeros(len(words), np.uint64) for _ in range(3)]
    for place, masks in _parities(layout):
        for key, at, mask in zip(keys, (place + 1, place + 1, place), masks, strict=True):
            key <<= np.uint64(1)
            key |= (np.bitwise_count(words[:, at] & mask) & 1).astype(np.uint64)
    triples = np.empty((len(words), 3), np.int64)
    near, far = _pair_gaps(_SECOND), _pair_gaps(_THIRD)
    count = join(*keys, (near.start, near.stop, far.start, far.stop), triples)
    # each pair begins one triple at most
    return triples[: count if count <= len(triples) else 0]


@jit
def join(first, second, third, gaps, triples):  # type: ignore[no-untyped-def]
    """Fill ``triples`` (m, 3) with i, i + a and i + b whose keys (n,) add up to 0 modulo 2.

    ``gaps``: the first and the end of a, and of b. Returns their number, m + 1 if there are more.
    """
    count = 0
    for a in range(gaps[0], gaps[1]):
        for b in range(gaps[2], gaps[3]):
            for i in range(len(first) - b):
                if first[i] ^ second[i + a] == third[i + b]:
                    if count == len(triples):
                        return count + 1
                    triples[count, 0], triples[count, 1], triples[count, 2] = i, i + a, i + b
                    count += 1
    return count


@cache
def _parities(layout: Layout) -> tuple[tuple[int, tuple[np.uint32, np.uint32, np.uint32]], ...]:
    """For a word's place in its try: masks whose parities add up to 0."""
    sure = [0xFFFFFFFF << (32 - bits) & 0xFFFFFFFF for bits in _SURE[layout]]
    return tuple(
        (place, masks)
        for place in range(_TRY - 1)  # the fourth word is tied to other tries
        for masks in relations(sure[place + 1], sure[place + 1], sure[place])
    )[:64]


def _pair_gaps(tries: int) -> range:
    """How many pairs lie so many tries on."""
    share = math.pi / 4
    middle, width = tries * share, _WIDTH * math.sqrt(tries * share * (1 - share))
    return range(int(middle - width), int(middle + width) + 2)


def _numbers(triples: Places, pairs: int) -> Places:
    """The number of each pair's try, the first known one 0; −1 where the triples do not say it."""
    none = np.full(pairs, -1, np.int64)
    if len(triples) < _TRIPLES:
        return none
    group, number = np.arange(pairs), np.zeros(pairs, np.int64)

    def join(i: int, j: int, gap: int) -> None:
        if group[i] != group[j]:
            mine = group == group[j]
            number[mine] += number[i] + gap - number[j]
            group[mine] = group[i]

    for i, j, k in triples:
        join(i, j, _SECOND)
        join(i, k, _THIRD)
    # groups that the order of pairs leaves one place for
    names, sizes = np.unique(group, return_counts=True)
    order = [np.flatnonzero(group == names[g]) for g in np.argsort(-sizes) if sizes[g] > 1]
    for other in order[1:]:
        main = np.flatnonzero(group == group[order[0][0]])
        after = np.searchsorted(main, other)
        inner = (after > 0) & (after < len(main))
        mine, before, behind = other[inner], main[after[inner] - 1], main[after[inner]]
        if not len(mine):
            continue
        low = (number[before] + (mine - before) - number[mine]).max()
        high = (number[behind] - (behind - mine) - number[mine]).min()
        if low == high:
            join(int(main[0]), int(other[0]), int(number[other[0]] + low - number[main[0]]))
    main = np.flatnonzero(group == group[order[0][0]])
    none[main] = number[main] - number[main].min()
    return none
