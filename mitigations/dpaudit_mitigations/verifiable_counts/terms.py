"""What prover and verifier agree on beforehand, and the challenges that depend on it.

How the coins fill rows and blocks; and Fiat–Shamir: a running hash of all messages so far, from
which the challenges are derived.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from dpaudit.errors import UsageError
from dpaudit.protocols import Stream
from dpaudit_mitigations.verifiable_counts.group import GROUPED, L

__all__ = [
    "MOST_BINS",
    "MOST_COINS",
    "MOST_IN_ALL",
    "SESSION_BYTES",
    "Challenges",
    "CountTerms",
    "session_challenges",
]

SESSION_BYTES = 32
MOST_BINS = 1 << 16
MOST_COINS = 1 << 24
MOST_IN_ALL = 1 << 26
_WIDEST = 128
_BLOCK = 64


@dataclass(frozen=True)
class CountTerms:
    """One session: ``bins`` counts, each with ``coins`` fair coins (an even number), centred.

    ``session`` is 32 bytes that the verifier never uses twice. The coins of a bin fill whole rows
    of ``columns`` bits, in order; the rest of its last row is ignored. Blocks of up to 64 rows are
    proved together.
    """

    session: bytes
    bins: int
    coins: int

    def __post_init__(self) -> None:
        """Check.

        Raises:
            UsageError: a number out of range, odd coins, or a session that is not 32 bytes.
        """
        if not (isinstance(self.session, bytes) and len(self.session) == SESSION_BYTES):
            raise UsageError(f"session: must be {SESSION_BYTES} bytes; use CountTerms.fresh(…)")
        if type(self.bins) is not int or not 1 <= self.bins <= MOST_BINS:
            raise UsageError(f"bins={self.bins}: must be from 1 to {MOST_BINS:,}")
        if type(self.coins) is not int or not 2 <= self.coins <= MOST_COINS or self.coins % 2:
            raise UsageError(f"coins={self.coins}: must be even, from 2 to {MOST_COINS:,}")
        if self.bins * self.coins > MOST_IN_ALL:
            raise UsageError(
                f"bins={self.bins}, coins={self.coins}: more than {MOST_IN_ALL:,} coins; this "
                "protocol is for counts and small histograms; use joint-seeds, or sessions of "
                "fewer bins"
            )

    @classmethod
    def fresh(cls, *, bins: int, coins: int, stream: Stream) -> CountTerms:
        """Terms with a session drawn from the verifier's ``stream``."""
        return cls(stream.bytes(SESSION_BYTES), bins, coins)

    @cached_property
    def rows_a_bin(self) -> int:
        """So many that bases and rows cost about the same, a row costing three times a base."""
        widest = max(GROUPED, min(_WIDEST, round(math.sqrt(3 * self.bins * self.coins))))
        return -(-self.coins // widest)

    @cached_property
    def columns(self) -> int:
        return -(-self.coins // (self.rows_a_bin * GROUPED)) * GROUPED

    @property
    def rows(self) -> int:
        return self.bins * self.rows_a_bin

    @property
    def blocks(self) -> list[slice]:
        """The rows of each block."""
        return [slice(at, min(at + _BLOCK, self.rows)) for at in range(0, self.rows, _BLOCK)]

    def in_rows(self, per_coin: npt.NDArray[np.uint8], *, rest: int) -> npt.NDArray[np.uint8]:
        """Numbers per coin (bins, coins) laid out as (rows, columns), with ``rest`` for no coin."""
        out = np.full((self.bins, self.rows_a_bin * self.columns), rest, dtype=np.uint8)
        out[:, : self.coins] = per_coin
        return out.reshape(self.rows, self.columns)

    def encode(self) -> bytes:
        """All fields, 48 bytes."""
        return self.session + self.bins.to_bytes(8, "little") + self.coins.to_bytes(8, "little")


_SMALL = 1 << 20  # challenges below it are skipped: the proofs interpolate at small numbers


class Challenges:
    """Absorbs labelled messages with their lengths; gives scalars that depend on all, in order.

    The hash is SHA-512 and starts from a domain string. ``fork`` continues from the current state
    under another label, so that proofs about the same messages have separate challenges.
    """

    def __init__(self, domain: bytes) -> None:
        self._state = hashlib.sha512(b"dpaudit verifiable-counts v1 challenges " + domain)

    def absorb(self, label: bytes, data: bytes) -> None:
        """Add one message."""
        for part in (label, data):
            self._state.update(len(part).to_bytes(8, "little"))
            self._state.update(part)

    def scalar(self, label: bytes) -> int:
        """A challenge, uniform on the scalars from 2^20 on (up to 2^−230)."""
        self.absorb(b"challenge", label)
        tries = 0
        while True:
            tries += 1
            ask = self._state.copy()
            ask.update(tries.to_bytes(8, "little"))
            value = int.from_bytes(ask.digest(), "little") % L
            if value >= _SMALL:
                return value

    def fork(self, label: bytes) -> Challenges:
        """A copy that continues independently under ``label``."""
        copy = Challenges(b"")
        copy._state = self._state.copy()
        copy.absorb(b"fork", label)
        return copy


def session_challenges(
    terms: CountTerms, *, commitments: bytes, challenge: bytes, sums: Sequence[bytes]
) -> Challenges:
    """What every block's challenges depend on: terms, messages 1 and 2, all sums' commitments."""
    challenges = Challenges(b"session")
    challenges.absorb(b"terms", terms.encode())
    challenges.absorb(b"message 1", commitments)
    challenges.absorb(b"message 2", challenge)
    challenges.absorb(b"sums", b"".join(sums))
    return challenges
