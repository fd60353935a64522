"""Certificates, and the checker that knows nothing of the prover."""

from __future__ import annotations

import ast
import copy
import gzip
import json
import subprocess
import sys
from fractions import Fraction
from pathlib import Path

import pytest

from dpaudit.prove.certificates import checker
from dpaudit.prove.certificates.certificate import certificate_of, write_certificate
from dpaudit.prove.exploration.engine import explore

PROGRAM = """
import random
from fractions import Fraction

def below(n, rng):
    while True:
        k = rng.getrandbits(4)
        if k & 7 < n:
            return (k & 7) + 10 * (k >> 3)

def tossed(p, rng):
    k = 0
    while rng.randrange(p.denominator) < p.numerator:
        k += 1
    if k > 30:
        raise OverflowError
    return k, k / 4

def little():
    import os
    data = os.urandom(2)
    return int.from_bytes(data, "little") < 600, data[0] > 250
"""


@pytest.fixture
def program(tmp_path, monkeypatch):
    path = tmp_path / "certified_program.py"
    path.write_text(PROGRAM)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "certified_program", raising=False)
    return path


def made_of(program: Path, name: str, *args, coins="rng"):
    import certified_program

    function = getattr(certified_program, name)
    explored = explore(function, args, coins=coins)
    return certificate_of(
        explored, program=f"python:{program}:{name}", args=args, kwargs={}, coins=coins
    )


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
    [("below", (5,), "rng"), ("tossed", (Fraction(1, 3),), "rng"), ("little", (), "")],
)
def test_a_certificate_holds_and_python_follows_all_of_it(program, tmp_path, name, args, coins):
    made = made_of(program, name, *args, coins=coins)
    said = json.loads(checked(made, tmp_path, isolated=True))
    transitions = sum(len(s["branches"]) for s in made["states"])
    assert (said["replayed"], said["tapes"]) == (transitions, 50)
    assert said["residual"] <= 2.0**-40


def test_the_same_proof_has_the_same_bytes(program, tmp_path) -> None:
    hashes = {
        write_certificate(made_of(program, "below", 5), tmp_path / f"{i}.gz") for i in range(2)
    }
    assert len(hashes) == 1


def more_of_the_likeliest(made):
    law = [Fraction(p) for p in made["law"]]
    law[0] += Fraction(1, 1 << 30)
    made["law"] = [str(p) for p in law]
    made["residual"] = str(1 - sum(law))


def more_visits(made):
    made["visits"][-1] = str(2 * Fraction(made["visits"][-1]))


def a_residual_that_hides(made):
    made["residual"] = "0"


def another_probability(made):
    state = next(s for s in made["states"] if len(s["cuts"]) == 1)
    state["cuts"] = [state["cuts"][0] - 1]


def one_coin_twice(made):
    branch = next(b for s in made["states"] for b in s["branches"] if b[0] and b[2] >= 0)
    to = made["states"][branch[2]]
    branch[1] = [branch[1][0]] * 2
    to["domains"] = [to["domains"][0]] * 2


def a_wider_interval(made):
    made["states"][0]["domains"][0][1] += 1


@pytest.mark.parametrize(
    "change",
    [more_of_the_likeliest, more_visits, another_probability, one_coin_twice, a_wider_interval],
    ids=lambda f: f.__name__,
)
def test_arithmetic_that_was_changed_does_not_hold(program, tmp_path, change) -> None:
    made = made_of(program, "below", 5)
    assert made["exact"]
    change(made)
    with pytest.raises(checker.Wrong):
        checked(made, tmp_path)


def test_a_residual_must_complete_the_law(program, tmp_path) -> None:
    made = made_of(program, "tossed", Fraction(1, 3))
    a_residual_that_hides(made)
    with pytest.raises(checker.Wrong, match="add up to 1"):
        checked(made, tmp_path)


def test_a_certificate_of_another_program_is_found_by_running_python(program, tmp_path) -> None:
    made = made_of(program, "below", 5)
    swapped = copy.deepcopy(made)
    first, second = swapped["outputs"][:2]
    swapped["outputs"][:2] = [second, first]
    checked(swapped, tmp_path)  # the arithmetic alone cannot see it
    assert "Python returns" in checked(swapped, tmp_path, isolated=True)
    other = {**made, "args": [4]}
    assert "WRONG" in checked(other, tmp_path, isolated=True)


def test_a_program_that_was_edited_does_not_hold(program, tmp_path) -> None:
    made = made_of(program, "below", 5)
    program.write_text(PROGRAM.replace("k & 7 < n", "k & 7 <= n"))
    assert "not the file that was proved" in checked(made, tmp_path, isolated=True)


def test_what_is_no_certificate_is_refused(tmp_path) -> None:
    path = tmp_path / "certificate.json.gz"
    for data in (b"{}", b"[]", b"nonsense", b'{"certificate": "dpaudit-proof/2"}'):
        path.write_bytes(gzip.compress(data))
        with pytest.raises((ValueError, LookupError, TypeError)):
            checker.check(path, run=False)


def test_one_coin_is_never_two_registers(tmp_path) -> None:
    state = {
        "id": "", "register": 0, "domains": [[0, 4], [0, 4]], "cuts": [2], "via": None,
        "onward": 0, "branches": [[[], [], -1], [[], [], -2]],
    }  # fmt: skip
    made = {
        "certificate": "dpaudit-proof/1", "program": "python:x:y", "files": {}, "args": [],
        "kwargs": {}, "coins": "", "first": [[4, 4], [["new", 0], ["new", 1]], 0],
        "states": [state], "outputs": ["int 0", "int 1"], "law": ["1/2", "1/2"],
        "residual": "0", "exact": True, "visits": ["1"],
    }  # fmt: skip
    assert checked(made, tmp_path)["residual"] == 0
    made["first"] = [[4], [["new", 0], ["new", 0]], 0]
    with pytest.raises(checker.Wrong, match="not uniform and independent"):
        checked(made, tmp_path)
