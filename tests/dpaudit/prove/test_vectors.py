"""Coins of their own for every value, and the number of coins."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction

import pytest

from dpaudit.prove.exploration.engine import explore
from dpaudit.prove.questions import ProofOptions
from dpaudit.prove.run import prove
from dpaudit.prove.verdicts.coin_count import coin_count
from tests.dpaudit.prove import oracle, vectors

OPTIONS = ProofOptions(coins="rng", disjoint=True)


def asked(program, claim=None, options=OPTIONS):
    return prove(
        program, program=f"python:vectors:{program.__name__}", claim=claim, options=options
    )


@pytest.mark.parametrize("program", vectors.INDEPENDENT, ids=lambda f: f.__name__)
def test_values_with_coins_of_their_own_are_proved_independent(program) -> None:
    result = asked(program).result
    assert (result.verdict, result.disjoint) == ("proved", "shown")
    joint, cut = oracle.law(program, least=Fraction(1, 3000))
    marginals = [{} for _ in next(iter(joint))]
    for row, share in joint.items():
        for place, value in zip(marginals, row, strict=True):
            place[value] = place.get(value, 0) + share
    for row, share in joint.items():  # the oracle's joint law is a product too, as far as it goes
        exact = math.prod(m[v] for m, v in zip(marginals, row, strict=True))
        assert abs(share - exact) <= len(row) * cut + Fraction(1, 1 << 30)


@pytest.mark.parametrize("program", vectors.DEPENDENT, ids=lambda f: f.__name__)
def test_values_that_share_coins_are_refuted_by_their_joint_law(program) -> None:
    result = asked(program).result
    assert (result.verdict, result.disjoint) == ("refuted", "refuted")
    assert result.counterexample is not None


def test_a_seed_shows_in_two_coin_strings_that_differ_in_one_coin() -> None:
    result = asked(vectors.seed_in_noise).result
    assert "coin 1 alone changed" in result.counterexample.says


def test_a_program_that_looks_at_what_it_returns_is_judged_by_its_joint_law() -> None:
    result = asked(vectors.looks_back).result
    assert (result.verdict, result.disjoint) == ("proved", "shown")
    assert "the product of their laws, up to 0" in result.reason
    wrong = asked(vectors.looks_back, "bernoulli:p=1/3").result
    assert (wrong.verdict, wrong.disjoint) == ("refuted", "shown")
    assert wrong.counterexample.output.startswith("(")


def test_a_joint_law_with_a_large_residual_decides_nothing() -> None:
    options = replace(OPTIONS, residual=Fraction(1, 8), tolerance=Fraction(1, 8))
    result = asked(vectors.looks_back_at_a_tail, options=options).result
    assert (result.verdict, result.disjoint) == ("undecided", "not shown")


def test_each_value_is_compared_with_the_claim() -> None:
    fine = asked(vectors.in_a_list, "geometric:p=1/3").result
    assert (fine.verdict, fine.disjoint) == ("proved", "shown")
    assert fine.total_variation.high <= 2.0**-38
    wrong = asked(vectors.in_a_list, "geometric:p=1/2").result
    assert (wrong.verdict, wrong.disjoint) == ("refuted", "shown")
    assert wrong.total_variation.low == pytest.approx(7 / 36, abs=1e-9)  # 1/6 at 0, 1/36 at 1


def test_a_constant_number_of_coins_is_shown() -> None:
    count = coin_count(explore(vectors.steady, coins="rng"))
    assert (count.constant, count.least) == (6, 6)


@pytest.mark.parametrize(
    ("program", "least", "information"),
    [
        (vectors.rejected, 2, 0.0),
        (vectors.slow_for_zero, 1, 1.0),
        (vectors.slow_on_its_own, 2, 0.0),
    ],
    ids=lambda f: getattr(f, "__name__", str(f)),
)
def test_the_number_of_coins_tells_as_much_as_it_does(program, least, information) -> None:
    count = coin_count(explore(program, coins="rng"), information=True)
    assert (count.constant, count.least) == (None, least)
    assert count.information.low == pytest.approx(information, abs=1e-6)
    assert count.information.low <= information <= count.information.high


def test_a_law_says_whether_its_number_of_coins_is_constant() -> None:
    result = asked(vectors.steady, "uniform:low=0,high=1", ProofOptions(coins="rng")).result
    assert result.coin_count.constant == 6
