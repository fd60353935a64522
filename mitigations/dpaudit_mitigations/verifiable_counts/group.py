"""The group ristretto255 (RFC 9496) by libsodium, and Pedersen commitments in it.

Strict encodings, sums, hashed generators. Points and scalars travel as 32 bytes. Points stay
encoded; scalars are Python integers modulo the order ``L``. libsodium's operations on points take
the same time whatever the scalar; Python's integers do not.

Commitments are to a number, ``value·G + blinding·B``, or to a whole row of bits,
``Σ bit_i·H_i + blinding·B``: perfectly hiding; binding as long as nobody knows a linear relation
between B, G and the H_i (discrete logarithms in ristretto255). B is the group's base point, the
others are hashes of their names.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import rbcl

from dpaudit.errors import MessageError, UsageError
from dpaudit.protocols import Stream
from dpaudit.randomness import KeyedStream

__all__ = [
    "BLINDING_BASE",
    "GROUPED",
    "IDENTITY",
    "SIZE",
    "VALUE_BASE",
    "L",
    "Opening",
    "Relation",
    "add",
    "blinding_multiple",
    "column_bases",
    "commit",
    "commit_rows",
    "decode_point",
    "decode_points",
    "decode_scalar",
    "decode_scalars",
    "encode_scalar",
    "encode_scalars",
    "generator",
    "multiple",
    "open_counts",
    "random_scalar",
    "random_scalars",
    "sum_of_multiples",
]

SIZE = 32
L = 2**252 + 27742317777372353535851937790883648493
IDENTITY = bytes(SIZE)


def decode_scalar(data: bytes) -> int:
    """The scalar with this canonical encoding: 32 bytes, little-endian, below ``L``.

    Raises:
        MessageError: any other bytes.
    """
    value = int.from_bytes(data, "little")
    if len(data) != SIZE or value >= L:
        raise MessageError("scalar: must be 32 bytes below the group's order")
    return value


def decode_point(data: bytes) -> bytes:
    """``data`` if it is the canonical encoding of a point other than the identity.

    The top bit is checked here: libsodium 1.0.18 ignores it, which would give each point two
    encodings.

    Raises:
        MessageError: it is not.
    """
    valid = len(data) == SIZE and data != IDENTITY and data[-1] < 128
    if not (valid and rbcl.crypto_core_ristretto255_is_valid_point(data)):
        raise MessageError("point: must be canonical ristretto255, and not the identity")
    return data


def _pieces(data: bytes) -> list[bytes]:
    if len(data) % SIZE:
        raise MessageError("points or scalars: length must be a multiple of 32 bytes")
    return [data[at : at + SIZE] for at in range(0, len(data), SIZE)]


def decode_points(data: bytes) -> list[bytes]:
    """Points one after the other, each as for :func:`decode_point`."""
    return [decode_point(piece) for piece in _pieces(data)]


def decode_scalars(data: bytes) -> list[int]:
    """Scalars one after the other, each as for :func:`decode_scalar`."""
    return [decode_scalar(piece) for piece in _pieces(data)]


def encode_scalar(value: int) -> bytes:
    """``value`` modulo ``L``, 32 bytes."""
    return (value % L).to_bytes(SIZE, "little")


def encode_scalars(values: Iterable[int]) -> bytes:
    """The encoded scalars, one after the other."""
    return b"".join(map(encode_scalar, values))


def random_scalar(stream: Stream) -> int:
    """A uniform scalar: 64 bytes of ``stream`` modulo ``L``, uniform up to 2^−259."""
    return int.from_bytes(stream.bytes(64), "little") % L


def random_scalars(count: int, stream: Stream) -> list[int]:
    """``count`` uniform scalars."""
    data = stream.bytes(64 * count)
    return [int.from_bytes(data[at : at + 64], "little") % L for at in range(0, len(data), 64)]


def add(first: bytes, second: bytes) -> bytes:
    """The sum of two valid points (one may be the identity)."""
    return bytes(rbcl.crypto_core_ristretto255_add(first, second))


def multiple(scalar: int, point: bytes) -> bytes:
    """``scalar`` times a valid ``point``."""
    return bytes(
        rbcl.crypto_scalarmult_ristretto255_allow_scalar_zero(encode_scalar(scalar), point)
    )


def blinding_multiple(scalar: int) -> bytes:
    """``scalar`` times B, the group's base point, which blinds every commitment."""
    return bytes(rbcl.crypto_scalarmult_ristretto255_base_allow_scalar_zero(encode_scalar(scalar)))


def sum_of_multiples(points: Sequence[bytes], scalars: Sequence[int]) -> bytes:
    """Σ scalar·point over valid points; takes the same time whatever the scalars."""
    total = IDENTITY
    for point, scalar in zip(points, scalars, strict=True):
        total = add(total, multiple(scalar, point))
    return total


@functools.lru_cache(maxsize=1024)
def generator(name: str) -> bytes:
    """A point of unknown logarithm: SHA-512 of a domain string, mapped as in RFC 9496, 4.3.4."""
    digest = hashlib.sha512(b"dpaudit verifiable-counts v1 generator " + name.encode()).digest()
    return bytes(rbcl.crypto_core_ristretto255_from_hash(digest))


VALUE_BASE = generator("value")
BLINDING_BASE = blinding_multiple(1)


class Relation:
    """A sum of multiples of points that should be the identity; equal points share one term.

    Several claims go into one relation under random weights drawn after all of them were made: if
    any is false, the sum vanishes with probability at most 1/L (it is linear in that claim's
    weight).
    """

    def __init__(self) -> None:
        self._terms: dict[bytes, int] = {}

    def add(self, point: bytes, scalar: int) -> None:
        """Add ``scalar``·``point``; the point is valid (decoded)."""
        self._terms[point] = (self._terms.get(point, 0) + scalar) % L

    def holds(self) -> bool:
        """Whether the sum is the identity."""
        return sum_of_multiples(list(self._terms), list(self._terms.values())) == IDENTITY


GROUPED = 4  # columns per table of all sums of their bases: one addition for four bits


def commit(value: int, blinding: int) -> bytes:
    """``value·G + blinding·B``."""
    return add(multiple(value, VALUE_BASE), blinding_multiple(blinding))


@dataclass(frozen=True)
class Opening:
    """A committed number and its blinding: secret. Openings add up as their commitments do."""

    value: int
    blinding: int = field(repr=False)

    @property
    def commitment(self) -> bytes:
        return commit(self.value, self.blinding)

    def __repr__(self) -> str:
        return "Opening(…)"


def open_counts(counts: Sequence[int], *, stream: Stream | None = None) -> list[Opening]:
    """A curator's own openings of its counts.

    Blindings are the operating system's, or in simulations the next of ``stream``: two counts under
    one blinding would reveal their difference.
    """
    blindings = random_scalars(len(counts), KeyedStream.fresh() if stream is None else stream)
    return [
        Opening(int(value), blinding) for value, blinding in zip(counts, blindings, strict=True)
    ]


@functools.lru_cache(maxsize=64)
def column_bases(columns: int) -> tuple[bytes, ...]:
    """H_1 … H_columns."""
    return tuple(generator(f"column {i}") for i in range(1, columns + 1))


@functools.lru_cache(maxsize=512)
def _sums(group: int) -> tuple[bytes, ...]:
    """The 16 sums of subsets of a group's four bases; bit i of the index takes base i."""
    sums = [IDENTITY]
    for base in column_bases(GROUPED * (group + 1))[-GROUPED:]:
        sums += [add(known, base) for known in sums]
    return tuple(sums)


def commit_rows(bits: npt.NDArray[np.uint8], blindings: Sequence[int]) -> list[bytes]:
    """A commitment to each row of ``bits`` (rows, columns), columns a multiple of 4.

    The additions are the same whatever the bits (a zero adds the identity), but which stored sum is
    read depends on them: see the timing note in ``mitigation.py``.

    Raises:
        UsageError: columns that are not a multiple of 4.
    """
    rows, columns = bits.shape
    if columns % GROUPED:
        raise UsageError(f"columns={columns}: must be a multiple of {GROUPED}")
    tables = [_sums(group) for group in range(columns // GROUPED)]
    picks = (bits.reshape(rows, -1, GROUPED) @ (1 << np.arange(GROUPED, dtype=np.int64))).tolist()
    commitments = []
    for row, blinding in zip(picks, blindings, strict=True):
        total = blinding_multiple(blinding)
        for table, pick in zip(tables, row, strict=True):
            total = add(total, table[pick])
        commitments.append(total)
    return commitments
