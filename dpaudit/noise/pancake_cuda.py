"""The pancake on CUDA devices: one fused Triton kernel where it fits, the torch path otherwise.

The fused kernel draws, measures and corrects a block in registers and shared memory: one write of
the noise, one read of the key. Not claimed: the same numbers as on the CPU (another generator),
only the same law.

A program of the kernel owns one block of one row. Its numbers come from Philox4x32-10 with the
counter (place in the block, block of the whole vector, row, 0) under the call's 64-bit seed:
counters never repeat, whatever the dimension and the number of rows, and with one seed a shard
equals that part of the whole, bit for bit.

The normals: Box-Muller in float32, both halves used. The radius is that of the uniform (x + ½)·2⁻³²
for all 2³² values of x, near 1 from its exact complement, so none is exactly 0 and none exceeds
√(−2 ln 2⁻³³) ≈ 6.76σ (true mass beyond: 1.3e-11, one value in about 1,900 releases of 39 million).
The angle has 32 bits and its own polynomials, right to float32; the logarithm is the GPU's own,
within 2⁻²². Not claimed: cryptographic unpredictability, safety of the low bits, or bits equal to
the CPU's or another kind of GPU's.

Why one pass in registers: drawing costs about as much time as writing, so drawing twice to save
registers would cost more than it spares. 32 warps hold 16 values and 8 registers of key a thread,
within the 64 registers that 1,024 threads have; the key's loads are issued before the drawing hides
them, and programs of the same block are neighbours, so further rows find it in L2. Philox's four
numbers are neighbours in memory: 16-byte stores without an exchange between threads. The
correction's factor goes in as 12 bits and a float32 rest; as one float32 it would blur the phase
more than the release's own rounding does (and a half of 24 bits would swallow the other's share of
each product).

Timing: warm up (compilation, the key's upload), then between two
``torch.cuda.Event(enable_timing=True)`` queue some fifty draws with ready shares,
``torch.cuda.synchronize()``, divide; the same for ``torch.randn``; alternate the two and take
medians.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt
import torch

from dpaudit.errors import MissingExtraError
from dpaudit.numeric import BLOCK
from dpaudit.protocols import Stream

if TYPE_CHECKING:
    from dpaudit.noise.key import PancakeKey

__all__ = ["condition_", "draw", "fused"]

try:
    import triton
    import triton.language as tl
    from triton.language.extra import libdevice
except ImportError:  # CPU builds of torch come without it; fused() says so
    triton = tl = libdevice = None


_LEAST = 128  # values per program, at least
_PER_WARP = 512

_keys: WeakKeyDictionary[PancakeKey, dict[tuple[torch.device, int], torch.Tensor]] = (
    WeakKeyDictionary()
)


def _compiled(**options: Any) -> Callable[[Any], Any]:
    """``triton.jit`` where there is triton; without it the module can still be imported."""
    return (lambda function: function) if triton is None else triton.jit(**options)


@_compiled()
def _bits(seed, c0, c1, c2):  # type: ignore[no-untyped-def]
    """Philox4x32-10 of counter (c0, c1, c2, 0) under a 64-bit key: four tensors of 32 bits.

    tl.philox gives the same; one wide multiplication in place of its high and low halves saves an
    instruction in four.
    """
    c3 = c0 * 0
    k0, k1 = seed.to(tl.uint32), (seed >> 32).to(tl.uint32)
    for _ in tl.static_range(10):
        a, b = c0.to(tl.uint64) * 0xD2511F53, c2.to(tl.uint64) * 0xCD9E8D57
        c0, c2 = (b >> 32).to(tl.uint32) ^ c1 ^ k0, (a >> 32).to(tl.uint32) ^ c3 ^ k1
        c1, c3 = b.to(tl.uint32), a.to(tl.uint32)
        k0, k1 = k0 + 0x9E3779B9, k1 + 0xBB67AE85
    return c0, c1, c2, c3


@_compiled()
def _pair(x, y, sigma, FAST: tl.constexpr):  # type: ignore[no-untyped-def]
    """Two independent N(0, σ²) of two tensors of 32 random bits."""
    u = x.to(tl.float32) * 2.3283064365386963e-10 + 1.1641532182693481e-10
    # 1 − u without u's rounding, from ~x (NumPy refuses the −1 that the interpreter makes of ~)
    t = (x ^ 0xFFFFFFFF).to(tl.float32) * 2.3283064365386963e-10 + 1.1641532182693481e-10
    near = t * (2.0 + t * (1.0 + t * (0.6666667 + t * (0.5 + t * (0.4 + t * 0.33333334)))))
    log = libdevice.fast_log2f(u) if FAST else tl.log2(u)
    r = tl.sqrt(tl.where(t < 0.0625, near, log * -1.3862944)) * sigma
    # the low 30 bits choose a place on an arc of a quarter turn, the two high bits which of four
    a = ((y << 2) | 2).to(tl.int32, bitcast=True).to(tl.float32) * 3.6572952200125726e-10
    q = a * a
    s = a + a * q * (-1.6666654611e-1 + q * (8.3321608736e-3 + q * -1.9515295891e-4))
    c = (
        1.0
        - 0.5 * q
        + q * q * (4.166664568298827e-2 + q * (-1.388731625493765e-3 + q * 2.443315711809948e-5))
    )
    c = tl.where(y.to(tl.int32, bitcast=True) < 0, -c, c)
    turned = (y << 1).to(tl.int32, bitcast=True) < 0
    return r * tl.where(turned, s, c), r * tl.where(turned, c, s)


# w's alignment is kept from the compiler: knowing it, it would load 16 bytes per thread and then
# move them between threads
@_compiled(do_not_specialize=["seed", "w", "blocks", "first_block"])
def _pancake(  # type: ignore[no-untyped-def]
    out,
    w,  # of the whole key, four coordinates to 64 bits, zeros up to a whole number of tiles
    small,  # (1 + n, blocks): the blocks' inverses, then the shares
    seed,
    sigma,
    n,
    width,
    blocks,
    first_block,
    TILE: tl.constexpr,
    CORRECT: tl.constexpr,
    FAST: tl.constexpr,
):
    row = tl.program_id(0) % n
    local = tl.program_id(0) // n
    block = first_block + local
    QUARTER: tl.constexpr = TILE // 4
    i = tl.arange(0, QUARTER)
    if CORRECT:  # asked for first, there when the numbers are drawn
        four = tl.load(w + block.to(tl.int64) * QUARTER + i)
    x0, y0, x1, y1 = _bits(
        seed.to(tl.uint64), i.to(tl.uint32), block.to(tl.uint32), row.to(tl.uint32)
    )
    z0, z1 = _pair(x0, y0, sigma, FAST)
    z2, z3 = _pair(x1, y1, sigma, FAST)
    if CORRECT:
        w01, w23 = four.to(tl.int32), (four >> 32).to(tl.int32)
        w0, w1 = ((w01 << 16) >> 16).to(tl.float32), (w01 >> 16).to(tl.float32)
        w2, w3 = ((w23 << 16) >> 16).to(tl.float32), (w23 >> 16).to(tl.float32)
        dot = tl.sum(
            z0.to(tl.float64) * w0.to(tl.float64)
            + z1.to(tl.float64) * w1.to(tl.float64)
            + z2.to(tl.float64) * w2.to(tl.float64)
            + z3.to(tl.float64) * w3.to(tl.float64)
        )
        share = tl.load(small + (row.to(tl.int64) + 1) * blocks + local)
        factor = (share - dot) * tl.load(small + local)
        # 12 bits
        high = (factor.to(tl.float32).to(tl.int32, bitcast=True) & -4096).to(
            tl.float32, bitcast=True
        )
        low = (factor - high.to(tl.float64)).to(tl.float32)
        z0 += high * w0 + low * w0
        z1 += high * w1 + low * w1
        z2 += high * w2 + low * w2
        z3 += high * w3 + low * w3
    # z0, z1, z2, z3 of each thread side by side
    z = tl.join(tl.join(z0, z2), tl.join(z1, z3)).reshape(TILE)
    j = tl.arange(0, TILE)
    left = width - local.to(tl.int64) * TILE
    to = out + row.to(tl.int64) * width + local.to(tl.int64) * TILE + j
    if left >= TILE:  # a branch of its own: masks of unknown alignment would forbid 16-byte stores
        tl.store(to, z)
    else:
        tl.store(to, z, mask=j < left)


def _on_device(key: PancakeKey, device: torch.device, tile: int) -> torch.Tensor:
    """The key's first vector on ``device``, in 64-bit words of four, zeros up to a ``tile``."""
    copies = _keys.setdefault(key, {})
    if (device, tile) not in copies:
        w = np.zeros(-(-key.dim // tile) * tile, "<i2")
        w[: key.dim] = key.vectors[0]
        copies[device, tile] = torch.from_numpy(w.view("<i8")).to(device)
    return copies[device, tile]


class Parts(Protocol):
    """The pancake source, as far as its device code needs it."""

    key: PancakeKey
    sigma: float

    @property
    def dim(self) -> int:
        """The length of a vector."""

    def block_inverse(self, start: int, stop: int) -> npt.NDArray[np.float64]:
        """What turns the blocks' shares into a correction, for ``start`` to ``stop``."""


def fused(
    source: Parts,
    start: int,
    stop: int,
    shares: npt.NDArray[np.float64],
    *,
    seed: int,
    device: torch.device,
    correct: bool = True,
) -> torch.Tensor:
    """Coordinates ``start`` to ``stop`` (block borders) as float32.

    ``shares`` is (n, blocks of the shard, 1). With the same 63-bit ``seed`` for every shard, shards
    are parts of one whole. ``correct=False`` leaves out the correction: the N(0, σ²) noise that the
    pancake is made of. The key stays on the device while it lives (two bytes per coordinate).

    Raises:
        MissingExtraError: triton is not installed.
    """
    if triton is None:
        raise MissingExtraError(
            "device=cuda: drawing pancakes there in float32 needs triton; "
            "pip install triton (CUDA builds of torch bring it)"
        )
    n, blocks, _ = shares.shape
    tile = min(BLOCK, max(_LEAST, triton.next_power_of_2(source.dim)))
    out = torch.empty((n, stop - start), dtype=torch.float32, device=device)
    if not n:
        return out
    inverse = source.block_inverse(start, stop)
    small = torch.from_numpy(np.concatenate([inverse[:, :, 0].T, shares[:, :, 0]])).to(
        device, non_blocking=True
    )
    w = _on_device(source.key, out.device, tile)
    with torch.cuda.device(out.get_device()):
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
            FAST=out.is_cuda and torch.version.cuda is not None,
            num_warps=max(1, tile // _PER_WARP),
            enable_fp_fusion=True,
        )
    return out


_AT_ONCE = 1 << 20  # coordinates whose float64 copies exist at the same time


def condition_(
    noise: torch.Tensor,
    w: npt.NDArray[np.int16],
    *,
    shares: npt.NDArray[np.float64],
    inverse: npt.NDArray[np.float64],
) -> torch.Tensor:
    """Correct N(0, σ²) noise (n, d), in place, so that each block's ``w @ block`` is its share.

    ``w`` (k, d), ``shares`` (n, blocks, k), ``inverse`` (blocks, k, k) pseudo-inverses of
    ``w_b w_bᵀ``: g becomes ``g + w_bᵀ (w_b w_bᵀ)⁺ (share − w_b g)``, Gaussian noise conditioned on
    its share. Inner products are in float64.
    """
    d = noise.shape[1]
    step = max(1, _AT_ONCE // (BLOCK * len(noise))) * BLOCK
    for low in range(0, d, step):
        high = min(d, low + step)
        part = torch.from_numpy(w[:, low:high].astype(np.float64)).to(noise.device)
        for block_low in range(low, high, BLOCK):
            block_high, b = min(high, block_low + BLOCK), block_low // BLOCK
            rows = part[:, block_low - low : block_high - low]
            view = noise[:, block_low:block_high]
            target = torch.from_numpy(shares[:, b]).to(noise.device)
            own = torch.from_numpy(inverse[b]).to(noise.device)
            factor = (target - view.double() @ rows.T) @ own
            view += (factor @ rows).to(noise.dtype)
    return noise


def draw(
    source: Parts,
    start: int,
    stop: int,
    shares: npt.NDArray[np.float64],
    *,
    stream: Stream,
    dtype: torch.dtype,
    device: torch.device,
) -> torch.Tensor:
    """Coordinates ``start`` to ``stop`` (block borders) on a CUDA device.

    ``shares`` is (n, blocks of the shard, k).
    """
    w, inverse = source.key.vectors[:, start:stop], source.block_inverse(start, stop)
    if dtype == torch.float32 and source.key.directions == 1:
        return fused(
            source,
            start,
            stop,
            shares,
            seed=int.from_bytes(stream.child("fused").bytes(8), "little") >> 1,
            device=device,
        )
    noise = torch.randn(
        (len(shares), stop - start),
        dtype=dtype,
        device=device,
        generator=stream.child("shard", start).torch(device),
    )
    return condition_(noise.mul_(source.sigma), w, shares=shares, inverse=inverse)
