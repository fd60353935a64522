"""Clients commit to their own records, so that the prover cannot invent or drop any.

A record is a one-hot vector of proved bits. A client sends its record (commitments, a proof per
bin, the blinding that opens their sum to 1) to the verifier, and the openings to the prover over a
private channel. The prover checks these against the record (a client that lies to it would make it
look like a cheat). Both add up the same clients' records, one of each;
:class:`~.verifier.Verifier` then insists on the sums.

That a commitment holds a bit is proved by Schnorr proofs for 0 and for 1, one of them simulated:
Cramer, Damgård and Schoenmakers (Proofs of Partial Knowledge, CRYPTO 1994), made non-interactive. C
is ``blinding·B`` or C − G is. Formal guarantees (random oracle model): two accepted proofs with the
same first message and different challenges give an opening to 0 or 1; perfect zero knowledge for
honest challenges. For single commitments; the prover's coins, of which there are many, are proved
in blocks (``bit_proofs.py``) at a tenth of the cost or less.
"""

from __future__ import annotations

from collections.abc import Sequence

from dpaudit.errors import CheatingError, MessageError, UsageError
from dpaudit.protocols import Stream
from dpaudit.randomness import KeyedStream
from dpaudit_mitigations.verifiable_counts.group import (
    IDENTITY,
    SIZE,
    VALUE_BASE,
    L,
    Opening,
    add,
    blinding_multiple,
    commit,
    decode_points,
    decode_scalar,
    decode_scalars,
    encode_scalar,
    encode_scalars,
    multiple,
    random_scalars,
)
from dpaudit_mitigations.verifiable_counts.terms import Challenges, CountTerms

__all__ = [
    "add_commitments",
    "add_openings",
    "check_bit",
    "check_openings",
    "check_record",
    "make_record",
    "prove_bit",
]


PROOF_BYTES = 4 * SIZE
_BRANCHES = (IDENTITY, multiple(L - 1, VALUE_BASE))  # added to C for each claim


def _announcement(commitment: bytes, value: int, *, challenge: int, answer: int) -> bytes:
    """The first message for which ``answer`` proves that ``commitment`` holds ``value``."""
    claim = add(commitment, _BRANCHES[value])
    return add(blinding_multiple(answer), multiple(-challenge, claim))


def prove_bit(
    commitment: bytes, opening: Opening, *, challenges: Challenges, stream: Stream
) -> bytes:
    """128 bytes, both challenges and both answers; ``challenges`` has absorbed the context.

    Raises:
        CheatingError: the opening is no bit: no proof exists.
    """
    if opening.value not in {0, 1}:
        raise CheatingError("opening: holds neither 0 nor 1; no proof exists")
    true = opening.value
    nonce, other_challenge, other_answer = random_scalars(3, stream)
    own = blinding_multiple(nonce)
    other = _announcement(commitment, 1 - true, challenge=other_challenge, answer=other_answer)
    both = (own, other) if true == 0 else (other, own)
    own_challenge = (_challenge(commitment, both, challenges) - other_challenge) % L
    own_answer = (nonce + own_challenge * opening.blinding) % L
    pairs = [(own_challenge, own_answer), (other_challenge, other_answer)]
    (e0, s0), (e1, s1) = pairs if true == 0 else pairs[::-1]
    return encode_scalars([e0, e1, s0, s1])


def check_bit(commitment: bytes, proof: bytes, *, challenges: Challenges) -> None:
    """Accept ``proof`` for ``commitment`` (a decoded point) or raise.

    Raises:
        MessageError: it is not 128 bytes of four canonical scalars.
        CheatingError: it does not hold.
    """
    if len(proof) != PROOF_BYTES:
        raise MessageError(f"bit proof of {len(proof)} bytes: must have {PROOF_BYTES}")
    e0, e1, s0, s1 = decode_scalars(proof)
    first = _announcement(commitment, 0, challenge=e0, answer=s0)
    second = _announcement(commitment, 1, challenge=e1, answer=s1)
    if (e0 + e1 - _challenge(commitment, (first, second), challenges)) % L:
        raise CheatingError("a bit's proof does not hold")


def _challenge(
    commitment: bytes, announcements: tuple[bytes, bytes], challenges: Challenges
) -> int:
    own = challenges.fork(b"bit")
    own.absorb(b"commitment", commitment)
    own.absorb(b"announcements", b"".join(announcements))
    return own.scalar(b"e")


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
