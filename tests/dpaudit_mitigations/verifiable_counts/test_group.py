"""Encodings, generators, commitments and interpolation against independent arithmetic."""

from fractions import Fraction

import numpy as np
import pytest
import rbcl

from dpaudit.errors import MessageError
from dpaudit_mitigations.verifiable_counts.challenges import Challenges
from dpaudit_mitigations.verifiable_counts.commitments import column_bases, commit, commit_rows
from dpaudit_mitigations.verifiable_counts.group import (
    BLINDING_BASE,
    IDENTITY,
    VALUE_BASE,
    L,
    Relation,
    add,
    blinding_multiple,
    decode_point,
    decode_scalar,
    encode_scalar,
    generator,
    multiple,
    random_scalars,
    sum_of_multiples,
)
from dpaudit_mitigations.verifiable_counts.interpolation import (
    basis_at,
    combine,
    vanishing_at,
    weights_of,
)

P = 2**255 - 19


def test_order_and_base_are_the_standards():
    """RFC 9496: the generator's encoding (A.1), and the order."""
    assert BLINDING_BASE.hex() == "e2f2ae0a6abc4e71a884a961c500515f58e30b6aa582dd8db6a65945e08d2d76"
    assert multiple(L - 1, BLINDING_BASE) != IDENTITY
    assert add(multiple(L - 1, BLINDING_BASE), BLINDING_BASE) == IDENTITY


@pytest.mark.parametrize("value", [0, 1, L - 1])
def test_canonical_scalars_pass(value):
    assert decode_scalar(value.to_bytes(32, "little")) == value


@pytest.mark.parametrize("value", [L, L + 1, 2 * L, 2**255, 2**256 - 1])
def test_other_scalars_are_refused(value):
    """``value`` modulo L is a scalar: a verifier that reduced it would accept a second encoding."""
    with pytest.raises(MessageError, match="scalar"):
        decode_scalar(value.to_bytes(32, "little"))


def test_points_have_one_encoding(stream):
    point = multiple(random_scalars(1, stream)[0], VALUE_BASE)
    assert decode_point(point) == point
    number = int.from_bytes(point, "little")
    for other in (number + P, P - number, number | 1, number | 1 << 255, 0, 1, P, P - 1):
        if other < 2**256 and other.to_bytes(32, "little") != point:
            with pytest.raises(MessageError, match="point"):
                decode_point(other.to_bytes(32, "little"))
    for data in (b"", point[:-1], point + b"\0"):
        with pytest.raises(MessageError, match="point"):
            decode_point(data)


def test_about_half_of_all_strings_are_no_points(stream):
    """The rule is not merely a length: 400 random strings below p, even, top bit clear."""
    accepted = 0
    for _ in range(400):
        data = bytearray(stream.bytes(32))
        data[0] &= 0xFE
        data[31] &= 0x7F
        try:
            decode_point(bytes(data))
            accepted += 1
        except MessageError:
            pass
    assert 20 < accepted < 250


def test_generators_differ_and_are_hashes(stream):
    bases = [VALUE_BASE, BLINDING_BASE, *column_bases(128)]
    assert len(set(bases)) == 130
    assert all(rbcl.crypto_core_ristretto255_is_valid_point(base) for base in bases)
    assert generator("value") == VALUE_BASE != generator("column 1")


def test_commitments_add_up(stream):
    a, b, r, s = random_scalars(4, stream)
    assert add(commit(a, r), commit(b, s)) == commit(a + b, r + s)
    assert commit(-3, r) == commit(L - 3, r) != commit(3, r)
    assert commit(0, 0) == IDENTITY
    assert commit(5, 0) == add(add(*[VALUE_BASE] * 2), add(add(*[VALUE_BASE] * 2), VALUE_BASE))


def test_rows_are_sums_of_the_bases_of_their_ones(stream):
    bits = np.unpackbits(np.frombuffer(stream.bytes(9), np.uint8)).reshape(6, 12)
    bits[0], bits[1] = 0, 1
    blindings = random_scalars(6, stream)
    for row, blinding, point in zip(
        bits.tolist(), blindings, commit_rows(bits, blindings), strict=True
    ):
        slow = sum_of_multiples(column_bases(12), row)
        assert point == add(slow, blinding_multiple(blinding))


def test_relation_merges_terms_and_finds_the_odd_one(stream):
    points, scalars = column_bases(4), random_scalars(4, stream)
    relation = Relation()
    for point, scalar in zip(points, scalars, strict=True):
        relation.add(point, scalar)
        relation.add(point, 5)
    relation.add(sum_of_multiples(points, [s + 5 for s in scalars]), -1)
    assert relation.holds()
    relation.add(BLINDING_BASE, 1)
    assert not relation.holds()
    relation.add(BLINDING_BASE, -1)
    assert relation.holds()


def test_interpolation_against_fractions(stream):
    for start, count in ((0, 1), (0, 5), (6, 5), (0, 65)):
        for x in (start + count + 3, 10**9):
            for j, value in enumerate(basis_at(x, start=start, count=count)):
                exact = Fraction(1)
                for i in range(count):
                    if i != j:
                        exact *= Fraction(x - start - i, j - i)
                assert value == exact.numerator * pow(exact.denominator, -1, L) % L
    assert basis_at(2, start=0, count=4) == [0, 0, 1, 0]
    assert vanishing_at(10, count=4) == 9 * 8 * 7 * 6
    assert vanishing_at(3, count=4) == 0


def test_sums_of_words_are_exact(stream):
    table = [random_scalars(64, stream) for _ in range(3)]
    table[0] = [L - 1] * 64
    small = (np.frombuffer(stream.bytes(64 * 8), np.uint8) % 3).reshape(64, 8)
    small[:, 0] = 2
    wanted = [
        [sum(w * int(s) for w, s in zip(row, column, strict=True)) for column in small.T]
        for row in table
    ]
    assert combine(weights_of(table), small) == wanted


def test_challenges_depend_on_all_that_was_said():
    def scalar(*said, domain=b"a", fork=None):
        challenges = Challenges(domain)
        for label, data in said:
            challenges.absorb(label, data)
        return (challenges.fork(fork) if fork else challenges).scalar(b"x")

    seen = [
        scalar((b"a", b"b")),
        scalar((b"a", b"c")),
        scalar((b"ab", b"")),
        scalar((b"", b"ab")),
        scalar((b"a", b""), (b"", b"b")),
        scalar((b"a", b"b"), domain=b"b"),
        scalar((b"a", b"b"), fork=b"1"),
        scalar((b"a", b"b"), fork=b"2"),
    ]
    assert len(set(seen)) == len(seen)
    assert seen[0] == scalar((b"a", b"b"))
    once = Challenges(b"a")
    # the second depends on the first having been asked
    assert once.scalar(b"x") != once.scalar(b"x")
    assert encode_scalar(seen[0]) == seen[0].to_bytes(32, "little")
