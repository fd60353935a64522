"""A proof that one commitment holds a bit: Schnorr proofs for 0 and for 1, one of them simulated.

Cramer, Damgård and Schoenmakers (Proofs of Partial Knowledge, CRYPTO 1994), made non-interactive. C
is ``blinding·B`` or C − G is. Formal guarantees (random oracle model): two accepted proofs with the
same first message and different challenges give an opening to 0 or 1; perfect zero knowledge for
honest challenges. For single commitments; the prover's coins, of which there are many, are proved
in blocks (``bit_proofs.py``) at a tenth of the cost or less.
"""

from __future__ import annotations

from dpaudit.errors import CheatingError, MessageError
from dpaudit.protocols import Stream
from dpaudit_mitigations.verifiable_counts.challenges import Challenges
from dpaudit_mitigations.verifiable_counts.commitments import Opening
from dpaudit_mitigations.verifiable_counts.group import (
    IDENTITY,
    SIZE,
    VALUE_BASE,
    L,
    add,
    blinding_multiple,
    decode_scalars,
    encode_scalars,
    multiple,
    random_scalars,
)

__all__ = ["PROOF_BYTES", "check_bit", "prove_bit"]

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
