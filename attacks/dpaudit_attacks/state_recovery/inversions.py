"""Words of a generator, uniform numbers with an error bound, and the noise made of them, inverted.

Transforms can be inverted value by value, or pair by pair.

All work on noise of scale 1. Values come with absolute errors; ``unit`` is half the distance of
floating-point numbers just above 1: of the arithmetic that made the noise.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.special

__all__ = [
    "BLOCK",
    "CANONICAL",
    "DOUBLE",
    "INVERSIONS",
    "LOW_24",
    "LOW_53",
    "SINGLE_PRECISION",
    "TORCH_FEW",
    "TORCH_NORMAL",
    "Inversion",
    "Layout",
    "Uniforms",
]

Floats = npt.NDArray[np.float64]
Words = npt.NDArray[np.uint32]

DOUBLE_PRECISION, SINGLE_PRECISION = 2.0**-53, 2.0**-24
BLOCK = 16  # values that torch makes at a time


@dataclass(frozen=True, slots=True)
class Uniforms:
    """Numbers in [0, 1) in the order drawn, shape (n,), each right up to ``errors`` (n,)."""

    values: Floats
    errors: Floats


@dataclass(frozen=True, slots=True)
class Layout:
    """Where a uniform number's bits, the highest first, stand in the ``words`` that make it.

    ``runs`` are (word, highest bit, number of bits). ``top``: each word's 18 highest bits are used.
    """

    name: str
    words: int
    runs: tuple[tuple[int, int, int], ...]

    @property
    def bits(self) -> int:
        """Bits per number."""
        return sum(length for _, _, length in self.runs)

    @property
    def top(self) -> bool:
        """Whether a number shows the 18 highest bits of each of its words."""
        lengths = {word: length for word, highest, length in self.runs if highest == 31}
        return all(lengths.get(word, 0) >= 18 for word in range(self.words))

    def certain_bits(self, uniforms: Uniforms) -> tuple[Words, Words]:
        """The words, and masks of the bits that are certain."""
        finite = np.isfinite(uniforms.values) & np.isfinite(uniforms.errors)
        scaled = np.where(finite, uniforms.values, 0.5) * 2.0**self.bits
        errors = np.where(finite, uniforms.errors, 1.0) * 2.0**self.bits
        whole = np.floor(scaled)
        middle = scaled - whole + 0.5  # numbers lie on the edge of a cell
        number, high = (
            np.clip(whole + np.floor(middle + s * errors), 0, 2.0**self.bits - 1).astype(np.uint64)
            for s in (-1, 1)
        )
        unsure = np.frexp((number ^ high).astype(np.float64))[1]  # bits, up to the highest unlike
        sure = ~np.uint64(0) << unsure.astype(np.uint64)
        known = self._spread(sure)
        return self._spread(number) & known, known

    def nearest(self, values: Floats) -> Words:
        """The words of the nearest numbers that there are."""
        number = np.clip(np.rint(np.nan_to_num(values) * 2.0**self.bits), 0, 2.0**self.bits - 1)
        return self._spread(number.astype(np.uint64))

    def _spread(self, number: npt.NDArray[np.uint64]) -> Words:
        """The bits of each number at their places in its words."""
        words = np.zeros((len(number), self.words), np.uint32)
        left = self.bits
        for word, highest, length in self.runs:
            left -= length
            part = number >> np.uint64(left) & np.uint64((1 << length) - 1)
            words[:, word] |= part.astype(np.uint32) << np.uint32(highest + 1 - length)
        return words.ravel()

    def numbers(self, words: Words) -> Floats:
        """The numbers that consecutive words make."""
        each = words.reshape(-1, self.words).astype(np.uint64)
        number = np.zeros(len(each), np.uint64)
        for word, highest, length in self.runs:
            part = each[:, word] >> np.uint64(highest + 1 - length) & np.uint64((1 << length) - 1)
            number = number << np.uint64(length) | part
        return np.asarray(number * 2.0**-self.bits)


DOUBLE = Layout("53 bits, high word first", 2, ((0, 31, 27), (1, 31, 26)))
CANONICAL = Layout("53 bits, low word first", 2, ((1, 31, 32), (0, 31, 21)))
SINGLE = Layout("32 bits", 1, ((0, 31, 32),))
LOW_24 = Layout("the low 24 bits", 1, ((0, 23, 24),))
LOW_53 = Layout("the low 53 bits of two words", 2, ((0, 20, 21), (1, 31, 32)))
LAYOUTS = (DOUBLE, CANONICAL, SINGLE)


@dataclass(frozen=True, slots=True)
class Inversion:
    """A transform of uniform numbers in a fixed order: ``back`` to them, and ``forth`` again.

    Each value takes one number. ``each`` values are made at a time.
    """

    name: str
    layouts: tuple[Layout, ...]
    each: int
    unit: float
    inverse: Callable[[Floats, Floats, float], Uniforms]
    forward: Callable[[Floats], Floats]

    def back(self, values: Floats, errors: Floats | None = None) -> Uniforms:
        """The uniform numbers, in the order drawn.

        ``errors``: of the values, absolute; the arithmetic's by default.
        """
        own = 2 * self.unit * np.abs(values)
        with np.errstate(all="ignore"):
            return self.inverse(values, own if errors is None else errors + own, self.unit)

    def forth(self, uniforms: Floats) -> Floats:
        """The noise (n,) of uniform numbers (n,)."""
        with np.errstate(all="ignore"):
            return self.forward(uniforms)


def _mirror(u: Floats, mirrored: bool) -> Floats:
    return 1 - u if mirrored else u


def _from_normal(z: Floats, error: Floats, unit: float, *, mirrored: bool) -> Uniforms:
    u = scipy.special.ndtr(-z if mirrored else z)
    density = np.exp(-z * z / 2) / np.sqrt(2 * np.pi)
    # relative errors of the inverse function, some units
    return Uniforms(u, density * (error + 6 * unit * np.abs(z)) + 4 * unit * u + unit)


def _to_normal(u: Floats, *, mirrored: bool) -> Floats:
    z = np.asarray(scipy.special.ndtri(u))
    return -z if mirrored else z


def _from_laplace(x: Floats, error: Floats, unit: float, *, mirrored: bool) -> Uniforms:
    half = np.exp(-np.abs(x)) / 2
    u = np.where((x > 0) != mirrored, 1 - half, half)
    return Uniforms(u, half * (error + 4 * unit * (1 + np.abs(x))) + unit)


def _to_laplace(u: Floats, *, mirrored: bool) -> Floats:
    x = np.where(u < 0.5, np.log(2 * u), -np.log(2 * (1 - u)))
    return -x if mirrored else x


def _from_single_laplace(x: Floats, error: Floats, unit: float) -> Uniforms:
    """``torch.distributions.Laplace``: −sign(v) log(1 − |v|), v uniform above −1 in float32."""
    rest = np.exp(-np.abs(x))
    v = np.sign(x) * (1 - rest)
    least = 2.0**-23 - 1
    u = (v - least) / (1 - least)
    return Uniforms(u, rest * (error + 4 * unit * (1 + np.abs(x))) / 2 + 3 * unit)


def _to_single_laplace(u: Floats) -> Floats:
    least = 2.0**-23 - 1
    v = u * (1 - least) + least
    return np.asarray(-np.sign(v) * np.log1p(-np.abs(v)))


def _polar_form(
    c: Floats, s: Floats, errors: tuple[Floats, Floats], unit: float
) -> tuple[Uniforms, Uniforms]:
    """exp(−r²/2) and the angle over 2π of points (c, s)."""
    square = c * c + s * s
    radius = np.sqrt(square)
    ec, es = (e + 3 * unit * radius for e in errors)  # of cosine and sine
    rest = np.exp(-square / 2)
    moved = np.abs(c) * ec + np.abs(s) * es
    angle = np.arctan2(s, c) / (2 * np.pi) % 1.0
    turned = (np.abs(c) * es + np.abs(s) * ec) / (2 * np.pi * square)
    return (
        Uniforms(rest, rest * (moved + 4 * unit * (1 + square)) + unit),
        Uniforms(angle, turned + 4 * unit),
    )


def _interleave(first: Uniforms, second: Uniforms, shape: tuple[int, ...]) -> Uniforms:
    return Uniforms(
        np.stack([first.values, second.values], axis=1).reshape(shape),
        np.stack([first.errors, second.errors], axis=1).reshape(shape),
    )


def _from_box_muller(
    z: Floats, error: Floats, unit: float, *, mirrored: bool, angle_first: bool, sine_first: bool
) -> Uniforms:
    pairs, errors = z.reshape(-1, 2).T, error.reshape(-1, 2).T
    order = (1, 0) if sine_first else (0, 1)
    rest, angle = _polar_form(
        pairs[order[0]], pairs[order[1]], (errors[order[0]], errors[order[1]]), unit
    )
    rest = Uniforms(_mirror(rest.values, mirrored), rest.errors)
    return _interleave(angle, rest, (-1,)) if angle_first else _interleave(rest, angle, (-1,))


def _to_box_muller(u: Floats, *, mirrored: bool, angle_first: bool, sine_first: bool) -> Floats:
    rest, angle = u.reshape(-1, 2).T[:: -1 if angle_first else 1]
    radius, turned = np.sqrt(-2 * np.log(_mirror(rest, mirrored))), 2 * np.pi * angle
    both = (radius * np.cos(turned), radius * np.sin(turned))
    return np.stack(both[::-1] if sine_first else both, axis=1).ravel()


def _from_blocks(z: Floats, error: Floats, unit: float) -> Uniforms:
    """As torch on the CPU does it: blocks of 16, each pair 8 apart, from 1 − u."""
    c, s = np.moveaxis(z.reshape(-1, 2, BLOCK // 2), 1, 0)
    errors = np.moveaxis(error.reshape(-1, 2, BLOCK // 2), 1, 0)
    rest, angle = _polar_form(c, s, (errors[0], errors[1]), unit)
    return _interleave(Uniforms(1 - rest.values, rest.errors), angle, (-1,))


def _to_blocks(u: Floats) -> Floats:
    rest, angle = np.moveaxis(u.reshape(-1, 2, BLOCK // 2), 1, 0)
    radius, turned = np.sqrt(-2 * np.log1p(-rest)), 2 * np.pi * angle
    return np.stack([radius * np.cos(turned), radius * np.sin(turned)], axis=1).ravel()


def _box_mullers() -> list[Inversion]:
    inversions = []
    for angle_first in (True, False):
        for mirrored in (True, False):
            for sine_first in (False, True):
                how: dict[str, Any] = {
                    "mirrored": mirrored, "angle_first": angle_first, "sine_first": sine_first
                }  # fmt: skip
                name = "Box-Muller" + ", angle first" * angle_first + ", from 1 - u" * mirrored
                name += ", sine first" * sine_first
                inversions.append(
                    Inversion(
                        name, LAYOUTS, 2, DOUBLE_PRECISION,
                        partial(_from_box_muller, **how), partial(_to_box_muller, **how),
                    )
                )  # fmt: skip
    return inversions


def _inverses(inverse: Callable[..., Uniforms], forward: Callable[..., Floats]) -> list[Inversion]:
    return [
        Inversion(
            "the inverse distribution function" + ", from 1 - u" * mirrored, LAYOUTS, 1,
            DOUBLE_PRECISION, partial(inverse, mirrored=mirrored),
            partial(forward, mirrored=mirrored),
        )
        for mirrored in (False, True)
    ]  # fmt: skip


def _torch_normal(layout: Layout, unit: float, dtype: str) -> Inversion:
    return Inversion(
        f"torch.randn on the CPU, {dtype}", (layout,), BLOCK, unit, _from_blocks, _to_blocks
    )


TORCH_NORMAL = _torch_normal(LOW_24, SINGLE_PRECISION, "float32")
_FEW: dict[str, Any] = {"mirrored": True, "angle_first": True, "sine_first": False}
TORCH_FEW = Inversion(
    "torch.normal of fewer than 16 values on the CPU", (LOW_53,), 2, DOUBLE_PRECISION,
    partial(_from_box_muller, **_FEW), partial(_to_box_muller, **_FEW),
)  # fmt: skip
INVERSIONS: Mapping[str, tuple[Inversion, ...]] = {
    "gaussian": (
        *_box_mullers(),
        *_inverses(_from_normal, _to_normal),
        TORCH_NORMAL,
        _torch_normal(LOW_53, DOUBLE_PRECISION, "float64"),
    ),
    "laplace": (
        *_inverses(_from_laplace, _to_laplace),
        Inversion(
            "torch.distributions.Laplace on the CPU, float32", (LOW_24,), 1, SINGLE_PRECISION,
            _from_single_laplace, _to_single_laplace,
        ),
    ),
}  # fmt: skip
"""By the family of the claimed law."""
