"""Certified probabilities of claimed laws, distances and privacy profiles, against oracles."""

from __future__ import annotations

import itertools
import math
import random
from fractions import Fraction
from types import ModuleType

import mpmath
import pytest

from dpaudit.errors import MissingExtraError, UnknownNameError, UsageError
from dpaudit_prove.exploration.law import ExactLaw
from dpaudit_prove.verdicts import enclosures
from dpaudit_prove.verdicts.claims import ClaimedLaw
from dpaudit_prove.verdicts.distances import Epsilon, distance, epsilon_at, judge, profile
from dpaudit_prove.verdicts.enclosures import Bounds, exp_bounds, log_bounds

F = Fraction


@pytest.fixture(scope="module")
def mp() -> ModuleType:
    mpmath.mp.dps = 110
    return mpmath


def law(*masses: tuple[object, Fraction], residual: Fraction | int = 0) -> ExactLaw:
    return ExactLaw(mass=dict(masses), residual=F(residual), states=1)


def holds(bounds: Bounds, value: mpmath.mpf, *, width: float = 1e-50) -> bool:
    low, high = (mpmath.mpf(b.numerator) / b.denominator for b in (bounds.lower, bounds.upper))
    slack = abs(value) * mpmath.mpf(10) ** -75
    return bool(low - slack <= value <= high + slack and high - low <= width * abs(value))


def test_probabilities_hold_those_of_mpmath(mp: ModuleType) -> None:
    def gaussian(k: int, variance: Fraction) -> mpmath.mpf:
        v = mp.mpf(variance.numerator) / variance.denominator
        total = 1 + 2 * mp.fsum(mp.exp(-mp.mpf(i * i) / (2 * v)) for i in range(1, 400))
        return mp.exp(-mp.mpf(k * k) / (2 * v)) / total

    q = mp.exp(-mp.mpf(2) / 3)
    half = mp.exp(mp.mpf(1) / 2)
    scores = [mp.exp(mp.mpf(s) / 2) for s in (0, 1, 3)]
    cases = [
        ("discrete-gaussian:sigma=1", 3, gaussian(3, F(1))),
        ("discrete-gaussian:sigma=0.1", 1, gaussian(1, F(1, 100))),
        ("discrete-gaussian:sigma=7.3", -40, gaussian(40, F("53.29"))),
        ("discrete-gaussian:variance=3", 0, gaussian(0, F(3))),
        ("discrete-laplace:scale=3/2", -5, (1 - q) / (1 + q) * q**5),
        ("geometric:rate=2/3", 4, (1 - q) * q**4),
        ("bernoulli:rate=2/3", 1, q),
        ("bernoulli:rate=2/3", 0, 1 - q),
        ("randomized-response:epsilon=0.5,categories=4,value=2", 2, half / (half + 3)),
        ("randomized-response:epsilon=0.5,categories=4,value=2", 0, 1 / (half + 3)),
        ("exponential-mechanism:scores=0:1:3,epsilon=1", 2, scores[2] / sum(scores)),
        ("exponential-mechanism:scores=0:2:6,epsilon=1,sensitivity=2", 1, scores[1] / sum(scores)),
        ("discrete-laplace:scale=3/2,dim=2", (1, -2), ((1 - q) / (1 + q)) ** 2 * q**3),
    ]
    for text, output, value in cases:
        assert holds(ClaimedLaw.parse(text).probability(output), value), text


@pytest.mark.parametrize(
    ("text", "output", "value"),
    [
        ("geometric:p=0.1", 2, F(81, 1000)),
        ("bernoulli:p=1/3", True, F(1, 3)),
        ("uniform:low=-1,high=4", -1, F(1, 6)),
        ("uniform:high=1", 1, F(1, 2)),
        ("categorical:weights=1:2:4", 1, F(2, 7)),
        ("randomized-response:truth=3/4,categories=3", 1, F(1, 8)),
        ("bernoulli:p=1/3,dim=2", (0, 1.0), F(2, 9)),
    ],
)
def test_rational_laws_are_exact(text: str, output: object, value: Fraction) -> None:
    assert ClaimedLaw.parse(text).probability(output) == Bounds(value, value)


@pytest.mark.parametrize("output", [0.5, "0", None, (1,), F(1, 3), float("inf")])
def test_an_output_outside_the_support_has_probability_0(output: object) -> None:
    for family in ("discrete-gaussian:sigma=1", "uniform:high=3", "geometric:p=1/2"):
        assert ClaimedLaw.parse(family).probability(output) == Bounds(F(0), F(0))


@pytest.mark.parametrize(
    ("text", "error", "word"),
    [
        ("discrete-gauss:sigma=1", UnknownNameError, "discrete-gaussian"),
        ("discrete-gaussian:sigma=1,mean=0", UnknownNameError, "mean"),
        *(
            (f"discrete-gaussian{options}", UsageError, word)
            for options, word in (
                ("", "sigma"),
                (":sigma=1,variance=1", "one only"),
                (":sigma=0", "above 0"),
                (":sigma=1e9", "at most"),
                (":sigma=1e999999999", "number"),
                (":sigma=1,sigma=2", "twice"),
            )
        ),
        ("discrete-laplace:scale=1/0", UsageError, "number"),
        ("discrete-laplace:scale=nan", UsageError, "number"),
        ("bernoulli:p=3/2", UsageError, "at most 1"),
        ("bernoulli:p=-1/2", UsageError, "probability"),
        ("uniform:low=3,high=2", UsageError, "from 3"),
        ("uniform:high=2.5", UsageError, "whole"),
        ("categorical:weights=0:0", UsageError, "weights"),
        ("categorical:weights=1:-1", UsageError, "weights"),
        ("geometric:p=1/2,dim=0", UsageError, "from 1"),
    ],
)
def test_a_bad_claim_names_what_is_wrong(text: str, error: type[UsageError], word: str) -> None:
    with pytest.raises(error, match=word):
        ClaimedLaw.parse(text)


def test_without_flint_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "flint", None)
    with pytest.raises(MissingExtraError, match=r"dpaudit\[prove\]"):
        exp_bounds(F(1, 2))


def test_exponentials_and_logarithms_hold_the_number(mp: ModuleType) -> None:
    for x in (F(1, 3), F(-20), F(700), F(10**9 + 1, 10**9)):
        value = mp.mpf(x.numerator) / x.denominator
        assert holds(exp_bounds(x), mp.exp(value))
        if x > 0:
            assert holds(log_bounds(x), mp.log(value), width=1e-45)
    with pytest.raises(UsageError, match="above 0"):
        log_bounds(F(0))
    with pytest.raises(UsageError, match="above"):
        enclosures.Bounds(F(1), F(0))


def all_completions(partial: ExactLaw, outputs: range) -> list[dict[object, Fraction]]:
    """Laws with those lower bounds: the residual on any one output, or shared by two."""
    spread = []
    for first, second in itertools.product(outputs, repeat=2):
        full = dict(partial.mass)
        for output in (first, second):
            full[output] = full.get(output, F(0)) + partial.residual / 2
        spread.append(full)
    return spread


def random_law(rng: random.Random, outputs: int, residual: int) -> ExactLaw:
    weights = [rng.randrange(0, 9) for _ in range(outputs - 1)] + [1]
    total = sum(weights) + residual
    return law(*((x, F(w, total)) for x, w in enumerate(weights) if w), residual=F(residual, total))


@pytest.mark.slow
def test_the_total_variation_of_every_completion_lies_within_the_bounds() -> None:
    rng = random.Random(20)
    claim = ClaimedLaw.parse("categorical:weights=1:2:3:4")
    true = {x: F(x + 1, 10) for x in range(4)}
    for _ in range(60):
        partial = random_law(rng, 5, rng.randrange(0, 4))
        bounds = distance(partial, claim).total_variation
        seen = [
            sum(abs(full.get(x, F(0)) - true.get(x, F(0))) for x in range(7)) / 2
            for full in all_completions(partial, range(7))
        ]
        assert bounds.lower <= min(seen)
        assert max(seen) <= bounds.upper
        if not partial.residual:
            assert bounds.lower == bounds.upper == seen[0]


def test_a_law_that_is_the_claim_has_a_distance_of_at_most_the_residual() -> None:
    p = F(1, 3)
    exact = law(*((k, p * (1 - p) ** k) for k in range(50)), residual=(1 - p) ** 50)
    found = distance(exact, ClaimedLaw.parse("geometric:p=1/3"))
    assert found.total_variation == Bounds(F(0), exact.residual)
    assert found.event == ()
    assert found.log_ratio.lower == 0
    assert 0 < found.log_ratio.upper < F(1, 1000)


def test_the_largest_log_ratio() -> None:
    found = distance(
        law((0, F(1, 2)), (1, F(1, 4)), (2, F(1, 4))), ClaimedLaw.parse("categorical:weights=2:1:5")
    )
    assert found.log_ratio.lower <= F(math.log(5 / 2)) + F(1, 10**12)
    assert abs(found.log_ratio.lower - F(math.log(5 / 2))) < F(1, 10**12)
    assert found.log_ratio.upper - found.log_ratio.lower < F(1, 10**20)
    outside = distance(law((7, F(1))), ClaimedLaw.parse("uniform:high=5"))
    assert outside.log_ratio.lower == math.inf
    assert outside.event == (7,)
    assert outside.total_variation == Bounds(F(1), F(1))


def brute_delta(first: dict[object, Fraction], second: dict[object, Fraction], e: Fraction) -> F:
    """sup over all sets of outputs, one by one."""
    outputs = sorted(set(first) | set(second))
    return max(
        sum(first.get(x, F(0)) - e * second.get(x, F(0)) for x in chosen)
        for size in range(len(outputs) + 1)
        for chosen in itertools.combinations(outputs, size)
    )


@pytest.mark.slow
def test_the_profile_of_every_completion_lies_within_the_bounds() -> None:
    rng = random.Random(7)
    for _ in range(8):
        a, b = (random_law(rng, 4, rng.randrange(0, 3)) for _ in range(2))
        points = profile(a, b, [Epsilon.parse(t) for t in ("0", "ln(3/2)", "ln(4)")])
        ranges = {d: epsilon_at(a, b, d) for d in (F(0), F(1, 10), F(1, 2))}
        for point, ratio in zip(points, (F(1), F(3, 2), F(4)), strict=True):
            deltas = []
            for x, y in itertools.product(
                all_completions(a, range(5))[::6], all_completions(b, range(5))[::6]
            ):
                delta = max(brute_delta(x, y, ratio), brute_delta(y, x, ratio))
                assert point.delta.lower <= delta <= point.delta.upper
                deltas.append(delta)
                for claimed, found in ranges.items():
                    log = math.log(ratio)
                    if delta > claimed:  # ε(claimed) is above ln(ratio)
                        assert found.upper >= log - 1e-12
                    else:
                        assert found.lower <= log + 1e-12
            if not a.residual and not b.residual:
                assert point.delta == Bounds(deltas[0], deltas[0])


def test_the_event_of_a_refutation_really_refutes() -> None:
    a = law(("yes", F(3, 4)), ("no", F(1, 4) - F(1, 2**20)), residual=F(1, 2**20))
    b = law(("yes", F(1, 4)), ("no", F(3, 4)))
    status, point = judge(a, b, epsilon=Epsilon.parse("1"), delta=F(0))
    assert status == "refuted"
    first, second = (a, b) if point.direction == "a" else (b, a)
    event = point.event
    gap = sum(first.lower(x) for x in event) - exp_bounds(1).upper * (
        sum(second.lower(x) for x in event) + second.residual
    )
    assert gap == point.delta.lower > 0


def test_randomised_response_is_proved_at_its_exact_epsilon(mp: ModuleType) -> None:
    a, b = law((0, F(3, 4)), (1, F(1, 4))), law((0, F(1, 4)), (1, F(3, 4)))
    for epsilon, status in (("ln(3)", "proved"), ("1.0986", "refuted"), ("1.0986123", "proved")):
        assert judge(a, b, epsilon=Epsilon.parse(epsilon), delta=F(0))[0] == status
    found = epsilon_at(a, b, F(0))
    assert holds(Bounds(found.lower, found.upper), mp.log(3))


def test_a_residual_leaves_a_claim_undecided() -> None:
    a = law((0, F(1, 2)), (1, F(1, 4)), residual=F(1, 4))
    assert judge(a, a, epsilon=Epsilon.parse("0"), delta=F(1, 8))[0] == "undecided"
    assert judge(a, a, epsilon=Epsilon.parse("0"), delta=F(1, 4))[0] == "proved"
    assert epsilon_at(a, a, F(1, 8)).upper == math.inf
    assert epsilon_at(a, a, F(1, 4)).upper == 0


def test_disjoint_supports_have_no_epsilon() -> None:
    a, b = law((0, F(1))), law((1, F(1)))
    assert epsilon_at(a, b, F(0)).lower == math.inf
    assert epsilon_at(a, b, F(1)).upper == 0
    assert judge(a, b, epsilon=Epsilon.parse("1000"), delta=F(1, 2))[0] == "refuted"


@pytest.mark.parametrize("text", ["-1", "ln(1/2)", "x", "1e9", "ln 0", "1/0", ""])
def test_a_bad_epsilon_is_a_usage_error(text: str) -> None:
    with pytest.raises(UsageError, match="epsilon"):
        Epsilon.parse(text)


@pytest.mark.parametrize("delta", [F(-1), F(2)])
def test_a_bad_delta_is_a_usage_error(delta: Fraction) -> None:
    a = law((0, F(1)))
    with pytest.raises(UsageError, match="delta"):
        judge(a, a, epsilon=Epsilon.parse("1"), delta=delta)
    with pytest.raises(UsageError, match="delta"):
        epsilon_at(a, a, delta)
