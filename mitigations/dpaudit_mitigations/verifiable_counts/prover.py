"""The prover: commits to counts and private coins, then flips, releases and proves."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from dpaudit.errors import MessageError, UsageError
from dpaudit.protocols import Stream
from dpaudit.randomness import KeyedStream
from dpaudit_mitigations.verifiable_counts.bit_proofs import BlockSecrets, BlockStatement, prove
from dpaudit_mitigations.verifiable_counts.challenges import session_challenges
from dpaudit_mitigations.verifiable_counts.commitments import Opening, commit, commit_rows
from dpaudit_mitigations.verifiable_counts.group import L, random_scalars
from dpaudit_mitigations.verifiable_counts.messages import (
    LARGEST_RELEASE,
    Commitments,
    Response,
    decode_seed,
    public_coins,
)
from dpaudit_mitigations.verifiable_counts.terms import CountTerms

__all__ = ["Prover"]


class Prover:
    """Holds the counts; one session, each step once and in order.

    Its state is secret and never leaves memory: a prover that answered two challenges from one
    state would reveal its coins, so it cannot be resumed.
    """

    def __init__(
        self, terms: CountTerms, openings: Sequence[Opening], *, stream: Stream | None = None
    ) -> None:
        """A prover of ``openings``, one per bin (:func:`~.commitments.open_counts`, or clients').

        Its randomness is the operating system's, or in simulations ``stream``: for one session
        only, since two answers from the same bits reveal them. (As a safeguard, bits and blindings
        also depend on the terms and the counts' commitments, and masks on the challenge.)

        Raises:
            UsageError: another number of openings than bins, or a count beyond 2^52.
        """
        if len(openings) != terms.bins:
            raise UsageError(f"openings: {len(openings)} for bins={terms.bins}; give one per bin")
        if any(abs(opening.value) > LARGEST_RELEASE // 2 for opening in openings):
            raise UsageError("counts: one is beyond 2^52; rescale the counts")
        self._terms, self._openings = terms, openings
        self._stream: Stream = KeyedStream.fresh() if stream is None else stream
        self._bits: npt.NDArray[np.uint8] = np.empty((0, 0), np.uint8)
        self._blindings: list[int] = []
        self._commitments = b""
        self._stage = "new"

    def commit(self) -> bytes:
        """Message 1.

        Raises:
            MessageError: it was called before.
        """
        self._advance("new", "committed")
        terms = self._terms
        count = terms.bins * terms.coins
        counts = [opening.commitment for opening in self._openings]
        about = hashlib.sha512(terms.encode() + b"".join(counts)).hexdigest()
        data = np.frombuffer(self._stream.child("coins", about).bytes(-(-count // 8)), np.uint8)
        bits = np.unpackbits(data, count=count).reshape(terms.bins, terms.coins)
        self._bits = terms.in_rows(bits, rest=0)
        self._blindings = random_scalars(terms.rows, self._stream.child("row blindings", about))
        message = Commitments(counts, commit_rows(self._bits, self._blindings))
        self._commitments = message.encode(terms)
        return self._commitments

    def respond(self, challenge: bytes) -> bytes:
        """Message 3, from message 2.

        Raises:
            MessageError: message 2 is not one of this session, or the call is out of order.
        """
        terms = self._terms
        decode_seed(challenge, terms)
        self._advance("committed", "done")
        rows = Commitments.decode(self._commitments, terms).rows
        public = public_coins(terms, commitments=self._commitments, challenge=challenge)
        signs = terms.in_rows(2 - 2 * public, rest=1)
        flipped = self._bits.astype(np.int64) * (signs.astype(np.int64) - 1)
        sums = flipped.sum(1).tolist()
        heads = flipped.reshape(terms.bins, -1).sum(1) + public.sum(1, dtype=np.int64)
        about = hashlib.sha512(self._commitments + challenge).hexdigest()
        masks = self._stream.child("masks", about)
        sum_blindings = random_scalars(terms.rows, masks.child("sum blindings"))
        sum_points = [
            commit(value, blinding) for value, blinding in zip(sums, sum_blindings, strict=True)
        ]
        challenges = session_challenges(
            terms, commitments=self._commitments, challenge=challenge, sums=sum_points
        )
        proofs = [
            prove(
                BlockStatement(rows[block], sum_points[block], signs[block]),
                BlockSecrets(
                    self._bits[block], self._blindings[block], sums[block], sum_blindings[block]
                ),
                challenges=challenges.fork(b"block %d" % number),
                stream=masks.child("proof", number),
            )
            for number, block in enumerate(terms.blocks)
        ]
        noises = heads - terms.coins // 2
        released = [o.value + int(noise) for o, noise in zip(self._openings, noises, strict=True)]
        each = terms.rows_a_bin
        blindings = [
            (opening.blinding + sum(sum_blindings[at * each : (at + 1) * each])) % L
            for at, opening in enumerate(self._openings)
        ]
        self._bits, self._blindings = np.empty((0, 0), np.uint8), []
        return Response(sum_points, released, blindings, proofs).encode(terms)

    def _advance(self, expected: str, to: str) -> None:
        if self._stage != expected:
            raise MessageError(f"prover: is {self._stage}; take every step once, in order")
        self._stage = to
