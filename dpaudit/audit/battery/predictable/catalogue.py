"""The common seedings: a generator, how it is seeded, and how noise is made of its numbers.

A transform takes uniforms (m, n) of n seeds, in the order drawn, and gives the magnitudes of the
first ``count`` values of scale 1, (count, n); not a number where m uniforms are too few.
Magnitudes only: samplers differ in the sign that they give to one half of the uniforms.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.special

from dpaudit.audit.battery.predictable import generators
from dpaudit.audit.battery.predictable.generators import GENERATORS
from dpaudit.audit.battery.predictable.loops import polar

__all__ = ["PREFIX", "TRANSFORMS", "Seeding", "Transform", "seedings", "ziggurat"]

Floats = npt.NDArray[np.float64]
Longs = npt.NDArray[np.uint64]

_RIGHT = 3.6541528853610088  # where the ziggurat's base ends
_AREA = 0.00492867323399  # of each of its 256 layers


@dataclass(frozen=True, slots=True)
class Transform:
    """A name, how many uniforms a number of values needs, and the magnitudes of these."""

    name: str
    needs: Callable[[int], int]
    apply: Callable[[Floats, int], Floats]


def _inverse_normal(u: Floats, count: int) -> Floats:
    return np.asarray(np.abs(scipy.special.ndtri(u[:count])))


def _inverse_laplace(u: Floats, count: int) -> Floats:
    u = u[:count]
    return np.asarray(-np.log(2 * np.minimum(u, 1 - u)))


def _box_muller(
    u: Floats, count: int, *, mirrored: bool, angle_first: bool, outputs: str
) -> Floats:
    pairs = count if len(outputs) == 1 else -(-count // 2)
    size, angle = u[: 2 * pairs : 2], u[1 : 2 * pairs : 2]
    if angle_first:
        size, angle = angle, size
    radius = np.sqrt(-2 * np.log1p(-size) if mirrored else -2 * np.log(size))
    turned = 2 * np.pi * angle
    both = {"c": np.cos, "s": np.sin}
    magnitudes = np.stack([np.abs(radius * both[o](turned)) for o in outputs], axis=1)
    return magnitudes.reshape(-1, u.shape[1])[:count]


def _polar(u: Floats, count: int, *, second_first: bool) -> Floats:
    """Marsaglia's polar method; the pairs inside the circle, in order."""
    out = np.empty((count, u.shape[1]))
    polar(np.ascontiguousarray(u), out, second_first)
    return out


def _kinderman_monahan(u: Floats, count: int) -> Floats:
    """Python's ``random.normalvariate``."""
    z = (4 * np.exp(-0.5) / np.sqrt(2.0)) * (u[0::2] - 0.5) / (1 - u[1::2])
    inside = z * z / 4 <= -np.log1p(-u[1::2])
    rank = np.cumsum(inside, axis=0)
    out = np.full((count, u.shape[1]), np.nan)
    for k in range(count):
        at = np.argmax(rank > k, axis=0)[None]
        out[k] = np.where(rank[-1] > k, np.abs(np.take_along_axis(z, at, 0)[0]), np.nan)
    return out


def _exponentials(u: Floats, count: int) -> Floats:
    """The difference of two exponential values."""
    return np.asarray(np.abs(np.log(u[: 2 * count : 2]) - np.log(u[1 : 2 * count : 2])))


def _mirrored_exponentials(u: Floats, count: int) -> Floats:
    return _exponentials(1 - u[: 2 * count], count)


def _signed(u: Floats, count: int, *, sign_first: bool, mirrored: bool) -> Floats:
    """An exponential value, and a sign of its own."""
    size = u[int(sign_first) : 2 * count : 2]
    return np.asarray(-np.log1p(-size) if mirrored else -np.log(size))


def ziggurat(words: Longs) -> Floats:
    """Magnitudes of ``numpy.random.Generator.standard_normal`` from raw words (m, n).

    Not a number from the first word on that numpy would not have accepted at once.
    """
    width, limit = _layers()
    layer = (words & np.uint64(0xFF)).astype(np.intp)
    size = words >> np.uint64(9) & np.uint64((1 << 52) - 1)
    slow = np.maximum.accumulate(size >= limit[layer], axis=0)
    return np.where(slow, np.nan, size * width[layer])


@cache
def _layers() -> tuple[Floats, Longs]:
    """Width of each layer over 2^52, and below which number a point is inside it at once."""
    edge = np.empty(257)
    edge[256] = _AREA / np.exp(-0.5 * _RIGHT**2)
    edge[255] = x = _RIGHT
    for i in range(254, 0, -1):
        x = np.sqrt(-2 * np.log(_AREA / x + np.exp(-0.5 * x * x)))
        edge[i] = x
    edge[0] = 0.0
    width = np.concatenate([edge[256:], edge[1:256]])
    inner = np.concatenate([[_RIGHT], edge[0:255]])
    return width / 2.0**52, (inner / width * 2.0**52).astype(np.uint64)


def _even(count: int) -> int:
    return 2 * -(-count // 2)


def _each_two(count: int) -> int:
    return 2 * count


def _with_rejects(count: int) -> int:
    return 4 * count + 12


def _box_muller_kinds() -> Iterator[Transform]:
    kinds = (("", "cs"), (", sine first", "sc"), (", cosine only", "c"), (", sine only", "s"))
    for angle_first in (False, True):
        for mirrored in (False, True):
            for which, outputs in kinds:
                yield Transform(
                    f"Box-Muller{', angle first' * angle_first}{which}{_FROM_THE_END * mirrored}",
                    _even if len(outputs) == 2 else _each_two,
                    partial(
                        _box_muller, mirrored=mirrored, angle_first=angle_first, outputs=outputs
                    ),
                )


_FROM_THE_END = ", from 1 - u"
_INVERSE, _POLAR, _RATIO = (
    "the inverse distribution function", "the polar method", "the ratio of uniforms"
)  # fmt: skip
_POLAR_SECOND, _DIFFERENCE = f"{_POLAR}, second value first", "two exponentials' difference"
TRANSFORMS: Mapping[str, tuple[Transform, ...]] = {
    "gaussian": (
        Transform(_INVERSE, int, _inverse_normal),
        *_box_muller_kinds(),
        Transform(_POLAR, _with_rejects, partial(_polar, second_first=False)),
        Transform(_POLAR_SECOND, _with_rejects, partial(_polar, second_first=True)),
        Transform(_RATIO, _with_rejects, _kinderman_monahan),
    ),
    "laplace": (
        Transform(_INVERSE, int, _inverse_laplace),
        Transform(_DIFFERENCE, _each_two, _exponentials),
        Transform(_DIFFERENCE + _FROM_THE_END, _each_two, _mirrored_exponentials),
        *(
            Transform(
                f"a {order}{_FROM_THE_END * mirrored}",
                _each_two,
                partial(_signed, sign_first=order == "sign and exponential", mirrored=mirrored),
            )
            for order in ("exponential and sign", "sign and exponential")
            for mirrored in (False, True)
        ),
    ),
}
"""By the family of the claimed law."""

Seeds = npt.NDArray[np.uint64]
Places = npt.NDArray[np.intp]
Numbers = npt.NDArray[Any]
"""What a generator gives: words of 32 or 64 bits, or uniforms; (m, n) for n seeds."""

PREFIX = 3
"""Values that are compared first."""
_FEW = 8  # uniforms; four tries of the polar method
_EXACT = 1 << 12  # seeds below which numpy itself draws where its ziggurat needs more than a word


@dataclass(frozen=True, slots=True)
class Seeding:
    """One way from a seed to noise of scale 1: ``apply`` to so many ``numbers`` of a generator.

    ``common``: tried with many seeds. ``exact``, of one seed and a number of values: where
    ``apply`` does not know all of them. ``few``: numbers that nearly always give three values.
    """

    name: str
    numbers: Callable[[Seeds, int], Numbers]
    needs: Callable[[int], int]
    apply: Callable[[Numbers, int], Floats]
    common: bool
    exact: Callable[[int, int], Floats] | None = None
    few: int = 1 << 16

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
            few = max(min(s.few, s.needs(PREFIX)) for s in chosen)
            numbers = chosen[0].numbers(seeds, few)
            for seeding in chosen:
                places = _places(seeding, seeds, numbers, likely)
                magnitudes = np.empty((PREFIX, 0))
                if len(places):
                    magnitudes = seeding.apply(numbers[: seeding.needs(PREFIX), places], PREFIX)
                unknown = np.flatnonzero(_unknown(seeding, magnitudes, seeds[places]))
                if seeding.exact is not None:
                    for i in unknown:
                        magnitudes[:, i] = seeding.exact(int(seeds[places[i]]), PREFIX)
                elif len(unknown):
                    more = seeding.numbers(seeds[places[unknown]], seeding.needs(PREFIX))
                    magnitudes[:, unknown] = seeding.apply(more, PREFIX)
                yield seeding, places, magnitudes


def _places(
    seeding: Seeding, seeds: Seeds, numbers: Numbers, likely: Callable[[Floats], Places] | None
) -> Places:
    if likely is None:
        return np.arange(len(seeds))
    two = seeding.apply(numbers[: seeding.needs(2)], 2)
    unknown = _unknown(seeding, two, seeds)
    return np.union1d(likely(two), np.flatnonzero(unknown)) if unknown.any() else likely(two)


def _unknown(seeding: Seeding, magnitudes: Floats, seeds: Seeds) -> npt.NDArray[np.bool_]:
    """Columns whose last magnitude takes more numbers, or numpy itself."""
    unknown = np.isnan(magnitudes[-1])
    return np.asarray(unknown if seeding.exact is None else unknown & (seeds < _EXACT))


@cache
def _groups(family: str) -> tuple[tuple[Seeding, ...], ...]:
    """Those in a group share their numbers."""

    def each(name: str, numbers: Callable[[Seeds, int], Numbers], kind: _Kind) -> list[Seeding]:
        return [_seeding(name, numbers, t, kind) for t in TRANSFORMS[family]]

    twister = [
        *each("numpy.random.RandomState", generators.by_genrand, _FIFTY_THREE),
        *each("std::mt19937", generators.by_genrand, _CANONICAL),
        *each("MT19937 of 32 bits", generators.by_genrand, _THIRTY_TWO),
        _torch(family),
    ]
    groups = [twister, each("Python's random.seed", generators.by_array, _FIFTY_THREE)]
    for name, generate in _NUMPY.items():
        own = each(f"numpy.random.{name}", generate, _FIFTY_THREE if name == "MT19937" else _LONG)
        groups.append([*own, *([_ziggurat(name, generate)] if family == "gaussian" else [])])
    if family == "gaussian":
        groups.append(
            [Seeding("R's set.seed and rnorm", generators.by_r, _each_two, _r_normal, True)]
        )
    groups += [each(name, uniforms, _UNIFORM) for name, uniforms in GENERATORS.items()]
    return tuple(map(tuple, groups))


@dataclass(frozen=True, slots=True)
class _Kind:
    """How many numbers make a uniform, and how."""

    each: int
    join: Callable[[Numbers], Floats]


_UNIFORM = _Kind(1, lambda u: u)
_THIRTY_TWO = _Kind(1, lambda w: np.asarray(w * 2.0**-32))
_LONG = _Kind(1, lambda w: np.asarray((w >> np.uint64(11)) * 2.0**-53))
_FIFTY_THREE = _Kind(
    2, lambda w: np.asarray(((w[::2] >> 5) * 67108864.0 + (w[1::2] >> 6)) * 2.0**-53)
)
_CANONICAL = _Kind(2, lambda w: np.asarray((w[::2] + w[1::2] * 2.0**32) * 2.0**-64))  # libstdc++

_COSINES = ("Box-Muller", "Box-Muller, cosine only")
_USUAL = {
    "numpy.random.RandomState": (_POLAR_SECOND, _INVERSE),
    "Python's random.seed": ("Box-Muller, angle first, from 1 - u", _RATIO, _INVERSE),
    "std::mt19937": (_POLAR_SECOND, _INVERSE),
    "std::minstd_rand0": (_POLAR_SECOND, _INVERSE),
    "std::minstd_rand": (_POLAR_SECOND, _INVERSE),
    "java.util.Random": (_POLAR, _INVERSE),
    "glibc's rand": (*_COSINES, _POLAR, _INVERSE),
    "drand48": (*_COSINES, _POLAR, _INVERSE),
}
_ELSEWHERE = ("Box-Muller", _INVERSE, _DIFFERENCE, "a sign and exponential")


def _seeding(
    name: str, numbers: Callable[[Seeds, int], Numbers], t: Transform, kind: _Kind
) -> Seeding:
    usual = t.name in _USUAL.get(name, _ELSEWHERE)
    return Seeding(
        f"{name} and {t.name}",
        numbers,
        lambda count: kind.each * t.needs(count),
        lambda x, count: t.apply(kind.join(x), count),
        usual,
        few=kind.each * _FEW,
    )


def _longs(generate: Callable[[Seeds, int], Numbers]) -> Callable[[Numbers], Numbers]:
    if generate is not generators.by_seed_sequence:
        return lambda w: w
    return lambda w: w[::2].astype(np.uint64) << np.uint64(32) | w[1::2]


_NUMPY: dict[str, Callable[[Seeds, int], Numbers]] = {
    "PCG64": generators.pcg64,
    "PCG64DXSM": generators.pcg64_dxsm,
    "Philox": generators.philox,
    "SFC64": generators.sfc64,
    "MT19937": generators.by_seed_sequence,
}


def _ziggurat(name: str, generate: Callable[[Seeds, int], Numbers]) -> Seeding:
    make, longs = getattr(np.random, name), _longs(generate)
    each = 2 if name == "MT19937" else 1

    def exact(seed: int, count: int) -> Floats:
        return np.abs(np.random.Generator(make(seed)).standard_normal(count))

    label = f"numpy.random.Generator({name}) and its standard_normal"
    return Seeding(
        label, generate, lambda count: each * count, lambda w, _: ziggurat(longs(w)), True, exact
    )


def _r_normal(words: Numbers, count: int) -> Floats:
    """R's inversion, of a number of 27 + 32 bits."""
    u = words[: 2 * count] * 2.3283064365386963e-10
    u = (np.floor(134217728 * u[::2]) + u[1::2]) / 134217728
    return np.asarray(np.abs(scipy.special.ndtri(u)))


def _torch(family: str) -> Seeding:
    if family == "laplace":
        name = "torch.manual_seed and torch.distributions.Laplace on the CPU"
        return Seeding(name, generators.by_genrand, lambda k: k, _torch_laplace, True)
    name = "torch.manual_seed and torch.randn on the CPU"
    return Seeding(name, generators.by_genrand, lambda k: 16 * -(-k // 8), _torch_normal, True)


def _torch_normal(words: Numbers, count: int) -> Floats:
    """Box and Muller of float32 uniforms, each pair 8 apart, of 16 or more values."""
    u = (words & np.uint32((1 << 24) - 1)) * 2.0**-24
    u = u.reshape(-1, 2, 8, u.shape[1])[:, :, :count]
    radius, turned = np.sqrt(-2 * np.log1p(-u[:, 0])), 2 * math.pi * u[:, 1]
    both = np.stack([np.abs(radius * np.cos(turned)), np.abs(radius * np.sin(turned))], axis=1)
    return both.reshape(-1, words.shape[1])[:count]


def _torch_laplace(words: Numbers, count: int) -> Floats:
    u = (words[:count] & np.uint32((1 << 24) - 1)) * 2.0**-24
    least = 2.0**-23 - 1
    return np.asarray(-np.log1p(-np.abs(u * (1 - least) + least)))
