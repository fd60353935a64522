"""One code for numpy's arrays and torch's tensors: whoever brings the data chooses the library.

``numpy`` does the work of a query that is an array, and torch that of a tensor; noise is an array
unless a torch dtype or a device asks for a tensor. Torch is imported only then.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from dpaudit.protocols import Array, DType

if TYPE_CHECKING:
    import torch

__all__ = [
    "cast_to",
    "converted",
    "device_of",
    "double",
    "drawing_dtype",
    "is_floating",
    "is_torch",
    "library",
    "on_tensors",
    "tensor",
    "to_numpy",
    "torch_dtype",
    "zeros",
]


def library(values: Array) -> Any:
    """``numpy`` or ``torch``, whichever ``values`` belong to: both know ``exp``, ``sum``, ….

    Raises:
        TypeError: neither an array nor a tensor.
    """
    if isinstance(values, (np.ndarray, np.generic)):
        return np
    import torch

    if not isinstance(values, torch.Tensor):
        raise TypeError(f"{type(values).__name__}: neither a numpy array nor a torch tensor")
    return torch


def device_of(values: Array) -> torch.device | None:
    """A tensor's device; None for an array."""
    return None if library(values) is np else values.device


def zeros(shape: tuple[int, ...], *, beside: Array) -> Array:
    """Float64 zeros in the library of ``beside`` and on its device."""
    return np.zeros(shape) if library(beside) is np else beside.new_zeros(shape).double()


def to_numpy(values: Array) -> npt.NDArray[Any]:
    """As an array on the CPU; the values of a CPU tensor are not copied."""
    array: npt.NDArray[Any] = values if library(values) is np else values.detach().cpu().numpy()
    return array


def tensor(values: Any) -> Any:
    """As a tensor, if it is an array; its values are not copied."""
    if not isinstance(values, np.ndarray):
        return values
    import torch

    return torch.from_numpy(values if values.flags.writeable else values.copy())


def double(values: Array) -> Array:
    """As float64, of the same library and on the same device."""
    return values.astype(np.float64, copy=False) if library(values) is np else values.double()


def converted(values: Array, dtype: DType | None) -> Array:
    """As another type of the same library's; None is float64."""
    if library(values) is np:
        return values.astype(np.float64 if dtype is None else dtype, copy=False)
    return values.to(torch_dtype(dtype))


def torch_dtype(dtype: DType | None) -> torch.dtype:
    """The same type of torch's; None is float64."""
    import torch

    if isinstance(dtype, torch.dtype):
        return dtype
    name = "float64" if dtype is None else str(np.dtype(dtype))
    converted: torch.dtype = getattr(torch, name)
    return converted


def is_torch(dtype: DType | None, device: torch.device | None) -> bool:
    """Whether this dtype or device asks for a tensor."""
    return device is not None or type(dtype).__module__.partition(".")[0] == "torch"


def drawing_dtype(dtype: DType | None) -> type[np.float32] | type[np.float64]:
    """The type that noise of ``dtype`` is drawn in: narrower ones are rounded from float32."""
    name = "float64" if dtype is None else str(dtype if is_torch(dtype, None) else np.dtype(dtype))
    return np.float64 if name.removeprefix("torch.") == "float64" else np.float32


def is_floating(dtype: DType | None) -> bool:
    """Whether the dtype is floating-point; None is float64."""
    if dtype is None:
        return True
    if is_torch(dtype, None):
        return bool(dtype.is_floating_point)
    return np.issubdtype(np.dtype(dtype), np.floating)


def cast_to(
    values: npt.NDArray[Any], dtype: DType | None, device: torch.device | None = None
) -> Array:
    """``values`` as ``dtype`` (None: float64): a tensor if it is torch's, or a device is given."""
    if not is_torch(dtype, device):
        return values.astype(np.float64 if dtype is None else dtype, copy=False)
    import torch

    return torch.from_numpy(values).to(dtype=torch_dtype(dtype), device=device)


def on_tensors(method: Callable[..., Any]) -> Callable[..., Any]:
    """A method written for tensors that takes arrays, too; then it returns an array for a tensor.

    For a mitigation's ``release``, or what an attack does with releases.
    """

    @functools.wraps(method)
    def either(self: Any, *values: Any, **named: Any) -> Any:
        arrays = any(isinstance(value, np.ndarray) for value in (*values, *named.values()))
        if not arrays:
            return method(self, *values, **named)
        import torch

        result = method(self, *map(tensor, values), **{k: tensor(v) for k, v in named.items()})
        return result.numpy() if isinstance(result, torch.Tensor) else result

    return either
