"""Every test of the battery: valid on honest noise, and able to see its own flaws."""

import itertools
import math
import re

import numpy as np
import pytest

from dpaudit import registry
from dpaudit.audit.block import SampleBlock
from dpaudit.claims import Claim
from dpaudit.randomness import KeyedStream
from dpaudit.testing import check_test

TESTS = sorted(registry.plugins("tests"))


@pytest.mark.parametrize("name", TESTS)
def test_p_values_are_valid(name):
    """80 repeats find a level of 0.3 instead of 0.05 in 97 of 100 cases.

    The 400 of ``make slow`` find one of 0.15 in 99.
    """
    check_test(registry.load("tests", name), repeats=80)


@pytest.mark.slow
@pytest.mark.parametrize("name", TESTS)
def test_p_values_are_valid_to_a_few_hundredths(name):
    check_test(registry.load("tests", name))


def test_the_check_catches_an_invalid_test():
    class Eager:
        looks_at = "nothing"

        def __init__(self, claim, stream):
            self.p = stream.numpy().random() ** 1.6  # P(p ≤ 0.05) = 0.154

        def update(self, block): ...

        def evidence(self, *, alpha):
            from dpaudit.types import Evidence

            return Evidence(p=self.p, statistic=0.0, effect="")

    with pytest.raises(AssertionError, match="p-values on honest noise"):
        check_test(Eager)


def p_value(name, blocks, claim="gaussian:sigma=1"):
    law = Claim.parse(claim)
    stream = KeyedStream.from_seed(11)
    test = registry.load("tests", name)(law, stream)
    for i, block in enumerate(blocks):
        test.update(SampleBlock(i, block, claim=law, spread=stream.numpy()))
    return test.evidence(alpha=0.001)


def honest(calls=8, n=500, d=64, seed=3):
    rng = np.random.default_rng(seed)
    return [rng.standard_normal((n, d)) for _ in range(calls)]


def ar1(blocks, rho):
    out = []
    for b in blocks:
        x = b.ravel().copy()
        x[1:] = math.sqrt(1 - rho**2) * x[1:] + rho * x[:-1]
        out.append(x.reshape(b.shape))
    return out


def common(blocks, share):
    """A shared component in every row, each coordinate's law unchanged."""
    rng = np.random.default_rng(9)
    return [
        math.sqrt(1 - share) * b + math.sqrt(share) * rng.standard_normal((len(b), 1))
        for b in blocks
    ]


def norm_fixed(blocks):
    return [b * math.sqrt(b.shape[1]) / np.linalg.norm(b, axis=1, keepdims=True) for b in blocks]


FLAWS = [
    ("goodness-of-fit", lambda b: [x * 1.02 for x in b]),
    (
        "goodness-of-fit",
        lambda b: [
            np.random.default_rng(1).standard_t(20, x.shape) / math.sqrt(20 / 18) for x in b
        ],
    ),
    ("goodness-of-fit", lambda b: [np.round(x * 8) / 8 for x in b]),
    ("moments", lambda b: [x * 1.01 for x in b]),
    ("moments", lambda b: [x + 0.02 for x in b]),
    (
        "moments",
        lambda b: [
            np.where(np.random.default_rng(1).random(x.shape) < 0.01, np.abs(x), x) for x in b
        ],
    ),
    ("tails", lambda b: [np.clip(x, -3.7, 3.7) for x in b]),
    ("tails", lambda b: [np.where(np.abs(x) > 4, x * 2, x) for x in b]),
    ("correlation", lambda b: ar1(b, 0.02)),
    (
        "correlation",
        lambda b: (
            [b[0]] + [0.05 * p + math.sqrt(1 - 0.05**2) * x for p, x in itertools.pairwise(b)]
        ),
    ),
    ("projections", lambda b: common(b, 0.01)),
    ("norms", norm_fixed),
    ("repeats", lambda b: [*b, b[0]]),
    ("repeats", lambda b: [*b, -b[3]]),
    (
        "support",
        lambda b: [np.where(np.random.default_rng(1).random(x.shape) < 3e-4, 0.0, x) for x in b],
    ),
]


@pytest.mark.parametrize(("name", "flaw"), FLAWS)
def test_power(name, flaw):
    assert p_value(name, flaw(honest())).p < 1e-4
    assert p_value(name, honest()).p > 1e-3  # and the same numbers without the flaw pass


def test_support_of_a_discrete_claim():
    rng = np.random.default_rng(2)
    x = np.rint(rng.normal(0, 10, (100, 64)))
    assert p_value("support", [x], "discrete-gaussian:sigma=10").p == 1
    x[3, 3] += 0.5
    assert p_value("support", [x], "discrete-gaussian:sigma=10").p == 0


def test_repeats_of_a_narrow_discrete_law_are_not_a_finding():
    rng = np.random.default_rng(2)
    blocks = [np.rint(rng.normal(0, 0.3, (2000, 64))) for _ in range(4)]
    assert p_value("repeats", blocks, "discrete-gaussian:sigma=0.3").p == 1


def test_effect_intervals_cover():
    evidence = p_value("moments", [1.1 * b for b in honest()])
    assert evidence.statistic == pytest.approx(1.1, abs=0.01)


def test_blind_spots_are_what_was_missed():
    """A scale error of the size of moments' blind spot is found with probability about 0.9."""
    law = Claim.parse("gaussian:sigma=1")
    n, found = 20_000, 0
    test = registry.load("tests", "moments")(law, KeyedStream.from_seed(1))
    test.update(
        SampleBlock(0, np.random.default_rng(0).standard_normal((n, 1)), claim=law, spread=None)
    )
    spot = next(b for b in test.evidence(alpha=0.01).blind_spots if b.flaw == "wrong scale")
    for i in range(120):
        test = registry.load("tests", "moments")(law, KeyedStream.from_seed(1))
        x = np.random.default_rng(100 + i).standard_normal((n, 1)) * (1 + spot.size / 100)
        test.update(SampleBlock(0, x, claim=law, spread=None))
        found += test.evidence(alpha=0.01).p <= 0.01
    assert 0.8 < found / 120 < 0.98


def test_rows_of_one_value_say_how_fine_they_are():
    """A .bin recording has rows of one value, of which none is a row apart: no coarseness."""
    evidence = p_value("granularity", honest(n=8192, d=1))
    assert evidence.effect.startswith("finer than 1")
    assert evidence.details["bits, equal neighbours"] > 12


@pytest.mark.parametrize(
    ("name", "flaw", "says"),
    [
        ("tails", lambda x: np.clip(x, -3, None), r"; smallest z -3\.00, expected about -4\.5"),
        (
            "tails",
            lambda x: np.where(x > 3, 2 * x, x),
            r"; (above|beyond) \d\.\d\d σ: \d+, expected [\d.,e-]+$",
        ),
        ("tails", lambda x: np.clip(x, -2, 2), r"; beyond 2\.\d\d σ: 0, expected [\d,]+"),
        (
            "goodness-of-fit",
            lambda x: x + 0.02,
            r"\(mean\) off by \+|[\d,]+ values below -?\d\.\d{4} σ, expected [\d,]+",
        ),
        ("goodness-of-fit", lambda x: 1.02 * x, r"; smooth: component 2 \(scale\) off by \+"),
        (
            "goodness-of-fit",
            lambda x: np.where(abs(x) < 0.002, 0.5e-3, x),
            r"; single cells: \d+ values in \[0\.0000, ",
        ),
    ],
)
def test_the_deciding_part_is_named_with_its_counts(name, flaw, says):
    x = flaw(np.random.default_rng(4).standard_normal((8, 500, 64)))
    effect = p_value(name, list(x)).effect
    assert re.search(says, effect), effect
    assert ";" not in p_value(name, honest()).effect
