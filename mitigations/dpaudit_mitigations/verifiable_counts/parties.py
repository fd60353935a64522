"""The two parties of a session, as state machines: message in, message out, no I/O.

The prover commits to counts and private coins, then flips, releases and proves. The verifier flips
the prover's coins after they were committed, and checks the release.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from dpaudit.errors import CheatingError, MessageError, ProtocolError, UsageError
from dpaudit.protocols import Stream
from dpaudit.randomness import KeyedStream
from dpaudit_mitigations.verifiable_counts.bit_proofs import (
    BlockSecrets,
    BlockStatement,
    add_claims,
    challenges_of,
    prove,
)
from dpaudit_mitigations.verifiable_counts.group import (
    BLINDING_BASE,
    VALUE_BASE,
    L,
    Opening,
    Relation,
    commit,
    commit_rows,
    random_scalar,
    random_scalars,
)
from dpaudit_mitigations.verifiable_counts.messages import (
    LARGEST_RELEASE,
    Commitments,
    Response,
    decode_seed,
    encode_seed,
    public_coins,
    sign_session,
)
from dpaudit_mitigations.verifiable_counts.terms import CountTerms, session_challenges

__all__ = ["Prover", "Verifier", "check_session"]


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

    @property
    def done(self) -> bool:
        """Whether it has answered."""
        return self._stage == "done"

    def step(self, message: bytes | None) -> bytes:
        """Message 1 for None; message 3 for message 2.

        Raises:
            MessageError: message 2 is not one of this session, or the call is out of order.
        """
        return self._commit() if message is None else self._respond(message)

    def _commit(self) -> bytes:
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

    def _respond(self, challenge: bytes) -> bytes:
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
        self.messages: dict[str, bytes] = {}
        self.released: list[int] | None = None
        self._stage = "new"

    @property
    def done(self) -> bool:
        """Whether it has accepted; then ``released`` has the numbers, one per bin."""
        return self.released is not None

    def step(self, message: bytes | None) -> bytes | None:
        """Message 2 for message 1; None for message 3, once it is accepted.

        ``messages`` has all three by name.

        Raises:
            MessageError: not the message of this session that is due.
            CheatingError: the counts' commitments are not those expected; a proof or an opening
                does not hold: the text says which.
        """
        if message is None:
            raise MessageError("verifier: the prover begins the session")
        if self._stage == "new":
            return self._challenge(message)
        self._check(message)
        return None

    def _challenge(self, commitments: bytes) -> bytes:
        self._advance("new", "refused")
        received = Commitments.decode(commitments, self._terms)
        if self._counts is not None and list(received.counts) != list(self._counts):
            raise CheatingError("counts: the prover's commitments are not the sums of the clients'")
        challenge = encode_seed(self._stream.child("public coins").bytes(32), self._terms)
        self.messages = {"commitments": commitments, "challenge": challenge}
        self._stage = "challenged"
        return challenge

    def _check(self, response: bytes) -> None:
        self._advance("challenged", "refused")
        self.messages["response"] = response
        self.released = check_session(
            self._terms, **self.messages, stream=self._stream.child("weights")
        )
        self._stage = "done"

    def sign(self, key: Ed25519PrivateKey) -> bytes:
        """The verifier's signature: it drew these coins after these commitments, and accepted.

        Raises:
            MessageError: nothing has been accepted.
        """
        self._advance("done", "done")
        return sign_session(self._terms, **self.messages, key=key)

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
                fault = "coins that are not bits, or other sums"
                if name == "bin":
                    fault = "the release does not open"
                raise CheatingError(f"{name} {number + 1} of {count}: {fault}")
    raise ProtocolError("verification: claims hold alone but not together; memory error?")
