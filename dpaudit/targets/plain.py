"""Data sets and releases in plain form: what passes between processes, and what can be compared.

Whatever a mechanism takes or returns is turned into numbers, text, bytes, ``None``, lists, tuples,
dicts and arrays of float64, and written as MessagePack. Reading it builds nothing else: no class of
a caller's is looked up and nothing is unpickled.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping, Sequence, Set
from enum import Enum
from itertools import islice
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from dpaudit.errors import SamplerOutputError, UsageError

__all__ = ["dataset_copy", "jsonable", "of_json", "packed", "packed_dataset", "plain"]
__all__ += ["releases_of", "unpacked", "unpacked_dataset"]

_DEEPEST = 32
_EXACT = 1 << 53
_WIDEST = 1 << 63
_WRITTEN = ("datetime", "decimal", "fractions", "uuid")
"""Modules whose values are released as text."""
_SCALARS = (type(None), bool, int, float, str, bytes)
_NONE_OF_THESE = object()

Array = npt.NDArray[np.float64]


def plain(given: Any, *, depth: int = 0) -> Any:
    """``given`` as ``None``, bool, int, float, str, bytes, list, tuple, dict or a float64 array.

    Scalars of numpy become Python's, arrays of numbers float64 (lists of whole numbers where
    float64 would round), sets lists in a fixed order, dataclasses and named tuples dicts, tensors
    arrays, complex numbers pairs, dates and members of enumerations text, pandas' NA ``None``. A
    data frame is a dict of its columns, a series a list; with an index other than 0, 1, 2, … the
    frame has a column ``index``, and the series is a dict (a list of pairs if two are equal).

    Raises:
        UsageError: it is nothing of these, or nested more than 32 deep.

    >>> import numpy as np
    >>> plain({"n": np.int64(3), "of": {2, 1}})
    {'n': 3, 'of': [1, 2]}
    """
    if isinstance(given, _SCALARS) and type(given) in _SCALARS:
        return given
    if depth > _DEEPEST:
        raise UsageError(f"a value is nested more than {_DEEPEST} deep; flatten it")
    for kinds in (_of_numpy, _of_python, _of_libraries, _of_others):
        form = kinds(given, depth + 1)
        if form is not _NONE_OF_THESE:
            return form
    raise UsageError(
        f"type={type(given).__module__}.{type(given).__qualname__}: is neither numbers, text, "
        "bytes, None, nor a list, tuple, dict, array or data frame of these; return one of them, "
        "or turn it into numbers with features="
    )


def _of_numpy(given: Any, depth: int) -> Any:
    if isinstance(given, np.generic) and not isinstance(given, np.void):
        return plain(given.item(), depth=depth)
    if isinstance(given, np.ma.MaskedArray):
        return plain(given.tolist(), depth=depth)
    return _array(given, depth) if isinstance(given, np.ndarray) else _NONE_OF_THESE


def _of_python(given: Any, depth: int) -> Any:
    """Complex numbers, containers whose order or names say something, bytes and sets."""
    if isinstance(given, complex):
        return given.real, given.imag
    if dataclasses.is_dataclass(given) and not isinstance(given, type):
        fields = dataclasses.fields(given)
        return {f.name: plain(getattr(given, f.name), depth=depth) for f in fields}
    if isinstance(given, tuple) and hasattr(given, "_asdict"):
        return plain(given._asdict(), depth=depth)
    if isinstance(given, Mapping):
        return {_key(key): plain(value, depth=depth) for key, value in given.items()}
    if isinstance(given, tuple):
        return tuple(plain(item, depth=depth) for item in given)
    if isinstance(given, (bytes, bytearray, memoryview)):
        return bytes(given)
    if isinstance(given, Set):
        items = (plain(item, depth=depth) for item in given)
        return sorted(items, key=lambda x: (repr(type(x)), x))
    return _NONE_OF_THESE


def _of_libraries(given: Any, depth: int) -> Any:
    """Data frames and series of pandas, tensors of torch."""
    if _is_frame(given):
        return _frame(given, depth)
    if hasattr(given, "to_numpy"):  # a series
        if not _indexed(given):
            return plain(given.to_numpy(), depth=depth)
        pairs = list(zip(given.index.tolist(), given.tolist(), strict=True))
        return plain(dict(pairs) if given.index.is_unique else pairs, depth=depth)
    if hasattr(given, "detach"):
        return plain(given.detach().cpu().numpy(), depth=depth)
    return _NONE_OF_THESE


def _of_others(given: Any, depth: int) -> Any:
    """Subclasses of numbers and text, as of an enumeration, sequences, dates and the like."""
    for kind in (int, float, str):
        if isinstance(given, kind):
            return kind(given)
    if isinstance(given, Sequence) or hasattr(given, "__next__"):
        return [plain(item, depth=depth) for item in given]
    if hasattr(given, "isoformat") or type(given).__module__ in _WRITTEN or isinstance(given, Enum):
        return str(given)
    return None if type(given).__name__ == "NAType" else _NONE_OF_THESE


def _is_frame(given: Any) -> bool:
    return hasattr(given, "columns") and hasattr(given, "to_numpy")


def _indexed(given: Any) -> bool:
    """Whether a frame or series of pandas has an index that says more than the place."""
    index: Any = getattr(given, "index", None)
    return hasattr(index, "is_unique") and index.tolist() != list(range(len(given)))


def _frame(given: Any, depth: int) -> dict[Any, Any]:
    names = [_key(name) for name in given.columns]
    columns = {
        key: plain(given[name].to_numpy(), depth=depth)
        for key, name in zip(names, given.columns, strict=True)
    }
    if not _indexed(given):
        return columns
    return {"(index)" if "index" in names else "index": plain(given.index.tolist()), **columns}


def _key(key: Any) -> str | int | float | bool | None:
    key = plain(key)
    return key if isinstance(key, (str, int, float, bool, type(None))) else repr(key)


def _array(given: npt.NDArray[Any], depth: int) -> Any:
    kind = given.dtype.kind
    if kind == "f" or kind == "b":
        return given.astype(np.float64)
    if kind in "iu":
        inside = not given.size or max(abs(int(given.max())), abs(int(given.min()))) <= _EXACT
        return given.astype(np.float64) if inside else given.tolist()
    if kind == "c":
        return np.stack([given.real, given.imag], axis=-1).astype(np.float64)
    if kind in "mM":
        return plain(np.datetime_as_string(given).tolist() if kind == "M" else given.tolist())
    return plain(given.tolist(), depth=depth)


def jsonable(dataset: Any) -> Any:
    """A data set for ``json.dumps``: of a data frame a list of dicts, of an array nested lists.

    Bytes become hexadecimal text, keys text.

    Raises:
        UsageError: as :func:`plain`.

    >>> import numpy as np
    >>> jsonable({"x": np.eye(2, dtype=int), "y": (b"a", None)})
    {'x': [[1.0, 0.0], [0.0, 1.0]], 'y': ['61', None]}
    """
    if _is_frame(dataset):
        dataset = dataset.to_dict("records")
    return _listed(plain(dataset.tolist() if isinstance(dataset, np.ndarray) else dataset))


def _listed(form: Any) -> Any:
    if isinstance(form, np.ndarray):
        return form.tolist()
    if isinstance(form, (list, tuple)):
        return [_listed(x) for x in form]
    if isinstance(form, dict):
        return {str(key): _listed(value) for key, value in form.items()}
    return form.hex() if isinstance(form, bytes) else form


def of_json(text: str | bytes | bytearray) -> Any:
    """What JSON from outside holds, plain; ``NaN`` and ``Infinity`` are read.

    Raises:
        ValueError: it is no JSON, or nested too deep.
    """
    try:
        return plain(json.loads(text))
    except (RecursionError, UsageError) as error:
        raise ValueError(str(error)) from None


def packed(given: Any) -> bytes:
    """The bytes of something :func:`plain`.

    >>> unpacked(packed({"n": (1, None, float("inf")), "big": 1 << 80}))
    {'n': (1, None, inf), 'big': 1208925819614629174706176}
    """
    return msgspec.msgpack.encode(_tagged(given))


def _tagged(given: Any) -> Any:
    if isinstance(given, int) and not isinstance(given, bool) and abs(given) >= _WIDEST:
        return ["i", hex(given)]
    if isinstance(given, list):
        return ["l", [_tagged(x) for x in given]]
    if isinstance(given, tuple):
        return ["t", [_tagged(x) for x in given]]
    if isinstance(given, dict):
        return ["d", [[key, _tagged(value)] for key, value in given.items()]]
    if isinstance(given, np.ndarray):
        values = np.ascontiguousarray(given, dtype="<f8")
        return ["a", list(given.shape), values.tobytes()]
    return given


def unpacked(data: bytes) -> Any:
    """What :func:`packed` wrote; foreign bytes raise or give something plain.

    Raises:
        ValueError: it is nothing that :func:`packed` writes.
    """
    try:
        return _untagged(msgspec.msgpack.decode(data))
    except (msgspec.DecodeError, RecursionError, TypeError, KeyError, UnicodeError) as error:
        raise ValueError(str(error)) from None


def _untagged(given: Any, depth: int = 0) -> Any:
    if type(given) in _SCALARS:
        return given
    if not isinstance(given, list) or len(given) < 2 or depth > _DEEPEST + 2:
        raise ValueError("not in plain form")
    tag, content = given[0], given[1]
    if tag == "i" and isinstance(content, str) and len(content) < 4096:
        return int(content, 16)
    if tag in ("l", "t"):
        items = [_untagged(x, depth + 1) for x in content]
        return items if tag == "l" else tuple(items)
    if tag == "d":
        return {key: _untagged(value, depth + 1) for key, value in content}
    if tag == "a" and len(given) == 3 and isinstance(given[2], bytes):
        shape = [int(extent) for extent in content]
        if min(shape, default=0) < 0 or 8 * math.prod(shape) != len(given[2]):
            raise ValueError("an array of another size than it says")
        return np.frombuffer(given[2], dtype="<f8").astype(np.float64).reshape(shape)
    raise ValueError("not in plain form")


def packed_dataset(dataset: Any) -> bytes:
    """A data set as bytes; arrays and data frames keep their form and their type of numbers.

    Raises:
        UsageError: as :func:`plain`.
    """
    if _is_frame(dataset):
        columns = [
            [str(name), str(dataset[name].dtype), plain(dataset[name].tolist())]
            for name in dataset.columns
        ]
        return packed(("frame", columns))
    if isinstance(dataset, np.ndarray):
        return packed(("array", str(dataset.dtype), list(dataset.shape), plain(dataset.tolist())))
    return packed(("plain", plain(dataset)))


def unpacked_dataset(data: bytes) -> Any:
    """What :func:`packed_dataset` wrote.

    Raises:
        ValueError: it did not.
        ImportError: a data frame, without pandas.
    """
    form, *content = unpacked(data)
    if form == "frame":
        import pandas as pd

        return pd.DataFrame(
            {name: pd.Series(values, dtype=kind) for name, kind, values in content[0]}
        )
    if form == "array":
        kind, shape, values = content
        return np.array(values, dtype=kind).reshape(shape)
    return content[0]


def dataset_copy(dataset: Any) -> Any:
    """A copy that a mechanism may sort or append to; its records are shared."""
    if isinstance(dataset, (np.ndarray, list, dict, set)) or _is_frame(dataset):
        return dataset.copy()
    return dataset


def releases_of(given: Any, n: int, *, who: str) -> Array | list[Any]:
    """``n`` releases, plain: an array (n, …) of float64, or a list of n.

    ``given`` is a sequence, an array, a series, an iterator or a data frame of ``n`` of them.

    Raises:
        SamplerOutputError: it has another length, or none.
    """
    if _is_frame(given):
        given = given.to_dict("records")
    elif hasattr(given, "to_numpy"):
        given = given.to_numpy()
    elif hasattr(given, "__next__"):
        given = list(islice(given, n + 1))
    if isinstance(given, (str, bytes, Mapping, type(None))) or not hasattr(given, "__len__"):
        raise SamplerOutputError(
            f"{who} returned type={type(given).__name__}, wanted a list or an array of n={n} "
            "releases; return n of them, or take no n and return one"
        )
    try:
        releases = plain(given)
    except UsageError as error:
        raise SamplerOutputError(f"{who} a release that has no plain form: {error}") from None
    if len(releases) != n:
        raise SamplerOutputError(
            f"{who} returned {len(releases)} releases, wanted n={n}; return n of them"
        )
    if isinstance(releases, np.ndarray):
        return releases
    return list(releases)
