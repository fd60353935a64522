"""From two shares to a candidate: commitments, its key, its noise, and digests of vectors.

Hashes are SHA-256, keys HKDF, all labelled and length-prefixed. Noise is equal bit for bit on
every machine.

The noise of a key is, for each block of 2^18 coordinates, ``draw_integers`` from the child stream
("block", number) of ``KeyedStream(key)``: so a party holds one block per thread, threads share the
work, and neither their number nor their order matters. A digest is over the blocks' SHA-256, each
of little-endian int64.

**Why no machine differs.** Keys are HKDF, bytes ChaCha20, tables exact integers and correctly
rounded fractions. Which words make which integer is a rule of ``exact_integers`` that no rounding
enters: an integer is a function of real numbers whose bits are words of its own. Floating point is
used only in its compiled loop, to compare such a number with exp(−y), and every comparison has a
slack (2^-44) far above what contraction, another order or another width of registers can do to it.
An answer it gives is the real numbers' answer; if it gives none, exact arithmetic does. Another
rule there is another protocol (a known answer in the tests).
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import numpy.typing as npt
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from dpaudit.numeric.exact_integers import IntegerLaw, draw_integers
from dpaudit.randomness import KeyedStream
from dpaudit_mitigations.codec import Digest

__all__ = [
    "BLOCK",
    "Blocks",
    "Integers",
    "block_count",
    "cores",
    "derived_noise",
    "joint_key",
    "labelled_hash",
    "share_commitment",
    "vector_blocks",
    "vector_digest",
]

SHARE_BYTES = 32

_PROTOCOL = b"dpaudit joint-seeds 2"


def labelled_hash(label: str, *parts: bytes) -> Digest:
    """SHA-256 of ``label`` and ``parts``, each behind its length: equal only for equal inputs."""
    state = hashlib.sha256(_PROTOCOL)
    for part in (label.encode(), *parts):
        state.update(len(part).to_bytes(8, "big"))
        state.update(part)
    return Digest(state.digest())


def share_commitment(label: str, context: bytes, index: int, opening: bytes) -> Digest:
    """Commitment to a share; ``opening`` is share ‖ nonce, 32 bytes each.

    ``context`` binds it to one session.
    """
    return labelled_hash(label, context, index.to_bytes(4, "big"), opening)


def joint_key(session: bytes, index: int, server: bytes, verifier: bytes) -> bytes:
    """The 32-byte key of candidate ``index``: HKDF-SHA256 of both shares, with the session as salt.

    As long as one share is uniform, secret, and independent of the other when that is fixed, the
    key is indistinguishable from uniform to whoever lacks that share (HKDF with SHA-256 as a random
    oracle).
    """
    info = _PROTOCOL + b" candidate" + index.to_bytes(4, "big")
    shares = server[:SHARE_BYTES] + verifier[:SHARE_BYTES]
    return HKDF(SHA256(), 32, salt=session, info=info).derive(shares)


BLOCK = 1 << 18

Integers = npt.NDArray[np.int64]
Blocks = Callable[[int], Integers]
"""A vector as a function from a block's number to its coordinates."""


def block_count(dim: int) -> int:
    """How many blocks ``dim`` coordinates have."""
    return -(-dim // BLOCK)


def derived_noise(key: bytes, *, dim: int, scale: float) -> Blocks:
    """The noise of ``key``: independent exact discrete Gaussians of ``scale``, in steps."""
    law, stream = IntegerLaw.gaussian(scale), KeyedStream(key).child("noise")

    def block(number: int) -> Integers:
        count = min(BLOCK, dim - number * BLOCK)
        return draw_integers(count, law, stream=stream.child("block", number))

    return block


def vector_blocks(values: Integers) -> Blocks:
    """An array (d,) as blocks."""
    return lambda number: values[number * BLOCK : (number + 1) * BLOCK]


def vector_digest(label: str, blocks: Blocks, *, dim: int, threads: int = 1) -> Digest:
    """Digest of a vector of ``dim`` integers, labelled; memory: one block per thread."""

    def leaf(number: int) -> bytes:
        values = np.ascontiguousarray(blocks(number), dtype="<i8")
        return hashlib.sha256(values.data).digest()

    count = block_count(dim)
    if threads == 1 or count == 1:
        leaves = [leaf(number) for number in range(count)]
    else:
        with ThreadPoolExecutor(min(threads, count)) as pool:
            leaves = list(pool.map(leaf, range(count)))
    return labelled_hash(label, dim.to_bytes(8, "big"), *leaves)


def cores() -> int:
    """The default number of threads: the cores that this process may run on, at most 8."""
    if hasattr(os, "sched_getaffinity"):
        return min(8, len(os.sched_getaffinity(0)))
    return min(8, os.cpu_count() or 1)
