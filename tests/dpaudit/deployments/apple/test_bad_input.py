"""`dpaudit deployment apple` on untrusted files: a finding or an error, never a crash."""

from __future__ import annotations

import itertools
import json
import os
import plistlib
import random
import shutil
import sqlite3
import tracemalloc
from pathlib import Path

import pytest
from typer.testing import CliRunner

from dpaudit.cli.app import app
from dpaudit.deployments.apple.configuration.reading import read_configuration
from dpaudit.errors import DpauditError, UsageError

DATA = Path(__file__).parents[3] / "data" / "apple"
PREFIX = "com.apple.dprivacyd."
KEYNAMES, PROPERTIES, PARAMETERS, BUDGETS = (
    f"{PREFIX}{name}.plist"
    for name in ("keynames", "keyproperties", "algorithmparameters", "budgetproperties")
)
FILES = (KEYNAMES, PROPERTIES, PARAMETERS, BUDGETS)
EMOJI = "com.apple.keyboard.Emoji.en_US.EmojiKeyboard"


def apple(config, *args):
    """Run the command: its exit code, its document (None after an error), and what it said."""
    result = CliRunner().invoke(
        app, ["deployment", "apple", "--config", str(config), *map(str, args), "--format", "json"]
    )
    error = result.exception
    if isinstance(error, DpauditError):
        assert str(error)
        return error.exit_code, None, str(error)
    assert error is None or isinstance(error, SystemExit), repr(error)
    document = json.loads(result.stdout) if result.exit_code in (0, 1) else None
    if document is not None:
        assert (
            (result.exit_code == 1)
            == any(f["serious"] for f in document["findings"])
            == (document["verdict"] == "finding")
        )
    return result.exit_code, document, result.output


def said(document):
    return "\n".join(f"{f['where']}: {f['message']}" for f in document["findings"])


def serious(document):
    return "\n".join(f"{f['where']}: {f['message']}" for f in document["findings"] if f["serious"])


@pytest.fixture
def folder(tmp_path):
    return shutil.copytree(DATA / "10.12.3", tmp_path / "config")


def rewrite(folder, name, change, fmt=plistlib.FMT_XML):
    entries = plistlib.loads((folder / name).read_bytes())
    changed = change(entries)
    (folder / name).write_bytes(plistlib.dumps(entries if changed is None else changed, fmt=fmt))


def entry(entries, name):
    return next(
        e
        for e in entries
        if name in (e.get("PropertiesName"), e.get("BudgetName"), e.get("KeyName"))
    )


def reports_in(tmp_path, *texts, names=None):
    folder = tmp_path / "reports"
    folder.mkdir(exist_ok=True)
    for i, text in enumerate(texts):
        name = names[i] if names else f"DifferentialPrivacy_2017-05-{i + 1:02}-120000_mac.dpsub"
        data = (
            text
            if isinstance(text, bytes)
            else (text if isinstance(text, str) else json.dumps(text)).encode()
        )
        (folder / name).write_bytes(data)
    return folder


def report(records, *, key=EMOJI, algorithm="OneBitHistogram", parameters=None):
    parameters = {"epsilon": 1, "p": 5000} if parameters is None else parameters
    return {
        "version": 11,
        "segments": [
            {"key": key, "algorithm": algorithm, "parameters": parameters, "records": records}
        ],
    }


# ------------------------------------------------------------------ the four property lists


@pytest.mark.parametrize("name", FILES)
def test_a_file_that_is_no_property_list_is_named(folder, name):
    (folder / name).write_bytes(b"not a plist")
    code, document, text = apple(folder)
    assert (code, document) == (2, None)
    assert name in text


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\x00" * 100,
        b"<plist>",
        b"<?xml version='1.0'?><plist version='1.0'><dict><key>a</key></dict></plist>",
        b"<plist><integer>twelve</integer></plist>",
        b"<plist><date>yesterday</date></plist>",
        b"bplist00",
        b"bplist00" + b"\xff" * 64,
        plistlib.dumps({"a": 1}, fmt=plistlib.FMT_BINARY)[:-5],
        b"\xff\xfe<\x00p\x00l\x00i\x00s\x00t\x00",
        json.dumps([{"KeyName": "a"}]).encode(),
    ],
    ids=range(11),
)
def test_files_that_are_no_property_lists(folder, content):
    (folder / KEYNAMES).write_bytes(content)
    with pytest.raises(UsageError, match=KEYNAMES):
        read_configuration(folder)


@pytest.mark.parametrize("root", [{}, [1, [], {}], [{"KeyName": 1}]])
@pytest.mark.parametrize("name", FILES)
def test_property_lists_of_another_shape(folder, name, root):
    (folder / name).write_bytes(plistlib.dumps(root))
    code, document, text = apple(folder)
    assert code in (0, 1, 2)
    assert code == 2 or document["findings"]
    assert text


def test_entity_bombs(folder):
    levels = "".join(f"<!ENTITY l{i} '{f'&l{i - 1};' * 10}'>" for i in range(1, 12))
    doctype = f"<!DOCTYPE plist [<!ENTITY l0 'ha'>{levels}]>"
    bomb = f"<?xml version='1.0'?>{doctype}<plist><string>&l11;</string></plist>"
    (folder / KEYNAMES).write_text(bomb)
    assert apple(folder)[0] == 2
    entity = f"<!ENTITY x SYSTEM 'file://{folder / BUDGETS}'>"
    outside = f"<!DOCTYPE plist [{entity}]><plist><string>&x;</string></plist>"
    (folder / KEYNAMES).write_text(outside)
    assert apple(folder)[0] == 2


@pytest.mark.parametrize("fmt", [plistlib.FMT_XML, plistlib.FMT_BINARY])
def test_deep_nesting(folder, fmt):
    value: object = []
    for _ in range(400):
        value = [value]
    (folder / KEYNAMES).write_bytes(plistlib.dumps(value, fmt=fmt))
    assert apple(folder)[0] == 2


def test_a_huge_property_list(folder):
    os.truncate(folder / KEYNAMES, 10 * 2**30)
    tracemalloc.start()
    code, _, text = apple(folder)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert code == 2
    assert KEYNAMES in text
    assert peak < 300e6


@pytest.mark.parametrize("case", ["missing", "folder", "dangling", "fifo"])
def test_a_file_that_is_none(folder, case):
    path = folder / BUDGETS
    path.unlink()
    if case == "folder":
        path.mkdir()
    elif case == "dangling":
        path.symlink_to(folder / "nowhere")
    elif case == "fifo":
        os.mkfifo(path)
    code, _, text = apple(folder)
    assert code == 2
    assert BUDGETS in text


def test_no_folder(tmp_path):
    assert apple(tmp_path / "nowhere")[0] == 2
    (tmp_path / "file").write_text("x")
    assert apple(tmp_path / "file")[0] == 2
    assert apple(tmp_path)[0] == 2


@pytest.mark.parametrize(
    "field", ["PropertiesName", "PrivatizationAlgorithm", "PrivacyParameter", "BudgetKeyName"]
)
def test_missing_fields(folder, field):
    rewrite(folder, PROPERTIES, lambda entries: entry(entries, "NewWords").pop(field) and None)
    code, document, _ = apple(folder)
    assert code in (0, 1)
    assert field in said(document)
    assert document["ledger"]["permitted"]["per_day"] <= 16


@pytest.mark.parametrize("field", ["SessionAmount", "SessionSeconds", "BudgetName"])
def test_missing_fields_of_budgets(folder, field):
    rewrite(
        folder,
        BUDGETS,
        lambda entries: entry(entries, "com.apple.keyboard.Emoji").pop(field) and None,
    )
    _, document, _ = apple(folder)
    assert field in said(document)
    assert document["ledger"]["permitted"]["per_day"] == 15


@pytest.mark.parametrize(
    "value", [-0.0, float("nan"), -(10**18), 10**300, True, [], 1e-320, 2.000001]
)
def test_privacy_parameters(folder, value):
    def change(entries):
        entry(entries, "NewWords")["PrivacyParameter"] = value

    try:
        rewrite(folder, PROPERTIES, change)
    except OverflowError:
        text = (DATA / "10.12.3" / PROPERTIES).read_text()
        at = text.index("<key>PrivacyParameter</key>")
        (folder / PROPERTIES).write_text(
            text[:at] + text[at:].replace("<integer>2<", f"<integer>{value}<", 1)
        )
    code, document, _ = apple(folder)
    assert code in (0, 1, 2)
    if document is not None and value != 1e-320:
        assert "PrivacyParameter" in said(document)
        words = [
            x for x in document["ledger"]["lines"] if x["budget"] == "com.apple.keyboard.NewWords"
        ]
        assert words[0]["claimed"]["per_record"] <= 2
    if isinstance(value, int | float) and not isinstance(value, bool) and value <= 0:
        assert "PrivacyParameter" in serious(document)


@pytest.mark.parametrize("field", ["SessionAmount", "SessionSeconds"])
@pytest.mark.parametrize("value", [0, 2**62, 1e-310, 1e300, float("nan"), "x"])
def test_budget_numbers(folder, tmp_path, field, value):
    def change(entries):
        entry(entries, "com.apple.keyboard.Emoji")[field] = value

    rewrite(folder, BUDGETS, change, plistlib.FMT_BINARY)
    reports = reports_in(tmp_path, *(report(["1,-1"]) for _ in range(3)))
    code, document, _ = apple(folder, "--reports", reports, "--days", 3660)
    assert code in (0, 1, 2)
    assert document is None or document["ledger"]["days"] == 3660


def test_loops_and_unknown_names(folder):
    def loop(entries):
        entries += [
            {"KeyName": "a", "PropertiesName": "b"},
            {"KeyName": "b", "PropertiesName": "a"},
            {"KeyName": "self", "PropertiesName": "self"},
            {"KeyName": "lost", "PropertiesName": "nothing of that name"},
        ]

    def unknown(entries):
        entry(entries, "DeepLinks")["BudgetKeyName"] = "com.apple.no.such.budget"

    rewrite(folder, KEYNAMES, loop)
    rewrite(folder, PROPERTIES, unknown)
    _, document, _ = apple(folder)
    assert "loop" in said(document)
    assert "nothing of that name" in said(document)
    assert "com.apple.no.such.budget" in said(document)
    assert document["ledger"]["permitted"]["per_day"] == 6


def test_hostile_names_in_every_place(folder, tmp_path):
    name = "<script>alert(1)</script>\x1b[2J\u202e{{ 7*7 }}[red]"
    escaped = name.replace("\x1b", "\x7f")  # XML has no escape character

    rewrite(folder, KEYNAMES, lambda e: entry(e, EMOJI).update(KeyName=escaped))
    rewrite(
        folder,
        PROPERTIES,
        lambda e: entry(e, "NewWords").update(
            BudgetKeyName=escaped, PrivatizationAlgorithm=escaped
        ),
    )
    rewrite(folder, BUDGETS, lambda e: entry(e, "com.apple.health").update(BudgetName=escaped))
    reports = reports_in(
        tmp_path, report(["1,-1", name], key="<b>key</b>"), names=["<i>2017-05-01-120000.dpsub"]
    )
    code, _, _ = apple(
        folder, "--reports", reports, "--against", DATA / "10.12.1", "--out", tmp_path / "out"
    )
    assert code in (0, 1)
    html = (tmp_path / "out" / "report.html").read_text()
    for tag in ("<script>alert", "<b>", "<i>2017"):  # the page has one script, its own
        assert tag not in html
    assert not {"\x1b", "\x7f", "\u202e"} & set(html)
    result = CliRunner().invoke(
        app, ["deployment", "apple", "--config", str(folder), "--reports", str(reports)]
    )
    assert not {"\x1b", "\x7f", "\u202e"} & set(result.output)


# ------------------------------------------------------------------ the database


@pytest.fixture
def database(tmp_path):
    path = tmp_path / "budget.sqlite"
    with sqlite3.connect(path) as connection:
        connection.executescript("PRAGMA synchronous = OFF;" + (DATA / "database.sql").read_text())
    connection.close()
    return path


def test_negative_balances_and_others_beyond_belief(database):
    with sqlite3.connect(database) as connection:
        connection.execute(
            "UPDATE ZPRIVACYBUDGETRECORD SET ZBALANCE = -7 WHERE ZKEY = 'com.apple.keyboard.Emoji'"
        )
        connection.execute(
            "UPDATE ZPRIVACYBUDGETRECORD SET ZBALANCE = 9000000000000000000 "
            "WHERE ZKEY = 'com.apple.health'"
        )
    connection.close()
    code, document, _ = apple(DATA / "10.12.3", "--database", database)
    assert code == 1
    assert "-7" in said(document)
    assert "9000000000000000000" in serious(document)


@pytest.mark.parametrize("value", ["NULL", "'x'", "1e300", "-1e300", "9e999", "x'00ff'", "''"])
def test_values_that_do_not_belong_there(database, value):
    with sqlite3.connect(database) as connection:
        for row, column in enumerate(("ZBALANCE", "ZCREATIONDATE", "ZLASTUPDATE", "ZKEY"), 1):
            connection.execute(
                f"UPDATE ZPRIVACYBUDGETRECORD SET {column} = {value} WHERE Z_PK = {row}"
            )
    connection.close()
    code, _, _ = apple(DATA / "10.12.3", "--database", database)
    assert code in (0, 1)


@pytest.mark.parametrize("seed", range(6))
def test_corrupt_databases(database, seed):
    rng = random.Random(seed)
    data = bytearray(database.read_bytes())
    if seed % 3 == 0:
        data = data[: rng.randrange(1, len(data))]
    for _ in range(0 if seed % 3 == 0 else rng.choice((1, 40, 2000))):
        data[rng.randrange(16 if seed % 3 == 1 else 0, len(data))] = rng.randrange(256)
    database.write_bytes(data)
    code, document, text = apple(DATA / "10.12.3", "--database", database)
    assert code in (0, 1, 2)
    assert document is not None or "budget.sqlite" in text
    assert database.read_bytes() == data


@pytest.mark.parametrize(
    "content",
    [b"", b"SQLite format 3\x00", b"no database", b"SQLite format 3\x00" + b"\xff" * 4000],
)
def test_files_that_are_no_databases(database, content):
    database.write_bytes(content)
    code, _, text = apple(DATA / "10.12.3", "--database", database)
    assert code == 2
    assert "budget.sqlite" in text


def test_a_database_of_something_else(database):
    database.unlink()
    with sqlite3.connect(database) as connection:
        connection.executescript(
            "CREATE TABLE a (b); "
            "CREATE VIEW ZPRIVACYBUDGETRECORD AS SELECT * FROM ZPRIVACYBUDGETRECORD;"
        )
    connection.close()
    assert apple(DATA / "10.12.3", "--database", database)[0] in (0, 1, 2)


def test_no_database(tmp_path):
    assert apple(DATA / "10.12.3", "--database", tmp_path / "nowhere")[0] == 2
    assert apple(DATA / "10.12.3", "--database", tmp_path)[0] == 2


def test_a_view_that_never_ends(database):
    with sqlite3.connect(database) as connection:
        connection.executescript(
            "DROP TABLE ZPRIVACYBUDGETRECORD;"
            "CREATE VIEW ZPRIVACYBUDGETRECORD AS WITH RECURSIVE n(i) AS "
            "(SELECT 1 UNION ALL SELECT i + 1 FROM n)"
            " SELECT i AS ZBALANCE, 1.0 AS ZCREATIONDATE, 1.0 AS ZLASTUPDATE, "
            "'k' || i AS ZKEY FROM n;"
        )
    connection.close()
    code, _, _ = apple(DATA / "10.12.3", "--database", database)
    assert code in (0, 1, 2)


# ------------------------------------------------------------------ the reports

RECORDS = [
    "",
    ",",
    "1",
    "1,",
    "1,+2",
    "-1,+1",
    "1,+1,1",
    "99999999999999999999,+1",
    "1 ,+1",
    "١,+1",
    "0x1,+1",
    "1,ABC",
    "1," + "0" * 63,
    "1," + "G" * 64,
    "1," + "0" * 64,
    "1,00:00",
    "\x00,+1",
]


@pytest.mark.parametrize(
    ("algorithm", "parameters"),
    [
        ("OneBitHistogram", {"epsilon": 1, "p": 5000}),
        ("CountMedianSketch", {"epsilon": 2, "k": 64, "m": 256}),
        ("HadamardCountMedianSketch", {"epsilon": 1, "k": 64, "m": 64}),
        (
            "SequenceFragmentPuzzle+CountMedianSketch",
            {"sequenceK": 8, "fragmentK": 8, "sequenceM": 8, "fragmentM": 8},
        ),
        ("no such algorithm", {}),
    ],
)
def test_records_that_cannot_be_read(tmp_path, algorithm, parameters):
    reports = reports_in(tmp_path, report(RECORDS, algorithm=algorithm, parameters=parameters))
    code, document, _ = apple(DATA / "10.12.3", "--reports", reports)
    assert code in (0, 1)
    assert "left out" in said(document)
    assert document["shown"][0]["used"] < len(RECORDS) / 2


def test_parameters_that_are_none(tmp_path):
    texts = []
    for name, value in itertools.product(
        ("m", "k", "p", "epsilon"), (0, -1, 1.5, "256", True, None, 2**40, 1e30, [], {})
    ):
        texts += [
            report(
                ["1," + "0" * 64],
                algorithm="CountMedianSketch",
                parameters={"epsilon": 2, "k": 64, "m": 256} | {name: value},
            ),
            report(
                ["1,1,+1"] * 3,
                algorithm="HadamardCountMedianSketch",
                parameters={"epsilon": 1, "k": 4, "m": 4} | {name: value},
            ),
            report(["1,+1"], parameters={"epsilon": 1, "p": 5000} | {name: value}),
        ]
    names = [f"{i}.dpsub" for i in range(len(texts))]
    code, document, _ = apple(
        DATA / "10.12.3", "--reports", reports_in(tmp_path, *texts, names=names)
    )
    assert code in (0, 1)
    assert document["observed"]["reports"] + document["observed"]["unread"] == len(texts) == 120


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"\xff\xfe",
        b"{",
        b"null",
        b"7",
        b"[]",
        b'{"segments": 5}',
        b'{"segments": [null, 7, {}, {"key": 5}]}',
        b'{"segments": [{"key": "a", "algorithm": "b", "records": {"c": 1}}]}',
        b"[" * 100_000,
        b'{"a":' * 5000 + b"1" + b"}" * 5000,
        b'{"version": ' + b"9" * 10_000 + b', "segments": []}',
        b'{"version": NaN, "segments": [{"key": "a", "algorithm": "b", '
        b'"parameters": {"c": Infinity}, "records": []}]}',
        b'{"version": 11, "segments": []} trailing',
        '{"segments": [{"key": "\\ud800", "algorithm": "b", "records": ["\\ud800"]}]}',
    ],
    ids=range(15),
)
def test_reports_that_are_none(tmp_path, text):
    code, document, _ = apple(DATA / "10.12.3", "--reports", reports_in(tmp_path, text))
    assert code in (0, 1)
    assert (document["observed"]["reports"], document["observed"]["unread"]) in ((0, 1), (1, 0))
    assert document["findings"]


def test_ten_gigabytes_of_reports(tmp_path):
    folder = reports_in(tmp_path, report(["1,-1"]))
    for i in range(2):
        path = folder / f"DifferentialPrivacy_2017-06-{i + 1:02}-120000_mac.dpsub"
        path.touch()
        os.truncate(path, 5 * 2**30)
    (folder / "DifferentialPrivacy_2017-07-01-120000_mac.dpsub").write_bytes(b" " * (8 * 2**20))
    tracemalloc.start()
    code, document, _ = apple(DATA / "10.12.3", "--reports", folder)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert code in (0, 1)
    assert (document["observed"]["reports"], document["observed"]["unread"]) == (1, 3)
    assert document["observed"]["total"]["records"] == 1
    assert said(document).count("larger") == 2
    assert peak < 400e6


def test_memory_does_not_grow_with_the_number_of_reports(tmp_path):
    sketch = report(
        ["1," + "80" * 1024] * 40,
        algorithm="CountMedianSketch",
        parameters={"epsilon": 1, "k": 64, "m": 8192},
    )
    peaks = []
    for many in (3, 20):
        folder = reports_in(
            tmp_path / str(many).zfill(3)
            if (tmp_path / str(many).zfill(3)).mkdir() is None
            else tmp_path,
            *[sketch] * many,
            names=[f"{i}.dpsub" for i in range(many)],
        )
        tracemalloc.start()
        apple(DATA / "10.12.3", "--reports", folder)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < 1.5 * peaks[0] + 4e6


def test_many_kinds_of_records(tmp_path):
    segments = [
        {
            "key": f"key {i}",
            "algorithm": "OneBitHistogram",
            "parameters": {"epsilon": 1, "p": 9},
            "records": ["1,-1"],
        }
        for i in range(100)
    ]
    _, document, _ = apple(
        DATA / "10.12.3",
        "--reports",
        reports_in(tmp_path, {"version": 1, "segments": segments}),
        "--out",
        tmp_path / "out",
    )
    assert len(document["shown"]) == 100
    assert (tmp_path / "out" / "report.html").stat().st_size < 3e6


def test_folders_that_are_none(tmp_path):
    assert apple(DATA / "10.12.3", "--reports", tmp_path / "nowhere")[0] == 2
    (tmp_path / "loop").symlink_to(tmp_path)
    os.mkfifo(tmp_path / "pipe.dpsub")
    code, document, _ = apple(DATA / "10.12.3", "--reports", tmp_path)
    assert code == 0
    assert len(document["findings"]) >= 2


@pytest.mark.parametrize(
    "name", ["0001-01-01-000000.dpsub", "9999-12-31-235959.dpsub", "2017-13-45-999999.dpsub"]
)
def test_odd_dates(tmp_path, database, name):
    reports = reports_in(
        tmp_path,
        report(["1,-1"]),
        report(["1,-1"] * 50),
        names=[name, "DifferentialPrivacy_2017-05-01-120000_mac.dpsub"],
    )
    code, document, _ = apple(
        DATA / "10.12.3", "--reports", reports, "--database", database, "--out", tmp_path / "out"
    )
    assert code == 1
    assert document["observed"]["reports"] + document["observed"]["unread"] == 2


# ------------------------------------------------------------------ everything


def contents(folder):
    return {
        str(path.relative_to(folder)): (path.read_bytes(), path.stat().st_mtime_ns)
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def test_nothing_is_changed(folder, database, tmp_path):
    reports = shutil.copytree(DATA / "reports", tmp_path / "reports")
    before = contents(tmp_path)
    code, _, _ = apple(
        folder, "--database", database, "--reports", reports, "--against", DATA / "10.12.1"
    )
    assert code == 1
    assert contents(tmp_path) == before


@pytest.mark.parametrize(
    "seed", [*range(4), *(pytest.param(i, marks=pytest.mark.slow) for i in range(4, 12))]
)
def test_bytes_at_random(folder, tmp_path, database, seed):
    """Some bytes of every file replaced."""
    rng = random.Random(seed)
    reports = shutil.copytree(DATA / "reports", tmp_path / "reports")
    victims = [*(folder / name for name in FILES), *sorted(reports.iterdir()), database]
    for path in rng.sample(victims, 3):
        data = bytearray(path.read_bytes())
        for _ in range(rng.choice((1, 5, 50))):
            data[rng.randrange(len(data))] = rng.randrange(256)
        path.write_bytes(data)
    before = contents(tmp_path)
    code, _, text = apple(
        folder,
        "--database",
        database,
        "--reports",
        reports,
        "--out",
        tmp_path.parent / f"out{seed}",
    )
    assert code in (0, 1, 2)
    assert text
    assert contents(tmp_path) == before


@pytest.mark.parametrize("days", [0, -1, 10**18])
def test_days(days):
    code, _, _ = apple(DATA / "10.12.3", "--days", days)
    assert code in (0, 2)
    assert days > 0 or code == 2


def test_empty_tables_are_told(folder):
    for name in FILES:
        (folder / name).write_bytes(plistlib.dumps([]))
    code, document, _ = apple(folder)
    assert code == 0
    assert [f["message"] for f in document["findings"]] == ["holds no entry"] * 4


def test_names_that_would_move_the_cursor(folder):
    evil = "a\x9b2J\u202e<script>[red]\n"
    keys = [{"KeyName": evil, "PropertiesName": evil}]
    (folder / KEYNAMES).write_bytes(plistlib.dumps(keys, fmt=plistlib.FMT_BINARY))
    page = folder / "page"
    result = CliRunner().invoke(
        app, ["deployment", "apple", "--config", str(folder), "--out", str(page)]
    )
    assert result.exit_code == 0
    for text in (result.stdout, (page / "report.html").read_text(encoding="utf-8")):
        assert not {"\x9b", "\u202e"} & set(text)
    assert "<script>[red]" not in (page / "report.html").read_text(encoding="utf-8")
