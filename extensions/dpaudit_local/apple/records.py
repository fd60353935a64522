"""Decodes records, such as ``818,165,+1`` and ``19802,0000C0…``, into arrays."""

from __future__ import annotations

import binascii
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from dpaudit.findings import Finding
from dpaudit_local.apple.model import Segment
from dpaudit_local.apple.quoting import quoted
from dpaudit_local.mechanisms.reports import BitReports, HadamardReports, SketchReports

__all__ = ["ALGORITHMS", "decode"]

MOST_BITS = 1 << 18
"""The most bits of one sketch; Apple's have 2^15."""
_WORD = 1 << 32
_SIGNS = {"+1": 1, "-1": -1}


@dataclass(frozen=True, slots=True)
class Decoding:
    """The readable records of one segment, in order, and findings on the segment and the rest."""

    reports: tuple[BitReports | SketchReports | HadamardReports, ...]
    """One per part of a record: two of a sequence and fragment puzzle, none if undecodable."""
    left_out: int
    findings: tuple[Finding, ...] = ()


class _RefusedError(Exception):
    """An error in a record, or in the parameters."""


def decode(segment: Segment) -> Decoding:
    """Decode the records of ``segment`` by its algorithm (Figures 11 and 12); none is guessed.

    ``OneBitHistogram``: a position, ±1; positions from ``p`` on are kept and are a finding (Figure
    11 has one). ``CountMedianSketch``: a function below ``k`` and ``m`` bits as m/4 hexadecimal
    digits, bit i in byte i // 8 at 1 << i % 8, as in Figure 16.
    ``SequenceFragmentPuzzle+CountMedianSketch``: the same with two sketches, of ``sequenceM`` and
    ``fragmentM`` bits; the function is below ``sequenceK`` and ``fragmentK`` and taken as that of
    both. ``HadamardCountMedianSketch``: a function below ``k``, a coordinate below ``m``, ±1.

    Signs are ``+1`` or ``-1``, numbers decimal digits, hexadecimal digits of either case; a record
    with white space, another number of digits or fields, or a number out of range is left out.
    Findings count such records by error, with the first of them. Time and memory are proportional
    to the text.
    """
    reader, where, total = ALGORITHMS.get(segment.algorithm), segment.key, len(segment.records)
    if reader is None:
        message = f"unknown algorithm {quoted(segment.algorithm)}; its records are left out"
        return Decoding((), total, (Finding(where, message),))
    try:
        read_record, finish = reader(segment.parameters)
    except _RefusedError as error:
        return Decoding((), total, (Finding(where, f"{error}; the records are left out"),))
    findings: list[Finding] = []
    rows: list[Any] = []
    wrong: dict[str, list[int]] = defaultdict(list)
    for n, record in enumerate(segment.records):
        try:
            rows.append(read_record(record.split(",")))
        except _RefusedError as error:
            wrong[str(error)].append(n)
    for why, numbers in wrong.items():
        first = f"record {numbers[0] + 1}, {quoted(segment.records[numbers[0]], longest=40)}"
        message = f"{len(numbers)} of {total} records left out: {why}; the first is {first}"
        findings.append(Finding(where, message))
    reports, remarks = finish(rows)
    findings += [Finding(where, remark) for remark in remarks]
    return Decoding(reports, total - len(rows), tuple(findings))


_Made = tuple[tuple[BitReports | SketchReports | HadamardReports, ...], list[str]]
_Reader = tuple[Callable[[list[str]], Any], Callable[[list[Any]], _Made]]


def _bits(parameters: Mapping[str, Any]) -> _Reader:
    p = _size(parameters, "p", 1 << 32)

    def read(fields: list[str]) -> tuple[int, int]:
        position, sign = _fields(fields, 2)
        return _number(position, _WORD, "position"), _sign(sign)

    def finish(rows: list[tuple[int, int]]) -> _Made:
        position, sign = _columns(rows, 2)
        remarks = []
        if len(beyond := position[position >= p]):
            remarks = [f"{len(beyond)} positions are not below p = {p}, such as {beyond[0]}; kept"]
        return (BitReports(position.astype(np.uint32), sign.astype(np.int8)),), remarks

    return read, finish


def _sketches(*names: tuple[str, str]) -> Callable[[Mapping[str, Any]], _Reader]:
    """Of records with a sketch for each pair of ``names``: of its hash functions and its bits."""

    def reader(parameters: Mapping[str, Any]) -> _Reader:
        k = min([_size(parameters, functions, _WORD) for functions, _ in names])
        sizes = [_bit_count(parameters, bits) for _, bits in names]

        def read(fields: list[str]) -> tuple[int, list[bytes]]:
            function, digits = _fields(fields, 2)
            parts = digits.split(":", len(sizes) - 1) if len(sizes) > 1 else [digits]
            if len(parts) < len(sizes):
                raise _RefusedError("no ':' between two sketches")
            number = _number(function, k, "function")
            return number, [_hex(part, m) for part, m in zip(parts, sizes, strict=True)]

        def finish(rows: list[tuple[int, list[bytes]]]) -> _Made:
            functions = np.array([function for function, _ in rows], dtype=np.uint32)
            reports = []
            for i, m in enumerate(sizes):
                packed = bytearray().join(sketches[i] for _, sketches in rows)
                bits = np.frombuffer(packed, dtype=np.uint8).reshape(-1, m // 8)
                reports.append(SketchReports(functions, bits))
            return tuple(reports), []

        return read, finish

    return reader


def _hadamards(parameters: Mapping[str, Any]) -> _Reader:
    k, m = _size(parameters, "k", _WORD), _size(parameters, "m", _WORD)

    def read(fields: list[str]) -> tuple[int, int, int]:
        function, coordinate, sign = _fields(fields, 3)
        return _number(function, k, "function"), _number(coordinate, m, "coordinate"), _sign(sign)

    def finish(rows: list[tuple[int, int, int]]) -> _Made:
        function, coordinate, sign = _columns(rows, 3)
        remarks = []
        if m & (m - 1):
            remarks = [f"m = {m} is not a power of two, so its Hadamard matrix is not supported"]
        reports = HadamardReports(
            function.astype(np.uint32), coordinate.astype(np.uint32), sign.astype(np.int8)
        )
        return (reports,), remarks

    return read, finish


ALGORITHMS: Mapping[str, Callable[[Mapping[str, Any]], _Reader]] = {
    "CountMedianSketch": _sketches(("k", "m")),
    "HadamardCountMedianSketch": _hadamards,
    "OneBitHistogram": _bits,
    "SequenceFragmentPuzzle+CountMedianSketch": _sketches(
        ("sequenceK", "sequenceM"), ("fragmentK", "fragmentM")
    ),
}
"""The values of a segment's ``algorithm``."""


def _size(parameters: Mapping[str, Any], name: str, most: int) -> int:
    value = parameters.get(name)
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most:
        raise _RefusedError(
            f"parameter {name}={repr(value)[:40]} is not a whole number from 1 to {most}"
        )
    return value


def _bit_count(parameters: Mapping[str, Any], name: str) -> int:
    bits = _size(parameters, name, MOST_BITS)
    if bits % 8:
        raise _RefusedError(f"parameter {name}={bits} is not a whole number of bytes")
    return bits


def _fields(fields: list[str], count: int) -> list[str]:
    if len(fields) != count:
        raise _RefusedError(f"not {count} comma-separated fields")
    return fields


def _number(text: str, below: int, name: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) <= 10):
        raise _RefusedError(f"the {name} is not a decimal number")
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
        raise _RefusedError("not only hexadecimal digits") from None
    if len(data) * 8 != m:
        raise _RefusedError(f"not {m} bits")
    return data


def _columns(rows: list[Any], count: int) -> npt.NDArray[np.int64]:
    return np.array(rows, dtype=np.int64).reshape(-1, count).T
