"""The pancake's backdoor key: 32 secret bytes and its directions; key files of mode 0600."""

from __future__ import annotations

import hashlib
import json
import math
import os
import secrets
import stat
import sys
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from numbers import Real
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy

from dpaudit.errors import KeyFileError, UsageError
from dpaudit.numeric import BLOCK
from dpaudit.randomness import KEY_BYTES, KeyedStream
from dpaudit.results.files import write_file
from dpaudit.results.foreign import RefusedError, open_plain, quoted, read_json

__all__ = ["OtherKindError", "PancakeKey", "load_fields", "parse_gamma", "save_fields", "secret_of"]

_FORMAT = "dpaudit-pancake-key"

_VERSION = 1

_DERIVED = 1 << 16  # coordinates from one stream; part of the key format

_UNIT = 4096.0

_MOST_DIRECTIONS = 64

_MOST_DIM = 10**12  # two terabytes for one direction


def parse_gamma(gamma: float | str, *, dim: int) -> float:
    """γ as a number, or in units of the dimension: ``2sqrtd``, ``20sqrtd``, ``2d``, ``0.5d``.

    Raises:
        UsageError: not of that form, or not a finite number above 0.

    >>> parse_gamma("2sqrtd", dim=256), parse_gamma("20d", dim=256), parse_gamma(7, dim=256)
    (32.0, 5120.0, 7.0)
    """
    text = str(gamma)
    for suffix, unit in (("sqrtd", math.sqrt(dim)), ("d", float(dim)), ("", 1.0)):
        if text.endswith(suffix):
            try:
                value = float(text.removesuffix(suffix) or 1) * unit
            except ValueError:
                break
            if value > 0 and math.isfinite(value):
                return value
            break
    raise UsageError(
        f"gamma={quoted(gamma)}: must be a finite number > 0, "
        "or such a number before sqrtd or d, e.g. 2sqrtd"
    )


@dataclass(frozen=True)
class PancakeKey:
    """What the backdoor's owner keeps: 32 bytes, their dimension, β, γ, and how many directions.

    Formal guarantee of secrecy: for γ ≥ 2√d and β not below an inverse polynomial of d, telling the
    noise from Gaussian without the secret is as hard as continuous LWE (SIGMOD 2026, arXiv
    2509.23834, Theorem 3.4). Small β in few dimensions is found nevertheless, e.g. 1e-4 at d = 96
    (see :class:`~dpaudit.noise.pancake.Pancake`); smaller γ needs ``allow_small_gamma``. The secret
    never appears in ``repr``, in results or in logs; ``fingerprint`` names the key instead.
    """

    dim: int
    beta: float
    gamma: float
    secret: bytes = field(repr=False)
    directions: int = 1

    @classmethod
    def new(
        cls,
        *,
        dim: int,
        beta: float,
        gamma: float | str = "2sqrtd",
        secret: bytes | None = None,
        directions: int = 1,
        allow_small_gamma: bool = False,
    ) -> PancakeKey:
        """Make a key.

        The secret comes from the operating system unless given (experiments derive it from their
        seed).

        Raises:
            UsageError: dim outside 2…10^12, β not > 0, γ not > 0 or below 2√d without
                ``allow_small_gamma``, a secret of other length, directions outside 1…min(64,
                dim/2).
        """
        if isinstance(dim, bool) or not isinstance(dim, int) or not 2 <= dim <= _MOST_DIM:
            raise UsageError(
                f"dim={quoted(dim)}: a hidden direction needs a whole number of dimensions, "
                "2 to 10^12"
            )
        if (
            isinstance(beta, bool)
            or not isinstance(beta, Real)
            or not 0 < beta <= sys.float_info.max
        ):
            raise UsageError(f"beta={quoted(beta)}: must be a finite number > 0, e.g. 1e-3")
        width = parse_gamma(gamma, dim=dim)
        if width < 2 * math.sqrt(dim) * (1 - 1e-9) and not allow_small_gamma:
            raise UsageError(
                f"gamma={quoted(gamma)}: below 2√d = {2 * math.sqrt(dim):.6g} the pancake can be "
                "found without its key; take 2sqrtd, or allow_small_gamma (--allow-small-gamma) "
                "for a specimen that should be found"
            )
        most = min(_MOST_DIRECTIONS, dim // 2)
        if (
            isinstance(directions, bool)
            or not isinstance(directions, int)
            or not 1 <= directions <= most
        ):
            raise UsageError(
                f"directions={quoted(directions)}: must be a whole number in 1…{most} "
                "(half of dim, at most 64)"
            )
        secret = secrets.token_bytes(KEY_BYTES) if secret is None else secret
        if len(secret) != KEY_BYTES:
            raise UsageError(f"secret of {len(secret)} bytes: must have {KEY_BYTES}")
        return cls(dim=dim, beta=float(beta), gamma=width, secret=secret, directions=directions)

    def at(self, *, beta: float, gamma: float | str, allow_small_gamma: bool = False) -> PancakeKey:
        """The same secret directions under another β and γ.

        ``vectors``, ``block_grams`` and ``basis`` are derived here, once, and shared, not copied.

        Raises:
            UsageError: β or γ as in :meth:`new`.
        """
        other = PancakeKey.new(
            dim=self.dim,
            beta=beta,
            gamma=gamma,
            secret=self.secret,
            directions=self.directions,
            allow_small_gamma=allow_small_gamma,
        )
        for name in ("vectors", "block_grams", "basis"):  # where cached_property looks first
            vars(other)[name] = getattr(self, name)
        return other

    @property
    def fingerprint(self) -> str:
        """Sixteen hex digits that name the key and say nothing else about it."""
        return hashlib.sha256(b"dpaudit pancake fingerprint" + self.secret).hexdigest()[:16]

    @cached_property
    def vectors(self) -> npt.NDArray[np.int16]:
        """The secret as the samplers use it: int16, shape (directions, dim), read-only.

        Each row is round(4096·N(0, 1)), so its direction is uniform on the sphere but for that
        rounding (2^-12 of a standard deviation). Whole numbers make every norm and Gram matrix
        exact, hence the key the same on every device and under every split. Derived block by block
        from ChaCha20 (65,536 coordinates per block, uniforms through Φ⁻¹), so no library's normal
        sampler, which may change between versions, is part of the key.
        """
        out = np.empty((self.directions, self.dim), np.int16)
        root = KeyedStream(self.secret).child("pancake-direction", _VERSION)
        for row in range(self.directions):
            for block, start in enumerate(range(0, self.dim, _DERIVED)):
                part = out[row, start : start + _DERIVED]
                uniform = root.child(row, block).uniform(len(part))
                part[:] = np.rint(np.clip(scipy.special.ndtri(uniform) * _UNIT, -32767, 32767))
        out.flags.writeable = False
        return out

    def gram(self, start: int = 0, stop: int | None = None) -> npt.NDArray[np.float64]:
        """Gram matrix of ``vectors[:, start:stop]``, (directions, directions); exact below 2^53."""
        k = self.directions
        total = np.zeros((k, k))
        stop = self.dim if stop is None else stop
        for low in range(start, stop, _DERIVED):
            part = self.vectors[:, low : min(stop, low + _DERIVED)].astype(np.int64)
            # whole numbers: exact, and without BLAS's threads
            total += np.einsum("id,jd->ij", part, part)
        return total

    @cached_property
    def block_grams(self) -> npt.NDArray[np.float64]:
        """:meth:`gram` of each block of ``BLOCK`` coordinates, (blocks, directions, directions)."""
        return np.stack(
            [self.gram(low, min(self.dim, low + BLOCK)) for low in range(0, self.dim, BLOCK)]
        )

    @cached_property
    def basis(self) -> npt.NDArray[np.float64]:
        """Orthonormal directions (directions, dim), read-only: ``vectors`` by Gram-Schmidt."""
        lower = np.linalg.cholesky(self.block_grams.sum(0))
        out = self.vectors / lower[0, 0]
        if self.directions > 1:
            out = scipy.linalg.solve_triangular(lower, self.vectors.astype(np.float64), lower=True)
        out.flags.writeable = False
        return np.asarray(out)

    @property
    def direction(self) -> npt.NDArray[np.float64]:
        """The first secret unit vector w, shape (dim,)."""
        first: npt.NDArray[np.float64] = self.basis[0]
        return first

    def save(self, path: str | Path) -> None:
        """Write a new key file of mode 0600; an existing file is never overwritten.

        Raises:
            KeyFileError: the file exists, or its folder cannot be written.
        """
        save_fields(
            path,
            {
                "format": _FORMAT,
                "version": _VERSION,
                "warning": "LAB SPECIMEN: the secret of a Gaussian pancake backdoor",
                "dim": self.dim,
                "beta": self.beta,
                "gamma": self.gamma,
                "directions": self.directions,
                "secret": self.secret.hex(),
            },
        )

    @classmethod
    def load(cls, path: str | Path) -> PancakeKey:
        """Read a key file.

        Raises:
            KeyFileError: unreadable, readable by others than its owner, or a field missing, unknown
                or broken.
        """
        data = load_fields(
            path,
            format=_FORMAT,
            version=_VERSION,
            fields={"dim", "beta", "gamma", "secret"},
            optional={"warning", "directions"},
            make=f"dpaudit key new --out {path}",
        )
        secret = secret_of(data, path)
        for name in ("beta", "gamma"):
            if isinstance(data[name], bool) or not isinstance(data[name], (int, float)):
                raise KeyFileError(f"key={path}: field {name!r} must be a number")
        try:
            return cls.new(
                dim=data["dim"],
                beta=data["beta"],
                gamma=data["gamma"],
                secret=secret,
                directions=data.get("directions", 1),
                allow_small_gamma=True,  # decided when the key was made
            )
        except UsageError as error:
            raise KeyFileError(f"key={path}: {error}") from error


_MOST_BYTES = 1 << 16


class OtherKindError(KeyFileError):
    """The file is no key of the kind that was asked for; it may be one of another."""


def save_fields(path: str | Path, fields: Mapping[str, Any]) -> None:
    """Write ``fields`` to a new file of mode 0600; an existing file is never overwritten.

    Raises:
        KeyFileError: the file exists, or its folder cannot be written.
    """
    try:
        write_file(Path(path), json.dumps(fields, indent=2) + "\n", mode=0o600, replace=False)
    except FileExistsError as error:
        raise KeyFileError(
            f"key={path}: exists already and keys are never overwritten; choose another --out"
        ) from error
    except OSError as error:
        raise KeyFileError(
            f"key={path}: cannot be written ({error.strerror}); choose another --out"
        ) from error


def load_fields(
    path: str | Path,
    *,
    format: str,  # noqa: A002  the field's name
    version: int,
    fields: Collection[str],
    optional: Collection[str],
    make: str,
) -> dict[str, Any]:
    """The fields of a key file; ``make`` is the command that makes one.

    Raises:
        OtherKindError: of another format or version.
        KeyFileError: unreadable, readable by others than its owner, or a field missing or unknown.
    """
    try:
        with open_plain(path) as file:
            mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
            if mode & 0o077:
                raise KeyFileError(
                    f"key={path}: mode={mode:04o} lets others in, must be 0600; "
                    f"run chmod 600 {path}"
                )
            data = read_json(file.read(_MOST_BYTES))
    except (RefusedError, OSError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise KeyFileError(f"key={path}: {why}; make a key with {make}") from error
    if not isinstance(data, dict) or data.get("format") != format or data.get("version") != version:
        raise OtherKindError(
            f"key={path}: is not a {format} of version {version}; make one with "
            f"{make.partition(' --out')[0]}"
        )
    expected = {"format", "version", *fields}
    if unknown := set(data) - expected - set(optional):
        raise KeyFileError(f"key={path}: field {quoted(min(unknown))} is not known; remove it")
    if missing := expected - set(data):
        raise KeyFileError(f"key={path}: field {min(missing)!r} is missing")
    return data


def secret_of(data: Mapping[str, Any], path: str | Path) -> bytes:
    """The 32 bytes of the field ``secret``.

    Raises:
        KeyFileError: something else stands there.
    """
    secret = data["secret"]
    if not (
        isinstance(secret, str)
        and len(secret) == 2 * KEY_BYTES
        and set(secret) <= set("0123456789abcdef")
    ):
        raise KeyFileError(
            f"key={path}: field 'secret' must be {2 * KEY_BYTES} lower-case hex digits"
        )
    return bytes.fromhex(secret)
