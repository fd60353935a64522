"""Coins of their own for every value, and the number of coins."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction

import pytest

from dpaudit_prove.exploration.engine import ProofOptions, explore
from dpaudit_prove.run import prove
from dpaudit_prove.verdicts.disjoint import coin_count
from tests.dpaudit_prove import oracle


def geometric(rng):
    k = 0
    while rng.randrange(3):
        k += 1
    return k


def in_a_list(rng):
    return [geometric(rng) for _ in range(3)]


def in_a_tuple(rng):
    return geometric(rng), 1 - rng.getrandbits(1)


def appended(rng):
    found = []
    for value in (5, 7):
        found.append(value + geometric(rng))  # noqa: PERF401
    return found


def assigned(rng):
    found = [None, None]
    found[1] = rng.randrange(3)
    found[0] = rng.randrange(2)
    return found


def two_calls(rng):
    first = geometric(rng)
    second = draw_bit(rng)
    return second, first


def draw_bit(rng):
    return rng.getrandbits(1)


INDEPENDENT = [in_a_list, appended, assigned, two_calls]


def pancake(rng):
    """A LAB SPECIMEN: two values whose sum is hidden on a lattice."""
    while True:
        values = [rng.randrange(4), rng.randrange(4)]
        if (values[0] + values[1]) % 3 == 0:
            return values


def seed_in_noise(rng):
    """A LAB SPECIMEN: the second value is a function of the first."""
    nonce = rng.randrange(8)
    return nonce, (5 * nonce + 3) % 8


def value_dependent(rng):
    first = rng.randrange(3)
    return first, rng.randrange(2 if first else 3)


def reused_bit(rng):
    bits = rng.getrandbits(3)
    return bits & 3, bits >> 1


def one_value_twice(rng):
    values = [rng.randrange(4)]
    values.append(values[0])
    return values


def side_variable(rng):
    k = rng.randrange(3)
    values = [(5, 6, 7)[k]]
    values.append(rng.randrange(3 if k else 2))
    return values


def parity(rng):
    a, b = rng.getrandbits(1), rng.getrandbits(1)
    return a, b, a ^ b


DEPENDENT = [
    side_variable,
    pancake,
    seed_in_noise,
    value_dependent,
    reused_bit,
    one_value_twice,
    parity,
]


def looks_back(rng):
    """Independent, but the program looks at its first value: not shown."""
    values = [rng.randrange(2)]
    if values[0] > 5:
        return values
    values.append(rng.randrange(2))
    return values


def looks_back_at_a_tail(rng):
    """The same, without an end."""
    values = [geometric(rng)]
    if values[0] < 0:
        return values
    values.append(geometric(rng))
    return values


def steady(rng):
    return rng.getrandbits(3) + rng.randrange(5)


def rejected(rng):
    while (k := rng.getrandbits(2)) == 3:
        pass
    return k


def slow_for_zero(rng):
    if rng.getrandbits(1):
        rng.getrandbits(7)
        return 0
    return 1


def slow_on_its_own(rng):
    for _ in range(rng.randrange(2)):
        rng.getrandbits(1)
    return rng.getrandbits(1)


OPTIONS = ProofOptions(coins="rng", disjoint=True)


def asked(program, claim=None, options=OPTIONS):
    return prove(
        program, program=f"python:test_vectors:{program.__name__}", claim=claim, options=options
    )


@pytest.mark.parametrize("program", INDEPENDENT, ids=lambda f: f.__name__)
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


@pytest.mark.parametrize("program", DEPENDENT, ids=lambda f: f.__name__)
def test_values_that_share_coins_are_refuted_by_their_joint_law(program) -> None:
    result = asked(program).result
    assert (result.verdict, result.disjoint) == ("refuted", "refuted")
    assert result.counterexample is not None
    assert program is not seed_in_noise or "coin 1 alone changed" in result.counterexample.says


def test_a_program_that_looks_at_what_it_returns_is_judged_by_its_joint_law() -> None:
    result = asked(looks_back).result
    assert (result.verdict, result.disjoint) == ("proved", "shown")
    assert "the product of their laws, up to 0" in result.reason
    wrong = asked(looks_back, "bernoulli:p=1/3").result
    assert (wrong.verdict, wrong.disjoint) == ("refuted", "shown")
    assert wrong.counterexample.output.startswith("(")


def test_a_joint_law_with_a_large_residual_decides_nothing() -> None:
    options = replace(OPTIONS, residual=Fraction(1, 8), tolerance=Fraction(1, 8))
    result = asked(looks_back_at_a_tail, options=options).result
    assert (result.verdict, result.disjoint) == ("undecided", "not shown")


def test_each_value_is_compared_with_the_claim() -> None:
    fine = asked(in_a_list, "geometric:p=1/3").result
    assert (fine.verdict, fine.disjoint) == ("proved", "shown")
    assert fine.total_variation.high <= 2.0**-38
    wrong = asked(in_a_list, "geometric:p=1/2").result
    assert (wrong.verdict, wrong.disjoint) == ("refuted", "shown")
    assert wrong.total_variation.low == pytest.approx(7 / 36, abs=1e-9)  # 1/6 at 0, 1/36 at 1


def test_a_constant_number_of_coins_is_shown() -> None:
    count = coin_count(explore(steady, coins="rng"))
    assert (count.constant, count.least) == (6, 6)
    result = asked(steady, "uniform:low=0,high=1", ProofOptions(coins="rng")).result
    assert result.coin_count.constant == 6


@pytest.mark.parametrize(
    ("program", "least", "information"),
    [(rejected, 2, 0.0), (slow_for_zero, 1, 1.0), (slow_on_its_own, 2, 0.0)],
    ids=lambda f: getattr(f, "__name__", str(f)),
)
def test_the_number_of_coins_tells_as_much_as_it_does(program, least, information) -> None:
    count = coin_count(explore(program, coins="rng"), information=True)
    assert (count.constant, count.least) == (None, least)
    assert count.information.low == pytest.approx(information, abs=1e-6)
    assert count.information.low <= information <= count.information.high
