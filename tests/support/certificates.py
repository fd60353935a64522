"""Certificates of a few programs, as `dpaudit prove` makes them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from dpaudit_prove.certificates.certificate import certificate_of
from dpaudit_prove.exploration.engine import ProofOptions, explore
from dpaudit_prove.run import prove

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

def answer(value, rng):
    return value if rng.getrandbits(1) else rng.getrandbits(1)

def pair(rng):
    return [tail(rng), 7, tail(rng)]

def tail(rng):
    k = 0
    while k < 5 and rng.getrandbits(1):
        k += 1
    return k

def seed_and_noise(rng):
    nonce = rng.randrange(4)
    return nonce, (nonce + 1) % 4

def looked_at(rng):
    first = rng.randrange(3)
    return first, first * 0 + rng.randrange(2)

def of_several_types(rng):
    return [True, 1, 1.0, -0.0, float("nan"), float("inf"), None, "1"][rng.getrandbits(3)]
"""

ASKED = {
    "answer": {"neighbours": (0, 1), "claim_epsilon": "1"},
    "pair": {},
    "seed_and_noise": {},
    "looked_at": {},
}


def made_of(program: Path, name: str, *args: Any, coins: str = "rng") -> dict[str, Any]:
    import certified_program

    function = getattr(certified_program, name)
    explored = explore(function, args, coins=coins)
    return certificate_of(
        [explored], program=f"python:{program}:{name}", calls=[args], kwargs={}, coins=coins
    )


def made_of_proof(program: Path, name: str, **asked: Any) -> dict[str, Any]:
    """The certificate of a verdict."""
    import certified_program

    options = ProofOptions(coins="rng", disjoint="neighbours" not in asked)
    name_of_program = f"python:{program}:{name}"
    found = prove(
        getattr(certified_program, name), program=name_of_program, options=options, **asked
    )
    return certificate_of(
        found.explorations,
        program=name_of_program,
        calls=found.calls,
        kwargs={},
        coins="rng",
        returned=found.returned,
        shows=found.shows,
    )


def small(**part: Any) -> dict[str, Any]:
    """One coin of four values, in two halves; and a second register, which nothing reads."""
    state = {
        "register": 0, "domains": [[0, 4], [0, 4]], "cuts": [2], "via": None, "onward": 0,
        "branches": [[[], [], -1], [[], [], -2]],
    }  # fmt: skip
    whole = {
        "args": [], "first": [[4, 4], [["new", 0], ["new", 1]], 0], "states": [state],
        "outputs": ["0", "1"], "law": ["1/2", "1/2"], "residual": "0", "exact": True,
        "visits": ["1"], "bits": [4, 4],
    }  # fmt: skip
    return {
        "certificate": "dpaudit-proof/2", "program": "python:x:y", "files": {}, "kwargs": {},
        "coins": "", "parts": [whole | part], "returned": None, "shows": {},
    }  # fmt: skip
