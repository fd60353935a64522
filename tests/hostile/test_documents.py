"""Hostile documents and words: keys, specifications, results, Apple's files, the command line."""

from __future__ import annotations

import contextlib
import json
import os
import plistlib
import sqlite3
from pathlib import Path

import pytest
from command_line import here
from hostile.fuzzing import ODD, REFUSED, deep, fuzz, mutated, refuses_or_reads, with_odd_fields
from support import reports

from dpaudit import registry
from dpaudit.audit.mechanism.question import parse_neighbours
from dpaudit.claims import FAMILIES, Claim
from dpaudit.cli.commands.run import check_columns
from dpaudit.cli.out_folder import rewrite_report
from dpaudit.errors import UsageError
from dpaudit.experiments.spec_file import load_spec, spec_names
from dpaudit.noise.key import PancakeKey, parse_gamma
from dpaudit.render.documents import report_json
from dpaudit.types import Reference
from dpaudit_local.apple.bits.estimates import Estimates
from dpaudit_local.apple.configuration import (
    FILES,
    read_configuration,
    resolve,
    unresolved_findings,
)
from dpaudit_local.apple.database import check_balances, read_database
from dpaudit_local.apple.differences import compare, effect
from dpaudit_local.apple.ledger import make_ledger
from dpaudit_local.apple.observed import Spending
from dpaudit_local.apple.reports import read_reports

for measure in registry.plugins("measures"):  # torch and others, before memory is limited
    registry.load("measures", measure)


def refused(*words):
    """What the command line says where it ends with a usage error, and with nothing else."""
    done = here(*words)
    assert (done.returncode, done.stdout) == (2, ""), done.stderr
    assert len(done.stderr) < 2000
    assert "internal" not in done.stderr
    assert "\x1b" not in done.stderr
    return done.stderr


# ---------------------------------------------------------------- key files

KEY = {
    "format": "dpaudit-pancake-key",
    "version": 1,
    "warning": "w",
    "dim": 64,
    "beta": 1e-3,
    "gamma": 16.0,
    "directions": 1,
    "secret": "ab" * 32,
}
KEY_TEXT = json.dumps(KEY)
BIG = "1" + "0" * 400


def written(path, data):
    path.unlink(missing_ok=True)
    path.write_bytes(data)
    path.chmod(0o600)
    return path


@pytest.mark.parametrize(
    "text",
    [
        "[" * 60_000,
        KEY_TEXT.replace("64", BIG),
        KEY_TEXT.replace("0.001", BIG),
        KEY_TEXT.replace("16.0", BIG),
        KEY_TEXT.replace("16.0", "Infinity"),
        KEY_TEXT.replace("16.0", "1e999"),
        KEY_TEXT.replace("0.001", "NaN"),
        json.dumps({**KEY, "\ud800\x1b[2J": 1}),
        json.dumps({**KEY, "dim": 10**13}),
        json.dumps({**KEY, "directions": 10**30}),
        "\x00" * 100_000,
        "",
    ],
    ids=range(12),
)
def test_a_key_file_made_by_hand_is_a_usage_error(tmp_path, text):
    path = written(tmp_path / "key.json", text.encode())
    assert not refuses_or_reads(lambda: PancakeKey.load(path), size=len(text))
    refused("key", "show", path)


@pytest.mark.parametrize(
    ("option", "value"),
    [
        *(("--dim", number) for number in (BIG, "1" + "0" * 5000)),
        *(("--beta", number) for number in (BIG, "nan")),
        *(("--gamma", number) for number in (BIG, "inf", "infd", "\x1b[2J")),
        ("--directions", BIG),
    ],
    ids=range(9),
)
def test_numbers_that_make_no_key(tmp_path, option, value):
    words = [str(w) for pair in {"--dim": 64, "--beta": 1e-3, option: value}.items() for w in pair]
    refused("key", "new", *words, "--out", tmp_path / "key.json")
    assert not (tmp_path / "key.json").exists()


def test_mutated_key_files(tmp_path):
    path, valid = tmp_path / "key.json", json.dumps(KEY, indent=2).encode()
    assert PancakeKey.load(written(path, valid)).dim == 64

    def one(rng):
        if rng.randrange(2):
            data = json.dumps(with_odd_fields(rng, KEY)).encode()
        else:
            data = mutated(rng, valid, words=(b"[", b'{"a":', b"NaN", b"\\ud800", b"\xff"))
        written(path, data)
        return refuses_or_reads(lambda: PancakeKey.load(path), size=len(data))

    fuzz(one, seen=REFUSED)


# ---------------------------------------------------------------- specifications

GOOD = """name = "t"
epsilon = [0.5, 1.0]
delta = 1e-10
trials = 50
[host]
name = "histogram"
[key]
beta = [1e-4, 1e-3]
gamma = "2sqrtd"
[[source]]
name = "gaussian"
[[source]]
name = "pancake"
key = { gamma = 0.5 }
[[mitigation]]
name = "none"
[[mitigation]]
name = "smoothing"
tau = [0.1, 0.2, 0.3]
[[attack]]
name = "likelihood-ratio"
[[exclude]]
source = "gaussian"
mitigation = "smoothing"
[audit]
samples = 10000
"""
TABLE = """name = "m"
measure = "precision"
epsilon = 1.0
delta = 1e-10
[host]
name = "histogram"
[[source]]
name = "gaussian"
[[column]]
key = "d"
label = "d"
[published]
file = "hist-da"
on = { d = "num_bins" }
value = "success_rate"
ours = "d"
[grid]
dtype = ["float64", "float32"]
"""
ODD_VALUES = (
    "1" + "0" * 500, "0x1" + "0" * 4999, "1e999", "nan", "-inf", "[]", "{}", "{name = 3}", "[[]]",
    "['x', 1]", "true", "2020-01-01", "07:32:00", '"\\u001b[2J"', '"\\u202e"', "''", "[" * 300,
    "{a=" * 40 + "1" + "}" * 40, "[[source]]", "[[exclude]]\nsource = [[1]]\n", "[grid]\n",
    "[published]\n", "[audit]\nalpha = 1e-400\n", "keys = 2\n", "measure = 'zoo'\n",
    "a.b.c.d = 1\n", ".a" * 100, "\0", "\u2028", "name", "label = 3\n",
)  # fmt: skip


def spec_door(path):
    """What ``dpaudit run`` does before it runs anything."""
    spec = load_spec(str(path))
    spec.check()
    check_columns(spec)


def changed(*pairs, text=GOOD):
    for old, new in pairs:
        assert old in text
        text = text.replace(old, new)
    return text.encode()


LONG_AXES = "[grid]\n" + "\n".join(f"a{i} = [1, 2]" for i in range(20_000))
MANY = "\n".join(f'[[source]]\nname = "gaussian"\nlabel = "{i}"' for i in range(900))
MANY += MANY.replace("source", "mitigation").replace("gaussian", "none")
GAUSSIAN, FILE, VALUE = '[[source]]\nname = "gaussian"\n', '"hist-da"', '"success_rate"'
SPECS = {
    "nested": b"a = " + b"[" * 5000,
    "nested tables": GOOD.encode() + b"[grid]\na = " + b"[" * 40 + b"]" * 40,
    "UTF-16": b"\xff\xfe\x00",
    "500 digits": changed(("0.5, 1.0", "1" + "0" * 500)),
    "5000 digits": changed(("0.5, 1.0", "1" + "0" * 5000)),
    "5000 hexadecimal digits": changed(("0.5, 1.0", "0x1" + "0" * 5000)),
    "seed of 5000 hexadecimal digits": b"seed = 0x1" + b"0" * 5000 + b"\n" + GOOD.encode(),
    "source is a table": b'source = {name = "gaussian"}\n' + changed((GAUSSIAN, "")),
    "key is a list": b"key = []\n" + changed(("[key]", "[grid]")),
    "20,000 axes": (GOOD + LONG_AXES).encode(),
    "a key of 30,000 dots": b"a" + b".a" * 30_000 + b" = 1",
    "a key of dots after a string of quotes": b'x = """a"""" # """"\na' + b".a" * 30_000 + b" = 1",
    "a billion combinations": (GOOD + MANY).encode(),
    "exclusion of a table": changed(('source = "gaussian"\n', "source = {a = 1}\n")),
    "exclusion of lists": changed(('source = "gaussian"\n', "source = [[1]]\n")),
    "key of a column that is a list": changed(('key = "d"', "key = []"), text=TABLE),
    "published file elsewhere": changed((FILE, '"../../x"'), text=TABLE),
    "published file that is a list of lists": changed((FILE, "[[1]]"), text=TABLE),
    "published value that is a list": changed(
        (VALUE, "[]"), ('{ d = "num_bins" }', "{}"), text=TABLE
    ),
    "published ratio of nothing": changed((VALUE, '"d"\nover = 3'), text=TABLE),
    "escapes in a name": changed(("[host]", '[host]\n"\\u001b[2J" = 2020-01-01')),
    "600 kB": b"#" * 600_000,
}


@pytest.mark.parametrize("name", SPECS)
def test_a_spec_made_by_hand_is_a_usage_error(tmp_path, name):
    path = tmp_path / "s.toml"
    path.write_bytes(SPECS[name])
    assert not refuses_or_reads(lambda: spec_door(path), size=len(SPECS[name]))
    refused("run", path, "--out", tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("name", ["x" * 5000 + ".toml", "a\x1b[2J.toml", "\x1b[2J", "x" * 5000])
def test_a_name_that_no_file_has_is_a_usage_error(tmp_path, name):
    refused("run", name, "--out", tmp_path / "out")


@pytest.mark.parametrize("name", spec_names())
def test_built_in_specs_pass_the_same_door(name):
    assert refuses_or_reads(lambda: spec_door(name), size=10_000)


def test_mutated_specs(tmp_path):
    path, valid = tmp_path / "s.toml", [GOOD.encode(), TABLE.encode()]
    for data in valid:
        path.write_bytes(data)
        assert refuses_or_reads(lambda: spec_door(path), size=len(data))

    def one(rng):
        data = rng.choice(valid)
        if rng.randrange(2):
            data = with_odd_lines(rng, data.decode()).encode()
        else:
            words = [text.encode() for text in ODD_VALUES]
            data = mutated(rng, data, others=valid, words=words)
        path.write_bytes(data)
        return refuses_or_reads(lambda: spec_door(path), size=len(data))

    fuzz(one)


def with_odd_lines(rng, text):
    """``text`` with values of other types, and lines doubled, missing or elsewhere."""
    lines = text.splitlines()
    for _ in range(rng.choice((1, 1, 2, 3))):
        at = rng.randrange(len(lines))
        what = rng.randrange(5)
        if what == 0:
            del lines[at]
        elif what == 1:
            lines.insert(rng.randrange(len(lines)), lines[at])
        elif what == 2:
            lines.insert(at, rng.choice(ODD_VALUES))
        elif "=" in lines[at]:
            lines[at] = f"{lines[at].split('=')[0]}= {rng.choice(ODD_VALUES)}"
        lines = lines or ["x = 1"]
    return "\n".join(lines)


# ---------------------------------------------------------------- result documents

FORMATS = ("junit", "sarif")
BEGINNING = b'{"schema": "dpaudit-report/2", "kind": "audit"'
RESULTS = {
    "nested": b"[" * 100_000,
    "nested deep": BEGINNING + b', "data": ' + json.dumps(deep(200)).encode() + b"}",
    "no object": b"3",
    "no verdict": BEGINNING + b"}",
    "Infinity": BEGINNING + b', "seconds": Infinity}',
    "digits": BEGINNING + b', "facts": {"alpha": 1' + b"0" * 4000 + b"}}",
    "not UTF-8": b"\xff\xfe",
    "values": BEGINNING + b', "data": {"a": [' + b"[]," * 400_000 + b"[]]}}",
    "kind is a list": b'{"schema": "dpaudit-report/2", "kind": []}',
    "schema is an object": b'{"schema": {}, "kind": "audit"}',
    "of schema 1": b'{"schema": "dpaudit-report/1", "kind": "audit", "result": {}}',
}


@pytest.mark.parametrize("name", RESULTS)
def test_a_result_made_by_hand_is_a_usage_error(tmp_path, name):
    path, size = tmp_path / "result.json", len(RESULTS[name])
    path.write_bytes(RESULTS[name])
    assert not refuses_or_reads(lambda: rewrite_report(path, FORMATS), size=size)
    said = refused("report", tmp_path, "--also", "junit,sarif")
    assert len(said.splitlines()) == 1


@pytest.mark.slow
def test_a_folder_and_a_pipe_are_no_documents(tmp_path):
    (tmp_path / "a" / "result.json").mkdir(parents=True)
    (tmp_path / "b").mkdir()
    os.mkfifo(tmp_path / "b" / "result.json")
    (tmp_path / "c").touch()
    for name in ("a", "b", "c", "no such", "\x1b[2J"):
        refused("report", tmp_path / name)
    os.mkfifo(tmp_path / "pipe", 0o600)
    (tmp_path / "folder").mkdir(mode=0o700)
    os.mkfifo(tmp_path / "s.toml")
    for words in (("key", "show", "pipe"), ("key", "show", "folder"), ("run", "s.toml")):
        assert "not a plain file" in refused(*words[:-1], tmp_path / words[-1])


@pytest.mark.slow
def test_mutated_results(tmp_path):
    path = tmp_path / "result.json"
    valid = [
        report_json(reports.EVERY[k]).encode() for k in ("finding", "no-finding", "measurements")
    ]
    for data in valid:
        path.write_bytes(data)
        rewrite_report(path, FORMATS)  # figures load their libraries before memory is limited
        assert refuses_or_reads(lambda: rewrite_report(path, FORMATS), size=len(data))

    def one(rng):
        data = rng.choice(valid)
        if rng.randrange(4):
            data = json.dumps(with_odd_fields(rng, json.loads(data))).encode()
        else:
            data = mutated(rng, data, others=valid, words=(b"[", b"NaN", b"\\ud800", b"null"))
        path.write_bytes(data)
        return refuses_or_reads(lambda: rewrite_report(path, FORMATS), size=len(data))

    fuzz(one)


# ---------------------------------------------------------------- Apple's configuration and reports

APPLE = Path(__file__).parents[1] / "data" / "apple"
CONFIGURED = APPLE / "10.12.3"
CONFIGURATION = read_configuration(CONFIGURED)
PLAIN = tuple(  # what a property list can hold
    v
    for v in ODD
    if v is not None and not (isinstance(v, int) and abs(v) >= 2**63) and v not in ("\ud800", "\0")
)
RECORDS = (
    b"818,165,+1", b"-1,-1,+2", b"1e9,1,+1", b"9" * 400, b",,,", b"19802,00FF", b"\\ud800", b"NaN",
    b"[" * 2000,
)  # fmt: skip


def configuration_door(folder):
    """What ``dpaudit deployment apple --config`` does with it."""
    read = read_configuration(folder)
    resolve(read), unresolved_findings(read), make_ledger(read, days=30)
    compare(CONFIGURATION, read), effect(CONFIGURATION, read)


def reports_door(folder):
    """What ``dpaudit deployment apple --reports`` does; how many segments it took in."""
    spending = Spending(CONFIGURATION, database=None)
    estimates = Estimates(resolve(CONFIGURATION))
    segments = 0
    for report in read_reports(folder):
        spending.add(report)
        segments += len(report.segments)
        for segment in report.segments:
            estimates.add(segment)
    spending.summary(estimates.epsilons())
    return segments


def database_door(path):
    found = read_database(path)
    check_balances(found, CONFIGURATION)
    return sum(c.rows for c in found.counts) + len(found.balances)


def test_mutated_configurations(tmp_path):
    configuration_door(CONFIGURED)
    texts = {name: (CONFIGURED / name).read_bytes() for name in FILES}
    values = {name: plistlib.loads(data) for name, data in texts.items()}
    words = (b"<dict>", b"<integer>", b"<!ENTITY", b"&x;")

    def one(rng):
        name, how = rng.choice(FILES), rng.randrange(4)
        for other, data in texts.items():
            (tmp_path / other).write_bytes(data)
        data = texts[name]
        if how == 0:
            data = mutated(rng, data, others=list(texts.values()), words=words)
        else:
            value = values[name][:9]
            if how < 3:
                value = with_odd_fields(rng, values[name][: rng.choice((2, 8, None))], odd=PLAIN)
            form = plistlib.FMT_BINARY if how == 3 or rng.randrange(2) else plistlib.FMT_XML
            # keys that no property list has, control characters
            with contextlib.suppress(TypeError, ValueError, UnicodeEncodeError):
                data = plistlib.dumps(value, fmt=form)
            data = mutated(rng, data) if how == 3 else data
        (tmp_path / name).write_bytes(data)
        size = sum(map(len, texts.values())) + len(data)
        return refuses_or_reads(lambda: configuration_door(tmp_path), size=size)

    fuzz(one)


@pytest.mark.slow
def test_numbers_of_days_are_usage_errors():
    for days in ("0", "-1", "1" + "0" * 30, "1" + "0" * 400, "1e3", "nan"):
        refused("deployment", "apple", "--config", CONFIGURED, "--days", days)


def test_mutated_reports(tmp_path):
    found = sorted((APPLE / "reports").rglob("*"))
    valid = [p.read_bytes() for p in found if p.name.endswith((".dpsub", ".json.anon"))]
    assert reports_door(APPLE / "reports") > 0

    def one(rng):
        data = valid[which := rng.randrange(len(valid))]
        with contextlib.suppress(ValueError):
            if rng.randrange(2):
                data = json.dumps(with_odd_fields(rng, json.loads(data))).encode()
        data = mutated(rng, data, others=valid, words=RECORDS) if data is valid[which] else data
        (tmp_path / "2017-08-08-082230.dpsub").write_bytes(data)
        segments = []
        assert refuses_or_reads(lambda: segments.append(reports_door(tmp_path)), size=len(data))
        return segments[0] > 0

    fuzz(one)


@pytest.fixture
def database(tmp_path):
    path = tmp_path / "d.sqlite"
    with contextlib.closing(sqlite3.connect(path)) as db:
        db.executescript((APPLE / "database.sql").read_text())
    assert database_door(path) > 0
    return path


def test_a_schema_that_sqlite_quotes_does_not_steer_the_terminal(database):
    data = database.read_bytes()
    database.write_bytes(data.replace(b"Z_PK INTEGER", b"Z_PK\x1b[2J\x1b[H", 1))
    assert not refuses_or_reads(lambda: database_door(database), size=len(data))


def test_mutated_databases(database):
    valid = database.read_bytes()
    odd = (None, 0.5, 1e308, -1, 2**62, "", "x", "1e999", b"\xff", b"", "\x1b[2J")

    def one(rng):
        database.write_bytes(valid)
        if rng.randrange(2):
            with contextlib.closing(sqlite3.connect(database, isolation_level=None)) as db:
                table = rng.choice(["ZPRIVACYBUDGETRECORD", "ZOBHRECORD"])
                columns = [row[1] for row in db.execute(f"PRAGMA table_info({table})")]
                value = rng.choice(odd)
                with contextlib.suppress(sqlite3.Error):
                    db.execute(f"UPDATE {table} SET {rng.choice(columns)} = ?", (value,))
        else:
            database.write_bytes(mutated(rng, valid, words=(b"VIEW", b"\0" * 100)))
        return refuses_or_reads(lambda: database_door(database), size=database.stat().st_size)

    fuzz(one)


# ---------------------------------------------------------------- numbers and names in words

NUMBERS = (
    "0", "1", "-1", "1e-3", "1e-320", "1e308", "1e309", "1" + "0" * 400, "1" + "0" * 5000, "0x10",
    "1_000", "٣", "²", "nan", "inf", "-inf", "true", "", " ", "a", "1/2", "1,5", "\x1b[2J",
    "\u202e", "\0", "😀", "9" * 308, "=", ":", ";",
)  # fmt: skip
NAMES = (
    "gaussian", "laplace", "discrete-gaussian", "discrete-laplace", "pancake", "numpy", "",
    "x" * 9000, "\x1b]0;a\x07",
)  # fmt: skip
OPTIONS = ("sigma", "scale", "key", "bound", "epsilon", "sensitivity", "dim", "", "\x1b", "σ")


def option_of(rng):
    if rng.randrange(3):
        return f"{rng.choice(OPTIONS[:6])}={rng.choice(NUMBERS)}"
    name, number = rng.choice(OPTIONS), rng.choice(NUMBERS)
    return rng.choice((f"{name}={number}", number, name))


def text_of(rng):
    """A reference, mostly well formed."""
    options = ",".join(option_of(rng) for _ in range(rng.choice((0, 1, 1, 1, 2, 3))))
    return f"{rng.choice(NAMES[:6] if rng.randrange(4) else NAMES)}:{options}"


def claim_of(rng):
    family = rng.choice(tuple(FAMILIES))
    own = f"{family}:{FAMILIES[family]}={rng.choice(NUMBERS)}"
    return own if rng.randrange(2) else text_of(rng)


def neighbours_of(rng):
    # messages quote the user's own words; the terminal's door cleans them
    numbers = [n for n in NUMBERS if n.isprintable()]
    sides = [
        ",".join(rng.choice(numbers) for _ in range(rng.choice((1, 1, 2, 3)))) for _ in range(2)
    ]
    return rng.choice((";", ",", ";", "")).join(sides)


def attack_of(rng):
    option, value = rng.choice(("size", "lower", "upper", "kind", *OPTIONS)), rng.choice(NUMBERS)
    return f"sensitivity:{option}={value}" if rng.randrange(4) else "sensitivity"


def gamma_of(rng):
    return rng.choice(NUMBERS) + rng.choice(("", "d", "sqrtd"))


DOORS = {
    "reference": (text_of, Reference.parse),
    "claim": (claim_of, Claim.parse),
    "source": (text_of, lambda text: registry.create("sources", text)),
    "attack": (attack_of, lambda text: registry.create("attacks", text)),
    "neighbours": (neighbours_of, parse_neighbours),
    "gamma": (gamma_of, lambda text: parse_gamma(text, dim=64)),
}


@pytest.mark.parametrize("name", DOORS)
def test_made_up_texts(name):
    make, door = DOORS[name]
    # imports, before memory is limited
    for text in ("gaussian:sigma=1", "sensitivity", "0,1", "2"):
        with contextlib.suppress(UsageError):
            door(text)

    def one(rng):
        text = make(rng)
        return refuses_or_reads(lambda: door(text), size=len(text))

    fuzz(one, seen=REFUSED)


def test_a_factory_that_cannot_take_its_options_is_a_usage_error():
    with pytest.raises(UsageError, match="source gaussian"):
        registry.create("sources", Reference("gaussian", {"sigma": "1", "sigmas": 2}))
    with pytest.raises(UsageError):
        registry.create("sources", Reference("gaussian", {"sigma": [1]}))


def test_whole_numbers_beyond_any_float_are_infinite():
    assert Reference.parse("x:a=" + "1" * 400).options == {"a": float("inf")}
    assert Reference.parse("x:a=" + "1" * 5000).options == {"a": float("inf")}
    assert Reference.parse("x:a=" + "1" * 300).options == {"a": int("1" * 300)}


EPSILON = ("mechanism", "numpy:laplace:scale=1", "--neighbours", "0,1", "--claim-epsilon")
CLAIM = ("audit", "gaussian:sigma=1", "--dim", "2", "--samples", "2000", "--claim")
SIZES = ("audit", "numpy:normal", "--claim", "gaussian:sigma=1")


@pytest.mark.parametrize(
    "words",
    [
        *((*EPSILON, e) for e in ("1" + "0" * 500, "1" + "0" * 5000, "inf", "nan", "-1", "a")),
        *((*CLAIM, c) for c in ("laplace:scale=1e308", "gaussian:sigma=1e309", "", "gaussian")),
        *((*CLAIM, c) for c in ("gaussian:sigma=" + "1" * 5000, "\x1b[2J:sigma=1")),
        *((*SIZES, *o) for o in (("--dim", BIG), ("--samples", "1e400"), ("--samples", "nan"))),
        *((*SIZES, *o) for o in (("--alpha", "nan"), ("--time-limit", "inf"))),
        *(
            ("audit", f"numpy:normal:scale={scale}", "--samples", "2000", "--dim", "2")
            for scale in ("1" * 400, "nan", "abc", "-1")
        ),
    ],
    ids=lambda words: f"{words[-2]} {words[-1]:.9}".encode("ascii", "replace").decode(),
)
def test_numbers_and_names_on_the_command_line_are_usage_errors(words):
    refused(*words)
