"""Families of hash functions for sketches: which position each function of the family gives an object.

A family is public: it hides nothing, and no mechanism's ε rests on it. What it must give is utility (few chance
collisions), and for an attack no regularity that real families would not have.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
import numpy.typing as npt

from dpaudit.errors import UsageError
from dpaudit.local.hash_family import HashFamily
from dpaudit.local.random_hashes import RandomHashes
from dpaudit.local.sha256_hashes import Sha256Hashes
from dpaudit.local.three_wise_hashes import ThreeWiseHashes
from dpaudit.randomness import KeyedStream

__all__ = ["HashFamily", "RandomHashes", "Sha256Hashes", "ThreeWiseHashes", "pair_positions", "sketch_hashes"]


def pair_positions(
    hashes: HashFamily, *, functions: npt.NDArray[np.unsignedinteger], objects: npt.NDArray[np.int64]
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
    hashes: HashFamily | Literal["random", "three-wise"], *, functions: int | None, m: int | None, seed: int
) -> HashFamily:
    """The family itself, or one of that kind under ``seed``: 65,536 functions to 1,024 positions unless told, as Apple's.

    Raises:
        UsageError: no such kind, or ``functions`` or ``m`` that differ from those of the family given.
    """
    if isinstance(hashes, str):
        kinds: dict[str, type[RandomHashes] | type[ThreeWiseHashes]] = {
            "random": RandomHashes,
            "three-wise": ThreeWiseHashes,
        }
        if hashes not in kinds:
            raise UsageError(f"hashes={hashes}: a family, or one of {', '.join(kinds)}")
        stream = KeyedStream.from_seed(seed).child("hashes", hashes)
        return kinds[hashes](65536 if functions is None else functions, 1024 if m is None else m, stream=stream)
    for name, asked, has in (("functions", functions, hashes.count), ("m", m, hashes.size)):
        if asked is not None and asked != has:
            raise UsageError(f"{name}={asked}: the hashes given have {has}; leave it out")
    return hashes
