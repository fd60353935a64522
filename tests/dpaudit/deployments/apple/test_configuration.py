"""The four files: the fixtures hold what the paper prints, and anything else is reported."""

import math
import plistlib
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpaudit.deployments.apple.configuration.reading import FILES, read_configuration, whole
from dpaudit.deployments.apple.configuration.resolving import resolve, unresolved
from dpaudit.deployments.apple.ledger import make_ledger
from dpaudit.deployments.apple.model import Budget, Finding
from dpaudit.errors import UsageError

DATA = Path(__file__).parents[3] / "data" / "apple"
VERSIONS = ("10.12.1", "10.12.3", "ios-10.1.1", "ios-11")

KEY = {"KeyName": "com.apple.a", "PropertiesName": "P"}
PROPERTIES = {
    "PropertiesName": "P",
    "PrivatizationAlgorithm": "OneBitHistogram",
    "PrivacyParameter": 1,
    "BudgetKeyName": "B",
    "ServerAlgorithmString": "S",
}
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


@pytest.mark.parametrize(
    ("version", "counts"), [("10.12.3", (160, 13, 7)), ("10.12.1", (118, 11, 6))]
)
def test_fixtures_have_the_counts_of_the_paper(version, counts):
    found = read_configuration(DATA / version)
    assert (len(found.keys), len(found.properties), len(found.budgets)) == counts


def test_ios_10_is_macos_10_12_1():
    one, other = (read_configuration(DATA / v) for v in ("ios-10.1.1", "10.12.1"))
    assert (one.keys, one.properties, one.budgets, one.parameters) == (
        other.keys,
        other.properties,
        other.budgets,
        other.parameters,
    )


@pytest.mark.parametrize("version", VERSIONS)
def test_fixtures_are_clean(version):
    found = read_configuration(DATA / version)
    assert found.findings == unresolved(found) == ()
    assert len(resolve(found)) == len(found.keys)


def test_fixtures_are_what_the_script_writes(tmp_path):
    subprocess.run([sys.executable, "-B", DATA / "make.py", tmp_path], check=True)
    for version in VERSIONS:
        for name in FILES:
            assert (tmp_path / version / name).read_bytes() == (
                DATA / version / name
            ).read_bytes(), (version, name)
    assert (DATA / "ios-11" / FILES[0]).read_bytes().startswith(b"bplist00")


def test_figures_5_6_and_7():
    found = read_configuration(DATA / "10.12.3")
    words = found.properties["NewWords"]
    assert (words.data_algorithm, words.server_algorithm) == (
        "SequenceDiscoveryWithPuzzlePiece",
        "SequenceFragmentPuzzle+CountMedianSketch",
    )
    assert (words.fragment_width, words.fragment_count, words.transport, words.priority) == (
        2,
        5,
        "crashcopier",
        1,
    )
    assert (words.patterns_allowed, words.others) == (False, {})
    assert found.parameters[words.server_algorithm] == {
        "epsilon": 4,
        "sequenceFragmentBias": 0.5,
        "puzzleCount": 256,
        "sequenceM": 32768,
        "sequenceK": 285,
        "fragmentM": 32768,
        "fragmentK": 285,
    }
    assert found.budgets["com.apple.keyboard.NewWords"] == Budget(
        "com.apple.keyboard.NewWords", 86400.0, 2
    )


ODD = [  # table, field, value, whether the entry stays, serious
    (0, "KeyName", None, False, False),
    (0, "KeyName", 7, False, False),
    (0, "KeyName", "  ", False, False),
    (0, "PropertiesName", None, False, False),
    (0, "PropertiesName", ["P"], False, False),
    (0, "Extra", 1, True, False),
    (1, "PrivatizationAlgorithm", None, False, False),
    (1, "PrivacyParameter", None, False, False),
    (1, "PrivacyParameter", True, False, False),
    (1, "PrivacyParameter", "1", False, False),
    (1, "PrivacyParameter", 0, False, True),
    (1, "PrivacyParameter", -1, False, True),
    (1, "PrivacyParameter", math.nan, False, True),
    (1, "PrivacyParameter", math.inf, False, True),
    (1, "BudgetKeyName", 2, False, False),
    (1, "SubmissionPriority", 1.5, True, False),
    (1, "KeyPatternsAllowed", 1, True, False),
    (1, "FragmentWidth", 0, True, False),
    (1, "Transport", b"x", True, False),
    (2, "AlgorithmParameters", None, False, False),
    (2, "AlgorithmParameters", [1], False, False),
    (3, "SessionSeconds", None, False, False),
    (3, "SessionSeconds", 0, False, False),
    (3, "SessionSeconds", -86400.0, False, False),
    (3, "SessionSeconds", math.nan, False, False),
    (3, "SessionSeconds", 1e-300, False, False),
    (3, "SessionSeconds", 3600.0, True, False),
    (3, "SessionSeconds", True, False, False),
    (3, "SessionAmount", None, False, False),
    (3, "SessionAmount", -1, False, False),
    (3, "SessionAmount", 1.5, False, False),
    (3, "SessionAmount", False, False, False),
    (3, "SessionAmount", 2**64 - 1, False, False),
]


@pytest.mark.parametrize(("table", "field", "value", "stays", "serious"), ODD)
def test_odd_fields_are_findings(read, table, field, value, stays, serious):
    found = read(table=table, **{field: value})
    assert len(found.findings) == 1
    (finding,) = found.findings
    assert finding.where.startswith(FILES[table])
    assert field in finding.message
    assert finding.serious is serious
    sizes = [len(t) for t in (found.keys, found.properties, found.parameters, found.budgets)]
    assert sizes == [int(stays or i != table) for i in range(4)]
    make_ledger(found)


def test_a_whole_amount_may_be_written_as_a_real(read):
    assert read(table=3, SessionAmount=3.0).budgets["B"].session_amount == 3
    assert whole("3") is None


def test_entries_twice(tmp_path):
    again, other = dict(BUDGET), BUDGET | {"SessionAmount": 5}
    found = read_configuration(write(tmp_path, [KEY], [PROPERTIES], [PARAMETERS], [BUDGET, again]))
    assert found.budgets["B"].session_amount == 1
    assert [f.serious for f in found.findings] == [False]
    found = read_configuration(
        write(tmp_path, [KEY], [PROPERTIES], [PARAMETERS], [BUDGET, other, BUDGET])
    )
    assert found.budgets == {}
    assert [f.serious for f in found.findings] == [True]


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
    assert all(isinstance(f, Finding) for f in (*found.findings, *unresolved(found)))
    ledger = make_ledger(found, days=7)
    assert math.isfinite(ledger.configured.over_days)
