"""What the two servers say to each other besides the vector: terms, an offer, a receipt."""

from __future__ import annotations

import hashlib
import re
from dataclasses import asdict, dataclass
from typing import Any

from dpaudit.errors import MessageError, UsageError
from dpaudit_mitigations.transport.messages import Raw, Real, Text, Whole, pack, unpack
from dpaudit_mitigations.transport.vectors import MOST_VALUES

__all__ = ["PUBLISH", "TERMS", "VECTOR", "Offer", "Receipt", "Terms", "check_release"]

PUBLISH = "publish"
TERMS = "terms"
VECTOR = "noisy-answer"

_RELEASE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
_LAST_ROUND = 2**31 - 1
_POSITIVE = Real(5e-324, 1.7976931348623157e308)


def check_release(release: str, number: int) -> None:
    """Refuse what cannot name a release.

    Raises:
        UsageError: not 1 to 64 letters, digits, - and _, or a round out of range.
    """
    if not _RELEASE.fullmatch(release):
        raise UsageError(f"release={release}: 1 to 64 letters, digits, hyphens and underscores, e.g. 2025-week-7")
    if not 0 <= number <= _LAST_ROUND:
        raise UsageError(f"round={number}: must lie in 0 to {_LAST_ROUND}")


@dataclass(frozen=True, slots=True)
class Terms:
    """What server 2 publishes: vectors of ``dim`` values within ``bound`` before its own noise of scale ``sigma``."""

    dim: int
    bound: float
    sigma: float

    def pack(self) -> bytes:
        return pack("terms", **asdict(self))

    @classmethod
    def unpack(cls, data: bytes) -> Terms:
        """Raises MessageError on anything that is not one."""
        return cls(**unpack(data, "terms", dim=Whole(1, MOST_VALUES), bound=_POSITIVE, sigma=_POSITIVE))


@dataclass(frozen=True, slots=True)
class Offer:
    """One release as server 1 offers it: its name and round, its own noise's scale, and the terms as it understood them."""

    release: str
    round: int
    sigma: float
    dim: int
    bound: float
    noise_sigma: float

    @property
    def name(self) -> str:
        """The release with its round, as journals, logs and files call it."""
        return f"{self.release}@{self.round}"

    @property
    def terms(self) -> Terms:
        return Terms(self.dim, self.bound, self.noise_sigma)

    def facts(self) -> dict[str, Any]:
        """What must never change under this name."""
        return {"sigma": self.sigma, "dim": self.dim, "bound": self.bound, "noise_sigma": self.noise_sigma}

    @property
    def session(self) -> bytes:
        """Binds every frame of the vector to exactly this offer."""
        return hashlib.sha256(self.pack()).digest()

    def pack(self) -> bytes:
        return pack("offer", **asdict(self))

    @classmethod
    def unpack(cls, data: bytes) -> Offer:
        """Raises MessageError on anything that is not one."""
        offer = cls(
            **unpack(
                data,
                "offer",
                release=Text(64),
                round=Whole(0, _LAST_ROUND),
                sigma=_POSITIVE,
                dim=Whole(1, MOST_VALUES),
                bound=_POSITIVE,
                noise_sigma=_POSITIVE,
            )
        )
        if not _RELEASE.fullmatch(offer.release):
            raise MessageError("message offer: field release is no release's name")
        return offer


@dataclass(frozen=True, slots=True)
class Receipt:
    """Server 2's word that it has published: what came in (``payload``) and the file that went out, by SHA-256."""

    release: str
    round: int
    payload: bytes
    published: bytes

    def pack(self) -> bytes:
        return pack("receipt", **asdict(self))

    @classmethod
    def unpack(cls, data: bytes) -> Receipt:
        """Raises MessageError on anything that is not one."""
        return cls(
            **unpack(data, "receipt", release=Text(64), round=Whole(0, _LAST_ROUND), payload=Raw(32), published=Raw(32))
        )
