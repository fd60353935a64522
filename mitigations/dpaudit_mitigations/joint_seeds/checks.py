"""Which opened candidates differ from their commitments: for the verifier and third parties."""

from __future__ import annotations

from dpaudit_mitigations.codec import Digest
from dpaudit_mitigations.joint_seeds.commitments import joint_key, labelled_hash, share_commitment
from dpaudit_mitigations.joint_seeds.derivation import Blocks, derived_noise, vector_digest
from dpaudit_mitigations.joint_seeds.messages import Commit, Noises, Offer, Openings
from dpaudit_mitigations.joint_seeds.record import SignedChain
from dpaudit_mitigations.joint_seeds.terms import SessionTerms

__all__ = [
    "candidate_holds",
    "candidate_noise",
    "noise_commitment",
    "query_commitment",
    "release_digest",
    "wrong_candidates",
]


def candidate_noise(key: bytes, terms: SessionTerms) -> Blocks:
    """The noise that the key of both shares gives."""
    return derived_noise(key, dim=terms.dim, scale=terms.scale)


def noise_commitment(
    session: bytes, index: int, key: bytes, blocks: Blocks, terms: SessionTerms, *, threads: int
) -> Digest:
    """Commitment to a candidate's noise, salted by its key.

    A bare digest would confirm a guess of the query: release − guess is the noise if the guess is
    right. The salt takes both shares, so that even somebody who knows the server's (a backdoored
    server's vendor) cannot do that.
    """
    digest = vector_digest("noise", blocks, dim=terms.dim, threads=threads)
    return labelled_hash(
        "noise commitment", session, index.to_bytes(4, "big"), labelled_hash("salt", key), digest
    )


def query_commitment(
    offered: bytes, opening: bytes, blocks: Blocks, terms: SessionTerms, *, threads: int
) -> Digest:
    """Commitment to the query result in steps; ``opening`` is both salts, verifier's ‖ server's.

    Each salt has 32 bytes.
    """
    digest = vector_digest("query", blocks, dim=terms.dim, threads=threads)
    return labelled_hash("query commitment", offered, opening, digest)


def release_digest(blocks: Blocks, terms: SessionTerms, *, threads: int) -> Digest:
    """Digest of a release in steps."""
    return vector_digest("release", blocks, dim=terms.dim, threads=threads)


def candidate_holds(
    record: SignedChain, index: int, server: bytes, verifier: bytes, *, threads: int
) -> bool:
    """Whether these openings (share ‖ nonce) fit their commitments, and their noise its own."""
    offer, commit = record.body(Offer), record.body(Commit)
    if share_commitment("server share", record.offered, index, server) != commit.shares[index]:
        return False
    if share_commitment("verifier share", offer.nonce, index, verifier) != offer.shares[index]:
        return False
    key = joint_key(record.session, index, server, verifier)
    noise = candidate_noise(key, record.terms)
    own = noise_commitment(record.session, index, key, noise, record.terms, threads=threads)
    return own == record.body(Noises).noises[index]


def wrong_candidates(record: SignedChain, *, threads: int = 1) -> tuple[bool, ...]:
    """For each candidate whether its opening does not hold; False for the one used.

    Draws (k − 1)·d integers.
    """
    openings = record.body(Openings)
    pairs = zip(openings.server, openings.verifier, strict=True)
    return tuple(
        index != record.used
        and not (
            server
            and verifier
            and candidate_holds(record, index, server, verifier, threads=threads)
        )
        for index, (server, verifier) in enumerate(pairs)
    )
