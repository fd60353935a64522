"""The pancake on CUDA as one Triton kernel: each block is drawn, measured and corrected in registers, then written once.

A program owns one block of one row. Its numbers come from Philox4x32-10 with the counter (position in the block, block of
the whole vector, row, 0) under the call's 64-bit seed: counters never repeat, whatever the dimension and the number of
rows, and with one seed a shard equals that part of the whole, bit for bit.

The normals: Box-Muller in float32, both halves used. The radius is that of the uniform (x + ½)·2⁻³² for all 2³² values of
x, near 1 from its exact complement, so no value beyond √(−2 ln 2⁻³³) ≈ 6.76σ occurs (true mass 1.4e-11, one value in
1,800 releases of 39 million) and none is exactly 0. The angle has 32 bits and its own polynomials, right to float32.
Not claimed: cryptographic unpredictability, safety of the low bits, or bits equal to another GPU generation's or the
CPU's.

Why the block stays in registers: 16 warps hold 32 values a thread, so the noise crosses the memory bus once, the key
once (and stays in L2 for further rows: programs of the same block are neighbours). A second pass that drew the same numbers
again would double the arithmetic, which costs about as much time as the writing. The factor of the correction goes in as
two float32 halves, as one would blur the phase by more than the rounding of the release does.

Timing: warm up (compilation, the key's upload), then between two ``torch.cuda.Event(enable_timing=True)`` queue some
fifty draws with ready shares, ``torch.cuda.synchronize()``, divide; the same for ``torch.randn``; alternate the two and
take medians.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt
import torch

from dpaudit.errors import MissingExtraError
from dpaudit.noise.kernels import BLOCK

if TYPE_CHECKING:
    from dpaudit.noise.key import PancakeKey
    from dpaudit.noise.pancake import Pancake

try:
    import triton
    import triton.language as tl
except ImportError:  # CPU builds of torch come without it; fused() says so
    triton = tl = None

__all__ = ["fused"]

_LEAST = 128  # values a program draws at least
_PER_WARP = 1024

jit: Any = (lambda f: f) if triton is None else triton.jit
launchable: Any = (lambda f: f) if triton is None else triton.jit(do_not_specialize=["seed"])

_keys: WeakKeyDictionary[PancakeKey, dict[tuple[torch.device, int], torch.Tensor]] = WeakKeyDictionary()


@jit
def _pair(x, y):  # type: ignore[no-untyped-def]
    """Two independent normals of two tensors of 32 random bits."""
    u = (x.to(tl.float32) + 0.5) * 2.3283064365386963e-10
    t = ((~x).to(tl.float32) + 0.5) * 2.3283064365386963e-10  # 1 − u without u's rounding
    near = t * (1.0 + t * (0.5 + t * (0.33333334 + t * (0.25 + t * (0.2 + t * 0.16666667)))))
    r = tl.sqrt(2.0 * tl.where(t < 0.0625, near, -tl.log(u)))
    # the low 30 bits choose a place on an arc of a quarter turn, the two high bits which of the four arcs
    a = ((y << 2) | 2).to(tl.int32, bitcast=True).to(tl.float32) * 3.6572952200125726e-10
    q = a * a
    s = a + a * q * (-1.6666654611e-1 + q * (8.3321608736e-3 + q * -1.9515295891e-4))
    c = 1.0 - 0.5 * q + q * q * (4.166664568298827e-2 + q * (-1.388731625493765e-3 + q * 2.443315711809948e-5))
    c = tl.where((y >> 31) != 0, -c, c)
    turned = ((y >> 30) & 1) != 0
    return r * tl.where(turned, s, c), r * tl.where(turned, c, s)


@launchable
def _pancake(  # type: ignore[no-untyped-def]
    out,
    w,  # of the whole key, zeros up to a whole number of tiles
    small,  # (1 + n, blocks): the blocks' inverses, then the shares
    seed,
    sigma,
    n,
    width,
    blocks,
    first_block,
    TILE: tl.constexpr,
    CORRECT: tl.constexpr,
):
    row = tl.program_id(0) % n
    local = tl.program_id(0) // n
    block = first_block + local
    QUARTER: tl.constexpr = TILE // 4
    i = tl.arange(0, QUARTER)
    x0, y0, x1, y1 = tl.philox(seed, i, block.to(tl.int32), row.to(tl.int32), i * 0)
    z0, z1 = _pair(x0, y0)
    z2, z3 = _pair(x1, y1)
    z0, z1, z2, z3 = z0 * sigma, z1 * sigma, z2 * sigma, z3 * sigma
    if CORRECT:
        part = w + block.to(tl.int64) * TILE + i
        w0 = tl.load(part)
        w1 = tl.load(part + QUARTER)
        w2 = tl.load(part + 2 * QUARTER)
        w3 = tl.load(part + 3 * QUARTER)
        dot = tl.sum(
            z0.to(tl.float64) * w0.to(tl.float64)
            + z1.to(tl.float64) * w1.to(tl.float64)
            + z2.to(tl.float64) * w2.to(tl.float64)
            + z3.to(tl.float64) * w3.to(tl.float64)
        )
        share = tl.load(small + (row.to(tl.int64) + 1) * blocks + local)
        factor = (share - dot) * tl.load(small + local)
        high = factor.to(tl.float32)
        low = (factor - high.to(tl.float64)).to(tl.float32)
        z0 += high * w0.to(tl.float32) + low * w0.to(tl.float32)
        z1 += high * w1.to(tl.float32) + low * w1.to(tl.float32)
        z2 += high * w2.to(tl.float32) + low * w2.to(tl.float32)
        z3 += high * w3.to(tl.float32) + low * w3.to(tl.float32)
    left = width - local.to(tl.int64) * TILE
    to = out + row.to(tl.int64) * width + local.to(tl.int64) * TILE + i
    if left >= TILE:  # a branch of its own: masks of unknown alignment would forbid 16-byte stores
        tl.store(to, z0)
        tl.store(to + QUARTER, z1)
        tl.store(to + 2 * QUARTER, z2)
        tl.store(to + 3 * QUARTER, z3)
    else:
        tl.store(to, z0, mask=i < left)
        tl.store(to + QUARTER, z1, mask=i + QUARTER < left)
        tl.store(to + 2 * QUARTER, z2, mask=i + 2 * QUARTER < left)
        tl.store(to + 3 * QUARTER, z3, mask=i + 3 * QUARTER < left)


def _on_device(key: PancakeKey, device: torch.device, tile: int) -> torch.Tensor:
    """The key's first vector on ``device``, zeros up to a multiple of ``tile``; uploaded once while the key lives."""
    held = _keys.setdefault(key, {})
    if (device, tile) not in held:
        w = torch.zeros(-(-key.dim // tile) * tile, dtype=torch.int16, device=device)
        w[: key.dim] = torch.from_numpy(np.array(key.vectors[0]))
        held[device, tile] = w
    return held[device, tile]


def fused(
    source: Pancake,
    start: int,
    stop: int,
    shares: npt.NDArray[np.float64],
    *,
    seed: int,
    device: torch.device,
    correct: bool = True,
) -> torch.Tensor:
    """Coordinates ``start`` to ``stop`` (block borders) as float32, given ``shares`` (n, blocks of the shard, 1).

    With the same 63-bit ``seed`` for every shard, shards are parts of one whole. ``correct=False`` leaves out the
    correction: the N(0, σ²) noise that the pancake is made of. The key stays on the device while it lives (two bytes a
    coordinate).

    Raises:
        MissingExtraError: triton is not installed.
    """
    if triton is None:
        raise MissingExtraError(
            "device=cuda: drawing pancakes there in float32 needs triton; pip install triton (CUDA builds of torch bring it)"
        )
    n, blocks, _ = shares.shape
    tile = min(BLOCK, max(_LEAST, triton.next_power_of_2(source.dim)))
    out = torch.empty((n, stop - start), dtype=torch.float32, device=device)
    if not n:
        return out
    inverse = source.block_inverse(start, stop)
    small = torch.from_numpy(np.concatenate([inverse[:, :, 0].T, shares[:, :, 0]])).to(device, non_blocking=True)
    w = _on_device(source.key, out.device, tile)
    with torch.cuda.device_of(out):
        _pancake[(n * blocks,)](
            out,
            w,
            small,
            seed,
            source.sigma,
            n,
            stop - start,
            blocks,
            start // BLOCK,
            TILE=tile,
            CORRECT=correct,
            num_warps=max(1, tile // _PER_WARP),
        )
    return out
