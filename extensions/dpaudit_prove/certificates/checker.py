"""Checks a certificate of `dpaudit prove`; imports nothing of the prover, only Python's library.

A part is an automaton: a state decides in which interval one of its registers lies, asks for coins,
and goes on to a state or ends with an output. If `returned` is given, a call goes through all parts
in turn, one per value with coins of its own; else each part is a call. Checked are, exactly: 1. the
SHA-256 of the program's files; 2. in every state the registers are uniform and independent; 3. the
visits w satisfy w ≤ e + w·P, so they are lower bounds, and the law is what they give; 4. what is
said of δ(ε), dependence, the number of coins. By running the program: 5. every transition (a sample
above `most`) has the same coins and output; 6. so have n random tapes: Python and the parts differ
with probability ≤ ln(1000)/n (99.9 % confidence). Only 5 and 6 test that merged states are alike.
"""

from __future__ import annotations

import gzip
import hashlib
import importlib
import json
import math
import os
import random
import sys
from collections import defaultdict
from copy import deepcopy
from decimal import Context
from fractions import Fraction
from operator import attrgetter, floordiv, truediv
from pathlib import Path
from types import BuiltinMethodType, MethodType, ModuleType
from typing import Any


class Wrong(BaseException):  # so that no program catches it
    """The certificate does not hold; the message says where."""


def program(proof: dict[str, Any]) -> Any:
    """The function, loaded; its files must be those that the prover read."""
    for name, digest in proof["files"].items():
        if hashlib.sha256(Path(name).read_bytes()).hexdigest() != digest:
            raise Wrong(f"{name}: not the file that was proved")
    place, _, member = proof["program"].removeprefix("python:").rpartition(":")
    if "/" in place or place.endswith(".py"):
        sys.path.insert(0, str(Path(place).resolve().parent))
        place = Path(place).stem
    return attrgetter(member)(importlib.import_module(place))


def encode(x: Any) -> Any:
    """An output as the certificate writes it; equal numbers are written alike."""
    if isinstance(x, (tuple, list)) or type(x).__module__ == "numpy":
        return [encode(v) for v in x] if isinstance(x, (tuple, list)) else encode(x.tolist())
    if isinstance(x, float) and (math.isnan(x) or str(x) == "-0.0"):
        x = str(x)
    if isinstance(x, (int, float, Fraction)) and abs(x) != math.inf:
        return str(Fraction(x))
    return json.dumps(x) if isinstance(x, str) else f"{type(x).__name__} {x}"


class Node:
    """A coin that is uniform on [low, high), or the two independent parts of one."""

    def __init__(self, low: int, high: int) -> None:
        self.low, self.high, self.how, self.parts = low, high, (False, 0), list[Node]()

    def part(self, kind: str, m: int) -> Node:
        if not self.parts:
            self.how = (kind == "swap", m)
            if kind == "swap" and (self.low, self.high) == (0, 1 << 8 * m):
                self.parts = [Node(self.low, self.high)]
            elif kind in {"div", "mod"} and not self.low % m and not self.high % m:
                self.parts = [Node(self.low // m, self.high // m), Node(0, m)]
        if not self.parts or self.how != (kind == "swap", m):
            raise Wrong("a coin is divided so that its parts are not uniform and independent")
        return self.parts[kind == "mod"]

    def value(self, pick: Any) -> int:
        if not self.parts:
            return int(pick(self.low, self.high))
        values = [part.value(pick) for part in self.parts]
        if self.how[0]:
            return int.from_bytes(values[0].to_bytes(self.how[1], "little"), "big")
        return self.how[1] * values[0] + values[1]


def node_of(origin: list[Any], old: list[Node], new: list[Node]) -> Node:
    """The coin, or part of one, that a register is."""
    if origin[0] in {"register", "new"}:
        return (old if origin[0] == "register" else new)[int(origin[1])]
    return node_of(origin[1], old, new).part(origin[0], origin[2])


def check_automaton(part: dict[str, Any]) -> None:
    """Point 2: after every branch the registers are whole, different, and those of the state."""
    bits = part["bits"] or defaultdict(int)  # up to each state, and up to every end
    steps: list[Any] = [(part["first"], [], -1, (0, 1), 0)]
    for number, state in enumerate(part["states"]):
        (low, high), cuts = state["domains"][state["register"]], state["cuts"]
        pieces = state["pieces"] = list(zip([low, *cuts], [*cuts, high], strict=True))
        if state["register"] < 0 or any(type(b - a) is not int or a >= b for a, b in pieces):
            raise Wrong(f"state {number}: its intervals are not a partition of its register")
        for piece, branch in zip(pieces, state["branches"], strict=True):
            steps.append((branch, state["domains"], state["register"], piece, bits[number]))
    for (requests, origins, to), domains, register, piece, before in steps:
        old = [Node(*(piece if i == register else d)) for i, d in enumerate(domains)]
        new = [Node(0, count) for count in requests]
        nodes = [node_of(origin, old, new) for origin in origins]
        now = before + sum((count - 1).bit_length() for count in requests)
        if part["bits"] and (to is None or now != bits[max(to, -1)]):
            raise Wrong("bits: a path reads another number of them")
        if to is not None and to >= 0:
            whole = len({id(n) for n in nodes}) == len(nodes) and not any(n.parts for n in nodes)
            if not whole or [[n.low, n.high] for n in nodes] != part["states"][to]["domains"]:
                raise Wrong(f"state {to}: its registers are not uniform and independent there")


def check_law(part: dict[str, Any]) -> None:
    """Point 3."""
    one, divide = (Fraction(1), truediv) if part["exact"] else (1 << 160, floordiv)
    visits = [Fraction(w) if part["exact"] else int(w, 16) for w in part["visits"]]
    flow = defaultdict(type(one), {part["first"][2]: one})
    for state, w in zip(part["states"], visits, strict=True):
        low, high = state["domains"][state["register"]]
        for (a, b), branch in zip(state["pieces"], state["branches"], strict=True):
            flow[branch[2]] += divide(w * (b - a), high - low)
    if any(w < 0 or w > flow[number] for number, w in enumerate(visits)):
        raise Wrong("visits: a state is left more often than it is reached")
    outputs = map(json.dumps, part["outputs"])
    law = part["mass"] = {x: Fraction(flow[-1 - i]) / one for i, x in enumerate(outputs)}
    left = part["left"] = 1 - sum(law.values(), Fraction(0))
    if left < 0 or [*law.values(), left] != [*map(Fraction, [*part["law"], part["residual"]])]:
        raise Wrong("law: must follow from the visits and add up to 1 with the residual")


def check_shows(parts: list[Any], shows: dict[str, Any]) -> None:
    """Point 4: bounds of δ(ε) = sup P_a(S) − e^ε·P_b(S), a and b in either order; dependence."""

    def excess(first: dict[str, Any], second: dict[str, Any], ratio: Fraction) -> Fraction:
        gains = (p - ratio * second["mass"].get(x, 0) for x, p in first["mass"].items())
        return sum((gain for gain in gains if gain > 0), Fraction(0))

    for epsilon, low, high in shows.get("profile", ()):
        exact, digits = epsilon.startswith("ln("), Context(prec=90)  # Decimal rounds correctly
        x = Fraction(epsilon[3:-1] if exact else epsilon)
        ratio = x if exact else Fraction(digits.exp(digits.divide(*x.as_integer_ratio())))
        wide, ways = ratio * Fraction(not exact, 10**80), (parts, parts[::-1])
        lower = max(excess(a, b, ratio + wide) - (ratio + wide) * b["left"] for a, b in ways)
        upper = max(excess(a, b, ratio - wide) + a["left"] for a, b in ways)
        if Fraction(low) > max(lower, 0) or Fraction(high) < min(upper, 1):
            raise Wrong(f"profile: δ({epsilon}) is not within its bounds")
    if "dependence" in shows:  # total variation from the product of the marginals
        joint, marginals = parts[0], defaultdict[Any, Fraction](Fraction)
        rows = {x: list(enumerate(map(json.dumps, json.loads(x)))) for x in joint["mass"]}
        for x, row in rows.items():
            for key in row:
                marginals[key] += joint["mass"][x]
        ends = []
        for more in (joint["left"], 0):
            product = {x: math.prod(marginals[k] + more for k in r) for x, r in rows.items()}
            ends.append(excess(joint, {"mass": product}, Fraction(1)))
        low, high = map(Fraction, shows["dependence"])
        if low > ends[0] or high < min(ends[1] + joint["left"], 1):
            raise Wrong("dependence: not within its bounds")


class Tape(random.SystemRandom):
    """A generator that reads given coins, and remembers how many were asked for."""

    coins: list[tuple[int, int]]  # (how many values, which)
    used = 0

    def _randbelow(self, n: int) -> int:
        if n == 1:
            return 0
        if self.used >= len(self.coins) or self.coins[self.used][0] != n:
            raise Wrong(f"coin {self.used + 1}: Python asks for one of {n} values")
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
            bound = type(value) in (MethodType, BuiltinMethodType)
            if bound and isinstance(value.__self__, kinds):
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


def coins_on(part: dict[str, Any], path: list[tuple[int, int]], pick: Any) -> list[Any]:
    """Coins that take the branches of a path of (state, branch); the rest of each is picked."""
    coins, registers = list[tuple[int, Node]](), list[Node]()
    for number, index in [(-1, 0), *path]:
        branch = part["first"]
        if number >= 0:
            state = part["states"][number]
            branch, node = state["branches"][index], registers[state["register"]]
            node.low, node.high = state["pieces"][index]
        new = [Node(0, count) for count in branch[0]]
        coins += zip(branch[0], new, strict=True)
        registers = [node_of(origin, registers, new) for origin in branch[1]]
    return [(count, node.value(pick)) for count, node in coins]


def path_of(part: dict[str, Any], chance: random.Random, through: Any) -> tuple[Any, int | None]:
    """A path of (state, branch) to an end, and its output: by choice, or through one branch."""
    states, path, at = part["states"], list[Any](), through
    to = states[at[0]]["branches"][at[1]][2] if at else part["first"][2]
    while at and len(path) <= len(states):
        path, at = [at, *path], states[at[0]]["via"]
    while to is not None and to >= 0 and len(path) < 1_000_000:
        state = states[to]
        value = chance.randrange(*state["domains"][state["register"]])
        path.append((to, state["onward"] if through else sum(value >= c for c in state["cuts"])))
        to = state["branches"][path[-1][1]][2]
    return path, to


def check_runs(proof: dict[str, Any], jobs: list[Any], chance: random.Random) -> None:
    """Points 5 and 6: the program returns what its parts end with, on the coins of all of them."""
    function, tape, places = program(proof), Tape(), proof["returned"]
    patch(tape, proof["coins"])
    passed = set(proof["coins"].split(",")) - {"", "random", "numpy"}
    picks = min, lambda low, high: max(low, high - 1)
    for at, through in jobs:
        tape.coins, tape.used, ends = [], 0, []
        for part in [proof["parts"][at]] if places is None else proof["parts"]:
            here = through if part is proof["parts"][at] else ()
            path, to = path_of(part, chance, here)
            tape.coins += coins_on(part, path, picks[sum(here) % 2] if here else chance.randrange)
            ends.append(None if to is None or to >= 0 else part["outputs"][-1 - to])
        if None in ends:
            continue
        right = ends[0] if places is None else [ends[x] if type(x) is int else x for x in places]
        try:
            args, kwargs = deepcopy((proof["parts"][at]["args"], proof["kwargs"]))
            output = encode(function(*args, **kwargs | dict.fromkeys(passed, tape)))
        except Exception as error:  # noqa: BLE001 (the program's own)
            output = encode(("raises", type(error).__name__))
        if (output, tape.used) != (right, len(tape.coins)):
            raise Wrong(f"Python returns {output}, not {right}: {tape.coins[:60]}")


def check(
    path: Path, *, run: bool = True, tapes: int = 2000, most: int = 100_000, seed: str = "1"
) -> dict[str, Any]:
    """Check a certificate: raises Wrong, or says what was checked. Running patches this process."""
    with gzip.open(path) as file:
        text = file.read(1 << 29)  # one that is cut off is no JSON
    proof = json.loads(text, object_hook=lambda d: Fraction(d["/"]) if "/" in d else d)
    if proof["certificate"] != "dpaudit-proof/2":
        raise ValueError(f"certificate={proof['certificate']}: of another version")
    parts, values = proof["parts"], [x for x in proof["returned"] or () if type(x) is int]
    for part in parts:
        check_automaton(part)
        check_law(part)
    if len({*values}) < len(values) or not {*values} <= {*range(len(parts))}:
        raise Wrong("returned: a value is returned twice, or has no part")
    if set(proof["shows"]) - ({"profile", "dependence"} if proof["returned"] is None else set()):
        raise Wrong(f"shows: unknown entries: {proof['shows']}")
    check_shows(parts, proof["shows"])
    states = [(p, n, s) for p, part in enumerate(parts) for n, s in enumerate(part["states"])]
    steps = [(p, (n, i)) for p, n, s in states for i in range(len(s["branches"]))]
    facts: dict[str, Any] = {"states": len(states), "transitions": len(steps)}
    facts["residual"] = float(sum(part["left"] for part in parts))
    if run:
        chance = random.Random(seed)
        chosen = steps if len(steps) <= most else chance.sample(steps, most)
        check_runs(proof, [*chosen, *((i % len(parts), ()) for i in range(tapes))], chance)
        facts |= {"replayed": len(chosen), "tapes": tapes}
    facts["bits"] = [part["bits"] and part["bits"][-1] for part in parts]
    facts["arguments"] = [repr(part["args"]) for part in parts]
    return facts | {"program": proof["program"], "shows": proof["shows"], "values": len(values)}
