"""A session's transcript as a file, and what anybody can tell from it offline: ``dpaudit verify transcript``."""

from __future__ import annotations

import base64
import binascii
import json
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import Any

from dpaudit.accounting.binomial import binomial_epsilon
from dpaudit.errors import CheatingError, MessageError, UsageError
from dpaudit.randomness import KeyedStream
from dpaudit.results.files import write_file
from dpaudit.results.foreign import RefusedError, read_json, read_plain
from dpaudit.results.text import one_line
from dpaudit.types import TranscriptVerdict, to_dict
from dpaudit_mitigations.verifiable_counts.messages import Commitments, Response
from dpaudit_mitigations.verifiable_counts.signatures import KEY_BYTES, SIGNATURE_BYTES, check_signature
from dpaudit_mitigations.verifiable_counts.terms import SESSION_BYTES, Terms
from dpaudit_mitigations.verifiable_counts.verifier import check_session

__all__ = ["KIND", "LARGEST_TRANSCRIPT", "Transcript", "verify"]

KIND = "verifiable-counts"
LARGEST_TRANSCRIPT = 1 << 28
_VERSION = 1
_DELTA = 1e-10
_FIELDS = {
    *("transcript", "version", "session", "bins", "coins"),
    *("commitments", "challenge", "response", "verifier", "signature"),
}
_LIMITS = (
    "prover and verifier cheating together, or a prover that signed as its own verifier (anybody can, with a key of its "
    "own: compare the key with the verifier's); that the committed counts are true (any counts pass; commitments that "
    "clients made are not in here to compare with); whose counts they are (no prover signs: compare the released numbers "
    "with those published); that earlier sessions were not broken off until one pleased (ask the verifier); that the "
    "prover told somebody its coins, or hid a message in its blindings: with this transcript that somebody knows the noise"
)


@dataclass(frozen=True)
class Transcript:
    """The terms, the three messages, and the verifier's public key (32 bytes) and signature (64) over them.

    Holds no secret of an honest prover.
    """

    terms: Terms
    commitments: bytes
    challenge: bytes
    response: bytes
    _: KW_ONLY
    verifier: bytes
    signature: bytes

    def encode(self) -> bytes:
        """One line of JSON with sorted keys, payloads in base64: the only encoding that is read back."""
        document = {
            "transcript": KIND,
            "version": _VERSION,
            "session": self.terms.session.hex(),
            "bins": self.terms.bins,
            "coins": self.terms.coins,
            "commitments": base64.b64encode(self.commitments).decode(),
            "challenge": base64.b64encode(self.challenge).decode(),
            "response": base64.b64encode(self.response).decode(),
            "verifier": self.verifier.hex(),
            "signature": self.signature.hex(),
        }
        return json.dumps(document, sort_keys=True, separators=(",", ":")).encode() + b"\n"

    def write(self, path: Path) -> None:
        """Write it to a new file.

        Raises:
            UsageError: the file exists, or cannot be written.
        """
        try:
            write_file(path, self.encode(), replace=False)
        except OSError as error:
            raise UsageError(f"transcript={path}: cannot be written ({error.strerror}); give a new path") from error

    @classmethod
    def decode(cls, data: bytes) -> Transcript:
        """The transcript with this encoding; messages are decoded no further than base64.

        Raises:
            MessageError: not one line of JSON with exactly these fields, or not written as :meth:`encode` writes it.
        """
        try:
            document: Any = read_json(data) if data.isascii() and b"\\" not in data else None
        except RefusedError as error:
            raise MessageError(f"not JSON ({one_line(error)})") from error
        if not isinstance(document, dict) or set(document) != _FIELDS:
            raise MessageError(f"the fields {', '.join(sorted(_FIELDS))} are wanted, and no others")
        if document["transcript"] != KIND or document["version"] != _VERSION:
            raise MessageError(f"a transcript of {KIND}, version {_VERSION}, is wanted")
        try:
            terms = Terms(bytes.fromhex(document["session"]), document["bins"], document["coins"])
        except (TypeError, ValueError) as error:
            raise MessageError(f"terms out of range: {SESSION_BYTES} hex bytes, whole bins and coins") from error
        largest = max(Commitments.size(terms), Response.size(terms))
        try:
            messages = [_payload(document[name], most=largest) for name in ("commitments", "challenge", "response")]
        except (TypeError, ValueError, binascii.Error) as error:
            raise MessageError("a message that is not base64, or too long") from error
        try:
            key, signature = bytes.fromhex(document["verifier"]), bytes.fromhex(document["signature"])
        except (TypeError, ValueError) as error:
            raise MessageError("a key or signature that is not hexadecimal") from error
        if (len(key), len(signature)) != (KEY_BYTES, SIGNATURE_BYTES):
            raise MessageError(f"a key of {KEY_BYTES} and a signature of {SIGNATURE_BYTES} bytes are wanted")
        transcript = cls(terms, *messages, verifier=key, signature=signature)
        if transcript.encode() != data:
            raise MessageError("not written as this program writes transcripts")
        return transcript


def verify(path: Path, *, verifier: bytes | None = None) -> TranscriptVerdict:
    """Check the signature and every commitment, proof and opening of the transcript at ``path``; needs no secret.

    ``verifier`` is the public key (32 bytes) that must have signed. Without it the verdict names the one that did, and it
    is yours to know whose that is: a prover that signs with a key of its own has had no verifier.
    Whatever it finds in the file, it answers with a verdict. ``details`` holds the terms, the released numbers and the exact
    ε at δ = 1e-10 for neighbours of which one bin differs by one.

    Raises:
        UsageError: the file cannot be read, or is larger than 256 MiB.
    """
    data = _read(path)
    details: dict[str, Any] = {}
    try:
        transcript = Transcript.decode(data)
        terms = transcript.terms
        details |= {"session": terms.session.hex(), "bins": terms.bins, "coins": terms.coins}
        details["verifier"] = transcript.verifier.hex()
        if verifier is not None and verifier != transcript.verifier:
            raise CheatingError("signed by another verifier than the one asked for")
        messages = {name: getattr(transcript, name) for name in ("commitments", "challenge", "response")}
        check_signature(transcript.signature, terms, **messages, verifier=transcript.verifier)
        released = check_session(terms, **messages, stream=KeyedStream.fresh())
    except (CheatingError, MessageError) as error:
        return TranscriptVerdict(kind=KIND, holds=False, says=str(error), cannot_rule_out=_LIMITS, details=details)
    epsilon = binomial_epsilon(_DELTA, coins=terms.coins)
    details |= to_dict({"released": released, "delta": _DELTA, "epsilon": epsilon})
    says = (
        f"each of {terms.bins:,} released numbers is a committed count plus the heads among {terms.coins:,} coins, less "
        f"{terms.coins // 2:,}; every coin is a committed bit flipped by the verifier (session {terms.session.hex()}); "
        f"signed by verifier {transcript.verifier.hex()}"
    )
    return TranscriptVerdict(kind=KIND, holds=True, says=says, cannot_rule_out=_LIMITS, details=details)


def _payload(text: Any, *, most: int) -> bytes:
    if not isinstance(text, str) or len(text) > 4 * (most // 3 + 1):
        raise ValueError("a message of another length")
    return base64.b64decode(text, validate=True)


def _read(path: Path) -> bytes:
    try:
        return read_plain(path, limit=min(LARGEST_TRANSCRIPT, path.stat().st_size))
    except (RefusedError, OSError) as error:
        why = one_line(getattr(error, "strerror", None) or error)
        raise UsageError(f"transcript={path}: cannot be read ({why}); give a transcript's file") from error
