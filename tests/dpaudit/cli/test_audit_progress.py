"""Stages of an audit on a terminal, and Ctrl-C: what was lost, what is kept, what resumes it."""

import contextlib
import importlib.metadata
import io
import json
import re
import shlex
import sys

import pytest
from command_line import here as dpaudit
from planted import SPEC, install

from dpaudit import registry
from dpaudit.audit.mechanism.dataset_run import search_progress
from dpaudit.audit.options import AuditOptions
from dpaudit.audit.run import search_seconds
from dpaudit.cli import output, progress
from dpaudit.cli.progress import AuditProgress, RunProgress


@contextlib.contextmanager
def terminal(monkeypatch):
    """stderr as a terminal of 100 columns behind the command line's own guard; its text."""
    written = io.StringIO()

    plain = progress.SafeConsole

    def console(**options):
        return plain(force_terminal=True, width=100, **options)

    monkeypatch.setattr(progress, "SafeConsole", console)
    with contextlib.redirect_stderr(output._Stream(written)):
        yield written


def test_what_follows_the_drawing_is_a_stage_of_its_own(monkeypatch):
    seen = terminal(monkeypatch)
    named = AuditProgress("values drawn", "searching, at most 15 s", total=100)
    with seen as written, named as shown:
        shown(40, 100)
        assert shown._stage.tasks[0].description == "values drawn"
        assert (shown._stage.tasks[0].completed, shown._stage.tasks[0].total) == (40, 100)
        shown(100, 100)
        first = shown._stage
        assert [(t.description, t.total) for t in first.tasks] == [
            ("searching, at most 15 s", None)
        ]
        shown(100, 100)
        assert shown._stage is first  # its clock goes on
        shown(120, 400)  # another pair of neighbours
        assert shown._stage.tasks[0].completed == 120
    text = written.getvalue()
    assert text.index("values drawn") < text.index("searching, at most 15 s")


def test_a_search_before_the_drawing_is_a_stage_with_a_bar(monkeypatch):
    named = AuditProgress("releases drawn", "learning", total=100)
    with terminal(monkeypatch) as written, named as shown:
        tried = search_progress(shown, "pairs of neighbours tried")
        tried(3, 190)
        assert (shown.done, shown.total, shown.what) == (3, 190, "pairs of neighbours tried")
        tried(190, 190)
        task = shown._stage.tasks[0]
        assert (task.description, task.total) == ("pairs of neighbours tried", 190)
        shown(40, 100)
        assert (shown._stage.tasks[0].description, shown.what) == ("releases drawn",) * 2
    text = written.getvalue()
    assert text.index("pairs of neighbours") < text.rindex("releases drawn")
    assert search_progress(lambda done, total: None, "pairs") is None
    assert search_progress(None, "pairs") is None


def test_a_live_bar_is_drawn_with_colours_not_with_their_codes(monkeypatch):
    named = AuditProgress("values drawn", "then", total=100)
    with terminal(monkeypatch) as written, named as shown:
        shown(40, 100)
        shown._stage.refresh()
        drawn = written.getvalue()
    assert "\x1b[" in drawn
    assert "�" not in drawn


def test_nothing_is_shown_where_stderr_is_no_terminal(capsys):
    with AuditProgress("values drawn", "then", total=100) as shown:
        shown(40, 100)
        shown(100, 100)
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("options", "seconds"),
    [
        ({"samples": 10**7}, 15.0),
        ({"samples": 10**9}, 15.0),
        ({"samples": 10**5}, 1.5),
        ({"samples": 10**5, "time_limit": 60.0}, None),
        ({"samples": 10**5, "time_limit": 60.0, "search_limit": 2.0}, 2.0),
        ({"samples": 10**7, "search_limit": 2.0}, 2.0),
    ],
)
def test_the_limit_of_the_search(options, seconds):
    assert search_seconds(AuditOptions(**options)) == pytest.approx(seconds)


def interrupted(*args, progress, **options):
    progress(1_000, 20_000)
    raise KeyboardInterrupt


@pytest.mark.slow
@pytest.mark.parametrize(
    ("module", "words", "what"),
    [
        ("dpaudit.audit.run", ("audit", "numpy:normal"), "values drawn"),
        (
            "dpaudit.audit.mechanism.run",
            ("mechanism", "numpy:laplace", "--neighbours", "0,1", "--claim-epsilon", 1),
            "releases drawn",
        ),
    ],
)
def test_an_interrupted_audit_says_what_is_lost(module, words, what, monkeypatch, tmp_path):
    monkeypatch.setattr(f"{module}.audit_subject", interrupted)
    done = dpaudit(*words, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (130, "")
    assert done.stderr == (
        f"\ninterrupted: 1,000 of 20,000 {what} are lost; "
        "an audit keeps nothing before its end, so repeat the command\n"
    )
    done = dpaudit(*words, "--out", "o", cwd=tmp_path)
    assert done.returncode == 130
    assert f"1,000 of 20,000 {what} are lost, and o holds no result; " in done.stderr
    assert not list(tmp_path.glob("o/re*"))


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
def test_an_interrupted_run_says_what_is_kept_and_what_resumes_it(tmp_path, planted, monkeypatch):
    (tmp_path / "my spec.toml").write_text(SPEC + "dim = [1, 2, 3]\n")
    started = []

    def second(self, cell):
        started.append(cell)
        if len(started) == 2:
            raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(RunProgress, "on_start", second)
        done = dpaudit("run", "my spec.toml", "--trials", 10, "--out", "o p", cwd=tmp_path)
    assert done.returncode == 130
    assert "Traceback" not in done.stderr
    said, command = done.stderr.strip().splitlines()
    kept, cells = map(
        int, re.fullmatch(r"interrupted: (\d) of (\d) cells are on disk in o p; .*:", said).groups()
    )
    assert kept < cells == 3
    words = shlex.split(command)
    assert words == [
        *("dpaudit", "run", "my spec.toml", "--trials", "10"),
        *("--out", "o p", "--resume"),
    ]
    resumed = dpaudit(*words[1:], "--format", "json", cwd=tmp_path)
    assert resumed.returncode == 0, resumed.stderr
    assert len(json.loads(resumed.stdout)["cells"]) == 3


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "folder"), [("planted", "planted"), ("a/../b c", "a-..-b-c"), ("..", "experiment")]
)
def test_a_specs_run_is_named_after_the_experiment(tmp_path, planted, name, folder):
    (tmp_path / "x").mkdir()
    spec = SPEC.replace('"planted"', json.dumps(name), 1)
    (tmp_path / "x" / "experiment.toml").write_text(spec)
    done = dpaudit("run", "x/experiment.toml", "--trials", 10, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert [path.name for path in (tmp_path / "runs").iterdir()] == [folder]


@pytest.mark.slow
def test_an_interrupted_audit_with_a_file_says_where_it_is(monkeypatch, tmp_path):
    words = ("mechanism", "numpy:laplace", "--neighbours", "0,1", "--claim-epsilon", 1)
    (tmp_path / "kept.npz").write_bytes(b"")
    monkeypatch.setattr("dpaudit.audit.mechanism.run.audit_subject", interrupted)
    done = dpaudit(*words, "--sequential", "--resume", "kept.npz", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (130, "")
    assert done.stderr == (
        "\ninterrupted: 1,000 of 20,000 releases drawn are in kept.npz; "
        "repeat the command to go on\n"
    )
