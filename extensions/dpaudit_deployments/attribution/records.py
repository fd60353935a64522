"""Recorded files: event-level reports, summary reports and aggregatable reports, in JSON."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import numpy as np
import numpy.typing as npt

from dpaudit.errors import UsageError
from dpaudit.results.foreign import RefusedError, open_plain, read_json, read_plain
from dpaudit.results.text import printable
from dpaudit_deployments.attribution.registration import Registration, Report

__all__ = [
    "AggregatableReport",
    "Batch",
    "EventRecord",
    "Source",
    "read_aggregatable",
    "read_batch",
    "read_buckets",
    "read_events",
    "read_registrations",
    "read_values",
]

T = TypeVar("T")
_MOST_BYTES = 1 << 30
_LONGEST_LINE = 1 << 20
_MOST_NOISE = 1 << 52


class EventRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One line of a file of event-level reports: one source and everything that it reported.

    A report is a pair of trigger data and the index of its report window. ``true`` is what would
    have been reported without noise, if that is known.
    """

    source: str | int
    reported: list[Report]
    true: list[Report] | None = None
    registration: msgspec.Raw = msgspec.Raw()
    randomized_trigger_rate: float | None = None
    source_site: str = ""
    destination: str = ""
    reporting_origin: str = ""
    time: float | None = None
    """Of the source's registration, in seconds."""


@dataclass(frozen=True, slots=True)
class Source:
    """A record with its registration, and the places of its states among all output states."""

    record: EventRecord
    registration: Registration
    reported: int
    true: int | None


class _Contribution(msgspec.Struct, frozen=True):
    value: int


class AggregatableReport(msgspec.Struct, frozen=True, kw_only=True):
    """One line of a file of aggregatable reports, with its contributions in plain.

    ``shared_info`` is as sent, a JSON text, or an object. ``batch`` is the summary report (or
    several) that the report was aggregated in.
    """

    source: str | int
    contributions: list[_Contribution]
    batch: str | int | list[str | int] = "1"
    shared_info: str | dict[str, Any] = ""
    filtering_id: int = 0


class _Row(msgspec.Struct, frozen=True, kw_only=True):
    bucket: str | int
    metric: int | None = None
    unnoised_metric: int | None = None
    noise: int | None = None


@dataclass(frozen=True, slots=True)
class Batch:
    """One summary report: the noise of the buckets whose true value is known, in file order."""

    name: str
    buckets: tuple[str | int, ...]
    noise: npt.NDArray[np.int64]
    rows: int


def read_events(path: Path, *, default: Registration) -> Iterator[Source]:
    """The sources of a JSON-lines file of :class:`EventRecord`.

    ``default`` is the registration of sources that state none.

    Raises:
        UsageError: a line is not a record, or has a state that its registration cannot have; the
            message names the line.
    """
    registrations: dict[bytes, Registration] = {b"": default}
    for number, record in _lines(path, EventRecord):
        text = bytes(record.registration)
        try:
            if text not in registrations:
                registrations[text] = Registration.parse(read_json(text), epsilon=default.epsilon)
            registration = registrations[text]
            reported = _place(registration, record.reported)
            true = None if record.true is None else _place(registration, record.true)
        except RefusedError as error:
            raise _refused(path, error, line=number) from None
        yield Source(record, registration, reported, true)


def _place(registration: Registration, reports: list[Report]) -> int:
    place = registration.index.get(tuple(sorted(reports)))
    if place is None:
        raise RefusedError(f"reports={sorted(reports)[:4]}: no output of the source's registration")
    return place


def read_registrations(path: Path, *, epsilon: float) -> tuple[Registration, ...]:
    """The source registrations of a JSON file: one object, or a list of them.

    Raises:
        UsageError: the file cannot be read, or breaks a rule of the specification.
    """
    try:
        value = read_json(read_plain(path, limit=_LONGEST_LINE))
        headers = value if isinstance(value, list) else [value]
        return tuple(Registration.parse(header, epsilon=epsilon) for header in headers)
    except RefusedError as error:
        raise _refused(path, error) from None


def read_batch(
    path: Path,
    *,
    values: Mapping[str | int, int] | None = None,
    empty: frozenset[str | int] = frozenset(),
) -> Batch:
    """A summary report as JSON: an array of rows, or one row per line.

    A row has ``bucket`` and ``metric``, as ``output.json`` of the aggregation service's local
    testing tool (``--json_output``), or ``unnoised_metric`` and ``noise`` as its debug summary
    reports. The noise is ``noise``, or ``metric`` minus ``unnoised_metric``, or minus the bucket's
    one of ``values``, or ``metric`` of an ``empty`` bucket.

    Raises:
        UsageError: the file cannot be read, or has another format.
    """
    rows: list[_Row] = _items(path, _Row)
    noise, buckets = [], []
    for row in rows:
        residual = _noise_of(row, values or {}, empty)
        if residual is None:
            continue
        if abs(residual) > _MOST_NOISE:
            raise _refused(path, RefusedError(f"noise of {residual}: beyond 2^52"))
        noise.append(residual)
        buckets.append(row.bucket)
    return Batch(path.name, tuple(buckets), np.array(noise, dtype=np.int64), len(rows))


def _noise_of(
    row: _Row, values: Mapping[str | int, int], empty: frozenset[str | int]
) -> int | None:
    if row.noise is not None:
        return row.noise
    true = row.unnoised_metric
    true = values.get(row.bucket) if true is None else true
    true = 0 if true is None and row.bucket in empty else true
    return None if true is None or row.metric is None else row.metric - true


def read_values(path: Path) -> dict[str | int, int]:
    """The values of a summary report made without noise (``--no_noising``), by bucket.

    Raises:
        UsageError: as :func:`read_batch`.
    """
    rows: list[_Row] = _items(path, _Row)
    return {row.bucket: row.metric for row in rows if row.metric is not None}


def read_buckets(path: Path) -> frozenset[str | int]:
    """Buckets: a JSON array of them, or of rows with ``bucket``, or one per line.

    Raises:
        UsageError: the file cannot be read, or has another format.
    """
    items = _items(path, str | int | _Row)
    return frozenset(item.bucket if isinstance(item, _Row) else item for item in items)


def read_aggregatable(path: Path) -> Iterator[tuple[AggregatableReport, Mapping[str, Any]]]:
    """The reports of a JSON-lines file of :class:`AggregatableReport`, each with its shared info.

    Raises:
        UsageError: a line is not a report; the message names it.
    """
    for number, report in _lines(path, AggregatableReport):
        info: Any = report.shared_info
        try:
            info = read_json(info) if isinstance(info, str) and info else info or {}
            if not isinstance(info, dict):
                raise RefusedError("shared_info: must be a JSON object")
        except RefusedError as error:
            raise _refused(path, error, line=number) from None
        yield report, info


def _items(path: Path, kind: Any) -> list[Any]:
    try:
        data = read_plain(path, limit=_MOST_BYTES)
    except RefusedError as error:
        raise _refused(path, error) from None
    if not data.lstrip().startswith(b"["):
        return [item for _, item in _lines(path, kind)]
    try:
        return msgspec.json.decode(data, type=list[kind])
    except (msgspec.MsgspecError, RecursionError, UnicodeError) as error:
        raise _refused(path, error) from None


def _lines(path: Path, kind: type[T]) -> Iterator[tuple[int, T]]:
    decoder = msgspec.json.Decoder(kind)
    try:
        file = open_plain(path)
    except RefusedError as error:
        raise _refused(path, error) from None
    number = 0
    with file:
        while line := file.readline(_LONGEST_LINE):
            number += 1
            if len(line) == _LONGEST_LINE:
                raise _refused(path, RefusedError("longer than 2^20 bytes"), line=number)
            if not line.strip():
                continue
            try:
                yield number, decoder.decode(line)
            except (msgspec.MsgspecError, RecursionError, UnicodeError) as error:
                raise _refused(path, error, line=number) from None


def _refused(path: Path, error: Exception, *, line: int | None = None) -> UsageError:
    where = f"file={path}" + ("" if line is None else f", line {line}")
    return UsageError(
        f"{where}: {printable(error, limit=200)}; see docs/studies/attribution.md for the format"
    )
