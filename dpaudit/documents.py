"""The documents that dpaudit writes and reads: one typed class per kind, and reading JSON into it.

``to_dict`` of a document is what ``result.json`` or ``results.json`` holds. Within a major version
of the schema, documents only gain keys: unknown keys are accepted, and later fields have a default.
The documents of deployments are in ``dpaudit.deployments``: ``apple.document``,
``attribution.document`` and ``census.document``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Literal, TypeVar

import msgspec
from msgspec import Struct

from dpaudit.results.foreign import RefusedError
from dpaudit.types import (
    Amount,
    AuditResult,
    CellFailure,
    CellResult,
    Count,
    DeterminismResult,
    EpsilonBounds,
    Interval,
    Level,
    MechanismResult,
    Number,
    PowerPoint,
    ProofResult,
    Share,
    Verdict,
)

__all__ = [
    "SCHEMA",
    "Arm",
    "ArmAttack",
    "ArmAudit",
    "AuditDocument",
    "Column",
    "DeterminismDocument",
    "ExperimentDocument",
    "Figure",
    "Format",
    "MeasurementsDocument",
    "MechanismDocument",
    "ProofDocument",
    "Schema",
    "convert_value",
    "measured_nothing",
    "of_result",
]

Schema = Literal["dpaudit-report/1"]
SCHEMA: Schema = "dpaudit-report/1"
"""Name and major version of the schema, in every document; the oldest documents have none."""

Format = Literal["setting", "number", "proportion", "epsilon", "seconds", "ratio", "flag", "text"]
Repeatable = Annotated[
    Mapping[str, Any],
    msgspec.Meta(
        extra_json_schema={"anyOf": [{"$ref": "#/$defs/Provenance"}, {"maxProperties": 0}]}
    ),
]
"""Provenance as a store keeps it; empty where no cell has finished."""
T = TypeVar("T")


def convert_value(value: Any, cls: type[T], *, words: bool = True) -> T:
    """Convert a JSON value to ``cls``, a class of documents or of results.

    With ``words``, numbers may be "inf", "-inf" and "nan".

    Raises:
        RefusedError: a field is missing or has the wrong type; the message names it.
    """
    try:
        return msgspec.convert(value, cls, strict=not words)
    except msgspec.ValidationError as error:
        raise RefusedError(str(error)) from error
    except UnicodeEncodeError as error:
        raise RefusedError("a key, or a word of few, that holds half a surrogate pair") from error


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditDocument:
    """An audit of a closed sampler, as stored in a folder."""

    schema: Schema = SCHEMA
    kind: Literal["audit"] = "audit"
    result: AuditResult

    @property
    def verdict(self) -> Verdict:
        """That of the result."""
        return self.result.verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class MechanismDocument:
    """An audit of a whole mechanism, as stored in a folder."""

    schema: Schema = SCHEMA
    kind: Literal["mechanism"] = "mechanism"
    result: MechanismResult

    @property
    def verdict(self) -> Verdict:
        """That of the result."""
        return self.result.verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class ProofDocument:
    """A proof about a program, as stored in a folder."""

    schema: Schema = SCHEMA
    kind: Literal["proof"] = "proof"
    result: ProofResult


@dataclass(frozen=True, slots=True, kw_only=True)
class DeterminismDocument:
    """What was seen of a compiled sampler with chosen coins, as stored in a folder."""

    schema: Schema = SCHEMA
    kind: Literal["determinism"] = "determinism"
    result: DeterminismResult


def of_result(result: AuditResult | MechanismResult) -> AuditDocument | MechanismDocument:
    """The document of a result, without a recovered secret: that is never written with it."""
    tests = tuple(
        replace(t, details={k: v for k, v in t.details.items() if k != "w"}) for t in result.tests
    )
    if isinstance(result, AuditResult):
        return AuditDocument(result=replace(result, tests=tests))
    return MechanismDocument(result=replace(result, tests=tests))


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmAudit:
    """Outcome of the black-box audit of an arm."""

    verdict: Verdict
    samples: Count
    alpha: Level
    smallest_p: Share


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmAttack:
    """Success of one attack on an arm; ``chance`` is the success of guessing.

    ``keyless`` says that the attack used no key although the experiment has one.
    """

    attack: str
    successes: Count
    trials: Count
    success: Share
    interval: Interval
    chance: Share
    epsilon_lower_bound: Number
    details: Mapping[str, Any] = field(default_factory=dict)
    keyless: bool = field(default=False, metadata={"document": "if any"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Arm:
    """A source with a mitigation under one setting: its audit, and the attacks on it."""

    source: str
    mitigation: str
    settings: Mapping[str, Any]
    attacks: tuple[ArmAttack, ...]
    label: str = ""
    audit: ArmAudit | None = None
    epsilon_claimed: Number
    epsilon_key_holder: EpsilonBounds
    l2_error: Amount | None = None
    l2_expected: Amount | None = None


class Column(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A column of measurements: its key in the rows, its heading (empty: the key), its format."""

    key: str
    label: str = ""
    format: Format = "setting"


class Figure(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A figure of measurements: which keys of the rows to draw, as lines, bars or a map.

    ``series`` is one line or set of bars per value, ``panels`` one panel per value. ``points`` is a
    key whose value is a list of pairs [x, y] (of triples for a map), ``where`` the values of keys
    that a row must have to be drawn, ``band`` the keys of a band's ends, ``reference`` a horizontal
    line.
    """

    x: str
    y: str
    title: str = ""
    series: str | None = None
    panels: tuple[str, ...] = ()
    log_x: bool = False
    log_y: bool = False
    published: str | None = None
    band: tuple[str, ...] = ()
    reference: float | None = None
    label_x: str | None = None
    label_y: str | None = None
    kind: Literal["line", "bars", "map"] = "line"
    points: str | None = None
    value: str | None = None
    where: Mapping[str, Any] = msgspec.field(default_factory=dict)
    diagonal: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ExperimentDocument:
    """An experiment whose rows are arms under attack."""

    schema: Schema = SCHEMA
    kind: Literal["experiment"] = "experiment"
    name: str
    title: str
    story: str
    command: str
    rows: tuple[Arm, ...]
    cells: tuple[CellResult, ...]
    provenance: Repeatable
    failures: tuple[CellFailure, ...] = field(default=(), metadata={"document": "if any"})


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasurementsDocument:
    """An experiment whose rows are measurements: values by the keys of the columns.

    A value is plain, or has ``low`` and ``high``.

    ``misses`` are the rows that differ from what is published; ``power`` and ``caveats`` belong to
    the detectability map, ``proposal`` to what is calibrated by it.
    """

    schema: Schema = SCHEMA
    kind: Literal["measurements"] = "measurements"
    name: str
    title: str
    story: str
    command: str
    columns: tuple[Column, ...]
    figures: tuple[Figure, ...]
    rows: tuple[Mapping[str, Any], ...]
    misses: tuple[Mapping[str, Any], ...]
    summary: str
    cells: tuple[CellResult, ...]
    provenance: Repeatable
    failures: tuple[CellFailure, ...] = field(default=(), metadata={"document": "if any"})
    power: tuple[PowerPoint, ...] = field(default=(), metadata={"document": "if any"})
    caveats: tuple[str, ...] = field(default=(), metadata={"document": "if any"})
    proposal: Mapping[str, Any] = field(default_factory=dict, metadata={"document": "if any"})


def measured_nothing(
    columns: tuple[Column, ...] = (), figures: tuple[Figure, ...] = ()
) -> MeasurementsDocument:
    """Measurements without rows, to check that columns and figures can be shown."""
    return MeasurementsDocument(
        name="",
        title="",
        story="",
        command="",
        columns=columns,
        figures=figures,
        rows=(),
        misses=(),
        summary="",
        cells=(),
        provenance={},
    )
