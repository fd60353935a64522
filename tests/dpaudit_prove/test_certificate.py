"""Certificates, and the checker that knows nothing of the prover."""

from __future__ import annotations

import ast
import copy
import gzip
import json
import math
import random
import subprocess
import sys
from collections import Counter
from fractions import Fraction
from pathlib import Path

import pytest
from support.certificates import ASKED, PROGRAM, made_of, made_of_proof, small
from support.changed_values import one_change

from dpaudit.results.foreign import RefusedError
from dpaudit_prove.certificates import checker
from dpaudit_prove.certificates.certificate import write_certificate
from dpaudit_prove.certificates.reader import read_certificate


@pytest.fixture
def program(tmp_path, monkeypatch):
    path = tmp_path / "certified_program.py"
    path.write_text(PROGRAM)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "certified_program", raising=False)
    return path


def checked(made, folder: Path, *, isolated=False):
    path = folder / "certificate.json.gz"
    write_certificate(made, path)
    if not isolated:
        return checker.check(path, run=False)
    code = (
        "import json, sys; from pathlib import Path\n"
        "from dpaudit_prove.certificates import checker\n"
        "try: print(json.dumps(checker.check(Path(sys.argv[1]), tapes=50)))\n"
        "except checker.Wrong as error: print('WRONG', error)"
    )  # a process of its own: the checker patches what draws coins
    done = subprocess.run(
        [sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True
    )
    return done.stdout


def test_the_checker_is_short_and_imports_nothing_of_ours() -> None:
    text = Path(checker.__file__).read_text()
    assert len(text.splitlines()) <= 300
    names = [n for n in ast.walk(ast.parse(text)) if isinstance(n, (ast.Import, ast.ImportFrom))]
    found = {getattr(n, "module", None) or n.names[0].name for n in names}
    assert not [name for name in found if name.split(".")[0] not in sys.stdlib_module_names]


@pytest.mark.parametrize(
    ("name", "args", "coins"),
    [
        ("below", (5,), "rng"),
        ("tossed", (Fraction(1, 3),), "rng"),
        ("little", (), ""),
        ("of_several_types", (), "rng"),
    ],
)
def test_a_certificate_holds_and_python_follows_all_of_it(program, tmp_path, name, args, coins):
    made = made_of(program, name, *args, coins=coins)
    said = json.loads(checked(made, tmp_path, isolated=True))
    transitions = sum(len(s["branches"]) for s in made["parts"][0]["states"])
    assert (said["replayed"], said["tapes"]) == (transitions, 50)
    assert said["residual"] <= 2.0**-40


def more_of_the_likeliest(part):
    law = [Fraction(p) for p in part["law"]]
    law[0] += Fraction(1, 1 << 30)
    part["law"] = [str(p) for p in law]
    part["residual"] = str(1 - sum(law))


def more_visits(part):
    part["visits"][-1] = str(2 * Fraction(part["visits"][-1]))


def another_probability(part):
    state = next(s for s in part["states"] if len(s["cuts"]) == 1)
    state["cuts"] = [state["cuts"][0] - 1]


def one_coin_twice(part):
    branch = next(b for s in part["states"] for b in s["branches"] if b[0] and b[2] >= 0)
    to = part["states"][branch[2]]
    branch[1] = [branch[1][0]] * 2
    to["domains"] = [to["domains"][0]] * 2


def a_wider_interval(part):
    part["states"][0]["domains"][0][1] += 1


@pytest.mark.parametrize(
    "change",
    [more_of_the_likeliest, more_visits, another_probability, one_coin_twice, a_wider_interval],
    ids=lambda f: f.__name__,
)
def test_arithmetic_that_was_changed_does_not_hold(program, tmp_path, change) -> None:
    made = made_of(program, "below", 5)
    (part,) = made["parts"]
    assert part["exact"]
    change(part)
    with pytest.raises(checker.Wrong):
        checked(made, tmp_path)


def test_a_residual_completes_the_law_and_no_value_is_returned_twice(program, tmp_path) -> None:
    hides = made_of(program, "tossed", Fraction(1, 3))
    hides["parts"][0]["residual"] = "0"
    with pytest.raises(checker.Wrong, match="add up to 1"):
        checked(hides, tmp_path)
    twice = made_of_proof(program, "pair")
    twice["returned"] = [0, "7", 0]
    with pytest.raises(checker.Wrong, match="twice"):
        checked(twice, tmp_path)


@pytest.mark.slow
def test_a_certificate_of_another_program_is_found_by_running_python(program, tmp_path) -> None:
    made = made_of(program, "below", 5)
    path = tmp_path / "again.gz"
    assert write_certificate(made, path) == write_certificate(made_of(program, "below", 5), path)
    swapped, other = copy.deepcopy(made), copy.deepcopy(made)
    outputs = swapped["parts"][0]["outputs"]
    outputs[:2] = outputs[1::-1]
    checked(swapped, tmp_path)  # the arithmetic alone cannot see it
    assert "Python returns" in checked(swapped, tmp_path, isolated=True)
    other["parts"][0]["args"] = [4]
    assert "WRONG" in checked(other, tmp_path, isolated=True)
    program.write_text(PROGRAM.replace("k & 7 < n", "k & 7 <= n"))
    assert "not the file that was proved" in checked(made, tmp_path, isolated=True)


def test_one_coin_is_never_two_registers(tmp_path) -> None:
    assert checked(small(), tmp_path)["residual"] == 0
    with pytest.raises(checker.Wrong, match="not uniform and independent"):
        checked(small(first=[[4], [["new", 0], ["new", 0]], 0], bits=None), tmp_path)


def test_equal_outputs_of_several_types_are_one(program, tmp_path) -> None:
    made = made_of(program, "of_several_types")
    outputs = ["1", '"-0.0"', '"nan"', "float inf", "NoneType None", '"1"']
    assert sorted(made["parts"][0]["outputs"]) == sorted(outputs)
    assert max(map(Fraction, made["parts"][0]["law"])) == Fraction(3, 8)


@pytest.mark.slow
def test_what_a_certificate_shows(program, tmp_path) -> None:
    proofs = {name: made_of_proof(program, name, **asked) for name, asked in ASKED.items()}
    found = {name: checked(made, tmp_path) for name, made in proofs.items()}
    assert [one["values"] for one in found.values()] == [0, 2, 0, 0]
    points = {epsilon: (low, high) for epsilon, low, high in found["answer"]["shows"]["profile"]}
    exact = Fraction(3, 4) - Fraction(1, 4) * Fraction(math.exp(1))
    assert all(abs(Fraction(bound) - exact) < Fraction(1, 10**15) for bound in points["1"])
    assert points["ln(1)"] == ("1/2", "1/2")
    ends = [float(Fraction(epsilon)) for epsilon in list(points)[-2:]]
    assert ends == pytest.approx([math.log(3)] * 2, abs=1e-8)  # the least ε at δ = 0
    assert Fraction(points[list(points)[-2]][0]) > 0 == Fraction(points[list(points)[-1]][1])
    assert proofs["pair"]["returned"] == [0, "7", 1]
    assert found["seed_and_noise"]["shows"] == {"dependence": ["3/4", "3/4"]}
    assert found["looked_at"]["shows"] == {"dependence": ["0", "0"]}
    assert checked(made_of(program, "little", coins=""), tmp_path)["bits"] == [16]
    assert checked(made_of(program, "below", 5), tmp_path)["bits"] == [None]


def test_dependence_is_not_shown_by_what_is_left_out(tmp_path) -> None:
    """Marginals are larger by what was not followed: with 1/4 left, two equal bits may be fair."""
    made = small(
        first=[[8], [["new", 0]], 0],
        outputs=[["0", "0"], ["1", "1"]],
        law=["3/8", "3/8"],
        residual="1/4",
        bits=None,
    )
    branches = [[[], [], to] for to in (-1, -2, None)]
    made["parts"][0]["states"][0] |= {"domains": [[0, 8]], "cuts": [3, 6], "branches": branches}
    made["shows"] = {"dependence": ["0", "23/32"]}
    checked(made, tmp_path)  # at most 1/4 + 2·(3/8 − 9/64)
    for bounds in (["1/100", "1"], ["0", "22/32"]):
        made["shows"] = {"dependence": bounds}
        with pytest.raises(checker.Wrong, match="dependence"):
            checked(made, tmp_path)


HINTS = {"via", "onward"}  # which paths to run; any other path is as good


def places(made, above=(), hints=HINTS):
    """Where the numbers and words of a certificate stand."""
    for key, value in made.items() if isinstance(made, dict) else enumerate(made):
        if key not in hints:
            if isinstance(value, (dict, list)) and value:
                yield from places(value, (*above, key), hints)
            else:
                yield (*above, key)


def put(made, place, change):
    """A copy of a certificate with ``change(what is there, the container)`` at one place."""
    copied = inside = copy.deepcopy(made)
    for key in place[:-1]:
        inside = inside[key]
    inside[place[-1]] = change(inside[place[-1]], inside)
    return copied


def another(value):
    """Another value of the same kind; of a number, never one that is a truth as well."""
    if isinstance(value, bool) or value is None:
        return 1 - bool(value)
    if isinstance(value, int):
        return value + 1
    if isinstance(value, str) and value.lstrip("-").replace("/", "", 1).isdecimal():
        return str(Fraction(value) + Fraction(1, 7))
    return f"{value}x" if isinstance(value, str) else [*value, 1] if value == [] else {"x": 1}


def changed(made, most=4):
    """A certificate with one thing changed, for `most` places of each kind."""
    seen = Counter()
    for place in places(made):
        kind = tuple(key for key in place if isinstance(key, str))
        seen[kind] += 1
        if seen[kind] > most or (kind == ("shows", "profile") and place[-1] == 0 < place[-2]):
            continue  # with an ε beyond the largest, what is said of δ stays true
        if place[-1] == "exact" and not made["parts"][place[1]]["visits"]:
            continue  # it says how the numbers of visits are written

        def change(value, inside, place=place):
            if place[0] == "shows" and place[-1] == len(inside) - 1:  # an upper bound
                return str(Fraction(value) - Fraction(1, 7))
            return another(value)

        yield place, put(made, place, change)


RUN = """
import sys
from pathlib import Path
from dpaudit_prove.certificates import checker
for path in sorted(Path(sys.argv[1]).glob("*.gz")):
    try:
        checker.check(path, tapes=50)
        print("holds", path.name)
    except checker.Wrong:
        print("wrong", path.name)
    except Exception as error:
        print(type(error).__name__, path.name)
"""


@pytest.mark.parametrize("name", [*ASKED, "little"])
def test_any_one_change_is_refused(program, tmp_path, name) -> None:
    """Everything but the hints is changed, one at a time; Python runs where arithmetic agrees."""
    coins = "" if name == "little" else "rng"
    made = (
        made_of_proof(program, name, **ASKED[name]) if coins else made_of(program, name, coins="")
    )
    kept, left = {}, tmp_path / "left"
    left.mkdir()
    for i, (place, tampered) in enumerate(changed(made)):
        path = left / f"{i:05}.gz"
        write_certificate(tampered, path)
        try:
            checker.check(path, run=False)
            kept[path.name] = place
        except (checker.Wrong, ValueError, LookupError, TypeError, AttributeError):
            path.unlink()
    write_certificate(made, left / "untouched.gz")
    command = [sys.executable, "-c", RUN, str(left)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    said = [line.rsplit(" ", 1) for line in done.stdout.splitlines()]
    assert [(kept.get(path), path) for word, path in said if word == "holds"] == [
        (None, "untouched.gz")
    ]
    assert i > 30
    assert len(said) > 5


# ---------------- what is refused before: files too large or too deep, fields of another shape

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


@pytest.mark.slow
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


@pytest.mark.slow
def test_no_number_but_that_of_an_output_is_negative(certificates, tmp_path) -> None:
    kinds = Counter()
    for made in certificates.values():
        for place in places(made, hints=()):
            kind = tuple(key for key in place if isinstance(key, str))
            kinds[kind] += 1
            if kind[-1] in ("args", "first", "branches") or kinds[kind] > 5:
                continue
            was = []
            negative = put(made, place, lambda value, _, was=was: was.append(value) or -1)
            if type(was[0]) is int:
                assert f"{place[-2]}" in refusal(negative, tmp_path / "changed"), place
            else:
                kinds[kind] -= 1
    named = {kind[-1] for kind, count in kinds.items() if count}
    assert named >= {"register", "domains", "cuts", "via", "onward", "bits", "returned"}


PART, STATE = ("parts", 0), ("parts", 0, "states", 0)


@pytest.mark.parametrize(
    ("place", "value", "says"),
    [
        ((*PART, "first", 0, 0), 0, "first[0][0]: expected `int` >= 1"),
        ((*PART, "first", 1, 0, 1), 2, "first.registers=2: must be from 0 to 1"),
        ((*PART, "first", 1, 0), ["mod", ["new", 0], 0], "first[1][0][2]: expected `int` >="),
        ((*PART, "first", 1, 0), ["swap", ["new", 0], 1 << 60], "expected `int` <= 65536"),
        ((*PART, "first", 1, 0), ["old", 0], "first[1][0][0]: invalid value 'old'"),
        ((*PART, "first", 2), 1, "first.to=1: must be a state from 0 to 0, or an output"),
        ((*STATE, "branches", 1, 2), -3, "states[0].branches[1].to=-3: must be"),
        ((*STATE, "register"), 2, "states[0].register=2: must be from 0 to 1"),
        ((*STATE, "onward"), 2, "states[0].onward=2: must be from 0 to 1"),
        ((*STATE, "via"), [0, 0], "states[0].via: must name a branch to"),
        ((*STATE, "via"), [1, 0], "states[0].via=1: must be from 0 to 0"),
        ((*STATE, "cuts"), [1.5], "states[0].cuts[0]: expected `int`, got"),
        ((*STATE, "cuts"), [1, 2], "states[0].branches: has 2 values for 3"),
        ((*PART, "visits"), [], "visits: has 0 values for 1 states"),
        ((*PART, "visits"), ["1e999999999"], "visits[0]: must be a number such"),
        ((*PART, "law"), ["1"], "law: has 1 values for 2 outputs"),
        ((*PART, "bits"), [4], "bits: has 1 values for 2 states and the end"),
        ((*PART, "outputs"), [[{"/": "1"}], "1"], "outputs: expected text or lists of it"),
        (("returned",), [0, [True]], "returned: expected text or lists of it, got True"),
        ((*PART, "args"), [{"/": "1/0"}], "args: must be a number such as 2 or 1/3"),
        ((*PART, "args"), [{"x": "1"}], 'args: an object is written {"/": "1/3"}'),
        ((*PART, "args"), [0] * 100_001, "args, kwargs: 100,001 values; at most 100,000"),
        (("kwargs",), {"/": "1"}, "files, kwargs: / is not a name"),
        (("files",), {"/etc/passwd": "00"}, "files[...]: must be 64 hexadecimal digits"),
        (("parts",), [], "parts: expected `array` of length >= 1"),
        (("shows",), {"profile": [["1", "0", "1"]]}, "shows.profile: needs 2 parts; there are 1"),
        (("shows",), {"dependence": ["0", "2"]}, "shows: a bound of a probability is above 1"),
        (("shows",), {"dependence": ["0", "1"]}, "shows.dependence: needs outputs that are lists"),
        (("shows",), {"epsilon": "1"}, "shows: object contains unknown field `epsilon`"),
        (("certificate",), "dpaudit-proof/1", "'dpaudit-proof/1': must be dpaudit-proof/2"),
    ],
)  # fmt: skip
def test_a_field_of_another_shape_is_named(tmp_path, place, value, says) -> None:
    assert outcome(small(), tmp_path / "made") == ("holds", "")
    assert says in refusal(put(small(), place, lambda *_: value), tmp_path / "changed")


def test_ways_that_never_begin_are_refused(tmp_path) -> None:
    made = small(visits=["1", "0"], bits=None)
    (state,) = made["parts"][0]["states"]
    states = made["parts"][0]["states"] = [
        state
        | {"domains": [[0, 4]], "branches": [[[4], [["new", 0]], to], [[], [], -1]], "via": [to, 0]}
        for to in (1, 0)
    ]
    assert "via: a cycle without a start" in refusal(made, tmp_path / "circle")
    states[0]["via"] = None
    kind, message = outcome(made, tmp_path / "line")
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
    made = small(first=[[4], [["new", 0]], 0], law=law, bits=None)
    part = made["parts"][0]
    part["states"][0] |= {"register": register, "domains": [[0, 4]], "cuts": cuts}
    if register < 0:
        again = part["states"][0] | {"register": 0, "via": [0, 0]}
        part["states"][0]["branches"] = [[[], [["register", 0]], 1], [[], [], -1]]
        part["states"].append(again)
        part["visits"] = ["1", "1/2"]
    path = tmp_path / "made"
    path.write_bytes(gzip.compress(json.dumps(made).encode()))
    with pytest.raises(checker.Wrong, match="state 0: its intervals are not a partition"):
        checker.check(path, run=False)


DEEP = b'{"certificate": "dpaudit-proof/2", "kwargs": {"x": %b}}'


NO_CERTIFICATES = {  # made when the test runs: a gzip file holds the time, and some are large
    "a bomb": (lambda: gzip.compress(b"[" * 100_000_000), "unpacks to more than"),
    "brackets": (
        lambda: gzip.compress(b"[" * 400_000),
        "all of it: expected `object`, got `array`",
    ),
    "deep": (
        lambda: gzip.compress(DEEP % (b"[" * 100_000 + b"]" * 100_000)),
        "nested deeper than 64",
    ),
    "many values": (
        lambda: gzip.compress(b"[" + b"[]," * 1_300_000 + b"[]]"),
        "more values than any certificate",
    ),
    "cut": (lambda: gzip.compress(b"{}")[:-9], "not gzip"),
    "zeros": (lambda: gzip.compress(b"{}")[:12] + bytes(9), "not gzip"),
    "not UTF-8": (lambda: gzip.compress(b"\xff"), "not JSON"),
    "nothing": (lambda: gzip.compress(b""), "not JSON"),
    "a list": (lambda: gzip.compress(b"[]"), "all of it: expected `object`, got `array`"),
    "no fields": (
        lambda: gzip.compress(b"{}"),
        "all of it: object missing required field `certificate`",
    ),
    "not packed": (lambda: b"nonsense", "not gzip"),
    "empty": (lambda: b"", "not JSON"),
}


@pytest.mark.parametrize("name", NO_CERTIFICATES)
def test_what_is_no_certificate_is_refused(tmp_path, name) -> None:
    make, says = NO_CERTIFICATES[name]
    data = make()
    path = tmp_path / "certificate.json.gz"
    path.write_bytes(data)
    with pytest.raises(RefusedError, match=says):
        read_certificate(path)
    with pytest.raises(RefusedError):
        read_certificate(tmp_path)


def test_values_and_origins_nest_64_deep(tmp_path) -> None:
    for key, deepest in (("args", 60), ("outputs", 60), ("args", 65), ("outputs", 65)):
        value: object = "1"
        for _ in range(deepest):
            value = [value]
        kind, _ = outcome(small(**{key: [value, "1"]}), tmp_path / "made")
        assert kind == ("holds" if deepest == 60 else "RefusedError")
    origin = ["new", 1]
    for depth in range(1, 65):
        origin = ["mod", origin, 4]
        first = [[4, 4], [["new", 0], origin], 0]
        kind, message = outcome(small(first=first), tmp_path / "made")
        assert kind == ("RefusedError" if depth == 64 else "holds"), message
    assert "nested deeper than 64" in message
