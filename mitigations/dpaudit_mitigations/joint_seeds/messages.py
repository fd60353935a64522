"""What both parties agree on before a session, and the ten kinds of message of one.

Who sends each, after what, and what it holds::

    offer      verifier   terms, its nonce, commitments to its share of every candidate and to its
                          coin; sealed: a salt
    commit     server     its nonce, commitments to its shares, and to the query result
    shares     verifier   sealed: its shares
    noises     server     commitments to every candidate's noise
    choice     verifier   its coin, and which candidate is used
    openings   server     both shares of all the others
    verdict    verifier   accepted or caught, and which candidates are wrong
    release    server     digest of the release
    receipt    verifier   the same, as published
    abort      verifier   instead of what the server owes after the shares

Every message is signed over all before it. Of a *sealed* part only the digest is signed and kept;
it must travel by a private channel. A tuple holds one value per candidate, in their order.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Literal

import msgspec
import numpy as np
import numpy.typing as npt
from msgspec import Meta
from msgspec.structs import force_setattr, replace

from dpaudit.errors import MessageError, UsageError
from dpaudit.numeric.exact_integers import LARGEST_SCALE
from dpaudit_mitigations.codec import Digest, ExactFloat, Hex64, Record, read_json, write_json
from dpaudit_mitigations.joint_seeds.derivation import BLOCK, Blocks, Integers, labelled_hash

__all__ = [
    "KINDS",
    "LARGEST_MESSAGE",
    "LARGEST_WORK",
    "MOST_CANDIDATES",
    "NOT_SEALED",
    "OWED",
    "Abort",
    "Choice",
    "Commit",
    "Frame",
    "Message",
    "Noises",
    "Offer",
    "Openings",
    "Release",
    "ReleaseReceipt",
    "Salt",
    "SealedShares",
    "SessionTerms",
    "Shares",
    "Verdict",
    "in_steps",
    "nearest_steps",
    "open_frame",
    "seal_digest",
]

MOST_CANDIDATES = 256
LARGEST_WORK = 1 << 34  # coordinates of all candidates together: 256 candidates of 67 million
FIRST = Digest(32)  # what comes before the first session

_REACH = 64  # standard deviations that no noise leaves: P < exp(−2000)
_WHOLE = 2**53
_RANGES = {
    "candidates": (int, 2, MOST_CANDIDATES),
    "dim": (int, 1, LARGEST_WORK // 2),
    "granularity": (ExactFloat, 2.0**-1022, 2.0**969),
    "scale": (ExactFloat, 1.0, LARGEST_SCALE),
    "sequence": (int, 0, _WHOLE - 1),
}

_Count = Annotated[int, Meta(ge=0, lt=_WHOLE)]

Array = npt.NDArray[np.float64]


class SessionTerms(Record, frozen=True, kw_only=True):
    """A release of ``dim`` multiples of ``granularity``, with discrete Gaussian noise of ``scale``.

    ``scale`` is in steps of ``granularity``. ``server`` and ``verifier`` are raw Ed25519 public
    keys (32 bytes). ``sequence`` counts the sessions of the two, 0 the first; ``previous`` is the
    last head of the session before it (:data:`FIRST` for none), so that whoever holds the next
    session notices an omitted one, in particular an aborted one.

    Raises:
        UsageError: a value out of its range; candidates·dim above :data:`LARGEST_WORK`; granularity
            not a power of two; equal keys.
    """

    candidates: _Count
    dim: _Count
    granularity: ExactFloat
    previous: Digest = FIRST
    scale: ExactFloat
    sequence: _Count = 0
    server: Digest
    verifier: Digest

    def __post_init__(self) -> None:
        for name, (kind, low, high) in _RANGES.items():
            value = getattr(self, name)
            if (
                type(value) is bool
                or not isinstance(value, int | float)
                or not low <= value <= high
            ):
                raise UsageError(f"terms.{name}={value}: must be from {low!r} to {high!r}")
            if kind is ExactFloat:
                force_setattr(self, name, ExactFloat(value))
        for name in ("previous", "server", "verifier"):
            force_setattr(self, name, Digest(getattr(self, name)))
            if len(getattr(self, name)) != Digest.size:
                raise UsageError(f"terms.{name}: must be {Digest.size} bytes; change the terms")
        if self.candidates * self.dim > LARGEST_WORK:
            raise UsageError(f"terms: candidates times dim must be at most {LARGEST_WORK:,}")
        if math.frexp(self.granularity)[0] != 0.5:
            raise UsageError(f"terms.granularity={self.granularity}: must be a power of two")
        if self.server == self.verifier:
            raise UsageError("terms: server and verifier have one key; give two parties' keys")
        if (self.sequence == 0) != (self.previous == FIRST):
            raise UsageError("terms: only the first session has no previous one; change the terms")

    @property
    def most(self) -> int:
        """The largest |query| in steps: 2^53 less 64 times the noise's scale."""
        return _WHOLE - _REACH * math.ceil(self.scale)

    def after(self, head: bytes) -> SessionTerms:
        """The same terms for the next session, which follows one that ended with ``head``."""
        return replace(self, sequence=self.sequence + 1, previous=Digest(head))


def in_steps(values: Array, terms: SessionTerms) -> Blocks:
    """A published release, float64 (dim,) or (1, dim), as blocks of steps.

    Raises:
        MessageError: another shape or type; and, when a block is taken, a value that is no whole
            multiple below 2^53.
    """
    if values.dtype != np.float64 or values.shape not in ((terms.dim,), (1, terms.dim)):
        raise MessageError(f"release: {values.dtype} {values.shape}, not float64 ({terms.dim},)")
    flat = values.reshape(-1)

    def block(number: int) -> Integers:
        with np.errstate(over="ignore", invalid="ignore"):
            steps = flat[number * BLOCK : (number + 1) * BLOCK] / terms.granularity
            if not ((np.abs(steps) < _WHOLE) & (steps == np.rint(steps))).all():
                raise MessageError("release: a value too large, or off the granularity")
        return steps.astype(np.int64)

    return block


def nearest_steps(values: Array, terms: SessionTerms) -> Integers:
    """A query result, float64 (dim,), rounded to the lattice, in steps.

    Raises:
        UsageError: a value beyond ±``terms.most`` steps, or not finite.
    """
    out = np.empty(len(values), np.int64)
    for at in range(0, len(values), BLOCK):
        with np.errstate(over="ignore"):
            steps = np.rint(values[at : at + BLOCK] / terms.granularity)
        if not (np.abs(steps) <= terms.most).all():
            most = terms.most * terms.granularity
            raise UsageError(f"query: values must lie within ±{most!r}; clip or rescale it")
        out[at : at + BLOCK] = steps
    return out


LARGEST_MESSAGE = 1 << 18  # bytes; 256 candidates need 70,000
NOT_SEALED = b"null"

KindName = Literal[
    "offer",
    "commit",
    "shares",
    "noises",
    "choice",
    "openings",
    "verdict",
    "release",
    "receipt",
    "abort",
]
Owed = Literal["noises", "openings", "release", "vector"]
Party = Literal["server", "verifier"]


class Offer(Record, frozen=True, kw_only=True):
    """Terms, the verifier's nonce, commitments to its shares and to its coin."""

    coin: Digest
    nonce: Digest
    shares: tuple[Digest, ...]
    terms: SessionTerms


class Salt(Record, frozen=True, kw_only=True):
    """Sealed with an offer: the verifier's part of the salt of the query's commitment."""

    salt: Digest


class Commit(Record, frozen=True, kw_only=True):
    """The server's nonce, commitments to its shares and to the query result."""

    nonce: Digest
    query: Digest
    shares: tuple[Digest, ...]


class Shares(Record, frozen=True, kw_only=True):
    """No open fields; the shares are sealed."""


class SealedShares(Record, frozen=True, kw_only=True):
    """The verifier's shares, each share ‖ nonce."""

    shares: tuple[Hex64, ...]


class Noises(Record, frozen=True, kw_only=True):
    """Commitments to the candidates' noise."""

    noises: tuple[Digest, ...]


class Choice(Record, frozen=True, kw_only=True):
    """The coin (coin ‖ nonce) and the candidate that it chooses."""

    coin: Hex64
    used: Annotated[int, Meta(ge=0, lt=MOST_CANDIDATES)]


class Openings(Record, frozen=True, kw_only=True):
    """Both parties' shares of all candidates but the one used, which has None."""

    server: tuple[Hex64 | None, ...]
    verifier: tuple[Hex64 | None, ...]


class Verdict(Record, frozen=True, kw_only=True):
    """``caught`` if any candidate is wrong."""

    outcome: Literal["accepted", "caught"]
    wrong: tuple[bool, ...]


class Release(Record, frozen=True, kw_only=True):
    """Digest of the release."""

    digest: Digest


class ReleaseReceipt(Record, frozen=True, kw_only=True):
    """Digest of the release as published."""

    digest: Digest


class Abort(Record, frozen=True, kw_only=True):
    """What the server owes and did not give."""

    missing: Owed


@dataclass(frozen=True)
class Kind:
    """Who sends a message, which kinds it may follow, and its open and sealed parts."""

    sender: Party
    follows: tuple[KindName, ...]
    body: type[Record]
    sealed: type[Record] | None = None


OWED: Mapping[KindName, Owed] = {
    "shares": "noises",
    "choice": "openings",
    "verdict": "release",
    "release": "vector",
}
"""What the server owes after each kind of message once it knows the shares."""

KINDS: Mapping[KindName, Kind] = {
    "offer": Kind("verifier", (), Offer, Salt),
    "commit": Kind("server", ("offer",), Commit),
    "shares": Kind("verifier", ("commit",), Shares, SealedShares),
    "noises": Kind("server", ("shares",), Noises),
    "choice": Kind("verifier", ("noises",), Choice),
    "openings": Kind("server", ("choice",), Openings),
    "verdict": Kind("verifier", ("openings",), Verdict),
    "release": Kind("server", ("verdict",), Release),
    "receipt": Kind("verifier", ("release",), ReleaseReceipt),
    "abort": Kind("verifier", tuple(OWED), Abort),
}


class _Unsigned(Record, frozen=True, kw_only=True):
    body: msgspec.Raw
    kind: KindName
    sealed: Digest | None
    sender: Party


class Message(_Unsigned, frozen=True, kw_only=True):
    """One signed message: ``body`` is JSON, read in turn, ``sealed`` its sealed part's digest."""

    signature: Hex64

    def unsigned(self) -> bytes:
        """The bytes that the signature covers, together with all messages before."""
        return write_json(
            _Unsigned(body=self.body, kind=self.kind, sealed=self.sealed, sender=self.sender)
        )


class Frame(Record, frozen=True, kw_only=True):
    """A message as it travels, with its sealed part or null."""

    message: Message
    sealed: msgspec.Raw


def seal_digest(sealed: bytes) -> Digest | None:
    """Digest of a sealed part as JSON; 32 or more secret random bytes in it prevent a guess."""
    return None if sealed == NOT_SEALED else labelled_hash("sealed", sealed)


def open_frame(data: bytes) -> tuple[Message, bytes]:
    """A message as it travels, and its sealed part.

    Raises:
        MessageError: too long, not canonical, an unknown or missing field, or a sealed part that is
            not the one signed.
    """
    frame = read_json(data, Frame, most=LARGEST_MESSAGE, name="frame")
    sealed = bytes(memoryview(frame.sealed))
    if seal_digest(sealed) != frame.message.sealed:
        raise MessageError("frame.sealed: is not what was signed")
    return frame.message, sealed
