"""The store: durable, append-only, older versions, other people's files, full disks."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import resource
import shutil
import signal
import sqlite3
import tempfile
import threading
import traceback
from pathlib import Path

import pytest

from dpaudit.codec import to_dict
from dpaudit.errors import StoreError
from dpaudit.experiments.store import (
    FILE,
    Store,
    attempts,
    invocations,
    is_running,
    progress,
)
from dpaudit.types import CellFailure, CellResult

SPEC = {"name": "x", "epsilon": [1.0], "delta": 0.0}
ORIGIN = {"seed": "1", "versions": {"dpaudit": "0.1"}, "plugins": []}
ORIGIN |= {"hardware": "h", "started": "2025-01-01", "source": "s"}


def result(cell="a", *, value=0.5, started="2025-01-01", **more):
    return CellResult(
        cell=cell,
        kind="attack",
        settings={"seed": "1", "x": 1},
        outcome={"success": value, **more},
        seconds=1.5,
        provenance={**ORIGIN, "started": started},
    )


def failure(cell="a", error="ValueError: no"):
    known = {"kind": "attack", "settings": {"x": 1}, "provenance": ORIGIN}
    return CellFailure(cell=cell, error=error, traceback="Traceback", seconds=0.5, **known)


# ---------------------------------------------------------------- what goes in comes out


def test_what_goes_in_comes_out_and_each_provenance_is_kept_once(tmp_path):
    added = [result(str(i), started=f"2025-01-0{i + 1}") for i in range(5)]
    with Store.open(tmp_path, spec=SPEC, command="dpaudit run x") as store:
        store.add_all([(4 - i, r) for i, r in enumerate(added)])
    with Store.read(tmp_path) as store:
        assert store.results() == added[::-1]  # by position
        assert [r.cell for r in store.results(most=2)] == ["4", "3"]
        assert store.results(most=0) == []
        # keys in their order, too
        assert json.dumps(to_dict(store.results()[0])) == json.dumps(to_dict(added[4]))
        assert store.spec == SPEC
        assert store.finished() == {"0", "1", "2", "3", "4"}
        assert store.query("SELECT count(*) FROM provenance") == [(1,)]
        (started,) = invocations(store)
        assert started.command == "dpaudit run x"
        assert started.process == os.getpid()
        assert started.versions["python"].startswith("3")


def test_a_failure_counts_until_the_cell_succeeds(tmp_path):
    with Store.open(tmp_path, spec=SPEC) as store:
        store.add_all([(0, failure("a", "one: \udcff")), (1, failure("b")), (2, result("c"))])
        store.add(failure("a", "two"), position=0)
        assert [(f.cell, f.error) for f in store.failures()] == [
            ("a", "two"),
            ("b", "ValueError: no"),
        ]
        assert store.finished() == {"c"}
        store.add(result("b"), position=1)
        store.add(result("c", value=9.0), position=2)  # told twice: the first counts
        assert [f.cell for f in store.failures()] == ["a"]
        assert [(r.cell, r.outcome["success"]) for r in store.results()] == [("b", 0.5), ("c", 0.5)]
        far = progress(store)
        assert (far.done, far.failed, far.attempts) == (2, 1, 6)
        assert [a.error for a in attempts(store, cell="a")] == ["one: \\udcff", "two"]


@pytest.mark.parametrize("table", ["attempts", "provenance", "invocations"])
def test_records_never_change(tmp_path, table):
    with Store.open(tmp_path, spec=SPEC) as store:
        store.add(result(), position=0)
    db = sqlite3.connect(tmp_path / FILE)
    before = db.execute(f"SELECT * FROM {table}").fetchall()
    assert before
    marks = ",".join("?" * len(before[0]))
    column = {"attempts": "seconds", "provenance": "content"}.get(table, "host")
    for statement, values in (
        (f"DELETE FROM {table}", ()),
        (f"UPDATE {table} SET {column} = 1", ()),
        (f"INSERT OR REPLACE INTO {table} VALUES ({marks})", before[0]),
    ):
        with pytest.raises(sqlite3.IntegrityError, match=f"{table} is append-only"):
            db.execute(statement, values)
    assert db.execute(f"SELECT * FROM {table}").fetchall() == before


def test_a_file_system_without_locks_is_refused_and_not_called_busy(tmp_path, monkeypatch):
    def no_locks(file, how):
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", no_locks)
    with pytest.raises(StoreError, match="its file system has no locks"):
        Store.open(tmp_path, spec=SPEC)
    assert not (tmp_path / FILE).exists()


# ---------------------------------------------------------------- death


def child(work):
    """``work()`` in a forked process, which exits with 1 if it raises; its number."""
    number = os.fork()
    if number:
        return number
    status = 1
    try:
        work()
        status = 0
    except BaseException:  # noqa: BLE001 (a forked child of pytest, which must not go on)
        traceback.print_exc()
    finally:
        os._exit(status)


def ended(number):
    return os.waitstatus_to_exitcode(os.waitpid(number, 0)[1])


@pytest.mark.slow
def test_kill_9_loses_nothing_that_was_promised_and_keeps_batches_whole(tmp_path):
    def write():
        store = Store.open(tmp_path, spec=SPEC, resume=True)
        n = len(store.finished())
        while True:
            store.add_all([(n + i, result(str(n + i))) for i in range(3)])
            n += 3
            os.write(told, f"{n}\n".encode())

    promised = 0
    for kill in range(12):
        hears, told = os.pipe()
        writer = child(write)
        os.close(told)
        with os.fdopen(hears) as lines:
            for _ in range(1 + 3 * kill):
                promised = int(lines.readline())
            os.kill(writer, signal.SIGKILL)
            assert ended(writer) == -signal.SIGKILL
            rest = lines.read().split()
        promised = int(rest[-1]) if rest else promised
        assert not is_running(tmp_path)
        with Store.read(tmp_path) as store:
            there = len(store.finished())
            assert there >= promised
            assert there % 3 == 0
    assert promised >= 3 * sum(1 + 3 * kill for kill in range(12))
    with Store.read(tmp_path) as store:
        assert len(invocations(store)) == 12


def test_reading_while_a_runner_writes(tmp_path):
    with Store.open(tmp_path, spec=SPEC) as store, Store.read(tmp_path) as reader:
        for i in range(3):
            store.add(result(str(i)), position=i)
            assert len(reader.finished()) == i + 1
            with Store.read(tmp_path) as other:
                assert len(other.results()) == i + 1
        assert is_running(tmp_path)
    assert not is_running(tmp_path)
    with (
        pytest.raises(StoreError, match="attempt to write a readonly database"),
        Store.read(tmp_path) as reader,
    ):
        reader.query("INSERT INTO meta VALUES ('a', 'b')")


def test_a_glance_at_the_lock_does_not_turn_a_runner_away(tmp_path):
    (tmp_path / ".lock").touch()
    with (tmp_path / ".lock").open() as glance:
        fcntl.flock(glance, fcntl.LOCK_SH)
        threading.Timer(0.05, glance.close).start()
        Store.open(tmp_path, spec=SPEC).close()
    ours = f"another run is using it .process {os.getpid()} on"
    with Store.open(tmp_path, spec=SPEC, resume=True), pytest.raises(StoreError, match=ours):
        Store.open(tmp_path, spec=SPEC, resume=True)


def test_a_lock_that_is_a_link_or_another_file_is_refused_and_unharmed(tmp_path):
    mine = tmp_path / "mine"
    mine.write_text("precious")
    out = tmp_path / "out"
    out.mkdir()
    for make in ((out / ".lock").symlink_to, lambda target: (out / ".lock").write_text("precious")):
        make(mine)
        with pytest.raises(StoreError, match="not a lock file of dpaudit"):
            Store.open(out, spec=SPEC)
        assert mine.read_text() == (out / ".lock").read_text() == "precious"
        (out / ".lock").unlink()


@pytest.mark.skipif(
    os.geteuid() != 0, reason="gives up root to meet a folder that it may not write"
)
@pytest.mark.parametrize("log", [False, True], ids=["whole", "with a log left by a kill"])
def test_reading_from_a_folder_that_cannot_be_written(log):
    def read():
        os.setgid(65534)
        os.setuid(65534)
        with pytest.raises(PermissionError):
            (copy / "x").touch()
        with Store.read(copy) as store:
            assert len(store.results()) == 7

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        copy = folder / "copy"
        copy.mkdir()
        with Store.open(folder, spec=SPEC) as store:
            store.add_all([(i, result(str(i))) for i in range(7)])
            if log:
                shutil.copy(folder / FILE, copy)
                shutil.copy(folder / f"{FILE}-wal", copy)
        if not log:
            shutil.copy(folder / FILE, copy)
        folder.chmod(0o755)
        copy.chmod(0o555)
        assert ended(child(read)) == 0
        assert len(list(copy.iterdir())) == 1 + log


# ---------------------------------------------------------------- older, newer, other people's


def sql(path, script, *rows):
    """Run ``script``, then (statement, values)."""
    with contextlib.closing(sqlite3.connect(path)) as db:
        db.executescript(script)
        for statement, values in rows:
            db.executemany(statement, values)
        db.commit()


def test_a_run_over_tables_resumes_whatever_the_order_of_their_options(tmp_path):
    spec = {**SPEC, "grid": {"case": [{"name": "lattice", "d": 4, "beta": 0.1}]}}
    Store.open(tmp_path, spec=spec).close()
    Store.open(tmp_path, spec=spec, resume=True).close()
    other = {**SPEC, "grid": {"case": [{"name": "lattice", "d": 8, "beta": 0.1}]}}
    with pytest.raises(StoreError, match="another experiment"):
        Store.open(tmp_path, spec=other, resume=True)


def test_an_empty_file_is_new(tmp_path):
    (tmp_path / FILE).touch()
    with pytest.raises(StoreError, match="holds no results yet"):
        Store.read(tmp_path)
    with Store.open(tmp_path, spec=SPEC) as store:
        store.add(result(), position=0)
        assert store.finished() == {"a"}


FOREIGN = "CREATE TABLE bookmarks (url TEXT); PRAGMA application_id = 12345"
NAMESAKE = "CREATE TABLE meta (something TEXT); CREATE TABLE songs (title TEXT)"


def anew(path, script):
    path.unlink()
    sql(path, script)


@pytest.mark.parametrize(
    ("harm", "says"),
    [
        (lambda path: sql(path, "PRAGMA user_version = 2"), "of version 2, .* of version 3 only"),
        (lambda path: sql(path, "PRAGMA user_version = 4"), "of version 4, .* of version 3 only"),
        (lambda path: anew(path, FOREIGN), "another application's database"),
        (lambda path: anew(path, NAMESAKE), "another application's database"),
        (
            lambda path: path.write_bytes(path.read_bytes()[: path.stat().st_size // 2]),
            "not a dpaudit store, or is damaged",
        ),
        (
            lambda path: path.write_bytes(
                path.read_bytes()[:4096] + b"\xff" * (path.stat().st_size - 4096)
            ),
            "not a dpaudit store, or is damaged",
        ),
        (lambda path: path.write_text("no database, not at all" * 100), "not a dpaudit store"),
    ],
    ids=["older", "newer", "foreign", "namesake", "truncated", "scribbled", "text"],
)
def test_files_that_are_no_store_of_ours_are_refused_and_left_alone(tmp_path, harm, says, request):
    with Store.open(tmp_path, spec=SPEC) as store:
        store.add_all([(i, result(str(i))) for i in range(200)])
    harm(tmp_path / FILE)
    before = (tmp_path / FILE).read_bytes()
    for opened in (Store.read, lambda path: Store.open(path, spec=SPEC, resume=True)):
        with pytest.raises(StoreError, match=says), opened(tmp_path) as store:
            store.results()
    if "scribbled" not in request.node.name:  # its first page is sound: resuming notes that
        assert (tmp_path / FILE).read_bytes() == before
    assert not is_running(tmp_path)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ("seconds = 'y'", r"at `\$\[0\].seconds`"),
        ("seconds = 9e999", "seconds=inf is not a finite number"),
        ("settings = '[]'", "settings=a list of 0 is not a JSON object"),
        ("provenance = 9", "provenance=None is not JSON text"),
    ],
)
def test_a_value_of_another_type_is_refused_by_its_name(tmp_path, change, says):
    with Store.open(tmp_path, spec=SPEC) as store:
        store.add(result(), position=0)
    sql(tmp_path / FILE, f"DROP TRIGGER attempts_never_change; UPDATE attempts SET {change}")
    with Store.read(tmp_path) as store, pytest.raises(StoreError, match=f"or is damaged .*{says}"):
        store.results()


# ---------------------------------------------------------------- full disks


def test_a_full_disk_is_told_and_what_was_there_stays(tmp_path):
    with Store.open(tmp_path, spec=SPEC) as store:
        store.add(result("kept"), position=0)
        pages = store.query("PRAGMA page_count")[0][0]
        store.query(f"PRAGMA max_page_count = {pages + 5}")
        many = [1] * 30_000
        with pytest.raises(
            StoreError,
            match=r"database or disk is full.*make room, then repeat the command with --resume",
        ):
            store.add_all([(1, result("lost")), (2, result("big", many=many))])
        assert store.finished() == {"kept"}
        store.query(f"PRAGMA max_page_count = {pages + 1000}")  # room was made
        store.add_all([(1, result("lost")), (2, result("big", many=many))])
    with Store.read(tmp_path) as store:
        assert store.finished() == {"kept", "lost", "big"}
        assert store.query("PRAGMA integrity_check") == [("ok",)]


def test_an_error_of_the_file_system_in_the_middle_is_told_and_what_was_there_stays(tmp_path):
    def write():
        store = Store.open(tmp_path, spec=SPEC)
        store.add(result("kept"), position=0)
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))
        for i in range(10_000):
            try:
                store.add(result(str(i)), position=i)
            except StoreError as error:
                os.write(told, f"{i} {error}".encode())
                return

    hears, told = os.pipe()
    writer = child(write)
    os.close(told)
    with os.fdopen(hears) as words:
        count, _, says = words.read().partition(" ")
    assert ended(writer) == 0
    assert "results.sqlite cannot be written" in says
    assert "repeat the command with --resume" in says
    with Store.open(tmp_path, spec=SPEC, resume=True) as store:
        assert store.finished() == {"kept", *map(str, range(int(count)))}
        assert store.query("PRAGMA integrity_check") == [("ok",)]
        store.add(result("more"), position=1)
