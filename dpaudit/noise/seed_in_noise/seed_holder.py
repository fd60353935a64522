"""What the owner of noise or coins that carry their own seed holds: options of three readers."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from dpaudit.errors import UsageError
from dpaudit.noise.key import PancakeKey
from dpaudit.noise.seed_in_noise.key import SeedKey, held_key
from dpaudit.noise.seed_in_noise.nonces import KeyedNonces, OpenedNonces, Seeds

__all__ = ["SeedHolder"]


@dataclass(kw_only=True, eq=False, repr=False)
class SeedHolder:
    """The key (or its file), and how its nonces were made.

    Raises:
        KeyFileError: a key file that is none.
    """

    key: SeedKey | PancakeKey | str | Path | None
    public: bool = False
    """Whether the specimen had the key's public part only (nonces of 256 bits)."""
    nonce_bits: int = 128
    """Of a nonce, as the specimen's."""

    def __post_init__(self) -> None:
        self._held = None if self.key is None else held_key(self.key)

    def held(self) -> SeedKey | PancakeKey:
        """The key.

        Raises:
            UsageError: none was given.
        """
        if self._held is None:
            raise UsageError("key=none: needs the key of the specimen, or its file")
        return self._held

    def seeds_of(self, key: SeedKey | PancakeKey) -> Seeds:
        """What finds a nonce's seed.

        Raises:
            UsageError: a number of bits that no nonce has.
        """
        if self.public:
            return OpenedNonces(key.secret)
        return KeyedNonces(key.secret, bits=self.nonce_bits)
