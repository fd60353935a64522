"""What is refused before the checker: files too large or too deep, and fields of another shape."""

from __future__ import annotations

import copy
import gzip
import json
import random
import sys
from collections import Counter
from fractions import Fraction

import pytest
from support.certificates import ASKED, PROGRAM, made_of, made_of_proof
from support.changed_values import one_change

from dpaudit.prove.certificates import checker
from dpaudit.prove.certificates.reader import read_certificate
from dpaudit.results.foreign import RefusedError

SEED = 37
CHANGES = 100  # of each certificate


@pytest.fixture(scope="module")
def certificates(tmp_path_factory):
    """Seven certificates: of one law, of two neighbours, of independent and of dependent values."""
    folder = tmp_path_factory.mktemp("programs")
    program = folder / "certified_program.py"
    program.write_text(PROGRAM)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(folder))
        patch.delitem(sys.modules, "certified_program", raising=False)
        made = {name: made_of_proof(program, name, **asked) for name, asked in ASKED.items()}
        made["below"] = made_of(program, "below", 5)
        made["tossed"] = made_of(program, "tossed", Fraction(1, 3))
        made["little"] = made_of(program, "little", coins="")
        patch.delitem(sys.modules, "certified_program")
    return json.loads(json.dumps(made))


@pytest.fixture
def small():
    """One coin of four values, in two halves; and a second register, which nothing reads."""
    state = {
        "register": 0, "domains": [[0, 4], [0, 4]], "cuts": [2], "via": None, "onward": 0,
        "branches": [[[], [], -1], [[], [], -2]],
    }  # fmt: skip
    part = {
        "args": [], "first": [[4, 4], [["new", 0], ["new", 1]], 0], "states": [state],
        "outputs": ["0", "1"], "law": ["1/2", "1/2"], "residual": "0", "exact": True,
        "visits": ["1"], "bits": [4, 4],
    }  # fmt: skip
    return {
        "certificate": "dpaudit-proof/2", "program": "python:x:y", "files": {}, "kwargs": {},
        "coins": "", "parts": [part], "returned": None, "shows": {},
    }  # fmt: skip


def outcome(made, path):
    """What becomes of a certificate; any exception but the two declared ones is the test's."""
    path.write_bytes(gzip.compress(json.dumps(made).encode(), compresslevel=1))
    try:
        read_certificate(path)
        checker.check(path, run=False)
    except (RefusedError, checker.Wrong) as error:
        return type(error).__name__, str(error)
    return "holds", ""


def refusal(made, path):
    kind, message = outcome(made, path)
    assert kind == "RefusedError", (kind, message)
    return message


def test_random_changes_are_refused_in_a_sentence_or_accepted(certificates, tmp_path) -> None:
    rng, ends = random.Random(SEED), Counter()
    for name, made in certificates.items():
        assert outcome(made, tmp_path / "made") == ("holds", ""), name
        for _ in range(CHANGES):
            where, changed = one_change(made, rng)
            kind, message = outcome(changed, tmp_path / "changed")
            ends[kind] += 1
            if kind == "RefusedError":
                assert message.isprintable(), where
                assert len(message) < 300, where
                top = where.lstrip(".").partition(".")[0].partition("[")[0]
                assert top in message, (where, message)
    assert set(ends) == {"RefusedError", "Wrong", "holds"}
    assert ends["RefusedError"] > CHANGES


def numbers(value, where=()):
    """Where the whole numbers of a certificate stand."""
    for key, below in value.items() if isinstance(value, dict) else enumerate(value):
        if type(below) is int:
            yield (*where, key)
        elif isinstance(below, (dict, list)):
            yield from numbers(below, (*where, key))


def test_no_number_but_that_of_an_output_is_negative(certificates, tmp_path) -> None:
    kinds = Counter()
    for made in certificates.values():
        for place in numbers(made):
            kind = tuple(key for key in place if isinstance(key, str))
            kinds[kind] += 1
            if kind[-1] in ("args", "first", "branches") or kinds[kind] > 5:
                continue
            changed = inside = copy.deepcopy(made)
            for key in place[:-1]:
                inside = inside[key]
            inside[place[-1]] = -1
            assert f"{place[-2]}" in refusal(changed, tmp_path / "changed"), place
    assert {kind[-1] for kind in kinds} >= {
        "register", "domains", "cuts", "via", "onward", "bits", "returned"
    }  # fmt: skip


@pytest.mark.parametrize(
    ("place", "value", "says"),
    [
        (("parts", 0, "first", 0, 0), -4, "parts[0].first[0][0]: expected `int` >= 1"),
        (("parts", 0, "first", 0, 0), 0, "parts[0].first[0][0]: expected `int` >= 1"),
        (("parts", 0, "first", 1, 0, 1), -1, "parts[0].first[1][0][1]: expected `int` >= 0"),
        (("parts", 0, "first", 1, 0, 1), 2, "parts[0].first.registers=2: must be from 0 to 1"),
        (("parts", 0, "first", 1, 0), ["mod", ["new", 0], 0], "first[1][0][2]: expected `int` >="),
        (("parts", 0, "first", 1, 0), ["swap", ["new", 0], 1 << 60], "expected `int` <= 65536"),
        (("parts", 0, "first", 1, 0), ["old", 0], "parts[0].first[1][0][0]: invalid value 'old'"),
        (("parts", 0, "first", 2), 1, "first.to=1: must be a state from 0 to 0, or an output"),
        (("parts", 0, "states", 0, "branches", 1, 2), -3, "states[0].branches[1].to=-3: must be"),
        (("parts", 0, "states", 0, "register"), 2, "states[0].register=2: must be from 0 to 1"),
        (("parts", 0, "states", 0, "onward"), 2, "states[0].onward=2: must be from 0 to 1"),
        (("parts", 0, "states", 0, "via"), [0, 0], "states[0].via: another branch than one to"),
        (("parts", 0, "states", 0, "via"), [1, 0], "states[0].via=1: must be from 0 to 0"),
        (("parts", 0, "states", 0, "cuts"), [1.5], "states[0].cuts[0]: expected `int`, got"),
        (("parts", 0, "states", 0, "cuts"), [1, 2], "states[0].branches: has 2 values for 3"),
        (("parts", 0, "visits"), [], "parts[0].visits: has 0 values for 1 states"),
        (("parts", 0, "visits"), ["1/0"], "parts[0].visits[0]: must be a number such as 2 or 1/3"),
        (("parts", 0, "visits"), ["1e999999999"], "parts[0].visits[0]: must be a number such"),
        (("parts", 0, "law"), ["1"], "parts[0].law: has 1 values for 2 outputs"),
        (("parts", 0, "bits"), [4], "parts[0].bits: has 1 values for 2 states and the end"),
        (("parts", 0, "outputs"), [0, "1"], "parts[0].outputs[0]: expected `str | array`"),
        (("parts", 0, "outputs"), [[{"/": "1"}], "1"], "outputs: expected text or lists of it"),
        (("returned",), [0, [True]], "returned: expected text or lists of it, got True"),
        (("parts", 0, "args"), [{"/": "1/0"}], "parts[0].args: must be a number such as 2 or 1/3"),
        (("parts", 0, "args"), [{"x": "1"}], 'parts[0].args: an object is written {"/": "1/3"}'),
        (("parts", 0, "args"), [0] * 100_001, "args, kwargs: 100,001 values; at most 100,000"),
        (("kwargs",), {"/": "1"}, "files, kwargs: / is no name"),
        (("files",), {"/etc/passwd": "00"}, "files[...]: must be 64 hexadecimal digits"),
        (("parts",), [], "parts: expected `array` of length >= 1"),
        (("shows",), {"profile": [["1", "0", "1"]]}, "shows.profile: needs 2 parts; there are 1"),
        (("shows",), {"profile": [["-1", "0", "1"]]}, "shows.profile[0][0]: must be a number such"),
        (("shows",), {"dependence": ["0", "2"]}, "shows: a bound of a probability is above 1"),
        (("shows",), {"dependence": ["0", "1"]}, "shows.dependence: needs outputs that are lists"),
        (("shows",), {"epsilon": "1"}, "shows: object contains unknown field `epsilon`"),
        (("certificate",), "dpaudit-proof/1", "'dpaudit-proof/1': of another version than"),
    ],
)  # fmt: skip
def test_a_field_of_another_shape_is_named(small, tmp_path, place, value, says) -> None:
    assert outcome(small, tmp_path / "made") == ("holds", "")
    inside = small
    for key in place[:-1]:
        inside = inside[key]
    inside[place[-1]] = value
    assert says in refusal(small, tmp_path / "changed")


def test_ways_that_never_begin_are_refused(small, tmp_path) -> None:
    part = small["parts"][0]
    part["states"] = [
        part["states"][0]
        | {"domains": [[0, 4]], "branches": [[[4], [["new", 0]], to], [[], [], -1]]}
        for to in (1, 0)
    ]  # fmt: skip
    part["visits"], part["bits"] = ["1", "0"], None
    part["states"][0]["via"], part["states"][1]["via"] = [1, 0], [0, 0]
    assert "via: a circle that never begins" in refusal(small, tmp_path / "circle")
    part["states"][0]["via"] = None
    kind, message = outcome(small, tmp_path / "line")
    assert kind == "Wrong", message


def test_epsilon_has_a_largest_value(certificates, tmp_path) -> None:
    made = certificates["answer"]
    made = made | {"shows": {"profile": [["1000", "0", "1"]]}}
    assert outcome(made, tmp_path / "made")[0] == "holds"
    made["shows"] = {"profile": [["1001", "0", "1"]]}
    assert "ε='1001': at most 1000" in refusal(made, tmp_path / "changed")


@pytest.mark.parametrize(
    ("register", "cuts", "law"),
    [(-1, [2], ["3/4", "1/4"]), (0, [0.5], ["1/8", "7/8"])],
    ids=["a register counted from the end", "a cut between two integers"],
)
def test_the_checker_alone_refuses_a_false_law(tmp_path, register, cuts, law) -> None:
    """P(1) is 0 of two looks at one coin, and no integer is below 1/2."""
    state = {
        "register": register, "domains": [[0, 4]], "cuts": cuts, "via": None, "onward": 0,
        "branches": [[[], [], -1], [[], [], -2]],
    }  # fmt: skip
    states, visits = [state], ["1"]
    if register < 0:
        again = {**state, "register": 0, "via": [0, 0]}
        states = [{**state, "branches": [[[], [["register", 0]], 1], [[], [], -1]]}, again]
        visits = ["1", "1/2"]
    part = {
        "args": [], "first": [[4], [["new", 0]], 0], "states": states, "outputs": ["0", "1"],
        "law": law, "residual": "0", "exact": True, "visits": visits, "bits": None,
    }  # fmt: skip
    made = {
        "certificate": "dpaudit-proof/2", "program": "python:x:y", "files": {}, "kwargs": {},
        "coins": "", "parts": [part], "returned": None, "shows": {},
    }  # fmt: skip
    path = tmp_path / "made"
    path.write_bytes(gzip.compress(json.dumps(made).encode()))
    with pytest.raises(checker.Wrong, match="state 0: its intervals are not a partition"):
        checker.check(path, run=False)


DEEP = b'{"certificate": "dpaudit-proof/2", "kwargs": {"x": %b}}'


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (gzip.compress(b"[" * 100_000_000), "unpacks to more than"),
        (gzip.compress(b"[" * 400_000), "all of it: expected `object`, got `array`"),
        (gzip.compress(DEEP % (b"[" * 5000 + b"]" * 5000)), "nested deeper than 64"),
        (gzip.compress(b"[" + b"[]," * 1_300_000 + b"[]]"), "more values than any certificate"),
        (gzip.compress(b"{}")[:-9], "not gzip"),
        (gzip.compress(b"{}")[:12] + bytes(9), "not gzip"),
        (gzip.compress(b"\xff"), "not JSON"),
        (gzip.compress(b""), "not JSON"),
        (gzip.compress(b"[]"), "all of it: expected `object`, got `array`"),
        (gzip.compress(b"{}"), "all of it: object missing required field `certificate`"),
        (b"nonsense", "not gzip"),
        (b"", "not JSON"),
    ],
)
def test_what_is_no_certificate_is_refused(tmp_path, data, says) -> None:
    path = tmp_path / "certificate.json.gz"
    path.write_bytes(data)
    with pytest.raises(RefusedError, match=says.replace("[", r"\[")):
        read_certificate(path)


@pytest.mark.parametrize("key", ["args", "outputs"])
def test_values_nest_64_deep(small, tmp_path, key) -> None:
    for depth, kind in ((60, "holds"), (65, "RefusedError")):
        value = "1"
        for _ in range(depth):
            value = [value]
        small["parts"][0][key] = [value, "1"]
        assert outcome(small, tmp_path / "made")[0] == kind


def test_origins_nest_64_deep(small, tmp_path) -> None:
    origin = ["new", 1]
    for depth in range(1, 65):
        origin = ["mod", origin, 4]
        small["parts"][0]["first"][1][1] = origin
        kind, message = outcome(small, tmp_path / "made")
        assert kind == ("RefusedError" if depth == 64 else "holds"), message
    assert "nested deeper than 64" in message


def test_a_folder_or_a_pipe_is_no_certificate(tmp_path) -> None:
    for path in (tmp_path, tmp_path / "missing"):
        with pytest.raises(RefusedError):
            read_certificate(path)
