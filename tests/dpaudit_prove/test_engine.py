"""The engine against an oracle that knows nothing of it: Python on every coin string."""

from __future__ import annotations

import bisect
import functools
import importlib.util
import inspect
import math
import warnings
from fractions import Fraction

import numpy as np
import pytest

from dpaudit.errors import RefusedProgramError
from dpaudit_prove.exploration import law as laws
from dpaudit_prove.exploration.engine import Exploration, explore
from dpaudit_prove.exploration.graph import branches_to, coins_of, likeliest_branches
from dpaudit_prove.exploration.law import SCALE_BITS, exact_visits, lower_visits
from dpaudit_prove.replay import replays
from tests.dpaudit_prove import oracle, programs


def coins_for(program) -> str:
    return "rng" if "rng" in inspect.signature(program).parameters else ""


@functools.cache
def explored(program) -> Exploration:
    return explore(program, coins=coins_for(program))


@pytest.mark.parametrize("program", programs.ALL, ids=lambda f: f.__name__)
def test_the_law_is_that_of_every_coin_string(program) -> None:
    expected, cut = oracle.law(program, coins=coins_for(program))
    assert cut == 0
    found = explored(program).law
    assert dict(found.mass) == expected
    assert found.residual == 0


@pytest.mark.parametrize("program", programs.ALL, ids=lambda f: f.__name__)
def test_python_follows_every_transition_on_its_coins(program) -> None:
    coins = coins_for(program)
    graph = explored(program).graph
    best = likeliest_branches(graph)
    with replays(program, (), {}, passed=[coins] if coins else []) as run:
        for number, state in enumerate(graph.states):
            before = branches_to(best, number)
            for branch in state.branches:
                after = branch
                path = [*before, branch]
                while after.to >= 0:  # to the end by the first branch
                    after = graph.states[after.to].branches[0]
                    path.append(after)
                for last in (False, True):
                    tape = coins_of(graph, path, last=last)
                    assert run(tape) == graph.outputs[-1 - after.to]


# ---------------------------------------------------------------- loops without a bound


def geometric(rng):
    k = 0
    while rng.getrandbits(1):
        k += 1
    return k


def rejection(rng):
    while (k := rng.getrandbits(3)) > 4:
        pass
    return k


def walk(rng):
    at = 2
    while 0 < at < 5:
        at += 1 if rng.randrange(3) else -1
    return at


def never_ends(rng):
    if rng.getrandbits(1):
        return 1
    while rng.getrandbits(1) in (0, 1):
        pass
    return 0


@pytest.mark.parametrize("program", [geometric, rejection, walk], ids=lambda f: f.__name__)
def test_loops_that_return_are_bounded_from_both_sides(program) -> None:
    seen, cut = oracle.law(program, least=Fraction(1, 4000))
    found = explore(program, coins="rng").law
    assert cut > 0
    assert found.residual <= Fraction(1, 1 << 40)
    for output, share in seen.items():
        assert share <= found.upper(output)
        assert found.lower(output) <= share + cut


def test_loops_with_finitely_many_states_are_solved_exactly() -> None:
    assert dict(explore(rejection, coins="rng").law.mass) == {k: Fraction(1, 5) for k in range(5)}
    law = explore(walk, coins="rng").law
    assert (law.mass[5], law.residual) == (Fraction(24, 31), 0)  # gambler's ruin, p = 2/3


def test_what_never_ends_stays_in_the_residual() -> None:
    law = explore(never_ends, coins="rng").law
    assert dict(law.mass) == {1: Fraction(1, 2)}
    assert law.residual == Fraction(1, 2)


def test_dead_variables_do_not_keep_states_apart() -> None:
    # per round: which junk; whether to stop, with 7 kept or not; kept is read only on the way out
    assert len(explore(programs.dead_variables, coins="rng").graph.states) == 9


def test_a_file_that_was_edited_after_its_import_is_refused(tmp_path) -> None:
    path = tmp_path / "edited_sampler.py"
    path.write_text("def draw(rng):\n    return rng.getrandbits(1)\n")
    spec = importlib.util.spec_from_file_location("edited_sampler", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    path.write_text("def draw(rng):\n    return rng.getrandbits(2)\n")
    with pytest.raises(RefusedProgramError, match=r"bytecode differs from"):
        explore(module.draw, coins="rng")


def test_the_callers_arguments_stay_as_they_are() -> None:
    given = [1, [2]]

    def grows(values, rng):
        values[1].append(rng.getrandbits(1))
        return len(values[1])

    assert explore(grows, (given,), coins="rng").law.lower(2) == 1
    assert given == [1, [2]]


# ---------------------------------------------------------------- monotone functions of a coin


def logarithms(rng):
    u = rng.getrandbits(7) / 128
    if u == 0:
        return "zero"
    return math.floor(-3 * math.log(u)), math.log2(u) < -2.5, math.ceil(math.log1p(-u / 2) * 4)


def logarithm_of_zero(rng):
    return math.log(rng.getrandbits(4) * 0.25 - 1) > 0.5


def numpy_logarithm_of_zero(rng):
    return int(np.floor(np.log(rng.getrandbits(4) * 0.25)))


def square_root_of_less(rng):
    try:
        return math.sqrt(rng.getrandbits(4) - 6) > 2
    except ValueError:
        return "refused"


def exponentials(rng):
    u = rng.getrandbits(7) / 32
    return math.exp(-u) < 0.3, int(math.expm1(u)), bool(np.exp(u) >= 7), math.exp(-u) >= 0.25


def bisection(rng):
    x = rng.getrandbits(6) / 16
    return bisect.bisect(ENDS, x), bisect.bisect_left(ENDS, x), bisect.bisect_right(ENDS, x, 1, 3)


ENDS = [0.25, 1.0, 1.0, 2.5]


MONOTONE = [
    logarithms, logarithm_of_zero, numpy_logarithm_of_zero, square_root_of_less, exponentials,
    bisection,
]  # fmt: skip


@pytest.mark.parametrize("program", MONOTONE, ids=lambda f: f.__name__)
def test_the_law_of_a_monotone_function_is_that_of_every_coin_string(program) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        expected = oracle.law(program)[0]
    found = explore(program, coins="rng").law
    assert dict(found.mass) == expected
    assert found.residual == 0


def test_a_coin_of_64_bits_stays_an_interval_in_a_logarithm() -> None:
    def inverted(rng):
        return math.floor(-2 * math.log((rng.getrandbits(64) + 0.5) * 2.0**-64))

    found = explore(inverted, coins="rng")
    assert len(found.graph.states) < 10
    assert 80 < len(found.law.mass) < 95
    assert abs(float(found.law.lower(0)) - (1 - math.exp(-0.5))) < 1e-15


# ------------------------- visits: exact where they can be, never above the truth elsewhere


def random_chain(seed: int, size: int = 40) -> list[tuple[int, int, int, int]]:
    chance = np.random.default_rng(seed)
    edges: dict[tuple[int, int], int] = {}
    for source in range(size):
        for _ in range(3):  # of 4 shares; the fourth leaves the chain
            to = int(chance.integers(size))
            edges[source, to] = edges.get((source, to), 0) + 1
    return [(s, t, n, 4) for (s, t), n in edges.items()]


@pytest.mark.parametrize("seed", range(5))
def test_the_two_solvers_agree_and_the_bounds_are_below(seed) -> None:
    edges = random_chain(seed)
    exact = exact_visits(40, 0, edges)
    lower = lower_visits(40, 0, edges)
    assert exact is not None
    for truth, bound in zip(exact, lower, strict=True):
        assert Fraction(bound, 1 << SCALE_BITS) <= truth
        assert truth - Fraction(bound, 1 << SCALE_BITS) < Fraction(1, 1 << 80)
    for state, visits in enumerate(exact):  # v = e + v·P, exactly
        arrived = sum((exact[s] * n / d for s, t, n, d in edges if t == state), Fraction(0))
        assert visits == arrived + (state == 0)


def test_what_floats_propose_too_high_is_lowered() -> None:
    edges = random_chain(7)
    exact = exact_visits(40, 0, edges)
    scale = 1 << SCALE_BITS
    proposed = [int(v * scale * Fraction(11, 10)) for v in exact]
    for truth, bound in zip(exact, laws._lower(proposed, 40, 0, edges, scale), strict=True):
        assert Fraction(bound, scale) <= truth


def test_a_chain_without_an_end_gives_nothing() -> None:
    edges = [(0, 1, 1, 2), (1, 1, 1, 1)]
    assert exact_visits(2, 0, edges) is None
    assert all(v >= 0 for v in lower_visits(2, 0, edges))
