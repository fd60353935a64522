"""Releases of any kind as rows of numbers, by rules that the learning half alone fixes.

A release is taken apart into *places*: ``.total`` of a dict, ``[2]`` of a list or an array, and so
on inwards. At each place it has a *kind* (absent, a number, a whole number, a bool, ``None``,
text, bytes, ∞, −∞, NaN, a list, a tuple, a dict, an array) and perhaps a number or a text. There
are more places: ``#length`` of a list, a dict or a text, ``#shape`` of an array, ``#keys`` of a
dict (in their order, which may tell something), ``#sum``, ``#min`` and ``#max`` of a list of
numbers, ``#count of 'Bonn'`` of a list of at most 16 different texts, and, for a text that contains
numbers, ``#form`` (the text without them) and the numbers themselves. A data frame is a dict of its
columns.

Each place gives up to four columns: the kind, the number (0 where there is none), what float64
rounds off a whole number, and the text. Kinds and texts become numbers by how much likelier they
are at the second neighbour; rare texts become a hash, the same in every run. Columns that do not
vary are left out, and of many those are kept that differ most.

**Why no bound depends on it.** Events are chosen with releases of the learning half, and every
choice above (which columns, which number for which text) is made from its first half. The encoding
then is a fixed function of one release. Releases of the counting half only pass through it: whether
one of them lies in a chosen event depends on that release alone, so the counts are still binomial
and every bound holds as for numbers. A poor encoding costs power, never validity.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["Encoding", "Raw"]

Array = npt.NDArray[np.float64]
Raw = Array | list[Any]
"""Releases, plain: an array (n, …) or a list of n (:mod:`dpaudit.targets.plain`)."""

_LONGEST = 256
"""Items of a list, an array or a dict that have places of their own."""
_MOST_BYTES, _MOST_IN_TEXT = 64, 8
_MOST_COUNTED = 16
"""Different texts of one list that are counted, at most."""
_MOST_FITTED = 25_000
"""Releases at each neighbour that fix the encoding."""
_MOST_PLACES, _MOST_COLUMNS = 4096, 256
_RARE = 5
"""Fewer occurrences than this among the fitted releases, and a text or a place is rare."""
_FREQUENT = 30
"""Occurrences at which a text has a place in the order by likelihood: chance then orders few."""
_MOST_TEXTS = 1024
_EXACT = 1 << 53
_NUMBER = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?")
_KINDS = (
    *("absent", "number", "whole number", "bool", "None", "text", "bytes"),
    *("inf", "-inf", "NaN", "list", "tuple", "dict", "array"),
)
_ABSENT, _FLOAT, _INT, _BOOL, _NONE, _TEXT, _BYTES, _INF, _MINUS, _NAN = range(10)
_LIST, _TUPLE, _DICT, _SHAPED = range(10, 14)
_SCALARS = {bool: _BOOL, int: _INT, type(None): _NONE, str: _TEXT, bytes: _BYTES}


@dataclass(slots=True)
class _Place:
    """What some releases have at one place: rows, kinds and numbers in step; texts of some rows."""

    rows: Any = field(default_factory=list)
    kinds: Any = field(default_factory=list)
    numbers: Any = field(default_factory=list)
    rests: dict[int, float] = field(default_factory=dict)
    texts: dict[int, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Encoding:
    """A fixed map from a release to a row of numbers; ``names`` says what each column is."""

    columns: tuple[_Column, ...]
    strange: bool

    @classmethod
    def fit(cls, x0: Raw, x1: Raw) -> Encoding:
        """The encoding that releases at the two neighbours fix; they must not be counted later."""
        x0, x1 = x0[:_MOST_FITTED], x1[:_MOST_FITTED]
        both = _places(x0), _places(x1)
        counts: dict[str, int] = {}
        for places in both:
            for name, place in places.items():
                counts[name] = counts.get(name, 0) + len(place.rows)
        least = min(_RARE, len(x0) + len(x1))
        often = [name for name, times in counts.items() if times >= least]
        strange = len(often) > _MOST_PLACES or len(often) < len(counts)
        candidates: list[tuple[float, int, _Column]] = []
        for name in sorted(often, key=lambda name: -counts[name])[:_MOST_PLACES]:
            pair = tuple(places.get(name, _Place()) for places in both)
            for column in _columns(name, pair[0], pair[1], (len(x0), len(x1))):
                values = column.of(pair[0], len(x0)), column.of(pair[1], len(x1))
                if _varies(*values):
                    candidates.append((_difference(*values), len(candidates), column))
        chosen = sorted(
            sorted(candidates, key=lambda m: (-m[0], m[1]))[:_MOST_COLUMNS], key=lambda m: m[1]
        )
        return cls(tuple(column for _, _, column in chosen), strange)

    @property
    def names(self) -> list[str]:
        """What each column is, in words."""
        rare = ["number of places that are rare"] if self._counts_strange else []
        return [column.description for column in self.columns] + rare

    def describe_value(self, j: int, value: float) -> str:
        """What it means that column ``j`` has a value."""
        if j >= len(self.columns) or self.columns[j].aspect in ("number", "rounded-off part"):
            return f"{self.names[j]} is {value:.6g}"
        column = self.columns[j]
        categories = [key for key, code in column.codes.items() if code == value]
        if not categories:
            return f"{self.names[j]} is rare or none"
        first = categories[0]
        return f"{self.names[j]} is {_KINDS[first] if column.aspect == 'kind' else repr(first)}"

    @property
    def _counts_strange(self) -> bool:
        return self.strange or not self.columns

    def rows(self, releases: Raw) -> Array:
        """Releases as finite rows (n, k)."""
        places = _places(releases)
        rows = np.zeros((len(releases), len(self.columns) + self._counts_strange))
        for j, column in enumerate(self.columns):
            rows[:, j] = column.of(places.get(column.place, _Place()), len(releases))
        if self._counts_strange:
            encoded = {column.place for column in self.columns}
            for name, place in places.items():
                if name not in encoded:
                    np.add.at(rows[:, -1], np.asarray(place.rows, dtype=np.intp), 1.0)
        return rows


@dataclass(frozen=True, slots=True)
class _Column:
    """One number of a place: its ``kind``, its ``number``, its ``rest`` or its ``text``."""

    place: str
    aspect: str
    codes: Mapping[Any, float] = field(default_factory=dict)

    @property
    def description(self) -> str:
        where = f"release{self.place}"
        return where if self.aspect == "number" else f"{self.aspect} of {where}"

    def of(self, place: _Place, n: int) -> Array:
        """The numbers (n,) of ``n`` releases."""
        values = np.zeros(n)
        rows = np.asarray(place.rows, dtype=np.intp)
        if self.aspect == "number":
            values[rows] = place.numbers
        elif self.aspect == "kind":
            table = np.array([self.codes.get(kind, -1.0) for kind in range(len(_KINDS))])
            values[:] = table[_ABSENT]
            values[rows] = table[np.asarray(place.kinds, dtype=np.intp)]
        elif self.aspect == "rounded-off part":
            for row, rest in place.rests.items():
                values[row] = rest
        else:
            values[:] = -1.0
            beyond, codes = float(len(self.codes)), self.codes
            for row, text in place.texts.items():
                code = codes.get(text)
                values[row] = beyond + _hash(text) if code is None else code
        return values


def _columns(name: str, a: _Place, b: _Place, sizes: tuple[int, int]) -> Iterable[_Column]:
    kinds = [Counter(np.asarray(place.kinds, dtype=np.intp).tolist()) for place in (a, b)]
    for counted, place, size in zip(kinds, (a, b), sizes, strict=True):
        counted[_ABSENT] = size - len(place.rows)
    present = {kind for counted in kinds for kind, times in counted.items() if times}
    if len(present) > 1:
        yield _Column(name, "kind", _order_codes(kinds[0], kinds[1], sizes))
    if present & {_FLOAT, _INT, _BOOL}:
        yield _Column(name, "number")
    if a.rests or b.rests:
        yield _Column(name, "rounded-off part")
    if a.texts or b.texts:
        texts = Counter(a.texts.values()), Counter(b.texts.values())
        total = texts[0] + texts[1]
        least = max(_RARE, min(_FREQUENT, sum(sizes) // 50))
        frequent = {text for text, times in total.most_common(_MOST_TEXTS) if times >= least}
        some = [Counter({t: c for t, c in counted.items() if t in frequent}) for counted in texts]
        yield _Column(name, "text", _order_codes(some[0], some[1], sizes))


def _order_codes(a: Counter[Any], b: Counter[Any], sizes: tuple[int, int]) -> dict[Any, float]:
    """0, 1, 2, … for categories, by how much likelier they are at the second neighbour."""

    def odds(category: Any) -> float:
        return math.log((b[category] + 0.5) / sizes[1]) - math.log((a[category] + 0.5) / sizes[0])

    categories = {category for counted in (a, b) for category, times in counted.items() if times}
    order = sorted(categories, key=lambda category: (odds(category), str(category)))
    return {category: float(i) for i, category in enumerate(order)}


def _hash(text: str) -> float:
    """A number in [0, 1), the same for a text in every run."""
    digest = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=6).digest()
    return int.from_bytes(digest) / (1 << 48)


def _varies(a: Array, b: Array) -> bool:
    first = a[0] if len(a) else b[0]
    return bool(
        (a != first).any() or (b != first).any() or np.signbit(a).any() != np.signbit(b).any()
    )


def _difference(a: Array, b: Array) -> float:
    with np.errstate(all="ignore"):
        spread = math.sqrt(a.var() + b.var()) + 1e-300
        apart = abs(a.mean() - b.mean()) / spread
        apart += abs(math.log((a.std() + 1e-300) / (b.std() + 1e-300)))
    return float(np.nan_to_num(apart))


def _places(releases: Raw) -> dict[str, _Place]:
    """All places of some releases, in the order of their first occurrence."""
    array = _as_array(releases)
    if array is not None:
        return _of_array(*array)
    places: dict[str, _Place] = {}
    for row, release in enumerate(releases):
        _walk(places, row, "", release)
    return places


def _as_array(releases: Raw) -> tuple[Array, int] | None:
    """Releases of one shape as one array with the kind that each is as a whole."""
    if isinstance(releases, np.ndarray):
        return releases, _SHAPED
    kinds = set(map(type, releases))
    if kinds == {float}:
        return np.array(releases, dtype=np.float64), _SHAPED
    if kinds == {np.ndarray} and len({x.shape for x in releases}) == 1:
        return np.stack(releases), _SHAPED
    one_length = kinds in ({list}, {tuple}) and len(set(map(len, releases))) == 1
    if one_length and {type(x) for release in releases for x in release} == {float}:
        return np.array(releases, dtype=np.float64), _LIST if kinds == {list} else _TUPLE
    return None


def _of_array(array: Array, kind: int) -> dict[str, _Place]:
    n, rows = len(array), np.arange(len(array))
    if array.ndim == 1:
        return {"": _numeric(rows, array)}
    zeros = np.zeros(n)
    places = {"": _Place(rows, np.full(n, kind), zeros)}
    if kind == _SHAPED:
        places["#shape"] = _Place(
            rows, np.full(n, _TEXT), zeros, texts=dict.fromkeys(range(n), str(array.shape[1:]))
        )
    else:
        places["#length"] = _Place(rows, np.full(n, _INT), np.full(n, float(array.shape[1])))
    flat = array.reshape(n, -1)
    for j, index in enumerate(_indexes(array.shape[1:])):
        places[index] = _numeric(rows, flat[:, j])
    if kind != _SHAPED or flat.shape[1] > _LONGEST:
        for name, values in _summaries(flat):
            places[name] = _numeric(rows, values)
    return places


def _indexes(shape: tuple[int, ...]) -> Iterable[str]:
    size = min(math.prod(shape), _LONGEST)
    for j in range(size):
        yield f"[{','.join(map(str, np.unravel_index(j, shape)))}]"


def _summaries(flat: Array) -> Iterable[tuple[str, Array]]:
    with np.errstate(all="ignore"):
        yield "#sum", flat.sum(axis=1)
        yield "#min", flat.min(axis=1)
        yield "#max", flat.max(axis=1)


def _numeric(rows: npt.NDArray[np.intp], values: Array) -> _Place:
    kinds = np.full(len(values), _FLOAT)
    finite = np.isfinite(values)
    if finite.all():
        return _Place(rows, kinds, values)
    kinds[np.isposinf(values)], kinds[np.isneginf(values)] = _INF, _MINUS
    kinds[np.isnan(values)] = _NAN
    return _Place(rows, kinds, np.where(finite, values, 0.0))


def _put(places: dict[str, _Place], row: int, name: str, kind: int, number: float = 0.0) -> _Place:
    place = places.get(name)
    if place is None:
        place = places[name] = _Place()
    place.rows.append(row)
    place.kinds.append(kind)
    place.numbers.append(number)
    return place


def _walk(places: dict[str, _Place], row: int, name: str, release: Any) -> None:
    kind = type(release)
    if kind is float:
        _put_float(places, row, name, release)
    elif kind in _SCALARS:
        _put_scalar(places, row, name, release, _SCALARS[kind])
    elif kind is np.ndarray:
        _put(places, row, name, _SHAPED)
        _put(places, row, f"{name}#shape", _TEXT).texts[row] = str(release.shape)
        for index, value in zip(_indexes(release.shape), release.ravel().tolist(), strict=False):
            _put_float(places, row, name + index, value)
        if release.size:
            _summarise(places, row, name, release.ravel())
    elif kind is dict:
        _put(places, row, name, _DICT)
        _put(places, row, f"{name}#length", _INT, float(len(release)))
        _put(places, row, f"{name}#keys", _TEXT).texts[row] = ",".join(map(repr, release))
        for key, value in list(release.items())[:_LONGEST]:
            _walk(
                places, row, f"{name}.{key}" if isinstance(key, str) else f"{name}[{key!r}]", value
            )
    else:
        _put(places, row, name, _TUPLE if kind is tuple else _LIST)
        _put(places, row, f"{name}#length", _INT, float(len(release)))
        for i, value in enumerate(release[:_LONGEST]):
            _walk(places, row, f"{name}[{i}]", value)
        if release and all(
            type(x) is float or (type(x) is int and abs(x) <= _EXACT) for x in release
        ):
            _summarise(places, row, name, np.array(release, dtype=np.float64))
        elif release and all(type(x) is str for x in release):
            _count(places, row, name, Counter(release))


def _summarise(places: dict[str, _Place], row: int, name: str, values: Array) -> None:
    for suffix, number in _summaries(values.reshape(1, -1)):
        _put_float(places, row, name + suffix, float(number[0]))


def _count(places: dict[str, _Place], row: int, name: str, texts: Counter[str]) -> None:
    if len(texts) <= _MOST_COUNTED:
        for text, times in texts.items():
            _put(places, row, f"{name}#count of {text[:_MOST_BYTES]!r}", _INT, float(times))


def _put_float(places: dict[str, _Place], row: int, name: str, number: float) -> None:
    if math.isfinite(number):
        _put(places, row, name, _FLOAT, number)
    else:
        _put(places, row, name, _NAN if math.isnan(number) else _INF if number > 0 else _MINUS)


def _put_scalar(places: dict[str, _Place], row: int, name: str, value: Any, kind: int) -> None:
    if kind == _INT and abs(value) > _EXACT:
        try:
            number = float(value)
        except OverflowError:
            _put(places, row, name, _INT).texts[row] = hex(value)
            return
        _put(places, row, name, kind, number).rests[row] = float(value - int(number))
    elif kind in (_INT, _BOOL):
        _put(places, row, name, kind, float(value))
    elif kind == _NONE:
        _put(places, row, name, kind)
    elif kind == _TEXT:
        _put(places, row, name, kind).texts[row] = value
        _put(places, row, f"{name}#length", _INT, float(len(value)))
        _put_numbers(places, row, name, value)
    else:
        _put(places, row, name, kind).texts[row] = value.hex()
        _put(places, row, f"{name}#length", _INT, float(len(value)))
        for i, byte in enumerate(value[:_MOST_BYTES]):
            _put(places, row, f"{name}[{i}]", _INT, float(byte))


def _put_numbers(places: dict[str, _Place], row: int, name: str, text: str) -> None:
    """The numbers in a text, and the text without them."""
    numbers = _NUMBER.findall(text) if any(c.isdigit() for c in text) else []
    if numbers:
        _put(places, row, f"{name}#form", _TEXT).texts[row] = _NUMBER.sub("#", text)
        for i, number in enumerate(numbers[:_MOST_IN_TEXT]):
            _put_float(places, row, f"{name}#number[{i}]", float(number))
