"""The daemon's database: what is read, what is found, and that nothing on disk ever changes."""

from __future__ import annotations

import os
import shutil
import sqlite3
import struct
import subprocess
import sys
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import pytest

from dpaudit.errors import UsageError
from dpaudit.results import sqlite
from dpaudit_local.apple import database as database_module
from dpaudit_local.apple import sqlite_file
from dpaudit_local.apple.configuration import read_configuration
from dpaudit_local.apple.database import (
    check_balances,
    from_coredata,
    read_database,
)
from tests.support.apple.scenario import to_coredata

DATA = Path(__file__).parents[2] / "data" / "apple"
EMOJI = "com.apple.keyboard.Emoji.en_US.EmojiKeyboard"
SKETCHES = (
    "CREATE TABLE ZCMSRECORD (Z_PK INTEGER PRIMARY KEY, ZREPORTVERSION INTEGER, "
    "ZSUBMITTED INTEGER, ZSEQUENCEHASHINDEX INTEGER, ZSEQUENCESKETCH VARCHAR, "
    "ZFRAGMENTSKETCH VARCHAR, ZCREATIONDATE TIMESTAMP, ZKEY VARCHAR, "
    "ZPLAINSEQUENCE VARCHAR, ZPLAINFRAGMENT VARCHAR)"
)


@pytest.fixture
def figure(tmp_path: Path) -> Path:
    """Figures 1 and 2 as a file."""
    path = tmp_path / "figure.sqlite"
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript((DATA / "database.sql").read_text())
    return path


def change(path: Path, *statements: str) -> Path:
    with closing(sqlite3.connect(path)) as connection:
        for statement in statements:
            connection.execute(statement)
        connection.commit()
    return path


def files(folder: Path) -> dict[str, tuple[bytes, int, int]]:
    """Every file beside, with what a write would change."""
    return {
        p.name: (p.read_bytes(), p.stat().st_mtime_ns, p.stat().st_ino)
        for p in sorted(folder.iterdir())
    }


def messages(path: Path, table: str) -> str:
    return "\n".join(f.message for f in read_database(path).findings if f.where == table)


def test_figures_1_and_2(figure: Path) -> None:
    database = read_database(figure)
    names = ["NewWords", "default", "health", "testBudget", "Emoji", "AppDeepLink", "Search"]
    assert [b.key.rpartition(".")[2] for b in database.balances] == names
    assert [b.balance for b in database.balances] == [115, 1, 2, 324, 36, 10, 73]
    emoji = database.balances[4]
    # 516767088.547229 s = 5981 days and 8688.547229 s; 5981 days after 2001-01-01 is 2017-05-18
    assert emoji.created == datetime(2017, 5, 18, 2, 24, 48, 547229, tzinfo=UTC)
    assert (emoji.updated - emoji.created).total_seconds() == 76 * 86400
    (count,) = database.counts
    assert (count.table, count.key) == ("ZOBHRECORD", EMOJI)
    assert (count.submitted, count.rows, count.plain) == (False, 5, 0)
    assert count.first is not None
    assert count.last is not None
    assert (count.last - count.first).total_seconds() == pytest.approx(12.087406, abs=1e-6)
    # which Figures 1 and 2 do not show
    assert [f.where for f in database.findings] == ["ZCMSRECORD"]


def test_the_figures_balances_fit_their_configuration_and_not_the_older_one(figure: Path) -> None:
    database = read_database(figure)
    assert check_balances(database, read_configuration(DATA / "10.12.3")) == ()
    found = check_balances(database, read_configuration(DATA / "10.12.1"))
    # SessionAmount 1 for 80 days gives 81 at most; NewWords has 115, testBudget 324 = 4 * 81
    assert {f.message.split("'")[1] for f in found if f.serious} == {
        "com.apple.keyboard.NewWords",
        "com.apple.differentialprivacy.testBudget",
    }
    assert [f.message for f in found if not f.serious] == [
        "'com.apple.health': the configuration has no such budget"
    ]


def test_one_more_than_can_have_accrued_is_serious(figure: Path) -> None:
    change(
        figure,
        "UPDATE ZPRIVACYBUDGETRECORD SET ZBALANCE = 325 WHERE Z_PK = 4",
        "DELETE FROM ZPRIVACYBUDGETRECORD WHERE Z_PK = 6",
    )
    found = check_balances(read_database(figure), read_configuration(DATA / "10.12.3"))
    assert [f.serious for f in found] == [True, False]
    assert "cannot give more than 324 in 80 periods" in found[0].message
    assert "AppDeepLink': the configuration's budget has no row" in found[1].message


@pytest.mark.parametrize("left", ["closed", "wal", "wal without shm"])
def test_wal_mode_is_read_whole_and_leaves_nothing_behind(
    figure: Path, tmp_path: Path, left: str
) -> None:
    folder = tmp_path / "device"
    folder.mkdir()
    writer = sqlite3.connect(figure)
    writer.execute("PRAGMA journal_mode = WAL")
    writer.execute("PRAGMA wal_autocheckpoint = 0")
    writer.execute("UPDATE ZPRIVACYBUDGETRECORD SET ZBALANCE = 35 WHERE Z_PK = 5")
    writer.commit()
    if left == "closed":
        writer.close()
    for path in tmp_path.glob("figure.sqlite*"):
        if not (left == "wal without shm" and path.name.endswith("-shm")):
            shutil.copy(path, folder)
    writer.close()
    assert len(list(folder.iterdir())) == {"closed": 1, "wal": 3, "wal without shm": 2}[left]
    before = files(folder)
    database = read_database(folder / "figure.sqlite")
    assert database.balances[4].balance == 35
    assert files(folder) == before


def test_reading_changes_nothing_on_disk_and_a_bad_row_leaves_the_others(figure: Path) -> None:
    change(figure, "UPDATE ZPRIVACYBUDGETRECORD SET ZBALANCE = 'many' WHERE Z_PK = 5")
    before = files(figure.parent)
    assert [b.balance for b in read_database(figure).balances] == [115, 1, 2, 324, 10, 73]
    assert files(figure.parent) == before


def test_a_journal_of_a_crash_is_rolled_back_in_a_copy_only(figure: Path, tmp_path: Path) -> None:
    # a process that dies with the new pages written and the old ones in the journal
    code = (
        "import os, sqlite3, sys\n"
        "c = sqlite3.connect(sys.argv[1], isolation_level=None)\n"
        "c.execute('PRAGMA cache_size = 1'); c.execute('BEGIN EXCLUSIVE')\n"
        "c.execute('UPDATE ZPRIVACYBUDGETRECORD SET ZBALANCE = 999')\n"
        "c.execute('CREATE TABLE filler (x)')\n"
        "[c.execute('INSERT INTO filler VALUES (randomblob(3000))') for _ in range(200)]\n"
        "os._exit(0)"
    )
    subprocess.run([sys.executable, "-c", code, str(figure)], check=True)
    assert (tmp_path / "figure.sqlite-journal").stat().st_size > 0
    before = files(tmp_path)
    assert read_database(figure).balances[4].balance == 36
    assert files(tmp_path) == before


def test_a_locked_database_is_an_error_within_bounds(
    figure: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_file, "_PATIENCE", 0.05)
    code = (
        "import sqlite3, sys\nc = sqlite3.connect(sys.argv[1], isolation_level=None)\n"
        "c.execute('BEGIN EXCLUSIVE')\n"
        "print('locked', flush=True)\nsys.stdin.read()"
    )
    command = [sys.executable, "-c", code, str(figure)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, text=True, **pipes) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "locked\n"
        try:
            with pytest.raises(UsageError, match=r"locked by another program for 0\.05 s"):
                read_database(figure)
        finally:
            other.communicate("")
    assert len(read_database(figure).balances) == 7


def test_a_database_that_somebody_only_reads_is_read(figure: Path) -> None:
    with closing(sqlite3.connect(figure, isolation_level=None)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT * FROM ZOBHRECORD").fetchone()
        assert len(read_database(figure).balances) == 7


MAGIC = b"SQLite format 3\x00"


@pytest.mark.parametrize(
    "content", [b"", MAGIC, b"bplist00" + bytes(200), MAGIC + bytes(200), MAGIC + b"\xff" * 5000]
)
def test_what_is_no_database(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "d.sqlite"
    path.write_bytes(content)
    with pytest.raises(UsageError, match=r"d\.sqlite"):
        read_database(path)
    assert [p.name for p in tmp_path.iterdir()] == ["d.sqlite"]


def test_paths_that_are_no_files(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    odd = tmp_path / os.fsdecode(b"\xff%20?#.sqlite")
    for path in (tmp_path, tmp_path / "pipe", tmp_path / "no", Path("a\0b"), odd):
        with pytest.raises(UsageError) as error:
            read_database(path)
        str(error.value).encode()


def test_odd_names_are_opened(figure: Path, tmp_path: Path) -> None:
    odd = tmp_path / os.fsdecode(b"\xff%20?mode=rwc&#.sqlite")
    shutil.copy(figure, odd)
    assert len(read_database(odd).balances) == 7


def test_every_way_of_cutting_or_spoiling_a_page_ends_in_words(
    figure: Path, tmp_path: Path
) -> None:
    whole = figure.read_bytes()
    path = tmp_path / "spoiled.sqlite"
    outcomes = set()
    spoiled = [whole[:n] for n in range(100, len(whole), 999)]
    spoiled += [whole[:n] + b"\xff" * 40 + whole[n + 40 :] for n in range(16, len(whole) - 40, 161)]
    for content in spoiled:
        path.write_bytes(content)
        try:
            outcomes.add(bool(read_database(path).findings))
        except UsageError:
            outcomes.add("refused")
    assert outcomes >= {"refused", True}


def test_a_damaged_table_is_a_finding_and_the_others_are_read(figure: Path) -> None:
    with closing(sqlite3.connect(figure)) as connection:
        ((page,),) = connection.execute(
            "SELECT rootpage FROM sqlite_master WHERE name = 'ZOBHRECORD'"
        )
        ((size,),) = connection.execute("PRAGMA page_size")
    content = bytearray(figure.read_bytes())
    content[(page - 1) * size : page * size] = b"\xff" * size
    figure.write_bytes(content)
    database = read_database(figure)
    assert len(database.balances) == 7
    assert database.counts == ()
    assert "cannot be read to its end" in messages(figure, "ZOBHRECORD")


@pytest.mark.parametrize(
    ("change_to", "said"),
    [
        ("ZBALANCE = -3", "Emoji': the balance is -3"),
        ("ZBALANCE = 76", "Emoji': the balance 76 equals"),
        ("ZBALANCE = 'many'", "Emoji': ZBALANCE missing, of another type"),
        ("ZBALANCE = 1.5", "Emoji': ZBALANCE missing, of another type"),
        ("ZBALANCE = NULL", "Emoji': ZBALANCE missing"),
        ("ZBALANCE = 1 << 62", None),
        ("ZBALANCE = -(1 << 62)", "the balance is -4611686018427387904"),
        ("ZKEY = NULL", "row 5: ZKEY missing"),
        ("ZKEY = x'ff00'", "row 5: ZKEY missing"),
        ("ZLASTUPDATE = 9e99", "ZLASTUPDATE missing, of another type or out"),
        ("ZLASTUPDATE = 1", "last updated before it was created"),
        ("ZCREATIONDATE = -1.0", "ZCREATIONDATE missing"),
        ("ZCREATIONDATE = 'soon'", "ZCREATIONDATE missing"),
        ("ZKEY = 'com.apple.health'", "health' has 2 rows"),
    ],
)
def test_odd_balances_are_findings(figure: Path, change_to: str, said: str | None) -> None:
    statement = f"UPDATE ZPRIVACYBUDGETRECORD SET {change_to} WHERE Z_PK = 5"
    found = messages(change(figure, statement), "ZPRIVACYBUDGETRECORD")
    assert found == "" if said is None else said in found


@pytest.mark.parametrize(
    ("statement", "said"),
    [
        ("UPDATE {} SET ZKEY = 'a' || char(27) || '[2J'", r"'a\x1b[2J' has 7 rows"),
        ("ALTER TABLE {} DROP COLUMN ZBALANCE", "no column ZBALANCE"),
        ("DROP TABLE {}", "no such table"),
    ],
)
def test_odd_tables_of_balances_are_findings(figure: Path, statement: str, said: str) -> None:
    change(figure, statement.format("ZPRIVACYBUDGETRECORD"))
    assert said in messages(figure, "ZPRIVACYBUDGETRECORD")


@pytest.mark.parametrize(
    ("statement", "said", "rows"),
    [
        ("UPDATE {} SET ZKEY = NULL WHERE Z_PK = 2", "1 rows have no ZKEY", 4),
        ("UPDATE {} SET ZSUBMITTED = 'yes' WHERE Z_PK = 2", "a ZSUBMITTED other than 0 and 1", 4),
        ("UPDATE {} SET ZSUBMITTED = 1 WHERE Z_PK = 2", "", 5),
        ("UPDATE {} SET ZCREATIONDATE = 'x' WHERE Z_PK = 2", "1 of 5 rows have no time in", 5),
        ("UPDATE {} SET ZCREATIONDATE = 1e300 WHERE Z_PK < 4", "2 of 5 rows have no time in", 5),
        ("UPDATE {} SET ZSEQUENCEBITPOSITION = 'x' WHERE Z_PK = 2", "1 of 5 rows have an imp", 5),
        ("UPDATE {} SET ZSEQUENCEBITVALUE = 2 WHERE Z_PK = 2", "1 of 5 rows have an impossible", 5),
        ("UPDATE {} SET ZSEQUENCEBITPOSITION = NULL", "5 of 5 rows have an impossible bit", 5),
        ("ALTER TABLE {} DROP COLUMN ZSUBMITTED", "no column ZSUBMITTED", 0),
        ("ALTER TABLE {} DROP COLUMN ZPLAINSEQUENCE", "no column ZPLAINSEQUENCE; whether plain", 5),
        ("DROP TABLE {}", "no such table", 0),
    ],
)
def test_odd_records_are_findings(figure: Path, statement: str, said: str, rows: int) -> None:
    change(figure, statement.format("ZOBHRECORD"))
    found = messages(figure, "ZOBHRECORD")
    assert said in found if said else not found
    assert sum(c.rows for c in read_database(figure).counts) == rows


@pytest.mark.parametrize("column", ["ZPLAINSEQUENCE", "ZPLAINFRAGMENT"])
@pytest.mark.parametrize("table", ["ZOBHRECORD", "ZCMSRECORD"])
def test_plain_data_is_serious(figure: Path, table: str, column: str) -> None:
    columns = "ZKEY, ZSUBMITTED, ZCREATIONDATE, ZPLAINSEQUENCE"
    insert = f"INSERT INTO ZCMSRECORD ({columns}) VALUES ('{EMOJI}', 1, 5.5, '')"
    change(figure, SKETCHES, insert)
    assert not any(f.serious for f in read_database(figure).findings)
    change(figure, f"UPDATE {table} SET {column} = 'word' WHERE Z_PK IN (1, 2)")
    database = read_database(figure)
    (finding,) = [f for f in database.findings if f.serious]
    assert finding.where == table
    assert "rows hold the plain sequence" in finding.message
    assert "word" not in finding.message  # an audit must not spread what should not be there
    assert [c.plain for c in database.counts if c.table == table] == [1]


def test_sketches_are_counted(figure: Path) -> None:
    rest = "518421187.25, 'com.apple.lookup.Words', NULL, NULL"
    rows = "1, 11, 0, 131, '0F', 'A0'", "2, 11, 1, 7, '0F', NULL", "3, 11, 1, 'x', '0F', 'A0'"
    inserts = [f"INSERT INTO ZCMSRECORD VALUES ({row}, {rest})" for row in rows]
    change(figure, SKETCHES, *inserts)
    database = read_database(figure)
    counts = [(c.submitted, c.rows) for c in database.counts if c.table == "ZCMSRECORD"]
    assert counts == [(False, 1), (True, 2)]


ENDLESS = "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT 'k' || x AS ZKEY"
LARGE = "CREATE TABLE {} (ZKEY TEXT AS (hex(zeroblob(900000000))), ZSUBMITTED, ZCREATIONDATE)"


@pytest.mark.parametrize(
    ("table", "statement"),
    [
        (
            "ZOBHRECORD",
            f"CREATE VIEW {{}} AS {ENDLESS}, 0 AS ZSUBMITTED, x AS ZCREATIONDATE FROM c",
        ),
        ("ZOBHRECORD", LARGE),
        (
            "ZPRIVACYBUDGETRECORD",
            f"CREATE VIEW {{0}} AS {ENDLESS}, x AS ZBALANCE, 1.0 AS ZCREATIONDATE, "
            "1.0 AS ZLASTUPDATE FROM c",
        ),
        ("ZPRIVACYBUDGETRECORD", "CREATE VIEW {0} AS SELECT * FROM {0}"),
    ],
)
def test_a_table_that_would_compute_is_not_run(figure: Path, table: str, statement: str) -> None:
    change(figure, f"DROP TABLE {table}", statement.format(table))
    assert "not a plain table" in messages(figure, table)
    assert sum(c.rows for c in read_database(figure).counts) == (0 if table == "ZOBHRECORD" else 5)


@pytest.mark.slow
def test_many_keys_and_huge_values_stay_within_bounds(figure: Path) -> None:
    many = (
        "INSERT INTO ZOBHRECORD (ZKEY, ZSUBMITTED, ZCREATIONDATE) WITH RECURSIVE c(x) AS "
        "(SELECT 1 UNION ALL SELECT x + 1 FROM c LIMIT 20000) SELECT 'k' || x, 0, 1.0 FROM c"
    )
    change(figure, many)
    database = read_database(figure)
    assert len(database.counts) == 10_000
    assert "more than 10000 pairs of key and state" in messages(figure, "ZOBHRECORD")
    change(figure, "UPDATE ZOBHRECORD SET ZKEY = hex(zeroblob(1000000)) WHERE Z_PK = 2")
    assert "cannot be read to its end" in messages(figure, "ZOBHRECORD")


def test_text_that_is_not_utf_8(figure: Path) -> None:
    change(figure, "UPDATE ZOBHRECORD SET ZKEY = CAST(x'6bff' AS TEXT)")
    (count,) = read_database(figure).counts
    assert count.key == r"k\xff"


def test_timestamps_there_and_back() -> None:
    assert from_coredata(0) == datetime(2001, 1, 1, tzinfo=UTC)
    for seconds in (518421187.24894, 516767088.544767, 3124137599.999):
        when = from_coredata(seconds)
        assert when is not None
        assert to_coredata(when) == pytest.approx(seconds, abs=1e-6)
        assert from_coredata(to_coredata(when)) == when
    for refused in (-1, 3124137600, float("nan"), float("inf"), True, "1", None):
        assert from_coredata(refused) is None  # type: ignore[arg-type]


@pytest.mark.slow
@pytest.mark.timeout(30)
def test_pages_that_are_referred_to_many_times_over(
    figure: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """19 levels of 300 references to a page each: 300^19 rows, which SQLite would count."""
    monkeypatch.setattr(sqlite, "_STEPS", 0)
    with closing(sqlite3.connect(figure)) as connection:
        (size,) = connection.execute("PRAGMA page_size").fetchone()
        (root,) = connection.execute(
            "SELECT rootpage FROM sqlite_master WHERE name = 'ZOBHRECORD'"
        ).fetchone()
    data = bytearray(figure.read_bytes())

    def interior(child: int) -> bytes:
        page, end = bytearray(size), size
        for i in range(300):
            cell = child.to_bytes(4, "big") + bytes([0x80 | (i + 1) >> 7, (i + 1) & 0x7F])
            end -= len(cell)
            page[end : end + len(cell)] = cell
            page[12 + 2 * i : 14 + 2 * i] = end.to_bytes(2, "big")
        page[:12] = b"\x05" + struct.pack(">xxHHxI", 300, end, child)
        return bytes(page)

    leaf, first = bytes(data[(root - 1) * size : root * size]), len(data) // size + 1
    data[(root - 1) * size : root * size] = interior(first)
    data += b"".join(interior(first + level + 1) for level in range(18)) + leaf
    data[28:32] = (len(data) // size).to_bytes(4, "big")
    figure.write_bytes(data)
    allowed, bound = [], database_module.bound_steps

    def bounded(connection: sqlite3.Connection, *, size: int) -> None:
        allowed.append(size)
        bound(connection, size=min(size, len(data)))  # a larger one would take years

    monkeypatch.setattr(database_module, "bound_steps", bounded)
    assert "more rows than a file of its size can hold" in messages(figure, "ZOBHRECORD")
    assert set(allowed) == {len(data)}
    assert len(read_database(figure).balances) == 7
