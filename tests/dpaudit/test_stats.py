"""The numbers under every verdict, against enumeration, scipy.stats and simulation."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st

from dpaudit.errors import UsageError
from dpaudit.stats import (
    binomial_two_sided,
    bonferroni,
    chi_square_two_sided,
    clopper_pearson,
    epsilon_lower_bound,
    holm,
    kolmogorov_p,
    normal_two_sided,
)

# ---------------------------------------------------------------- Clopper-Pearson


def coverage(interval_of, n: int, p: float) -> float:
    """Exact: the binomial mass of the outcomes whose interval holds p."""
    k = np.arange(n + 1)
    inside = np.array([low <= p <= high for low, high in map(interval_of, k)])
    return float(scipy.stats.binom.pmf(k, n, p)[inside].sum())


def exact_interval(n: int, confidence: float):
    ends = [clopper_pearson(k, n, confidence=confidence) for k in range(n + 1)]
    return lambda k: (ends[k].low, ends[k].high)


@pytest.mark.parametrize("n", [1, 7, 40])
@pytest.mark.parametrize("confidence", [0.5, 0.9, 0.99])
def test_clopper_pearson_covers_by_enumeration(n, confidence):
    of = exact_interval(n, confidence)
    worst = min(coverage(of, n, p) for p in np.linspace(0, 1, 401))
    assert worst >= confidence - 1e-12


def test_clopper_pearson_is_not_wildly_conservative():
    of = exact_interval(400, 0.95)
    cover = [coverage(of, 400, p) for p in np.linspace(0.1, 0.9, 101)]
    assert np.mean(cover) < 0.965


def test_the_coverage_check_sees_a_bad_interval():
    """The normal approximation (Wald) is the textbook interval that does not cover."""

    def wald(k):
        p = k / 40
        half = 1.96 * math.sqrt(p * (1 - p) / 40)
        return p - half, p + half

    assert min(coverage(wald, 40, p) for p in np.linspace(0.01, 0.99, 99)) < 0.9


@pytest.mark.parametrize(
    ("k", "n"),
    [(0, 1), (1, 1), (0, 50), (50, 50), (3, 1000), (999, 1000), (123_456, 10**6), (5, 10**9)],
)
@pytest.mark.parametrize("confidence", [0.5, 0.95, 1 - 1e-6])
def test_clopper_pearson_against_beta_quantiles(k, n, confidence):
    a = (1 - confidence) / 2
    i = clopper_pearson(k, n, confidence=confidence)
    assert i.low == pytest.approx(
        0.0 if k == 0 else scipy.stats.beta.ppf(a, k, n - k + 1), rel=1e-8
    )
    assert i.high == pytest.approx(
        1.0 if k == n else scipy.stats.beta.isf(a, k + 1, n - k), rel=1e-8
    )
    assert i.confidence == confidence


@pytest.mark.parametrize(
    ("call", "says"),
    [
        *(
            (lambda k=k, n=n: clopper_pearson(k, n), f"successes={k}, trials={n}")
            for k, n in [(-1, 10), (11, 10), (0, 0), (0, -1), (math.nan, 10)]
        ),
        *(
            (lambda c=c: clopper_pearson(1, 2, confidence=c), f"confidence={c}")
            for c in (0.0, 1.0, -1, 95, math.nan)
        ),
        *(
            (lambda d=d: epsilon_lower_bound(9, 10, 1, 10, delta=d), f"delta={d}")
            for d in (-0.5, 1.0, 2.0, math.nan)
        ),
        *(
            (lambda k=k, p=p: binomial_two_sided(k, 10, p), f"k={k}, n=10, p={p}")
            for k, p in [(-1, 0.5), (11, 0.5), (1, 1.5), (1, math.nan)]
        ),
        *((lambda x=x: chi_square_two_sided(x, 3), f"x={x}") for x in (math.nan, -1.0)),
    ],
)
def test_impossible_numbers_are_refused(call, says):
    with pytest.raises(UsageError, match=says):
        call()


# ---------------------------------------------------------------- the lower bound on ε


def exact_error(
    n: int, p1: float, p0: float, truth: float, delta: float, bound=epsilon_lower_bound
) -> float:
    """P(bound > truth), summed exactly over both binomials."""
    k = np.arange(n + 1)
    too_high = np.array([[bound(i, n, j, n, delta=delta) > truth + 1e-12 for j in k] for i in k])
    return float(scipy.stats.binom.pmf(k, n, p1) @ too_high @ scipy.stats.binom.pmf(k, n, p0))


@pytest.mark.parametrize("epsilon", [0.0, 0.1, 1.0, 2.5])
@pytest.mark.parametrize("n", [10, 45])
def test_epsilon_bound_is_exceeded_at_most_one_time_in_twenty(epsilon, n):
    """Randomised response is exactly ε-DP, both inequalities tight: the hardest honest case."""
    p = math.exp(epsilon) / (1 + math.exp(epsilon))
    assert exact_error(n, p, 1 - p, epsilon, 0.0) <= 0.05


@pytest.mark.parametrize("flip", [False, True])
def test_epsilon_bound_holds_where_only_one_inequality_is_tight(flip):
    """A rare event (tight one way) and its complement (tight the other way), with δ in play."""
    epsilon, delta = 1.0, 0.01
    p0 = 0.05
    p1 = math.exp(epsilon) * p0 + delta
    if flip:
        p1, p0 = 1 - p0, 1 - p1
    error = exact_error(45, p1, p0, epsilon, delta)
    assert error <= 0.05


def test_the_error_check_sees_point_estimates():
    def plug_in(i, n, j, m, *, delta):
        return math.log(max(i, 1) / n / (max(j, 1) / m))

    assert exact_error(45, 0.7, 0.3, math.log(7 / 3), 0.0, plug_in) > 0.3


def test_epsilon_bound_by_simulation_and_its_sharpness():
    rng = np.random.default_rng(20_250_101)
    epsilon, n = 1.5, 200_000
    p = math.exp(epsilon) / (1 + math.exp(epsilon))
    tp, fp = rng.binomial(n, p, 2000), rng.binomial(n, 1 - p, 2000)
    bounds = np.array(
        [epsilon_lower_bound(int(a), n, int(b), n, delta=0.0) for a, b in zip(tp, fp, strict=True)]
    )
    assert (bounds > epsilon).mean() <= 0.05
    assert bounds.min() > epsilon - 0.06  # near the truth: 200,000 trials leave little to give away


def test_epsilon_bound_of_a_perfect_attack_is_about_log_n():
    for n in (100, 10_000, 10**6):
        bound = epsilon_lower_bound(n, n, 0, n, delta=0.0)
        assert math.log(n) - 1.5 < bound < math.log(n)
        assert bound == pytest.approx(
            math.log((0.025 ** (1 / n)) / -math.expm1(math.log(0.025) / n))
        )


def test_epsilon_bound_uses_the_complement_too_and_is_0_without_evidence():
    """P(E) of 1 against 0.5: nothing from E itself beyond ln 2, everything from its complement."""
    assert epsilon_lower_bound(10_000, 10_000, 5_000, 10_000, delta=0.0) > 5
    assert epsilon_lower_bound(5_000, 10_000, 5_000, 10_000, delta=0.0) == 0.0
    assert epsilon_lower_bound(1_000, 10_000, 9_000, 10_000, delta=0.0) == 0.0


def test_epsilon_bound_falls_with_delta_and_with_confidence():
    bounds = [epsilon_lower_bound(700, 1000, 100, 1000, delta=d) for d in (0.0, 0.1, 0.3, 0.9)]
    assert bounds == sorted(bounds, reverse=True)
    assert bounds[0] > bounds[1] > 0 == bounds[-1]
    of = {c: epsilon_lower_bound(700, 1000, 100, 1000, delta=0, confidence=c) for c in (0.5, 0.999)}
    assert of[0.5] > bounds[0] > of[0.999]


# ---------------------------------------------------------------- multiplicity

p_values = st.lists(
    st.floats(0, 1) | st.sampled_from([0.0, 0.01, 0.05, 1.0]), min_size=1, max_size=6
)


def holm_by_closure(p: list[float]) -> list[float]:
    """Closed testing with Bonferroni: the worst over all sets of hypotheses that hold i."""
    m = range(len(p))
    sets = [s for size in range(1, len(p) + 1) for s in itertools.combinations(m, size)]
    return [max(min(1.0, len(s) * min(p[j] for j in s)) for s in sets if i in s) for i in m]


@given(p_values)
def test_holm_equals_the_closure_of_bonferroni(p):
    assert holm(p) == pytest.approx(holm_by_closure(p), rel=1e-12)
    assert min(holm(p)) == bonferroni(p)


def family_error(adjust, rng: np.random.Generator) -> float:
    """Four true nulls and two false ones with p ≈ 0, where Holm is tight."""
    p = np.hstack([rng.random((10_000, 4)), np.full((10_000, 2), 1e-9)])
    return float(np.mean([min(adjust(list(row))[:4]) <= 0.05 for row in p]))


def test_holm_family_wise_error_by_simulation():
    error = family_error(holm, np.random.default_rng(5))
    # 1 − (1 − 0.05/4)⁴ = 0.0491, standard error 0.0022: valid, and not a plain Bonferroni
    assert 0.040 < error < 0.0555
    # unadjusted: the check can fail
    assert family_error(lambda p: p, np.random.default_rng(5)) > 0.15


def test_bonferroni():
    assert bonferroni([]) == 1.0
    assert bonferroni([0.01, 0.5, 0.9]) == pytest.approx(0.03)
    assert bonferroni([0.6, 0.9]) == 1.0


@pytest.mark.parametrize("broken", [math.nan, -1e-9, 1.1, math.inf])
@pytest.mark.parametrize("place", [0, 1])
@pytest.mark.parametrize("combine", [holm, bonferroni])
def test_a_broken_p_value_cannot_hide_a_small_one(combine, place, broken):
    p = [1e-12]
    p.insert(place, broken)
    with pytest.raises(UsageError, match=f"p={broken}"):
        combine(p)


# ---------------------------------------------------------------- tails


@pytest.mark.parametrize("n", [1, 10, 1000, 10**7])
@pytest.mark.parametrize("p", [1e-6, 0.3, 0.5, 0.999])
def test_binomial_two_sided_against_scipy(n, p):
    law = scipy.stats.binom(n, p)
    far = max(0, int(n * p - 5 * math.sqrt(n * p * (1 - p)) - 1))
    for k in {0, n, n // 2, int(n * p), far, min(n, 5)}:
        expected = min(1.0, 2 * min(law.cdf(k), law.sf(k - 1)))
        assert binomial_two_sided(k, n, p) == pytest.approx(expected, rel=1e-6, abs=1e-290)


@pytest.mark.parametrize("p", [0.02, 0.5, 0.9])
def test_binomial_two_sided_is_valid_by_enumeration(p):
    n = 60
    pmf = scipy.stats.binom.pmf(np.arange(n + 1), n, p)
    values = np.array([binomial_two_sided(k, n, p) for k in range(n + 1)])
    for alpha in (1e-4, 0.01, 0.05, 0.2, 0.5):
        assert pmf[values <= alpha].sum() <= alpha + 1e-12


@pytest.mark.parametrize("df", [1, 2, 17, 5000])
def test_chi_square_two_sided_against_scipy(df):
    law = scipy.stats.chi2(df)
    for q in (1e-12, 1e-3, 0.2, 0.5, 0.8, 1 - 1e-3):
        x = law.ppf(q)
        assert chi_square_two_sided(x, df) == pytest.approx(
            2 * min(law.cdf(x), law.sf(x)), rel=1e-9
        )
    assert chi_square_two_sided(law.isf(1e-200), df) == pytest.approx(2e-200, rel=1e-6)
    assert chi_square_two_sided(0.0, df) == 0.0
    assert chi_square_two_sided(math.inf, df) == 0.0


def test_normal_two_sided():
    z = np.array([0.0, 1.959963984540054, -1.959963984540054, 10.0, -37.0])
    assert normal_two_sided(z) == pytest.approx(2 * scipy.stats.norm.sf(np.abs(z)), rel=1e-12)
    assert normal_two_sided(z)[1] == pytest.approx(0.05, rel=1e-12)
    assert math.isnan(float(normal_two_sided(math.nan)))  # so that bonferroni and holm see it


# ---------------------------------------------------------------- Kolmogorov-Smirnov

CELLS = 1 << 16


def counts(u: np.ndarray, cells: int = CELLS) -> np.ndarray:
    return np.bincount((u * cells).astype(np.int64), minlength=cells)


def slow_statistic(c: np.ndarray) -> float:
    """|F_n(edge) − edge| at each edge, one sum at a time."""
    return max(abs(int(c[: i + 1].sum()) / int(c.sum()) - (i + 1) / len(c)) for i in range(len(c)))


def test_kolmogorov_statistic_against_a_slow_one_and_scipy():
    rng = np.random.default_rng(11)
    u = rng.random(500) ** 1.1
    c = counts(u, 64)
    assert kolmogorov_p(c)[0] == pytest.approx(slow_statistic(c), rel=1e-12)
    fine, exact = kolmogorov_p(counts(u)), scipy.stats.kstest(u, "uniform")
    assert exact.statistic - 1 / CELLS - 1e-12 <= fine[0] <= exact.statistic
    assert fine[1] == pytest.approx(exact.pvalue, rel=0.05)


def test_kolmogorov_p_is_uniform_for_uniforms_and_the_check_can_fail():
    rng = np.random.default_rng(12)

    def p_of_p(power: float) -> float:
        p = [kolmogorov_p(counts(rng.random(300) ** power, 4096))[1] for _ in range(800)]
        return float(scipy.stats.kstest(p, "uniform").pvalue)

    assert p_of_p(1.0) > 1e-3
    assert p_of_p(1.1) < 1e-6


def test_kolmogorov_p_finds_a_small_planted_flaw():
    z = np.random.default_rng(13).standard_normal(200_000)
    assert kolmogorov_p(counts(scipy.stats.norm.cdf(z)))[1] > 0.01
    assert kolmogorov_p(counts(scipy.stats.norm.cdf(1.05 * z)))[1] < 1e-6
    assert kolmogorov_p(counts(scipy.stats.norm.cdf(z + 0.02)))[1] < 1e-6


@pytest.mark.parametrize("n", [100, 1000])
def test_the_stated_error_of_stephens_correction(n):
    """The range in the docstring holds: at most 6 % below and 15 % above the exact law."""
    checked = 0
    for excess in range(n // 2):
        # two cells: the distance is excess / n
        d, p = kolmogorov_p(np.array([n // 2 + excess, n // 2 - excess]))
        assert d == pytest.approx(excess / n)
        exact = scipy.stats.kstwo.sf(d, n)
        if exact < 1e-9:
            break
        if exact < 0.2:
            assert 0.94 <= p / exact <= 1.15
            checked += 1
    assert checked > 10
