"""Untrusted property lists, the four configuration files, what they name, and two compared."""

import contextlib
import datetime
import math
import os
import plistlib
import random
import shutil
import struct
import subprocess
import sys
import time
import tracemalloc
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpaudit.errors import UsageError
from dpaudit.findings import Finding
from dpaudit_local.apple.configuration import (
    FILES,
    read_configuration,
    resolve,
    unresolved_findings,
)
from dpaudit_local.apple.differences import Difference, compare, effect
from dpaudit_local.apple.ledger import make_ledger
from dpaudit_local.apple.model import Budget, Configuration, Key, Properties
from dpaudit_local.apple.plists import read_plist

VALUE = [
    {"KeyName": "com.apple.a", "n": 2, "r": 0.5, "yes": True, "inner": {"x": [1, -2, 2**40]}},
    {"KeyName": "名前 🦀", "data": b"\x00\x01", "when": datetime.datetime(2017, 9, 10, 12, 0)},
]
FORMATS = {"xml": plistlib.FMT_XML, "binary": plistlib.FMT_BINARY}


@contextlib.contextmanager
def small():
    """Memory stays below four times the limit on a file's size, set aside before reading."""
    tracemalloc.start()
    yield
    assert tracemalloc.get_traced_memory()[1] < 4 * 2**20
    tracemalloc.stop()


@pytest.fixture
def read_one(tmp_path):
    def read_one(content, **options):
        path = tmp_path / "some.plist"
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return read_plist(path, **options)

    return read_one


def refused(read_one, content, *words, **options):
    with pytest.raises(UsageError) as caught:
        read_one(content, **options)
    message = str(caught.value)
    assert "some.plist: " in message
    assert "\n" not in message
    for word in words:
        assert word in message


def xml(body, doctype=""):
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{doctype}<plist version="1.0">{body}</plist>'


def binary(objects, *, top=0, reference_size=1, offsets=None, count=None, table=None):
    """A binary property list of hand-made objects."""
    body, found = b"bplist00", []
    for one in objects:
        found.append(len(body))
        body += one
    listed = b"".join(struct.pack(">I", o) for o in (found if offsets is None else offsets))
    count = len(objects) if count is None else count
    end = struct.pack(">6xBBQQQ", 4, reference_size, count, top, table or len(body))
    return body + listed + end


def array(*references):
    assert len(references) < 15
    return bytes([0xA0 | len(references), *references])


@pytest.mark.parametrize("form", FORMATS)
def test_what_plistlib_writes_is_read(read_one, form):
    assert read_one(plistlib.dumps(VALUE, fmt=FORMATS[form])) == VALUE


@pytest.mark.parametrize(("encoding", "name"), [("utf-16", "UTF-16"), ("utf-8-sig", "UTF-8")])
def test_encodings_with_a_mark(read_one, encoding, name):
    text = xml("<array><string>ä</string></array>").replace("UTF-8", name)
    assert read_one(text.encode(encoding)) == ["ä"]


LAUGHS = "".join(f'<!ENTITY a{i} "{f"&a{i - 1};" * 10}">' for i in range(1, 10))
SUBSETS = {
    "laughs": f'<!ENTITY a0 "ha">{LAUGHS}',
    "external": '<!ENTITY a9 SYSTEM "file:///etc/passwd">',
    "parameter": '<!ENTITY % p "x">',
    "attributes": '<!ATTLIST plist version CDATA "9">',
    "empty": " ",
}


@pytest.mark.parametrize("subset", SUBSETS)
def test_internal_subsets_are_refused(read_one, subset):
    doctype = f"<!DOCTYPE plist [{SUBSETS[subset]}]>"
    with small():
        refused(read_one, xml("<array><string>&a9;</string></array>", doctype), "internal subset")


@pytest.mark.parametrize(
    ("body", "word"),
    [
        ("<array><set/></array>", "<set>"),
        ("<array><string>a<integer>1</integer></string></array>", "inside <string>"),
        ("<dict><key>a</key><true/><key>a</key><false/></dict>", "twice"),
        ("<dict><key>a</key><key>b</key></dict>", "unexpected key at line 2"),
        ("<key>a</key>", "<key>"),
        ("<array><true>no</true></array>", "'no' in <true>"),
        ("<array><integer>1_0</integer></array>", "'1_0' in <integer>"),
        ("<array>stray</array>", "text"),
        ("<array/><array/>", "2 values"),
        ("", "0 values"),
        ("<array>" * 40 + "</array>" * 40, "deeper"),
        ("<array><date>soon</date></array>", "'soon' in <date>"),
        ("<array><integer>" + "9" * 5000 + "</integer></array>", "in <integer>"),
        ("<array><date>2017Z</date></array>", "'2017Z' in <date>"),
        ("<array><date>2017-13-10T12:00:00Z</date></array>", "month"),
        ("<array><real>big</real></array>", "could not convert"),
        ("<array><plist/></array>", "<plist>"),
        ("<array><data>a</data></array>", "not a property list (Invalid base64"),
        ("<dict><key>a</key></dict>", "missing value for key 'a'"),
        ("<dict><string>a</string></dict>", "unexpected element at line 2"),
        ("<array><string>&other;</string></array>", "not a property list"),
    ],
)
def test_bad_xml_is_refused(read_one, body, word):
    refused(read_one, xml(body), word)


def test_other_roots_and_no_xml_are_refused(read_one):
    refused(read_one, "<html><body/></html>", "<html>")
    nameless = b"\xff\xfe<\x00p\x00l\x00i\x00s\x00t\x00"
    encoded = b'<?xml version="1.0" encoding="klingon"?><plist/>'
    for content in (b"", b"\x00" * 100, b"PK\x03\x04", b"<plist>", b"[{}]", nameless, encoded):
        refused(read_one, content)


def test_many_values_are_refused(read_one):
    body = "<array>" + "<true/>" * 1000 + "</array>"
    assert len(read_one(xml(body), nodes=1001)) == 1000
    refused(read_one, xml(body), "1,001", nodes=1000)
    numbers = plistlib.dumps([1000 + i for i in range(1000)], fmt=plistlib.FMT_BINARY)
    refused(read_one, numbers, "1,000", nodes=1000)


def test_size_is_bounded_before_reading(tmp_path):
    path = tmp_path / "large.plist"
    with path.open("wb") as file:
        file.truncate(2**34)  # sparse
    with small(), pytest.raises(UsageError, match=r"larger than 1,048,576 bytes"):
        read_plist(path)


@pytest.mark.slow
@pytest.mark.parametrize(
    "token", ["<!--{}-->", "<string{}/>", "<?a {}?>", "<string x='{}'/>", "<string>{}</string>"]
)
def test_one_long_token_is_read_in_time(read_one, token):
    """``plistlib`` feeds expat in pieces: before 2.6 the time is quadratic in a token's length."""
    filling = (" " if token == "<string{}/>" else "a") * (2**20 - 200)
    start = time.monotonic()
    found = read_one(xml(f"<array>{token.format(filling)}</array>"))
    assert time.monotonic() - start < 10
    assert found == ([] if token[1] in "!?" else [filling] if token.endswith("</string>") else [""])


LEAVES = """<string> a&amp;b&#65; </string> <string></string> <string/> <integer>-5</integer>
    <integer>0x1F</integer> <integer> 7 </integer> <integer>18446744073709551615</integer>
    <real>-1.5e3</real> <real>nan</real> <real>inf</real>
    <date>2017-09-10T12:00:00Z</date> <data> AAEC\n  Aw== </data> <data/> <true/> <false></false>
    <string><![CDATA[<a>]]></string> <array/> <dict/> <dict><key/><array><true/></array></dict>"""


def test_leaves_are_what_plistlib_reads(read_one):
    content = xml(f"<array>{LEAVES}</array>")
    assert repr(read_one(content)) == repr(plistlib.loads(content.encode()))


def test_no_regular_file(tmp_path):
    os.mkfifo(tmp_path / "pipe.plist")
    for name in ("pipe.plist", ".", "none.plist", "a\0b"):
        with pytest.raises(UsageError, match=r"regular|cannot"):
            read_plist(tmp_path / name)


LEAF = b"\x10\x07"
BAD_BINARY = {
    "contains itself": [array(0)],
    "contains itself, in two steps": [array(1), array(2), array(1)],
    "dict that contains itself": [b"\xd1\x01\x00", b"\x51a"],
    "refers outside": [array(9)],
    "many references": [b"\xaf\x13" + struct.pack(">Q", 2**60)],
    "count of a strange kind": [b"\xaf\x23" + bytes(8)],
    "long string": [b"\x5f\x13" + struct.pack(">Q", 2**62)],
    "integer of 32 kB": [b"\x1f" + bytes(2**15)],
    "unknown marker": [b"\xc1\x00"],
    "key that is no string": [b"\xd1\x01\x01", LEAF],
    "key that is an array": [b"\xd1\x01\x02", array(), LEAF],
    "key twice": [b"\xd2\x01\x01\x02\x02", b"\x51a", LEAF],
    "date beyond": [b"\x33" + struct.pack(">d", 1e300)],
    "date that is none": [b"\x33" + struct.pack(">d", float("nan"))],
    "text that is not ASCII": [b"\x51\xff"],
    "half a pair": [b"\x61\xd8\x00"],
    "deep": [*(array(i + 1) for i in range(40)), LEAF],
    "deep behind a short way": [array(32, 16, 1), *(array(i + 1) for i in range(1, 48)), LEAF],
}


@pytest.mark.parametrize("name", BAD_BINARY)
def test_bad_binary_is_refused(read_one, name):
    refused(
        read_one, binary(BAD_BINARY[name]), "contains itself" if "contains itself" in name else ""
    )


def test_bad_trailers_are_refused(read_one):
    good = [array(1), LEAF]
    assert read_one(binary(good)) == [7]
    for options in (
        {"top": 2},
        {"count": 0},
        {"count": 2**60},
        {"reference_size": 0},
        {"table": 3},
        {"table": 2**63},
        {"offsets": [8, 3]},
        {"offsets": [8, 2**31]},
    ):
        refused(read_one, binary(good, **options))
    refused(read_one, b"bplist17" + bytes(60), "version")


def test_shared_values_count_each_time(read_one):
    """Ten arrays of ten references each: ten thousand million values in 120 bytes."""
    layers = [array(*[i + 1] * 10) for i in range(10)]
    with small():
        refused(read_one, binary([*layers, LEAF]), "500,000 values")
    assert read_one(binary([array(1, 1), array(2, 2), LEAF])) == [[7, 7], [7, 7]]


def test_overlapping_objects_are_refused(read_one):
    """A thousand strings at the same 20,000 bytes would be 20 MB; honest objects do not overlap."""
    text = b"\x5f\x11" + struct.pack(">H", 20_000) + b"a" * 20_000
    top = b"\xaf\x11" + struct.pack(">1001H", 1000, *range(1, 1001))
    offsets = [8, *[8 + len(top)] * 1000]
    refused(read_one, binary([top, text], reference_size=2, offsets=offsets, count=1001), "overlap")


@pytest.mark.slow
@pytest.mark.parametrize("form", FORMATS)
def test_damage_is_refused_or_read_and_nothing_else(read_one, form):
    content = plistlib.dumps(VALUE, fmt=FORMATS[form])
    rng = random.Random(8)
    damaged = [content[:n] for n in range(0, len(content), 1 if form == "binary" else 3)]
    for _ in range(400):
        copy = bytearray(content)
        for _ in range(rng.randint(1, 3)):
            copy[rng.randrange(len(copy))] = rng.choice((0, 255, rng.randrange(256)))
        damaged.append(bytes(copy))
    seen = 0
    for one in damaged:
        try:
            value = read_one(one)
        except UsageError:
            seen += 1
        else:
            assert repr(value) == repr(plistlib.loads(one, fmt=FORMATS[form]))
    assert seen > len(damaged) // 5


DATA = Path(__file__).parents[2] / "data" / "apple"
VERSIONS = ("10.12.1", "10.12.3", "ios-10.1.1", "ios-11")

KEY = {"KeyName": "com.apple.a", "PropertiesName": "P"}
PROPERTIES = {"PropertiesName": "P", "PrivatizationAlgorithm": "OneBitHistogram"}
PROPERTIES |= {"PrivacyParameter": 1, "BudgetKeyName": "B", "ServerAlgorithmString": "S"}
PARAMETERS = {"ServerAlgorithmString": "S", "AlgorithmParameters": {"epsilon": 1}}
BUDGET = {"BudgetName": "B", "SessionSeconds": 86400.0, "SessionAmount": 1}
ALL = (KEY, PROPERTIES, PARAMETERS, BUDGET)


def write(folder, *tables):
    folder.mkdir(parents=True, exist_ok=True)
    for name, entries in zip(FILES, tables, strict=True):
        (folder / name).write_bytes(plistlib.dumps(entries, fmt=plistlib.FMT_BINARY))
    return folder


@pytest.fixture
def read(tmp_path):
    """A configuration of one entry a file, with the changes asked for."""

    def read(*, table=None, **changes):
        entries = [dict(e) for e in ALL]
        if table is not None:
            entry = entries[table]
            entry.update(changes)
            entries[table] = {k: v for k, v in entry.items() if v is not None}
        return read_configuration(write(tmp_path, *([e] for e in entries)))

    return read


@pytest.mark.parametrize("version", VERSIONS)
def test_fixtures_are_clean_and_have_the_counts_of_the_paper(version):
    found = read_configuration(DATA / version)
    assert found.findings == unresolved_findings(found) == ()
    assert len(resolve(found)) == len(found.keys)
    counts = len(found.keys), len(found.properties), len(found.budgets)
    assert counts == {"10.12.3": (160, 13, 7), "10.12.1": (118, 11, 6)}.get(version, counts)


def test_fixtures_are_what_the_script_writes(tmp_path):
    subprocess.run([sys.executable, "-B", DATA / "make.py", tmp_path], check=True)
    for version in VERSIONS:
        for name in FILES:
            made = (tmp_path / version / name).read_bytes()
            assert made == (DATA / version / name).read_bytes(), (version, name)
    assert (DATA / "ios-11" / FILES[0]).read_bytes().startswith(b"bplist00")


def test_figures_5_6_and_7():
    found = read_configuration(DATA / "10.12.3")
    words = found.properties["NewWords"]
    algorithm = "SequenceFragmentPuzzle+CountMedianSketch"
    assert words.data_algorithm == "SequenceDiscoveryWithPuzzlePiece"
    assert words.server_algorithm == algorithm
    about = words.fragment_width, words.fragment_count, words.transport, words.priority
    assert about == (2, 5, "crashcopier", 1)
    assert (words.patterns_allowed, words.others) == (False, {})
    sizes = {"sequenceM": 32768, "sequenceK": 285, "fragmentM": 32768, "fragmentK": 285}
    others = {"epsilon": 4, "sequenceFragmentBias": 0.5, "puzzleCount": 256}
    assert found.parameters[algorithm] == others | sizes
    budget = "com.apple.keyboard.NewWords"
    assert found.budgets[budget] == Budget(budget, 86400.0, 2)


UNREAD = {  # by table and field: values with which the entry is left out
    (0, "KeyName"): [None, 7, "  "],
    (0, "PropertiesName"): [None, ["P"]],
    (1, "PrivatizationAlgorithm"): [None],
    (1, "PrivacyParameter"): [None, True, "1"],
    (1, "BudgetKeyName"): [2],
    (2, "AlgorithmParameters"): [None, [1]],
    (3, "SessionSeconds"): [None, 0, -86400.0, math.nan, 1e-300, True],
    (3, "SessionAmount"): [None, -1, 1.5, False, 2**64 - 1],
}
KEPT = {
    (0, "Extra"): [1],
    (1, "SubmissionPriority"): [1.5],
    (1, "KeyPatternsAllowed"): [1],
    (1, "FragmentWidth"): [0],
    (1, "Transport"): [b"x"],
    (3, "SessionSeconds"): [3600.0],
}
ODD = [  # table, field, value, whether the entry stays, serious (None: no finding)
    *((*at, value, False, False) for at, values in UNREAD.items() for value in values),
    *((*at, value, True, False) for at, values in KEPT.items() for value in values),
    *((1, "PrivacyParameter", x, False, True) for x in (0, -0.0, -1, math.nan, math.inf)),
    (3, "SessionAmount", 3.0, True, None),
]


@pytest.mark.parametrize(("table", "field", "value", "stays", "serious"), ODD)
def test_odd_fields_are_findings(read, table, field, value, stays, serious):
    found = read(table=table, **{field: value})
    assert [f.serious for f in found.findings] == ([] if serious is None else [serious])
    for finding in found.findings:
        assert finding.where.startswith(FILES[table])
        assert field in finding.message
    sizes = [len(t) for t in (found.keys, found.properties, found.parameters, found.budgets)]
    assert sizes == [int(stays or i != table) for i in range(4)]
    make_ledger(found)


def test_entries_twice(tmp_path):
    again, other = dict(BUDGET), BUDGET | {"SessionAmount": 5}
    found = read_configuration(write(tmp_path, [KEY], [PROPERTIES], [PARAMETERS], [BUDGET, again]))
    assert found.budgets["B"].session_amount == 1
    assert [f.serious for f in found.findings] == [False]
    three = [BUDGET, other, BUDGET]
    found = read_configuration(write(tmp_path, [KEY], [PROPERTIES], [PARAMETERS], three))
    assert found.budgets == {}
    assert [f.serious for f in found.findings] == [True]


def test_empty_tables_are_told(tmp_path):
    found = read_configuration(write(tmp_path, [], [], [], []))
    assert [f.message for f in found.findings] == ["holds no entry"] * 4


def test_entries_that_are_no_dicts(tmp_path):
    found = read_configuration(write(tmp_path, [KEY, "x", 3], [PROPERTIES], [PARAMETERS], [BUDGET]))
    assert [f.where for f in found.findings] == [f"{FILES[0]}: entry 2", f"{FILES[0]}: entry 3"]


def test_what_cannot_be_read_is_an_error(tmp_path):
    folder = shutil.copytree(DATA / "10.12.3", tmp_path / "c")
    for content, word in (
        (plistlib.dumps({"a": 1}), "array"),
        (plistlib.dumps(["a"]), "no dict"),
        (b"junk", "plist"),
    ):
        (folder / FILES[1]).write_bytes(content)
        with pytest.raises(UsageError, match=word):
            read_configuration(folder)
    (folder / FILES[1]).unlink()
    with pytest.raises(UsageError, match="keyproperties"):
        read_configuration(folder)
    with pytest.raises(UsageError, match="not a folder"):
        read_configuration(tmp_path / "none\x1b[31m")


PLAIN = st.one_of(
    st.booleans(),
    st.integers(-(2**63), 2**64 - 1),
    st.floats(),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=5),
    st.sampled_from(["P", "B", "S", "com.apple.a"]),
    st.binary(max_size=3),
)
VALUES = st.recursive(
    PLAIN,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("ab"), inner, max_size=3),
)
FIELDS = sorted(
    {field for entry in ALL for field in entry}
    | {"SubmissionPriority", "KeyPatternsAllowed", "Other"}
)
ENTRIES = st.lists(st.dictionaries(st.sampled_from(FIELDS), VALUES) | VALUES, max_size=4)


@pytest.mark.slow
@given(tables=st.tuples(*[ENTRIES] * 4), kept=st.tuples(*[st.booleans()] * 4))
def test_anything_gives_findings_or_an_error(tmp_path_factory, tables, kept):
    full = [
        [entry, *table] if keep else table
        for entry, table, keep in zip(ALL, tables, kept, strict=True)
    ]
    folder = write(tmp_path_factory.mktemp("any"), *full)
    try:
        found = read_configuration(folder)
    except UsageError:
        return
    assert all(isinstance(f, Finding) for f in (*found.findings, *unresolved_findings(found)))
    ledger = make_ledger(found, days=7)
    assert math.isfinite(ledger.configured.over_days)


SKETCH, BIT = "CountMedianSketch", "OneBitHistogram"
TABLE_1 = """
keyboard.NewWords.it_IT NewWords CountMedianSketch 2 keyboard.NewWords 2
keyboard.NewWords.ru_RU NewWords CountMedianSketch 2 keyboard.NewWords 2
keyboard.NewWords.zh_Hans NewWordsChinese CountMedianSketch 2 keyboard.NewWords 2
keyboard.LocalWords.en_US LocalWords CountMedianSketch 2 keyboard.NewWords 2
keyboard.Emoji.fr_FR.EmojiKeyboard TermFrequency OneBitHistogram 1 keyboard.Emoji 1
parsec.AppDeepLink DeepLinks CountMedianSketch 1 parsec.AppDeepLink 10
health.datatypes HealthDataTypes OneBitHistogram 1 health 2
lookup.QueryMatch.queryOnly.notHighlighted Search OneBitHistogram 1 parsec.Search 1
lookup.DomainMatch Search OneBitHistogram 1 parsec.Search 1
"""


def configuration(keys=(), properties=(), budgets=(("B", 86400, 1),)):
    keys = {name: Key(name, to) for name, to in keys}
    properties = {name: Properties(name, BIT, *rest) for name, *rest in properties}
    budgets = {name: Budget(name, seconds, amount) for name, seconds, amount in budgets}
    return Configuration(Path("made"), keys, properties, budgets, {})


@pytest.mark.parametrize("row", TABLE_1.strip().splitlines())
def test_table_1(row):
    name, properties, algorithm, parameter, budget, amount = row.split()
    resolved = resolve(read_configuration(DATA / "10.12.3"))
    found = {r.key.name: r for r in resolved}[f"com.apple.{name}"]
    assert (found.properties.name, found.properties.algorithm) == (properties, algorithm)
    assert found.budget.name == f"com.apple.{budget}"
    assert (found.epsilon, found.budget.session_amount) == (float(parameter), int(amount))


@pytest.mark.parametrize(
    ("parameter", "epsilon", "priority"),
    [(0.5, 0.5, 1), (2, 2, 1), (2.0000001, 1, 99999), (1e300, 1, 99999)],
)
def test_epsilon_max(parameter, epsilon, priority):
    made = configuration([("k", "P")], [("P", parameter, "B")])
    (found,) = resolve(made)
    assert (found.epsilon, found.priority) == (epsilon, priority)
    said = [f.message for f in unresolved_findings(made)]
    assert len(said) == (parameter > 2)
    assert all("k" in message and "99999" in message for message in said)


@pytest.mark.parametrize(("amount", "records"), [(0, 0), (1, 1), (40, 40), (41, 40), (10**9, 40)])
def test_forty_records_a_report(amount, records):
    (found,) = resolve(configuration([("k", "P")], [("P", 1, "B")], [("B", 86400, amount)]))
    assert found.records_per_report == records


def test_unknown_names_and_loops():
    keys = {"good": "P", "gone": "Nowhere", "itself": "itself", "first": "second"}
    keys |= {"second": "first", "through": "good", "unpaid": "Unpaid"}
    paid = [("P", 1, "B"), ("Unpaid", 1, "com.apple.none"), ("Idle", 1, "B")]
    made = configuration(keys.items(), paid)
    assert [r.key.name for r in resolve(made)] == ["good"]
    said = {f.where: f.message for f in unresolved_findings(made)}
    assert "loop" not in said["PropertiesName good"]
    for name, part in {
        "Nowhere": "gone",
        "itself": "loop: itself → itself",
        "second": "loop: second → first → second",
        "first": "loop: first → second → first",
        "good": "through",
        "Unpaid": "com.apple.none",
        "Idle": "no KeyName",
    }.items():
        assert part in said[f"PropertiesName {name}"]


def test_long_chains_end():
    names = [f"k{i}" for i in range(5000)]
    made = configuration(list(zip(names, [*names[1:], names[0]], strict=True)))
    assert resolve(made) == ()
    assert len(unresolved_findings(made)) == 5000


def test_unknown_algorithms_and_parameters_are_said():
    odd = Properties("P", "Rot13", 1.0, "B", server_algorithm="None")
    made = replace(configuration([("k", "P")]), properties={"P": odd})
    assert len(resolve(made)) == 1
    said = " ".join(f.message for f in unresolved_findings(made))
    assert "'Rot13'" in said
    assert "'None'" in said


def test_a_priority_that_keeps_records_from_the_ledger_is_told():
    made = configuration([("K", "P")], [("P", 1, "B")])
    silent = replace(made, properties={"P": replace(made.properties["P"], priority=100_000)})
    assert unresolved_findings(made) == ()
    (finding,) = [f for f in unresolved_findings(silent) if "Priority" in f.message]
    assert "SubmissionPriority=100000" in finding.message
    assert finding.message.endswith("K")


TABLE_3 = {
    ("SessionAmount for com.apple.keyboard.NewWords", "1", "2"),
    ("SessionAmount for com.apple.differentialprivacy.testBudget", "1", "4"),
    ("BudgetName com.apple.health", "no", "yes"),
    ("PropertiesName LocalWords", "no", "yes"),
    ("KeyName apple.photos.search.miss.unnormalized.en_US", "yes", "no"),
    ("KeyName apple.photos.search.miss.normalized.en_US", "yes", "no"),
    ("PropertiesName HealthDataTypes", "no", "yes"),
    ("SubmissionPriority", "no", "yes"),
}
"""The paper lists LocalWords twice."""


def configuration_of(version):
    return read_configuration(DATA / version)


def rows(differences):
    return {(d.what, d.old, d.new) for d in differences}


def test_table_3():
    found = compare(configuration_of("10.12.1"), configuration_of("10.12.3"))
    assert len(found) == 8
    assert rows(found) == TABLE_3
    notes = {d.name: d.note for d in found if d.note}
    assert notes == {"LocalWords": "with 43 KeyNames", "HealthDataTypes": "with 1 KeyName"}
    assert [d.table[0] for d in found] == list("BBBPPPKK")


def test_backwards_and_the_same():
    found = compare(configuration_of("10.12.3"), configuration_of("10.12.1"))
    assert rows(found) == {(what, new, old) for what, old, new in TABLE_3}
    assert compare(configuration_of("10.12.1"), configuration_of("ios-10.1.1")) == ()


def test_ios_11():
    found = rows(compare(configuration_of("ios-10.1.1"), configuration_of("ios-11")))
    assert ("PrivacyParameter for TermFrequency", "1", "2") in found
    assert ("SessionAmount for com.apple.keyboard.Emoji", "1", "10") in found
    assert ("PrivatizationAlgorithm for TermFrequency", BIT, SKETCH) in found
    assert ("ServerAlgorithmString HadamardCountMedianSketch", "no", "yes") in found


def test_any_change_is_told():
    old = configuration_of("10.12.3")
    words = old.properties["NewWords"]
    others = {"others": {"New": {"a": [1]}}, "patterns_allowed": True}
    changed = replace(words, parameter=1.5, priority=None, **others)
    domain, health = "com.apple.lookup.DomainMatch", "com.apple.health"
    new = replace(
        old,
        keys=old.keys | {domain: Key(domain, "NewWords")},
        properties=old.properties | {"NewWords": changed},
        budgets=old.budgets | {health: Budget(health, 86400.0, 2)},
        parameters={n: p | ({"p": 1} if n == BIT else {}) for n, p in old.parameters.items()},
    )
    assert compare(old, new) == (
        Difference("BudgetName", health, "SessionSeconds", "604800", "86400"),
        Difference("PropertiesName", "NewWords", "KeyPatternsAllowed", "False", "True"),
        Difference("PropertiesName", "NewWords", "New", "no", "{'a': [1]}"),
        Difference("PropertiesName", "NewWords", "PrivacyParameter", "2", "1.5"),
        Difference("PropertiesName", "NewWords", "SubmissionPriority", "1", "no"),
        Difference("KeyName", domain, "PropertiesName", "Search", "NewWords"),
        Difference("ServerAlgorithmString", BIT, "p", "5000", "1"),
    )


def test_what_it_does_to_the_day():
    said = effect(configuration_of("10.12.1"), configuration_of("10.12.3"))
    assert "rises from 14 to 16 (+2) for the initially announced applications" in said
    assert "falls from 16 to 14 (-2)" in effect(
        configuration_of("10.12.3"), configuration_of("10.12.1")
    )
    assert "rises from 16 to 45 (+29) with everything" in effect(
        configuration_of("ios-10.1.1"), configuration_of("ios-11")
    )
    assert effect(configuration_of("10.12.3"), configuration_of("10.12.3")).count("stays") == 2
