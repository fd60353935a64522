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
from dpaudit.numeric.exact_integers import LARGEST_SCALE, IntegerLaw, visit
from dpaudit.numeric.kernels import spread
from dpaudit.numeric.normal import all_finite, check_query, check_sigma
from dpaudit.numeric.passes import BEYOND_DTYPE, BEYOND_LATTICE, onto_lattice
from dpaudit.numeric.random_words import jit
from dpaudit.protocols import Array, DType, Host, Stream
from dpaudit.randomness import KEY_BYTES

if TYPE_CHECKING:
    import torch

__all__ = [
    "NORMAL_REACH",
    "RoundedHost",
    "add_lattice_noise",
    "add_on_lattice",
    "check_granularity",
    "in_dtype",
    "lattice_step",
    "release_on_lattice",
]

_FINENESS = 24

NORMAL_REACH = 64  # standard deviations that no noise leaves: P < exp(−2000)

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
    power of two, so all is exact in float64 while |K + Z| < 2^53, and rounded once beyond; see
    :func:`in_dtype` for narrower types. Values with |K| > 2^53 − ``margin`` are refused, by a rule
    that looks at the value and not at the noise. If ``whole``, values off the lattice are refused
    rather than rounded. Z are the numbers of ``draw_integers`` from the same stream.

    Raises:
        UsageError: no query (see ``check_query``), such a value, or a release that the dtype cannot
            hold.
    """
    n, d = check_query(query)
    exact = str(query.dtype).rpartition(".")[2] == "float32" and granularity <= 2.0**74
    flat = np.array(to_numpy(query if exact else double(query)), order="C").reshape(-1)
    _check_range(flat, margin=margin, granularity=granularity, whole=whole, name=name)
    _add_noise(flat, law, granularity, key=stream.bytes(KEY_BYTES), start=0, columns=n * d)
    return in_dtype(flat.reshape(n, d), query.dtype, device_of(query))


@jit
def _add(values, noise, over, granularity):  # type: ignore[no-untyped-def]
    """Write granularity·(rint(values·over) + noise) to ``values``."""
    for i in range(values.size):
        values[i] = (np.rint(np.float64(values[i]) * over) + np.float64(noise[i])) * granularity
        values[i] += np.float32(0)  # −0.0, from a value just below 0, is 0


@jit
def _within(values, most):  # type: ignore[no-untyped-def]
    """Whether all |values| ≤ ``most``; NaN is not."""
    wrong = False
    for i in range(values.size):
        wrong |= not (abs(np.float64(values[i])) <= most)
    return not wrong


def _chunk(values: Any, at: int, size: int) -> npt.NDArray[Any]:
    """Some of ``values`` (n,), an array or a tensor on the CPU: as float32 if it has 16 bits."""
    part = values[at : at + size]
    if part.dtype.itemsize > 2:
        return to_numpy(part)
    return part.astype(np.float32) if isinstance(part, np.ndarray) else part.float().numpy()


def _add_noise(
    values: Any, law: IntegerLaw, granularity: float, *, key: bytes, **positions: Any
) -> None:
    """Numbers of :func:`~dpaudit.numeric.exact_integers.integers_at` on ``values`` (n,) in place.

    One pass on all cores. 16-bit values are rounded by way of float32.
    """

    def finish(at: int, noise: npt.NDArray[np.int64]) -> None:
        part = _chunk(values, at, len(noise))
        _add(part, noise, 1 / granularity, granularity)
        if values.dtype.itemsize == 2:
            values[at : at + len(noise)] = part if library(values) is np else tensor(part)
            values[at : at + len(noise)] += 0.0  # float16 may have made a −0.0

    visit(law, finish, key=key, **positions)


def _all_within(values: Any, most: float) -> bool:
    """:func:`_within` for ``values`` (n,) of any type and device."""
    if library(values) is not np and values.device.type != "cpu":
        return all(abs(float(x)) <= most for x in values.aminmax())
    wrong: list[int] = []

    def work(first: int, last: int) -> None:
        parts = range(first * _CHUNK, last * _CHUNK, _CHUNK)
        wrong.extend(at for at in parts if not _within(_chunk(values, at, _CHUNK), most))

    spread(work, -(-len(values) // _CHUNK), len(values))
    return not wrong


def lattice_step(sigma: float) -> float:
    """σ·2^-24 rounded down to a power of two: a release's granularity at noise scale ``sigma``.

    Depends on σ alone, and is as fine as float32 noise: a coarser one no longer passes for the
    continuous law.

    Raises:
        UsageError: multiples of it up to 2^53 are not doubles.
    """
    exponent = math.frexp(sigma)[1] - 1 - _FINENESS
    if not -1022 <= exponent <= 969:  # as in _is_step
        raise UsageError(
            f"sigma={sigma}: multiples of σ·2^-24 up to 2^53 are not doubles; "
            "change the query's unit"
        )
    return math.ldexp(1.0, exponent)


def check_granularity(sigma: float, granularity: float | None) -> float:
    """Return ``granularity`` as a float, or :func:`lattice_step` of ``sigma`` if it is None.

    Raises:
        UsageError: sigma not a finite number > 0; granularity not a power of two, above sigma or
            below sigma/2^32; or multiples of it up to 2^53 that are not doubles.
    """
    sigma, g = check_sigma(sigma), granularity
    if g is None:
        return lattice_step(sigma)
    if isinstance(g, (str, bool)) or not _is_step(g) or not 1 <= sigma / g <= LARGEST_SCALE:
        raise UsageError(
            f"granularity={g}: must be a power of two between sigma/2^32 and sigma={sigma}, and in "
            f"2^-1022…2^969; write e.g. {lattice_step(sigma)!r}"
        )
    return float(g)


def _is_step(g: float) -> bool:
    """Whether g is a power of two whose multiples up to 2^53 are doubles."""
    return 2.0**-1022 <= g <= 2.0**969 and math.frexp(g)[0] == 0.5


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
    if not _is_step(granularity):
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
        if values.device.type != "cpu" or str(values.dtype)[-7:] not in ("float32", "float64"):
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
            piece = value[at : at + _CHUNK_TORCH].to(part.device, torch.float64)
            steps = torch.round(piece / granularity)
            added = torch.round(part.double() * (factor / granularity))
            inside = (steps.abs() < _WHOLE // 2) & (added.abs() < _WHOLE // 2)
            wrong |= 0 if bool(inside.all()) else BEYOND_LATTICE
            part.copy_((steps + added) * granularity).add_(0.0)  # 0 for −0.0
            wrong |= 0 if all_finite(part) else BEYOND_DTYPE
    return wrong


def add_lattice_noise(
    values: Array,
    *,
    sigma: float,
    key: bytes,
    start: int = 0,
    stride: int | None = None,
    granularity: float | None = None,
) -> None:
    """``values`` ← g·(K + Z) in place: K the integer nearest to value/g, Z exact Gaussian noise.

    ``values``: a contiguous array or tensor of shape (n,) or (rows, columns), float32, float64,
    float16 or bfloat16, on the CPU or a CUDA device. Z has scale σ/g and is number ``start`` +
    r·``stride`` + c of the sequence under ``key`` (32 bytes) for value (r, c), the same numbers on
    every device: see :func:`~dpaudit.numeric.exact_integers.integers_at`. g is ``granularity``, a
    power of two, or ``lattice_step(sigma)``. float64 values are exactly that, narrower ones are it
    rounded (16 bits by way of float32). −0.0 is 0. Only the values decide whether a call is
    refused, and a refused call writes nothing.

    Formal guarantee: a value released so is a function of K + Z, Z of exactly the discrete Gaussian
    law, independent of all other positions. Not claimed: constant time; a key or position that is
    used twice gives the same noise twice.

    Raises:
        UsageError: NaN, infinite, or |value| beyond g·2^53 − 64σ, or beyond the dtype's largest
            number − 64σ; another shape, dtype or layout; a sigma, granularity, key or position out
            of range.
        MissingExtraError: CUDA tensors without triton.
    """
    g = check_granularity(sigma, granularity)
    flat, rows = _flat(values), 1 if values.ndim == 1 else len(values)
    if not len(flat):
        return
    name, margin = "add_lattice_noise", math.ceil(NORMAL_REACH * sigma / g)
    largest = float(library(values).finfo(values.dtype).max)
    limit = min(_WHOLE - margin, (largest - NORMAL_REACH * sigma) / g)
    _check_range(flat, margin=_WHOLE - limit, granularity=g, whole=False, name=name)
    add = _add_noise
    if library(flat) is not np and flat.device.type != "cpu":
        from dpaudit.numeric.lattice_triton import add_noise as add
    at = {"start": start, "rows": rows, "columns": len(flat) // rows, "stride": stride}
    add(flat, IntegerLaw.gaussian(sigma / g), g, key=key, **at)


def _flat(values: Array) -> Any:
    """``values`` as (n,), sharing memory: an array where numpy has the type, else a tensor.

    Raises:
        UsageError: another shape, dtype or layout.
    """
    kind = str(values.dtype).rpartition(".")[2]
    if values.ndim not in (1, 2) or kind not in ("float16", "bfloat16", "float32", "float64"):
        raise UsageError(
            f"values of shape {tuple(values.shape)}, dtype={values.dtype}: noise is added to (n,) "
            "or (rows, columns) of float16, bfloat16, float32 or float64; reshape or convert them"
        )
    whole = values.flags.c_contiguous if library(values) is np else values.is_contiguous()
    if not whole:
        raise UsageError(
            f"values of shape {tuple(values.shape)}: not contiguous, so noise cannot be added in "
            "place; make a contiguous copy"
        )
    if library(values) is np:
        return values.reshape(-1)
    flat = values.detach().view(-1)
    return flat.numpy() if flat.device.type == "cpu" and kind != "bfloat16" else flat


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


def _check_range(values: Any, *, margin: float, granularity: float, whole: bool, name: str) -> None:
    """Raise a UsageError unless all |values| (n,) ≤ ``granularity``·(2^53 − ``margin``).

    If ``whole``, they must be multiples of ``granularity`` as well.
    """
    most = (_WHOLE - margin) * granularity
    if _all_within(values, most):
        if whole and (off := values[np.rint(values / granularity) != values / granularity]).size:
            raise UsageError(
                f"query value={float(off[0])!r}: {name} takes whole numbers; round the query first"
            )
        return
    beyond = values[~(abs(values) <= most)]
    coarser = "take a coarser granularity (from public bounds, never from the data)"
    remedy = "divide the query" if whole else coarser
    raise UsageError(
        f"query value={float(beyond[0])!r}: {name} releases multiples of "
        f"granularity={granularity!r} below 2^53 steps that dtype={values.dtype} can hold, noise "
        f"included, so |value| ≤ {most!r}; {remedy} or clip the query to that"
    )


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
