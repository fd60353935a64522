"""Exact lattice noise on CUDA: the numbers of ``exact_integers``, bit for bit, added in place.

The first kernel draws ChaCha20 blocks in registers, looks words up in the law's guide, adds what
is decided so, and lists the other positions (about one in a hundred). The second takes these
through as many trials as they need, with 64 bits of B and 48 of A at once: more bits change no
decision that fewer make. What is open then (once in 2^40 numbers) is settled on the CPU by
``exact_integers.settled``. All arithmetic is in integers and float64, and no comparison is rounded,
so contracted operations cannot change a number. Not claimed: constant time.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from itertools import product
from typing import Any

import numpy as np
import torch

from dpaudit.errors import MissingExtraError
from dpaudit.numeric.chacha import key_words
from dpaudit.numeric.exact_integers import IntegerLaw, check_positions, settled, table_of

try:
    import triton
    import triton.language as tl
except ImportError:  # CPU builds of torch come without it; add_noise() says so
    triton = tl = None

__all__ = ["add_noise"]

_TILE = 1024
_LATE_TILE = 128
_PIECE = 1 << 22  # values whose late positions are listed at a time


def _compiled(**options: Any) -> Callable[[Any], Any]:
    """``triton.jit`` where there is triton; without it the module can still be imported."""
    return (lambda function: function) if triton is None else triton.jit(**options)


@_compiled()
def _quarter(a, b, c, d):  # type: ignore[no-untyped-def]
    a = a + b
    d = d ^ a
    d = (d << 16) | (d >> 16)
    c = c + d
    b = b ^ c
    b = (b << 12) | (b >> 20)
    a = a + b
    d = d ^ a
    d = (d << 8) | (d >> 24)
    c = c + d
    b = b ^ c
    b = (b << 7) | (b >> 25)
    return a, b, c, d


@_compiled()
def _pair(low, high):  # type: ignore[no-untyped-def]
    return low.to(tl.uint64) | (high.to(tl.uint64) << 32)


@_compiled()
def _block(key, counter, first, second):  # type: ignore[no-untyped-def]
    """The eight words of each block: see ``dpaudit.numeric.chacha``."""
    zero = (counter * 0).to(tl.uint32)
    p0, p1, p2, p3 = zero + 0x61707865, zero + 0x3320646E, zero + 0x79622D32, zero + 0x6B206574
    q0, q1 = zero + tl.load(key).to(tl.uint32), zero + tl.load(key + 1).to(tl.uint32)
    q2, q3 = zero + tl.load(key + 2).to(tl.uint32), zero + tl.load(key + 3).to(tl.uint32)
    r0, r1 = zero + tl.load(key + 4).to(tl.uint32), zero + tl.load(key + 5).to(tl.uint32)
    r2, r3 = zero + tl.load(key + 6).to(tl.uint32), zero + tl.load(key + 7).to(tl.uint32)
    s0, s1 = counter.to(tl.uint32), (counter >> 32).to(tl.uint32)
    s2, s3 = zero + first, zero + second
    a0, a1, a2, a3, b0, b1, b2, b3 = p0, p1, p2, p3, q0, q1, q2, q3
    c0, c1, c2, c3, d0, d1, d2, d3 = r0, r1, r2, r3, s0, s1, s2, s3
    for _ in range(10):
        a0, b0, c0, d0 = _quarter(a0, b0, c0, d0)
        a1, b1, c1, d1 = _quarter(a1, b1, c1, d1)
        a2, b2, c2, d2 = _quarter(a2, b2, c2, d2)
        a3, b3, c3, d3 = _quarter(a3, b3, c3, d3)
        a0, b1, c2, d3 = _quarter(a0, b1, c2, d3)
        a1, b2, c3, d0 = _quarter(a1, b2, c3, d0)
        a2, b3, c0, d1 = _quarter(a2, b3, c0, d1)
        a3, b0, c1, d2 = _quarter(a3, b0, c1, d2)
    return (
        _pair(a0 + p0, a1 + p1), _pair(a2 + p2, a3 + p3),
        _pair(b0 + q0, b1 + q1), _pair(b2 + q2, b3 + q3),
        _pair(c0 + r0, c1 + r1), _pair(c2 + r2, c3 + r3),
        _pair(d0 + s0, d1 + s1), _pair(d2 + s2, d3 + s3),
    )  # fmt: skip


@_compiled()
def _add(values, noise, over, granularity, mask):  # type: ignore[no-untyped-def]
    """Write granularity·(rint(values·over) + noise) to ``values``; 0 for −0."""
    steps = tl.load(values, mask=mask, other=0.0).to(tl.float64) * over
    floor = tl.floor(steps)
    rest, odd = steps - floor, floor - 2.0 * tl.floor(floor * 0.5)
    floor += tl.where((rest > 0.5) | ((rest == 0.5) & (odd == 1.0)), 1.0, 0.0)
    sum_ = (floor + noise.to(tl.float64)) * granularity
    if values.dtype.element_ty != tl.float64:
        narrow = sum_.to(tl.float32)
        if values.dtype.element_ty == tl.bfloat16:  # to nearest even by hand: exact below
            bits = narrow.to(tl.uint32, bitcast=True)
            bits = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16 << 16
            narrow = bits.to(tl.float32, bitcast=True)
        narrow = narrow.to(values.dtype.element_ty)
        tl.store(values, tl.where(narrow == 0.0, 0.0, narrow).to(narrow.dtype), mask=mask)
    else:
        tl.store(values, tl.where(sum_ == 0.0, 0.0, sum_), mask=mask)


@_compiled(do_not_specialize=["begin", "stride", "columns", "whole", "width"])
def _first(  # type: ignore[no-untyped-def]
    values, key, guide, late, count, scale, begin, stride, columns, whole, width, tiles,
    TILE: tl.constexpr,
):  # fmt: skip
    """Columns 0 … ``columns`` of one row, of ``whole``, from position ``begin`` + row·stride on."""
    row, tile = tl.program_id(0) // tiles, tl.program_id(0) % tiles
    position = begin + row.to(tl.int64) * stride
    EIGHTH: tl.constexpr = TILE // 8
    counter = position // 8 + tile.to(tl.int64) * EIGHTH
    w0, w1, w2, w3, w4, w5, w6, w7 = _block(key, counter + tl.arange(0, EIGHTH), 0, 0)
    even = tl.join(tl.join(w0, w4), tl.join(w2, w6))
    word = tl.join(even, tl.join(tl.join(w1, w5), tl.join(w3, w7))).reshape(TILE)
    column = counter * 8 + tl.arange(0, TILE) - position
    mask = (column >= 0) & (column < columns)
    entry = tl.load(guide + (word >> 51).to(tl.int64)).to(tl.uint64, bitcast=True)
    border, known = entry.to(tl.uint32), (word >> 19).to(tl.uint32) | 0xFFFFF
    k = ((entry >> 38) & 0x1FFF) + (known > border).to(tl.uint64)
    size = (k * width.to(tl.uint64) + (word & (width.to(tl.uint64) - 1))).to(tl.int64)
    none = tl.where(width > 1, 0, -1)  # 0 may be a refused −0
    decided = ((word << 25) < entry) & (known != border) & (size != none)
    noise = tl.where(((word >> 25) & 1) != 0, -size, size)
    to = values + row.to(tl.int64) * whole + column
    over, granularity = tl.load(scale), tl.load(scale + 1)
    _add(to, noise, over, granularity, mask & decided)
    undecided = mask & (decided == 0)
    slot = tl.atomic_add(count + column * 0, 1, mask=undecided)
    tl.store(late + slot, row.to(tl.int64) * columns + column, mask=undecided)


@_compiled()
def _accepted(a, y):  # type: ignore[no-untyped-def]
    """Of A in [a, a + 1)/2^48: (all below exp(−y), all above), by Taylor sums."""
    u, total, term = a.to(tl.float64) * 3.552713678800501e-15, y * 0.0 + 1.0, y * 0.0 + 1.0
    for n in tl.static_range(1, 8):
        term = term * (y / (2 * n - 1.0))
        low = total - term
        term = term * (y / (2.0 * n))
        total = low + term
    slack = 5.684341886080802e-14
    return u + 3.552713678800501e-15 <= low - slack, u >= total + slack


@_compiled(do_not_specialize=["begin", "stride", "columns", "whole", "width", "size"])
def _rest(  # type: ignore[no-untyped-def]
    values, key, lows, highs, late, count, open_, scale, begin, stride, columns, whole, width, size,
    STEPS: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    """The late positions of :func:`_first`, trial by trial; the open ones are listed."""
    over, granularity = tl.load(scale), tl.load(scale + 1)
    linear, quadratic = tl.load(scale + 2), tl.load(scale + 3)
    i = tl.program_id(0) * TILE + tl.arange(0, TILE)
    active = i < tl.load(count)
    index = tl.load(late + i, mask=active, other=0).to(tl.int64)
    row, column = index // columns, index % columns
    position, noise, trial = begin + row * stride + column, index * 0, 0
    decided = i < 0
    while tl.max(active.to(tl.int32)) > 0:
        word, e, _, _, a, _, _, _ = _block(key, position, trial, 1)
        if trial == 0:
            w0, w1, w2, w3, w4, w5, w6, w7 = _block(key, position // 8, 0, 0)
            at = position % 8
            w0, w2 = tl.where(at == 1, w1, w0), tl.where(at == 3, w3, w2)
            w4, w6 = tl.where(at == 5, w5, w4), tl.where(at == 7, w7, w6)
            word = tl.where(at < 4, tl.where(at < 2, w0, w2), tl.where(at < 6, w4, w6))
        b = ((word >> 39) << 39) | (e >> 25)
        k, end = index * 0, index * 0 + size
        for _ in range(STEPS):
            middle = (k + end) >> 1
            high = tl.load(highs + middle, mask=k < end, other=0).to(tl.uint64, bitcast=True)
            below = (k < end) & (b < high)
            k, end = tl.where((k < end) & (b >= high), middle + 1, k), tl.where(below, middle, end)
        low = tl.load(lows + k, mask=k < size, other=0).to(tl.uint64, bitcast=True)
        place = (word & (width.to(tl.uint64) - 1)).to(tl.int64)
        start = k * width
        slope = linear + quadratic * (2 * start + place).to(tl.float64)
        y = place.to(tl.float64) * slope
        below, above = _accepted((((word >> 26) & 0x1FFF) << 35) | (a >> 29), y)
        below, above = below | (place == 0), above & (place != 0)
        number = tl.where(((word >> 25) & 1) != 0, -(start + place), start + place)
        refused = above | ((number == 0) & (((word >> 25) & 1) != 0) & (place * 0 + width > 1))
        known = active & (b < low) & (k < size) & (below | above)
        taken, unknown = known & (refused == 0), active & (known == 0)
        noise = tl.where(taken, number, noise)
        slot = tl.atomic_add(count + 1 + index * 0, 1, mask=unknown)
        tl.store(open_ + slot, row * whole + column, mask=unknown)
        decided, active, trial = decided | taken, known & refused, trial + 1
    _add(values + row * whole + column, noise, over, granularity, decided)


@lru_cache(maxsize=32)
def _table(law: IntegerLaw, device: torch.device) -> tuple[torch.Tensor, ...]:
    """The law's guide, lows and highs on ``device``."""
    table = table_of(law)
    arrays = (table.guide, table.lows, table.highs)
    return tuple(torch.from_numpy(x.view(np.int64)).to(device) for x in arrays)


def add_noise(
    values: torch.Tensor, law: IntegerLaw, granularity: float, *, key: bytes, **positions: Any
) -> None:
    """``granularity``·(rint(value/``granularity``) + Z) over each value, (rows·columns,).

    ``values`` is contiguous and on a CUDA device; its values are within range (see
    ``add_lattice_noise``). Z are the numbers of ``exact_integers.integers_at`` at ``positions``.

    Raises:
        MissingExtraError: triton is not installed.
        UsageError: as ``integers_at``.
    """
    if triton is None:
        raise MissingExtraError(
            "device=cuda: exact noise there needs triton; "
            "pip install triton (CUDA builds of torch bring it)"
        )
    start, rows, columns, stride = check_positions(**positions)
    device, width, table = values.device, law.block, _table(law, values.device)
    words = torch.from_numpy(key_words(key).view(np.int32)).to(device)
    numbers = [1 / granularity, granularity, *table_of(law).shape]
    scale = torch.tensor(numbers, dtype=torch.float64, device=device)
    wide, high = min(columns, _PIECE), max(1, _PIECE // columns)
    late, open_ = torch.empty((2, min(rows, high) * wide), dtype=torch.int32, device=device)
    count = torch.empty(2, dtype=torch.int32, device=device)
    for row, column in product(range(0, rows, high), range(0, columns, wide)):
        n, d = min(high, rows - row), min(wide, columns - column)
        begin, to = start + row * stride + column, values[row * columns + column :]
        count.zero_()
        tiles, where = triton.cdiv(d + 7, _TILE), (begin, stride, d, columns, width)
        with torch.cuda.device(values.get_device()):
            _first[(n * tiles,)](to, words, table[0], late, count, scale, *where, tiles, TILE=_TILE)
            lists, size = (late, count, open_), len(table[1])
            _rest[(triton.cdiv(n * d, _LATE_TILE),)](
                to, words, *table[1:], *lists, scale, *where, size,
                STEPS=size.bit_length(), TILE=_LATE_TILE,
            )  # fmt: skip
        for at in open_[: int(count[1])].tolist():
            position = begin + at // columns * stride + at % columns
            steps = torch.round(to[at].double() / granularity)
            sum_ = (steps + settled(law, key=key, position=position)) * granularity
            to[at] = (sum_ if to.dtype == torch.float64 else sum_.float()) + 0.0
