"""Families of hash functions for sketches: the position that each function gives an object.

A family is public: it hides nothing, and no mechanism's ε rests on it. What it must give is utility
(few chance collisions), and for an attack no regularity that real families would not have.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import lru_cache
from typing import Literal

import numpy as np
import numpy.typing as npt

from dpaudit.errors import UsageError
from dpaudit.randomness import KeyedStream
from dpaudit_local.hash_family import (
    HashFamily,
    RandomHashes,
    ThreeWiseHashes,
    check_family,
    check_function,
    check_functions,
    refuse,
)

__all__ = [
    "HashFamily",
    "RandomHashes",
    "Sha256Hashes",
    "ThreeWiseHashes",
    "pair_positions",
    "sketch_hashes",
]

_U = np.uint64
_KEPT = 1 << 26  # positions that are remembered, 256 MiB


class Sha256Hashes:
    """Apple's functions: SHA-256 of the function's index and the UTF-8 string, modulo m.

    The index has 32 bits, big-endian. Tang et al. 2017, Figure 16 (``_DPCMSSample
    dataFor:hashAtIndex:…``): ``bswap ecx``, ``CC_SHA256_Update`` with those 4 bytes, again with
    ``UTF8String`` of ``strlen`` bytes, then ``(var_50 & 0xffff0000 | var_50 & 0xffffffff) %
    bitCount``, where ``var_50`` is the start of the digest. Read as what it says on a little-endian
    processor: digest bytes 0 … 3 as a little-endian 32-bit number (the masks' union is all 32
    bits). What the line leaves open: the odd masks may stand for a load of 16 bits, which for m a
    power of two up to 65,536 (Apple's are 256, 1,024 and 32,768) gives the same position; and no
    byte swap of the digest is shown, so none is made. Figure 17 writes 0 for the position.
    """

    def __init__(self, count: int, size: int, *, names: Sequence[str]) -> None:
        """``count`` functions to ``size`` positions; object i is the string ``names[i]``.

        Raises:
            UsageError: ``count`` or ``size`` out of range, no names, or a name that UTF-8 or
                ``strlen`` would cut short.
        """
        self.count, self.size = check_family(count, size)
        if not names:
            raise UsageError("names=(): the family needs the string of each object")
        self._names = tuple(_encoded(name) for name in names)
        self._whole = lru_cache(maxsize=max(1, _KEPT // len(names)))(self._positions_of_all)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sha256Hashes) and (self.count, self.size, self._names) == (
            other.count,
            other.size,
            other._names,
        )

    def __hash__(self) -> int:
        return hash((self.count, self.size, self._names))

    def _positions_of_all(self, function: int) -> npt.NDArray[np.uint32]:
        start = hashlib.sha256(function.to_bytes(4, "big"))
        words = bytearray()
        for name in self._names:
            digest = start.copy()
            digest.update(name)
            words += digest.digest()[:4]
        return _reduced(words, self.size)

    def _check_objects(self, objects: npt.NDArray[np.int64]) -> None:
        if objects.size and not 0 <= objects.min() <= objects.max() < len(self._names):
            refuse(objects, len(self._names))

    def positions(self, objects: npt.NDArray[np.int64], function: int) -> npt.NDArray[np.uint32]:
        """See :meth:`HashFamily.positions`; objects are indices into the names.

        The first call for a function hashes all names (about half a microsecond each); the last
        functions' positions, 256 MiB of them, are remembered.
        """
        check_function(function, self.count)
        self._check_objects(objects)
        return self._whole(int(function))[objects]

    def each(
        self, objects: npt.NDArray[np.int64], functions: npt.NDArray[np.uint32]
    ) -> npt.NDArray[np.uint32]:
        """See :meth:`HashFamily.each`; one hash per element, nothing remembered."""
        check_functions(functions, objects, self.count)
        self._check_objects(objects)
        words = bytearray()
        for x, function in zip(objects.tolist(), functions.tolist(), strict=True):
            words += hashlib.sha256(function.to_bytes(4, "big") + self._names[x]).digest()[:4]
        return _reduced(words, self.size)


def _reduced(words: bytearray, size: int) -> npt.NDArray[np.uint32]:
    return (np.frombuffer(words, dtype="<u4").astype(np.uint64) % _U(size)).astype(np.uint32)


def _encoded(name: str) -> bytes:
    if "\0" in name:
        raise UsageError(
            f"names={name!r}: strlen ends a name at its first NUL; leave such names out"
        )
    try:
        return name.encode()
    except UnicodeEncodeError as error:
        raise UsageError(
            f"names={name!r}: not a string of Unicode characters ({error.reason}); fix it"
        ) from error


def pair_positions(
    hashes: HashFamily,
    *,
    functions: npt.NDArray[np.unsignedinteger],
    objects: npt.NDArray[np.int64],
) -> npt.NDArray[np.uint32]:
    """The position of each object (u,) under each of ``functions`` (n,): shape (n, u).

    Raises:
        UsageError: an object or a function is outside the family's range.
    """
    out = np.empty((len(functions), len(objects)), np.uint32)
    for row, function in enumerate(functions.tolist()):
        out[row] = hashes.positions(objects, function)
    return out


def sketch_hashes(
    hashes: HashFamily | Literal["random", "three-wise"],
    *,
    functions: int | None,
    m: int | None,
    seed: int,
) -> HashFamily:
    """The family itself, or one of that kind under ``seed``.

    By default 65,536 functions to 1,024 positions, as Apple's.

    Raises:
        UsageError: no such kind, or ``functions`` or ``m`` that differ from those of the family
            given.
    """
    if isinstance(hashes, str):
        kinds: dict[str, type[RandomHashes] | type[ThreeWiseHashes]] = {
            "random": RandomHashes,
            "three-wise": ThreeWiseHashes,
        }
        if hashes not in kinds:
            raise UsageError(f"hashes={hashes}: a family, or one of {', '.join(kinds)}")
        stream = KeyedStream.from_seed(seed).child("hashes", hashes)
        return kinds[hashes](
            65536 if functions is None else functions, 1024 if m is None else m, stream=stream
        )
    for name, asked, has in (("functions", functions, hashes.count), ("m", m, hashes.size)):
        if asked is not None and asked != has:
            raise UsageError(f"{name}={asked}: the hashes given have {has}; leave it out")
    return hashes
