"""The verifier: flips the prover's coins after they were committed, and checks the release."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from dpaudit.errors import CheatingError, MessageError, ProtocolError, UsageError
from dpaudit.protocols import Stream
from dpaudit.randomness import KeyedStream
from dpaudit_mitigations.verifiable_counts.bit_proofs import (
    BlockStatement,
    add_claims,
    challenges_of,
)
from dpaudit_mitigations.verifiable_counts.challenges import session_challenges
from dpaudit_mitigations.verifiable_counts.group import (
    BLINDING_BASE,
    VALUE_BASE,
    Relation,
    random_scalar,
    random_scalars,
)
from dpaudit_mitigations.verifiable_counts.messages import (
    Commitments,
    Response,
    decode_seed,
    encode_seed,
    public_coins,
    sign_session,
)
from dpaudit_mitigations.verifiable_counts.terms import CountTerms

__all__ = ["Verifier", "check_session"]


class Verifier:
    """Draws the public coins; one session, each step once, in order, and none after a refusal."""

    def __init__(
        self,
        terms: CountTerms,
        *,
        stream: Stream | None = None,
        counts: Sequence[bytes] | None = None,
    ) -> None:
        """A verifier; ``counts`` are the counts' commitments if the clients made them.

        Its coins are the operating system's, or in simulations ``stream``'s: for one session only.

        Raises:
            UsageError: another number of ``counts`` than bins.
        """
        if counts is not None and len(counts) != terms.bins:
            raise UsageError(f"counts: {len(counts)} commitments, must be bins={terms.bins}")
        self._terms, self._counts = terms, counts
        self._stream: Stream = KeyedStream.fresh() if stream is None else stream
        self._commitments = self._challenge = self._response = b""
        self._stage = "new"

    def challenge(self, commitments: bytes) -> bytes:
        """Message 2, from message 1.

        Raises:
            MessageError: message 1 is not one of this session, or the call is out of order.
            CheatingError: the counts' commitments are not those expected.
        """
        self._advance("new", "refused")
        received = Commitments.decode(commitments, self._terms)
        if self._counts is not None and list(received.counts) != list(self._counts):
            raise CheatingError("counts: the prover's commitments are not the sums of the clients'")
        self._commitments = commitments
        self._challenge = encode_seed(self._stream.child("public coins").bytes(32), self._terms)
        self._stage = "challenged"
        return self._challenge

    def check(self, response: bytes) -> list[int]:
        """The released numbers, one per bin, from message 3.

        Raises:
            MessageError: message 3 is not one of this session, or the call is out of order.
            CheatingError: a proof or an opening does not hold; the text says which.
        """
        self._advance("challenged", "refused")
        released = check_session(
            self._terms,
            self._commitments,
            self._challenge,
            response,
            stream=self._stream.child("weights"),
        )
        self._response = response
        self._stage = "done"
        return released

    def sign(self, key: Ed25519PrivateKey) -> bytes:
        """The verifier's signature: it drew these coins after these commitments, and accepted.

        Raises:
            MessageError: nothing has been accepted.
        """
        self._advance("done", "done")
        return sign_session(
            self._terms,
            commitments=self._commitments,
            challenge=self._challenge,
            response=self._response,
            key=key,
        )

    def _advance(self, expected: str, to: str) -> None:
        if self._stage != expected:
            raise MessageError(f"verifier: is {self._stage}; take every step once, in order")
        self._stage = to


def check_session(
    terms: CountTerms, commitments: bytes, challenge: bytes, response: bytes, *, stream: Stream
) -> list[int]:
    """The released numbers if messages 1, 2 and 3 are what honest parties would have sent.

    Checks all claims at once under random weights from ``stream``, which the prover must not know;
    if that fails, one by one to find the false one.

    Raises:
        MessageError: a message of another session, length, or with an encoding that is not
            canonical.
        CheatingError: a proof or an opening does not hold; says which.
    """
    first = Commitments.decode(commitments, terms)
    decode_seed(challenge, terms)
    third = Response.decode(response, terms)
    public = public_coins(terms, commitments=commitments, challenge=challenge)
    signs = terms.in_rows(2 - 2 * public, rest=1)
    challenges = session_challenges(
        terms, commitments=commitments, challenge=challenge, sums=third.sums
    )
    statements = [BlockStatement(first.rows[b], third.sums[b], signs[b]) for b in terms.blocks]
    points = [
        challenges_of(proof, challenges.fork(b"block %d" % number))
        for number, proof in enumerate(third.proofs)
    ]
    tails = public.sum(1, dtype=np.int64).tolist()

    def add_block(number: int, relation: Relation) -> None:
        y, x = points[number]
        weights = random_scalars(3, stream)
        add_claims(
            statements[number], third.proofs[number], y=y, x=x, weights=weights, into=relation
        )

    def add_bin(number: int, relation: Relation) -> None:
        weight, each = random_scalar(stream), terms.rows_a_bin
        relation.add(first.counts[number], weight)
        for point in third.sums[number * each : (number + 1) * each]:
            relation.add(point, weight)
        relation.add(
            VALUE_BASE, -weight * (third.released[number] + terms.coins // 2 - tails[number])
        )
        relation.add(BLINDING_BASE, -weight * third.blindings[number])

    claims = [("block", add_block, len(statements)), ("bin", add_bin, terms.bins)]
    together = Relation()
    for _, add_claim, count in claims:
        for number in range(count):
            add_claim(number, together)
    if together.holds():
        return list(third.released)
    for name, add_claim, count in claims:
        for number in range(count):
            alone = Relation()
            add_claim(number, alone)
            if not alone.holds():
                what = "coins are no bits or no such sums"
                if name == "bin":
                    what = "the release does not open"
                raise CheatingError(f"{name} {number + 1} of {count}: {what}")
    raise ProtocolError("verification: claims hold alone but not together; memory error?")
