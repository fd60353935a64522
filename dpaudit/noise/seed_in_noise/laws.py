"""The laws: a row from its seed, and what a code needs to write into one."""

from __future__ import annotations

import math
from functools import cached_property
from typing import Protocol

import numpy as np
import numpy.typing as npt
import scipy.special
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from dpaudit.claims import FAMILIES, Claim
from dpaudit.errors import UnknownNameError, UsageError
from dpaudit.numeric.exact_integers import IntegerLaw, draw_integers
from dpaudit.numeric.kernels import fill_normal_from
from dpaudit.registry import nearest
from dpaudit.results.foreign import quoted

__all__ = ["ContinuousLaw", "Law", "SeedStream", "last_digits", "law_of"]

Floats = npt.NDArray[np.float64]
_CHUNK = 1 << 14
_ZEROS = memoryview(bytes(10 * _CHUNK))
_NEWTON = 8
_TERMS = np.arange(1, 4)
_SPARE = 1 << 10


class SeedStream:
    """The pseudorandom function's bytes for one seed: AES-256 in counter mode."""

    def __init__(self, seed: bytes) -> None:
        """From 32 bytes."""
        self._cipher = Cipher(algorithms.AES(seed), modes.CTR(bytes(16))).encryptor()
        self._buffer = bytearray()

    def bytes(self, n: int) -> bytes:
        """The next ``n`` bytes."""
        return self._cipher.update(bytes(n))

    def words(self, n: int) -> npt.NDArray[np.uint64]:
        """The next ``n`` words of 8 bytes, good until the next call."""
        if 8 * n > len(_ZEROS):
            return np.frombuffer(self.bytes(8 * n), "<u8")
        if len(self._buffer) < 8 * n + 16:
            self._buffer = bytearray(8 * n + 16)
        self._cipher.update_into(_ZEROS[: 8 * n], self._buffer)
        return np.frombuffer(self._buffer, "<u8", count=n)


class Law(Protocol):
    """Independent values of one law."""

    claim: Claim

    @property
    def bits(self) -> float:
        """At least so many bits of entropy has a value, as it is released in float64."""

    def fill(self, out: Floats, stream: SeedStream) -> None:
        """Fill ``out`` (d,); its first values do not depend on d."""


class ContinuousLaw(Law, Protocol):
    """A law whose values have leading bits and fractional parts."""

    def quantile(self, u: Floats) -> Floats:
        """The inverse of the distribution function, at numbers in [0, 1]."""

    def density(self, z: Floats) -> Floats:
        """Of a value."""

    def fraction(self, u: Floats) -> Floats:
        """The inverse of the distribution function of a value's fractional part, in [0, 1]."""

    def fraction_density(self, f: Floats) -> Floats:
        """Of a value's fractional part."""

    def given_fraction(self, fraction: Floats, u: Floats) -> Floats:
        """A value with that fractional part, by its conditional law: inversion of ``u``."""


class _Gaussian:
    bits = 32.0

    def __init__(self, claim: Claim) -> None:
        self.claim = claim

    def fill(self, out: Floats, stream: SeedStream) -> None:
        for start in range(0, len(out), _CHUNK):
            part = out[start : start + _CHUNK]
            words = stream.words(_SPARE + len(part))
            spare, words = words[:_SPARE], words[_SPARE:]
            while not fill_normal_from(part, sigma=self.claim.scale, words=words, spare=spare):
                spare = np.concatenate([spare, SeedStream(spare.tobytes()[:32]).words(_SPARE)])

    def quantile(self, u: Floats) -> Floats:
        return np.asarray(self.claim.scale * scipy.special.ndtri(u))

    def density(self, z: Floats) -> Floats:
        scale = self.claim.scale
        return np.asarray(np.exp(-((z / scale) ** 2) / 2) / (scale * math.sqrt(2 * math.pi)))

    @cached_property
    def _weight(self) -> Floats:
        return np.asarray(np.exp(-2 * (np.pi * _TERMS * self.claim.scale) ** 2))

    def fraction(self, u: Floats) -> Floats:
        """Newton's method on the theta series W(f) = f + Σ_m exp(−2π²m²σ²)·sin(2πmf)/(πm)."""
        if self._weight[0] < 2.0**-56:
            return u
        f = u.copy()
        for _ in range(_NEWTON):
            waves = np.sin(2 * np.pi * _TERMS * f[..., None]) / (np.pi * _TERMS)
            f -= (f + waves @ self._weight - u) / self.fraction_density(f)
        return np.clip(f, 0.0, 1.0)

    def fraction_density(self, f: Floats) -> Floats:
        waves = np.cos(2 * np.pi * _TERMS * f[..., None])
        return np.asarray(1 + 2 * (waves @ self._weight))

    def given_fraction(self, fraction: Floats, u: Floats) -> Floats:
        reach = math.ceil(9 * self.claim.scale) + 1
        k = np.arange(-reach, reach, dtype=np.float64)
        out = np.empty_like(fraction)
        step = max(1, (1 << 20) // len(k))
        for at in range(0, fraction.size, step):
            some = fraction.ravel()[at : at + step]
            weight = np.exp(-(((some[:, None] + k) / self.claim.scale) ** 2) / 2)
            upto = np.cumsum(weight, axis=1)
            place = (upto <= (u.ravel()[at : at + step] * upto[:, -1])[:, None]).sum(1)
            out.ravel()[at : at + step] = some + k[np.minimum(place, len(k) - 1)]
        return out


_ODD = np.uint64(0x9E3779B97F4A7C15)


def last_digits(bits: npt.NDArray[np.uint64]) -> Floats:
    """Relative shifts within 2^-49 that give values random last digits; ``bits`` are of 20 bits."""
    return np.asarray(((bits.astype(np.float64) + 0.5) * 2.0**-20 - 0.5) * 2.0**-48)


class _Laplace:
    bits = 32.0

    def __init__(self, claim: Claim) -> None:
        self.claim = claim

    def fill(self, out: Floats, stream: SeedStream) -> None:
        for start in range(0, len(out), _CHUNK):
            words = stream.words(min(_CHUNK, len(out) - start))
            # 63 bits: fine where the size is small
            size = -np.log1p(-((words >> np.uint64(1)).astype(np.float64) + 0.5) * 2.0**-63)
            # the last digit of log1p alone is even too often with some C libraries
            size *= 1 + last_digits(words * _ODD >> np.uint64(44))
            out[start : start + _CHUNK] = np.where(words & np.uint64(1), size, -size)
        out *= self.claim.scale

    def quantile(self, u: Floats) -> Floats:
        with np.errstate(divide="ignore"):
            size = -np.log(2 * np.minimum(u, 1 - u))
        return np.asarray(self.claim.scale * np.copysign(size, u - 0.5))

    def density(self, z: Floats) -> Floats:
        return np.asarray(np.exp(-np.abs(z) / self.claim.scale) / (2 * self.claim.scale))

    def fraction_density(self, f: Floats) -> Floats:
        b = self.claim.scale
        return np.asarray(np.cosh((f - 0.5) / b) / (2 * b * math.sinh(1 / (2 * b))))

    def fraction(self, u: Floats) -> Floats:
        """Closed: W(f) = 1/2 + sinh((f − 1/2)/b) / (2·sinh(1/(2b)))."""
        b = self.claim.scale
        return np.clip(0.5 + b * np.arcsinh((2 * u - 1) * math.sinh(1 / (2 * b))), 0.0, 1.0)

    def given_fraction(self, fraction: Floats, u: Floats) -> Floats:
        """A value f + k, P(k ≥ 0) ∝ exp(−f/b), P(k < 0) ∝ exp(−(1 − f)/b), then geometric."""
        b = self.claim.scale
        above = 1 / (1 + np.exp((2 * fraction - 1) / b))
        up = u < above
        rest = np.where(up, u / above, (1 - u) / (1 - above))
        steps = np.floor(-b * np.log(np.maximum(rest, 2.0**-53)))
        return np.where(up, fraction + steps, fraction - 1 - steps)


class _Whole:
    def __init__(self, claim: Claim) -> None:
        self.claim = claim
        make = IntegerLaw.gaussian if claim.family == "discrete-gaussian" else IntegerLaw.laplace
        self._law = make(claim.scale)

    @cached_property
    def bits(self) -> float:
        """At most −log2 P(0), and P(0) is the largest; up to one bit too few."""
        lows, _ = self._law.blocks(60)
        return max(0.0, -math.log2(min(1.0, (lows[0] + 2) / 2.0**60 / max(1, self._law.block))))

    def fill(self, out: Floats, stream: SeedStream) -> None:
        out[:] = draw_integers(len(out), self._law, stream=stream)  # type: ignore[arg-type]


def law_of(name: str, *, sigma: float | None, scale: float | None) -> Law:
    """The law ``name`` with the scale that the honest source of that name takes.

    Raises:
        UnknownNameError: no such law.
        UsageError: a scale of another name, or out of range.
    """
    if name not in FAMILIES:
        raise UnknownNameError(
            f"law={quoted(name)}: is not known{nearest(str(name), FAMILIES)}; "
            f"take one of {', '.join(FAMILIES)}"
        )
    parameter = FAMILIES[name]
    parameters = {"sigma": sigma, "scale": scale}
    other = "scale" if parameter == "sigma" else "sigma"
    if parameters[other] is not None:
        raise UsageError(
            f"{other}={quoted(parameters[other])}: law={name} has {parameter}; write {parameter}=10"
        )
    value = parameters[parameter]
    default = 10.0 if name.startswith("discrete") else 1.0
    value = default if value is None else value
    if isinstance(value, (str, bool)):
        raise UsageError(f"{parameter}={quoted(value)}: must be a finite number > 0")
    claim = Claim.parse(f"{name}:{parameter}={float(value)!r}")
    if claim.family == "gaussian":
        return _Gaussian(claim)
    return _Laplace(claim) if claim.family == "laplace" else _Whole(claim)
