"""Runs an ε audit of a mechanism on data sets: two that are given, or two that are found."""

from __future__ import annotations

import dataclasses
import json
import shlex
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from dpaudit.audit.epsilon.any_release import EncodedReleases
from dpaudit.audit.epsilon.datasets import (
    SUFFIXES,
    described,
    json_text,
    read_dataset,
    records_of,
)
from dpaudit.audit.epsilon.neighbour_search import ADJACENCIES, Bounds, Found, search
from dpaudit.audit.epsilon.pair import audit_pair
from dpaudit.audit.options import MechanismOptions, PrivacyClaim, Progress
from dpaudit.errors import UsageError
from dpaudit.interfaces import DatasetMechanism
from dpaudit.randomness import KeyedStream
from dpaudit.results.files import write_file
from dpaudit.results.text import one_line
from dpaudit.samplers.endpoints.dataset_command import DatasetCommand
from dpaudit.samplers.endpoints.dataset_function import DatasetFunction
from dpaudit.samplers.endpoints.dataset_http import DatasetEndpoint
from dpaudit.types import MechanismResult

__all__ = [
    "SEARCH",
    "UNWRITTEN",
    "Question",
    "any_release",
    "audit_question",
    "on_datasets",
    "question_of",
    "read_bounds",
    "stage_of",
    "with_pair_in",
]

SEARCH = "search"
_SEARCHING = 0.4
"""Largest share of the time limit that the search may take."""
_LONGEST_WORD = 200
"""Longest pair, in characters, that a command shows itself; others are files."""
UNWRITTEN = "To repeat the command, first write the data sets to the two files that it names."
"""Advice with a command for a pair that Python gave and that no file holds."""
_FILES = "first.json", "second.json"
_ARRAYS = "first.npy", "second.npy"
_KEPT_TEXT = 1 << 16
"""Longest data set, in characters of JSON, that a result keeps."""


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
        return ["--neighbours", ";".join(_FILES if listed else _ARRAYS), *more]

    def unwritten(self, result: MechanismResult) -> bool:
        """Whether :meth:`words` name files that nothing has written."""
        words = self.words(result)
        files = ";".join(_FILES), ";".join(_ARRAYS)
        return not self.named and bool(words) and words[1] in files


def question_of(
    neighbours: Any,
    dataset: Any = None,
    *,
    adjacency: str | None = None,
    bounds: Any = None,
    features: str | Callable[[Any], Any] | None = None,
) -> Question | None:
    """The question on data sets that the options ask; None if they name query results.

    With ``features``, query results are data sets too: a number, or an array of them.

    Raises:
        UsageError: they do not fit each other, a file cannot be read, or the two are equal.
    """
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
    return _question(pair, neighbours, features)


def any_release(neighbours: tuple[Any, Any], named: str) -> Question:
    """The question on two query results (m,), ``named`` as text, whose releases are no numbers."""
    return _question(_as_called(neighbours), named, None)


def _question(
    pair: tuple[Any, Any], neighbours: Any, features: str | Callable[[Any], Any] | None
) -> Question:
    named = neighbours if isinstance(neighbours, str) else ""
    return Question(pair=pair, features=features, named=named)


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


def on_datasets(name: str, question: Question, *, options: MechanismOptions) -> Any:
    """The mechanism on data sets that a text names; a ``with`` block starts and ends its process.

    Raises:
        UsageError: it names none, or what it names does not fit.
    """
    kind, _, target = name.partition(":")
    features = question.features
    if features is not None and not isinstance(features, str):
        raise UsageError(
            f"features: a function, but {name} runs in a process of its own; write "
            "'MODULE:FUNCTION', or pass a callable with in_process=True"
        )
    adversary = options.adversary
    if adversary is not None and not isinstance(adversary, str):
        raise UsageError(
            f"adversary: a function, but {name} runs in a process of its own; write "
            "'MODULE:FUNCTION', or pass a callable with in_process=True"
        )
    if kind == "python":
        return DatasetFunction(
            target,
            call=options.call,
            features=features,
            calls=options.calls,
            sessions=options.sessions,
            adversary=adversary,
        )
    if options.in_sessions:
        raise UsageError(
            f"{options.session_words[0]}: only python:MODULE:FUNCTION makes sessions, not "
            f"{one_line(name, limit=200)}; leave it out"
        )
    for option, given in (("call", options.call), ("features", features)):
        if given is not None:
            raise UsageError(f"{option}={given}: only python: has one; leave --{option} out")
    if kind == "command":
        return DatasetCommand(target, columns=_columns(question))
    if kind in ("http", "https"):
        return DatasetEndpoint(name)
    raise UsageError(
        f"mechanism={one_line(name, limit=200)}: takes query results, not data sets; data sets go "
        "to python:MODULE:FUNCTION, command:'PROGRAM {dataset} {n}', http://HOST:PORT/PATH, or a "
        "callable of Python"
    )


def _columns(question: Question) -> list[str]:
    whole = [question.dataset] if question.pair is None else list(question.pair)
    rows = [row for dataset in whole if isinstance(dataset, list) for row in dataset]
    return list(dict.fromkeys(key for row in rows if isinstance(row, dict) for key in row))


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


def audit_question(
    mechanism: DatasetMechanism,
    question: Question,
    *,
    claim: PrivacyClaim,
    options: MechanismOptions,
    attack: object = None,
    progress: Progress | None = None,
) -> MechanismResult:
    """Audit an opened mechanism at two data sets, which are looked for first where not given.

    The search has at most 40 % of the time limit; the pair that it ends with is judged on releases
    drawn afterwards. Formal guarantee: see :class:`~dpaudit.types.MechanismResult`; it holds for
    the pair that was found, however many were tried.

    Raises:
        UsageError: options that do not fit.
        SamplerError: the mechanism failed at every pair, or at the one that was found.
    """
    if attack is not None:
        raise UsageError(
            "attack: computes with query results, and data sets have none; leave --attack out"
        )
    started = time.monotonic()
    found = None
    pair = question.pair
    if pair is None:
        found = search(
            mechanism,
            records_of(question.dataset),
            adjacency=question.adjacency,
            bounds=question.bounds,
            delta=claim.delta,
            samples=options.samples,
            deadline=started + _SEARCHING * options.time_limit,
            rng=KeyedStream.from_seed(options.seed).child("neighbours").numpy(),
            progress=stage_of(progress, "pairs of neighbours tried"),
        )
        pair = found.pair
    left = options.time_limit - (time.monotonic() - started)
    encoded = EncodedReleases(mechanism, pair)
    result = audit_pair(
        encoded,
        neighbours=encoded.neighbours,
        claim=claim,
        options=dataclasses.replace(options, time_limit=max(left, 1e-3)),
        progress=progress,
    )
    result = dataclasses.replace(encoded.named(result), seconds=time.monotonic() - started)
    texts = [json_text(dataset) for dataset in pair]
    short = [described(dataset) for dataset in pair]
    details: dict[str, Any] = {"datasets": short}
    if sum(map(len, texts)) <= _KEPT_TEXT:
        details["pair"] = texts
        if all(isinstance(dataset, np.ndarray) for dataset in pair):
            details["shapes"] = [list(dataset.shape) for dataset in pair]
    result = dataclasses.replace(
        result,
        method="two data sets",
        details={**result.details, **details},
        advice=(
            f"First data set: {short[0]}. Second: {short[1]}.",
            *([_of_sessions(options)] if options.in_sessions else []),
            *result.advice,
        ),
    )
    return result if found is None else _searched(result, found, question)


def _of_sessions(options: MechanismOptions) -> str:
    """What a release is, where sessions are called."""
    calls = f"{options.calls} call{'s' if options.calls > 1 else ''}"
    of = f"of {options.sessions} sessions at once" if options.sessions > 1 else "of one session"
    by = ", each asked by the adversary" if options.adversary is not None else ""
    claim = "all of them together" if options.together else "each call"
    return f"A release is the answers {of}, {calls} each{by}; the claim is about {claim}."


def stage_of(progress: Progress | None, what: str) -> Progress | None:
    """The progress of a stage before the drawing, of so many ``what``; None if it shows none."""
    stage: Callable[[str], Progress] | None = getattr(progress, "stage", None)
    return None if stage is None else stage(what)


def _searched(result: MechanismResult, found: Found, question: Question) -> MechanismResult:
    says = (
        f"{found.tried:,} pairs of neighbours ({question.adjacency}) were tried, with "
        f"{found.releases:,} releases in all; this one, {found.says}, promised most and was judged "
        "on new releases."
    )
    advice = [one_line(says, limit=600)]
    if found.refused:
        advice.append(
            f"At {found.refused:,} pairs the mechanism raised, first: {found.error}. They were not "
            "audited; an error that depends on the data is a release too."
        )
    if found.late:
        advice.append(
            f"The search ended early, after {found.tried:,} of up to {found.budget:,} pairs: its "
            "share of the time limit was used up."
        )
    if any("NaN" in text for text in result.details.get("pair", ())):
        advice.append(
            "A record is NaN: if the mechanism is never given one, say which values there are with "
            "--bounds."
        )
    details = {
        "search": {
            "adjacency": question.adjacency,
            "tried": found.tried,
            "budget": found.budget,
            "refused": found.refused,
            "releases": found.releases,
            "promise": found.promise,
            "origin": one_line(found.says, limit=200),
        }
    }
    return dataclasses.replace(
        result,
        method=f"two data sets, found among {found.tried:,} pairs",
        advice=(*result.advice[:1], *advice, *result.advice[1:]),
        details={**result.details, **details},
    )


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
    paths = [Path(folder) / name for name in _FILES]
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
        dataclasses.replace(test, reproduce=_at(test.reproduce, files)) if test.finding else test
        for test in result.tests
    )
    advice = tuple(text for text in result.advice if text != UNWRITTEN)
    return dataclasses.replace(result, tests=tests, advice=advice)


def _at(command: str, files: str) -> str:
    """``command`` for the pair in two files, instead of a search or of the pair itself."""
    words = shlex.split(command)
    if "--neighbours" not in words:
        return command
    for option in ("--dataset", "--adjacency", "--bounds", "--out"):
        if option in words:
            at = words.index(option)
            del words[at : at + 2]
    words[words.index("--neighbours") + 1] = files
    return shlex.join(words)
