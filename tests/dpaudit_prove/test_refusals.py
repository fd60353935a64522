# ruff: noqa: B006, C416, RET503, RUF012, RUF015, SIM115
"""What cannot be followed is refused where it is reached; the rest of the proof goes on."""

from __future__ import annotations

import collections
import dataclasses
import functools
import math
import os
import random
import threading
import time
import types
from fractions import Fraction

import numpy as np
import pytest

from dpaudit.errors import RefusedProgramError, UsageError
from dpaudit.numeric.exact_integers import IntegerLaw
from dpaudit_prove.exploration.engine import ProofOptions, explore
from dpaudit_prove.exploration.graph import Graph
from dpaudit_prove.run import prove, prove_law
from dpaudit_prove.verdicts.claims import ClaimedLaw
from dpaudit_prove.verdicts.distances import distance
from tests.data.prove.references import Trials

PLACE = "test_refusals.py:"
LOST = Fraction(1, 8)
THEN = 5


SEEN: list = []
COUNTER = NUMBER = 0
GENERATOR = random.Random(1)
NUMPY = np.random.default_rng(1)


def hidden_state():
    return GENERATOR.random() < 0.5


def module_random():
    return random.random() < 0.5


def numpy_state():
    return NUMPY.integers(3)


def remembers(rng):
    SEEN.append(rng.getrandbits(1))
    return len(SEEN)


def global_counter(rng):
    global COUNTER
    COUNTER += 1
    return COUNTER + rng.getrandbits(1)


def mutable_default(rng, seen=[]):
    seen.append(rng.getrandbits(1))
    return sum(seen)


def remembering():
    count = 0

    def draw(rng):
        nonlocal count
        count += 1
        return count + rng.getrandbits(1)

    return draw


@functools.lru_cache
def cached(rng):
    return rng.getrandbits(1)


def abandoned_generator(rng):
    def steps():
        try:
            yield rng.getrandbits(1)
        finally:
            rng.getrandbits(1)

    for bit in steps():
        return bit


class Dying:
    def __del__(self):
        SEEN.append(1)


class Odd(type):
    def __instancecheck__(cls, other):
        return bool(SEEN)


class Checked(metaclass=Odd):
    total = []


@pytest.mark.parametrize(
    ("program", "says"),
    [
        (lambda rng: 10**10**9 & rng.getrandbits(1), "**: a number of about"),
        (lambda rng: 1 << (10**11 | rng.getrandbits(1)), "<<: a number of about"),
        (lambda rng: sum(range(10**11)) & rng.getrandbits(1), "sum: 100000000000 items"),
        (lambda rng: math.factorial(10**8) & rng.getrandbits(1), "factorial: up to"),
        (lambda rng: len([0] * 10**11) & rng.getrandbits(1), "*: 100000000000 copies"),
        (lambda: int(time.time()) % 2, "time"),
        (lambda: id(object()) % 2, "id"),
        (lambda: hash("x") % 2, "hash"),
        (lambda: open("/dev/null").read(), "open"),
        (lambda: os.getpid() % 2, "getpid"),
        (lambda: threading.get_ident() % 2, "get_ident"),
        (hidden_state, "--coins random"),
        (module_random, "--coins random"),
        (numpy_state, "--coins numpy"),
        (lambda: random.Random(7).random() < 0.5, "Random"),
        (remembers, "outlives the call"),
        (global_counter, "global variable COUNTER"),
        (mutable_default, "outlives the call"),
        (remembering(), "closure variable count"),
        (lambda rng: cached(3), "cached"),
        (lambda rng: [x for x in {"a", "b", "c"}][0], "order of a set"),
        (lambda rng: list({rng.randrange(3), "x"}), "order of a set"),
        (lambda rng: int(9 * math.cos(rng.random())), "coin with"),
        (lambda rng: rng.getrandbits(64) ^ 5, "coin with"),
        (lambda rng: eval("rng.getrandbits(1)"), "eval"),
        (lambda rng: len(globals()) + rng.getrandbits(1), "globals"),
        (lambda rng: print("x"), "print"),
        (lambda rng: rng.getrandbits(1) is NUMBER, "'is'"),
        (abandoned_generator, "yield inside try"),
        (lambda rng: Dying() and rng.getrandbits(1), "__del__"),
        (lambda rng: float(rng.getrandbits(2000)) < 3, "some values of a coin"),
        (lambda rng: isinstance(rng.getrandbits(1), Checked), "isinstance with Checked"),
        (lambda rng: Checked.total.append(rng.getrandbits(1)), "outlives the call"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_is_no_function_of_the_coins_is_refused_by_name(program, says) -> None:
    with pytest.raises(RefusedProgramError, match=r"test_refusals\.py:\d+") as caught:
        explore(program, coins="rng" if program.__code__.co_argcount else "")
    assert says in str(caught.value)


def test_constants_of_a_set_may_lie_in_any_order_and_must_be_those_of_the_file() -> None:
    """0 and 8 share a place: which comes first is decided by who came first into the set."""
    program = lambda rng: rng.randrange(9) in {0, 8}  # noqa: E731

    def with_set(*items):
        consts = (frozenset(items) if isinstance(c, frozenset) else c for c in code.co_consts)
        return types.FunctionType(code.replace(co_consts=tuple(consts)), globals())

    code = program.__code__
    assert repr(frozenset([0, 8])) != repr(frozenset([8, 0]))
    laws = [explore(with_set(*items), coins="rng").law.mass for items in ((0, 8), (8, 0))]
    assert laws[0] == laws[1]
    with pytest.raises(RefusedProgramError, match="bytecode differs"):
        explore(with_set(0, 7), coins="rng")


def test_generators_with_hidden_state_can_be_taken_as_coins() -> None:
    half = {True: Fraction(1, 2), False: Fraction(1, 2)}
    assert dict(explore(hidden_state, coins="random").law.mass) == half
    assert dict(explore(module_random, coins="random").law.mass) == half
    thirds = dict.fromkeys(range(3), Fraction(1, 3))
    assert dict(explore(numpy_state, coins="numpy").law.mass) == thirds


def matches(rng):
    x = rng.getrandbits(3)
    if x == 5:
        match {x: 1}:
            case {5: n}:
                return n
    return x & 1


def counts(rng):
    x = rng.getrandbits(3)
    if x == 5:
        collections.Counter([x])
    return x & 1


def makes_a_class(rng):
    x = rng.getrandbits(3)
    if x == 5:

        class Made:
            pass

    return x & 1


def awaits(rng):
    x = rng.getrandbits(3)
    if x == 5:

        async def later():
            return 1

    return x & 1


def prints(rng):
    x = rng.getrandbits(3)
    if x == 5:
        rng.getrandbits(9)
        print("five")
    return x & 1


def returns_a_dict(rng):
    x = rng.getrandbits(3)
    return {} if x == 5 else x & 1


def loops_without_end(rng):
    x = rng.getrandbits(3)
    while x == 5:
        pass
    return x & 1


@pytest.mark.parametrize(
    ("program", "says"),
    [
        (matches, "use `in` and an if"),
        (counts, "collections.Counter"),
        (makes_a_class, "the statement ClassDef"),
        (awaits, "the statement AsyncFunctionDef"),
        (prints, "print: it has an effect"),
        (returns_a_dict, "output=dict"),
        (loops_without_end, "steps without a decision"),
    ],
)
def test_one_branch_is_refused_with_its_probability(program, says, monkeypatch) -> None:
    monkeypatch.setattr("dpaudit_prove.interpreter.execution._LONGEST", 2000)
    found = explore(program, coins="rng")
    assert dict(found.law.mass) == {0: Fraction(1, 2), 1: Fraction(3, 8)}
    assert found.law.residual == LOST
    [refusal] = found.refusals
    assert refusal.probability == LOST
    assert says in refusal.reason
    assert (PLACE in refusal.reason) == (program is not returns_a_dict)
    assert found.finished
    assert len(found.graph.states) == found.law.states + 1


def test_names_of_a_refused_statement_are_local_as_in_python() -> None:
    def reads_too_early(rng):
        if rng.getrandbits(1):
            return THEN  # noqa: F823 (local, by the match below)
        match {1: 1}:
            case {1: THEN}:
                return THEN

    found = explore(reads_too_early, coins="rng")
    assert dict(found.law.mass) == {("raises", "UnboundLocalError"): Fraction(1, 2)}


class Raising:
    value = 2

    @property
    def missing(self):
        raise AttributeError("missing")


@pytest.mark.parametrize(
    "program",
    [
        lambda rng: rng.getrandbits(1) if hasattr(Raising(), "missing") else 5,
        lambda rng: rng.getrandbits(1) + getattr(Raising(), "missing", 5),
    ],
)
def test_a_property_may_raise_what_would_mean_that_there_is_none(program) -> None:
    with pytest.raises(RefusedProgramError, match="hasattr of a property"):
        prove_law(program, coins="rng")
    assert prove_law(lambda: (hasattr(Raising(), "value"), getattr(Raising(), "no", 5))).mass == {
        (True, 5): 1
    }


def test_what_is_never_reached_does_not_matter() -> None:
    def careful(rng):
        if rng.getrandbits(2) > 3:
            match 1:
                case _:
                    print(1)
        return 1

    assert dict(prove_law(careful, coins="rng").mass) == {1: 1}


def rare(rng, bits=60):
    x = rng.getrandbits(bits)
    if x == 5:
        print(x)
    return x & 1


def test_a_branch_below_the_residual_does_not_stop_a_proof() -> None:
    proof = prove(rare, program="p", claim="bernoulli:p=1/2", options=ProofOptions(coins="rng"))
    assert proof.result.verdict == "proved"
    assert proof.result.residual <= 2.0**-40
    assert "; not followed, with probability at least 8.673e-19: " in proof.result.reason
    assert prove_law(rare, coins="rng").residual <= Fraction(1, 2**40)


def test_our_discrete_gaussian_is_proved_although_numbers_beyond_its_tables_are_not_followed():
    trials = Trials.of(IntegerLaw.gaussian(1.0))

    def draw(coins):
        return trials.draw(coins)

    found = explore(draw, coins="coins")
    assert found.finished
    assert found.law.residual < Fraction(1, 1 << 64)
    assert found.refusals
    assert all("exact_integers.py:" in refusal.reason for refusal in found.refusals)
    bounds = distance(found.law, ClaimedLaw.parse("discrete-gaussian:sigma=1")).total_variation
    assert bounds.upper < Fraction(1, 1 << 64)


@pytest.mark.parametrize(("claim", "verdict"), [("1/2", "undecided"), ("1/3", "refuted")])
def test_a_likely_branch_leaves_open_only_what_depends_on_it(claim, verdict) -> None:
    options = ProofOptions(coins="rng", kwargs={"bits": 6})
    result = prove(rare, program="p", claim=f"bernoulli:p={claim}", options=options).result
    assert result.verdict == verdict
    assert "not followed, with probability at least 0.01562: " in result.reason
    assert f"{PLACE}" in result.reason
    assert (result.counterexample is None) == (verdict == "undecided")
    with pytest.raises(RefusedProgramError, match="print: it has an effect"):
        prove_law(rare, coins="rng", bits=6)


def test_an_endless_loop_beside_a_refusal_ends() -> None:
    def loops(rng):
        k = 0
        while rng.getrandbits(1):
            k += 1
            if k == 3 and rng.getrandbits(1):
                print(k)
        return k

    found = explore(loops, coins="rng")
    assert found.finished
    assert found.refusals[0].probability == Fraction(1, 16)
    assert found.law.residual - Fraction(1, 16) < Fraction(1, 1 << 40)


def test_what_is_reached_at_once_keeps_its_error() -> None:
    def only_a_dict(rng):
        return {rng.getrandbits(1): 1}

    with pytest.raises(UsageError, match="output=dict"):
        explore(only_a_dict, coins="rng")

    def only_prints(rng):
        print(rng.getrandbits(2))

    with pytest.raises(RefusedProgramError, match="effect"):
        explore(only_prints, coins="rng")


def test_a_graph_on_its_own_refuses_the_whole_program() -> None:
    graph = Graph(explore(matches, coins="rng").graph.machine)
    graph.begin(lambda: matches(random.SystemRandom()), (), {})
    with pytest.raises(RefusedProgramError, match="mapping"):
        graph.explore(residual=0.0)


@dataclasses.dataclass(order=True)
class Ranked:
    score: int


def test_a_comparison_that_only_looks_like_a_dataclass_one_is_refused() -> None:
    names: dict[str, object] = {"random": random}
    code = "def __lt__(self, other):\n    return random.random() < 0.5"
    exec(compile(code, "<nowhere>", "exec"), names)  # <string> is the script of `python -c`

    def ordered(rng):
        return Ranked(rng.getrandbits(1)) < Ranked(1)

    assert dict(explore(ordered, coins="rng").law.mass) == {False: LOST * 4, True: LOST * 4}
    Ranked.__lt__ = names["__lt__"]  # type: ignore[method-assign]
    with pytest.raises(RefusedProgramError, match="its source"):
        explore(ordered, coins="rng")


def test_what_wraps_and_sorting_by_a_key_would_hide_is_refused() -> None:
    def outlives(rng):
        return functools.wraps(counts)(matches)(rng)

    with pytest.raises(RefusedProgramError, match="outlives the call"):
        explore(outlives, coins="rng")

    def no_order(rng):
        items = [rng.getrandbits(1), 2]
        try:
            items.sort(key=lambda i: i or "a")
        except TypeError:
            return items[0]
        return 5

    found = explore(no_order, coins="rng")
    assert dict(found.law.mass) == {5: Fraction(1, 2)}
    assert "no order" in found.refusals[0].reason


class Noisy(list):
    def __getitem__(self, index):
        return random.getrandbits(1)

    def __len__(self):
        return random.getrandbits(3)

    def __iter__(self):
        return iter([random.getrandbits(1)])

    def __contains__(self, item):
        return bool(random.getrandbits(1))

    def __add__(self, other):
        return [random.getrandbits(1)]


class Pair(collections.namedtuple("Pair", "a b")):
    def __eq__(self, other):
        return bool(random.getrandbits(1))

    __hash__ = None


class Loud(Exception):
    def __str__(self):
        return str(random.getrandbits(1))


NOISY = Noisy([1])
PAIR = Pair(1, 2)
MISSING = collections.defaultdict(lambda: random.getrandbits(1))


@pytest.mark.parametrize(
    "program",
    [
        lambda: NOISY[0],
        lambda: len(NOISY),
        lambda: [x for x in NOISY],
        lambda: 1 in NOISY,
        lambda: NOISY + [1],  # noqa: RUF005
        lambda: 1 if NOISY else 0,
        lambda: sum(NOISY),
        lambda: sorted(NOISY),
        lambda: NOISY == [1],
        lambda: PAIR == (1, 2),
        lambda: MISSING[3],
        lambda: str(Loud()),
        lambda: f"{Loud()}",
    ],
)
def test_python_code_in_a_container_never_runs_unseen(program) -> None:
    with pytest.raises(RefusedProgramError):
        explore(program)
