"""The engine against an oracle that knows nothing of it: Python on every coin string."""

from __future__ import annotations

import functools
import importlib.util
import inspect
from fractions import Fraction

import pytest

from dpaudit.errors import RefusedProgramError
from dpaudit.prove.exploration.engine import Exploration, explore
from dpaudit.prove.exploration.paths import branches_to, coins_of, likeliest_branches
from dpaudit.prove.replay import replays
from tests.dpaudit.prove import oracle, programs, unbounded


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


@pytest.mark.parametrize(
    "program", [unbounded.geometric, unbounded.rejection, unbounded.walk], ids=lambda f: f.__name__
)
def test_loops_that_return_are_bounded_from_both_sides(program) -> None:
    seen, cut = oracle.law(program, least=Fraction(1, 4000))
    found = explore(program, coins="rng").law
    assert cut > 0
    assert found.residual <= Fraction(1, 1 << 40)
    for output, share in seen.items():
        assert share <= found.upper(output)
        assert found.lower(output) <= share + cut


def test_loops_with_finitely_many_states_are_solved_exactly() -> None:
    assert dict(explore(unbounded.rejection, coins="rng").law.mass) == {
        k: Fraction(1, 5) for k in range(5)
    }
    walk = explore(unbounded.walk, coins="rng").law
    assert (walk.mass[5], walk.residual) == (Fraction(24, 31), 0)  # gambler's ruin, p = 2/3


def test_what_never_ends_stays_in_the_residual() -> None:
    law = explore(unbounded.never_ends, coins="rng").law
    assert dict(law.mass) == {1: Fraction(1, 2)}
    assert law.residual == Fraction(1, 2)


def test_dead_variables_do_not_keep_states_apart() -> None:
    # per round: which junk; whether to stop, with 7 kept or not; kept is read only on the way out
    assert len(explore(programs.dead_variables, coins="rng").graph.states) == 9


@pytest.mark.parametrize(
    "program", unbounded.REFUSED, ids=lambda f: getattr(f, "__name__", "closure")
)
def test_what_is_no_function_of_the_coins_is_refused_by_name(program) -> None:
    coins = coins_for(program)
    with pytest.raises(RefusedProgramError, match=r"unbounded\.py:\d+") as caught:
        explore(program, coins=coins)
    assert unbounded.REFUSED[program] in str(caught.value)


def test_generators_with_hidden_state_can_be_taken_as_coins() -> None:
    half = {True: Fraction(1, 2), False: Fraction(1, 2)}
    assert dict(explore(unbounded.hidden_state, coins="random").law.mass) == half
    assert dict(explore(unbounded.module_random, coins="random").law.mass) == half
    thirds = dict.fromkeys(range(3), Fraction(1, 3))
    assert dict(explore(unbounded.numpy_state, coins="numpy").law.mass) == thirds


def test_a_file_that_was_edited_after_its_import_is_refused(tmp_path) -> None:
    path = tmp_path / "edited_sampler.py"
    path.write_text("def draw(rng):\n    return rng.getrandbits(1)\n")
    spec = importlib.util.spec_from_file_location("edited_sampler", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    path.write_text("def draw(rng):\n    return rng.getrandbits(2)\n")
    with pytest.raises(RefusedProgramError, match=r"not what .* says"):
        explore(module.draw, coins="rng")


def test_the_callers_arguments_stay_as_they_are() -> None:
    given = [1, [2]]

    def grows(values, rng):
        values[1].append(rng.getrandbits(1))
        return len(values[1])

    assert explore(grows, (given,), coins="rng").law.lower(2) == 1
    assert given == [1, [2]]
