"""Fiat–Shamir: a running hash of all messages so far, from which the challenges are derived."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from dpaudit_mitigations.verifiable_counts.group import L
from dpaudit_mitigations.verifiable_counts.terms import CountTerms

__all__ = ["Challenges", "session_challenges"]

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
