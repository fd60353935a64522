"""What an audit on data sets compares: two that are given, or neighbours to be found from one."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dpaudit.audit.epsilon.datasets import SUFFIXES, json_text, read_dataset, records_of
from dpaudit.audit.epsilon.kept_pair import ARRAYS, FILES
from dpaudit.audit.epsilon.neighbour_search import ADJACENCIES, Bounds
from dpaudit.audit.options import DataOptions
from dpaudit.audit.result import MechanismResult
from dpaudit.errors import UsageError
from dpaudit.results.text import one_line

__all__ = ["SEARCH", "Question", "any_release", "question_of", "read_bounds"]

SEARCH = "search"
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
    named: str = ""
    """``--neighbours`` that name the pair, if any do."""
    searched: tuple[str, ...] = ()
    """Options of the command line that repeat the search, if ``dataset`` is a file's."""
    of_queries: bool = False
    """Whether the pair are query results."""

    @property
    def shown(self) -> str:
        """``--neighbours`` for this question, if it fits one."""
        texts = [SEARCH] if self.pair is None else [json_text(one).strip() for one in self.pair]
        return self.named or ";".join(texts)

    def words(self, result: MechanismResult) -> list[str]:
        """Options of the command line that ask about the pair of ``result`` again.

        A pair too long for a command is searched for once more, and left as files; one that Python
        gave has files that are yet to be written. Empty for data frames, which no command gives.
        """
        texts = result.details.get("pair", ())
        example = self.dataset if self.pair is None else self.pair[0]
        listed = isinstance(example, (list, tuple))
        inline = listed and bool(texts) and sum(map(len, texts)) <= _LONGEST_WORD
        more = ["--features", self.features] if isinstance(self.features, str) else []
        if self.named:
            return ["--neighbours", self.named, *more]
        if inline:
            return ["--neighbours", ";".join(text.strip() for text in texts), *more]
        if self.searched:
            return [*self.searched, *more, "--out", "found"]
        if not (listed or isinstance(example, np.ndarray)):
            return []
        return ["--neighbours", ";".join(FILES if listed else ARRAYS), *more]

    def unwritten(self, result: MechanismResult) -> bool:
        """Whether :meth:`words` name files that nothing has written."""
        words = self.words(result)
        files = ";".join(FILES), ";".join(ARRAYS)
        return not self.named and bool(words) and words[1] in files


def question_of(asked: DataOptions) -> Question | None:
    """The question on data sets that the options ask; None if they name query results.

    With ``features``, query results are data sets too: a number, or an array of them.

    Raises:
        UsageError: they do not fit each other, a file cannot be read, or the two are equal.
    """
    neighbours, dataset, features = asked.neighbours, asked.dataset, asked.features
    adjacency, bounds = asked.adjacency, asked.bounds
    searched: tuple[str, ...] = ()
    if isinstance(dataset, (str, Path)):
        searched = ("--dataset", str(dataset), "--neighbours", SEARCH)
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
                "dataset: has no records, so nothing tells what one is; begin with at least one"
            )
        found = read_bounds(bounds) if isinstance(bounds, str) else bounds
        if searched:
            searched += ("--adjacency", adjacency)
            searched += ("--bounds", bounds) if isinstance(bounds, str) else ()
        return Question(
            dataset=dataset,
            adjacency=adjacency,
            bounds=found,
            features=features,
            searched=searched if bounds is None or isinstance(bounds, str) else (),
        )
    for name, given in (("dataset", dataset), ("adjacency", adjacency), ("bounds", bounds)):
        if given is not None:
            raise UsageError(
                f"{name}: belongs to a search for neighbours; add --neighbours search "
                "(neighbours='search')"
            )
    pair = _pair(neighbours)
    if pair is None:
        if features is None or neighbours is None:
            return None
        pair = _as_called(neighbours)
    if json_text(pair[0]) == json_text(pair[1]):
        raise UsageError(
            "neighbours: the two data sets are equal, so nothing could tell them apart; "
            "change, add or remove one record"
        )
    named = neighbours if isinstance(neighbours, str) else ""
    return Question(pair=pair, features=features, named=named)


def any_release(neighbours: tuple[Any, Any], named: str) -> Question:
    """The question on two query results (m,), ``named`` as text, whose releases are no numbers."""
    return Question(pair=_as_called(neighbours), named=named, of_queries=True)


def _as_called(neighbours: Any) -> tuple[Any, Any]:
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
            return _written(neighbours)
        parts = [part.strip() for part in neighbours.split(";")]
        arrays = all(part.endswith(".npy") for part in parts) and len(parts) == 2
        if arrays:
            return _arrays(parts)
        if not any(part.endswith(SUFFIXES) for part in parts):
            return None
        if len(parts) != 2:
            raise UsageError(
                f"neighbours={one_line(neighbours, limit=200)}: {len(parts)} files, wanted two; "
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
    known = all(hasattr(v, "__len__") and not isinstance(v, (str, bytes)) for v in (first, second))
    return (first, second) if known else None


def _arrays(files: list[str]) -> tuple[Any, Any] | None:
    """Two ``.npy`` files as data sets; None if they are vectors of one length, query results."""
    try:
        first, second = (read_dataset(Path(file), name="neighbours") for file in files)
    except UsageError:  # is reported by who reads query results
        return None
    vectors = first.ndim == second.ndim <= 1
    return None if vectors and first.size == second.size else (first, second)


def _written(neighbours: str) -> tuple[Any, Any]:
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
        rows = [
            [float(x) for x in (v if hasattr(v, "__iter__") else [v])]
            for v in neighbours
            if not isinstance(v, (str, bytes, Mapping)) and not hasattr(v, "columns")
        ]
    except (TypeError, ValueError):
        return False
    return len(rows) == len(neighbours) == 2 and len(rows[0]) == len(rows[1]) > 0


def read_bounds(text: str) -> Bounds:
    """Bounds of fields: ``age=0:120;city=Bonn|Graz``, or ``0:1`` for every number.

    Raises:
        UsageError: it is not written so.

    >>> read_bounds("age=0:120;city=Bonn|Graz"), read_bounds("0:1")
    ({'age': (0.0, 120.0), 'city': ['Bonn', 'Graz']}, (0.0, 1.0))
    """
    if "=" not in text:
        return _range(text, text)
    found: dict[str, Any] = {}
    for part in text.split(";"):
        name, _, given = part.partition("=")
        found[name.strip()] = given.split("|") if "|" in given else _range(given, text)
    return found


def _range(given: str, text: str) -> tuple[float, float]:
    low, colon, high = given.partition(":")
    try:
        if not colon:
            raise ValueError
        return float(low), float(high)
    except ValueError:
        raise UsageError(
            f"bounds={one_line(text, limit=200)}: write 'age=0:120;city=Bonn|Graz', or 0:1 for "
            "records that are numbers"
        ) from None
