"""What every party of a round agrees on beforehand: parties, threshold, length and ring."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from dpaudit.errors import UsageError

__all__ = [
    "LARGEST_LENGTH",
    "MOST_PARTIES",
    "ROUND_BYTES",
    "Plan",
    "RingArray",
    "least_threshold",
    "ring_dtype",
    "transcript",
]

ROUND_BYTES = 16
MOST_PARTIES = 1000
LARGEST_LENGTH = 1 << 32

RingArray = npt.NDArray[np.unsignedinteger[Any]]

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_DTYPES = {16: "<u2", 32: "<u4", 64: "<u8"}


def ring_dtype(bits: int) -> np.dtype[Any]:
    """Little-endian unsigned integers of ``bits`` bits, whose own overflow is the ring's.

    Raises:
        UsageError: bits not 16, 32 or 64.
    """
    if bits not in _DTYPES or isinstance(bits, bool):
        raise UsageError(f"bits={bits}: the ring has 16-, 32- or 64-bit integers")
    return np.dtype(_DTYPES[bits])


def least_threshold(parties: int, *, colluding: int = 0) -> int:
    """The least t > (n + c)/2.

    Then no two lists of survivors can each be signed by t of n parties, c of which sign both.
    """
    return (parties + colluding) // 2 + 1


def transcript(label: str, *parts: bytes) -> bytes:
    """SHA-256 of a label and byte strings, each preceded by its length: injective, 32 bytes."""
    state = hashlib.sha256()
    for part in (b"dpaudit secure aggregation", label.encode(), *parts):
        state.update(len(part).to_bytes(8, "big"))
        state.update(part)
    return state.digest()


@dataclass(frozen=True, kw_only=True)
class Plan:
    """One round, as agreed beforehand and over a channel that the aggregator does not control.

    ``round`` is 16 bytes that are never used again (take ``secrets.token_bytes(16)``). ``roster``
    maps names to raw Ed25519 public keys (32 bytes each). At least ``threshold`` t parties must
    stay to the end, so up to n − t may drop out; t exceeds (n + ``colluding``)/2, where
    ``colluding`` parties may work with the aggregator. ``length`` values of ``bits`` bits are
    summed. ``context`` is anything else that all must share (see ``FixedPoint.context``).

    Raises:
        UsageError: a field that breaks one of these rules, fewer than 3 parties, names that are not
            [A-Za-z0-9._-], or two parties with one key.
    """

    round: bytes
    roster: Mapping[str, bytes]
    threshold: int
    length: int
    bits: int = 32
    colluding: int = 0
    context: bytes = b""

    def __post_init__(self) -> None:
        n = len(self.roster)
        if len(self.round) != ROUND_BYTES:
            raise UsageError(f"round of {len(self.round)} bytes: use secrets.token_bytes(16)")
        if not 3 <= n <= MOST_PARTIES:
            raise UsageError(f"roster of {n}: takes 3 to {MOST_PARTIES} parties")
        for name, key in self.roster.items():
            if not _NAME.fullmatch(name):
                raise UsageError(
                    f"roster name={name!r}: takes 1 to 64 of A-Z a-z 0-9 . _ -, no sign first"
                )
            if len(key) != 32:
                raise UsageError(f"roster key of {name}: {len(key)} bytes; must have 32")
        if len(set(self.roster.values())) < n:
            raise UsageError("roster: two parties have the same public key; give each its own")
        if not 0 <= self.colluding <= n - 2:
            raise UsageError(f"colluding={self.colluding}: takes 0 to {n - 2} of {n} parties")
        least = least_threshold(n, colluding=self.colluding)
        if not least <= self.threshold <= n:
            raise UsageError(
                f"threshold={self.threshold}: takes {least} to {n} here, more than "
                "(parties + colluding)/2 and at most the number of parties; otherwise two "
                "different lists of survivors could both be signed"
            )
        if not 1 <= self.length <= LARGEST_LENGTH:
            raise UsageError(f"length={self.length}: takes 1 to {LARGEST_LENGTH} values")
        if len(self.context) > 1024:
            raise UsageError(f"context of {len(self.context)} bytes: at most 1024; give a digest")
        ring_dtype(self.bits)

    @cached_property
    def parties(self) -> tuple[str, ...]:
        """All names, sorted: their order is the masks' and the shares'."""
        return tuple(sorted(self.roster))

    @cached_property
    def places(self) -> Mapping[str, int]:
        """Each name's place from 1 on: where its share lies on the polynomials."""
        return {name: i for i, name in enumerate(self.parties, 1)}

    @cached_property
    def digest(self) -> bytes:
        """32 bytes that every message, key and signature of the round is bound to."""
        numbers = (self.threshold, self.length, self.bits, self.colluding)
        keys = [part for name in self.parties for part in (name.encode(), bytes(self.roster[name]))]
        return transcript(
            "plan",
            bytes(self.round),
            *(x.to_bytes(8, "big") for x in numbers),
            bytes(self.context),
            *keys,
        )

    @property
    def dtype(self) -> np.dtype[Any]:
        return ring_dtype(self.bits)
