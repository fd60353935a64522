"""What an audit compares: two query results or data sets, or neighbours to be found from one."""

from __future__ import annotations

import dataclasses
import json
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from dpaudit.audit.mechanism.datasets import SUFFIXES, json_text, read_dataset, records_of
from dpaudit.audit.mechanism.neighbour_search import ADJACENCIES, Bounds
from dpaudit.audit.options import DataOptions
from dpaudit.audit.result import MechanismResult
from dpaudit.errors import UsageError
from dpaudit.results.arrays import read_npy
from dpaudit.results.files import write_file
from dpaudit.results.text import one_line

__all__ = [
    "UNWRITTEN",
    "Question",
    "neighbours_text",
    "parse_neighbours",
    "question_of",
    "question_on_queries",
    "with_pair_in",
]

Vector = npt.NDArray[np.float64]
Query = float | Sequence[float]

SEARCH = "search"
FILES = "first.json", "second.json"
ARRAYS = "first.npy", "second.npy"
UNWRITTEN = "To repeat the command, first write the data sets to the two files that it names."
"""Advice with a command for a pair that Python gave and that no file holds."""
_HOW = "write two numbers as 0,1, two vectors as '0,0,0;1,0,0', or two files as a.npy;b.npy"
_LONGEST_WORD = 200
"""Longest pair, in characters, that a command shows itself; others are files."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What to compare: two ``pair`` data sets, or neighbours to be found from a ``dataset``."""

    pair: tuple[Any, Any] | None = None
    dataset: Any = None
    adjacency: str = "add-remove"
    bounds: Bounds = None
    features: str | Callable[[Any], Any] | None = None
    neighbours: str = ""
    """``--neighbours`` that name the pair, if any do."""
    search_options: tuple[str, ...] = ()
    """Options of the command line that repeat the search, if ``dataset`` is a file's."""
    of_queries: bool = False
    """Whether the pair are query results."""

    @property
    def text(self) -> str:
        """``--neighbours`` for this question, if it fits one."""
        texts = [SEARCH] if self.pair is None else [json_text(one).strip() for one in self.pair]
        return self.neighbours or ";".join(texts)

    def repeat_options(self, result: MechanismResult) -> list[str]:
        """Options of the command line that ask about the pair of ``result`` again.

        A pair too long for a command is searched for once more, and left as files; one that Python
        gave has files that are yet to be written. Empty for data frames, which no command gives.
        """
        texts = result.details.get("pair", ())
        example = self.dataset if self.pair is None else self.pair[0]
        listed = isinstance(example, (list, tuple))
        inline = listed and bool(texts) and sum(map(len, texts)) <= _LONGEST_WORD
        more = ["--features", self.features] if isinstance(self.features, str) else []
        if self.neighbours:
            return ["--neighbours", self.neighbours, *more]
        if inline:
            return ["--neighbours", ";".join(text.strip() for text in texts), *more]
        if self.search_options:
            return [*self.search_options, *more, "--out", "found"]
        if not (listed or isinstance(example, np.ndarray)):
            return []
        return ["--neighbours", ";".join(FILES if listed else ARRAYS), *more]

    def names_unwritten_files(self, result: MechanismResult) -> bool:
        """Whether :meth:`repeat_options` name files that nothing has written."""
        options = self.repeat_options(result)
        files = ";".join(FILES), ";".join(ARRAYS)
        return not self.neighbours and bool(options) and options[1] in files


def question_of(options: DataOptions) -> Question | None:
    """The question on data sets that the options ask; None if they name query results.

    With ``features``, query results are data sets too: a number, or an array of them.

    Raises:
        UsageError: they do not fit each other, a file cannot be read, or the two are equal.
    """
    neighbours, dataset, features = options.neighbours, options.dataset, options.features
    adjacency, bounds = options.adjacency, options.bounds
    search_options: tuple[str, ...] = ()
    if isinstance(dataset, (str, Path)):
        search_options = ("--dataset", str(dataset), "--neighbours", SEARCH)
        dataset = read_dataset(Path(dataset), name="dataset")
    if isinstance(neighbours, str) and neighbours == SEARCH:
        if dataset is None:
            raise UsageError(
                "neighbours=search: needs a data set to begin with; give --dataset FILE (dataset=)"
            )
        adjacency = ADJACENCIES[0] if adjacency is None else adjacency
        if adjacency not in ADJACENCIES:
            raise UsageError(
                f"adjacency={one_line(adjacency, limit=40)}: neighbours differ by "
                f"{' or '.join(ADJACENCIES)}; choose one"
            )
        if not records_of(dataset).records:
            raise UsageError(
                "dataset: has no records, so their fields are unknown; start with at least one"
            )
        limits = read_bounds(bounds) if isinstance(bounds, str) else bounds
        if search_options:
            search_options += ("--adjacency", adjacency)
            search_options += ("--bounds", bounds) if isinstance(bounds, str) else ()
        return Question(
            dataset=dataset,
            adjacency=adjacency,
            bounds=limits,
            features=features,
            search_options=search_options if bounds is None or isinstance(bounds, str) else (),
        )
    for name, value in (("dataset", dataset), ("adjacency", adjacency), ("bounds", bounds)):
        if value is not None:
            raise UsageError(
                f"{name}: belongs to a search for neighbours; add --neighbours search "
                "(neighbours='search')"
            )
    pair = _pair(neighbours)
    if pair is None:
        if features is None or neighbours is None:
            return None
        pair = _call_arguments(neighbours)
    if json_text(pair[0]) == json_text(pair[1]):
        raise UsageError(
            "neighbours: the two data sets are equal, so nothing could tell them apart; "
            "change, add or remove one record"
        )
    text = neighbours if isinstance(neighbours, str) else ""
    return Question(pair=pair, features=features, neighbours=text)


def question_on_queries(neighbours: tuple[Any, Any], text: str) -> Question:
    """The question on two query results (m,), ``text``, whose releases are no numbers."""
    return Question(pair=_call_arguments(neighbours), neighbours=text, of_queries=True)


def _call_arguments(neighbours: Any) -> tuple[Any, Any]:
    """Two query results as a function gets them: numbers, or arrays."""
    if isinstance(neighbours, str):
        parts = neighbours.split(";") if ";" in neighbours else neighbours.split(",")
        try:
            neighbours = [[float(x) for x in part.split(",")] for part in parts]
        except ValueError:
            neighbours = ()
    if len(neighbours) != 2:
        raise UsageError(
            "neighbours: with features, write two numbers, two vectors, or two data sets"
        )
    first, second = (np.asarray(v, dtype=np.float64).ravel() for v in neighbours)
    return tuple(float(v[0]) if len(v) == 1 else v for v in (first, second))  # type: ignore[return-value]


def _pair(neighbours: Any) -> tuple[Any, Any] | None:
    if isinstance(neighbours, str):
        if neighbours.lstrip()[:1] in ("[", "{"):
            return _parse_json_pair(neighbours)
        parts = [part.strip() for part in neighbours.split(";")]
        arrays = all(part.endswith(".npy") for part in parts) and len(parts) == 2
        if arrays:
            return _arrays(parts)
        if not any(part.endswith(SUFFIXES) for part in parts):
            return None
        if len(parts) != 2:
            raise UsageError(
                f"neighbours={one_line(neighbours, limit=200)}: {len(parts)} files, expected two; "
                "write 'a.csv;b.csv'"
            )
        first, second = (read_dataset(Path(part), name="neighbours") for part in parts)
        return first, second
    if neighbours is None or _query_results(neighbours):
        return None
    try:
        first, second = neighbours
    except (TypeError, ValueError):
        return None
    sized = all(hasattr(v, "__len__") and not isinstance(v, (str, bytes)) for v in (first, second))
    return (first, second) if sized else None


def _arrays(files: list[str]) -> tuple[Any, Any] | None:
    """Two ``.npy`` files as data sets; None if they are vectors of one length, query results."""
    try:
        first, second = (read_dataset(Path(file), name="neighbours") for file in files)
    except UsageError:  # is reported by who reads query results
        return None
    vectors = first.ndim == second.ndim <= 1
    return None if vectors and first.size == second.size else (first, second)


def _parse_json_pair(neighbours: str) -> tuple[Any, Any]:
    """Two data sets as JSON, with a semicolon between them."""
    text = neighbours.strip()
    try:
        first, end = json.JSONDecoder().raw_decode(text)
        rest = text[end:].lstrip()
        if rest[:1] != ";":
            raise ValueError("no ; after the first")
        return first, json.loads(rest[1:])
    except (ValueError, RecursionError) as error:
        raise UsageError(
            f"neighbours={one_line(text, limit=100)}: is not two data sets as JSON "
            f"({one_line(error, limit=100)}); write '[1,2];[1,2,3]', or two files 'a.csv;b.csv'"
        ) from None


def _query_results(neighbours: Any) -> bool:
    """Whether these are two numbers, or two vectors of numbers of one length."""
    try:
        plain = [v for v in neighbours if not isinstance(v, (str, bytes, Mapping))]
        rows = _rows(v for v in plain if not hasattr(v, "columns"))
    except (TypeError, ValueError):
        return False
    return len(rows) == len(neighbours) == 2 and len(rows[0]) == len(rows[1]) > 0


def _rows(vectors: Iterable[Any]) -> list[list[float]]:
    """Numbers and rows of numbers, each as a row."""
    return [[float(x) for x in (v if hasattr(v, "__iter__") else [v])] for v in vectors]


def read_bounds(text: str) -> Bounds:
    """Bounds of fields: ``age=0:120;city=Bonn|Graz``, or ``0:1`` for every number.

    Raises:
        UsageError: it is not written so.

    >>> read_bounds("age=0:120;city=Bonn|Graz"), read_bounds("0:1")
    ({'age': (0.0, 120.0), 'city': ['Bonn', 'Graz']}, (0.0, 1.0))
    """
    if "=" not in text:
        return _range(text, text)
    limits: dict[str, Any] = {}
    for part in text.split(";"):
        name, _, range_text = part.partition("=")
        limits[name.strip()] = (
            range_text.split("|") if "|" in range_text else _range(range_text, text)
        )
    return limits


def _range(part: str, text: str) -> tuple[float, float]:
    low, colon, high = part.partition(":")
    try:
        if not colon:
            raise ValueError
        return float(low), float(high)
    except ValueError:
        raise UsageError(
            f"bounds={one_line(text, limit=200)}: write 'age=0:120;city=Bonn|Graz', or 0:1 for "
            "records that are numbers"
        ) from None


def neighbours_text(neighbours: str | tuple[Query, Query] | None) -> str | None:
    """Two query results as the command line takes them, to the last digit.

    Raises:
        UsageError: they are not two numbers or two vectors.
    """
    if neighbours is None or isinstance(neighbours, str):
        return neighbours
    try:
        rows = _rows(neighbours)
    except (TypeError, ValueError):
        raise UsageError(
            f"neighbours={neighbours!r}: write two numbers or two vectors, e.g. (0, 1)"
        ) from None
    return ";".join(",".join(f"{x!r}" for x in row) for row in rows)


def parse_neighbours(text: str) -> tuple[Vector, Vector]:
    """Two query results of equal length (m,): ``0,1``, ``0,0,0;1,0,0``, or ``a.npy;b.npy``.

    A semicolon divides the two, commas the coordinates; without a semicolon, a comma divides two
    numbers (or files).

    Raises:
        UsageError: not two, different lengths, not finite numbers, or equal to each other.

    >>> parse_neighbours("0,1")
    (array([0.]), array([1.]))
    """
    parts = text.split(";") if ";" in text else text.split(",")
    if len(parts) != 2:
        raise UsageError(f"neighbours={text}: {len(parts)} were given, expected two; {_HOW}")
    first, second = (_vector(part.strip(), text) for part in parts)
    if len(first) != len(second):
        raise UsageError(
            f"neighbours={text}: lengths {len(first)} and {len(second)} differ; {_HOW}"
        )
    if np.array_equal(first, second):
        raise UsageError(
            f"neighbours={text}: they are equal (as float64), so nothing could tell them apart; "
            f"{_HOW}"
        )
    return first, second


def _vector(part: str, text: str) -> Vector:
    try:
        if part.endswith(".npy"):
            vector = np.atleast_1d(read_npy(Path(part), name="neighbours").astype(np.float64))
        else:
            vector = np.array([float(x) for x in part.split(",")])
    except UsageError:
        raise
    except ValueError:
        raise UsageError(f"neighbours={text}: {part!r} is not a list of numbers; {_HOW}") from None
    if vector.ndim != 1 or not vector.size or not np.isfinite(vector).all():
        raise UsageError(f"neighbours={text}: {part!r} must be one row of finite numbers; {_HOW}")
    return vector


def with_pair_in(result: MechanismResult, folder: str | Path) -> MechanismResult:
    """``result`` with its two data sets as files in ``folder``, which its commands name.

    Arrays are ``.npy`` files, and all others ``.json``; no ``.npy`` file is empty, so that of an
    empty array both are ``.json`` and the commands stay as they are. A result without data sets, or
    with some too large to keep, is returned as it is.

    Raises:
        OSError: they cannot be written.
    """
    texts = result.details.get("pair")
    if texts is None:
        return result
    paths = [Path(folder) / name for name in FILES]
    shapes = result.details.get("shapes")
    empty = shapes is not None and any(0 in shape for shape in shapes)
    if shapes is None or empty:
        for path, text in zip(paths, texts, strict=True):
            write_file(path, text)
    else:
        paths = [path.with_suffix(".npy") for path in paths]
        for path, text, shape in zip(paths, texts, shapes, strict=True):
            array = np.array(json.loads(text), dtype=np.float64).reshape(shape)
            write_file(path, partial(np.save, arr=array))
    if empty:
        return result
    files = ";".join(map(str, paths))
    tests = tuple(
        dataclasses.replace(test, reproduce=_name_files(test.reproduce, files))
        if test.finding
        else test
        for test in result.tests
    )
    advice = tuple(text for text in result.advice if text != UNWRITTEN)
    return dataclasses.replace(result, tests=tests, advice=advice)


def _name_files(command: str, files: str) -> str:
    """``command`` for the pair in two files, instead of a search or of the pair itself."""
    arguments = shlex.split(command)
    if "--neighbours" not in arguments:
        return command
    for option in ("--dataset", "--adjacency", "--bounds", "--out"):
        if option in arguments:
            at = arguments.index(option)
            del arguments[at : at + 2]
    arguments[arguments.index("--neighbours") + 1] = files
    return shlex.join(arguments)
