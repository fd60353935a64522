"""Report files: Figures 11 and 12, and everything that can be wrong with a folder of them."""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from dpaudit.deployments.apple.reports.reading import read_report, read_reports, time_in
from dpaudit.errors import UsageError

FIGURES = Path(__file__).parents[3] / "data" / "apple" / "reports"
SEGMENT: dict[str, Any] = {
    "key": "k",
    "algorithm": "OneBitHistogram",
    "parameters": {"p": 9},
    "records": ["1,+1"],
}


def written(path: Path, content: Any) -> Path:
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


def said(path: Path) -> str:
    return "\n".join(f.message for f in read_report(path).findings)


def test_figure_11() -> None:
    report = read_report(next(FIGURES.glob("*.dpsub")))
    assert (report.version, report.findings) == (11, ())
    assert report.created == datetime(2017, 6, 6, 18, tzinfo=UTC)
    emoji, words = report.segments
    assert (emoji.key, emoji.algorithm) == (
        "com.apple.keyboard.Emoji.en_US.EmojiKeyboard",
        "OneBitHistogram",
    )
    assert (dict(emoji.parameters), emoji.records) == ({"epsilon": 1, "p": 5000}, ("49477827,+1",))
    assert (words.parameters["epsilon"], words.parameters["sequenceFragmentBias"]) == (4, 0.5)
    assert words.records[0].startswith("131,020020C0")


def test_figure_12() -> None:
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
    assert [str(r.path.relative_to(tmp_path)) for r in reports] == [
        "a.json.anon",
        "z.dpsub",
        "b/x.DPSUB",
        "b/c/y.dpsub",
    ]
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


@pytest.mark.parametrize(
    ("name", "time"),
    [
        (
            "DifferentialPrivacy_2017-08-08-082230_mac.dpsub",
            datetime(2017, 8, 8, 8, 22, 30, tzinfo=UTC),
        ),
        ("x-2017-08-08_082230.json.anon", datetime(2017, 8, 8, 8, 22, 30, tzinfo=UTC)),
        ("2017-08-08T08:22:30Z.dpsub", datetime(2017, 8, 8, 8, 22, 30, tzinfo=UTC)),
        ("2017-08-08-08-22-30.dpsub", datetime(2017, 8, 8, 8, 22, 30, tzinfo=UTC)),
        ("9999-99-99-999999 2017-08-08-082230.dpsub", datetime(2017, 8, 8, 8, 22, 30, tzinfo=UTC)),
        ("2017-02-30-082230.dpsub", None),
        ("0000-01-01-000000.dpsub", None),
        ("2017-08-08.dpsub", None),
        ("12017-08-08-082230.dpsub", None),
        ("٢٠١٧-٠٨-٠٨-٠٨٢٢٣٠.dpsub", None),
    ],
)
def test_the_time_is_the_file_names(name: str, time: datetime | None) -> None:
    assert time_in(name) == time


def test_the_time_is_never_the_file_systems(tmp_path: Path) -> None:
    path = written(tmp_path / "x.dpsub", {"version": 1, "segments": []})
    os.utime(path, (1e9, 1e9))
    assert read_report(path).created is None


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
    written(inside / os.fsdecode(b"odd\xff\x1b.dpsub"), {"version": 5, "segments": []})
    reports = {r.path.name: r for r in read_reports(inside)}
    found = {name: " ".join(f.message for f in r.findings) for name, r in reports.items()}
    for name in ("link.dpsub", "linked", "loop"):
        assert found.pop(name) == "a symbolic link; not followed"
    assert found.pop("pipe.dpsub") == "not a plain file; not read"
    assert found.pop("empty.dpsub") == found.pop("white.dpsub") == "empty; not read"
    assert found.pop("binary.dpsub") == "not UTF-8; not read"
    assert found == {"kept.dpsub": "", os.fsdecode(b"odd\xff\x1b.dpsub"): ""}
    assert 99 not in {r.version for r in reports.values()}


def test_findings_can_be_printed_whatever_a_file_is_called(tmp_path: Path) -> None:
    (tmp_path / os.fsdecode(b"odd\xff\x1b[2J.dpsub")).touch()
    (report,) = read_reports(tmp_path)
    (finding,) = report.findings
    assert finding.where.endswith(r"odd\xff\x1b[2J.dpsub")
    finding.where.encode("ascii")


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


@pytest.mark.parametrize(
    ("content", "finding"),
    [
        ([SEGMENT], "no whole number as version"),
        (SEGMENT, "no whole number as version"),
        (
            json.dumps(SEGMENT) + ",\n" + json.dumps(SEGMENT) + ",\n",
            "2 JSON documents one after the other",
        ),
        (
            json.dumps({"version": 11}) + "\n" + json.dumps({"version": 11, "segments": [SEGMENT]}),
            "2 JSON documents",
        ),
        (
            '{"version": 11, "segments": [' + json.dumps(SEGMENT) + ",]}",
            "a comma before a closing bracket; overlooked",
        ),
        ("\ufeff" + json.dumps({"version": 11, "segments": [SEGMENT]}), "byte order mark"),
        (
            json.dumps({"version": 11, "segments": [SEGMENT]}).replace("1,+1", "1,\n+1"),
            "control characters",
        ),
        ({"version": True, "segments": [SEGMENT]}, "no whole number as version"),
        ({"version": 10**30, "segments": [SEGMENT]}, "no whole number as version"),
        (
            json.dumps({"version": 1, "segments": [SEGMENT]})
            + json.dumps({"version": 2, "segments": []}),
            "2 different versions; the first, 1,",
        ),
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
        ('{"version": 11, "segments": [}', "not JSON"),
        ('{"version": 11} x', "not JSON"),
        ('"' + '\\"' * 200_000, "not JSON"),
        ('"' + '\\"' * 200_000 + "\\", "not JSON"),
        ('{"a": 1, "a": 2}', "duplicate key"),
        ('{"version": NaN, "segments": []}', "NaN is not a JSON number"),
        ("[" * 500_000, "nested too deep"),
        ('{"a":' * 100_000, "nested too deep"),
        ("[" + "[]," * 1_000_001 + "[]]", "more than 1000000 brackets"),
        (
            "{" + ", ".join(f'"{n}":1' for n in range(1_000_001)) + "}",
            "more than 1000000 brackets or colons",
        ),
        ([0] * 100_001, "100001 segments; those after the first 100000 are left out"),
        ("1 " * 10_001, "more than 10000 JSON documents"),
        ("9" * 100_000, "not JSON"),
        ("null", "without a list of segments"),
        ({"version": 1}, "without a list of segments"),
        ({"version": 1, "segments": {"a": 1}}, "without a list of segments"),
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
        ({"parameters": {"epsilon": None}}, "parameter 'epsilon' is not text"),
        ({"parameters": {"a\nb": 1}}, r"parameter 'a\nb' is not text"),
        ({"parameters": {str(n): n for n in range(1001)}}, "not an object of reasonable size"),
    ],
)
def test_a_broken_segment_is_left_out_and_the_others_stay(
    tmp_path: Path, change: dict[str, Any], finding: str
) -> None:
    path = written(tmp_path / "x.dpsub", {"version": 11, "segments": [SEGMENT | change, SEGMENT]})
    assert finding in said(path)
    assert [s.key for s in read_report(path).segments] == ["k"]


def test_an_infinite_parameter_is_refused(tmp_path: Path) -> None:
    text = json.dumps({"version": 11, "segments": [SEGMENT]}).replace('"p": 9', '"p": 1e999')
    assert "parameter 'p' is not text" in said(written(tmp_path / "x.dpsub", text))


def test_records_that_are_no_text_are_counted(tmp_path: Path) -> None:
    path = written(
        tmp_path / "x.dpsub",
        {"version": 1, "segments": [SEGMENT | {"records": [1, "1,+1", None, "2,-1"]}]},
    )
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
    written(
        tmp_path / "DP_2017-06-30-235900_b.dpsub",
        {"version": 11, "segments": [SEGMENT | {"records": ["2,+1"]}]},
    )
    found = [
        (r.path.relative_to(tmp_path).as_posix(), len(r.segments)) for r in read_reports(tmp_path)
    ]
    # the same record at another time, or another record at the same time, is no copy
    assert found == [
        (name, 1),
        ("DP_2017-06-30-235900_b.dpsub", 1),
        (other, 1),
        (f"copies/{name}", 0),
    ]
    assert "a copy of an earlier report" in list(read_reports(tmp_path))[-1].findings[-1].message
