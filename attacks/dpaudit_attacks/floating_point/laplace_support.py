"""Could this Laplace sampler have made the noise at all? Its arithmetic, replayed bit for bit."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from dpaudit.errors import UsageError
from dpaudit_attacks.floating_point._support import (
    Array,
    Scored,
    in_format,
    in_pieces,
    parse_number,
)

__all__ = ["LaplaceSupport"]

_SAMPLERS = ("numpy", "scipy", "log", "torch")
_SMALLEST, _LARGEST = 1e-280, 1e280
_BITS32 = 24
_PROBE = 4096


@dataclass(frozen=True, kw_only=True)
class LaplaceSupport(Scored):
    """Which values cannot lead to a release by adding Laplace noise of a known sampler and scale.

    A sampler turns U = k·2^−bits into noise, so it hits few of the floats: its values lie
    b·exp(|noise|/b)·2^(1−bits) apart (``numpy``), mostly more than floats do. ``sampler`` names the
    expression, b is ``scale``:

    - ``numpy``: ``random_laplace`` of numpy's distributions.c, for Generator and RandomState alike:
      U < ½ gives b·log(U + U), else −b·log(2 − U − U), in float64, where 2 − U rounds. ``scipy``'s
      ``laplace.rvs`` draws this at scale 1 and multiplies: the same numbers.
    - ``log``: ±(b·log U), U = k·2^−bits, 1 ≤ k ≤ 2^bits. Also what the inverse distribution
      function −b·sgn(p)·log(1 − 2|p|) does, with one bit less.
    - ``torch``: ``torch.distributions.Laplace`` in float32, −(b·sgn(u)·log1p(−|u|)) with u =
      k·2⁻²⁴·(2 − 2⁻²³) + (2⁻²³ − 1), on the CPU. Needs torch; all 2²⁴ values are tabulated once
      (128 MiB are kept, a second).

    The release is fl(v + noise), in float64 (``torch``: float32). Which k can lead to y: all reals
    that round to y, less v, over b, through exp, give an interval of k. If k lie in it beyond
    doubt, with every rounding error taken against them (so wherever v is far above the noise and
    many k round to one y), y is feasible; else each of the at most some twenty k left is replayed
    and compared bit for bit. −0.0 and 0.0 are the same number.

    Formal guarantee: False means that no k leads to the release, and the true value is never ruled
    out, if the expression is the sampler's and ``log`` here is the one that it called. ``numpy``
    calls the C library's, as Python's ``math.log`` does; for ``log`` either that or numpy's own
    vectorised one counts (they differ in 0.3 % of cases). Not claimed: anything about releases from
    a machine with another C library, or one whose compiler fuses v − b·log(…) into one rounding
    (possible on ARM where numpy is given v as ``loc``; not on x86-64), or from torch on a GPU.
    Source: Mironov 2012 (the support of −b·log U); the replay with its error bounds is ours.

    Raises:
        UsageError: an unknown sampler, a scale outside 1e-280…1e280 (there noise is subnormal or
            overflows), bits not 1…53 (``numpy`` and ``scipy``: 2…53; ``torch``: leave them at 53,
            it has its own 24).
    """

    games = ("support", "scoring")
    harm = "last-bits"

    scale: float = 1.0
    sampler: str = "numpy"
    bits: int = 53

    def __post_init__(self) -> None:
        if self.sampler not in _SAMPLERS:
            raise UsageError(
                f"sampler={self.sampler}: cannot be replayed; choose {', '.join(_SAMPLERS)}"
            )
        if not _SMALLEST <= parse_number("scale", self.scale) <= _LARGEST:
            raise UsageError(
                f"scale={self.scale}: must be a number in {_SMALLEST}…{_LARGEST}; "
                "rescale the releases"
            )
        least = {"log": 1, "torch": 53}.get(self.sampler, 2)
        if not (isinstance(self.bits, int) and least <= self.bits <= 53):
            raise UsageError(
                f"bits={self.bits}: must be a whole number in {least}…53 for sampler={self.sampler}"
            )
        if self.sampler == "torch" and not 2.0**-100 <= self.scale <= 2.0**100:
            raise UsageError(
                f"scale={self.scale}: must be in 2^-100…2^100 for float32 noise; "
                "rescale the releases"
            )

    def _feasible(self, y: Array, v: Array) -> npt.NDArray[np.bool_]:
        return in_pieces(self._by_table if self.sampler == "torch" else self._by_replay, y, v)

    def _by_replay(self, y: Array, v: Array) -> npt.NDArray[np.bool_]:
        out: npt.NDArray[np.bool_] = y == v  # noise 0 is in every sampler's support
        at = np.flatnonzero(~out)
        y, v = y[at], v[at]
        positive = y > v
        # noise is −b·log(w) with w ≈ j·2^−m: j = k, or counted from the other end
        # where numpy computes 2 − U − U
        m = self.bits if self.sampler == "log" else self.bits - 1
        low, high, sure = _indices(y, v, positive, scale=self.scale, bits=m)
        out[at[sure]] = True
        left = np.flatnonzero(~sure)
        j = low[left]
        while len(left):
            going = j <= high[left]
            left, j = left[going], j[going]
            hit = self._leads(j, positive[left], v[left], y[left])
            out[at[left[hit]]] = True
            left, j = left[~hit], j[~hit] + 1
        return out

    def _leads(
        self, j: npt.NDArray[np.int64], positive: npt.NDArray[np.bool_], v: Array, y: Array
    ) -> Any:
        """Whether the uniform number j, on its side of 0, gives exactly y."""
        if self.sampler == "log":
            u = np.ldexp(j.astype(np.float64), -self.bits)
            sizes = [self.scale * _libm_log(u), self.scale * np.log(u)]
            return np.logical_or(*(v + np.where(positive, -size, size) == y for size in sizes))
        u = np.ldexp(np.where(positive, 2**self.bits - j, j).astype(np.float64), -self.bits)
        w = np.where(positive, (2.0 - u) - u, u + u)
        size = self.scale * _libm_log(w)
        return v + np.where(positive, -size, size) == y

    def _by_table(self, y: Array, v: Array) -> npt.NDArray[np.bool_]:
        """By the lemma of ``_support``: the noise next to y − v, on either side."""
        release = in_format(y, np.float32, "sampler=torch is float32")
        with np.errstate(over="ignore", under="ignore"):
            value = v.astype(np.float32)
        if not np.isfinite(value).all():
            raise UsageError(
                "value: above the largest float32 number; give one that the mechanism can hold"
            )
        noise = _torch_noise(float(np.float32(self.scale)))
        place = np.searchsorted(noise, (y - value).astype(np.float64))
        out = np.zeros(y.shape, np.bool_)
        with np.errstate(over="ignore"):
            for step in (-1, 0, 1):
                out |= value + noise[np.clip(place + step, 0, len(noise) - 1)] == release
        return out


def _indices(
    y: Array, v: Array, positive: npt.NDArray[np.bool_], *, scale: float, bits: int
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
    """Least and greatest j worth a replay, within 1…2^bits; y ≠ v.

    And where some j is certainly feasible. With x = |noise|/b, j ≈ exp(−x)·2^bits.
    Rounding y − v, the half gaps, the quotient and the sampler's own log and product moves x by
    less than 6·2⁻⁵³ of the greatest term, exp by 2·2⁻⁵³: ``slack`` is above both. One more j on
    each side is numpy's rounding of 2 − U, another the rounding of j itself. Where x is above 10^6
    no j is near.
    """
    with np.errstate(over="ignore", under="ignore"):
        up, down = np.nextafter(y, np.inf) - y, y - np.nextafter(y, -np.inf)
        up, down = np.where(np.isinf(up), down, up), np.where(np.isinf(down), up, down)
        away, back = np.where(positive, up, down) / 2, np.where(positive, down, up) / 2
        size = np.minimum(np.abs(y - v), np.finfo(np.float64).max / 2)
        far, near = (np.clip((size + gap) / scale, 0, 1e6) for gap in (away, -back))
        slack = 2.0**-50 * (1 + far)
        count = 2.0**bits
        high = np.floor(np.exp(-np.maximum(near - slack, 0)) * count) + 2
        low = np.floor(np.exp(-(far + slack)) * count) - 2
        first = np.maximum(np.ceil(np.exp(-np.maximum(far - slack, 0)) * count) + 2, 1)
        last = np.minimum(np.floor(np.exp(-(near + slack)) * count) - 2, count)
    return (
        np.clip(low, 1, count).astype(np.int64),
        np.clip(high, 1, count).astype(np.int64),
        first <= last,
    )


def _libm_log(x: Array) -> Array:
    """The C library's log, which numpy's compiled samplers call; ``numpy.log`` is another one."""
    return np.fromiter(map(math.log, x.tolist()), np.float64, len(x))


@functools.lru_cache(maxsize=1)
def _torch_noise(scale: float) -> npt.NDArray[np.float32]:
    """Everything that torch's float32 Laplace noise can be, ascending."""
    return np.multiply(_torch_unit_noise(), np.float32(scale))


@functools.lru_cache(maxsize=1)
def _torch_unit_noise() -> npt.NDArray[np.float32]:
    """The same at scale 1, by torch's own log1p on all its uniforms."""
    import torch

    least = np.float32(torch.finfo(torch.float32).eps - 1)
    width = np.float32(1) - least
    grid = np.arange(2**_BITS32) * 2.0**-_BITS32
    sample = (
        torch.empty(_PROBE)
        .uniform_(float(least), 1, generator=torch.Generator().manual_seed(0))
        .numpy()
    )
    fused = (grid * float(width) + float(least)).astype(np.float32)
    for u in (fused, grid.astype(np.float32) * width + least):
        if np.array_equal(u[np.searchsorted(u[:-1], sample)], sample):
            break
    else:
        raise UsageError(
            "sampler=torch: this torch draws uniforms in a way that is not known; use torch 2.13.0"
        )
    t = torch.from_numpy(u)
    return np.sort((-(t.sign() * torch.log1p(-t.abs()))).numpy(), kind="stable")
