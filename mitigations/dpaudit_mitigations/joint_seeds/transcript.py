"""A session's files: its transcript, the server's sealed opening, and their offline check.

``dpaudit verify transcript``. The opening is a secret: it shows an authorised auditor the used
noise, hence the query.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from msgspec import Meta

from dpaudit.errors import KeyFileError, MessageError, UsageError
from dpaudit.results.arrays import map_npy
from dpaudit.results.files import write_file
from dpaudit.results.foreign import RefusedError, open_plain
from dpaudit.results.text import one_line
from dpaudit.types import TranscriptVerdict
from dpaudit_mitigations.codec import Digest, Hex64, Record, read_json, write_json
from dpaudit_mitigations.joint_seeds.derivation import Integers, cores, joint_key
from dpaudit_mitigations.joint_seeds.messages import (
    KINDS,
    Abort,
    Choice,
    Commit,
    Message,
    Release,
    Verdict,
    in_steps,
)
from dpaudit_mitigations.joint_seeds.record import (
    SignedChain,
    candidate_holds,
    candidate_noise,
    query_commitment,
    release_digest,
    wrong_candidates,
)

__all__ = ["Opening", "verify", "write"]

_LARGEST = 4096


class Opening(Record, frozen=True, kw_only=True):
    """Both shares ‖ nonces of the used candidate, and both salts of the query's commitment.

    ``session`` names the session (``Record.session``). Together with the release this is the query
    result itself, bit for bit: hand it to an auditor as you would hand over the data, or never.
    """

    opening: Literal["joint-seeds"] = "joint-seeds"
    query: Hex64
    server: Hex64
    session: Digest
    verifier: Hex64
    version: Literal[1] = 1

    def __repr__(self) -> str:
        return f"Opening(session={self.session.hex()})"

    def save(self, path: Path) -> None:
        """Write to a new file of mode 0600.

        Raises:
            KeyFileError: the file exists, or cannot be written.
        """
        try:
            write_file(path, write_json(self) + b"\n", mode=0o600, replace=False)
        except OSError as error:
            raise KeyFileError(f"opening={path}: not written ({error.strerror})") from error

    @classmethod
    def load(cls, path: Path) -> Opening:
        """Read it back from its file.

        Raises:
            KeyFileError: no such file, readable by others, or not an opening.
        """
        try:
            with path.open("rb") as file:
                if os.fstat(file.fileno()).st_mode & 0o077:
                    raise KeyFileError(f"opening={path}: readable by others; run chmod 600 on it")
                data = file.read(_LARGEST + 1)
            return read_json(data.removesuffix(b"\n"), cls, most=_LARGEST, name="opening")
        except OSError as error:
            raise KeyFileError(f"opening={path}: cannot be read ({error.strerror})") from error
        except MessageError as error:
            raise KeyFileError(f"opening={path}: {error}; give the server's saved file") from error


KIND = "joint-seeds"

LARGEST_TRANSCRIPT = 1 << 20
_LIMITS = (
    "server and verifier cheating together; that the signing keys are another party's than you "
    "think (compare them); that the query result was computed right, or has the sensitivity "
    "claimed; sessions before this one that were left out (ask for the one it names as previous); "
    "a message hidden in the server's random numbers, nonces and signatures"
)
_LUCKY = "a server that was lucky once (probability 1/{k}); "
_DEVIATED = (
    "a server that released something else than query + noise at the very end: neither may be "
    "shown here, but the sealed opening and the release together show an auditor both; "
)


class _Transcript(Record, frozen=True, kw_only=True):
    messages: Annotated[tuple[Message, ...], Meta(min_length=1, max_length=len(KINDS))]
    transcript: Literal["joint-seeds"] = "joint-seeds"
    version: Literal[1] = 1


def write(record: SignedChain, path: Path) -> None:
    """Write the transcript, which holds no secret (no used share, no used noise), to a new file.

    Raises:
        UsageError: the file exists, or cannot be written.
    """
    try:
        write_file(
            path, write_json(_Transcript(messages=tuple(record.messages))) + b"\n", replace=False
        )
    except OSError as error:
        raise UsageError(f"transcript={path}: not written ({error.strerror})") from error


def verify(
    path: Path,
    *,
    opening: Path | None = None,
    release: Path | None = None,
    server: bytes | None = None,
    verifier: bytes | None = None,
    threads: int | None = None,
) -> TranscriptVerdict:
    """Check signatures, order, commitments and the choice, and derive opened candidates again.

    The derivation must match bit for bit. ``server`` and ``verifier`` are the public keys (32
    bytes) that must have signed; without them the verdict names those that did. With the server's
    sealed ``opening`` the used candidate is checked too, and with the ``release`` (.npy, float64,
    (dim,)) also that it is the committed query result plus the committed noise, bit for bit. Takes
    (candidates − 1)·dim draws (below 2^34 in all), 40 million per second and core; memory: one
    block per thread.

    Raises:
        UsageError: a file that cannot be read; a release without an opening, or not an array.
        KeyFileError: an opening that is not one.
    """
    if release is not None and opening is None:
        raise UsageError(f"release={release}: needs opening=…, the server's sealed opening")
    sealed = Opening.load(opening) if opening is not None else None
    values = _load_release(release) if release is not None else None
    data = _read(path)
    details: dict[str, Any] = {}
    try:
        record = _record(data)
        details = _details(record)
        for name, key in (("server", server), ("verifier", verifier)):
            if key is not None and key != getattr(record.terms, name):
                raise MessageError(f"signed by another {name} than the one given")
        threads = cores() if threads is None else threads
        outcome, statement = _outcome(record, threads=threads)
        audit = ""
        if outcome == "complete" and sealed is not None:
            audit = audited(record, sealed, values, threads=threads)
    except MessageError as error:
        return _verdict(
            False, f"not a record of a session: {error}", details | {"outcome": "invalid"}
        )
    details |= {
        "outcome": outcome,
        "audited": ("noise" if release is None else "release") if audit else None,
    }
    keys = (
        f"signed by server {record.terms.server.hex()} and verifier {record.terms.verifier.hex()}"
    )
    return _verdict(
        outcome == "complete", "; ".join(x for x in (statement, audit, keys) if x), details
    )


def _verdict(holds: bool, statement: str, details: dict[str, Any]) -> TranscriptVerdict:
    audit = details.get("audited")
    lucky = "" if audit else _LUCKY.format(k=details.get("candidates", "candidates"))
    deviated = "" if audit == "release" else _DEVIATED
    return TranscriptVerdict(
        kind=KIND,
        holds=holds,
        says=statement,
        cannot_rule_out=lucky + deviated + _LIMITS,
        details=details,
    )


def _outcome(record: SignedChain, *, threads: int) -> tuple[str, str]:
    """How the session ended, if the record agrees.

    Raises:
        MessageError: it does not end, or its verdict is not what the openings show.
    """
    if not record.finished:
        raise MessageError(
            f"it ends with {record.last}, not a receipt, an abort or a caught server"
        )
    if record.has(Verdict):
        wrong, claimed = wrong_candidates(record, threads=threads), record.body(Verdict).wrong
        if wrong != claimed:
            listed, derived = ([i for i, w in enumerate(which) if w] for which in (claimed, wrong))
            raise MessageError(
                f"the verifier found candidates {listed} wrong, a new derivation finds {derived}"
            )
        if any(wrong):
            numbers = ", ".join(str(i) for i, w in enumerate(wrong) if w)
            return (
                "caught",
                f"the server was caught: candidates {numbers} are not what was committed to",
            )
    if record.last == "abort":
        missing = record.body(Abort).missing
        return "aborted", (
            f"aborted: the server knew every candidate and did not give its {missing} (or the "
            "verifier says so); this counts as cheating"
        )
    count = record.terms.candidates
    return (
        "complete",
        f"{count - 1} of {count} candidates derived again bit for bit, number {record.used} "
        "was used",
    )


def _details(record: SignedChain) -> dict[str, Any]:
    terms = record.terms
    details = {
        "candidates": terms.candidates,
        "dim": terms.dim,
        "sigma": terms.scale * terms.granularity,
        "granularity": terms.granularity,
        "scale": terms.scale,
        "sequence": terms.sequence,
        "previous": terms.previous.hex(),
        "head": record.head.hex(),
        "server": terms.server.hex(),
        "verifier": terms.verifier.hex(),
        "escape": 1 / terms.candidates,
    }
    if record.has(Choice):
        details["used"] = record.used
    if record.has(Release):
        details["release"] = record.body(Release).digest.hex()
    return details


def _record(data: bytes) -> SignedChain:
    transcript = read_json(
        data.removesuffix(b"\n"), _Transcript, most=LARGEST_TRANSCRIPT, name="transcript"
    )
    if not data.endswith(b"\n"):
        raise MessageError("transcript: is cut off")
    record = SignedChain()
    for message in transcript.messages:
        record.add(message)
    return record


def _read(path: Path) -> bytes:
    try:
        with open_plain(path) as file:
            return file.read(LARGEST_TRANSCRIPT + 2)
    except (RefusedError, OSError) as error:
        raise UsageError(f"transcript={path}: {one_line(error)}; give a transcript") from error


def _load_release(path: Path) -> np.ndarray[Any, Any]:
    try:
        return map_npy(path)
    except (RefusedError, OSError, ValueError) as error:
        raise UsageError(f"release={path}: not an .npy file ({one_line(error)})") from None


def audited(
    record: SignedChain, opening: Opening, release: np.ndarray[Any, Any] | None, *, threads: int
) -> str:
    """What the opening (and the ``release``, float64 (dim,)) shows of a complete session, in words.

    Raises:
        MessageError: the opening is another session's, the noise not the seeds', or the release or
            the query not the one committed to.
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
    noise = candidate_noise(
        joint_key(record.session, record.used, opening.server, opening.verifier), record.terms
    )

    def query(number: int) -> Integers:
        return steps(number) - noise(number)

    own = query_commitment(record.offered, opening.query, query, record.terms, threads=threads)
    if own != record.body(Commit).query:
        raise MessageError("release: less the used noise it is not the committed query result")
    return "the release is the committed query result plus the used candidate's noise, bit for bit"
