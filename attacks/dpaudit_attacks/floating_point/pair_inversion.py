"""Pairs of normals give their uniforms away.

Which values cannot lead to a release by any uniforms of a known sampler? Polar and Box-Muller
samplers turn two uniforms on a grid of 2^−24 or 2^−53 into two outputs. Both outputs, less the
candidate value, give the uniforms back; if no grid point there leads, through the sampler's own
arithmetic and the addition, to exactly these two releases, the candidate is impossible (Mironov
2012; Jin, McMurtry, Rubinstein and Ohrimenko 2022, arXiv 2112.05307, Section 4).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from dpaudit.errors import UsageError
from dpaudit.registry import nearest
from dpaudit_attacks.floating_point._support import Array, Scored, in_format
from dpaudit_attacks.floating_point.replay.release import Addition
from dpaudit_attacks.floating_point.replay.samplers import Replay, verified_replay

__all__ = ["PairInversion"]

Indices = npt.NDArray[np.intp]

BLOCK = 16
"""Values that torch's vectorised ``normal_`` makes at a time, and the fewest for which it does."""


@dataclass(frozen=True)
class Layout:
    """Units of a release: ``pairs`` (p, 2) in output order, ``short`` (q, 2), ``alone`` (s,)."""

    pairs: Indices
    short: Indices
    alone: Indices

    @property
    def order(self) -> Indices:
        """Sorts ``pairs``, ``short`` and ``alone``, concatenated, by their first coordinate."""
        return np.argsort(
            np.concatenate([self.pairs[:, 0], self.short[:, 0], self.alone]), kind="stable"
        )

    @property
    def units(self) -> tuple[tuple[int, ...], ...]:
        """The coordinates of each unit, in that order."""
        rows = [*self.pairs.tolist(), *self.short.tolist(), *([i] for i in self.alone.tolist())]
        return tuple(tuple(rows[i]) for i in self.order)


def in_order(k: int, *, offset: int) -> Layout:
    """Consecutive numbers are pairs, from number ``offset`` (0 or 1) on."""
    pairs, alone = _consecutive(np.arange(k), offset)
    return Layout(pairs, np.empty((0, 2), np.intp), alone)


def in_tensors(sizes: Sequence[int], *, offset: int, short_pairs: bool) -> Layout:
    """Tensors of ``sizes`` values, joined, each filled by one call of torch's ``normal_``.

    From 16 values on, blocks of 16 in which lane j goes with lane j + 8. Shorter ones take from one
    row of pairs, which goes on from tensor to tensor, ``offset`` numbers into a pair; without
    ``short_pairs`` theirs count as alone.
    """
    starts = np.cumsum([0, *sizes[:-1]])
    long = [_lanes(int(a), n) for a, n in zip(starts, sizes, strict=True) if n >= BLOCK]
    rest = _joined([np.arange(a, a + n) for a, n in zip(starts, sizes, strict=True) if n < BLOCK])
    few, left = _consecutive(rest, offset) if short_pairs else (np.empty((0, 2), np.intp), rest)
    pairs = np.concatenate([np.empty((0, 2), np.intp), *(pairs for pairs, _ in long)])
    return Layout(pairs, few, _joined([*(alone for _, alone in long), left]))


def short(sizes: Sequence[int]) -> int:
    """How many values the tensors below 16 hold."""
    return sum(n for n in sizes if n < BLOCK)


def _consecutive(where: Indices, offset: int) -> tuple[Indices, Indices]:
    end = offset + (len(where) - offset) // 2 * 2
    return where[offset:end].reshape(-1, 2), np.concatenate([where[:offset], where[end:]])


def _lanes(start: int, size: int) -> tuple[Indices, Indices]:
    """Pairs and leftovers of one tensor of ``size`` ≥ 16 values, the first at ``start``.

    Where 16 does not divide ``size`` the last 16 values are drawn again, over what was there, so
    the block before them loses lanes.
    """
    index = np.arange(size)
    block, lane = np.divmod(index, BLOCK)
    if size % BLOCK:
        block[size - BLOCK :], lane[size - BLOCK :] = -1, np.arange(BLOCK)
    first = index[(lane < BLOCK // 2) & (block == np.roll(block, -BLOCK // 2))]
    pairs = np.stack([first, first + BLOCK // 2], axis=1)
    paired = np.zeros(size, bool)
    paired[pairs] = True
    return start + pairs, start + index[~paired]


def _joined(parts: Sequence[Indices]) -> Indices:
    return np.concatenate([np.empty(0, np.intp), *parts])


Bools = npt.NDArray[np.bool_]

_FORMATS: dict[str, type[np.floating[Any]]] = {"float32": np.float32, "float64": np.float64}
_SAMPLERS = {
    "numpy-legacy": ("float64", "float64"),
    "stdlib-gauss": ("float64", "float64"),
    "torch-f32": ("float32", "float32"),
    "torch-f64": ("float64", "float64"),
    "box-muller-f32": ("float32", "float64"),
    "box-muller-f64": ("float64", "float64"),
    "polar": ("float64", "float64"),
}
"""The samplers: the number type of their noise, and that in which it is mostly added to a value."""
_AT_ONCE = 1 << 16


class PairInversion(Scored):
    """Rules out values for which no pair of uniforms gives a pair of released numbers.

    ``sampler`` is whose noise it is:

    - ``numpy-legacy``: ``RandomState.normal`` and ``np.random.normal``, polar, consecutive outputs
      in pairs;
    - ``stdlib-gauss``: ``random.gauss``, Box-Muller, consecutive outputs in pairs;
    - ``torch-f32``, ``torch-f64``: ``normal_``, ``torch.normal`` and ``torch.randn`` on the CPU, so
      Opacus' noise without ``secure_mode``: Box-Muller in blocks of 16, lane j with lane j + 8;
    - ``box-muller-f32``, ``box-muller-f64``, ``polar``: dpaudit's own specimens.

    Formal guarantee: a value that led to the releases is feasible in every unit, if the sampler is
    this one on this kind of processor, drew its noise before the value was added, and the release
    is fl(fl(value + noise)/divisor) in the number type ``dtype``. The replay is compared bit for
    bit with the library installed here before it is used; search bounds are rounding bounds, and
    too many candidates count as feasible. Not claimed: that a false value is found out. Addition to
    a value above the noise loses the bits that the attack reads: with one pair it tells 0 from
    scale with 98 %, scale from 2·scale with 90 %, 4·scale from 5·scale with 70 %, 1000·scale from
    1001·scale not at all. Nor anything about noise that another sampler made: that is "infeasible"
    whatever the value. torch's replay was verified on x86 with AVX2 and AVX-512, and its plain loop
    without either.
    """

    games = ("support", "scoring")
    harm = "last-bits"

    def __init__(
        self,
        *,
        sampler: str,
        scale: float = 1.0,
        offset: int | str = 0,
        sizes: Sequence[int] | int | str | None = None,
        divisor: float = 1.0,
        dtype: str = "auto",
    ) -> None:
        """Take noise of nominal standard deviation ``scale``, one release per row.

        ``offset``: 0 if each release begins with the first output of a pair (a fresh generator,
        always an even number of draws), 1 if with the second, ``unknown`` for either; then a
        release is one unit. ``sizes`` (torch only): the sizes of the tensors that a release joins,
        each with noise of a call of its own, in order; text such as ``400+120+84`` or one number
        will do. Left out: one tensor, whose size is a multiple of 16. ``divisor``: what the noisy
        sum is divided by (DP-SGD with a mean). ``dtype``: float32 or float64, the type in which
        value and noise are added; ``auto`` is float32 for ``torch-f32`` and float64 for the rest.

        Raises:
            UsageError: an unknown sampler or option value, a scale or divisor that is not a finite
                number above 0, sizes with no pair of outputs that could tell anything, or a library
                that the replay does not match.
            MissingExtraError: the library, or numba, is not installed.
        """
        if sampler not in _SAMPLERS:
            raise UsageError(f"sampler={sampler}: not known{nearest(sampler, _SAMPLERS)}")
        if isinstance(offset, bool) or offset not in (0, 1, "unknown"):
            raise UsageError(f"offset={offset}: must be 0, 1 or unknown")
        if dtype != "auto" and dtype not in _FORMATS:
            raise UsageError(f"dtype={dtype}: no such format; choose auto, {', '.join(_FORMATS)}")
        noise, usual = _SAMPLERS[sampler]
        sums = usual if dtype == "auto" else dtype
        if dtype == "float32" and noise == "float64":
            raise UsageError(
                f"dtype={dtype}: {sampler} makes float64 noise; "
                "only releases added in float64 show its pairs"
            )
        self.sampler, self.offset = sampler, offset
        self.scale = _parse_positive("scale", scale, noise)
        self.sizes = None if sizes is None else _parse_sizes(sizes)
        if self.sizes is not None and not sampler.startswith("torch-"):
            raise UsageError(
                f"sizes={sizes}: only torch's samplers pair within tensors; "
                f"leave it out for {sampler}"
            )
        if sampler == "torch-f32" and self.sizes is not None and max(self.sizes) < BLOCK:
            raise UsageError(
                f"sizes={sizes}: below {BLOCK} values torch draws from 53-bit uniforms, of which "
                "float32 shows nothing; use attack=reach"
            )
        self.addition = Addition(
            np.dtype(_FORMATS[sums]), _parse_positive("divisor", divisor, sums)
        )
        self._replay = verified_replay(sampler)
        self._short = verified_replay("torch-f64-short") if sampler == "torch-f64" else None
        self._known: dict[int, tuple[Layout, ...]] = {}

    def units(self, k: int) -> tuple[tuple[int, ...], ...]:
        """The coordinates of each unit of releases of ``k`` numbers.

        Units are pairs, and coordinates whose partner is not in the release.

        Raises:
            UsageError: releases of ``k`` numbers do not fit the sizes or the pairs.
        """
        layouts = self._layouts(k)
        return layouts[0].units if len(layouts) == 1 else (tuple(range(k)),)

    def _feasible(self, y: Array, v: Array) -> Bools:
        """Of releases (t, k) and values (1, k) or (t, k)."""
        kind = self.addition.dtype.type
        released, value = (
            in_format(y, kind, f"dtype={self.addition.dtype}"),
            self.addition.rounded(v),
        )
        layouts = self._layouts(y.shape[1])
        units = [self._units_of(layout, released, value) for layout in layouts]
        if len(units) == 1:
            return units[0]
        return np.asarray(
            np.stack([one.all(1) for one in units], axis=1).any(1, keepdims=True), bool
        )

    def _units_of(self, layout: Layout, y: npt.NDArray[Any], v: npt.NDArray[Any]) -> Bools:
        """The units of one layout, of releases (t, k) and values (1, k) or (t, k)."""
        groups: list[tuple[Replay | None, npt.NDArray[np.intp]]] = [
            (self._replay, layout.pairs),
            (self._short, layout.short),
            (None, layout.alone[:, None]),
        ]
        units = np.empty((len(y), sum(len(where) for _, where in groups)), bool)
        column = 0
        for replay, everywhere in groups:
            for start in range(0, len(everywhere), _AT_ONCE):
                where = everywhere[start : start + _AT_ONCE]
                step = max(1, _AT_ONCE // len(where))
                for row in range(0, len(y), step):
                    rows = slice(row, row + step)
                    part, expected = y[rows][:, where], (v if len(v) == 1 else v[rows])[:, where]
                    values = np.broadcast_to(expected, part.shape)
                    units[rows, column : column + len(where)] = self._units(replay, part, values)
                column += len(where)
        ordered: Bools = units[:, layout.order]
        return ordered

    def _units(self, replay: Replay | None, y: npt.NDArray[Any], v: npt.NDArray[Any]) -> Bools:
        """Units (t, u) of releases and values (t, u, coordinates)."""
        flat, values = (np.ascontiguousarray(x.reshape(-1, x.shape[2]).T) for x in (y, v))
        if replay is None:
            units = np.asarray(self.addition.reachable(flat, values).all(0), bool)
        else:
            units = replay.feasible(flat, values, addition=self.addition, scale=self.scale)
        return units.reshape(y.shape[:2])

    def _layouts(self, k: int) -> tuple[Layout, ...]:
        """The units of a release of ``k`` numbers, for each offset that may be."""
        if k not in self._known:
            offsets = (0, 1) if self.offset == "unknown" else (int(self.offset),)
            make = self._in_tensors if self.sampler.startswith("torch-") else self._in_order
            self._known[k] = make(k, offsets)
        return self._known[k]

    def _in_order(self, k: int, offsets: tuple[int, ...]) -> tuple[Layout, ...]:
        if k < 1 + len(offsets) or (k % 2 and len(offsets) == 1):
            raise UsageError(
                f"releases of {k} numbers: {self.sampler} makes two at a time, and an odd number "
                "shifts the pairs from release to release; give each release an even number of "
                "them, or three and more with offset=unknown"
            )
        return tuple(in_order(k, offset=offset) for offset in offsets)

    def _in_tensors(self, k: int, offsets: tuple[int, ...]) -> tuple[Layout, ...]:
        if self.sizes is None and (k % BLOCK or not k):
            raise UsageError(
                f"releases of {k} numbers: torch pairs lanes j and j + 8 of blocks of 16, so how "
                "the noise was drawn matters; give each release a multiple of 16 numbers, or say "
                f"sizes={k} if each had a call of its own"
            )
        sizes = self.sizes or (k,)
        option = f"sizes={'+'.join(map(str, sizes))}"
        if sum(sizes) != k:
            raise UsageError(
                f"{option}: add up to {sum(sizes)}, but releases have {k} numbers; "
                "name every tensor"
            )
        pairing, few = self._short is not None, short(sizes)
        if pairing and few % 2 and len(offsets) == 1:
            raise UsageError(
                f"{option}: tensors below 16 values hold {few}, an odd number, which shifts their "
                "pairs from release to release; say offset=unknown"
            )
        many = offsets if pairing and few else (0,)
        return tuple(in_tensors(sizes, offset=offset, short_pairs=pairing) for offset in many)


def _parse_positive(name: str, value: float, dtype: str) -> float:
    with np.errstate(all="ignore"):
        if isinstance(value, (str, bool)) or not (
            value > 0 and np.isfinite(_FORMATS[dtype](value))
        ):
            raise UsageError(f"{name}={value}: must be a finite {dtype} number above 0")
        if not _FORMATS[dtype](value) > 0:
            raise UsageError(f"{name}={value}: is 0 as a {dtype} number; choose a larger one")
    return float(value)


def _parse_sizes(option: Sequence[int] | int | str) -> tuple[int, ...]:
    parts = (
        option.split("+")
        if isinstance(option, str)
        else [option]
        if isinstance(option, int)
        else list(option)
    )
    try:
        sizes = tuple(int(part) for part in parts)
    except (TypeError, ValueError):
        sizes = ()
    whole = isinstance(option, str) or all(isinstance(part, (int, np.integer)) for part in parts)
    if not sizes or min(sizes) < 1 or not whole or isinstance(option, bool):
        raise UsageError(
            f"sizes={option}: must be whole numbers above 0, one per tensor, e.g. sizes=400+120"
        )
    return sizes
