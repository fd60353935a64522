"""Hash functions: as good as independent, uniform, edges."""

import numpy as np
import pytest
import scipy.stats

from dpaudit.errors import UsageError
from dpaudit.randomness import KeyedStream
from dpaudit_local.mechanisms.count_mean_sketch import CountMeanSketch
from dpaudit_local.mechanisms.hashing import HashFamily, RandomHashes

FINE, BAD = 1e-4, 1e-9


def family(stream, count=50, size=24):
    return RandomHashes(count, size, stream=stream)


def test_elementwise_and_one_function_agree(stream):
    rng, hashes = np.random.default_rng(1), family(stream)
    objects = rng.integers(0, 64, 500)
    functions = rng.integers(0, 50, 500).astype(np.uint32)
    assert isinstance(hashes, HashFamily)
    each = hashes.each(objects, functions)
    pairs = zip(objects, functions.tolist(), strict=True)
    assert each.dtype == np.uint32
    assert each.tolist() == [hashes.positions(np.array([x]), j)[0] for x, j in pairs]
    assert set(each.tolist()) == set(range(24))


def all_positions(hashes):
    return [hashes.positions(np.arange(20), j).tolist() for j in range(hashes.count)]


def test_a_family_follows_from_its_stream(stream):
    own = all_positions(family(stream))
    assert own == all_positions(family(KeyedStream.from_seed("tests")))
    assert own != all_positions(family(stream.child("other")))


def test_what_lies_outside_is_refused(stream):
    x, far, hashes = np.array([0, 1]), np.array([0, 50], np.uint32), family(stream)
    for function in (-1, 50):
        with pytest.raises(UsageError, match="function="):
            hashes.positions(x, function)
    with pytest.raises(UsageError, match="functions="):
        hashes.each(x, far)
    with pytest.raises(UsageError, match="one function per object"):
        hashes.each(x, far[:1])
    with pytest.raises(UsageError, match="objects="):
        hashes.positions(np.array([0, -1]), 3)
    with pytest.raises(UsageError, match="objects="):
        hashes.each(np.array([-1, 0]), far * 0)
    assert hashes.positions(np.zeros(0, np.int64), 1).shape == (0,)
    for count in (0, 2**32 + 1, 8.5):
        with pytest.raises(UsageError):
            RandomHashes(count, 8, stream=stream)
    for size in (1, 2**32 + 1, 8.0, "8"):
        with pytest.raises(UsageError):
            RandomHashes(8, size, stream=stream)


def test_families_of_sketches(stream):
    def of(hashes=None, functions=4, m=8, seed=3):
        sketch = CountMeanSketch(1.0, hashes=hashes, functions=functions, m=m, seed=seed)
        return sketch.hashes

    assert of(functions=None, m=None).size == 1024
    assert all_positions(of()) == all_positions(of()) != all_positions(of(seed=4))
    own = RandomHashes(5, 16, stream=stream)
    assert of(own, None, 16) is own
    with pytest.raises(UsageError, match="functions=6"):
        of(own, 6, None)
    with pytest.raises(UsageError, match="hashes=md5"):
        of("md5")


def collisions_p(positions_of, size, functions=20_000):
    """p-value of collisions among six objects over functions, and of sums of three positions."""
    objects = np.array([0, 1, 2, 3, 1 << 20, (1 << 40) + 1])
    table = np.array([positions_of(objects, j) for j in range(functions)])
    i, j = np.triu_indices(6, 1)
    together = (table[:, i] == table[:, j]).sum(axis=0)
    due = functions / size
    squares = ((together - due) ** 2).sum() / (due * (1 - 1 / size))
    three = (table[:, 0].astype(np.int64) + table[:, 1] - table[:, 2] + table[:, 4]) % size
    following = table[1:, 0] * size + table[:-1, 0]
    counts = np.bincount(three, minlength=size), np.bincount(following, minlength=size * size)
    return min(
        scipy.stats.chi2.sf(squares, i.size), *(scipy.stats.chisquare(x).pvalue for x in counts)
    )


@pytest.mark.parametrize("size", [16, 24])
def test_random_values_collide_as_independent_ones(stream, size):
    assert collisions_p(RandomHashes(1 << 20, size, stream=stream).positions, size) > FINE
    # multiplicative hashing
    assert collisions_p(lambda x, j: ((x * 2654435761 + j * 40503) >> 7) % size, size) < BAD


def test_random_values_of_one_function_are_uniform(stream):
    hashes = RandomHashes(3, 1000, stream=stream)
    for j in range(3):
        seen = np.bincount(hashes.positions(np.arange(200_000), j), minlength=1000)
        assert scipy.stats.chisquare(seen).pvalue > FINE
