"""Clients commit to their own records, so that the prover cannot invent or drop any.

A record is a one-hot vector of proved bits. A client sends its record (commitments, a proof per
bin, the blinding that opens their sum to 1) to the verifier, and the openings to the prover over a
private channel. The prover checks these against the record (a client that lies to it would make it
look like a cheat). Both add up the same clients' records, one of each;
:class:`~.verifier.Verifier` then insists on the sums.
"""

from __future__ import annotations

from collections.abc import Sequence

from dpaudit.errors import CheatingError, MessageError, UsageError
from dpaudit.protocols import Stream
from dpaudit.randomness import KeyedStream
from dpaudit_mitigations.verifiable_counts.challenges import Challenges
from dpaudit_mitigations.verifiable_counts.commitments import Opening, commit
from dpaudit_mitigations.verifiable_counts.disjunctive import PROOF_BYTES, check_bit, prove_bit
from dpaudit_mitigations.verifiable_counts.group import (
    IDENTITY,
    SIZE,
    L,
    add,
    decode_points,
    decode_scalar,
    encode_scalar,
    random_scalars,
)
from dpaudit_mitigations.verifiable_counts.terms import CountTerms

__all__ = ["add_commitments", "add_openings", "check_openings", "check_record", "make_record"]


def make_record(
    bin_number: int, terms: CountTerms, *, client: bytes, stream: Stream | None = None
) -> tuple[bytes, list[Opening]]:
    """The record of ``client`` (its authenticated name) in one bin, and its openings.

    The openings are for the prover alone. The randomness is the operating system's, or in
    simulations ``stream``'s. Blindings and nonces depend on the terms, the client and the bin: two
    proofs with one nonce would reveal the blinding.

    Raises:
        UsageError: no such bin.
    """
    if not 0 <= bin_number < terms.bins:
        raise UsageError(f"bin_number={bin_number}: must be from 0 to bins − 1 = {terms.bins - 1}")
    stream = KeyedStream.fresh() if stream is None else stream
    stream = stream.child("record", terms.encode().hex(), client.hex(), bin_number)
    blindings = random_scalars(terms.bins, stream.child("blindings"))
    openings = [Opening(int(at == bin_number), blinding) for at, blinding in enumerate(blindings)]
    points = [opening.commitment for opening in openings]
    challenges = _challenges(terms, client, points)
    proofs = [
        prove_bit(
            point,
            opening,
            challenges=challenges.fork(b"bin %d" % at),
            stream=stream.child("proof", at),
        )
        for at, (point, opening) in enumerate(zip(points, openings, strict=True))
    ]
    return b"".join([*points, *proofs, encode_scalar(sum(blindings))]), openings


def check_record(record: bytes, terms: CountTerms, *, client: bytes) -> list[bytes]:
    """The commitments, one per bin, of a record that holds one 1 and otherwise 0.

    Raises:
        MessageError: another length, or an encoding that is not canonical.
        CheatingError: a proof does not hold, or the record is not of this client and session.
    """
    size = terms.bins * (SIZE + PROOF_BYTES) + SIZE
    if len(record) != size:
        raise MessageError(f"record of {len(record)} bytes: must have {size}")
    cut = SIZE * terms.bins
    points = decode_points(record[:cut])
    challenges = _challenges(terms, client, points)
    for at, point in enumerate(points):
        proof = record[cut + at * PROOF_BYTES : cut + (at + 1) * PROOF_BYTES]
        check_bit(point, proof, challenges=challenges.fork(b"bin %d" % at))
    if add_commitments([[point] for point in points]) != [commit(1, decode_scalar(record[-SIZE:]))]:
        raise CheatingError("a record: its commitments do not add up to one")
    return points


def check_openings(openings: Sequence[Opening], points: Sequence[bytes]) -> None:
    """For the prover: check that a client's openings open its record's commitments.

    Raises:
        CheatingError: they do not.
    """
    if [opening.commitment for opening in openings] != list(points):
        raise CheatingError("openings: do not open the record's commitments; exclude the client")


def add_commitments(records: Sequence[Sequence[bytes]]) -> list[bytes]:
    """The sum of all clients' commitments, bin by bin."""
    totals = [IDENTITY] * len(records[0]) if records else []
    for record in records:
        totals = [add(total, point) for total, point in zip(totals, record, strict=True)]
    return totals


def add_openings(records: Sequence[Sequence[Opening]]) -> list[Opening]:
    """The sum of all clients' openings, bin by bin."""
    return [
        Opening(
            sum(opening.value for opening in bins), sum(opening.blinding for opening in bins) % L
        )
        for bins in zip(*records, strict=True)
    ]


def _challenges(terms: CountTerms, client: bytes, points: Sequence[bytes]) -> Challenges:
    challenges = Challenges(b"record")
    challenges.absorb(b"terms", terms.encode())
    challenges.absorb(b"client", client)
    challenges.absorb(b"commitments", b"".join(points))
    return challenges
