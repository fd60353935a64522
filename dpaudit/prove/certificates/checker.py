"""Checks a certificate of `dpaudit prove`; imports nothing of the prover, only Python's library.

A certificate is an automaton: a state decides in which interval one of its registers lies, asks for
coins, and goes to the next state or ends with an output. What is checked, and how far that goes:

1. The program's files have the recorded SHA-256.                              (exactly)
2. Registers are uniform and independent in every state: each is one coin, or one part of one, and
   intervals follow.                                                           (exactly)
3. The numbers of visits w satisfy w ≤ e + w·P, so they are lower bounds; the law follows from them
   and adds up to 1 with the residual.                                         (exactly)
4. Every transition: Python runs the unmodified program on coins that reach it, take it, and go on
   to an end; it asks for the same coins and returns the same output.  (one run each, up to `most`)
5. Random coins: if Python and the automaton agree on n tapes, they differ with probability at most
   ln(1000)/n over the coins, with confidence 99.9 %.                          (statistically)

Not checked: that merged states have the same future on *every* continuation; 4 and 5 test that.
"""

from __future__ import annotations

import gzip
import hashlib
import importlib
import json
import os
import random
import re
import secrets
import sys
from bisect import bisect_right
from fractions import Fraction
from functools import reduce
from itertools import pairwise
from pathlib import Path
from types import BuiltinMethodType, MethodType, ModuleType
from typing import Any

SCALE = 1 << 160  # one visit, where numbers of visits are not fractions
Coins = list[tuple[int, int]]  # (how many values, which)


class Wrong(Exception):
    """The certificate does not hold; the message says where."""


class Mismatch(BaseException):
    """Python asks for other coins; no program may catch this."""


def program(made: dict[str, Any]) -> Any:
    """The function, loaded; its files must be those that the prover read."""
    for name, digest in made["files"].items():
        if (
            not Path(name).is_file()
            or hashlib.sha256(Path(name).read_bytes()).hexdigest() != digest
        ):
            raise Wrong(f"{name}: not the file that was proved")
    place, _, member = made["program"].removeprefix("python:").rpartition(":")
    if "/" in place or place.endswith(".py"):
        sys.path.insert(0, str(Path(place).resolve().parent))
        place = Path(place).stem
    return reduce(getattr, member.split("."), importlib.import_module(place))


def value_of(x: Any) -> Any:
    """An argument: "1/3" is a fraction."""
    if isinstance(x, str) and re.fullmatch(r"-?[0-9]+/[0-9]+", x):
        return Fraction(x)
    return [value_of(v) for v in x] if isinstance(x, list) else x


def written(x: Any) -> str:
    """An output as the certificate writes it."""
    if isinstance(x, (tuple, list)):
        return "(" + ", ".join(map(written, x)) + ")"
    if type(x).__module__ == "numpy":
        return written(x.tolist())
    if isinstance(x, float):
        return f"float {x.hex()}"
    return json.dumps(x) if isinstance(x, str) else f"{type(x).__name__} {x}"


class Node:
    """A coin that is uniform on [low, high), or the two independent parts of one."""

    def __init__(self, low: int, high: int) -> None:
        self.low, self.high, self.kind, self.m, self.parts = low, high, "", 0, list[Node]()

    def part(self, kind: str, m: int) -> Node:
        wanted = "swap" if kind == "swap" else "divide"
        if not self.parts:
            self.kind, self.m = wanted, m
            if kind == "swap" and (self.low, self.high) == (0, 1 << 8 * m):
                self.parts = [Node(self.low, self.high)]
            elif kind in {"div", "mod"} and not self.low % m and not self.high % m:
                self.parts = [Node(self.low // m, self.high // m), Node(0, m)]
        if not self.parts or (self.kind, self.m) != (wanted, m):
            raise Wrong("a coin is divided so that its parts are not uniform and independent")
        return self.parts[kind == "mod"]

    def value(self, pick: Any) -> int:
        if not self.parts:
            return int(pick(self.low, self.high))
        values = [part.value(pick) for part in self.parts]
        if self.kind == "swap":
            return int.from_bytes(values[0].to_bytes(self.m, "little"), "big")
        return self.m * values[0] + values[1]


def node_of(origin: list[Any], old: list[Node], new: list[Node]) -> Node:
    """The coin, or part of one, that a register is."""
    if origin[0] in {"register", "new"}:
        return (old if origin[0] == "register" else new)[int(origin[1])]
    return node_of(origin[1], old, new).part(origin[0], origin[2])


def check_automaton(made: dict[str, Any]) -> None:
    """Point 2: after every branch the registers are whole, different, and those of the state."""
    steps: list[Any] = [(made["first"], [], -1, (0, 1))]
    for state in made["states"]:
        low, high = state["domains"][state["register"]]
        state["pieces"] = list(pairwise([low, *state["cuts"], high]))
        if any(a >= b for a, b in state["pieces"]):
            raise Wrong("a state's intervals are not a partition")
        for piece, branch in zip(state["pieces"], state["branches"], strict=True):
            steps.append((branch, state["domains"], state["register"], piece))
    for (requests, origins, to), domains, register, piece in steps:
        old = [Node(*(piece if i == register else d)) for i, d in enumerate(domains)]
        new = [Node(0, count) for count in requests]
        nodes = [node_of(origin, old, new) for origin in origins]
        if to is None or to < 0:
            continue
        whole = len({id(n) for n in nodes}) == len(nodes) and not any(n.parts for n in nodes)
        if not whole or [[n.low, n.high] for n in nodes] != made["states"][to]["domains"]:
            raise Wrong(f"state {to}: its registers are not uniform and independent there")


def check_law(made: dict[str, Any]) -> float:
    """Point 3; returns the residual."""
    states, exact = made["states"], made["exact"]
    visits = [Fraction(w) if exact else int(w, 16) for w in made["visits"]]
    inflow: list[Any] = [0] * len(states)
    mass: list[Any] = [0] * len(made["outputs"])

    def arrive(to: int | None, flow: Any) -> None:
        if to is not None:
            (inflow if to >= 0 else mass)[to if to >= 0 else -1 - to] += flow

    arrive(made["first"][2], 1 if exact else SCALE)
    for state, w in zip(states, visits, strict=True):
        low, high = state["domains"][state["register"]]
        for (a, b), branch in zip(state["pieces"], state["branches"], strict=True):
            flow = w * (b - a)
            arrive(branch[2], flow / (high - low) if exact else flow // (high - low))
    if any(w < 0 or w > e for w, e in zip(visits, inflow, strict=True)):
        raise Wrong("visits: a state is left more often than it is reached")
    law = [Fraction(p) for p in made["law"]]
    if any(p > Fraction(m) / (1 if exact else SCALE) for p, m in zip(law, mass, strict=True)):
        raise Wrong("law: an output has more probability than the visits give it")
    residual = 1 - sum(law, Fraction(0))
    if min([residual, *law]) < 0 or residual != Fraction(made["residual"]):
        raise Wrong("law: does not add up to 1 with the residual")
    return float(residual)


class Tape(random.SystemRandom):
    """A generator that reads given coins, and remembers how many were asked for."""

    coins: Coins
    used = 0

    def _randbelow(self, n: int) -> int:
        if n == 1:
            return 0
        if self.used >= len(self.coins) or self.coins[self.used][0] != n:
            raise Mismatch(f"coin {self.used + 1}: Python asks for one of {n} values")
        self.used += 1
        return self.coins[self.used - 1][1]

    def getrandbits(self, k: int, /) -> int:
        return self._randbelow(1 << k)

    def random(self) -> float:
        return self._randbelow(1 << 53) * 2.0**-53

    def randbytes(self, n: int | None = None) -> bytes:
        return self._randbelow(1 << 8 * (32 if n is None else n)).to_bytes(32 if n is None else n)

    def integers(self, low: int, high: int | None = None, *, endpoint: bool = False) -> int:
        first, last = (0, low) if high is None else (low, high)
        return first + self._randbelow(last + endpoint - first)

    randbits, bytes, token_bytes, randbelow = getrandbits, randbytes, randbytes, _randbelow


def patch(tape: Tape, coins: str) -> None:
    """Let everything that draws read the tape, for the rest of this process."""
    urandom, everywhere = os.urandom, bool({"random", "numpy"} & set(coins.split(",")))
    kinds = random.Random if everywhere else random.SystemRandom
    owners: list[Any] = [random.SystemRandom]
    for module in [m for m in list(sys.modules.values()) if isinstance(m, ModuleType)]:
        for name, value in list(vars(module).items()):
            drawn = type(value) in (MethodType, BuiltinMethodType)
            if drawn and isinstance(value.__self__, kinds):
                setattr(module, name, getattr(tape, value.__name__))
            elif value is urandom:
                setattr(module, name, tape.randbytes)
            elif everywhere and type(value) is random.Random:
                owners.append(value)
            elif everywhere and type(value).__module__ == "numpy.random._generator":
                setattr(module, name, tape)
    for owner in owners:
        for name in ("getrandbits", "random", "_randbelow", "randbytes"):
            setattr(owner, name, staticmethod(getattr(tape, name)))
    secrets.token_bytes = tape.randbytes  # type: ignore[assignment]


def coins_on(made: dict[str, Any], path: list[tuple[int, int]], pick: Any) -> Coins:
    """Coins that take the branches of a path of (state, branch); the rest of each is picked."""
    asked: list[tuple[int, Node]] = []
    registers: list[Node] = []
    for number, index in [(-1, 0), *path]:
        branch = made["first"]
        if number >= 0:
            state = made["states"][number]
            branch, node = state["branches"][index], registers[state["register"]]
            node.low, node.high = state["pieces"][index]
        new = [Node(0, count) for count in branch[0]]
        asked += zip(branch[0], new, strict=True)
        registers = [node_of(origin, registers, new) for origin in branch[1]]
    return [(count, node.value(pick)) for count, node in asked]


def ending(made: dict[str, Any], to: int | None, choose: Any) -> tuple[Any, int | None]:
    """A path from a state to an end, and its output; None where the certificate does not go on."""
    path: list[tuple[int, int]] = []
    while to is not None and to >= 0 and len(path) < 1_000_000:
        path.append((to, choose(made["states"][to])))
        to = made["states"][to]["branches"][path[-1][1]][2]
    return path, to


def path_through(made: dict[str, Any], number: int, index: int) -> tuple[Any, int | None]:
    """A path to an end that takes one branch of one state, and its output."""
    states, path, at = made["states"], [(number, index)], number
    while states[at]["via"] is not None and len(path) <= len(states):
        at, taken = states[at]["via"]
        path.insert(0, (at, taken))
    after, to = ending(made, states[number]["branches"][index][2], lambda s: s["onward"])
    return path + after, to


def check_runs(made: dict[str, Any], jobs: list[Any], function: Any) -> None:
    """Run the program on the coins of every path, and compare what it returns."""
    kwargs, tape = made["kwargs"], Tape()
    patch(tape, made["coins"])
    passed = set(made["coins"].split(",")) - {"", "random", "numpy"}
    kwargs = {k: value_of(v) for k, v in kwargs.items()} | dict.fromkeys(passed, tape)
    for (path, to), pick in jobs:
        if to is None or to >= 0:
            continue
        tape.coins, tape.used = coins_on(made, path, pick), 0
        try:
            found = written(function(*value_of(made["args"]), **kwargs))
        except Mismatch as error:
            raise Wrong(f"{error}, on the coins {tape.coins[:60]}") from None
        except Exception as error:  # noqa: BLE001 (the program's own)
            found = written(("raises", type(error).__name__))
        if (found, tape.used) != (made["outputs"][-1 - to], len(tape.coins)):
            raise Wrong(
                f"Python returns {found}, not {made['outputs'][-1 - to]}: {tape.coins[:60]}"
            )


def check(
    path: Path, *, run: bool = True, tapes: int = 2000, most: int = 100_000, seed: str = "1"
) -> dict[str, Any]:
    """Check a certificate: raises Wrong, or says what was checked. Running patches this process."""
    with gzip.open(path) as file:
        made = json.loads(file.read(1 << 29))  # one that is cut off is no JSON
    if made["certificate"] != "dpaudit-proof/1":
        raise ValueError(f"certificate={made['certificate']}: of another version")
    check_automaton(made)
    found = {"states": len(made["states"]), "residual": check_law(made)}
    every = [(n, i) for n, s in enumerate(made["states"]) for i in range(len(s["branches"]))]
    if run:
        function, chance = program(made), random.Random(seed)
        chosen = every if len(every) <= most else chance.sample(every, most)
        ends = min, lambda low, high: max(low, high - 1)
        jobs = [(path_through(made, n, i), ends[(n + i) % 2]) for n, i in chosen]

        def by_chance(state: Any) -> int:
            value = chance.randrange(*state["domains"][state["register"]])
            return bisect_right(state["cuts"], value)

        start, pick = made["first"][2], chance.randrange
        jobs += [(ending(made, start, by_chance), pick) for _ in range(tapes)]
        check_runs(made, jobs, function)
        found |= {"replayed": len(chosen), "tapes": tapes}
    return found | {"transitions": len(every), "program": made["program"]}
