"""Seeds that can be tried: from some noise of one call, which generator made it, and from where.

Fixed numbers, these plus a rank, the time, and any range, such as all 2^32 seeds that torch's CPU
generator tells apart (``MT19937RNGEngine.h`` keeps ``seed & 0xffffffff``).
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.special

from dpaudit.errors import UsageError
from dpaudit.numeric.generators import tempered
from dpaudit.numeric.random_words import jit
from dpaudit_attacks.state_recovery import inversions, philox, polar, threefry

__all__ = ["Found", "Noise", "Ranges", "agreement", "find_seed", "use_once", "usual"]

Floats = npt.NDArray[np.float64]
Words = npt.NDArray[np.uint32]
Places = npt.NDArray[np.intp]
Ranges = Sequence[tuple[int, int]]

_RANKS = 64
_FIXED = (20240101, 20250101, 1234567890, 0xDEADBEEF, 67280421310721)  # the last is torch's default
_SMALL = 1 << 11  # seeds for which a generator that was used before is tried
_MOST = 4096  # values that are compared
_WEAK = 2.0**-10  # of seeds that a first look may leave
_CERTAIN = -60.0
_CHUNK, _TASK = 1 << 12, 1 << 20


@dataclass(frozen=True, slots=True)
class Noise:
    """The first values of a call of ``size``, in units of their scale, and absolute errors."""

    values: Floats
    errors: Floats
    size: int

    @classmethod
    def of(cls, noise: Floats, *, std: float, errors: Floats | None = None, size: int = 0) -> Noise:
        """Of float32 ``noise`` (n,), known up to ``errors`` (n,) beyond its own rounding."""
        noise = np.asarray(noise, np.float64).ravel()
        values = np.clip(noise[:_MOST] / std, -1e6, 1e6)
        more = 0.0 if errors is None else np.asarray(errors, np.float64).ravel()[:_MOST] / std
        return cls(values, 2.0**-23 * np.abs(values) + more, size or len(noise))

    def widths(self, tolerance: float) -> Floats:
        """How far a right forecast may be away (n,)."""
        return tolerance * np.maximum(np.abs(self.values), 1) + self.errors


@dataclass(frozen=True, slots=True)
class Found:
    """The start that fits best. ``log_p`` bounds ln P(so many agree at any start | honest).

    ``start``: words of MT19937, or calls on CUDA, before the noise; of jax: 0 for the key itself,
    1 + i if i is folded in or it is key i of a split, 1025 + 32 i + j for i and then j.
    """

    generator: str
    seed: int
    start: int
    agreeing: int
    compared: int
    log_p: float


def agreement(noise: Noise, forecast: Floats, *, tolerance: float) -> tuple[int, float]:
    """How many values a ``forecast`` (m,) of the first m gives, and ln of a bound on its chance.

    An honest value is within w of a number with probability 0.8 w at most, whatever came before;
    8 w is counted. So k of m agree with probability C(m, k) times the k largest of these, at most.
    Two tensors made with one key or one state agree as well: pass the second as the forecast.
    """
    count = len(forecast)
    near = np.abs(forecast - noise.values[:count]) <= noise.widths(tolerance)[:count]
    chances = np.sort(np.log(np.minimum(8 * (tolerance + noise.errors[:count]), 1)))[::-1]
    k = int(near.sum())
    return k, min(0.0, math.log(math.comb(count, k)) + float(chances[:k].sum()))


@dataclass(frozen=True, slots=True)
class _Reader:
    """One generator.

    ``fits``: places of the seeds (m,) that fit at start 0; ``ahead``: starts of a seed that fit,
    below a number that is ``farthest`` at most; ``values`` of a seed and a start.
    """

    name: str
    tolerance: float
    share: float  # of seeds that the first look leaves
    farthest: int
    fits: Callable[[npt.NDArray[np.uint64]], Places]
    ahead: Callable[[int, int], Places]
    values: Callable[[int, int], Floats]


def _twister(one: inversions.Inversion, noise: Noise) -> _Reader:
    """MT19937 after ``init_genrand(seed)``: torch's on the CPU, and numpy's ``RandomState``."""
    whole = len(noise.values) // one.each * one.each
    if one.each == inversions.BLOCK and len(noise.values) % one.each:
        whole -= one.each  # the last values are made anew
    layout = one.layouts[0]
    words, known = layout.certain_bits(one.back(noise.values[:whole], noise.errors[:whole]))
    bits = np.bitwise_count(known[:64]).astype(int)
    best = [int(at) for at in np.argsort(-bits)[:2]] or [0]

    def raw(seed: int, start: int, count: int) -> Words:
        generator = np.random.MT19937(0)
        state: Any = np.random.RandomState(seed & 0xFFFFFFFF).get_state(legacy=False)
        generator.state = state
        return generator.random_raw(start + count)[start:].astype(np.uint32)

    def fit(drawn: Words, at: int) -> npt.NDArray[np.bool_]:
        return np.asarray((drawn ^ words[at]) & known[at] == 0)

    def ahead(seed: int, most: int) -> Places:
        drawn = raw(seed, 0, most + 64)
        one, two = (fit(drawn[at : at + most], at) for at in (best[0], best[-1]))
        return np.flatnonzero(one & two)

    return _Reader(
        one.name, 2.0**-19, 2.0 ** -float(bits.max(initial=0)), 1 << 22,
        fits=lambda seeds: np.flatnonzero(fit(_words(seeds, best[0]), best[0])), ahead=ahead,
        values=lambda seed, start: one.forth(layout.numbers(raw(seed, start, len(words)))),
    )  # fmt: skip


def _cuda(noise: Noise) -> _Reader:
    """As torch on CUDA: see :mod:`.philox`; the first 4,096 values are the same everywhere."""
    places, at = np.arange(len(noise.values)), int(np.argmax(np.abs(noise.values)))
    value, width = noise.values[at], float(noise.widths(philox.TOLERANCE)[at])
    limit = 2.0**32 * math.exp(-(max(0.0, abs(value) - width) ** 2) / 2) * 1.001 + 1

    def fit(words: Words) -> Places:
        near = np.flatnonzero(words[0] <= limit)
        values = philox.polar_normal(words[:2, near], False)
        return np.asarray(near[np.abs(values - value) <= width])

    return _Reader(
        "torch.randn on CUDA, float32", philox.TOLERANCE, width, 4096,
        fits=lambda seeds: fit(philox.philox(seeds, 0, at)),
        ahead=lambda seed, most: fit(philox.philox(seed, np.arange(most), at)),
        values=lambda seed, start: philox.polar_normal(
            philox.philox(seed, start, places)[:2], False
        ).astype(np.float64),
    )  # fmt: skip


def _jax(noise: Noise, *, partitionable: bool) -> _Reader:
    """``jax.random.normal`` in float32."""
    widths = noise.widths(philox.TOLERANCE)
    low, high = (scipy.special.ndtr(noise.values + s * widths) * 2.0**23 for s in (-1, 1))
    at = int(np.argmin(high - low))
    least, most = math.floor(low[at]) - 1, math.ceil(high[at]) + 1

    def bits(keys: threefry.Keys, places: npt.ArrayLike) -> Words:
        return threefry.random_bits(keys, places, size=noise.size, partitionable=partitionable)

    def fit(keys: threefry.Keys) -> Places:
        code = bits(keys, at) >> np.uint32(9)
        return np.flatnonzero((code >= least) & (code <= most))

    def derived(seed: int, count: int) -> threefry.Keys:
        root = threefry.key(seed)
        one = threefry.fold_in(root, np.arange(1024))
        two = threefry.fold_in(one[:, :32].repeat(32, 1), np.tile(np.arange(32), 32))
        return np.concatenate([root, one, two], 1)[:, :count]

    return _Reader(
        "jax.random.normal" + ("" if partitionable else ", not partitionable"), philox.TOLERANCE,
        (most - least + 1) * 2.0**-23, 1 + 1024 + 32 * 32,
        fits=lambda seeds: fit(threefry.key(seeds)),
        ahead=lambda seed, count: fit(derived(seed, count)),
        values=lambda seed, start: threefry.normal(
            bits(derived(seed, start + 1)[:, -1:], np.arange(len(noise.values)))
        ),
    )  # fmt: skip


@jit
def _states(seeds, at):  # type: ignore[no-untyped-def]
    """Word ``at``, below 227, that ``init_genrand`` of each seed (n,) gives, not tempered (n,)."""
    out = np.empty(len(seeds), np.uint32)
    w = np.empty((3, 512), np.uint32)  # one array, so that the inner loop is vectorised
    for begin in range(0, len(seeds), 512):
        part = seeds[begin : begin + 512]
        w[0, : len(part)] = part
        for i in range(1, at + 398):
            if at <= i - 1 <= at + 1:
                w[i - at] = w[0]
            for j in range(512):
                x = w[0, j] ^ (w[0, j] >> np.uint32(30))
                w[0, j] = np.uint32(np.uint32(x * np.uint32(1812433253)) + np.uint32(i))
        both = (w[1] & np.uint32(1 << 31)) | (w[2] & np.uint32(0x7FFFFFFF))
        twisted = w[0] ^ (both >> np.uint32(1)) ^ (both & np.uint32(1)) * np.uint32(0x9908B0DF)
        out[begin : begin + 512] = twisted[: len(part)]
    return out


def _words(seeds: npt.NDArray[np.uint64], at: int) -> Words:
    return tempered(_states(seeds.astype(np.uint32), at))


def _readers(noise: Noise, family: str) -> list[_Reader]:
    """What may have made the noise, where a first look leaves few seeds."""
    few = len(noise.values) < inversions.BLOCK and family == "gaussian"
    ways = (inversions.TORCH_FEW,) if few else inversions.INVERSIONS[family]
    names = ("torch", "the inverse" if family == "laplace" else "torch")
    readers = [_twister(one, noise) for one in ways if one.name.startswith(names)]
    if family == "gaussian":
        readers += [_cuda(noise), *(_jax(noise, partitionable=new) for new in (True, False))]
    return [one for one in readers if one.share <= _WEAK]


def usual(now: float | None = None) -> Ranges:
    """Seeds below 2^20, some fixed ones with 64 ranks, a day's seconds, two minutes' milliseconds.

    ``now``: Unix seconds, an hour or a minute before the end of each.
    """
    now = time.time() if now is None else now
    timed = (int(now) - 86_400, int(now) + 3600), (int(now - 120) * 1000, int(now + 60) * 1000)
    return ((0, 1 << 20), *((seed, seed + _RANKS) for seed in _FIXED), *timed)


def find_seed(
    noise: Noise, *, family: str = "gaussian", ranges: Ranges | None = None, ahead: int = 1 << 20,
    generators: str = "", threads: int = 1,
) -> tuple[Found | None, int]:  # fmt: skip
    """The start that gives the noise best, and how many starts it is the best of.

    Args:
        noise: of one call, from its first value on; eight values of float32 are enough.
        family: ``gaussian`` or ``laplace``.
        ranges: half-open ranges of seeds that are tried at start 0, by default the usual ones.
        ahead: starts of seeds below 2,048, and of well-known ones, at most: 2^22 words of MT19937,
            4,096 calls on CUDA, 2,049 keys of jax.
        generators: a part of the names of those that are tried.
        threads: of this process.

    Raises:
        UsageError: errors so large, or so few values, that a first look leaves too many seeds.
    """
    readers = [one for one in _readers(noise, family) if generators in one.name]
    if not readers:
        raise UsageError(
            f"errors={noise.errors.max(initial=0):.3g} of {len(noise.values)} values: they tell no "
            "seed from another; use a tensor known to 2^-12 of its scale"
        )
    ranges, small = usual() if ranges is None else ranges, (*range(_SMALL), *_FIXED)
    tries = len(readers) * sum(stop - start for start, stop in ranges)
    tries += len(small) * sum(min(ahead, one.farthest) for one in readers)
    best: Found | None = None
    with ThreadPoolExecutor(threads) as pool:
        for reader in readers:
            for seed, start in _starts(reader, ranges, small if ahead else (), ahead, pool):
                forecast = reader.values(seed, start)
                k, log_p = agreement(noise, forecast, tolerance=reader.tolerance)
                log_p = min(0.0, log_p + math.log(tries))
                one = Found(reader.name, seed, start, k, len(forecast), log_p)
                best = one if best is None or log_p < best.log_p else best
                if best.log_p < _CERTAIN:
                    pool.shutdown(cancel_futures=True)
                    return best, tries
    return best, tries


def _starts(
    reader: _Reader, ranges: Ranges, small: Sequence[int], ahead: int, pool: ThreadPoolExecutor
) -> Iterator[tuple[int, int]]:
    """Seeds and starts that a first look leaves."""
    for seed in small:
        for start in reader.ahead(seed, min(ahead, reader.farthest)):
            yield seed, int(start)

    def scan(task: tuple[int, int]) -> list[int]:
        lows = range(*task, _CHUNK)
        parts = (np.arange(a, min(a + _CHUNK, task[1]), dtype=np.uint64) for a in lows)
        return [seed for part in parts for seed in part[reader.fits(part)].tolist()]

    tasks = [(a, min(a + _TASK, stop)) for low, stop in ranges for a in range(low, stop, _TASK)]
    for seeds in pool.map(scan, tasks):
        yield from ((seed, 0) for seed in seeds)


def use_once() -> None:
    """Compile the loops: numba imports much of itself, and compiles, on first use."""
    one = np.zeros(1, np.uint64)
    _words(one, 0)
    polar.join(one, one, one, (0, 1, 0, 1), np.empty((0, 3), np.int64))
