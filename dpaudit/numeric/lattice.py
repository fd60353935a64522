"""Releases on a lattice: the query rounded to it, noise in whole steps, nothing rounded after.

The noise is exact integers (``release_on_lattice``), or third-party floating-point noise
rounded to the lattice (``add_on_lattice``): then the law is that noise's, but the release's low
bits say nothing of the query.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from dpaudit.errors import UsageError
from dpaudit.numeric.arrays import (
    device_of,
    double,
    is_floating,
    is_torch,
    library,
    tensor,
    to_numpy,
    torch_dtype,
)
from dpaudit.numeric.exact_integers import draw_integers
from dpaudit.numeric.exact_law import IntegerLaw
from dpaudit.numeric.normal import all_finite, check_query
from dpaudit.numeric.passes import BEYOND_DTYPE, BEYOND_LATTICE, onto_lattice
from dpaudit.protocols import Array, DType, Host, Stream

if TYPE_CHECKING:
    import torch

__all__ = [
    "RoundedHost",
    "add_on_lattice",
    "in_dtype",
    "lattice_step",
    "release_on_lattice",
]

_FINENESS = 24

_CHUNK = 1 << 15
_CHUNK_TORCH = 1 << 22
_WHOLE = 2**53  # below it in magnitude every integer is a double

Floats = npt.NDArray[np.float64]


def release_on_lattice(
    query: Array,
    *,
    law: IntegerLaw,
    margin: int,
    granularity: float,
    whole: bool,
    stream: Stream,
    name: str,
) -> Array:
    """``granularity``·(K + Z) per value: K the integer nearest to value/``granularity``, Z by law.

    Same shape (n, d), dtype and device as ``query``, which is not changed. ``granularity`` is a
    power of two, so all is exact in float64 while |K + Z| < 2^53; see :func:`in_dtype` for narrower
    types. Values with |K| > 2^53 − ``margin`` are refused, by a rule that looks at the value and
    not at the noise. If ``whole``, values off the lattice are refused rather than rounded.

    Raises:
        UsageError: no query (see ``check_query``), such a value, or a release that the dtype cannot
            hold.
    """
    n, d = check_query(query)
    values = to_numpy(double(query)).reshape(-1)
    out = np.empty(n * d)
    for at in range(0, len(out), _CHUNK):  # in cache
        part = values[at : at + _CHUNK]
        noise = _steps(part, margin=margin, granularity=granularity, whole=whole, name=name)
        noise += draw_integers(len(part), law, stream=stream)
        # beyond the margin: never seen, and no reason to release it
        if np.abs(noise).max() >= _WHOLE:
            raise UsageError(
                f"{name}: noise beyond its margin of {margin} steps; "
                "nothing was released, release again"
            )
        np.multiply(noise, granularity, out=out[at : at + _CHUNK])
    return in_dtype(out.reshape(n, d), query.dtype, device_of(query))


def lattice_step(sigma: float) -> float:
    """σ·2^-24 rounded down to a power of two: a release's granularity at noise scale ``sigma``.

    Depends on σ alone, and is as fine as float32 noise: a coarser one no longer passes for the
    continuous law.

    Raises:
        UsageError: multiples of it up to 2^53 are not doubles.
    """
    exponent = math.frexp(sigma)[1] - 1 - _FINENESS
    if not -1022 <= exponent <= 969:
        raise UsageError(
            f"sigma={sigma}: multiples of σ·2^-24 up to 2^53 are not doubles; "
            "change the query's unit"
        )
    return math.ldexp(1.0, exponent)


def add_on_lattice(
    query: Array,
    noise: Array,
    *,
    granularity: float,
    name: str,
    factors: npt.NDArray[np.float64] | None = None,
    dtype: DType | None = None,
) -> Array:
    """``granularity``·(K + Z): K and Z the integers nearest to the query and the noise in steps.

    ``query`` and ``noise``, both (n, d), are divided by ``granularity`` for that. ``noise`` is used
    up: the release is written over it (where it is contiguous) and returned, unless it is wanted in
    another ``dtype``. ``factors`` (n,), one per row, multiply the noise first, in float64.
    ``granularity`` is a power of two. Neither sum nor product rounds in float64; a narrower dtype
    of ``noise``, or a narrower ``dtype``, rounds the released value, which is post-processing. On
    the CPU one compiled pass for float32 and float64; other dtypes and devices in chunks by torch.

    Formal guarantee: given Z, which does not depend on the query, the release is a function of K
    alone. Not claimed: that Z has an exact law; it is the rounded law of what ``noise`` is. So
    noise that is to protect something must be float64: float32 numbers beyond 2^24 steps (about σ,
    with ``lattice_step``) are even steps only, and a candidate that leaves an odd one there is
    ruled out with certainty, whatever ε was promised.

    Raises:
        UsageError: |K + Z| ≥ 2^53 is possible (a value, or the noise, is beyond the lattice's
            range), or values that the dtype cannot hold; other shapes; a granularity that is no
            power of two.
    """
    if query.ndim != 2 or query.shape != noise.shape:
        raise UsageError(
            f"noise of shape {tuple(noise.shape)}: needs the query's {tuple(query.shape)}, "
            "one row per release"
        )
    if not 2.0**-1022 <= granularity <= 2.0**969 or math.frexp(granularity)[0] != 0.5:
        raise UsageError(
            f"granularity={granularity}: must be a power of two in 2^-1022…2^969; "
            "take lattice_step(sigma)"
        )
    if factors is None:
        factors = np.ones(len(noise))
    mine, theirs = _plain(query), _plain(noise)
    if mine is not None and theirs is not None:
        narrow = None if dtype in (None, noise.dtype) else str(dtype).rpartition(".")[2]
        out = np.empty(noise.shape, narrow) if narrow in ("float32", "float64") else None
        wrong = onto_lattice(mine, theirs, factors=factors, granularity=granularity, out=out)
        released = theirs if out is None else out
        released = released if library(noise) is np else tensor(released)
    else:
        released = noise.contiguous()
        wrong = _by_torch(query.detach(), released, factors, granularity)
    if wrong & BEYOND_LATTICE:
        raise UsageError(
            f"query: {name} releases multiples of granularity={granularity!r} below 2^53 steps, "
            f"so |value| < {_WHOLE // 2 * granularity!r}; clip the query to that or change its unit"
        )
    if wrong:
        raise UsageError(
            f"dtype={released.dtype}: too narrow for the release of {name}; use float64"
        )
    if dtype is None or dtype == released.dtype:
        return released
    return in_dtype(released, dtype, device_of(released))


def _plain(values: Array) -> npt.NDArray[Any] | None:
    """A contiguous float32 or float64 array of these values, if they are on the CPU."""
    if library(values) is not np:
        if values.device.type != "cpu" or str(values.dtype) not in (
            "torch.float32",
            "torch.float64",
        ):
            return None
        values = to_numpy(values)
    elif values.dtype not in (np.float32, np.float64):
        values = values.astype(np.float64)
    return np.ascontiguousarray(values)


def _by_torch(
    query: torch.Tensor, noise: torch.Tensor, factors: npt.NDArray[np.float64], granularity: float
) -> int:
    """:func:`~dpaudit.numeric.passes.onto_lattice` for tensors of any dtype and device."""
    import torch

    wrong = 0
    for value, own, factor in zip(query, noise, factors.tolist(), strict=True):
        for at in range(0, len(own), _CHUNK_TORCH):
            part = own[at : at + _CHUNK_TORCH]
            steps = torch.round(
                value[at : at + _CHUNK_TORCH].to(part.device, torch.float64) / granularity
            )
            added = torch.round(part.double() * (factor / granularity))
            inside = (steps.abs() < _WHOLE // 2) & (added.abs() < _WHOLE // 2)
            wrong |= 0 if bool(inside.all()) else BEYOND_LATTICE
            part.copy_((steps + added) * granularity).add_(0.0)  # 0 for −0.0
            wrong |= 0 if all_finite(part) else BEYOND_DTYPE
    return wrong


@dataclass(frozen=True)
class RoundedHost:
    """A host whose query was rounded to a lattice first, for upper bounds.

    Δ grows by g√d, and ⟨·, w⟩ moves by up to g‖w‖₁.
    """

    host: Host
    granularity: float

    @property
    def dim(self) -> int:
        return self.host.dim

    @property
    def sensitivity(self) -> float:
        """Δ + g√d: each of two neighbours moves by at most g/2 per coordinate."""
        return self.host.sensitivity + self.granularity * math.sqrt(self.host.dim)

    def neighbours(self, n: int, *, stream: Stream) -> Array:
        """The host's own pairs, not rounded."""
        return self.host.neighbours(n, stream=stream)

    def differences(self, direction: Floats) -> Floats:
        """The host's own, not rounded: see :meth:`slack`."""
        return self.host.differences(direction)

    def slack(self, direction: Floats) -> float:
        """g‖w‖₁ more than the host's: both neighbours move by at most g/2 per coordinate."""
        own = float(self.host.slack(direction)) if hasattr(self.host, "slack") else 0.0
        return own + self.granularity * float(abs(direction).sum())


def _steps(
    values: Floats, *, margin: int, granularity: float, whole: bool, name: str
) -> npt.NDArray[np.int64]:
    """The nearest multiples of ``granularity``, counted."""
    with np.errstate(over="ignore"):
        steps = values / granularity  # exact; infinite where it is too large anyway
    nearest = np.rint(steps)
    most = _WHOLE - margin
    if whole and (off := values[nearest != steps]).size:
        raise UsageError(
            f"query value={float(off[0])!r}: {name} takes whole numbers; round the query first"
        )
    if (beyond := values[~(np.abs(nearest) <= most)]).size:
        remedy = (
            "divide the query"
            if whole
            else "take a coarser granularity (from public bounds, never from the data)"
        )
        raise UsageError(
            f"query value={float(beyond[0])!r}: {name} releases multiples of "
            f"granularity={granularity!r} below 2^53 steps, noise included, "
            f"so |value| ≤ {most * granularity!r}; {remedy} or clip the query to that"
        )
    return nearest.astype(np.int64)


def in_dtype(exact: Array, dtype: DType | None, device: torch.device | None = None) -> Array:
    """Values rounded to a floating-point ``dtype`` (None: float64), 0 for −0.0.

    float16 and bfloat16 are rounded by way of float32. An integer type must hold them as they are.
    Both this and the refusal look at nothing but the values: post-processing. A tensor, as for
    ``cast_to``, if the dtype is torch's or a device is given.

    Raises:
        UsageError: values that ``dtype`` cannot hold.
    """
    out: Array
    if is_torch(dtype, device):
        out, fits = _as_tensor(tensor(exact), torch_dtype(dtype), device)
    else:
        out, fits = _as_array(to_numpy(exact), np.dtype(np.float64 if dtype is None else dtype))
    if not fits:
        most = float(abs(exact).max())
        raise UsageError(
            f"dtype={dtype}: too narrow for these values, up to {most:.3g} in size; use float64"
        )
    return out


def _as_tensor(
    exact: torch.Tensor, dtype: torch.dtype, device: torch.device | None
) -> tuple[torch.Tensor, bool]:
    import torch

    out = exact.to(device=device, dtype=dtype)
    if dtype == torch.float64:
        return out, True
    if dtype.is_floating_point:
        return (out.add_(0), True) if all_finite(out) else (out, False)
    return out, torch.equal(out.to("cpu", torch.float64), exact.to("cpu", torch.float64))


def _as_array(exact: npt.NDArray[Any], dtype: np.dtype[Any]) -> tuple[npt.NDArray[Any], bool]:
    with np.errstate(over="ignore", invalid="ignore"):
        narrow = exact.astype(np.float32) if dtype == np.float16 else exact
        out = narrow.astype(dtype, copy=False)
    if dtype == np.float64:
        return out, True
    if is_floating(dtype):
        return (out + out.dtype.type(0), True) if all_finite(out) else (out, False)
    return out, bool(np.array_equal(out.astype(np.float64), exact))
