"""A session's transcript as a file, and what anybody can tell from it offline: ``dpaudit verify transcript``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from dpaudit.errors import MessageError, UsageError
from dpaudit.results.arrays import map_npy
from dpaudit.results.files import write_file
from dpaudit.results.foreign import RefusedError, open_plain
from dpaudit.results.text import one_line
from dpaudit.types import TranscriptVerdict
from dpaudit_mitigations.joint_seeds.audit import audited
from dpaudit_mitigations.joint_seeds.checks import wrong_candidates
from dpaudit_mitigations.joint_seeds.derivation import cores
from dpaudit_mitigations.joint_seeds.encoding import LARGEST_TRANSCRIPT, decode, encode
from dpaudit_mitigations.joint_seeds.messages import KINDS, Message
from dpaudit_mitigations.joint_seeds.opening import Opening
from dpaudit_mitigations.joint_seeds.record import Record

__all__ = ["KIND", "verify", "write"]

KIND = "joint-seeds"

_VERSION = 1
_LIMITS = (
    "server and verifier cheating together; that the signing keys are another party's than you think (compare them); that "
    "the query result was computed right, or has the sensitivity claimed; sessions before this one that were left out (ask "
    "for the one it names as previous); a message hidden in the server's random numbers, nonces and signatures"
)
_LUCKY = "a server that was lucky once (probability 1/{k}); "
_DEVIATED = (
    "a server that released something else than query + noise at the very end: neither may be shown here, but the sealed "
    "opening and the release together show an auditor both; "
)


def write(record: Record, path: Path) -> None:
    """Write the transcript to a new file. It holds no secret: neither the used candidate's shares nor its noise.

    Raises:
        UsageError: the file exists, or cannot be written.
    """
    document = {"transcript": KIND, "version": _VERSION, "messages": [m.document() for m in record.messages]}
    try:
        write_file(path, encode(document) + b"\n", replace=False)
    except OSError as error:
        raise UsageError(f"transcript={path}: cannot be written ({error.strerror}); give a new path") from error


def verify(
    path: Path,
    *,
    opening: Path | None = None,
    release: Path | None = None,
    server: bytes | None = None,
    verifier: bytes | None = None,
    threads: int | None = None,
) -> TranscriptVerdict:
    """Check signatures, order, commitments and the choice, and derive every opened candidate again, bit for bit.

    ``server`` and ``verifier`` are the public keys (32 bytes) that must have signed; without them the verdict names those
    that did. With the server's sealed ``opening`` the used candidate is checked too, and with the ``release`` (.npy,
    float64, (dim,)) also that it is the committed query result plus the committed noise, bit for bit.
    Takes (candidates − 1)·dim draws (below 2^34 in all), 40 million a second and core; memory: a block a thread.

    Raises:
        UsageError: a file that cannot be read; a release without an opening, or that is no array.
        KeyFileError: an opening that is not one.
    """
    if release is not None and opening is None:
        raise UsageError(f"release={release}: needs opening=…, the server's sealed opening, to be told from noise")
    sealed = Opening.load(opening) if opening is not None else None
    values = _load_release(release) if release is not None else None
    data = _read(path)
    details: dict[str, Any] = {}
    try:
        record = _record(data)
        details = _details(record)
        for name, key in (("server", server), ("verifier", verifier)):
            if key is not None and key != getattr(record.terms, name):
                raise MessageError(f"signed by another {name} than the one asked for")
        threads = cores() if threads is None else threads
        outcome, says = _outcome(record, threads=threads)
        audit = ""
        if outcome == "complete" and sealed is not None:
            audit = audited(record, sealed, values, threads=threads)
    except MessageError as error:
        return _verdict(False, f"not a record of a session: {error}", details | {"outcome": "invalid"})
    details |= {"outcome": outcome, "audited": ("noise" if release is None else "release") if audit else None}
    keys = f"signed by server {record.terms.server.hex()} and verifier {record.terms.verifier.hex()}"
    return _verdict(outcome == "complete", "; ".join(x for x in (says, audit, keys) if x), details)


def _verdict(holds: bool, says: str, details: dict[str, Any]) -> TranscriptVerdict:
    audit = details.get("audited")
    lucky = "" if audit else _LUCKY.format(k=details.get("candidates", "candidates"))
    deviated = "" if audit == "release" else _DEVIATED
    return TranscriptVerdict(
        kind=KIND, holds=holds, says=says, cannot_rule_out=lucky + deviated + _LIMITS, details=details
    )


def _outcome(record: Record, *, threads: int) -> tuple[str, str]:
    """How the session ended, if the record is right about it.

    Raises:
        MessageError: it does not end, or its verdict is not what the openings show.
    """
    if not record.finished:
        raise MessageError(f"it ends with {record.last}; a session ends with a receipt, an abort or a caught server")
    if "verdict" in record.bodies:
        wrong = wrong_candidates(record, threads=threads)
        if wrong != record.bodies["verdict"]["wrong"]:
            said = [i for i, w in enumerate(record.bodies["verdict"]["wrong"]) if w]
            found = [i for i, w in enumerate(wrong) if w]
            raise MessageError(f"the verifier found candidates {said} wrong, and derived again it is {found}")
        if any(wrong):
            numbers = ", ".join(str(i) for i, w in enumerate(wrong) if w)
            return "caught", f"the server was caught: candidates {numbers} are not what they were committed to be"
    if record.last == "abort":
        missing = record.bodies["abort"]["missing"]
        return "aborted", (
            f"aborted: the server knew every candidate and did not give its {missing} (or the verifier says so); "
            "this counts as cheating"
        )
    opened = record.terms.candidates - 1
    return "complete", f"{opened} of {opened + 1} candidates derived again bit for bit, number {record.used} was used"


def _details(record: Record) -> dict[str, Any]:
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
    if "choice" in record.bodies:
        details["used"] = record.used
    if "release" in record.bodies:
        details["release"] = record.bodies["release"]["digest"].hex()
    return details


def _record(data: bytes) -> Record:
    document = decode(data.removesuffix(b"\n"), most=LARGEST_TRANSCRIPT, what="transcript")
    if not data.endswith(b"\n"):
        raise MessageError("transcript: is cut off")
    if type(document) is not dict or set(document) != {"transcript", "version", "messages"}:
        raise MessageError("transcript: must have exactly the fields messages, transcript, version")
    if document["transcript"] != KIND or type(document["version"]) is not int or document["version"] != _VERSION:
        raise MessageError(f"transcript: must be of {KIND}, version {_VERSION}")
    messages = document["messages"]
    if type(messages) is not list or not 0 < len(messages) <= len(KINDS):
        raise MessageError(f"transcript.messages: must be a list of 1 to {len(KINDS)}")
    record = Record()
    for message in messages:
        record.add(Message.read(message))
    return record


def _read(path: Path) -> bytes:
    try:
        with open_plain(path) as file:
            return file.read(LARGEST_TRANSCRIPT + 2)
    except (RefusedError, OSError) as error:
        raise UsageError(f"transcript={path}: {one_line(error)}; give a transcript's file") from error


def _load_release(path: Path) -> np.ndarray[Any, Any]:
    try:
        return map_npy(path)
    except (RefusedError, OSError, ValueError) as error:
        raise UsageError(f"release={path}: cannot be read as an array ({one_line(error)}); give an .npy file") from None
