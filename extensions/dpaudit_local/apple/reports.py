"""Reads report files, ``.dpsub`` and ``.json.anon``, one at a time.

Their JSON is read strictly, except for a few errors that cannot change the meaning.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from dpaudit.errors import UsageError
from dpaudit.findings import Finding
from dpaudit.results.foreign import RefusedError, read_plain
from dpaudit_local.apple.model import Report, Segment
from dpaudit_local.apple.quoting import path_text, quoted

__all__ = ["read_report", "read_reports", "time_in"]

ENDINGS = (".dpsub", ".json.anon")
"""The endings of report files (§2.1), upper or lower case."""

_TIME = re.compile(
    r"(?<!\d)(\d{4})-(\d\d)-(\d\d)[-_T](\d\d)[-:.]?(\d\d)[-:.]?(\d\d)(?!\d)", re.ASCII
)


def is_report(name: str) -> bool:
    """Whether a file of this name is a report."""
    return name.lower().endswith(ENDINGS)


def time_in(name: str) -> datetime | None:
    """The first date and time in a file name, taken as UTC; None without one.

    Tang et al. (§4.2.1) say that names contain the creation time, or that time adjusted forward by
    7 hours, and show no name. We read ``YYYY-MM-DD`` and ``HHMMSS`` joined by ``-``, ``_`` or
    ``T``, the hour, minute and second also with ``-``, ``:`` or ``.`` between, as macOS names its
    diagnostic reports.

    >>> time_in("DifferentialPrivacy_2017-08-08-082230_mac.dpsub")
    datetime.datetime(2017, 8, 8, 8, 22, 30, tzinfo=datetime.timezone.utc)
    """
    for match in _TIME.finditer(name):
        try:
            return datetime.strptime("".join(match.groups()), "%Y%m%d%H%M%S").replace(tzinfo=UTC)
        except ValueError:
            continue
    return None


MOST_BYTES = 64 * 2**20
MOST_DEPTH = 32
_MOST_SEGMENTS = 100_000
_MOST_PARAMETERS = 1000
_MOST_FINDINGS = 50


def read_reports(folder: Path, *, limit: int = MOST_BYTES) -> Iterator[Report]:
    """The reports under ``folder`` and its subfolders, by name; other files are skipped.

    One file is in memory at a time, at most ``limit`` bytes of it. A file or subfolder that cannot
    be read (no permission, too large, a symbolic link, not JSON, more than 32 folders deep) is a
    report without segments and with a finding. So is a copy of an earlier report (the same segments
    and time): counted twice, its bits would seem to agree. The time of a report is the one in its
    name (:func:`time_in`), never the file system's, which copying changes.

    Raises:
        UsageError: at once, if ``folder`` is not a folder or cannot be listed.
    """
    try:
        os.scandir(folder).close()
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise UsageError(
            f"reports={path_text(folder)}: cannot be listed ({why}); give a folder of reports"
        ) from None
    return _walk(folder, limit)


def _walk(folder: Path, limit: int) -> Iterator[Report]:
    waiting, digests = [(folder, 0)], set[bytes]()
    while waiting:
        path, depth = waiting.pop()
        try:
            with os.scandir(path) as entries:
                listing = sorted(entries, key=lambda entry: entry.name, reverse=True)
        except OSError as error:
            yield _unreadable(path, f"cannot be listed ({error.strerror}); its files are not read")
            continue
        folders = []
        for entry in reversed(listing):
            here = path / entry.name
            if entry.is_symlink():
                yield _unreadable(here, "a symbolic link; not followed")
            elif entry.is_dir(follow_symlinks=False):
                if depth == MOST_DEPTH:
                    yield _unreadable(here, f"more than {MOST_DEPTH} folders deep; not read")
                else:
                    folders.append((here, depth + 1))
            elif is_report(entry.name):
                yield _without_copy(read_report(here, limit=limit), digests)
        waiting += reversed(folders)


def _without_copy(report: Report, digests: set[bytes]) -> Report:
    """``report``, without its segments if it is a copy."""
    if not report.segments:
        return report
    digest = hashlib.blake2b(str(report.created).encode(), digest_size=16)
    for s in report.segments:
        digest.update(repr((s.key, s.algorithm, sorted(s.parameters.items()), s.records)).encode())
    if digest.digest() not in digests:
        digests.add(digest.digest())
        return report
    message = "a copy of an earlier report (same time and records); counted once"
    copy = Finding(path_text(report.path), message)
    return replace(report, segments=(), findings=(*report.findings, copy))


def read_report(path: Path, *, limit: int = MOST_BYTES) -> Report:
    """Read one report file; an unreadable file or invalid content is a finding, never an exception.

    Accepted are an object ``{"version", "segments"}`` (Figure 11), a list of segments or segments
    one after the other (Figure 12). Segments with an invalid key, algorithm, parameters or list of
    records are left out, as are records that are not text; findings count them.
    """
    try:
        text = _text(path, limit)
        documents, errors = read_documents(text)
    except RefusedJsonError as error:
        return _unreadable(path, f"{error}; not read")
    findings = _Findings(path_text(path), [])
    for overlooked in errors:
        findings.add(f"{overlooked}; overlooked")
    versions: list[int] = []
    segments = tuple(s for document in documents for s in _segments(document, versions, findings))
    if len(set(versions)) > 1:
        findings.add(f"{len(set(versions))} different versions; the first, {versions[0]}, is shown")
    if not versions:
        findings.add("no whole number as version")
    version = versions[0] if versions else None
    return Report(path, version, time_in(path.name), segments, findings.all())


@dataclass
class _Findings:
    """The findings of one file, up to a limit."""

    where: str
    findings: list[Finding]
    others: int = 0

    def add(self, message: str) -> None:
        if len(self.findings) < _MOST_FINDINGS:
            self.findings.append(Finding(self.where, message))
        else:
            self.others += 1

    def all(self) -> tuple[Finding, ...]:
        more = Finding(self.where, f"{self.others} more findings like these")
        return (*self.findings, more) if self.others else tuple(self.findings)


def _unreadable(path: Path, why: str) -> Report:
    return Report(path, None, time_in(path.name), (), (Finding(path_text(path), why),))


def _text(path: Path, limit: int) -> str:
    """The file's text.

    Raises:
        RefusedJsonError: it cannot be read, or is not UTF-8.
    """
    try:  # a link that replaced the file meanwhile is not followed
        data = read_plain(path, limit=limit, follow=False)
    except RefusedError as error:
        raise RefusedJsonError(str(error)) from None
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        raise RefusedJsonError("not UTF-8") from None


def _segments(document: Any, versions: list[int], findings: _Findings) -> Iterator[Segment]:
    if isinstance(document, dict) and "records" not in document:
        version = document.get("version")
        if isinstance(version, int) and not isinstance(version, bool) and abs(version) < 2**63:
            versions.append(version)
        document = document.get("segments")
    elif isinstance(document, dict):
        document = [document]
    if not isinstance(document, list):
        findings.add("a JSON document without a list of segments; left out")
        return
    if len(document) > _MOST_SEGMENTS:
        findings.add(
            f"{len(document)} segments; those after the first {_MOST_SEGMENTS} are left out"
        )
    for n, entry in enumerate(document[:_MOST_SEGMENTS], 1):
        wrong = _segment_error(entry)
        if wrong:
            findings.add(f"segment {n} of {len(document)}: {wrong}; left out")
            continue
        records = tuple(record for record in entry["records"] if isinstance(record, str))
        lost = len(entry["records"]) - len(records)
        if lost:
            findings.add(f"{quoted(entry['key'])}: {lost} records are not text; left out")
        yield Segment(entry["key"], entry["algorithm"], entry.get("parameters", {}), records)


def _segment_error(entry: Any) -> str | None:
    """The reason why ``entry`` is not a segment; None if it is one."""
    if not isinstance(entry, dict):
        return "not an object"
    for name in ("key", "algorithm"):
        if not _is_name(entry.get(name)):
            return f"no valid text as {name!r}"
    if not isinstance(entry.get("records"), list):
        return "no list of records"
    parameters = entry.get("parameters", {})
    if not isinstance(parameters, Mapping) or len(parameters) > _MOST_PARAMETERS:
        return "parameters that are not an object of reasonable size"
    for name, value in parameters.items():
        if not _is_name(name) or not _is_plain(value):
            return f"parameter {quoted(name)} is not text, Boolean or a finite number"
    return None


def _is_name(value: Any) -> bool:
    return isinstance(value, str) and 0 < len(value) <= 1000 and value.isprintable()


def _is_plain(value: Any) -> bool:
    if isinstance(value, float):
        return math.isfinite(value)
    return isinstance(value, bool | str) or (isinstance(value, int) and abs(value) < 2**63)


MOST_CONTAINERS = 1_000_000
"""The most brackets or colons in one text: an empty list of two bytes takes 56 of memory."""
MOST_DOCUMENTS = 10_000

_STRING_OR_COMMA = re.compile(r'"(?:[^"\\]|\\.)*+(?:"|\\?\Z)|,(?=\s*[\]}])', re.DOTALL)
_BETWEEN = re.compile(r"[\s,]*")


class RefusedJsonError(Exception):
    """A text is refused; the message says why."""


def read_documents(text: str) -> tuple[list[Any], list[str]]:
    """The JSON documents in ``text``, in order, and each tolerated error in words.

    Tolerated: a byte order mark, several documents in a row (separated by white space or commas), a
    comma before a closing bracket, and control characters in strings. Refused: a duplicate key in
    one object, NaN and Infinity, nesting that the parser does not follow, more than a million
    brackets or colons, and everything else that is not JSON. Memory is at most about twenty times
    the text's.

    Raises:
        RefusedJsonError: refused, or empty.
    """
    errors = []
    if text.startswith("\ufeff"):
        text = text[1:]
        errors.append("starts with a byte order mark")
    if text.count("[") + text.count("{") > MOST_CONTAINERS or text.count(":") > MOST_CONTAINERS:
        raise RefusedJsonError(
            f"more than {MOST_CONTAINERS} brackets or colons; no report has so many"
        )
    try:
        documents, between = _documents(text, strict=True)
    except RefusedJsonError:
        repaired, commas = _without_commas(text)
        documents, between = _documents(repaired, strict=False)
        if commas:
            many = f"{commas} commas" if commas > 1 else "a comma"
            errors.append(f"{many} before a closing bracket")
        if _fails(repaired):
            errors.append("control characters, such as line breaks, inside strings")
    if len(documents) > 1:
        errors.append(f"{len(documents)} JSON documents one after the other")
    if between:
        errors.append("commas outside any document")
    return documents, errors


def _fails(text: str) -> bool:
    try:
        _documents(text, strict=True)
    except RefusedJsonError:
        return True
    return False


def _documents(text: str, *, strict: bool) -> tuple[list[Any], bool]:
    decoder = json.JSONDecoder(
        strict=strict, object_pairs_hook=_unique_keys, parse_constant=_constant
    )
    documents: list[Any] = []
    commas = False
    place = _skip_separators(text, 0)
    try:
        while place < len(text):
            if len(documents) == MOST_DOCUMENTS:
                raise RefusedJsonError(f"more than {MOST_DOCUMENTS} JSON documents")
            document, end = decoder.raw_decode(text, place)
            documents.append(document)
            place = _skip_separators(text, end)
            commas = commas or "," in text[end:place]
    except RecursionError:
        raise RefusedJsonError("nested too deep") from None
    except ValueError as error:
        raise RefusedJsonError(f"not JSON: {error}") from None
    if not documents:
        raise RefusedJsonError("empty")
    return documents, commas


def _skip_separators(text: str, place: int) -> int:
    match = _BETWEEN.match(text, place)
    return place if match is None else match.end()


def _without_commas(text: str) -> tuple[str, int]:
    commas = 0

    def replacement(match: re.Match[str]) -> str:
        nonlocal commas
        if match.group() != ",":
            return match.group()
        commas += 1
        return " "

    return _STRING_OR_COMMA.sub(replacement, text), commas


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) < len(pairs):
        raise RefusedJsonError("a duplicate key in one object; readers would disagree about it")
    return result


def _constant(name: str) -> Any:
    raise RefusedJsonError(f"{name} is not a JSON number")
