"""Report files, Figures 11 and 12, what can be wrong with a folder of them, and their records."""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpaudit.errors import UsageError
from dpaudit_local.apple.model import Segment
from dpaudit_local.apple.records import ALGORITHMS, decode
from dpaudit_local.apple.reports import read_report, read_reports, time_in
from dpaudit_local.mechanisms.reports import BitReports, HadamardReports, SketchReports

FIGURES = Path(__file__).parents[2] / "data" / "apple" / "reports"
SEGMENT: dict[str, Any] = {"key": "k", "algorithm": "OneBitHistogram"}
SEGMENT |= {"parameters": {"p": 9}, "records": ["1,+1"]}


def written(path: Path, content: Any) -> Path:
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


def said(path: Path) -> str:
    return "\n".join(f.message for f in read_report(path).findings)


def test_the_report_of_figure_11() -> None:
    report = read_report(next(FIGURES.glob("*.dpsub")))
    assert (report.version, report.findings) == (11, ())
    assert report.created == datetime(2017, 6, 6, 18, tzinfo=UTC)
    emoji, words = report.segments
    assert emoji.key == "com.apple.keyboard.Emoji.en_US.EmojiKeyboard"
    assert emoji.algorithm == "OneBitHistogram"
    assert (dict(emoji.parameters), emoji.records) == ({"epsilon": 1, "p": 5000}, ("49477827,+1",))
    assert (words.parameters["epsilon"], words.parameters["sequenceFragmentBias"]) == (4, 0.5)
    assert words.records[0].startswith("131,020020C0")


def test_the_report_of_figure_12() -> None:
    report = read_report(FIGURES / "figure12.json.anon")
    assert (report.version, report.created) == (None, None)
    assert [f.message for f in report.findings] == ["no whole number as version"]
    assert [len(s.records) for s in report.segments] == [2, 8, 10]
    assert report.segments[0].records == ("818,165,+1", "301,25170,+1")


def test_a_folder_is_read_in_order_with_its_subfolders(tmp_path: Path) -> None:
    (tmp_path / "b" / "c").mkdir(parents=True)
    for name in ("z.dpsub", "a.json.anon", "b/x.DPSUB", "b/c/y.dpsub", "notes.txt", "b/crash.ips"):
        written(tmp_path / name, {"version": 11, "segments": []})
    reports = list(read_reports(tmp_path))
    order = ["a.json.anon", "z.dpsub", "b/x.DPSUB", "b/c/y.dpsub"]
    assert [str(r.path.relative_to(tmp_path)) for r in reports] == order
    assert all(not r.findings for r in reports)


def test_files_are_read_only_when_they_are_asked_for(tmp_path: Path) -> None:
    for n in range(3):
        written(tmp_path / f"{n}.dpsub", {"version": n, "segments": []})
    reports = read_reports(tmp_path)
    assert next(reports).version == 0
    written(tmp_path / "1.dpsub", {"version": 7, "segments": []})
    assert next(reports).version == 7


@pytest.mark.parametrize("folder", ["missing", "file", "a\0b"])
def test_no_folder_is_an_error_at_once(tmp_path: Path, folder: str) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match="cannot be listed"):
        read_reports(tmp_path / folder)


def test_the_time_is_the_file_names() -> None:
    for name in (
        "DifferentialPrivacy_2017-08-08-082230_mac.dpsub",
        "x-2017-08-08_082230.json.anon",
        "2017-08-08T08:22:30Z.dpsub",
        "2017-08-08-08-22-30.dpsub",
        "9999-99-99-999999 2017-08-08-082230.dpsub",
    ):
        assert time_in(name) == datetime(2017, 8, 8, 8, 22, 30, tzinfo=UTC), name
    for name in (
        "2017-02-30-082230.dpsub",
        "0000-01-01-000000.dpsub",
        "2017-08-08.dpsub",
        "12017-08-08-082230.dpsub",
        "٢٠١٧-٠٨-٠٨-٠٨٢٢٣٠.dpsub",
    ):
        assert time_in(name) is None, name


def test_everything_in_a_folder_that_is_no_report_file_is_a_finding(tmp_path: Path) -> None:
    inside, outside = tmp_path / "in", tmp_path / "out"
    inside.mkdir()
    outside.mkdir()
    written(outside / "secret.dpsub", {"version": 99, "segments": []})
    (inside / "link.dpsub").symlink_to(outside / "secret.dpsub")
    (inside / "linked").symlink_to(outside)
    (inside / "loop").symlink_to(inside)
    (inside / "folder.dpsub").mkdir()
    written(inside / "folder.dpsub" / "kept.dpsub", {"version": 11, "segments": []})
    os.mkfifo(inside / "pipe.dpsub")
    (inside / "empty.dpsub").touch()
    (inside / "binary.dpsub").write_bytes(b"\xff\xfe\x00")
    written(inside / "white.dpsub", " \n")
    odd, empty = (os.fsdecode(name) for name in (b"odd\xff\x1b.dpsub", b"odd\xff\x1b[2J.dpsub"))
    written(inside / odd, {"version": 5, "segments": []})
    (inside / empty).touch()
    reports = {r.path.name: r for r in read_reports(inside)}
    for finding in (f for r in reports.values() for f in r.findings):
        finding.where.encode("ascii")  # it can be printed
    found = {name: " ".join(f.message for f in r.findings) for name, r in reports.items()}
    for name in ("link.dpsub", "linked", "loop"):
        assert found.pop(name) == "a symbolic link; not followed"
    assert found.pop("pipe.dpsub") == "not a plain file; not read"
    for name in (empty, "empty.dpsub", "white.dpsub"):
        assert found.pop(name) == "empty; not read"
    assert found.pop("binary.dpsub") == "not UTF-8; not read"
    assert found == {"kept.dpsub": "", odd: ""}
    assert reports[odd].created is None  # never the file system's
    assert 99 not in {r.version for r in reports.values()}


def test_deep_folders_end(tmp_path: Path) -> None:
    deep = tmp_path
    for _ in range(40):
        deep /= "d"
    deep.mkdir(parents=True)
    written(deep / "x.dpsub", {"version": 1, "segments": []})
    (report,) = read_reports(tmp_path)
    assert "more than 32 folders deep" in report.findings[0].message


def test_the_size_limit(tmp_path: Path) -> None:
    text = json.dumps({"version": 1, "segments": []})
    path = written(tmp_path / "x.dpsub", text)
    assert next(read_reports(tmp_path, limit=len(text))).version == 1
    (report,) = read_reports(tmp_path, limit=len(text) - 1)
    assert report.version is None
    assert "larger than" in report.findings[0].message
    with path.open("wb") as file:
        file.truncate(10 << 30)  # sparse: 10 GB that take no room
    assert "larger than 67,108,864 bytes" in said(path)


INFINITE = "for 1e999, which Python's json does not write"
WHOLE = json.dumps({"version": 11, "segments": [SEGMENT]})
TEXT = json.dumps(SEGMENT)


@pytest.mark.parametrize(
    ("content", "finding"),
    [
        ([SEGMENT], "no whole number as version"),
        (SEGMENT, "no whole number as version"),
        (f"{TEXT},\n{TEXT},\n", "2 JSON documents one after the other"),
        (f'{{"version": 11}}\n{WHOLE}', "2 JSON documents"),
        (WHOLE.replace("]}]", "]},]"), "a comma before a closing bracket; overlooked"),
        (f"\ufeff{WHOLE}", "byte order mark"),
        (WHOLE.replace("1,+1", "1,\n+1"), "control characters"),
        (WHOLE.replace("11", "true"), "no whole number as version"),
        (WHOLE.replace("11", "1" + "0" * 30), "no whole number as version"),
        (WHOLE + WHOLE.replace("11", "2"), "2 different versions; the first, 11,"),
    ],
)
def test_slips_that_are_overlooked_are_said(tmp_path: Path, content: Any, finding: str) -> None:
    path = written(tmp_path / "x.dpsub", content)
    assert finding in said(path)
    assert {s.key for s in read_report(path).segments} == {"k"}


@pytest.mark.parametrize(
    ("content", "finding"),
    [
        ("{", "not JSON"),
        ('{"version": 11} x', "not JSON"),
        ('"' + '\\"' * 200_000 + "\\", "not JSON"),
        ('{"a": 1, "a": 2}', "duplicate key"),
        ('{"version": NaN, "segments": []}', "NaN is not a JSON number"),
        ("[" * 500_000, "nested too deep"),
        ('{"a":' * 100_000, "nested too deep"),
        ("[" + "[]," * 1_000_001 + "[]]", "more than 1000000 brackets"),
        ("{" + ", ".join(f'"{n}":1' for n in range(1_000_001)) + "}", "brackets or colons"),
        ([0] * 100_001, "100001 segments; those after the first 100000 are left out"),
        ("1 " * 10_001, "more than 10000 JSON documents"),
        ("9" * 100_000, "not JSON"),
        ("null", "without a list of segments"),
        ({"version": 1}, "without a list of segments"),
        ({"version": 1, "segments": [[]]}, "segment 1 of 1: not an object"),
    ],
)
def test_what_is_no_report(tmp_path: Path, content: Any, finding: str) -> None:
    path = written(tmp_path / "x.dpsub", content)
    assert finding in said(path)
    assert read_report(path).segments == ()


@pytest.mark.parametrize(
    ("change", "finding"),
    [
        ({"key": None}, "no valid text as 'key'"),
        ({"key": "a\x1b"}, "no valid text as 'key'"),
        ({"key": "\ud800"}, "no valid text as 'key'"),
        ({"key": "k" * 1001}, "no valid text as 'key'"),
        ({"algorithm": 3}, "no valid text as 'algorithm'"),
        ({"records": None}, "no list of records"),
        ({"records": "1,+1"}, "no list of records"),
        ({"parameters": [1]}, "not an object of reasonable size"),
        ({"parameters": {"epsilon": [1]}}, "parameter 'epsilon' is not text"),
        ({"parameters": {"p": INFINITE}}, "parameter 'p' is not text"),
        ({"parameters": {"a\nb": 1}}, r"parameter 'a\nb' is not text"),
        ({"parameters": {str(n): n for n in range(1001)}}, "not an object of reasonable size"),
    ],
)
def test_a_broken_segment_is_left_out_and_the_others_stay(
    tmp_path: Path, change: dict[str, Any], finding: str
) -> None:
    text = json.dumps({"version": 11, "segments": [SEGMENT | change, SEGMENT]})
    path = written(tmp_path / "x.dpsub", text.replace(json.dumps(INFINITE), "1e999"))
    assert finding in said(path)
    assert [s.key for s in read_report(path).segments] == ["k"]


def test_records_that_are_no_text_are_counted(tmp_path: Path) -> None:
    some = SEGMENT | {"records": [1, "1,+1", None, "2,-1"]}
    path = written(tmp_path / "x.dpsub", {"version": 1, "segments": [some]})
    assert read_report(path).segments[0].records == ("1,+1", "2,-1")
    assert said(path) == "'k': 2 records are not text; left out"


def test_there_are_never_more_findings_than_anybody_reads(tmp_path: Path) -> None:
    path = written(tmp_path / "x.dpsub", {"version": 1, "segments": [0] * 5000})
    assert len(read_report(path).findings) == 51
    assert said(path).endswith("4950 more findings like these")


def test_a_copy_of_a_report_counts_once(tmp_path: Path) -> None:
    name, other = "DP_2017-06-30-235900_a.dpsub", "DP_2017-07-01-000100_a.dpsub"
    for path in (tmp_path / name, tmp_path / "copies" / name, tmp_path / other):
        path.parent.mkdir(exist_ok=True)
        written(path, {"version": 11, "segments": [SEGMENT]})
    changed = "DP_2017-06-30-235900_b.dpsub"
    more = {"version": 11, "segments": [SEGMENT | {"records": ["2,+1"]}]}
    written(tmp_path / changed, more)
    found = {str(r.path.relative_to(tmp_path)): len(r.segments) for r in read_reports(tmp_path)}
    # the same record at another time, or another record at the same time, is no copy
    assert list(found.items()) == [(name, 1), (changed, 1), (other, 1), (f"copies/{name}", 0)]
    assert "a copy of an earlier report" in list(read_reports(tmp_path))[-1].findings[-1].message


BIT, SKETCH, SIGN = "OneBitHistogram", "CountMedianSketch", "HadamardCountMedianSketch"
PUZZLE = f"SequenceFragmentPuzzle+{SKETCH}"
PARAMETERS: dict[str, dict[str, Any]] = {
    BIT: {"epsilon": 1, "p": 5000},
    SKETCH: {"epsilon": 2, "k": 100, "m": 16},
    SIGN: {"epsilon": 1, "k": 1024, "m": 32768},
    PUZZLE: {"sequenceM": 16, "sequenceK": 285, "fragmentM": 8, "fragmentK": 285},
}


def segment(algorithm: str, *records: str, **change: Any) -> Segment:
    return Segment("k", algorithm, PARAMETERS[algorithm] | change, records)


def test_the_records_of_figure_11() -> None:
    emoji, words = map(decode, read_report(next(FIGURES.glob("*.dpsub"))).segments)
    (bits,) = emoji.reports
    assert isinstance(bits, BitReports)
    assert (bits.position.tolist(), bits.sign.tolist(), emoji.left_out) == ([49477827], [1], 0)
    (finding,) = emoji.findings
    assert "not below p = 5000, such as 49477827; kept" in finding.message
    assert words.left_out == 1  # the figure cuts it
    assert [len(r) for r in words.reports] == [0, 0]
    assert "not 32768 bits" in words.findings[0].message


def test_the_records_of_figure_12() -> None:
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
    first = "0000C0800000228206A04008110000000C080021211000046080040801040820"
    assert bytes(sketches.bits[0]).hex().upper() == first
    assert emoji.left_out == 5
    assert [f.message[:7] for f in emoji.findings] == ["4 of 10", "1 of 10"]


@pytest.mark.slow
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
    decoded = decode(segment(SKETCH, *texts))
    (reports,) = decoded.reports
    assert isinstance(reports, SketchReports)
    assert (reports.bits.dtype, reports.function.dtype) == (np.uint8, np.uint32)
    assert reports.bits.shape == (len(rows), 2)
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


NO_HEXADECIMAL = ("0G80", "0F\n80\n", "0x0F", "٠F80", "\ud80000F")


@pytest.mark.parametrize(
    ("algorithm", "record", "why"),
    [
        *((BIT, text, "not 2 comma-separated fields") for text in ("5", "5,+1,")),
        *((BIT, text, "the sign is neither") for text in ("5,1", "5,+2", "5,−1")),
        *((BIT, f"{n},+1", "not a decimal number") for n in (" 5", "٥", "1_0", "9" * 100_000)),
        (BIT, "4294967296,+1", "not below 4294967296"),
        *((SKETCH, f"5,{bits}", "an odd number") for bits in ("0F8", "0F80:0F80")),
        *((SKETCH, f"5,{bits}", "not 16 bits") for bits in ("0F", "0F8000")),
        *((SKETCH, f"5,{bits}", "not only hexadecimal digits") for bits in NO_HEXADECIMAL),
        (SKETCH, "100,0F80", "the function is not below 100"),
        (PUZZLE, "131,0F80", "no ':'"),
        (PUZZLE, "131,0F80:", "not 8 bits"),
        (PUZZLE, "131,a1:0F80", "not 16 bits"),
        (PUZZLE, "285,0F80:a1", "the function is not below 285"),
        (SIGN, "5,+1", "not 3 comma-separated fields"),
        (SIGN, "1024,5,+1", "the function is not below 1024"),
        (SIGN, "5,32768,+1", "the coordinate is not below 32768"),
        (SIGN, "5,5,0", "the sign is neither"),
    ],
)
def test_a_bad_record_is_left_out_and_the_good_ones_stay(
    algorithm: str, record: str, why: str
) -> None:
    good = {BIT: "7,-1", SKETCH: "7,FFFF", PUZZLE: "7,FFFF:FF"}.get(algorithm, "7,7,-1")
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
        (BIT, {"p": 0}, "parameter p=0"),
        (BIT, {"p": True}, "parameter p=True"),
        (BIT, {"p": "5000"}, "parameter p='5000'"),
        (BIT, {"p": None}, "parameter p=None"),
        (SKETCH, {"m": 12}, "not a whole number of bytes"),
        (SKETCH, {"m": 1 << 60}, "parameter m=1152921504606846976"),
        (SKETCH, {"m": -8}, "parameter m=-8"),
        (SKETCH, {"k": 2.0}, "parameter k=2.0"),
        (PUZZLE, {"fragmentM": 0}, "parameter fragmentM=0"),
        (SIGN, {"k": 0}, "parameter k=0"),
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
    assert len(decode(segment(BIT, p="x" * 10**6)).findings[0].message) < 300


def test_a_hadamard_size_that_is_no_power_of_two() -> None:
    decoded = decode(segment(SIGN, "5,5,+1", m=1000))
    assert "not a power of two" in decoded.findings[0].message
    assert len(decoded.reports[0]) == 1


@pytest.mark.slow
@given(
    st.sampled_from(sorted(ALGORITHMS)),
    st.lists(st.text("0123456789ABCDEFabcdef,:+-1 \n\x00٣", max_size=12), max_size=4),
)
def test_no_text_makes_it_fail(algorithm: str, records: list[str]) -> None:
    decoded = decode(segment(algorithm, *records))
    assert all(len(r) + decoded.left_out == len(records) for r in decoded.reports)
    assert bool(decoded.left_out) <= bool(decoded.findings)
