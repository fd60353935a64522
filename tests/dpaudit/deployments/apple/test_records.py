"""Records to arrays, against a slow reading of Figure 16's bit order, and bad records."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpaudit.deployments.apple.model import Segment
from dpaudit.deployments.apple.reports.reading import read_report
from dpaudit.deployments.apple.reports.records import ALGORITHMS, decode
from dpaudit.local.reports import BitReports, HadamardReports, SketchReports

FIGURES = Path(__file__).parents[3] / "data" / "apple" / "reports"
PARAMETERS: dict[str, dict[str, Any]] = {
    "OneBitHistogram": {"epsilon": 1, "p": 5000},
    "CountMedianSketch": {"epsilon": 2, "k": 100, "m": 16},
    "HadamardCountMedianSketch": {"epsilon": 1, "k": 1024, "m": 32768},
    "SequenceFragmentPuzzle+CountMedianSketch": {
        "sequenceM": 16,
        "sequenceK": 285,
        "fragmentM": 8,
        "fragmentK": 285,
    },
}
PUZZLE = "SequenceFragmentPuzzle+CountMedianSketch"


def segment(algorithm: str, *records: str, **change: Any) -> Segment:
    return Segment("k", algorithm, PARAMETERS[algorithm] | change, records)


def test_figure_11() -> None:
    emoji, words = map(decode, read_report(next(FIGURES.glob("*.dpsub"))).segments)
    (bits,) = emoji.reports
    assert isinstance(bits, BitReports)
    assert (bits.position.tolist(), bits.sign.tolist(), emoji.left_out) == ([49477827], [1], 0)
    assert [f.message for f in emoji.findings] == [
        "1 positions are not below p = 5000, such as 49477827; kept"
    ]
    assert words.left_out == 1  # the figure cuts it
    assert [len(r) for r in words.reports] == [0, 0]
    assert "not 32768 bits" in words.findings[0].message


def test_figure_12() -> None:
    draining, visited, emoji = map(decode, read_report(FIGURES / "figure12.json.anon").segments)
    (signs,) = visited.reports
    assert isinstance(signs, HadamardReports)
    assert signs.function.tolist() == [860, 689, 513, 754, 458, 0, 188, 127]
    assert signs.coordinate.tolist() == [2389, 12234, 16288, 13919, 21448, 3996, 30563, 30993]
    assert signs.sign.tolist() == [1, 1, 1, -1, -1, -1, 1, 1]
    assert draining.findings == visited.findings == ()
    (sketches,) = emoji.reports
    assert isinstance(sketches, SketchReports)
    assert sketches.function.tolist() == [19802, 17857, 20312, 11033, 4455]
    assert sketches.bits.shape == (5, 32)
    assert (
        bytes(sketches.bits[0]).hex().upper()
        == "0000C0800000228206A04008110000000C080021211000046080040801040820"
    )
    assert emoji.left_out == 5
    assert [f.message.split(";")[0] for f in emoji.findings] == [
        "4 of 10 records left out: an odd number of hexadecimal digits",
        "1 of 10 records left out: not 256 bits",
    ]


@given(
    st.lists(st.tuples(st.integers(0, 99), st.sets(st.integers(0, 15))), max_size=5), st.booleans()
)
def test_bits_are_where_figure_16_sets_them(rows: list[tuple[int, set[int]]], lower: bool) -> None:
    texts = []
    for function, ones in rows:
        buffer = bytearray(2)
        for position in ones:
            buffer[position >> 3] ^= 1 << (position & 7)
        digits = buffer.hex() if lower else buffer.hex().upper()
        texts.append(f"{function},{digits}")
    decoded = decode(segment("CountMedianSketch", *texts))
    (reports,) = decoded.reports
    assert isinstance(reports, SketchReports)
    assert (reports.bits.dtype, reports.bits.shape, reports.function.dtype) == (
        np.uint8,
        (len(rows), 2),
        np.uint32,
    )
    for i, (function, ones) in enumerate(rows):
        assert reports.function[i] == function
        assert {p for p in range(16) if reports.bits[i, p // 8] >> p % 8 & 1} == ones
    assert (decoded.left_out, decoded.findings) == (0, ())


def test_a_puzzle_has_two_sketches_of_one_function() -> None:
    decoded = decode(segment(PUZZLE, "131,0F80:a1", "7,0000:00"))
    sequence, fragment = decoded.reports
    assert isinstance(sequence, SketchReports)
    assert isinstance(fragment, SketchReports)
    assert sequence.function.tolist() == fragment.function.tolist() == [131, 7]
    assert sequence.bits.tolist() == [[15, 128], [0, 0]]
    assert fragment.bits.tolist() == [[161], [0]]


@pytest.mark.parametrize(
    ("algorithm", "record", "why"),
    [
        ("OneBitHistogram", "", "not 2 comma-separated fields"),
        ("OneBitHistogram", "5", "not 2 comma-separated fields"),
        ("OneBitHistogram", "5,+1,", "not 2 comma-separated fields"),
        ("OneBitHistogram", "5,1", "the sign is neither"),
        ("OneBitHistogram", "5,+2", "the sign is neither"),
        ("OneBitHistogram", "5,−1", "the sign is neither"),
        ("OneBitHistogram", "5, +1", "the sign is neither"),
        ("OneBitHistogram", " 5,+1", "not a decimal number"),
        ("OneBitHistogram", "-5,+1", "not a decimal number"),
        ("OneBitHistogram", "٥,+1", "not a decimal number"),
        ("OneBitHistogram", "1_0,+1", "not a decimal number"),
        ("OneBitHistogram", "5.0,+1", "not a decimal number"),
        ("OneBitHistogram", "4294967296,+1", "not below 4294967296"),
        ("OneBitHistogram", "9" * 100_000 + ",+1", "not a decimal number"),
        ("CountMedianSketch", "5,0F8", "an odd number"),
        ("CountMedianSketch", "5,0F", "not 16 bits"),
        ("CountMedianSketch", "5,", "not 16 bits"),
        ("CountMedianSketch", "5,0F8000", "not 16 bits"),
        ("CountMedianSketch", "5,0G80", "not only hexadecimal digits"),
        ("CountMedianSketch", "5,0F\n80\n", "not only hexadecimal digits"),
        ("CountMedianSketch", "5,0F 8", "not only hexadecimal digits"),
        ("CountMedianSketch", "5, F80", "not only hexadecimal digits"),
        ("CountMedianSketch", "5,0x0F", "not only hexadecimal digits"),
        ("CountMedianSketch", "5,٠F80", "not only hexadecimal digits"),
        ("CountMedianSketch", "5,\ud80000F", "not only hexadecimal digits"),
        ("CountMedianSketch", "100,0F80", "the function is not below 100"),
        ("CountMedianSketch", "5,0F80:0F80", "an odd number"),
        (PUZZLE, "131,0F80", "no ':'"),
        (PUZZLE, "131,0F80:a1:a1", "an odd number"),
        (PUZZLE, "131,0F80:", "not 8 bits"),
        (PUZZLE, "131,a1:0F80", "not 16 bits"),
        (PUZZLE, "285,0F80:a1", "the function is not below 285"),
        ("HadamardCountMedianSketch", "5,+1", "not 3 comma-separated fields"),
        ("HadamardCountMedianSketch", "1024,5,+1", "the function is not below 1024"),
        ("HadamardCountMedianSketch", "5,32768,+1", "the coordinate is not below 32768"),
        ("HadamardCountMedianSketch", "5,5,0", "the sign is neither"),
    ],
)
def test_a_bad_record_is_left_out_and_the_good_ones_stay(
    algorithm: str, record: str, why: str
) -> None:
    good = {"OneBitHistogram": "7,-1", "CountMedianSketch": "7,FFFF", PUZZLE: "7,FFFF:FF"}.get(
        algorithm, "7,7,-1"
    )
    decoded = decode(segment(algorithm, good, record, good))
    assert decoded.left_out == 1
    assert [len(r) for r in decoded.reports] == [2] * (2 if algorithm == PUZZLE else 1)
    (finding,) = decoded.findings
    assert why in finding.message
    assert "the first is record 2" in finding.message
    assert len(finding.message) < 250
    finding.message.encode()


@pytest.mark.parametrize(
    ("algorithm", "change", "why"),
    [
        ("OneBitHistogram", {"p": 0}, "parameter p=0"),
        ("OneBitHistogram", {"p": True}, "parameter p=True"),
        ("OneBitHistogram", {"p": "5000"}, "parameter p='5000'"),
        ("OneBitHistogram", {"p": None}, "parameter p=None"),
        ("CountMedianSketch", {"m": 12}, "not a whole number of bytes"),
        ("CountMedianSketch", {"m": 1 << 60}, "parameter m=1152921504606846976"),
        ("CountMedianSketch", {"m": -8}, "parameter m=-8"),
        ("CountMedianSketch", {"k": 2.0}, "parameter k=2.0"),
        (PUZZLE, {"fragmentM": 0}, "parameter fragmentM=0"),
        ("HadamardCountMedianSketch", {"k": 0}, "parameter k=0"),
    ],
)
def test_impossible_parameters(algorithm: str, change: dict[str, Any], why: str) -> None:
    decoded = decode(segment(algorithm, "1,+1", "x", **change))
    assert (decoded.reports, decoded.left_out) == ((), 2)
    assert why in decoded.findings[0].message


def test_an_unknown_algorithm_and_a_long_parameter() -> None:
    decoded = decode(Segment("k", "Rot13\x1b", {}, ("a", "b")))
    assert (decoded.reports, decoded.left_out) == ((), 2)
    assert decoded.findings[0].message == r"unknown algorithm 'Rot13\x1b'; its records are left out"
    assert len(decode(segment("OneBitHistogram", p="x" * 10**6)).findings[0].message) < 300


def test_a_hadamard_size_that_is_no_power_of_two() -> None:
    decoded = decode(segment("HadamardCountMedianSketch", "5,5,+1", m=1000))
    assert "not a power of two" in decoded.findings[0].message
    assert len(decoded.reports[0]) == 1


@given(
    st.sampled_from(sorted(ALGORITHMS)),
    st.lists(st.text("0123456789ABCDEFabcdef,:+-1 \n\x00٣", max_size=12), max_size=4),
)
def test_no_text_makes_it_fail(algorithm: str, records: list[str]) -> None:
    decoded = decode(segment(algorithm, *records))
    assert all(len(r) + decoded.left_out == len(records) for r in decoded.reports)
    assert bool(decoded.left_out) <= bool(decoded.findings)
