"""Every test of the battery: valid on honest noise, and able to see its own flaws."""

import itertools
import math
import re

import numpy as np
import pytest
from support.battery import evidence_of

from dpaudit import registry
from dpaudit.testing import check_test
from dpaudit.types import Evidence

TESTS = sorted(registry.plugins("tests"))
HEAVY = ("congruential", "linear-complexity", "predictable", "state-recovery")  # seconds each


@pytest.mark.parametrize("name", [name for name in TESTS if name not in HEAVY])
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
            return Evidence(p=self.p, statistic=0.0, effect="")

    with pytest.raises(AssertionError, match="p-values on honest noise"):
        check_test(Eager)


def p_value(name, blocks, claim="gaussian:sigma=1"):
    return evidence_of(registry.load("tests", name), blocks, claim)


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


def after_the_call_before(blocks):
    return [blocks[0]] + [
        0.05 * p + math.sqrt(1 - 0.05**2) * x for p, x in itertools.pairwise(blocks)
    ]


def each(flaw):
    return lambda blocks: [flaw(x) for x in blocks]


def norm_fixed(x):
    return x * math.sqrt(x.shape[1]) / np.linalg.norm(x, axis=1, keepdims=True)


def student(x):
    return np.random.default_rng(1).standard_t(20, x.shape) / math.sqrt(20 / 18)


def somewhere(x, share):
    return np.random.default_rng(1).random(x.shape) < share


FLAWS = [
    ("goodness-of-fit", each(lambda x: x * 1.02)),
    ("goodness-of-fit", each(student)),
    ("goodness-of-fit", each(lambda x: np.round(x * 8) / 8)),
    ("moments", each(lambda x: x * 1.01)),
    ("moments", each(lambda x: x + 0.02)),
    ("moments", each(lambda x: np.where(somewhere(x, 0.01), np.abs(x), x))),
    ("tails", each(lambda x: np.clip(x, -3.7, 3.7))),
    ("tails", each(lambda x: np.where(np.abs(x) > 4, x * 2, x))),
    ("correlation", lambda b: ar1(b, 0.02)),
    ("correlation", after_the_call_before),
    ("projections", lambda b: common(b, 0.01)),
    ("norms", each(norm_fixed)),
    ("repeats", lambda b: [*b, b[0]]),
    ("repeats", lambda b: [*b, -b[3]]),
    ("support", each(lambda x: np.where(somewhere(x, 3e-4), 0.0, x))),
]


@pytest.mark.parametrize(("name", "flaw"), FLAWS)
def test_power(name, flaw):
    assert p_value(name, flaw(honest())).p < 1e-4
    assert p_value(name, honest()).p > 1e-3  # and the same numbers without the flaw pass


def test_discrete_claims():
    """Values off the lattice are impossible; repeats of a narrow law are none."""
    rng = np.random.default_rng(2)
    x = np.rint(rng.normal(0, 10, (100, 64)))
    assert p_value("support", [x], "discrete-gaussian:sigma=10").p == 1
    x[3, 3] += 0.5
    assert p_value("support", [x], "discrete-gaussian:sigma=10").p == 0
    rng = np.random.default_rng(2)
    blocks = [np.rint(rng.normal(0, 0.3, (2000, 64))) for _ in range(4)]
    assert p_value("repeats", blocks, "discrete-gaussian:sigma=0.3").p == 1


def test_blind_spots_are_what_was_missed():
    """A scale error of the size of moments' blind spot is found with probability about 0.9."""
    make, n = registry.load("tests", "moments"), 20_000

    def evidence(seed, scale=1.0):
        x = np.random.default_rng(seed).standard_normal((n, 1)) * scale
        return evidence_of(make, [x], seed=1, alpha=0.01, spread=None)

    spot = next(b for b in evidence(0).blind_spots if b.flaw == "wrong scale")
    found = sum(evidence(100 + i, 1 + spot.size / 100).p <= 0.01 for i in range(120))
    assert 0.8 < found / 120 < 0.98


def test_rows_of_one_value_say_how_fine_they_are():
    """A .bin recording has rows of one value, of which none is a row apart: no coarseness."""
    evidence = p_value("granularity", honest(n=8192, d=1))
    assert evidence.effect.startswith("finer than 1")
    assert evidence.details["bits, equal neighbours"] > 12


BY_MEAN = r"\(mean\) off by \+|[\d,]+ values below -?\d\.\d{4} σ, expected [\d,]+"
BY_CELL = r"; single cells: \d+ values in \[0\.0000, "


@pytest.mark.parametrize(
    ("name", "flaw", "says"),
    [
        ("tails", lambda x: np.clip(x, -3, None), r"; smallest z -3\.00, expected about -4\.5"),
        ("tails", lambda x: np.clip(x, -2, 2), r"; beyond 2\.\d\d σ: 0, expected [\d,]+"),
        ("goodness-of-fit", lambda x: x + 0.02, BY_MEAN),
        ("goodness-of-fit", lambda x: np.where(abs(x) < 0.002, 0.5e-3, x), BY_CELL),
    ],
)
def test_the_deciding_part_is_named_with_its_counts(name, flaw, says):
    x = flaw(np.random.default_rng(4).standard_normal((8, 500, 64)))
    effect = p_value(name, list(x)).effect
    assert re.search(says, effect), effect
    assert ";" not in p_value(name, honest()).effect
