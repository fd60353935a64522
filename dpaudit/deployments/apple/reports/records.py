"""Decodes records, such as ``818,165,+1`` and ``19802,0000C0…``, into arrays."""

from __future__ import annotations

import binascii
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from dpaudit.deployments.apple.model import Finding, Segment
from dpaudit.deployments.apple.quoting import quoted
from dpaudit.local.reports import BitReports, HadamardReports, SketchReports

__all__ = ["ALGORITHMS", "Decoded", "decode"]

MOST_BITS = 1 << 18
"""Of one sketch; Apple's have 2^15."""
_WORD = 1 << 32
_SIGNS = {"+1": 1, "-1": -1}


@dataclass(frozen=True, slots=True)
class Decoded:
    """The records of one segment that can be read, in their order, and what is wrong with it and the others."""

    reports: tuple[BitReports | SketchReports | HadamardReports, ...]
    """One for each part of a record: two of a sequence and fragment puzzle, none where nothing can be decoded."""
    left_out: int
    findings: tuple[Finding, ...] = ()


class _RefusedError(Exception):
    """What is wrong with a record, or with the parameters."""


def decode(segment: Segment) -> Decoded:
    """The records of ``segment`` by its algorithm (Figures 11 and 12); one that cannot be read is left out, never guessed.

    ``OneBitHistogram``: a position, ±1; positions from ``p`` on are kept and are a finding (Figure
    11 has one). ``CountMedianSketch``: a function below ``k`` and ``m`` bits as m/4 hexadecimal
    digits, bit i in byte i // 8 at 1 << i % 8, as Figure 16 sets it.
    ``SequenceFragmentPuzzle+CountMedianSketch``: the same with two sketches, of ``sequenceM`` and
    ``fragmentM`` bits; the function is below ``sequenceK`` and ``fragmentK``, taken to be that of
    both. ``HadamardCountMedianSketch``: a function below ``k``, a coordinate below ``m``, ±1.

    Signs are ``+1`` or ``-1``, numbers decimal digits, hexadecimal digits of either case; white
    space anywhere, another number of digits or fields, or a number out of range leaves a record
    out. Findings count such records by what is wrong, with the first of them. Time and memory are
    those of the text.
    """
    findings: list[Finding] = []
    reader = ALGORITHMS.get(segment.algorithm)
    where = segment.key
    if reader is None:
        findings.append(
            Finding(
                where, f"unknown algorithm {quoted(segment.algorithm)}; its records are left out"
            )
        )
        return Decoded((), len(segment.records), tuple(findings))
    try:
        read, finish = reader(segment.parameters)
    except _RefusedError as error:
        findings.append(Finding(where, f"{error}; the records are left out"))
        return Decoded((), len(segment.records), tuple(findings))
    rows: list[Any] = []
    wrong: dict[str, list[int]] = defaultdict(list)
    for n, record in enumerate(segment.records):
        try:
            rows.append(read(record.split(",")))
        except _RefusedError as error:
            wrong[str(error)].append(n)
    total = len(segment.records)
    for why, numbers in wrong.items():
        findings.append(
            Finding(
                where,
                f"{len(numbers)} of {total} records left out: {why}; the first is record {numbers[0] + 1}, "
                f"{quoted(segment.records[numbers[0]], longest=40)}",
            )
        )
    reports, remarks = finish(rows)
    findings += [Finding(where, remark) for remark in remarks]
    return Decoded(reports, total - len(rows), tuple(findings))


_Made = tuple[tuple[BitReports | SketchReports | HadamardReports, ...], list[str]]
_Reader = tuple[Callable[[list[str]], Any], Callable[[list[Any]], _Made]]


def _bits(parameters: Mapping[str, Any]) -> _Reader:
    p = _size(parameters, "p", 1 << 32)

    def read(fields: list[str]) -> tuple[int, int]:
        position, sign = _fields(fields, 2)
        return _number(position, _WORD, "position"), _sign(sign)

    def finish(rows: list[tuple[int, int]]) -> _Made:
        position, sign = _columns(rows, 2)
        beyond = position[position >= p]
        remarks = (
            [f"{len(beyond)} positions are not below p = {p}, such as {beyond[0]}; kept"]
            if len(beyond)
            else []
        )
        return (BitReports(position.astype(np.uint32), sign.astype(np.int8)),), remarks

    return read, finish


def _sketches(parameters: Mapping[str, Any]) -> _Reader:
    k, m = _size(parameters, "k", _WORD), _bit_count(parameters, "m")

    def read(fields: list[str]) -> tuple[int, bytes]:
        function, digits = _fields(fields, 2)
        return _number(function, k, "function"), _hex(digits, m)

    def finish(rows: list[tuple[int, bytes]]) -> _Made:
        return (_sketch_reports([row[0] for row in rows], [row[1] for row in rows], m),), []

    return read, finish


def _puzzles(parameters: Mapping[str, Any]) -> _Reader:
    k = min(_size(parameters, "sequenceK", _WORD), _size(parameters, "fragmentK", _WORD))
    m, fragment_m = _bit_count(parameters, "sequenceM"), _bit_count(parameters, "fragmentM")

    def read(fields: list[str]) -> tuple[int, bytes, bytes]:
        function, digits = _fields(fields, 2)
        sequence, colon, fragment = digits.partition(":")
        if not colon:
            raise _RefusedError("no ':' between two sketches")
        return _number(function, k, "function"), _hex(sequence, m), _hex(fragment, fragment_m)

    def finish(rows: list[tuple[int, bytes, bytes]]) -> _Made:
        functions = [row[0] for row in rows]
        first = _sketch_reports(functions, [row[1] for row in rows], m)
        return (first, _sketch_reports(functions, [row[2] for row in rows], fragment_m)), []

    return read, finish


def _hadamards(parameters: Mapping[str, Any]) -> _Reader:
    k, m = _size(parameters, "k", _WORD), _size(parameters, "m", _WORD)

    def read(fields: list[str]) -> tuple[int, int, int]:
        function, coordinate, sign = _fields(fields, 3)
        return _number(function, k, "function"), _number(coordinate, m, "coordinate"), _sign(sign)

    def finish(rows: list[tuple[int, int, int]]) -> _Made:
        function, coordinate, sign = _columns(rows, 3)
        remarks = (
            []
            if m & (m - 1) == 0
            else [f"m = {m} is no power of two, so there is no Hadamard matrix of it here"]
        )
        reports = HadamardReports(
            function.astype(np.uint32), coordinate.astype(np.uint32), sign.astype(np.int8)
        )
        return (reports,), remarks

    return read, finish


ALGORITHMS: Mapping[str, Callable[[Mapping[str, Any]], _Reader]] = {
    "CountMedianSketch": _sketches,
    "HadamardCountMedianSketch": _hadamards,
    "OneBitHistogram": _bits,
    "SequenceFragmentPuzzle+CountMedianSketch": _puzzles,
}
"""What a segment's ``algorithm`` can be."""


def _size(parameters: Mapping[str, Any], name: str, most: int) -> int:
    value = parameters.get(name)
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most:
        raise _RefusedError(
            f"parameter {name}={repr(value)[:40]} is no whole number from 1 to {most}"
        )
    return value


def _bit_count(parameters: Mapping[str, Any], name: str) -> int:
    bits = _size(parameters, name, MOST_BITS)
    if bits % 8:
        raise _RefusedError(f"parameter {name}={bits} is no whole number of bytes")
    return bits


def _fields(fields: list[str], count: int) -> list[str]:
    if len(fields) != count:
        raise _RefusedError(f"not {count} fields with commas between them")
    return fields


def _number(text: str, below: int, name: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) <= 10):
        raise _RefusedError(f"the {name} is no number of decimal digits")
    value = int(text)
    if value >= below:
        raise _RefusedError(f"the {name} is not below {below}")
    return value


def _sign(text: str) -> int:
    try:
        return _SIGNS[text]
    except KeyError:
        raise _RefusedError("the sign is neither +1 nor -1") from None


def _hex(digits: str, m: int) -> bytes:
    if len(digits) % 2:
        raise _RefusedError("an odd number of hexadecimal digits")
    try:
        data = binascii.unhexlify(digits)  # unlike bytes.fromhex it takes no white space
    except ValueError:
        raise _RefusedError("not hexadecimal digits alone") from None
    if len(data) * 8 != m:
        raise _RefusedError(f"not {m} bits")
    return data


def _columns(rows: list[Any], count: int) -> npt.NDArray[np.int64]:
    return np.array(rows, dtype=np.int64).reshape(-1, count).T


def _sketch_reports(functions: list[int], sketches: list[bytes], m: int) -> SketchReports:
    bits = np.frombuffer(bytearray().join(sketches), dtype=np.uint8).reshape(-1, m // 8)
    return SketchReports(np.array(functions, dtype=np.uint32), bits)
