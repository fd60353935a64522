"""What both parties agree on before a session, and how values become steps of the lattice."""

from __future__ import annotations

import math
from typing import Annotated

import numpy as np
import numpy.typing as npt
from msgspec import Meta
from msgspec.structs import force_setattr, replace

from dpaudit.errors import MessageError, UsageError
from dpaudit.vectors.exact_integers import LARGEST_SCALE
from dpaudit_mitigations.codec import Digest, ExactFloat, Record
from dpaudit_mitigations.joint_seeds.derivation import BLOCK, Blocks, Integers

__all__ = ["FIRST", "LARGEST_WORK", "MOST_CANDIDATES", "SessionTerms", "in_steps", "nearest_steps"]

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
