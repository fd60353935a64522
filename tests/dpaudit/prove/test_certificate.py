"""Certificates, and the checker that knows nothing of the prover."""

from __future__ import annotations

import ast
import copy
import gzip
import json
import math
import subprocess
import sys
from collections import Counter
from fractions import Fraction
from pathlib import Path

import pytest
from support.certificates import ASKED, PROGRAM, made_of, made_of_proof

from dpaudit.prove.certificates import checker
from dpaudit.prove.certificates.certificate import write_certificate


@pytest.fixture
def program(tmp_path, monkeypatch):
    path = tmp_path / "certified_program.py"
    path.write_text(PROGRAM)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "certified_program", raising=False)
    return path


def checked(made, folder: Path, *, run=True, isolated=False):
    path = folder / "certificate.json.gz"
    write_certificate(made, path)
    if not isolated:
        return checker.check(path, run=False)
    code = (
        "import json, sys; from pathlib import Path\n"
        "from dpaudit.prove.certificates import checker\n"
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


def test_the_same_proof_has_the_same_bytes(program, tmp_path) -> None:
    hashes = {
        write_certificate(made_of(program, "below", 5), tmp_path / f"{i}.gz") for i in range(2)
    }
    assert len(hashes) == 1


def more_of_the_likeliest(part):
    law = [Fraction(p) for p in part["law"]]
    law[0] += Fraction(1, 1 << 30)
    part["law"] = [str(p) for p in law]
    part["residual"] = str(1 - sum(law))


def more_visits(part):
    part["visits"][-1] = str(2 * Fraction(part["visits"][-1]))


def a_residual_that_hides(part):
    part["residual"] = "0"


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


def test_a_residual_must_complete_the_law(program, tmp_path) -> None:
    made = made_of(program, "tossed", Fraction(1, 3))
    a_residual_that_hides(made["parts"][0])
    with pytest.raises(checker.Wrong, match="adds up to 1"):
        checked(made, tmp_path)


def test_a_certificate_of_another_program_is_found_by_running_python(program, tmp_path) -> None:
    made = made_of(program, "below", 5)
    swapped = copy.deepcopy(made)
    outputs = swapped["parts"][0]["outputs"]
    outputs[:2] = outputs[1::-1]
    checked(swapped, tmp_path)  # the arithmetic alone cannot see it
    assert "Python returns" in checked(swapped, tmp_path, isolated=True)
    other = copy.deepcopy(made)
    other["parts"][0]["args"] = [4]
    assert "WRONG" in checked(other, tmp_path, isolated=True)


def test_a_program_that_was_edited_does_not_hold(program, tmp_path) -> None:
    made = made_of(program, "below", 5)
    program.write_text(PROGRAM.replace("k & 7 < n", "k & 7 <= n"))
    assert "not the file that was proved" in checked(made, tmp_path, isolated=True)


def test_what_is_no_certificate_is_refused(tmp_path) -> None:
    path = tmp_path / "certificate.json.gz"
    for data in (b"{}", b"[]", b"nonsense", b'{"certificate": "dpaudit-proof/1"}'):
        path.write_bytes(gzip.compress(data))
        with pytest.raises((ValueError, LookupError, TypeError)):
            checker.check(path, run=False)


def test_one_coin_is_never_two_registers(tmp_path) -> None:
    state = {
        "register": 0, "domains": [[0, 4], [0, 4]], "cuts": [2], "via": None, "onward": 0,
        "branches": [[[], [], -1], [[], [], -2]],
    }  # fmt: skip
    part = {
        "args": [], "first": [[4, 4], [["new", 0], ["new", 1]], 0], "states": [state],
        "outputs": ["0", "1"], "law": ["1/2", "1/2"], "residual": "0", "exact": True,
        "visits": ["1"], "bits": [4, 4],
    }  # fmt: skip
    made = {
        "certificate": "dpaudit-proof/2", "program": "python:x:y", "files": {}, "kwargs": {},
        "coins": "", "parts": [part], "returned": None, "shows": {},
    }  # fmt: skip
    assert checked(made, tmp_path)["residual"] == 0
    part["first"] = [[4], [["new", 0], ["new", 0]], 0]
    part["bits"] = None
    with pytest.raises(checker.Wrong, match="not uniform and independent"):
        checked(made, tmp_path)


def test_equal_outputs_of_several_types_are_one(program, tmp_path) -> None:
    made = made_of(program, "of_several_types")
    outputs = ["1", '"-0.0"', '"nan"', "float inf", "NoneType None", '"1"']
    assert sorted(made["parts"][0]["outputs"]) == sorted(outputs)
    assert max(map(Fraction, made["parts"][0]["law"])) == Fraction(3, 8)


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


def test_one_value_is_never_returned_twice(program, tmp_path) -> None:
    made = made_of_proof(program, "pair")
    made["returned"] = [0, "7", 0]
    with pytest.raises(checker.Wrong, match="twice"):
        checked(made, tmp_path)


def test_dependence_is_not_shown_by_what_is_left_out(program, tmp_path) -> None:
    """Marginals are larger by what was not followed: with 1/4 left, two equal bits may be fair."""
    state = {
        "register": 0, "domains": [[0, 8]], "cuts": [3, 6], "via": None, "onward": 0,
        "branches": [[[], [], -1], [[], [], -2], [[], [], None]],
    }  # fmt: skip
    part = {
        "args": [], "first": [[8], [["new", 0]], 0], "states": [state],
        "outputs": [["0", "0"], ["1", "1"]], "law": ["3/8", "3/8"], "residual": "1/4",
        "exact": True, "visits": ["1"], "bits": None,
    }  # fmt: skip
    made = {
        "certificate": "dpaudit-proof/2", "program": "python:x:y", "files": {}, "kwargs": {},
        "coins": "", "parts": [part], "returned": None, "shows": {"dependence": ["0", "23/32"]},
    }  # fmt: skip
    checked(made, tmp_path)  # at most 1/4 + 2·(3/8 − 9/64)
    for bounds in (["1/100", "1"], ["0", "22/32"]):
        made["shows"] = {"dependence": bounds}
        with pytest.raises(checker.Wrong, match="dependence"):
            checked(made, tmp_path)


HINTS = {"via", "onward"}  # which paths to run; any other path is as good


def places(made, above=()):
    """Where the numbers and words of a certificate stand."""
    for key, value in made.items() if isinstance(made, dict) else enumerate(made):
        if key in HINTS:
            continue
        if isinstance(value, (dict, list)) and value:
            yield from places(value, (*above, key))
        else:
            yield (*above, key)


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
        copied = copy.deepcopy(made)
        inside = copied
        for key in place[:-1]:
            inside = inside[key]
        value = another(inside[place[-1]])
        if place[0] == "shows" and place[-1] == len(inside) - 1:  # of an upper bound
            value = str(Fraction(inside[-1]) - Fraction(1, 7))
        inside[place[-1]] = value
        yield place, copied


RUN = """
import sys
from pathlib import Path
from dpaudit.prove.certificates import checker
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
