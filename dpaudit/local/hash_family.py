"""What a family of hash functions is, and what all families refuse."""

from __future__ import annotations

from typing import Any, NoReturn, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from dpaudit.errors import UsageError
from dpaudit.local.inputs import whole_number

__all__ = ["HashFamily", "check_family", "check_function", "check_functions", "refuse"]


@runtime_checkable
class HashFamily(Protocol):
    """``count`` functions from objects (integers from 0) to positions 0 … ``size`` − 1.

    Equal families compare equal.
    """

    @property
    def count(self) -> int:
        """The number of functions."""

    @property
    def size(self) -> int:
        """The number of positions, m."""

    def positions(self, objects: npt.NDArray[np.int64], function: int) -> npt.NDArray[np.uint32]:
        """Positions (n,) of ``objects`` (n,) under one function.

        Raises:
            UsageError: an object or the function is outside the family's range.
        """

    def each(
        self, objects: npt.NDArray[np.int64], functions: npt.NDArray[np.uint32]
    ) -> npt.NDArray[np.uint32]:
        """Positions (n,) of ``objects`` (n,), each under its own of ``functions`` (n,).

        The same as :meth:`positions`.

        Raises:
            UsageError: an object or a function is outside the family's range.
        """


def check_family(count: int, size: int) -> tuple[int, int]:
    """Both as ints; refuses (``UsageError``) families of no or too many functions or positions."""
    return (
        whole_number("count", count, 1, 1 << 32, hint=": so many hash functions"),
        whole_number("size", size, 2, 1 << 32, hint=": so many positions has a sketch"),
    )


def check_function(function: int, count: int) -> None:
    """Refuse (``UsageError``) a function that a family of ``count`` does not have."""
    if not 0 <= function < count:
        raise UsageError(f"function={function}: the family's functions are 0 … {count - 1}")


def check_functions(functions: npt.NDArray[Any], objects: npt.NDArray[Any], count: int) -> None:
    """Refuse (``UsageError``) functions (n,) that do not fit the objects or the ``count``."""
    if functions.shape != objects.shape:
        raise UsageError(
            f"functions={functions.shape}: one function per object, and there are {objects.shape}"
        )
    if functions.size and not 0 <= functions.min() <= functions.max() < count:
        raise UsageError(
            f"functions={functions.min()} … {functions.max()}: the family's are 0 … {count - 1}"
        )


def refuse(objects: npt.NDArray[np.int64], limit: int) -> NoReturn:
    """Raise the ``UsageError`` for objects of which one is not in 0 … ``limit`` − 1."""
    raise UsageError(
        f"objects={objects.min()} … {objects.max()}: "
        f"objects are whole numbers from 0 to {limit - 1}"
    )
