"""The journal and its files: atomic, exclusive, and whole after kill -9."""

from __future__ import annotations

import os
import random
import signal
import sqlite3
import stat
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

from dpaudit.errors import MessageError, UsageError
from dpaudit_mitigations.transport.journal import Journal, durable_write, journal_folder

CHILD = Path(__file__).with_name("child.py")


@pytest.fixture
def path(tmp_path):
    return tmp_path / "journal.sqlite"


def test_states_move_by_compare_and_set(path):
    with Journal(path, kind="test") as book:
        assert book.state("r") is None
        assert book.facts("r") == {}
        book.advance("r", None, "offered", count=5, digest="ab")
        book.advance("r", "offered", "stored", digest="cd")
        for old, new in ((None, "offered"), ("offered", "stored"), ("published", "offered")):
            with pytest.raises(MessageError, match="release r: is stored"):
                book.advance("r", old, new, count=9)
        with pytest.raises(MessageError, match="release q: is new"):
            book.advance("q", "stored", "published")
        book.advance("a", None, "offered")
        assert book.state("r") == "stored"
        assert book.facts("r") == {"count": 5, "digest": "cd"}
        assert book.releases() == ["r", "a"]
        assert book.releases("offered") == ["a"]
    (path.parent / ".dpaudit-0123.tmp").touch()  # of a killed writer
    with Journal(path, kind="test") as book:
        assert (book.state("r"), book.facts("r")["count"], book.state("q")) == ("stored", 5, None)
    assert not list(path.parent.glob(".dpaudit-*"))


def test_usage_errors(path):
    odd = ({"a": b"x"}, {"a": float("nan")}, {"a": "x" * (1 << 20)})
    with Journal(path, kind="test") as book:
        for release, facts in (("", {}), ("x" * 129, {}), ("a\nb", {}), *(("r", f) for f in odd)):
            with pytest.raises(UsageError):
                book.advance(release, None, "offered", **facts)
        assert book.releases() == []


def test_one_of_many_threads_wins(path):
    won, lost = [], []
    with Journal(path, kind="test") as book:

        def run(n):
            try:
                book.advance("r", None, "offered", by=n)
                won.append(n)
            except MessageError:
                lost.append(n)

        threads = [threading.Thread(target=run, args=(n,)) for n in range(16)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert (len(won), len(lost)) == (1, 15)
        assert book.facts("r") == {"by": won[0]}


def test_settings_that_make_it_durable(path):
    with Journal(path, kind="test") as book:
        assert book._db.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        assert book._db.execute("PRAGMA synchronous").fetchone() == (2,)  # FULL
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_two_processes_refuse_each_other_and_a_killed_one_lets_go(path):
    with subprocess.Popen(
        [sys.executable, CHILD, "journal", path], stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout.readline() == "open\n"
        with pytest.raises(UsageError, match="another process uses it"):
            Journal(path, kind="test")
        other.kill()
    Journal(path, kind="test").close()
    with Journal(path, kind="test"), pytest.raises(UsageError, match="another process uses it"):
        Journal(path, kind="test")


def damaged(path, statement):
    Journal(path, kind="test").close()
    with sqlite3.connect(path) as db:
        db.execute(statement)
    db.close()


STATES = [None, "offered", "stored", "published"]


def kill_rounds(path, rounds, seed):
    """Start the child, kill it at a random moment, check everything; states only move forward."""
    rng, seen, said = random.Random(seed), {}, {}
    for _ in range(rounds):
        with subprocess.Popen(
            [sys.executable, CHILD, "journal", path], stdout=subprocess.PIPE, text=True
        ) as one:
            assert one.stdout.readline() == "open\n"
            for _ in range(rng.randrange(12)):
                release, state = one.stdout.readline().split()
                said[release] = state
            delay = rng.random() * 0.004
            threading.Event().wait(delay)
            os.kill(one.pid, signal.SIGKILL)
            for line in one.stdout:
                if line.endswith("\n"):
                    release, state = line.split()
                    said[release] = state
        with sqlite3.connect(f"file:{path}?mode=ro", uri=True) as db:
            assert db.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
            now = dict(db.execute("SELECT id, state FROM releases").fetchall())
        db.close()
        for release, state in seen.items():
            assert STATES.index(now[release]) >= STATES.index(state)
        for release, state in said.items():  # what it said was done, is done
            assert STATES.index(now[release]) >= STATES.index(state)
        for release, state in now.items():
            if state != "offered":
                assert path.with_name(release).read_bytes() == release.encode() * 50
        assert sum(s != "published" for s in now.values()) <= 1
        seen = now
    return seen


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(("rounds", "seed"), [(12, 20240603), (1000, 20240604)])
def test_kill_nine_at_random_moments(path, rounds, seed):
    assert len(kill_rounds(path, rounds, seed=seed)) > rounds
    (path.parent / ".dpaudit-0123.tmp").touch()
    Journal(path, kind="test").close()
    assert not list(path.parent.glob(".dpaudit-*"))  # leftovers are gone once it has been opened


@pytest.mark.parametrize("schema", ["0", "2", "x"])
def test_another_schema(path, schema):
    damaged(path, f"UPDATE meta SET value = '{schema}' WHERE key = 'schema'")
    with pytest.raises(UsageError, match=f"schema {schema}"):
        Journal(path, kind="test")


def test_another_kind_another_database_and_no_database(path, tmp_path):
    damaged(path, "UPDATE meta SET value = 'other' WHERE key = 'kind'")
    with pytest.raises(UsageError, match="is of other, not of test"):
        Journal(path, kind="test")
    foreign = tmp_path / "foreign.sqlite"
    with sqlite3.connect(foreign) as db:
        db.execute("CREATE TABLE cells (x)")
    db.close()
    with pytest.raises(UsageError, match="another program's"):
        Journal(foreign, kind="test")
    (tmp_path / "junk").write_bytes(b"junk" * 1000)
    with pytest.raises(UsageError, match="cannot be used"):
        Journal(tmp_path / "junk", kind="test")
    assert (tmp_path / "junk").read_bytes() == b"junk" * 1000
    with pytest.raises(UsageError, match="folder"):
        Journal(tmp_path / "none/j", kind="test")
    for p in (path, foreign, tmp_path / "junk"):  # a refusal lets go of the lock
        with pytest.raises(UsageError) as caught:
            Journal(p, kind="test")
        assert "another process" not in str(caught.value)


def test_a_full_disk_changes_nothing(path):
    with Journal(path, kind="test") as book:
        book.advance("r", None, "offered")
        pages = book._db.execute("PRAGMA page_count").fetchone()[0]
        book._db.execute(f"PRAGMA max_page_count = {pages}")
        with pytest.raises(UsageError, match="cannot be written"):
            book.advance("r", "offered", "stored", text="x" * 10_000)
        book._db.execute("PRAGMA max_page_count = 100000")
        assert book.state("r") == "offered"
        book.advance("r", "offered", "stored", text="x" * 10_000)


def test_a_file_is_there_whole_with_mode_600(tmp_path):
    array = np.random.default_rng(3).standard_normal((300, 1000))
    durable_write(tmp_path / "a", array)
    durable_write(tmp_path / "b", iter([b"head", array[:2], b"", memoryview(b"tail")]))
    durable_write(tmp_path / "c", b"")
    assert (tmp_path / "a").read_bytes() == array.tobytes()
    assert (tmp_path / "b").read_bytes() == b"head" + array[:2].tobytes() + b"tail"
    assert (tmp_path / "c").read_bytes() == b""
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a", "b", "c"]
    assert {stat.S_IMODE(p.stat().st_mode) for p in tmp_path.iterdir()} == {0o600}


def test_the_order_of_syncs(tmp_path, monkeypatch):
    """Data, then name, then the folder: any other order loses a file to a power cut."""
    did = []
    for call in ("fsync", "replace", "open"):
        real = getattr(os, call)
        monkeypatch.setattr(
            os, call, lambda *a, _real=real, _call=call, **k: did.append(_call) or _real(*a, **k)
        )
    durable_write(tmp_path / "a", b"x")
    assert did == ["open", "fsync", "replace", "open", "fsync"]


def test_a_journal_that_others_may_write_to(tmp_path):
    assert journal_folder(tmp_path / "new").stat().st_mode & 0o777 == 0o700
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o770)
    with pytest.raises(UsageError, match="writable by others"):
        journal_folder(tmp_path / "open")


def test_a_lock_that_is_a_link_or_another_file_is_refused_and_unharmed(tmp_path):
    (tmp_path / "mine").write_text("precious")
    lock = tmp_path / "journal.lock"
    for make in (lock.symlink_to, lambda mine: lock.write_text(mine.read_text())):
        make(tmp_path / "mine")
        with pytest.raises(UsageError, match="cannot be used"):
            Journal(tmp_path / "journal", kind="a")
        assert (tmp_path / "mine").read_text() == lock.read_text() == "precious"
        lock.unlink()


def test_replacing_and_not_replacing(tmp_path):
    durable_write(tmp_path / "a", b"1")
    durable_write(tmp_path / "a", b"2")
    with pytest.raises(UsageError, match="exists already"):
        durable_write(tmp_path / "a", b"3", replace=False)
    durable_write(tmp_path / "b", b"4", replace=False)
    assert ((tmp_path / "a").read_bytes(), (tmp_path / "b").read_bytes()) == (b"2", b"4")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a", "b"]


def test_a_write_that_fails_leaves_the_old_file(tmp_path):
    durable_write(tmp_path / "a", b"old")

    def parts():
        yield b"new"
        raise RuntimeError("the source broke")

    with pytest.raises(RuntimeError, match="broke"):
        durable_write(tmp_path / "a", parts())
    with pytest.raises(UsageError, match="cannot be written"):
        durable_write(tmp_path / "none" / "a", b"x")
    assert (tmp_path / "a").read_bytes() == b"old"
    assert [p.name for p in tmp_path.iterdir()] == ["a"]
