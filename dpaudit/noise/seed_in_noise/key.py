"""The key of noise that carries its own seed, in a file of mode 0600, and who holds it."""

from __future__ import annotations

import hashlib
import secrets
from dataclasses import dataclass, field
from pathlib import Path

from dpaudit.errors import UsageError
from dpaudit.noise.key import OtherKindError, PancakeKey, load_fields, save_fields, secret_of
from dpaudit.noise.seed_in_noise.nonces import KeyedNonces, OpenedNonces, Seeds, private_key
from dpaudit.randomness import KEY_BYTES

__all__ = ["SeedHolder", "SeedKey", "load_key"]

_FORMAT = "dpaudit-seed-in-noise-key"
_VERSION = 1


@dataclass(frozen=True)
class SeedKey:
    """What the backdoor's owner keeps: 32 bytes, for any law and dimension.

    They serve as the key of both, sampler and reader, or as the private key of a public one:
    ``public_key`` is all that a sampler then needs. The secret never appears in ``repr``, in
    results or in logs; ``fingerprint`` names the key instead.
    """

    secret: bytes = field(repr=False)

    @classmethod
    def new(cls, *, secret: bytes | None = None) -> SeedKey:
        """Make a key; the secret comes from the operating system unless given.

        Raises:
            UsageError: a secret of another length than 32 bytes.
        """
        secret = secrets.token_bytes(KEY_BYTES) if secret is None else secret
        if len(secret) != KEY_BYTES:
            raise UsageError(f"secret of {len(secret)} bytes: must have {KEY_BYTES}")
        return cls(secret)

    @property
    def fingerprint(self) -> str:
        """Sixteen hex digits that name the key and say nothing else about it."""
        return hashlib.sha256(b"dpaudit seed-in-noise fingerprint" + self.secret).hexdigest()[:16]

    @property
    def public_key(self) -> str:
        """The X25519 public key, 64 hex digits."""
        return private_key(self.secret).public_key().public_bytes_raw().hex()

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
                "warning": "LAB SPECIMEN: the secret of noise that carries its own seed",
                "secret": self.secret.hex(),
            },
        )

    @classmethod
    def load(cls, path: str | Path) -> SeedKey:
        """Read a key file.

        Raises:
            KeyFileError: unreadable, readable by others than its owner, of another kind, or a field
                missing, unknown or broken.
        """
        data = load_fields(
            path,
            format=_FORMAT,
            version=_VERSION,
            fields={"secret"},
            optional={"warning"},
            make=f"dpaudit key new --kind seed-in-noise --out {path}",
        )
        return cls.new(secret=secret_of(data, path))


def load_key(key: SeedKey | PancakeKey | str | Path) -> SeedKey | PancakeKey:
    """A key, or the one in a file; of a pancake's only the secret is used.

    Raises:
        KeyFileError: a file that holds neither.
    """
    if isinstance(key, (SeedKey, PancakeKey)):
        return key
    try:
        return SeedKey.load(key)
    except OtherKindError as error:
        try:
            return PancakeKey.load(key)
        except OtherKindError:
            raise error from None


@dataclass(kw_only=True, eq=False, repr=False)
class SeedHolder:
    """The key (or its file), and how its nonces were made.

    Raises:
        KeyFileError: not a key file.
    """

    key: SeedKey | PancakeKey | str | Path | None
    public: bool = False
    """Whether the specimen had the key's public part only (nonces of 256 bits)."""
    nonce_bits: int = 128
    """Of a nonce, as the specimen's."""

    def __post_init__(self) -> None:
        self._secret_key = None if self.key is None else load_key(self.key)

    def secret_key(self) -> SeedKey | PancakeKey:
        """The key.

        Raises:
            UsageError: none was given.
        """
        if self._secret_key is None:
            raise UsageError("key=none: needs the key of the specimen, or its file")
        return self._secret_key

    def seeds_of(self, key: SeedKey | PancakeKey) -> Seeds:
        """What finds a nonce's seed.

        Raises:
            UsageError: a number of bits that no nonce has.
        """
        if self.public:
            return OpenedNonces(key.secret)
        return KeyedNonces(key.secret, bits=self.nonce_bits)
