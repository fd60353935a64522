"""Hash families: three-wise independence in small fields, Apple's against hashlib, edges."""

import hashlib
import itertools

import numpy as np
import pytest
import scipy.stats

from dpaudit.errors import UsageError
from dpaudit.randomness import KeyedStream
from dpaudit_local import hash_family
from dpaudit_local.hashing import (
    HashFamily,
    RandomHashes,
    Sha256Hashes,
    ThreeWiseHashes,
    pair_positions,
    sketch_hashes,
)

P = 2**61 - 1
NAMES = ("", "apple.com", "🙂", "zürich", *(f"name {i}" for i in range(60)))
FINE, BAD = 1e-4, 1e-9


def families(stream, count=50, size=24):
    return [
        RandomHashes(count, size, stream=stream),
        ThreeWiseHashes(count, size, stream=stream),
        Sha256Hashes(count, size, names=NAMES),
    ]


def test_elementwise_and_one_function_agree(stream):
    rng = np.random.default_rng(1)
    objects = rng.integers(0, len(NAMES), 500)
    functions = rng.integers(0, 50, 500).astype(np.uint32)
    for family in families(stream):
        assert isinstance(family, HashFamily)
        each = family.each(objects, functions)
        pairs = zip(objects, functions.tolist(), strict=True)
        assert each.dtype == np.uint32
        assert each.tolist() == [family.positions(np.array([x]), j)[0] for x, j in pairs]
        table = pair_positions(family, functions=functions[:5], objects=objects[:7])
        one_by_one = [family.positions(objects[:7], j) for j in functions[:5].tolist()]
        assert np.array_equal(table, one_by_one)
        assert set(each.tolist()) == set(range(24))


def test_equal_families_compare_equal(stream):
    again, larger = families(KeyedStream.from_seed("tests")), families(stream, size=32)
    others = families(stream.child("other"))
    for i, family in enumerate(families(stream)):
        assert family == again[i]
        assert hash(family) == hash(again[i])
        assert family != larger[i]
        assert (family == others[i]) == isinstance(family, Sha256Hashes)
    assert again[2] != Sha256Hashes(50, 24, names=NAMES[1:])


def test_what_lies_outside_is_refused(stream):
    x, far = np.array([0, 1]), np.array([0, 50], np.uint32)
    for family in families(stream):
        for function in (-1, 50):
            with pytest.raises(UsageError, match="function="):
                family.positions(x, function)
        with pytest.raises(UsageError, match="functions="):
            family.each(x, far)
        with pytest.raises(UsageError, match="one function per object"):
            family.each(x, far[:1])
        for bad in (-1, *(() if isinstance(family, RandomHashes) else (1 << 32,))):
            with pytest.raises(UsageError, match="objects="):
                family.positions(np.array([0, bad]), 3)
            with pytest.raises(UsageError, match="objects="):
                family.each(np.array([bad, 0]), far * 0)
        assert family.positions(np.zeros(0, np.int64), 1).shape == (0,)
    for count in (0, 2**32 + 1, 8.5):
        with pytest.raises(UsageError):
            RandomHashes(count, 8, stream=stream)
    for size in (1, 2**32 + 1, 8.0, "8"):
        with pytest.raises(UsageError):
            RandomHashes(8, size, stream=stream)


def test_families_by_name(stream):
    def named(hashes="random", functions=4, m=8, seed=3):
        return sketch_hashes(hashes, functions=functions, m=m, seed=seed)

    assert named(functions=None, m=None).size == 1024
    assert isinstance(named("three-wise"), ThreeWiseHashes)
    assert named() != named(seed=4)
    own = RandomHashes(5, 16, stream=stream)
    assert named(own, None, 16) is own
    with pytest.raises(UsageError, match="functions=6"):
        named(own, 6, None)
    with pytest.raises(UsageError, match="hashes=md5"):
        named("md5")


# ---------------------------------------------------------------- three-wise


@pytest.mark.parametrize("size", [2, 1000, 1024, 2**31 + 1, 2**32])
def test_polynomials_are_those_of_the_large_field(stream, size):
    family = ThreeWiseHashes(40, size, stream=stream)
    objects = np.array([0, 1, 2, 77, 2**31, 2**32 - 1])
    for j in range(40):
        a, b, c = (int(v) for v in family._coefficients[j])
        expected = [(a * x * x + b * x + c) % P * size >> 61 for x in objects.tolist()]
        assert family.positions(objects, j).tolist() == expected


def under_every_polynomial(objects, exponent, size, *, affine=False):
    """Positions (p³, n) under all quadratic polynomials over 2^exponent − 1 (or p² affine ones)."""
    field = range(2**exponent - 1)
    every = itertools.product([0] if affine else field, field, field)
    coefficients = np.array(list(every), np.uint64)
    functions = np.repeat(np.arange(len(coefficients)), len(objects))
    out, where = np.empty(functions.size, np.uint32), np.tile(objects, len(coefficients))
    args = np.uint64(size), np.uint64(exponent)
    assert hash_family._polynomial_each(out, where, functions, coefficients, *args)
    return out.reshape(-1, len(objects))


def joint(places, size):
    """How often each triple of positions occurs, (size, size, size)."""
    flat = (places[:, 0].astype(np.int64) * size + places[:, 1]) * size + places[:, 2]
    return np.bincount(flat, minlength=size**3).reshape(size, size, size)


@pytest.mark.parametrize(("exponent", "size"), [(3, 8), (3, 3), (5, 32), (5, 5)])
def test_three_positions_are_independent_by_exhaustion(exponent, size):
    p = 2**exponent - 1
    # field values of each position
    weight = np.bincount(np.arange(p) * size >> exponent, minlength=size)
    assert set(weight[:-1].tolist()) <= {2**exponent // size, -(-(2**exponent) // size)}
    product = np.einsum("i,j,k->ijk", weight, weight, weight)
    triples = list(itertools.combinations(range(p), 3))
    for triple in triples if exponent == 3 else triples[:: len(triples) // 10]:
        places = under_every_polynomial(np.array(triple), exponent, size)
        assert (joint(places, size) == product).all()


def test_affine_functions_fail_the_same_test():
    weight = np.bincount(np.arange(31) * 5 >> 5, minlength=5)
    counts = joint(under_every_polynomial(np.array([1, 2, 4]), 5, 5, affine=True), 5)
    assert (31 * counts != np.einsum("i,j,k->ijk", weight, weight, weight)).mean() > 0.9


@pytest.mark.parametrize("m", [3, 1000, 1024, 2**32 - 1])
def test_each_position_has_its_share_of_the_large_field(m):
    for i in (0, 1, m // 2, m - 1):
        low, high = -(-(i << 61) // m), P if i == m - 1 else -(-((i + 1) << 61) // m)
        assert abs((high - low) * m - P) < 2 * m  # |share − 1/m| < 2/p
        for value, expected in ((low, i), (low - 1, i - 1)) if i else ():
            out, polynomial = np.empty(1, np.uint32), np.array([0, 0, value], np.uint64)
            args = np.uint64(m), np.uint64(61)
            hash_family._polynomial_positions(out, np.array([5]), polynomial, *args)
            assert out[0] == expected


def test_coefficients_never_are_the_prime():
    class AllOnesFirst:
        calls = 0

        def bytes(self, n):
            self.calls += 1
            return b"\xff" * n if self.calls == 1 else bytes(range(n))

    values = hash_family._uniform_field(3, AllOnesFirst())
    assert (values < P).all()
    assert values.size == 3


# ---------------------------------------------------------------- random


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
    family = RandomHashes(3, 1000, stream=stream)
    for j in range(3):
        seen = np.bincount(family.positions(np.arange(200_000), j), minlength=1000)
        assert scipy.stats.chisquare(seen).pvalue > FINE


# ---------------------------------------------------------------- Apple's


def figure_16(j, size, length=4):
    """Positions of the names under function ``j``, from ``length`` bytes of the digest."""
    digests = (hashlib.sha256(j.to_bytes(4, "big") + name.encode("utf-8")) for name in NAMES)
    return [int.from_bytes(d.digest()[:length], "little") % size for d in digests]


@pytest.mark.parametrize("size", [256, 1000, 1024, 2**32])
def test_sha256_is_figure_16(size):
    family = Sha256Hashes(65536, size, names=NAMES)
    for j in (0, 1, 258, 65535):
        straight = figure_16(j, size)
        assert family.positions(np.arange(len(NAMES)), j).tolist() == straight
        some = family.positions(np.array([3, 3, 0]), j).tolist()
        assert some == [straight[3], straight[3], straight[0]]
        if size in (256, 1024):  # a load of 16 bits gives the same for Apple's sizes
            assert straight == figure_16(j, size, length=2)


def test_names_that_would_be_cut_are_refused():
    for names in (["fine", "a\0b"], ["fine", "\ud800"], []):
        with pytest.raises(UsageError, match="names="):
            Sha256Hashes(8, 8, names=names)
