"""What ``dpaudit run`` says of how long it will take, and how it ends when cells failed."""

import importlib.metadata
import json
import re
import sys
import threading

import pytest
from command_line import here
from planted import SPEC, install

from dpaudit import registry
from dpaudit.cli import progress
from dpaudit.cli.progress import Remaining, RunProgress, duration_text
from dpaudit.experiments.measure import Cell
from dpaudit.results.text import tell
from dpaudit.types import CellFailure, CellResult


def test_nothing_is_said_before_anything_is_known():
    left = Remaining()
    left.add("a", {})
    left.add("b", {})
    assert left.seconds(workers=1) is None
    left.done("a", {}, 5.0)
    assert left.seconds(workers=1) is None  # nothing of kind b yet
    left.done("b", {}, 5.0)
    assert left.seconds(workers=1) == (0.0, 0.0)


def test_cells_are_expected_to_take_what_cells_like_them_took():
    """9 cells of 1 s and 9 of 100 s, two of each done: 7·1 + 7·100 s left, half for two workers."""
    left = Remaining()
    hosts = [{"host": {"bins": n}} for n in (64, 4096)]
    for host in hosts:
        for _ in range(9):
            left.add("attack", host)
    for host, seconds in zip(hosts, (1.0, 100.0), strict=True):
        for _ in range(2):
            left.done("attack", host, seconds)
    assert left.seconds(workers=1) == pytest.approx((707.0, 707.0))
    assert left.seconds(workers=2) == pytest.approx((353.5, 353.5))
    # no shorter than the longest cell
    assert left.seconds(workers=100) == pytest.approx((100.0, 100.0))


def test_the_range_is_wide_while_little_is_known_and_narrows():
    import random

    chance, widths, left = random.Random(1), [], Remaining()
    for _ in range(400):
        left.add("attack", {})
    for i in range(200):
        left.done("attack", {}, chance.uniform(0.5, 1.5))
        if i + 1 in (1, 20, 200):
            low, high = left.seconds(workers=1)
            widths.append((high - low) / (399 - i))
            assert low <= 399 - i <= high
    assert widths[0] > widths[1] > widths[2]
    assert widths[2] < 0.25


def test_words_round_up():
    assert duration_text(None) == "unknown"
    assert duration_text((1.01, 1.02)) == "about 2 s"
    assert duration_text((10, 80)) == "10–80 s"
    assert duration_text((61, 299)) == "2–5 min"
    assert duration_text((86400, 864000)) == "24–240 h"


class Two:
    workers = 2


def cell(i):
    return Cell("attack", {"i": i, "grid": {"i": i}})


def outcome(c, kind=CellResult, **more):
    return kind(cell=c.id, kind=c.kind, settings=c.settings, seconds=4.0, provenance={}, **more)


def test_a_line_every_half_minute_where_stderr_is_no_terminal(monkeypatch, capsys):
    said = threading.Event()
    monkeypatch.setattr(progress, "_LINE_SECONDS", 0.01)
    monkeypatch.setattr(progress, "tell", lambda text: (tell(text), said.set()))
    cells = [cell(i) for i in range(10)]
    with RunProgress("x\x1b[31m", cells, Two()) as shown:
        shown.on_done(cells[0])  # from before: no time is known
        assert shown.line().endswith("1 of 10 cells, 2 workers, time left: unknown")
        shown.on_result(outcome(cells[1], outcome={}))
        shown.on_done(cells[1])
        shown.on_result(outcome(cells[2], CellFailure, error="", traceback=""))
        shown.on_done(cells[2])
        assert shown.line() == "x�[31m: 3 of 10 cells, 1 failed, 2 workers, time left: about 14 s"
        said.clear()
        assert said.wait(60)
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "dpaudit: x�[31m: 3 of 10 cells, 1 failed" in shown.err


@pytest.fixture
def planted(tmp_path, monkeypatch):
    """The planted attack, found while the test runs."""
    monkeypatch.syspath_prepend(install(tmp_path / "site"))
    monkeypatch.setattr(
        registry, "entry_points", lambda **about: importlib.metadata.entry_points(**about)
    )
    yield
    sys.modules.pop("planted_attack", None)


@pytest.mark.slow
def test_failures_are_told_at_the_end_and_the_exit_code_is_3(tmp_path, planted):
    spec, out = tmp_path / "planted.toml", tmp_path / "out"
    spec.write_text(SPEC + 'what = ["raises", "fine"]\n')
    done = here("run", spec, "--out", out, "--format", "json", "--also", "junit", "--trials", 10)
    assert done.returncode == 3, done.stderr
    document = json.loads(done.stdout)
    assert len(document["rows"]) == 1
    assert [f["error"][:15] for f in document["failures"]] == ["ArithmeticError"]
    assert 'errors="1"' in (out / "report.junit.xml").read_text()
    before = (out / "report.html").read_text()
    assert "ArithmeticError" in before
    assert f"dpaudit run {spec} --trials 10" in re.sub("<[^>]+>", "", before)
    assert here("report", out).returncode == 0
    assert (out / "report.html").read_text() == before
    assert "1 cell failed, first with ArithmeticError: planted�[31m <b>error</b>" in done.stderr
    assert f"dpaudit runs show {out} --failed" in done.stderr
    assert "--resume to retry" in done.stderr
    assert "\x1b" not in done.stderr


def test_no_report_of_before_is_left_by_a_run_that_fails_at_once(tmp_path, planted):
    spec, out = tmp_path / "planted.toml", tmp_path / "out"
    spec.write_text(SPEC + 'what = "slip"\n')
    out.mkdir()
    (out / "result.json").write_text(
        '{"schema": "dpaudit-report/1", "kind": "audit", "result": {"verdict": "no-finding"}}'
    )
    (out / "report.sarif").write_text('{"driver": {"name": "dpaudit"}}')
    (out / "report.junit.xml").write_text("mine")
    (out / "report.html").write_text("No finding")
    done = here("run", spec, "--out", out)
    assert done.returncode == 2, done.stderr
    assert {path.name for path in out.glob("re*")} == {"results.sqlite", "report.junit.xml"}
