"""The ChaCha20 key stream, addressed by position, for numbers that depend on nothing else.

A block is 64 bytes, eight little-endian 64-bit words, at the address (counter, first, second): the
counter, 64 bits, fills the words 12 and 13 of ChaCha20's state, ``first`` and ``second`` the words
14 and 15 (RFC 8439: its counter, and its nonce of 96 bits). ``BulkWords`` reads the blocks
(·, 0, 0) in order, fast; :func:`block` computes any one in a compiled loop.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from cryptography.hazmat.primitives.ciphers import Cipher, CipherContext, algorithms

from dpaudit.errors import UsageError
from dpaudit.numeric.random_words import inline, jit

__all__ = ["BulkWords", "block", "key_words"]

_U = np.uint32


@inline
def _turn(x, y, by):  # type: ignore[no-untyped-def]
    x = _U(x ^ y)
    return _U((x << _U(by)) | (x >> _U(32 - by)))


@inline
def _quarter(a, b, c, d):  # type: ignore[no-untyped-def]
    a = _U(a + b)
    d = _turn(d, a, 16)
    c = _U(c + d)
    b = _turn(b, c, 12)
    a = _U(a + b)
    d = _turn(d, a, 8)
    c = _U(c + d)
    b = _turn(b, c, 7)
    return a, b, c, d


@inline
def _pair(x, y, a, b):  # type: ignore[no-untyped-def]
    return np.uint64(_U(x + a)) | (np.uint64(_U(y + b)) << np.uint64(32))


@jit
def block(out, key, counter, first, second):  # type: ignore[no-untyped-def]
    """Write the eight words of one block to ``out`` (8,) uint64; ``key`` is (8,) uint32."""
    low, high, e, f = _U(counter), _U(np.uint64(counter) >> np.uint64(32)), _U(first), _U(second)
    a0, a1, a2, a3 = _U(0x61707865), _U(0x3320646E), _U(0x79622D32), _U(0x6B206574)
    b0, b1, b2, b3, c0, c1, c2, c3 = key[0], key[1], key[2], key[3], key[4], key[5], key[6], key[7]
    d0, d1, d2, d3 = low, high, e, f
    for _ in range(10):
        a0, b0, c0, d0 = _quarter(a0, b0, c0, d0)
        a1, b1, c1, d1 = _quarter(a1, b1, c1, d1)
        a2, b2, c2, d2 = _quarter(a2, b2, c2, d2)
        a3, b3, c3, d3 = _quarter(a3, b3, c3, d3)
        a0, b1, c2, d3 = _quarter(a0, b1, c2, d3)
        a1, b2, c3, d0 = _quarter(a1, b2, c3, d0)
        a2, b3, c0, d1 = _quarter(a2, b3, c0, d1)
        a3, b0, c1, d2 = _quarter(a3, b0, c1, d2)
    out[0] = _pair(a0, a1, _U(0x61707865), _U(0x3320646E))
    out[1] = _pair(a2, a3, _U(0x79622D32), _U(0x6B206574))
    out[2], out[3] = _pair(b0, b1, key[0], key[1]), _pair(b2, b3, key[2], key[3])
    out[4], out[5] = _pair(c0, c1, key[4], key[5]), _pair(c2, c3, key[6], key[7])
    out[6], out[7] = _pair(d0, d1, low, high), _pair(d2, d3, e, f)


def key_words(key: bytes) -> npt.NDArray[np.uint32]:
    """The key as :func:`block` takes it.

    Raises:
        UsageError: not 32 bytes.
    """
    if len(key) != 32:
        raise UsageError(f"key of {len(key)} bytes: needs 32 bytes, e.g. secrets.token_bytes(32)")
    return np.frombuffer(key, "<u4").astype(np.uint32)


_ZEROS = memoryview(bytes(1 << 17))


class BulkWords:
    """The words of the blocks (·, 0, 0) under a key; each call that goes on from the last is fast.

    Raises:
        UsageError: the key has not 32 bytes.
    """

    def __init__(self, key: bytes) -> None:
        self.key = key_words(key)
        self._key, self._next = key, -1
        self._cipher: CipherContext

    def fill(self, out: npt.NDArray[np.uint64], *, counter: int) -> None:
        """Fill ``out`` (8·m,), contiguous, from the block ``counter`` on."""
        left = 8 * ((1 << 32) - (counter & 0xFFFFFFFF))  # the library's own counter has 32 bits
        if len(out) > left:
            self.fill(out[:left], counter=counter)
            self.fill(out[left:], counter=counter + left // 8)
            return
        if counter != self._next or counter & 0xFFFFFFFF == 0:
            nonce = counter.to_bytes(8, "little") + bytes(8)
            self._cipher = Cipher(algorithms.ChaCha20(self._key, nonce), mode=None).encryptor()
        self._next, to = counter + len(out) // 8, out.view(np.uint8).data
        for at in range(0, len(to), len(_ZEROS)):
            part = to[at : at + len(_ZEROS)]
            self._cipher.update_into(_ZEROS[: len(part)], part)
