"""The common seedings: a generator, how it is seeded, and how noise is made of its numbers."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.special

from dpaudit.audit.battery.predictable import mersenne, seed_sequence
from dpaudit.audit.battery.predictable.small_generators import GENERATORS
from dpaudit.audit.battery.predictable.transforms import TRANSFORMS, Transform, ziggurat

__all__ = ["PREFIX", "Seeding", "seedings"]

Seeds = npt.NDArray[np.uint64]
Floats = npt.NDArray[np.float64]
Places = npt.NDArray[np.intp]
Numbers = npt.NDArray[Any]
"""What a generator gives: words of 32 or 64 bits, or uniforms; (m, n) for n seeds."""

PREFIX = 3
"""Values that are compared first."""
_EXACT = 1 << 12  # seeds below which numpy itself draws where its ziggurat needs more than a word


@dataclass(frozen=True, slots=True)
class Seeding:
    """One way from a seed to noise of scale 1: ``apply`` to so many ``numbers`` of a generator.

    ``common``: tried with many seeds. ``exact``, of one seed and a number of values: where
    ``apply`` does not know all of them.
    """

    name: str
    numbers: Callable[[Seeds, int], Numbers]
    needs: Callable[[int], int]
    apply: Callable[[Numbers, int], Floats]
    common: bool
    exact: Callable[[int, int], Floats] | None = None

    def values(self, seed: int, count: int) -> Floats:
        """The magnitudes (count,) of the first values of one seed."""
        if self.exact is not None:
            return self.exact(seed, count)
        with np.errstate(all="ignore"):
            numbers = self.numbers(np.array([seed], np.uint64), self.needs(count))
            return self.apply(numbers, count)[:, 0]


def seedings(
    family: str, seeds: Seeds, *, common: bool, likely: Callable[[Floats], Places] | None = None
) -> Iterator[tuple[Seeding, Places, Floats]]:
    """Seedings of a claimed family, places of ``seeds``, and their first magnitudes (3, m).

    Not a number where they are not known. ``common``: only such seedings. ``likely`` chooses the
    columns of first magnitudes (2, n) whose third is computed; all by default.
    """
    for group in _groups(family):
        chosen = [s for s in group if s.common or not common]
        if not chosen:
            continue
        with np.errstate(all="ignore"):
            numbers = chosen[0].numbers(seeds, max(s.needs(PREFIX) for s in chosen))
            for seeding in chosen:
                places = _places(seeding, seeds, numbers, likely)
                found = np.empty((PREFIX, 0))
                if len(places):
                    found = seeding.apply(numbers[: seeding.needs(PREFIX), places], PREFIX)
                if seeding.exact is not None:
                    for i in np.flatnonzero(np.isnan(found[-1]) & (seeds[places] < _EXACT)):
                        found[:, i] = seeding.exact(int(seeds[places[i]]), PREFIX)
                yield seeding, places, found


def _places(
    seeding: Seeding, seeds: Seeds, numbers: Numbers, likely: Callable[[Floats], Places] | None
) -> Places:
    if likely is None:
        return np.arange(len(seeds))
    two = seeding.apply(numbers[: seeding.needs(2)], 2)
    places = likely(two)
    if seeding.exact is None:
        return places
    return np.union1d(places, np.flatnonzero(np.isnan(two[-1]) & (seeds < _EXACT)))


@cache
def _groups(family: str) -> tuple[tuple[Seeding, ...], ...]:
    """Those in a group share their numbers."""
    twister = [
        _seeding("numpy.random.RandomState", mersenne.by_genrand, t, _FIFTY_THREE)
        for t in TRANSFORMS[family]
    ]
    for name, kind in (("std::mt19937", _CANONICAL), ("MT19937 of 32 bits", _THIRTY_TWO)):
        twister += [_seeding(name, mersenne.by_genrand, t, kind) for t in TRANSFORMS[family]]
    twister.append(_torch(family))
    python = [
        _seeding("Python's random.seed", mersenne.by_array, t, _FIFTY_THREE)
        for t in TRANSFORMS[family]
    ]
    groups = [twister, python]
    for name, words in _NUMPY.items():
        kind = _FIFTY_THREE if name == "MT19937" else _LONG
        own = [_seeding(f"numpy.random.{name}", words, t, kind) for t in TRANSFORMS[family]]
        groups.append([*own, *([_zigguratted(name, words)] if family == "gaussian" else [])])
    if family == "gaussian":
        groups.append([Seeding("R's set.seed and rnorm", mersenne.by_r, _twice, _r_normal, True)])
    groups += [
        [_seeding(name, uniforms, t, _UNIFORM) for t in TRANSFORMS[family]]
        for name, uniforms in GENERATORS.items()
    ]
    return tuple(map(tuple, groups))


@dataclass(frozen=True, slots=True)
class _Kind:
    """How many numbers make a uniform, and how."""

    each: int
    made: Callable[[Numbers], Floats]


_UNIFORM = _Kind(1, lambda u: u)
_THIRTY_TWO = _Kind(1, lambda w: np.asarray(w * 2.0**-32))
_LONG = _Kind(1, lambda w: np.asarray((w >> np.uint64(11)) * 2.0**-53))
_FIFTY_THREE = _Kind(
    2, lambda w: np.asarray(((w[::2] >> 5) * 67108864.0 + (w[1::2] >> 6)) * 2.0**-53)
)
_CANONICAL = _Kind(2, lambda w: np.asarray((w[::2] + w[1::2] * 2.0**32) * 2.0**-64))  # libstdc++

_USUAL = {
    "numpy.random.RandomState": ("polar, second first", "inverse"),
    "Python's random.seed": ("angle first, from 1 - u", "ratio of uniforms", "inverse"),
    "std::mt19937": ("polar, second first", "inverse"),
    "std::minstd_rand0": ("polar, second first", "inverse"),
    "std::minstd_rand": ("polar, second first", "inverse"),
    "java.util.Random": ("polar", "inverse"),
    "glibc's rand": ("Box-Muller", "Box-Muller, cosine only", "polar", "inverse"),
    "drand48": ("Box-Muller", "Box-Muller, cosine only", "polar", "inverse"),
}
_ELSEWHERE = ("Box-Muller", "inverse", "exponentials", "sign and exponential")


def _seeding(
    name: str, numbers: Callable[[Seeds, int], Numbers], t: Transform, kind: _Kind
) -> Seeding:
    usual = t.name in _USUAL.get(name, _ELSEWHERE)
    return Seeding(
        f"{name} and {t.says}",
        numbers,
        lambda count: kind.each * t.needs(count),
        lambda x, count: t.apply(kind.made(x), count),
        usual,
    )


def _longs(words: Callable[[Seeds, int], Numbers]) -> Callable[[Numbers], Numbers]:
    if words is not mersenne.by_seed_sequence:
        return lambda w: w
    return lambda w: w[::2].astype(np.uint64) << np.uint64(32) | w[1::2]


_NUMPY: dict[str, Callable[[Seeds, int], Numbers]] = {
    "PCG64": seed_sequence.pcg64,
    "PCG64DXSM": seed_sequence.pcg64_dxsm,
    "Philox": seed_sequence.philox,
    "SFC64": seed_sequence.sfc64,
    "MT19937": mersenne.by_seed_sequence,
}


def _zigguratted(name: str, words: Callable[[Seeds, int], Numbers]) -> Seeding:
    make, longs = getattr(np.random, name), _longs(words)
    each = 2 if name == "MT19937" else 1

    def exact(seed: int, count: int) -> Floats:
        return np.abs(np.random.Generator(make(seed)).standard_normal(count))

    says = f"numpy.random.Generator({name}) and its standard_normal"
    return Seeding(
        says, words, lambda count: each * count, lambda w, _: ziggurat(longs(w)), True, exact
    )


def _twice(count: int) -> int:
    return 2 * count


def _r_normal(words: Numbers, count: int) -> Floats:
    """R's inversion, of a number of 27 + 32 bits."""
    u = words[: 2 * count] * 2.3283064365386963e-10
    u = (np.floor(134217728 * u[::2]) + u[1::2]) / 134217728
    return np.asarray(np.abs(scipy.special.ndtri(u)))


def _torch(family: str) -> Seeding:
    if family == "laplace":
        says = "torch.manual_seed and torch.distributions.Laplace on the CPU"
        return Seeding(says, mersenne.by_genrand, lambda k: k, _torch_laplace, True)
    says = "torch.manual_seed and torch.randn on the CPU"
    return Seeding(says, mersenne.by_genrand, lambda k: 16 * -(-k // 8), _torch_normal, True)


def _torch_normal(words: Numbers, count: int) -> Floats:
    """Box and Muller of float32 uniforms, each pair 8 apart, of 16 or more values."""
    u = (words & np.uint32((1 << 24) - 1)) * 2.0**-24
    u = u.reshape(-1, 2, 8, u.shape[1])
    radius, turned = np.sqrt(-2 * np.log1p(-u[:, 0])), 2 * math.pi * u[:, 1]
    both = np.stack([np.abs(radius * np.cos(turned)), np.abs(radius * np.sin(turned))], axis=1)
    return both.reshape(words.shape)[:count]


def _torch_laplace(words: Numbers, count: int) -> Floats:
    u = (words[:count] & np.uint32((1 << 24) - 1)) * 2.0**-24
    least = 2.0**-23 - 1
    return np.asarray(-np.log1p(-np.abs(u * (1 - least) + least)))
