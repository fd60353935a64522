"""Records of whatever a training takes: arrays, tuples of arrays, lists, data frames, data sets."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from dpaudit.errors import UsageError

__all__ = ["count", "digest", "join", "record", "take", "values", "whole"]

Indices = npt.NDArray[np.intp]
_KINDS = (
    "an array or tensor, a tuple of arrays of one length, a list of records, a data frame, "
    "or a torch data set"
)


def count(data: Any, *, name: str) -> int:
    """The number of records.

    Raises:
        UsageError: not a kind of data that is known, or arrays of different lengths.
    """
    if isinstance(data, tuple):
        lengths = {count(part, name=name) for part in data}
        if len(lengths) != 1:
            raise UsageError(f"{name}: arrays of lengths {sorted(lengths)}; all must have one row")
        return lengths.pop()
    if not (hasattr(data, "__len__") and hasattr(data, "__getitem__")) or isinstance(
        data, (str, bytes, dict)
    ):
        raise UsageError(f"{name}={type(data).__name__}: must be {_KINDS}")
    return len(data)


def take(data: Any, rows: Indices) -> Any:
    """The records with these numbers, in the same kind of container."""
    if isinstance(data, tuple):
        return tuple(take(part, rows) for part in data)
    if hasattr(data, "iloc"):
        return data.iloc[rows]
    if isinstance(data, list):
        return [data[i] for i in rows]
    if hasattr(data, "shape"):  # an array; a tensor takes no numpy index on every device
        return data[rows] if isinstance(data, np.ndarray) else data[rows.tolist()]
    return _torch("Subset")(data, rows.tolist())


def record(data: Any, row: int) -> Any:
    """One record: a row of each array, an element of a list, a row of a data frame."""
    if isinstance(data, tuple):
        return tuple(record(part, row) for part in data)
    return data.iloc[row] if hasattr(data, "iloc") else data[row]


def join(first: Any, second: Any) -> Any:
    """All records of ``first``, then those of ``second``, which are of the same kind.

    Raises:
        UsageError: they are of different kinds, or of shapes that do not fit.
    """
    if type(first) is not type(second) and not _are_torch_data(first, second):
        raise UsageError(
            f"canaries={type(second).__name__}: must be of the same kind as data, "
            f"{type(first).__name__}"
        )
    try:
        if isinstance(first, tuple):
            return tuple(join(a, b) for a, b in zip(first, second, strict=True))
        if hasattr(first, "iloc"):
            return sys.modules["pandas"].concat([first, second])
        if isinstance(first, list):
            return [*first, *second]
        if isinstance(first, np.ndarray):
            return np.concatenate([first, second])
        if hasattr(first, "shape"):
            return sys.modules["torch"].cat([first, second])
        return _torch("ConcatDataset")([first, second])
    except (ValueError, RuntimeError) as error:
        raise UsageError(f"canaries: do not fit the data: {error}") from None


def _are_torch_data(*containers: Any) -> bool:
    return all(
        not isinstance(data, (tuple, list)) and not hasattr(data, "shape") for data in containers
    )


def _torch(name: str) -> Any:
    data: Any = sys.modules.get("torch.utils.data")
    if data is None:
        raise UsageError(f"data: must be {_KINDS}")
    return getattr(data, name)


def digest(data: Any) -> str:
    """The number of records, and a hash of up to 16 if they are rows of arrays."""
    if isinstance(data, tuple):
        return ", ".join(map(digest, data))
    if not hasattr(data, "shape"):
        return f"{len(data)} records"
    some = take(data, np.unique(np.linspace(0, len(data) - 1, 16).astype(np.intp)))
    rows = repr((some.to_numpy() if hasattr(some, "iloc") else some).tolist()).encode()
    return f"{len(data)} records {hashlib.sha256(rows).hexdigest()[:16]}"


def whole(value: Any) -> Any:
    """A sharded tensor (``DTensor``) on every rank as a whole; anything else as it is."""
    return value.full_tensor() if hasattr(value, "full_tensor") else value


def values(scores: Sequence[float] | Any, *, of: int) -> npt.NDArray[np.float64]:
    """Scores (of,) as float64.

    Raises:
        UsageError: not so many, or one that is no finite number.
    """
    scores = whole(scores)
    if hasattr(scores, "detach"):
        scores = scores.detach().cpu().numpy()
    try:
        array = np.asarray(scores, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise UsageError(f"score: returned something that is not a number ({error})") from None
    if array.shape != (of,):
        raise UsageError(f"score: has shape {array.shape}; one number for each of {of} canaries")
    if not np.isfinite(array).all():
        at = int(np.flatnonzero(~np.isfinite(array))[0])
        raise UsageError(f"score: {array[at]} of canary {at} is not finite; clip it")
    return array
