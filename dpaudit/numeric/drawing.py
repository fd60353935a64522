"""What sources that draw on the CPU share: checks of shape and device, and the type asked for."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy.typing as npt

from dpaudit.errors import UsageError
from dpaudit.numeric.arrays import cast_to, is_floating
from dpaudit.numeric.lattice import in_dtype
from dpaudit.numeric.normal import check_shape
from dpaudit.protocols import Array, DType, Stream

if TYPE_CHECKING:
    import torch

__all__ = ["cpu_sample"]

Draw = Callable[..., npt.NDArray[Any]]
_NAMES = ("__module__", "__name__", "__qualname__", "__doc__")


def cpu_sample(
    *, exact: bool = False, floating: bool = False, only: str = ""
) -> Callable[[Draw], Callable[..., Array]]:
    """Make a source's ``sample`` of a method ``(self, n, d, *, stream)`` that draws an array.

    The array has shape (n, d).
    ``sample`` takes ``dtype`` and ``device`` as well, as ``NoiseSource`` says: what was drawn is
    rounded to ``dtype`` (``cast_to``), or, if ``exact``, refused where ``dtype`` has no room for
    it (``in_dtype``), and then moved to ``device``. ``floating``: the source has no integers.
    ``only`` says why no other device than the CPU will do.

    ``sample`` raises:
        UsageError: n or d below 1; another device, with ``only``; a type that is not
            floating-point, if ``floating``; values beyond ``dtype``, if ``exact``.
    """

    def decorate(draw: Draw) -> Callable[..., Array]:
        def sample(
            source: Any,
            n: int,
            d: int,
            *,
            stream: Stream,
            dtype: DType | None = None,
            device: torch.device | None = None,
        ) -> Array:
            check_shape(n, d)
            if only and device is not None and device.type != "cpu":
                raise UsageError(f"device={device}: {only}; use device=cpu")
            if floating and not is_floating(dtype):
                raise UsageError(f"dtype={dtype}: has no integers; take a floating-point type")
            convert = in_dtype if exact else cast_to
            return convert(draw(source, n, d, stream=stream), dtype, device)

        functools.update_wrapper(sample, draw, assigned=_NAMES)
        del vars(sample)["__wrapped__"]  # its parameters are fewer
        return sample

    return decorate
