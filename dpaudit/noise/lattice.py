"""Releases on a lattice: the query rounded to it, exact integer noise added to the integers, nothing rounded afterwards."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch

from dpaudit.errors import UsageError
from dpaudit.interfaces import Stream
from dpaudit.noise.exact_integers import draw_integers
from dpaudit.noise.exact_law import IntegerLaw
from dpaudit.noise.normal import all_finite, check_query, check_shape

__all__ = ["in_dtype", "lattice_noise", "release_on_lattice"]

_CHUNK = 1 << 15
_WHOLE = 2**53  # below it in magnitude every integer is a double

Array = npt.NDArray[np.float64]


def lattice_noise(
    n: int,
    d: int,
    *,
    law: IntegerLaw,
    granularity: float,
    stream: Stream,
    dtype: torch.dtype | None,
    device: torch.device | None,
) -> torch.Tensor:
    """``granularity`` times integers of that law, shape (n, d), float64 on the CPU unless told otherwise.

    Raises:
        UsageError: n or d below 1, or noise that ``dtype`` cannot hold.
    """
    check_shape(n, d)
    noise = draw_integers(n * d, law, stream=stream).reshape(n, d) * granularity
    return in_dtype(torch.from_numpy(noise), dtype or torch.float64, device or torch.device("cpu"))


def release_on_lattice(
    query: torch.Tensor, *, law: IntegerLaw, margin: int, granularity: float, whole: bool, stream: Stream, name: str
) -> torch.Tensor:
    """``granularity``·(K + Z) for each value: K the nearest integer to value/``granularity``, Z of that law.

    Same shape (n, d), dtype and device as ``query``, which is not changed. ``granularity`` is a power of two, so all is
    exact in float64 while |K + Z| < 2^53; see :func:`in_dtype` for narrower types. Values with |K| > 2^53 −
    ``margin`` are refused, by a rule that looks at the value and not at the noise. If ``whole``, values off the lattice are
    refused rather than rounded.

    Raises:
        UsageError: no query (see ``check_query``), such a value, or a release that the dtype cannot hold.
    """
    n, d = check_query(query)
    values = query.detach().to("cpu", torch.float64).numpy().reshape(-1)
    out = np.empty(n * d)
    for at in range(0, len(out), _CHUNK):  # in cache
        part = values[at : at + _CHUNK]
        noise = _steps(part, margin=margin, granularity=granularity, whole=whole, name=name)
        noise += draw_integers(len(part), law, stream=stream)
        if np.abs(noise).max() >= _WHOLE:  # beyond the margin: never seen, and no reason to release it
            raise UsageError(f"{name}: noise beyond its margin of {margin} steps; nothing was released, release again")
        np.multiply(noise, granularity, out=out[at : at + _CHUNK])
    return in_dtype(torch.from_numpy(out.reshape(n, d)), query.dtype, query.device)


def _steps(values: Array, *, margin: int, granularity: float, whole: bool, name: str) -> npt.NDArray[np.int64]:
    """The nearest multiples of ``granularity``, counted."""
    with np.errstate(over="ignore"):
        steps = values / granularity  # exact; infinite where it is too large anyway
    nearest = np.rint(steps)
    most = _WHOLE - margin
    if whole and (off := values[nearest != steps]).size:
        raise UsageError(f"query value={float(off[0])!r}: {name} takes whole numbers; round the query first")
    if (beyond := values[~(np.abs(nearest) <= most)]).size:
        remedy = "divide the query" if whole else "take a coarser granularity (from public bounds, never from the data)"
        raise UsageError(
            f"query value={float(beyond[0])!r}: {name} releases multiples of granularity={granularity!r} that are below "
            f"2^53 of them, noise included, so |value| ≤ {most * granularity!r}; {remedy} or clip the query to that"
        )
    return nearest.astype(np.int64)


def in_dtype(exact: torch.Tensor, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """Float64 values rounded to a floating-point ``dtype`` (float16 and bfloat16 by way of float32), 0 for −0.0.

    An integer type must hold them as they are. Both this and the refusal look at nothing but the values: post-processing.

    Raises:
        UsageError: values that ``dtype`` cannot hold.
    """
    out = exact.to(device=device, dtype=dtype)
    if dtype == torch.float64:
        return out
    whole = not dtype.is_floating_point
    if not (torch.equal(out.to("cpu", torch.float64), exact) if whole else all_finite(out)):
        most = float(exact.abs().max())
        raise UsageError(f"dtype={dtype}: too narrow for these values, up to {most:.3g} in size; use float64")
    return out if whole else out.add_(0)
