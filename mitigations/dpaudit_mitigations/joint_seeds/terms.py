"""What both parties agree on before a session: the noise's law, the number of candidates, who they are, which session."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, fields
from typing import Any

from dpaudit.errors import MessageError, UsageError
from dpaudit.vectors.exact_integers import LARGEST_SCALE
from dpaudit_mitigations.joint_seeds.fields import Hex, Real, Schema, Whole, read, write

__all__ = ["FIRST", "LARGEST_WORK", "MOST_CANDIDATES", "Terms"]

MOST_CANDIDATES = 256
LARGEST_WORK = 1 << 34  # coordinates of all candidates together: 256 candidates of 67 million
FIRST = bytes(32)  # what comes before the first session

_REACH = 64  # standard deviations that no noise leaves: P < exp(−2000)
_WHOLE = 2**53

_SCHEMA: Schema = {
    "candidates": Whole(2, MOST_CANDIDATES),
    "dim": Whole(1, LARGEST_WORK // 2),
    "scale": Real(1.0, LARGEST_SCALE),
    "granularity": Real(2.0**-1022, 2.0**969),
    "sequence": Whole(0, 2**53 - 1),
    "previous": Hex(),
    "server": Hex(),
    "verifier": Hex(),
}


@dataclass(frozen=True, kw_only=True)
class Terms:
    """A release of ``dim`` multiples of ``granularity``, noise ``granularity`` times the discrete Gaussian of ``scale``.

    ``server`` and ``verifier`` are raw Ed25519 public keys (32 bytes). ``sequence`` counts the sessions of the two, 0 the
    first; ``previous`` is the last head of the session before it (:data:`FIRST` for none), so that a session left out,
    an aborted one above all, is missed by whoever holds the next.

    Raises:
        UsageError: a value out of its range; candidates·dim above :data:`LARGEST_WORK`; granularity no power of two; the
            two keys equal.
    """

    candidates: int
    dim: int
    scale: float
    granularity: float
    server: bytes
    verifier: bytes
    sequence: int = 0
    previous: bytes = FIRST

    def __post_init__(self) -> None:
        try:
            read(self.document(), _SCHEMA, count=0, what="terms")
            self._check()
        except MessageError as error:
            raise UsageError(f"{error}; change the terms") from error

    def _check(self) -> None:
        if self.candidates * self.dim > LARGEST_WORK:
            raise MessageError(f"terms: candidates times dim is at most {LARGEST_WORK:,}")
        if math.frexp(self.granularity)[0] != 0.5:
            raise MessageError("terms.granularity: must be a power of two")
        if self.server == self.verifier:
            raise MessageError("terms: server and verifier have one key; two parties are needed")
        if (self.sequence == 0) != (self.previous == FIRST):
            raise MessageError("terms: the first session, and no other, has no previous one")

    @property
    def most(self) -> int:
        """The largest |query| in steps: 2^53 less 64 times the noise's scale."""
        return _WHOLE - _REACH * math.ceil(self.scale)

    def document(self) -> dict[str, Any]:
        """As JSON."""
        return write({field.name: getattr(self, field.name) for field in fields(self)}, _SCHEMA)

    @classmethod
    def read(cls, document: Any) -> Terms:
        """Back from JSON.

        Raises:
            MessageError: a field too many, missing or out of range.
        """
        try:
            return cls(**read(document, _SCHEMA, count=0, what="terms"))
        except UsageError as error:
            raise MessageError(str(error)) from error

    def after(self, head: bytes) -> Terms:
        """The same terms for the next session, which follows one that ended with ``head``."""
        return Terms(**{**asdict(self), "sequence": self.sequence + 1, "previous": head})
