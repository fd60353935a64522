import math
from fractions import Fraction

import numpy as np
import pytest

from dpaudit import registry
from dpaudit.errors import UsageError
from dpaudit.interfaces import LearningAttack
from dpaudit.stats import epsilon_lower_bound
from dpaudit_attacks.floating_point.bit_features import BitFeatures, _pattern

LAW = math.erf(0.5 / math.sqrt(2)) / 2 + 0.5  # the best guess between N(0, 1) and N(1, 1)


def by_definition(x):
    """Sign, floor(log2 |x|) and trailing zeros, in whole numbers."""
    sign = math.copysign(1.0, x)
    if x == 0:
        return sign, None, None
    exact = abs(Fraction(x))
    top, bottom = exact.numerator, exact.denominator
    exponent = top.bit_length() - bottom.bit_length()
    exponent -= exact < Fraction(2) ** exponent
    lowest = (top & -top).bit_length() - bottom.bit_length()  # the place of the lowest set bit
    return sign, exponent, lowest + 52 - exponent


def success(statistic, y0, y1):
    """Right guesses with the threshold 0 and a coin at 0."""
    return (
        sum(float((s > 0).mean() + (s == 0).mean() / 2) for s in (-statistic(y0), statistic(y1)))
        / 2
    )


def test_patterns_are_sign_exponent_and_trailing_zeros():
    rng = np.random.default_rng(1)
    x = rng.integers(0, 2**64, 4_000, dtype=np.uint64).view(np.float64)
    x = x[np.isfinite(x)]
    cut = np.ldexp(np.rint(np.ldexp(rng.standard_normal(4_000), rng.integers(0, 50, 4_000))), -20)
    tiny = 5e-324 * rng.integers(-1_000, 1_000, 500)
    x = np.concatenate(
        [x, cut, tiny, np.arange(-50.0, 50), [0.0, -0.0, 2.0**53, 1.7976931348623157e308, -5e-324]]
    )
    seen, wanted = _pattern(x), [by_definition(float(v)) for v in x]
    assert seen.min() >= 0
    assert seen.max() < 2**19
    pairs = set(zip(seen.tolist(), wanted, strict=True))
    assert len(pairs) == len(set(seen.tolist())) == len(set(wanted)) > 1_500


def test_finds_naive_noise_without_knowing_the_sampler():
    """Better than the law allows on new releases; an ε above what scale 1 claims at δ = 0."""
    for draw in (
        np.random.RandomState(2).standard_normal,
        np.random.default_rng(2).standard_normal,
    ):
        z = draw((4, 20_000, 1))
        statistic = BitFeatures().learn(z[0], 1 + z[1], neighbours=(np.zeros(1), np.ones(1)))
        assert success(statistic, z[2], 1 + z[3]) > LAW + 0.05
        low = float(np.quantile(statistic(z[0]), 0.3))
        hits = [int((statistic(y) <= low).sum()) for y in (z[2], 1 + z[3])]
        assert epsilon_lower_bound(hits[0], 20_000, hits[1], 20_000, delta=0.0) > 3


def test_sees_only_the_law_of_noise_on_a_lattice():
    """Clean noise: no better than the law allows."""
    rng = np.random.default_rng(3)
    g = 2.0**-20
    z = np.rint(rng.standard_normal((4, 40_000, 1)) / g) * g
    statistic = BitFeatures().learn(z[0], 1 + z[1], neighbours=(np.zeros(1), np.ones(1)))
    got = success(statistic, z[2], 1 + z[3])
    assert 0.66 < got < LAW + 4 * 0.5 / math.sqrt(80_000)


def test_a_difference_tells_what_the_release_does_not():
    """v + n on a lattice of step 1/64, v half a step apart: y − v is coarser for the right v."""
    rng = np.random.default_rng(4)
    v = np.array([107_374_182 * 2.0**-30]), np.array([(107_374_182 + 2**23) * 2.0**-30])
    n = np.rint(rng.standard_normal((4, 5_000, 1)) * 64) / 64
    y = [v[0] + n[0], v[1] + n[1], v[0] + n[2], v[1] + n[3]]
    assert success(BitFeatures().learn(y[0], y[1], neighbours=v), y[2], y[3]) > 0.95
    # one value for both coordinates, and values of another length than the releases
    wide = [np.hstack([a, a]) for a in y]
    assert success(BitFeatures().learn(wide[0], wide[1], neighbours=v), wide[2], wide[3]) > 0.95
    blind = BitFeatures().learn(y[0], y[1], neighbours=(np.zeros(3), np.ones(3)))
    assert success(blind, y[2], y[3]) < 0.55


def test_coordinates_add_up():
    rng = np.random.default_rng(5)
    x0, x1 = rng.standard_normal((2, 3_000, 3))
    x1[:, 1] += 1
    v0, v1 = np.array([0.0, 0.0, 5.0]), np.array([0.0, 1.0, 5.0])
    y = rng.standard_normal((500, 3))
    whole = BitFeatures(smoothing=2).learn(x0, x1, neighbours=(v0, v1))(y)
    parts = [
        BitFeatures(smoothing=2).learn(
            x0[:, j : j + 1], x1[:, j : j + 1], neighbours=(v0[j : j + 1], v1[j : j + 1])
        )(y[:, j : j + 1])
        for j in range(3)
    ]
    assert np.allclose(whole, sum(parts), rtol=0, atol=1e-12)
    order = rng.permutation(500)
    learned = BitFeatures(smoothing=2).learn(x0[::-1], x1, neighbours=(v0, v1))
    assert np.array_equal(learned(y[order]), whole[order])


def test_log_ratios_by_hand():
    """Patterns 1, 1.5, 4 and the unknown: counts (3, 0, 1, 0) and (0, 1, 2, 0), 1 added to each."""
    x0, x1 = np.array([[1.0], [1.0], [1.0], [4.0]]), np.array([[1.5], [4.0], [4.0]])
    none = (np.zeros(2), np.zeros(2))
    statistic = BitFeatures(smoothing=1.0).learn(x0, x1, neighbours=none)
    wanted = [math.log(a / 7 / (b / 8)) for a, b in ((1, 4), (2, 1), (3, 2), (1, 1))]
    assert np.allclose(
        statistic(np.array([[1.0], [1.5], [4.0], [-7.0]])), wanted, rtol=0, atol=1e-12
    )


def test_odd_numbers():
    """Whole numbers, zeros of either sign (which may differ), subnormals and the largest."""
    zeros, minus = np.zeros((200, 1)), np.full((200, 1), -0.0)
    one = (np.zeros(1), np.ones(1))
    statistic = BitFeatures().learn(zeros, minus, neighbours=one)
    assert (statistic(zeros) < -3).all()
    assert (statistic(minus) > 3).all()
    rng = np.random.default_rng(6)
    whole = rng.integers(-5, 6, (2, 2_000, 1)).astype(float)
    assert np.isfinite(BitFeatures().learn(whole[0], 1 + whole[1], neighbours=one)(whole[0])).all()
    odd = np.array([[5e-324], [-5e-324], [1.7e308], [-1.7e308], [2.0**53], [2.0**53 - 1], [-0.0]])
    far = (np.array([-1.7e308]), np.array([1.7e308]))
    with np.errstate(invalid="raise"):
        assert np.isfinite(BitFeatures().learn(odd, odd[::-1], neighbours=far)(odd)).all()
    assert BitFeatures().learn(odd, odd, neighbours=far)(np.empty((0, 1))).shape == (0,)


def test_shape_of_a_plug_in():
    attack = registry.create("attacks", "bit-features:smoothing=2")
    assert isinstance(attack, LearningAttack)
    assert attack.timed is False


def test_bad_input():
    for bad in (0.0, -1.0, math.nan, math.inf, True, "much"):
        with pytest.raises(UsageError, match="smoothing="):
            BitFeatures(smoothing=bad)
    attack, x, v = BitFeatures(), np.zeros((3, 2)), (np.zeros(2), np.ones(2))
    with pytest.raises(UsageError, match="first: contain NaN"):
        attack.learn(np.full((3, 2), math.nan), x, neighbours=v)
    with pytest.raises(UsageError, match="second: contain NaN"):
        attack.learn(x, np.full((3, 2), math.inf), neighbours=v)
    with pytest.raises(UsageError, match="neighbours: contain NaN"):
        attack.learn(x, x, neighbours=(np.zeros(2), np.full(2, math.nan)))
    with pytest.raises(UsageError, match="neighbours of 2 and 3"):
        attack.learn(x, x, neighbours=(np.zeros(2), np.zeros(3)))
    for other in (np.zeros((3, 1)), np.zeros((0, 2))):
        with pytest.raises(UsageError, match="releases of shapes"):
            attack.learn(x, other, neighbours=v)
    with pytest.raises(UsageError, match="first of shape"):
        attack.learn(np.zeros(3), x, neighbours=v)
    learned = attack.learn(x, x, neighbours=v)
    with pytest.raises(UsageError, match="releases of 1 coordinates"):
        learned(np.zeros((3, 1)))
    with pytest.raises(UsageError, match="releases: contain NaN"):
        learned(np.full((1, 2), math.nan))
