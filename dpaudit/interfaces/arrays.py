"""Numbers on the way from a query to a release: numpy's arrays or torch's tensors."""

from __future__ import annotations

from typing import Any, TypeAlias

__all__ = ["Array", "DType"]

Array: TypeAlias = Any
"""A ``numpy.ndarray`` or a ``torch.Tensor``: the library of the query does the work.

``Any`` to a type checker, as the two share operators and not methods.
"""

DType: TypeAlias = Any
"""A type of numbers: numpy's or torch's."""
