"""``torch.randn`` and ``torch.normal`` in float32 on CUDA, replayed from their source.

Philox 4x32-10 (Salmon et al. 2011) under the seed; its counter is (offset / 4, thread). From
torch's ``ATen/native/cuda/DistributionTemplates.h``, ``calc_execution_policy`` and
``distribution_elementwise_grid_stride_kernel`` (256 threads per block, four values per step), and
from curand ``curand_init``, ``curand4`` and ``_curand_box_muller``.

Guarantee: the words behind each value are exact. Not claimed: the last bits of values, from the
device's ``logf`` and ``__sincosf``: :data:`TOLERANCE` allows for the error of 2^-21.2 that CUDA
documents within ±π, times a radius below 6.7. Nor float64, ``torch.compile``'s kernels, graphs.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

__all__ = ["TOLERANCE", "cuda_normal", "cuda_words", "offset_increment", "philox", "polar_normal"]

Words = npt.NDArray[np.uint32]
Singles = npt.NDArray[np.float32]

TOLERANCE = 2.0**-17  # times the value, above 1
_BLOCK, _UNROLL = 256, 4
_LOW = np.uint64(0xFFFFFFFF)
_FACTORS = np.array([0xD2511F53, 0xCD9E8D57], np.uint64)
_STEPS = np.array([0x9E3779B9, 0xBB67AE85], np.uint64)


def philox(key: npt.ArrayLike, counter: npt.ArrayLike, thread: npt.ArrayLike) -> Words:
    """Philox 4x32-10: words (4, n) of keys and counters, whole numbers below 2^64, broadcast (n,).

    ``counter`` and ``thread`` are the lower and the upper half of the counter of 128 bits.
    """
    a, b, c, d, k, m = (
        half for x in (counter, thread, key) for half in _halves(np.array(x, np.uint64, ndmin=1))
    )
    for _ in range(10):
        (low, high), (lower, upper) = _halves(a * _FACTORS[0]), _halves(c * _FACTORS[1])
        a, b, c, d = upper ^ b ^ k, lower, high ^ d ^ m, low
        k, m = (k + _STEPS[0]) & _LOW, (m + _STEPS[1]) & _LOW
    return np.stack(np.broadcast_arrays(a, b, c, d)).astype(np.uint32)


def _halves(x: npt.NDArray[np.uint64]) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.uint64]]:
    """The lower and the upper 32 bits."""
    return x & _LOW, x >> np.uint64(32)


def _threads(numel: int, processors: int, threads: int) -> int:
    """Threads that a call of ``numel`` values starts."""
    return _BLOCK * min(-(-numel // _BLOCK), processors * (threads // _BLOCK))


def offset_increment(numel: int, *, processors: int = 132, threads: int = 2048) -> int:
    """By how much a call that draws ``numel`` values moves the generator's offset."""
    return 4 * ((numel - 1) // (_UNROLL * _threads(numel, processors, threads)) + 1)


def cuda_words(
    seed: int, *, numel: int, offset: int = 0, processors: int = 132, threads: int = 2048
) -> tuple[Words, npt.NDArray[np.bool_]]:
    """The two words behind each value (2, numel), and where it is the cosine (numel,).

    ``processors``, and ``threads`` per processor, are the device's (here an H200's): values from
    number 256·⌊threads/256⌋·processors on depend on them. ``offset``: ``generator.get_offset()``
    before the call, a multiple of 4.
    """
    started, place = _threads(numel, processors, threads), np.arange(numel)
    step, slot = place // (_UNROLL * started), place // started % _UNROLL
    words = philox(seed, offset // 4 + step, place % started)
    return np.where(slot < 2, words[:2], words[2:]), slot % 2 == 1


def polar_normal(words: Words, cosine: npt.NDArray[np.bool_] | bool) -> Singles:
    """Box and Muller's transform as curand does it: values (n,) of words (2, n)."""
    x, y = words.astype(np.float32).astype(np.float64)
    turn = np.float32(2.3283064e-10) * np.float32(6.2831855)
    u = (x * 2.0**-32 + 2.0**-33).astype(np.float32).astype(np.float64)
    v = (y * float(turn) + float(turn / 2)).astype(np.float32).astype(np.float64)
    radius = np.sqrt(np.float32(-2) * np.log(u).astype(np.float32))
    return np.asarray(radius * np.where(cosine, np.cos(v), np.sin(v)).astype(np.float32))


def cuda_normal(seed: int, *, std: float = 1.0, **layout: int) -> Singles:
    """What ``torch.normal(0, std, (numel,), device="cuda")`` gives, within :data:`TOLERANCE`.

    ``layout``: as of :func:`cuda_words`.
    """
    return polar_normal(*cuda_words(seed, **layout)) * np.float32(std)
