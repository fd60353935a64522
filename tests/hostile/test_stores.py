"""Hostile result stores: SQLite files made to hang, crash or mislead whoever reads them."""

from __future__ import annotations

import contextlib
import json
import os
import random
import sqlite3

import pytest
from command_line import here
from hostile.fuzzing import ODD, fuzz, mutated, refuses_or_reads, with_odd_fields
from support.slow import partly

import dpaudit.experiments.arm_measures  # noqa: F401 torch, before memory is limited
from dpaudit.codec import to_dict
from dpaudit.errors import StoreError
from dpaudit.experiments.spec_file import load_spec
from dpaudit.experiments.store import FILE, Store, attempts, invocations, progress
from dpaudit.experiments.stored import open_run, overviews, result_of
from dpaudit.types import CellFailure, CellResult

SPEC = """name = "s"
epsilon = [1.0, 2.0, 4.0]
delta = 1e-10
trials = 10
[host]
name = "histogram"
[[source]]
name = "gaussian"
[[attack]]
name = "likelihood-ratio"
"""
OUTCOME = {
    "attack": "likelihood-ratio", "trials": 10, "successes": 5, "success": 0.5,
    "interval": {"low": 0.4, "high": 0.6, "confidence": 0.95, "method": "m"}, "chance": 0.5,
    "epsilon_lower_bound": "inf", "l2_error": 9.5, "l2_expected": 9.0,
    "details": {"picture": [1, 2]},
    "epsilon_key_holder": {"low": 0.5, "high": 0.5, "says": "exact"}, "sigma": 2.0, "dim": 64,
}  # fmt: skip
PLUGIN = {"kind": "sources", "name": "gaussian", "distribution": "d", "version": "1"}
PLUGIN |= {"sha256": "a" * 64}
PROVENANCE = {
    "seed": "1",
    "versions": {"dpaudit": "0.1.0"},
    "plugins": [PLUGIN],
    "hardware": "h",
    "started": "2025-01-01T00:00:00",
    "source": "b" * 64,
}
JSON_COLUMNS = {
    "meta": ("value",),
    "attempts": ("settings", "outcome"),
    "provenance": ("content",),
    "invocations": ("versions",),
}
TABLES = {
    "meta": ("value",),
    "provenance": ("id", "content"),
    "invocations": ("started", "command", "host", "process", "hardware", "versions"),
    "attempts": (
        "cell", "position", "kind", "status", "settings", "outcome", "error", "traceback",
        "seconds", "started", "finished", "provenance",
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def spec(tmp_path_factory):
    path = tmp_path_factory.mktemp("spec") / "s.toml"
    path.write_text(SPEC)
    return load_spec(str(path))


def made(folder, spec):
    """A run with two results and a failure."""
    with Store.open(
        folder, spec=to_dict(vars(spec)), command="dpaudit run s.toml", cells=3
    ) as store:
        for i, cell in enumerate(spec.cells()):
            known = {"cell": cell.id, "kind": "attack", "settings": cell.settings, "seconds": 1.0}
            done = CellResult(**known, outcome=OUTCOME, provenance=PROVENANCE)
            failed = CellFailure(
                **known, error="ValueError: no", traceback="Traceback", provenance=PROVENANCE
            )
            store.add(done if i < 2 else failed, position=i)
    return folder / FILE


def read_all(folder):
    """Everything that the command line asks of a store."""
    with Store.read(folder) as store:
        found = result_of(store)
        for ask in (attempts, invocations, progress):
            ask(store)
        store.failures(), store.cells
    return found


# ---------------------------------------------------------------- made by hand

ENDLESS = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n)"


def drop_triggers(db):
    found = db.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall()
    for (name,) in found:
        db.execute(f"DROP TRIGGER {name}")


def harm(*statements):
    """SQL on a store whose triggers are gone and whose schema may be written."""

    def do(path):
        with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as db:
            db.execute("PRAGMA ignore_check_constraints = ON")
            drop_triggers(db)
            for statement in statements:
                db.execute(statement)
            db.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    return do


def as_view(table, select):
    return harm(
        f"ALTER TABLE {table} RENAME TO hidden",
        "PRAGMA writable_schema = ON",  # the view must not be checked when it is made
        f"CREATE VIEW {table} AS {select}",
    )


ATTEMPT = "'c', 1, 'attack', 'done', '{}', '{}', NULL, NULL, 1.0, NULL, '', 1"
BY_HAND = {
    "endless view": as_view("attempts", f"{ENDLESS} SELECT i AS id, {ATTEMPT} FROM n"),
    "endless view of meta": as_view(
        "meta", f"{ENDLESS} SELECT 'spec' AS key, '{{}}' AS value FROM n WHERE i < 0"
    ),
    "view of zero blobs": as_view(
        "attempts",
        "SELECT 1 AS id, zeroblob(900000000) AS cell, 1 AS position, 'a' AS kind, "
        "'done' AS status, '{}' AS settings, zeroblob(900000000) AS outcome, NULL AS error, "
        "NULL AS traceback, 1.0 AS seconds, NULL AS started, '' AS finished, "
        "1 AS provenance",
    ),
    "computed column": harm(
        "DROP TABLE meta",
        "CREATE TABLE meta (key TEXT, value TEXT AS (hex(zeroblob(400000))))",
        "INSERT INTO meta VALUES ('spec')",
    ),
    "no table": harm("DROP TABLE provenance"),
    "no column": harm("ALTER TABLE attempts RENAME COLUMN seconds TO who"),
    "nested spec": harm(f"UPDATE meta SET value = '{'[' * 50_000}' WHERE key = 'spec'"),
    "deep spec": harm(f"UPDATE meta SET value = '{'[' * 400}{']' * 400}' WHERE key = 'spec'"),
    "nested settings": harm("UPDATE attempts SET settings = '" + '{"a":' * 50_000 + "'"),
    "spec that is a list": harm("UPDATE meta SET value = '[1]' WHERE key = 'spec'"),
    "spec that is a number": harm("UPDATE meta SET value = '1' WHERE key = 'spec'"),
    "no spec": harm("DELETE FROM meta WHERE key = 'spec'"),
    "NaN": harm("UPDATE attempts SET outcome = '{\"success\": NaN}'"),
    "digits": harm(f"UPDATE attempts SET outcome = '{{\"success\": 1{'0' * 5000}}}'"),
    "blobs": harm("UPDATE attempts SET cell = zeroblob(100), settings = x'ff'"),
    "text for a number": harm("UPDATE attempts SET position = 'x', seconds = 'y'"),
    "infinite seconds": harm("UPDATE attempts SET seconds = 9e999"),
    "no provenance": harm("PRAGMA foreign_keys = OFF", "DELETE FROM provenance"),
    "provenance that is a list": harm("UPDATE provenance SET content = '[]'"),
    "provenance of many keys": harm(
        f"UPDATE provenance SET content = '{json.dumps({str(i): i for i in range(200)})}'"
    ),
    "versions that are a list": harm("UPDATE invocations SET versions = '[]'"),
    "other types inside": harm(
        "UPDATE attempts SET settings = '{\"source\": 3}', outcome = '{\"interval\": []}'"
    ),
}


@pytest.mark.parametrize("name", partly(BY_HAND, every=4))
def test_a_store_made_by_hand_is_refused_in_a_line_by_every_command(tmp_path, spec, name):
    path = made(tmp_path / "bad", spec)
    made(tmp_path / "good", spec)
    BY_HAND[name](path)
    size = path.stat().st_size
    assert not refuses_or_reads(lambda: read_all(path.parent), size=size)
    refuses_or_reads(lambda: open_run(path.parent).columns(), size=size)
    refuses_or_reads(
        lambda: Store.open(path.parent, spec=to_dict(vars(spec)), resume=True).close(), size=size
    )
    listed = {}
    assert refuses_or_reads(
        lambda: listed.update({r.folder: r for r in overviews(tmp_path)}), size=2 * size
    )
    assert listed[str(tmp_path / "good")].done == 2, "a broken store does not stop the list"
    for args in (
        ("runs", "list", tmp_path),
        ("runs", "show", path.parent),
    ):
        assert here(*args).returncode in (0, 1, 2)
    assert here("runs", "export", path.parent, "--to", tmp_path / "x.csv").returncode == 2


def test_the_stores_that_these_were_made_from_are_read(tmp_path, spec):
    assert len(read_all(made(tmp_path / "2", spec).parent).rows) == 2
    harm("CREATE VIEW mine AS SELECT 1")(made(tmp_path / "3", spec))
    assert len(read_all(tmp_path / "3").rows) == 2, "what is not asked does not matter"


def linked(path, to):
    path.unlink()
    path.symlink_to(to)


KINDS = {
    "pipe": lambda path: (path.unlink(), os.mkfifo(path)),
    "folder": lambda path: (path.unlink(), path.mkdir()),
    "link to nothing": lambda path: linked(path, path.parent.parent / "victim"),
    "link to a device": lambda path: linked(path, "/dev/zero"),
    "link to a file": lambda path: (
        (path.parent.parent / "victim").touch(),
        linked(path, path.parent.parent / "victim"),
    ),
    "log that is a link": lambda path: path.with_name(FILE + "-wal").symlink_to(
        path.parent.parent / "victim"
    ),
    "log that is a pipe": lambda path: os.mkfifo(path.with_name(FILE + "-wal")),
    "index that is a link": lambda path: path.with_name(FILE + "-shm").symlink_to(
        path.parent.parent / "victim"
    ),
    "journal that is a folder": lambda path: path.with_name(FILE + "-journal").mkdir(),
}


@pytest.mark.parametrize("name", KINDS)
def test_something_else_than_a_plain_file_is_neither_read_nor_written(tmp_path, spec, name):
    path = made(tmp_path / "run", spec)
    KINDS[name](path)
    victim = tmp_path / "victim"
    before = victim.read_bytes() if victim.exists() else None
    with pytest.raises(StoreError, match=r"not a plain file|cannot be read|Too many levels"):
        read_all(path.parent)
    for resume in (False, True):
        with pytest.raises(StoreError):
            Store.open(path.parent, spec=to_dict(vars(spec)), resume=resume)
    assert (victim.read_bytes() if victim.exists() else None) == before
    assert here("runs", "list", tmp_path).returncode == 0


@pytest.mark.parametrize(
    "addition",
    [
        "CREATE TRIGGER t AFTER INSERT ON invocations "
        f"BEGIN SELECT count(*) FROM ({ENDLESS} SELECT i FROM n); END",
        "CREATE TRIGGER t AFTER INSERT ON attempts BEGIN UPDATE meta SET value = 'forged'; END",
        "CREATE INDEX i ON attempts (length(hex(zeroblob(2000000))))",
        "CREATE VIEW v AS SELECT 1",
        "DROP TRIGGER attempts_stay",
    ],
)
def test_nothing_is_written_to_a_store_with_sql_of_somebody_elses(tmp_path, spec, addition):
    path = made(tmp_path / "run", spec)
    with contextlib.closing(sqlite3.connect(path)) as db:
        db.execute(addition)
    with pytest.raises(StoreError, match="is not as dpaudit made it"):
        Store.open(path.parent, spec=to_dict(vars(spec)), resume=True)
    with Store.read(path.parent) as store:
        assert len(invocations(store)) == 1


def test_pages_that_are_used_twice_are_noticed_before_they_are_followed(tmp_path, spec):
    """Interior pages whose children are one page, in twenty levels, would hold 10^50 rows."""
    path = made(tmp_path / "run", spec)
    with Store.open(path.parent, spec=to_dict(vars(spec)), resume=True) as store:
        known = {
            "kind": "attack",
            "settings": {"x": "y" * 3000},
            "seconds": 1.0,
            "provenance": PROVENANCE,
        }
        store.add_all(
            [(i, CellFailure(cell=f"x{i}", error="e", traceback="t", **known)) for i in range(500)]
        )
        (page,) = (
            n
            for n, name in store.query("SELECT rootpage, name FROM sqlite_master")
            if name == "attempts"
        )
    data = bytearray(path.read_bytes())
    start = (page - 1) * 4096
    assert data[start] == 5, "an interior page"
    cells = int.from_bytes(data[start + 3 : start + 5], "big")
    for i in range(cells):
        at = start + int.from_bytes(data[start + 12 + 2 * i : start + 14 + 2 * i], "big")
        data[at : at + 4] = page.to_bytes(4, "big")  # every child is the page itself
    path.write_bytes(data)
    assert not refuses_or_reads(lambda: read_all(path.parent), size=len(data))


def test_a_log_from_elsewhere_is_no_way_in(tmp_path, spec):
    path, other = made(tmp_path / "run", spec), made(tmp_path / "other", spec)
    writer = sqlite3.connect(other, isolation_level=None)
    writer.execute("UPDATE meta SET value = '9' WHERE key = 'cells'")
    log = other.with_name(FILE + "-wal").read_bytes()
    writer.close()
    assert log
    for data in (log, log[: len(log) // 2], b"\0" * 5000, random.Random(1).randbytes(5000)):
        path.with_name(FILE + "-wal").write_bytes(data)
        path.with_name(FILE + "-shm").unlink(missing_ok=True)
        refuses_or_reads(lambda: read_all(path.parent), size=path.stat().st_size + len(data))


# ---------------------------------------------------------------- fuzzed


@pytest.fixture(scope="module")
def valid(tmp_path_factory, spec):
    folder = tmp_path_factory.mktemp("valid")
    return [made(folder / "2", spec).read_bytes()]


def test_mutated_pages(valid, tmp_path):
    path, words = tmp_path / FILE, (b"VIEW", b"\0" * 100, b"TRIGGER")

    def one(rng):
        data = mutated(rng, rng.choice(valid), others=valid, words=words)
        _replace(path, data)
        assert refuses_or_reads(lambda: overviews(tmp_path), size=len(data))
        return refuses_or_reads(lambda: read_all(tmp_path), size=len(data))

    fuzz(one)


def test_mutated_values(valid, tmp_path):
    path = tmp_path / FILE

    def one(rng):
        _replace(path, valid[0])
        with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as db:
            db.execute("PRAGMA synchronous = OFF")
            db.execute("PRAGMA ignore_check_constraints = ON")
            drop_triggers(db)
            for _ in range(rng.choice((1, 1, 2))):
                _change(rng, db)
        size = path.stat().st_size
        assert refuses_or_reads(lambda: overviews(tmp_path), size=size)
        refuses_or_reads(lambda: open_run(tmp_path).columns(), size=size)
        return refuses_or_reads(lambda: read_all(tmp_path), size=size)

    fuzz(one)


def _replace(path, data):
    for other in path.parent.iterdir():
        other.unlink()
    path.write_bytes(data)


def _change(rng, db):
    table = rng.choice(list(TABLES))
    if rng.randrange(2) and table in JSON_COLUMNS:
        column = rng.choice(JSON_COLUMNS[table])
        where = "WHERE key = 'spec'" if table == "meta" else f"WHERE {column} IS NOT NULL"
        ((old,),) = db.execute(f"SELECT {column} FROM {table} {where} LIMIT 1").fetchall()
        if not isinstance(old, str):
            return
        try:
            new = json.dumps(with_odd_fields(rng, json.loads(old)))
        except ValueError:
            new = old + old
        db.execute(f"UPDATE {table} SET {column} = ? WHERE {column} = ?", (new, old))
        return
    column = rng.choice(TABLES[table])
    odd = rng.choice(
        [v for v in ODD if isinstance(v, (str, float, type(None))) or v in (0, 1, -1)]
        + [b"\xff", b""]
    )
    odd = odd.encode("utf-8", "replace").decode() if isinstance(odd, str) else odd
    with contextlib.suppress(sqlite3.IntegrityError):
        db.execute(f"UPDATE {table} SET {column} = ?", (odd,))
