"""The auditor's look under the seal: the used candidate, and that the release is the committed query plus its noise."""

from __future__ import annotations

from typing import Any

import numpy as np

from dpaudit.errors import MessageError
from dpaudit_mitigations.joint_seeds.checks import (
    candidate_holds,
    candidate_noise,
    query_commitment,
    release_digest,
)
from dpaudit_mitigations.joint_seeds.commitments import joint_key
from dpaudit_mitigations.joint_seeds.derivation import Integers
from dpaudit_mitigations.joint_seeds.lattice_values import in_steps
from dpaudit_mitigations.joint_seeds.messages import Commit, Release
from dpaudit_mitigations.joint_seeds.opening import Opening
from dpaudit_mitigations.joint_seeds.record import SignedChain

__all__ = ["audited"]


def audited(record: SignedChain, opening: Opening, release: np.ndarray[Any, Any] | None, *, threads: int) -> str:
    """What the opening shows of a complete session, in words; with the ``release``, float64 (dim,), of the sum too.

    Raises:
        MessageError: it does not show that: another session's opening, noise that is not the seeds', a release or a query
            that is not the one committed to.
    """
    if opening.session != record.session:
        raise MessageError("opening: is another session's")
    if not candidate_holds(record, record.used, opening.server, opening.verifier, threads=threads):
        raise MessageError("opening: the used candidate is not what was committed to")
    if release is None:
        return "the used candidate is what its seeds give"
    steps = in_steps(release, record.terms)
    if release_digest(steps, record.terms, threads=threads) != record.body(Release).digest:
        raise MessageError("release: is not the one that was signed")
    noise = candidate_noise(joint_key(record.session, record.used, opening.server, opening.verifier), record.terms)

    def query(number: int) -> Integers:
        return steps(number) - noise(number)

    own = query_commitment(record.offered, opening.query, query, record.terms, threads=threads)
    if own != record.body(Commit).query:
        raise MessageError("release: less the used noise it is not the query result committed to")
    return "the release is the committed query result plus the used candidate's noise, bit for bit"
