"""From uniform numbers to magnitudes of noise, as common samplers do it: many seeds at once.

A transform takes uniforms (m, n) of n seeds, in the order drawn, and gives the magnitudes of the
first ``count`` values of scale 1, (count, n); not a number where m uniforms are too few.
Magnitudes only: samplers differ in the sign that they give to one half of the uniforms.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, partial

import numpy as np
import numpy.typing as npt
import scipy.special

__all__ = ["TRANSFORMS", "Transform", "ziggurat"]

Floats = npt.NDArray[np.float64]
Longs = npt.NDArray[np.uint64]

_RIGHT = 3.6541528853610088  # where the ziggurat's base ends
_AREA = 0.00492867323399  # of each of its 256 layers


@dataclass(frozen=True, slots=True)
class Transform:
    """A short name, what it says, how many uniforms so many values need, and the magnitudes."""

    name: str
    says: str
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
    found = np.stack([np.abs(radius * both[o](turned)) for o in outputs], axis=1)
    return found.reshape(-1, u.shape[1])[:count]


def _polar(u: Floats, count: int, *, second_first: bool) -> Floats:
    """Marsaglia's polar method; the pairs inside the circle, in order."""
    from dpaudit.audit.battery.predictable.loops import polar  # loads a compiler

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


def _box_muller_kinds() -> list[Transform]:
    kinds = (("", "cs"), (", sine first", "sc"), (", cosine only", "c"), (", sine only", "s"))
    found = []
    for angle_first in (False, True):
        for mirrored in (False, True):
            for which, outputs in kinds:
                name = "angle first" if angle_first else "Box-Muller"
                name += which + (", from 1 - u" if mirrored else "")
                says = name if not angle_first else f"Box-Muller, {name}"
                needs = _even if len(outputs) == 2 else _each_two
                apply = partial(
                    _box_muller, mirrored=mirrored, angle_first=angle_first, outputs=outputs
                )
                found.append(Transform(name, says, needs, apply))
    return found


TRANSFORMS: Mapping[str, tuple[Transform, ...]] = {
    "gaussian": (
        Transform("inverse", "the inverse distribution function", int, _inverse_normal),
        *_box_muller_kinds(),
        *(
            Transform(
                "polar" + (", second first" if second else ""),
                "the polar method" + (", second value first" if second else ""),
                _with_rejects,
                partial(_polar, second_first=second),
            )
            for second in (False, True)
        ),
        Transform("ratio of uniforms", "the ratio of uniforms", _with_rejects, _kinderman_monahan),
    ),
    "laplace": (
        Transform("inverse", "the inverse distribution function", int, _inverse_laplace),
        Transform("exponentials", "two exponentials' difference", _each_two, _exponentials),
        Transform(
            "exponentials of 1 - u",
            "two exponentials' difference, from 1 - u",
            _each_two,
            _mirrored_exponentials,
        ),
        *(
            Transform(
                f"{order}{', from 1 - u' if mirrored else ''}",
                f"a {order}{', from 1 - u' if mirrored else ''}",
                _each_two,
                partial(_signed, sign_first=order == "sign and exponential", mirrored=mirrored),
            )
            for order in ("exponential and sign", "sign and exponential")
            for mirrored in (False, True)
        ),
    ),
}
"""By the family of the claimed law."""
