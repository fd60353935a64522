"""A session's transcript as a file, and its offline check (``dpaudit verify transcript``)."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from msgspec import Meta

from dpaudit.accounting.mechanisms import binomial_epsilon
from dpaudit.codec import to_dict
from dpaudit.errors import CheatingError, MessageError, UsageError
from dpaudit.randomness import KeyedStream
from dpaudit.results.files import write_file
from dpaudit.results.foreign import RefusedError, read_plain
from dpaudit.results.text import one_line
from dpaudit.types import TranscriptVerdict
from dpaudit_mitigations.codec import Digest, Hex64, Record, read_json, write_json
from dpaudit_mitigations.verifiable_counts.messages import Commitments, Response, check_signature
from dpaudit_mitigations.verifiable_counts.parties import check_session
from dpaudit_mitigations.verifiable_counts.terms import MOST_BINS, MOST_COINS, CountTerms

__all__ = ["Transcript", "verify"]

KIND = "verifiable-counts"
LARGEST_TRANSCRIPT = 1 << 28
_DELTA = 1e-10
_LIMITS = (
    "prover and verifier cheating together, or a prover that signed as its own verifier (anybody "
    "can, with a new key: compare the key with the verifier's); that the committed counts are true "
    "(any counts pass; commitments that clients made are not in here to compare with); whose "
    "counts they are (no prover signs: compare the released numbers with those published); that "
    "earlier sessions were not aborted until one pleased (ask the verifier); that the prover told "
    "somebody its coins, or hid a message in its blindings: with this transcript that somebody "
    "knows the noise"
)


class _Document(Record, frozen=True, kw_only=True):
    """One line of JSON; payloads in base64."""

    bins: Annotated[int, Meta(ge=1, le=MOST_BINS)]
    challenge: bytes
    coins: Annotated[int, Meta(ge=2, le=MOST_COINS)]
    commitments: bytes
    response: bytes
    session: Digest
    signature: Hex64
    transcript: Literal["verifiable-counts"] = "verifiable-counts"
    verifier: Digest
    version: Literal[1] = 1


@dataclass(frozen=True)
class Transcript:
    """The terms, the three messages, and the verifier's public key and signature over them.

    The key has 32 bytes, the signature 64. Holds no secret of an honest prover.
    """

    terms: CountTerms
    commitments: bytes
    challenge: bytes
    response: bytes
    _: KW_ONLY
    verifier: bytes
    signature: bytes

    def encode(self) -> bytes:
        """One line of JSON with sorted keys, payloads in base64: the only accepted encoding."""
        document = _Document(
            bins=self.terms.bins,
            challenge=self.challenge,
            coins=self.terms.coins,
            commitments=self.commitments,
            response=self.response,
            session=Digest(self.terms.session),
            signature=Hex64(self.signature),
            verifier=Digest(self.verifier),
        )
        return write_json(document) + b"\n"

    def write(self, path: Path) -> None:
        """Write it to a new file.

        Raises:
            UsageError: the file exists, or cannot be written.
        """
        try:
            write_file(path, self.encode(), replace=False)
        except OSError as error:
            raise UsageError(f"transcript={path}: not written ({error.strerror})") from error

    @classmethod
    def decode(cls, data: bytes) -> Transcript:
        """The transcript with this encoding; messages are decoded no further than base64.

        Raises:
            MessageError: not one line of JSON with exactly these fields, or not written as
                :meth:`encode` writes it.
        """
        document = read_json(
            data.removesuffix(b"\n"), _Document, most=LARGEST_TRANSCRIPT, name="transcript"
        )
        try:
            terms = CountTerms(bytes(document.session), document.bins, document.coins)
        except UsageError as error:
            raise MessageError(f"terms out of range ({error})") from error
        most = max(Commitments.size(terms), Response.size(terms))
        if max(map(len, (document.commitments, document.challenge, document.response))) > most:
            raise MessageError("transcript: a message is too long for the terms")
        if not data.endswith(b"\n"):
            raise MessageError("transcript: is cut off")
        key, signature = bytes(document.verifier), bytes(document.signature)
        return cls(
            terms,
            document.commitments,
            document.challenge,
            document.response,
            verifier=key,
            signature=signature,
        )


def verify(path: Path, *, verifier: bytes | None = None) -> TranscriptVerdict:
    """Check the signature and every commitment, proof and opening of the transcript at ``path``.

    Needs no secret. ``verifier`` is the public key (32 bytes) that must have signed. Without it the
    verdict names the one that did, and you must know whose that is: a prover that signs with its
    own key has had no verifier. Whatever the file holds, the answer is a verdict. ``details`` holds
    the terms, the released numbers and the exact ε at δ = 1e-10 for neighbours of which one bin
    differs by one.

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
            raise CheatingError("signed by another verifier than the one given")
        messages = {
            name: getattr(transcript, name) for name in ("commitments", "challenge", "response")
        }
        check_signature(transcript.signature, terms, **messages, verifier=transcript.verifier)
        released = check_session(terms, **messages, stream=KeyedStream.fresh())
    except (CheatingError, MessageError) as error:
        return TranscriptVerdict(
            kind=KIND, holds=False, says=str(error), cannot_rule_out=_LIMITS, details=details
        )
    epsilon = binomial_epsilon(_DELTA, coins=terms.coins)
    details |= to_dict({"released": released, "delta": _DELTA, "epsilon": epsilon})
    statement = (
        f"each of {terms.bins:,} released numbers is a committed count plus the heads among "
        f"{terms.coins:,} coins, less {terms.coins // 2:,}; every coin is a committed bit flipped "
        f"by the verifier (session {terms.session.hex()}); signed by verifier "
        f"{transcript.verifier.hex()}"
    )
    return TranscriptVerdict(
        kind=KIND, holds=True, says=statement, cannot_rule_out=_LIMITS, details=details
    )


def _read(path: Path) -> bytes:
    try:
        return read_plain(path, limit=min(LARGEST_TRANSCRIPT, path.stat().st_size))
    except (RefusedError, OSError) as error:
        why = one_line(getattr(error, "strerror", None) or error)
        raise UsageError(f"transcript={path}: cannot be read ({why}); give a transcript") from error
