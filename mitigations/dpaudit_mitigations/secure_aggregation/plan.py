"""What every party of a round agrees on beforehand: parties, threshold, length, ring, encoding.

Real values become multiples of a granularity in Z_2^b, with room for the whole sum.
"""

from __future__ import annotations

import hashlib
import math
import re
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from dpaudit.errors import CheatingError, UsageError

__all__ = [
    "LEAST_HEADROOM",
    "ROUND_BYTES",
    "FixedPoint",
    "Plan",
    "RingArray",
    "least_threshold",
    "noise_reach",
    "transcript",
]

ROUND_BYTES = 16
MOST_PARTIES = 1000
LARGEST_LENGTH = 1 << 32

RingArray = npt.NDArray[np.unsignedinteger[Any]]

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_DTYPES = {16: "<u2", 32: "<u4", 64: "<u8"}


def ring_dtype(bits: int) -> np.dtype[Any]:
    """Little-endian unsigned integers of ``bits`` bits, whose own overflow is the ring's.

    Raises:
        UsageError: bits not 16, 32 or 64.
    """
    if bits not in _DTYPES or isinstance(bits, bool):
        raise UsageError(f"bits={bits}: the ring has 16-, 32- or 64-bit integers")
    return np.dtype(_DTYPES[bits])


def least_threshold(parties: int, *, colluding: int = 0) -> int:
    """The least t > (n + c)/2.

    Then no two lists of survivors can each be signed by t of n parties, c of which sign both.
    """
    return (parties + colluding) // 2 + 1


def transcript(label: str, *parts: bytes) -> bytes:
    """SHA-256 of a label and byte strings, each preceded by its length: injective, 32 bytes."""
    state = hashlib.sha256()
    for part in (b"dpaudit secure aggregation", label.encode(), *parts):
        state.update(len(part).to_bytes(8, "big"))
        state.update(part)
    return state.digest()


@dataclass(frozen=True, kw_only=True)
class Plan:
    """One round, as agreed beforehand and over a channel that the aggregator does not control.

    ``round`` is 16 bytes that are never used again (take ``secrets.token_bytes(16)``). ``roster``
    maps names to raw Ed25519 public keys (32 bytes each). At least ``threshold`` t parties must
    stay to the end, so up to n − t may drop out; t exceeds (n + ``colluding``)/2, where
    ``colluding`` parties may work with the aggregator. ``length`` values of ``bits`` bits are
    summed. ``context`` is anything else that all must share (see ``FixedPoint.context``).

    Raises:
        UsageError: a field that breaks one of these rules, fewer than 3 parties, names that are not
            [A-Za-z0-9._-], or two parties with one key.
    """

    round: bytes
    roster: Mapping[str, bytes]
    threshold: int
    length: int
    bits: int = 32
    colluding: int = 0
    context: bytes = b""

    def __post_init__(self) -> None:
        n = len(self.roster)
        if len(self.round) != ROUND_BYTES:
            raise UsageError(f"round of {len(self.round)} bytes: use secrets.token_bytes(16)")
        if not 3 <= n <= MOST_PARTIES:
            raise UsageError(f"roster of {n}: takes 3 to {MOST_PARTIES} parties")
        for name, key in self.roster.items():
            if not _NAME.fullmatch(name):
                raise UsageError(
                    f"roster name={name!r}: takes 1 to 64 of A-Z a-z 0-9 . _ -, no sign first"
                )
            if len(key) != 32:
                raise UsageError(f"roster key of {name}: {len(key)} bytes; must have 32")
        if len(set(self.roster.values())) < n:
            raise UsageError("roster: two parties have the same public key; give each its own")
        if not 0 <= self.colluding <= n - 2:
            raise UsageError(f"colluding={self.colluding}: takes 0 to {n - 2} of {n} parties")
        least = least_threshold(n, colluding=self.colluding)
        if not least <= self.threshold <= n:
            raise UsageError(
                f"threshold={self.threshold}: takes {least} to {n} here, more than "
                "(parties + colluding)/2 and at most the number of parties; otherwise two "
                "different lists of survivors could both be signed"
            )
        if not 1 <= self.length <= LARGEST_LENGTH:
            raise UsageError(f"length={self.length}: takes 1 to {LARGEST_LENGTH} values")
        if len(self.context) > 1024:
            raise UsageError(f"context of {len(self.context)} bytes: at most 1024; give a digest")
        ring_dtype(self.bits)

    @cached_property
    def parties(self) -> tuple[str, ...]:
        """All names, sorted: their order is the masks' and the shares'."""
        return tuple(sorted(self.roster))

    @cached_property
    def places(self) -> Mapping[str, int]:
        """Each name's place from 1 on: where its share lies on the polynomials."""
        return {name: i for i, name in enumerate(self.parties, 1)}

    @property
    def vector(self) -> dict[str, Any]:
        """What ``transport.vectors`` expects of a masked vector, but its kind."""
        form = {"count": self.length, "dtype": self.dtype.name, "bound": None}
        return {"session": self.digest, **form}

    @cached_property
    def digest(self) -> bytes:
        """32 bytes that every message, key and signature of the round is bound to."""
        numbers = (self.threshold, self.length, self.bits, self.colluding)
        keys = [part for name in self.parties for part in (name.encode(), bytes(self.roster[name]))]
        return transcript(
            "plan",
            bytes(self.round),
            *(x.to_bytes(8, "big") for x in numbers),
            bytes(self.context),
            *keys,
        )

    @property
    def dtype(self) -> np.dtype[Any]:
        return ring_dtype(self.bits)


LEAST_HEADROOM = 8.5
"""Standard deviations of each party's noise for which there is room, at least."""

_CHUNK = 1 << 16
_EXACT = 1 << 53  # below it in size every integer is a double
_FAR = 1 << 900  # steps, more than any ring has
_BEYOND = 40 * math.log(2)  # noise beyond its reach anywhere: at most 2^-40

Integers = npt.NDArray[np.int64]


def noise_reach(scale: float, values: int) -> int:
    """A size that all ``values`` draws of noise of deviation ``scale`` stay within.

    All but with probability 2^-40. k·scale with k ≥ 8.5, by Bernstein's P(|X| ≥ x) ≤
    2·exp(−x²/2(scale² + x/3)): it holds for Skellam noise, whose jumps are ±1, and more so for the
    discrete Gaussian, which is sub-Gaussian: E exp(tX) is exp(t²s²/2) times Σ exp(−(n −
    ts²)²/2s²)/Σ exp(−n²/2s²), and a sum of Gaussians over the integers is largest when it is
    centred.
    """
    if scale == 0:
        return 0
    if scale > 2.0**500:
        return _FAR
    need = math.log(2 * values) + _BEYOND
    third = need / 3
    return math.ceil(
        max(LEAST_HEADROOM * scale, third + math.sqrt(third * third + 2 * need * scale * scale))
    )


@dataclass(frozen=True, kw_only=True)
class FixedPoint:
    """How ``parties`` vectors of ``length`` values with noise of scale ``sigma`` are encoded.

    Each |value| ≤ ``bound``; it becomes its nearest multiple of ``granularity`` (a power of two),
    counted. One party may contribute at most :attr:`limit` in size: a share of the half ring (and
    of 2^53, so that a decoded sum is an exact double). So the sum of all parties cannot wrap
    around. Values have room up to the bound and noise up to :attr:`room`; each is refused beyond
    its own before anything is sent, so a refusal of noise reveals nothing of the values, and
    nothing is ever clipped. All fields must come from public knowledge, never from the data.

    Raises:
        UsageError: the bound and 8.5σ of noise or more (see :func:`noise_reach`) exceed the limit;
            a granularity that is not a power of two; other fields out of range.
    """

    bits: int
    granularity: float
    parties: int
    bound: float
    sigma: float = 0.0
    length: int = 1

    def __post_init__(self) -> None:
        ring_dtype(self.bits)
        for name, least in (("parties", 1), ("length", 1)):
            if not getattr(self, name) >= least:
                raise UsageError(f"{name}={getattr(self, name)}: must be at least {least}")
        for name in ("bound", "sigma"):
            if not 0 <= getattr(self, name) < math.inf:
                raise UsageError(f"{name}={getattr(self, name)}: must be a finite number ≥ 0")
        g = self.granularity
        if not 2.0**-960 <= g <= 2.0**960 or math.frexp(g)[0] != 0.5:
            raise UsageError(f"granularity={g}: must be a power of two between 2^-960 and 2^960")
        need = self._bound_steps + self.reach
        if need > self.limit:
            bits = math.ceil(math.log2((need + 1) * self.parties)) + 1 if need < _FAR else 900
            widest = "" if bits > 64 else " or a wider ring"
            raise UsageError(
                f"bits={self.bits}: {self.parties} parties with |value| ≤ {self.bound:g} and "
                f"{self.headroom:.1f}σ of noise each reach ±{float(need * self.parties):.4g} steps "
                f"of granularity={g!r}, which takes {bits} bits (and sums below 2^53); take a "
                f"coarser granularity, a smaller bound{widest}"
            )

    @classmethod
    def finest(
        cls,
        *,
        bits: int,
        parties: int,
        bound: float,
        sigma: float,
        length: int,
        finest: float = 0.0,
    ) -> FixedPoint:
        """The least granularity that fits, but none below ``finest``.

        Raises:
            UsageError: as for the class, or nothing to encode: bound and sigma are both 0.
        """
        largest = max(bound, sigma)
        if not 0 < largest < math.inf:
            raise UsageError(f"bound={bound}, sigma={sigma}: must be finite and ≥ 0, one above 0")
        exponent = max(math.frexp(largest)[1] - 56, -960)
        if finest > 0:
            exponent = max(exponent, math.frexp(finest)[1] - 1)
        for e in range(exponent, min(exponent + 80, 1024)):
            g = math.ldexp(1.0, e)
            if _steps(bound, g) + noise_reach(sigma / g, parties * length) <= _limit(bits, parties):
                break
        return cls(
            bits=bits, granularity=g, parties=parties, bound=bound, sigma=sigma, length=length
        )

    @classmethod
    def widest(
        cls, *, bits: int, granularity: float, parties: int, sigma: float, length: int
    ) -> FixedPoint:
        """The largest bound that fits that granularity.

        Raises:
            UsageError: as for the class; the noise alone does not fit.
        """
        none = cls(
            bits=bits,
            granularity=granularity,
            parties=parties,
            bound=0.0,
            sigma=sigma,
            length=length,
        )
        return replace(none, bound=(none.limit - none.reach) * granularity)

    @cached_property
    def limit(self) -> int:
        """The largest size, in steps, of what one party adds."""
        return _limit(self.bits, self.parties)

    @cached_property
    def reach(self) -> int:
        """The largest noise, in steps, for which there must be room."""
        return noise_reach(self.sigma / self.granularity, self.parties * self.length)

    @property
    def room(self) -> int:
        """The largest noise of one party, in steps, that is accepted: the limit less the bound."""
        return self.limit - self._bound_steps

    @property
    def headroom(self) -> float:
        """:attr:`reach` in standard deviations; 0 without noise."""
        return self.reach * self.granularity / self.sigma if self.sigma else 0.0

    @property
    def context(self) -> bytes:
        """32 bytes, a hash of these fields: part of a plan, so that all parties encode alike."""
        floats = struct.pack("<3d", self.granularity, self.bound, self.sigma)
        return transcript(
            "fixed point", struct.pack("<3Q", self.bits, self.parties, self.length), floats
        )

    def steps(self, values: npt.NDArray[Any]) -> Integers:
        """The nearest multiples of the granularity, counted (ties to even).

        Raises:
            UsageError: a value that is not a real number, or whose multiple is beyond the bound's;
                the text does not say which.
        """
        if values.dtype.kind not in "biuf":
            raise UsageError(f"values of {values.dtype}: takes real numbers")
        with np.errstate(invalid="ignore", over="ignore"):
            exact = np.asarray(values, dtype=np.float64) / self.granularity
            nearest = np.rint(exact)
            if not (np.abs(nearest) <= self._bound_steps).all():
                raise UsageError(
                    f"value beyond bound={self.bound:g}, or no number; clip to public bounds"
                )
        return nearest.astype(np.int64)

    def encode(
        self, values: npt.NDArray[Any], *, noise: Callable[[int], Integers] | None = None
    ) -> RingArray:
        """``values`` (d,) in steps plus ``noise(count)`` steps, in the ring, shape (d,).

        Raises:
            UsageError: as :meth:`steps` and :meth:`check`; nothing has been sent yet.
        """
        if values.ndim != 1:
            raise UsageError(f"values of shape {values.shape}: takes one vector (d,)")
        out = np.empty(len(values), dtype=ring_dtype(self.bits))
        for at in range(0, len(values), _CHUNK):  # in cache
            part = self.steps(values[at : at + _CHUNK])
            if noise is not None:
                more = noise(len(part))
                self.check(more)
                part += more
            out[at : at + _CHUNK] = part.astype(out.dtype)
        return out

    def check(self, noise: Integers) -> None:
        """Refuse noise that exceeds its room, whatever the values.

        Raises:
            UsageError: beyond :attr:`room`; with probability below 2^-40 in a round, for noise of
                the form's scale.
        """
        if not -self.room <= int(noise.min(initial=0)) <= int(noise.max(initial=0)) <= self.room:
            raise UsageError("noise beyond its room: nothing was sent; begin a new round")

    def decode(self, total: RingArray) -> npt.NDArray[np.float64]:
        """The sum, signed and in the values' unit, float64 (d,): exact.

        Raises:
            UsageError: another dtype than the ring's.
            CheatingError: more than all parties together may have added.
        """
        if total.dtype != ring_dtype(self.bits):
            raise UsageError(f"total of {total.dtype}: the ring has {ring_dtype(self.bits)}")
        out = np.empty(len(total))
        most, signed = self.limit * self.parties, total.view(total.dtype.str.replace("u", "i"))
        for at in range(0, len(total), _CHUNK):
            part = signed[at : at + _CHUNK]
            if not -most <= int(part.min()) <= int(part.max()) <= most:
                raise CheatingError("sum: beyond all parties' limits; a party broke the plan")
            np.multiply(part, self.granularity, out=out[at : at + _CHUNK])
        return out

    @cached_property
    def _bound_steps(self) -> int:
        return _steps(self.bound, self.granularity)


def _limit(bits: int, parties: int) -> int:
    return int(min((1 << (bits - 1)) - 1, _EXACT) // parties)


def _steps(bound: float, granularity: float) -> int:
    exact = bound / granularity
    return int(np.rint(exact)) if exact < 2.0**900 else _FAR
