"""A proof that committed rows hold only bits, and that each row's signed sum is as committed.

The batch argument of Bootle and Groth (Efficient Batch Zero-Knowledge Arguments for Low Degree
Polynomials, PKC 2018) for one quadratic relation per row. Row j = 1…k is committed as V_j = Σ_i
b_ji·H_i + ρ_j·B, its sum as S_j = s_j·G + σ_j·B; the signs u_ji ∈ {−1, 0, 1} are public. With a
challenge y the claims of row j become one,

    Σ_i y^i·b_ji(b_ji − 1) + y^(m+1)·(Σ_i u_ji·b_ji − s_j) = 0,

and with Lagrange's ℓ_j for the points 0…k the rows become one polynomial row, f(X) = ℓ_0(X)·a + Σ_j
ℓ_j(X)·b_j, a a random row; likewise the signs u(X) (0 at X = 0) and the sum s(X). Put into the
relation they give p(X) of degree 2k, which vanishes at 1…k if and only if every row's relation
holds: p = q·Π(X − j), q of degree k. The prover commits to a, to s's random value at 0, and to q at
k+1 further points; at a challenge x it opens f(x), s(x) and q(x); the verifier checks them against
the commitments, and that p(x) = q(x)·Π(x − j).

Formal guarantees, in the random oracle model for the Fiat–Shamir challenges. Soundness: from 2k+1
accepted x for each of m+2 accepted y one can compute openings of all V_j and S_j that are bits and
their signed sums (or else a relation between the bases); a cheater passes with probability at most
(2k + m + 1)/2^252 per hash that it tries. Zero knowledge, perfect for honest challenges: f(x), s(x)
and the blindings are uniform, q(x) follows from them, and the first quotient's and both masks'
commitments follow from the equations (a test simulates proofs this way).

Lagrange polynomials are taken modulo the group's order, weighted sums of small integers exactly.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from dpaudit.errors import MessageError
from dpaudit.protocols import Stream
from dpaudit_mitigations.verifiable_counts.group import (
    BLINDING_BASE,
    SIZE,
    VALUE_BASE,
    L,
    Relation,
    add,
    blinding_multiple,
    column_bases,
    commit,
    decode_points,
    decode_scalars,
    encode_scalars,
    random_scalars,
    sum_of_multiples,
)
from dpaudit_mitigations.verifiable_counts.terms import Challenges

__all__ = [
    "BlockProof",
    "BlockSecrets",
    "BlockStatement",
    "add_claims",
    "basis_at",
    "challenges_of",
    "combine",
    "prove",
    "relation_at",
    "vanishing_at",
    "weights_of",
]

_WORD = 32
_WORDS = 8
Weights = npt.NDArray[np.float64]


@functools.lru_cache(maxsize=512)
def _denominators(count: int) -> tuple[int, ...]:
    """1/Π_{i≠j}(j − i) over the points 0 … count−1, for each j."""
    last = count - 1
    return tuple(
        (-1) ** (last - j) * pow(math.factorial(j) * math.factorial(last - j), -1, L) % L
        for j in range(count)
    )


def basis_at(x: int, *, start: int, count: int) -> list[int]:
    """The values at ``x`` of the ``count`` Lagrange polynomials of the points start, start+1, …."""
    gaps = [(x - start - i) % L for i in range(count)]
    before = list(itertools.accumulate(gaps[:-1], lambda a, b: a * b % L, initial=1))
    after = list(itertools.accumulate(gaps[:0:-1], lambda a, b: a * b % L, initial=1))[::-1]
    return [a * b % L * c % L for a, b, c in zip(before, after, _denominators(count), strict=True)]


def vanishing_at(x: int, *, count: int) -> int:
    """Π (x − j) over j = 1 … count."""
    product = 1
    for j in range(1, count + 1):
        product = product * (x - j) % L
    return product


def weights_of(table: list[list[int]]) -> Weights:
    """Scalars (t, rows) cut into 32-bit words for :func:`combine`, shape (t·8, rows)."""
    data = b"".join(value.to_bytes(SIZE, "little") for row in table for value in row)
    words = np.frombuffer(data, "<u4").reshape(len(table), -1, _WORDS)
    return np.ascontiguousarray(
        words.transpose(0, 2, 1).reshape(len(table) * _WORDS, -1), dtype=np.float64
    )


def combine(weights: Weights, small: npt.NDArray[np.uint8]) -> list[list[int]]:
    """Σ_j weight[t, j]·small[j, i] as integers (not reduced), a list of columns for each t.

    ``small`` (rows, columns) holds numbers up to 2. Exact: the sums of words times small numbers
    stay below 2^53 for up to 2^19 rows. A matrix product, so it takes the same time whatever the
    small numbers are.
    """
    sums = (weights @ small.astype(np.float64)).astype(np.int64)
    sums = sums.reshape(-1, _WORDS, small.shape[1])
    words = np.empty((len(sums), small.shape[1], _WORDS + 1), dtype="<u4")
    carry = np.zeros((len(sums), small.shape[1]), dtype=np.int64)
    for word in range(_WORDS):
        carry += sums[:, word]
        words[:, :, word] = carry & 0xFFFFFFFF
        carry >>= _WORD
    words[:, :, _WORDS] = carry
    size = 4 * (_WORDS + 1)
    data = words.tobytes()
    numbers = [int.from_bytes(data[at : at + size], "little") for at in range(0, len(data), size)]
    return [numbers[at : at + small.shape[1]] for at in range(0, len(numbers), small.shape[1])]


@dataclass(frozen=True)
class BlockStatement:
    """Commitments to k rows and their sums, and the signs plus one (k, m): 0, 1, 2 for −1, 0, 1."""

    rows: Sequence[bytes]
    sums: Sequence[bytes]
    signs: npt.NDArray[np.uint8]


@dataclass(frozen=True)
class BlockSecrets:
    """What opens a statement: bits (k, m), the sums, and the blindings of both."""

    bits: npt.NDArray[np.uint8] = field(repr=False)
    row_blindings: Sequence[int] = field(repr=False)
    sums: Sequence[int] = field(repr=False)
    sum_blindings: Sequence[int] = field(repr=False)


@dataclass(frozen=True)
class BlockProof:
    """Masks and k+1 quotients (points), then f(x), s(x) and three blindings (scalars)."""

    row_mask: bytes
    sum_mask: bytes
    quotients: Sequence[bytes]
    row: Sequence[int]
    total: int
    row_blinding: int
    sum_blinding: int
    quotient_blinding: int

    @staticmethod
    def size(*, rows: int, columns: int) -> int:
        """Bytes of an encoded proof."""
        return SIZE * (2 + rows + 1 + columns + 4)

    def encode(self) -> bytes:
        """Points, then scalars."""
        openings = self.total, self.row_blinding, self.sum_blinding, self.quotient_blinding
        points = self.row_mask + self.sum_mask + b"".join(self.quotients)
        return points + encode_scalars([*self.row, *openings])

    @classmethod
    def decode(cls, data: bytes, *, rows: int, columns: int) -> BlockProof:
        """The proof with this encoding.

        Raises:
            MessageError: another length, or a point or scalar that is not canonical.
        """
        size = cls.size(rows=rows, columns=columns)
        if len(data) != size:
            raise MessageError(f"block proof of {len(data)} bytes: must have {size}")
        cut = SIZE * (rows + 3)
        row_mask, sum_mask, *quotients = decode_points(data[:cut])
        scalars = decode_scalars(data[cut:])
        return cls(row_mask, sum_mask, quotients, scalars[:columns], *scalars[columns:])


def prove(
    statement: BlockStatement, secrets: BlockSecrets, *, challenges: Challenges, stream: Stream
) -> BlockProof:
    """A proof of ``statement``; ``challenges`` has absorbed everything that the proof is about."""
    k, m = secrets.bits.shape
    row_mask = random_scalars(m, stream)
    sum_mask, row_mask_blinding, sum_mask_blinding = random_scalars(3, stream)
    quotient_blindings = random_scalars(k + 1, stream)
    row_point = add(
        sum_of_multiples(column_bases(m), row_mask), blinding_multiple(row_mask_blinding)
    )
    sum_point = commit(sum_mask, sum_mask_blinding)
    y = _y(challenges, row_point, sum_point)
    quotients = _quotients(statement, secrets, row_mask, sum_mask, y)
    quotient_points = [commit(q, r) for q, r in zip(quotients, quotient_blindings, strict=True)]
    x = _x(challenges, quotient_points)

    first, *rest = basis_at(x, start=0, count=k + 1)
    between = basis_at(x, start=k + 1, count=k + 1)
    (bits,) = combine(weights_of([rest]), secrets.bits)
    return BlockProof(
        row_point,
        sum_point,
        quotient_points,
        [(first * a + b) % L for a, b in zip(row_mask, bits, strict=True)],
        (first * sum_mask + _dot(rest, secrets.sums)) % L,
        (first * row_mask_blinding + _dot(rest, secrets.row_blindings)) % L,
        (first * sum_mask_blinding + _dot(rest, secrets.sum_blindings)) % L,
        _dot(between, quotient_blindings) % L,
    )


def add_claims(
    statement: BlockStatement,
    proof: BlockProof,
    *,
    y: int,
    x: int,
    weights: Sequence[int],
    into: Relation,
) -> None:
    """Add the three claims of an accepted proof at the challenges y and x, under three weights."""
    k, m = statement.signs.shape
    first, *rest = basis_at(x, start=0, count=k + 1)
    of_rows, of_sums, of_quotients = weights
    into.add(proof.row_mask, of_rows * first)
    into.add(proof.sum_mask, of_sums * first)
    for point, other, scalar in zip(statement.rows, statement.sums, rest, strict=True):
        into.add(point, of_rows * scalar)
        into.add(other, of_sums * scalar)
    for base, value in zip(column_bases(m), proof.row, strict=True):
        into.add(base, -of_rows * value)
    for point, scalar in zip(proof.quotients, basis_at(x, start=k + 1, count=k + 1), strict=True):
        into.add(point, of_quotients * scalar)
    quotient = relation_at(statement.signs, proof, y=y, x=x) * pow(vanishing_at(x, count=k), -1, L)
    into.add(VALUE_BASE, -of_sums * proof.total - of_quotients * quotient)
    blinding = (
        of_rows * proof.row_blinding
        + of_sums * proof.sum_blinding
        + of_quotients * proof.quotient_blinding
    )
    into.add(BLINDING_BASE, -blinding)


def challenges_of(proof: BlockProof, challenges: Challenges) -> tuple[int, int]:
    """Y and x as the prover had to derive them."""
    y = _y(challenges, proof.row_mask, proof.sum_mask)
    return y, _x(challenges, proof.quotients)


def relation_at(signs: npt.NDArray[np.uint8], proof: BlockProof, *, y: int, x: int) -> int:
    """p(x), from the opened f(x) and s(x)."""
    k, m = signs.shape
    _, *rest = basis_at(x, start=0, count=k + 1)
    (raised,) = combine(weights_of([rest]), signs)
    return _relation(proof.row, raised, sum(rest), proof.total, _powers(y, m))


def _y(challenges: Challenges, row_mask: bytes, sum_mask: bytes) -> int:
    challenges.absorb(b"masks", row_mask + sum_mask)
    return challenges.scalar(b"y")


def _x(challenges: Challenges, quotients: Sequence[bytes]) -> int:
    challenges.absorb(b"quotients", b"".join(quotients))
    return challenges.scalar(b"x")


def _dot(first: Sequence[int], second: Sequence[int]) -> int:
    return sum(a * b for a, b in zip(first, second, strict=True))


def _powers(y: int, m: int) -> list[int]:
    """y, y², …, y^(m+1)."""
    return list(itertools.accumulate(range(m), lambda power, _: power * y % L, initial=y))


def _relation(
    row: Sequence[int], raised: Sequence[int], offset: int, total: int, powers: Sequence[int]
) -> int:
    """Σ_i y^i·f_i(f_i − 1) + y^(m+1)·(Σ_i u_i·f_i − s), u_i = raised_i − offset."""
    *of_bits, of_sum = powers
    p = -of_sum * total
    for f, sign, power in zip(row, raised, of_bits, strict=True):
        p += f * ((power * (f - 1) + of_sum * (sign - offset)) % L)
    return p % L


@functools.lru_cache(maxsize=64)
def _further_points(k: int) -> tuple[list[int], list[list[int]], Weights, list[int]]:
    """At k+1 … 2k+1: ℓ_0, the others, those cut into words, and 1/Π(t − j)."""
    points = range(k + 1, 2 * k + 2)
    bases = [basis_at(t, start=0, count=k + 1) for t in points]
    rest = [basis[1:] for basis in bases]
    inverses = [pow(vanishing_at(t, count=k), -1, L) for t in points]
    return [basis[0] for basis in bases], rest, weights_of(rest), inverses


def _quotients(
    statement: BlockStatement, secrets: BlockSecrets, row_mask: Sequence[int], sum_mask: int, y: int
) -> list[int]:
    """Q at k+1 … 2k+1."""
    k, m = secrets.bits.shape
    firsts, rests, weights, inverses = _further_points(k)
    powers = _powers(y, m)
    out = []
    every = zip(
        firsts,
        rests,
        combine(weights, secrets.bits),
        combine(weights, statement.signs),
        inverses,
        strict=True,
    )
    for first, rest, bits, raised, inverse in every:
        row = [(first * a + b) % L for a, b in zip(row_mask, bits, strict=True)]
        total = first * sum_mask + _dot(rest, secrets.sums)
        out.append(_relation(row, raised, sum(rest), total, powers) * inverse % L)
    return out
