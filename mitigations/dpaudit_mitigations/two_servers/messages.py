"""The messages of the two servers besides the vector: terms, an offer, a receipt."""

from __future__ import annotations

import hashlib
import re
from typing import Annotated, Any

from msgspec import Meta

from dpaudit.errors import UsageError
from dpaudit_mitigations.codec import Message, pack
from dpaudit_mitigations.transport.vectors import MOST_VALUES

__all__ = [
    "PUBLISH",
    "TERMS",
    "VECTOR",
    "Offer",
    "PublicationReceipt",
    "ReleaseTerms",
    "check_release",
]

PUBLISH = "publish"
TERMS = "terms"
VECTOR = "noisy-answer"

_RELEASE = r"\A[A-Za-z0-9][A-Za-z0-9_-]{0,63}\Z"
_LAST_ROUND = 2**31 - 1
Positive = Annotated[float, Meta(ge=5e-324, le=1.7976931348623157e308)]
Release = Annotated[str, Meta(pattern=_RELEASE)]
Round = Annotated[int, Meta(ge=0, le=_LAST_ROUND)]
Dimension = Annotated[int, Meta(ge=1, le=MOST_VALUES)]
SHA256 = Annotated[bytes, Meta(min_length=32, max_length=32)]


def check_release(release: str, number: int) -> None:
    """Refuse what cannot name a release.

    Raises:
        UsageError: not 1 to 64 letters, digits, - and _, or a round out of range.
    """
    if not re.search(_RELEASE, release):
        raise UsageError(f"release={release}: takes 1 to 64 letters, digits, - and _")
    if not 0 <= number <= _LAST_ROUND:
        raise UsageError(f"round={number}: must lie in 0 to {_LAST_ROUND}")


class ReleaseTerms(Message, frozen=True, kw_only=True, tag="terms"):
    """What server 2 publishes: vectors within ``bound`` before its noise of scale ``sigma``."""

    bound: Positive
    dim: Dimension
    sigma: Positive


class Offer(Message, frozen=True, kw_only=True, tag="offer"):
    """A release offered by server 1: name, round, its noise's scale, and server 2's terms."""

    bound: Positive
    dim: Dimension
    noise_sigma: Positive
    release: Release
    round: Round
    sigma: Positive

    @property
    def name(self) -> str:
        """The release with its round, as in journals, logs and files."""
        return f"{self.release}@{self.round}"

    @property
    def terms(self) -> ReleaseTerms:
        return ReleaseTerms(dim=self.dim, bound=self.bound, sigma=self.noise_sigma)

    def facts(self) -> dict[str, Any]:
        """What must never change under this name."""
        return {
            "sigma": self.sigma,
            "dim": self.dim,
            "bound": self.bound,
            "noise_sigma": self.noise_sigma,
        }

    @property
    def session(self) -> bytes:
        """Binds every frame of the vector to this offer."""
        return hashlib.sha256(pack(self)).digest()


class PublicationReceipt(Message, frozen=True, kw_only=True, tag="receipt"):
    """Server 2 has published: SHA-256 of what it received (``payload``) and of the file."""

    payload: SHA256
    published: SHA256
    release: Release
    round: Round
