"""A whole session with both parties in this process: messages as bytes, only the terms shared."""

from __future__ import annotations

import itertools
import time
from collections.abc import Sequence
from dataclasses import dataclass

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from dpaudit.protocols import Stream
from dpaudit_mitigations.verifiable_counts.commitments import open_counts
from dpaudit_mitigations.verifiable_counts.prover import Prover
from dpaudit_mitigations.verifiable_counts.terms import CountTerms
from dpaudit_mitigations.verifiable_counts.transcript import Transcript
from dpaudit_mitigations.verifiable_counts.verifier import Verifier

__all__ = ["CountSession", "run_session"]


@dataclass(frozen=True)
class CountSession:
    """The released numbers, the transcript, and the seconds per party."""

    released: list[int]
    transcript: Transcript
    prover_seconds: float
    verifier_seconds: float

    @property
    def wire(self) -> int:
        """Bytes of the three messages."""
        t = self.transcript
        return len(t.commitments) + len(t.challenge) + len(t.response)


def run_session(
    counts: Sequence[int], *, coins: int, stream: Stream, key: Ed25519PrivateKey | None = None
) -> CountSession:
    """Release ``counts`` with ``coins`` coins each; prover and verifier have separate streams.

    The verifier signs with ``key``; without one, with a key made from its stream.
    """
    of_verifier, of_prover = stream.child("verifier"), stream.child("prover")
    if key is None:
        key = Ed25519PrivateKey.from_private_bytes(of_verifier.child("identity").bytes(32))
    terms = CountTerms.fresh(bins=len(counts), coins=coins, stream=of_verifier.child("session"))
    times = [time.perf_counter()]
    prover = Prover(terms, open_counts(counts, stream=of_prover.child("counts")), stream=of_prover)
    commitments = prover.commit()
    times.append(time.perf_counter())
    verifier = Verifier(terms, stream=of_verifier)
    challenge = verifier.challenge(commitments)
    times.append(time.perf_counter())
    response = prover.respond(challenge)
    times.append(time.perf_counter())
    released = verifier.check(response)
    times.append(time.perf_counter())
    committing, challenging, responding, checking = (b - a for a, b in itertools.pairwise(times))
    public = key.public_key().public_bytes_raw()
    transcript = Transcript(
        terms, commitments, challenge, response, verifier=public, signature=verifier.sign(key)
    )
    return CountSession(released, transcript, committing + responding, challenging + checking)
