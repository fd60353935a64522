"""Tests of several coordinates: exact nulls against slow oracles, power on planted flaws."""

import functools
import math

import numpy as np
import pytest
import scipy
from support.battery import evidence_of

from dpaudit.audit.battery.coordinates import Coordinates
from dpaudit.audit.battery.covariance import (
    Covariance,
    largest_eigenvalue_p,
    largest_eigenvalue_quantile,
    off_diagonal_p,
    smallest_eigenvalue_p,
)
from dpaudit.audit.battery.hidden_direction import (
    HiddenDirection,
    best_frequencies,
    climb,
    fourth_order_p,
    phase_p,
    scan,
)
from dpaudit.audit.battery.kernel import Kernel, _hotelling, _law
from dpaudit.audit.block import SampleBlock
from dpaudit.claims import Claim
from dpaudit.randomness import KeyedStream
from dpaudit.stats import binomial_two_sided

LAW = Claim.parse("gaussian:sigma=1")
FAMILIES = [Coordinates, Covariance, HiddenDirection, Kernel]


def evidence(family, blocks):
    return evidence_of(family, blocks, spread=None)


def seen(family, *blocks):
    """A test that has seen these blocks."""
    test = family(LAW, KeyedStream.from_seed(1))
    for i, z in enumerate(blocks):
        test.update(SampleBlock(i, z, claim=LAW, spread=None))
    return test


def honest(n, d, calls=4, seed=3):
    rng = np.random.default_rng(seed)
    return [rng.standard_normal((n // calls, d)) for _ in range(calls)]


def planted(n, d, component, seed=3, calls=4):
    """Rows whose part along a random unit vector is replaced by ``component`` (n,); that vector."""
    rng = np.random.default_rng(seed)
    w = rng.standard_normal(d)
    w /= np.linalg.norm(w)
    x = rng.standard_normal((n, d))
    return np.array_split(x + np.outer(component - x @ w, w), calls), w


def pancake(n, gamma, beta, seed=5):
    rng = np.random.default_rng(seed)
    r2 = beta**2 + gamma**2
    spacing = math.sqrt(2 * math.pi) * gamma / r2
    k = np.arange(-60, 61)
    mass = np.exp(-math.pi * k * k / r2)
    peaks = rng.choice(k, n, p=mass / mass.sum()) * spacing
    return peaks + beta / math.sqrt(r2) * rng.standard_normal(n)


def not_too_many(p, level):
    """Fail if more p-values are ≤ level than a valid test gives with probability 10^-5."""
    low = int((np.asarray(p) <= level).sum())
    assert low <= level * len(p) or binomial_two_sided(low, len(p), level) > 2e-5, (
        f"{low} of {len(p)} are ≤ {level}"
    )


@pytest.mark.parametrize(
    ("family", "dtype"),
    list(zip(FAMILIES, [np.float64, np.float32, np.float32, np.float64], strict=True)),
)
def test_honest_noise_of_many_dimensions_passes(family, dtype):
    rng = np.random.default_rng(8)
    shapes = [(2000, d) for d in (1, 2, 3, 4, 8, 16, 32, 64, 96, 128, 256)]
    shapes += [(100, 4096), (3, 200_000)]
    e = evidence(family, [rng.standard_normal(shape, dtype=dtype) for shape in shapes])
    assert e.p > 1e-3
    assert e.parts
    assert all(0 <= p <= 1 for p in e.parts.values())
    assert e.blind_spots


@pytest.mark.parametrize("family", FAMILIES)
def test_a_single_row_or_value_is_no_evidence(family):
    for shape in ((1, 1), (1, 5), (2, 3), (1, 100_000)):
        assert evidence(family, [np.random.default_rng(2).standard_normal(shape)]).p > 1e-3


@pytest.mark.parametrize("family", FAMILIES)
def test_looking_twice_changes_nothing(family):
    test = seen(family)
    for i, z in enumerate(honest(4000, 8)):
        test.update(SampleBlock(i, z, claim=LAW, spread=None))
        before = test.evidence(alpha=0.001)
        assert test.evidence(alpha=0.001) == before


@pytest.mark.parametrize(
    "flaw", [lambda c: 2 * c, lambda c: 0 * c + 0.3, lambda c: c + 0.6, lambda c: 0.2 * c]
)
def test_one_coordinate_in_4096(flaw):
    blocks = honest(240, 4096, calls=2)
    assert evidence(Coordinates, blocks).p > 1e-3
    for b in blocks:
        b[:, 1234] = flaw(b[:, 1234])
    e = evidence(Coordinates, [*honest(4000, 64), *blocks])
    assert e.p < 1e-6
    assert (e.details["d"], e.details["coordinate"]) == (4096, 1234)


def test_the_interval_covers_the_chosen_coordinate():
    covered = 0
    for seed in range(60):
        e = evidence(Coordinates, honest(50, 30, seed=seed))
        truth = 1.0 if "scale" in e.effect else 0.0
        covered += e.interval.low <= truth <= e.interval.high
    assert covered >= 50  # 95 % at least; P(< 50 of 60 at 95 %) = 0.0003


def test_memory_is_bounded_over_coordinates():
    test = seen(Coordinates, *(np.ones((1, d)) for d in (700_000, 700_001, 5)))
    assert sum(len(s.total) for s in test._sums.values()) == 1 << 20
    assert any("beyond the first" in b.says for b in test.evidence(alpha=0.01).blind_spots)


def wishart_extremes(rows, columns, repeats, seed):
    """Smallest and largest eigenvalues from Dumitriu and Edelman's bidiagonal model (2002)."""
    rng = np.random.default_rng(seed)
    n, p = max(rows, columns), min(rows, columns)
    b = np.zeros((repeats, p, p))
    i = np.arange(p)
    b[:, i, i] = np.sqrt(rng.chisquare(n - i, (repeats, p)))
    if p > 1:
        b[:, i[1:], i[:-1]] = np.sqrt(rng.chisquare(p - i[1:], (repeats, p - 1)))
    values = np.linalg.eigvalsh(b @ b.transpose(0, 2, 1))
    return values[:, 0], values[:, -1]


@pytest.mark.parametrize(
    ("rows", "columns", "repeats"),
    [(2, 2, 60_000), (10**5, 3, 60_000), (4, 4, 60_000), (3, 9, 60_000), (400, 16, 10_000)],
)
def test_eigenvalue_tails_against_simulation(rows, columns, repeats):
    low, high = wishart_extremes(rows, columns, repeats, seed=rows)
    for level in (0.05, 1e-2, 1e-3, 1e-4):
        if level * repeats < 10:
            continue
        error = 4.5 / math.sqrt(level * repeats) + 0.03
        big = largest_eigenvalue_p(float(np.quantile(high, 1 - level)), rows=rows, columns=columns)
        small = smallest_eigenvalue_p(float(np.quantile(low, level)), rows=rows, columns=columns)
        assert big == pytest.approx(level, rel=error)
        assert small == pytest.approx(level, rel=error)


def test_eigenvalue_tail_of_one_column_is_chi_square():
    for x in (20.0, 40.0, 80.0):
        expected = pytest.approx(1.02 * scipy.special.chdtrc(10, x), rel=1e-10, abs=0)
        assert largest_eigenvalue_p(x, rows=10, columns=1) == expected
    expected = pytest.approx(1.02 * scipy.special.chdtr(10, 0.1), rel=1e-9)
    assert smallest_eigenvalue_p(0.1, rows=10, columns=1) == expected


def tracy_widom_tail(s, nodes=80):
    """1 − F₁(s) = 1 − det(I − Ai(x + y + s)) on L²(0, ∞) (Ferrari and Spohn 2005).

    By Bornemann's quadrature (2010).
    """
    t, w = np.polynomial.legendre.leggauss(nodes)
    x, w = 8 * (t + 1), 8 * w
    root = np.sqrt(w)
    kernel = root[:, None] * scipy.special.airy(x[:, None] + x[None, :] + s)[0] * root
    return -math.expm1(float(np.log1p(-np.linalg.eigvalsh(kernel)).sum()))


def test_tracy_widom_oracle_against_published_quantiles():
    for s, cdf in ((0.9793, 0.95), (2.0234, 0.99), (0.4501, 0.90)):
        assert 1 - tracy_widom_tail(s) == pytest.approx(cdf, abs=2e-5)


@pytest.mark.parametrize(("rows", "columns"), [(256, 256), (20_000, 256), (4096, 240)])
def test_eigenvalue_tails_tend_to_tracy_widom(rows, columns):
    """With Johnstone and Ma's (2012) second-order centring and scaling.

    Far out the limit lags behind: at 256 × 256 the exact tail at 2e-6 is 29 % larger.
    """
    n, p = math.sqrt(rows - 0.5), math.sqrt(columns - 0.5)
    centre, scale = (n + p) ** 2, (n + p) * (1 / n + 1 / p) ** (1 / 3)
    for s in (1.0, 2.0, 3.0, 5.0, 6.0):
        exact = largest_eigenvalue_p(centre + s * scale, rows=rows, columns=columns)
        assert exact == pytest.approx(tracy_widom_tail(s), rel=0.1 if s <= 3 else 0.3)


def test_quantile_inverts_the_tail():
    for rows, columns in ((100, 1), (5, 5), (65_536, 64), (4, 10**6)):
        x = largest_eigenvalue_quantile(1e-3, rows=rows, columns=columns)
        assert largest_eigenvalue_p(x, rows=rows, columns=columns) == pytest.approx(1e-3, rel=3e-3)


@pytest.mark.parametrize(("rows", "columns"), [(50, 2), (32, 8), (64, 16)])
def test_correlation_tails_against_simulation(rows, columns):
    repeats, rng = 10_000, np.random.default_rng(rows)
    lower = np.zeros((repeats, columns, columns))
    i = np.arange(columns)
    # Bartlett's decomposition
    lower[:, i, i] = np.sqrt(rng.chisquare(rows - i, (repeats, columns)))
    a, b = np.tril_indices(columns, -1)
    lower[:, a, b] = rng.standard_normal((repeats, len(a)))
    gram = lower @ lower.transpose(0, 2, 1)
    each = 1 / np.einsum("rii->ri", gram)
    squares = np.einsum("rij,ri,rj->r", gram**2, each, each, optimize=True) - columns
    p = [off_diagonal_p(float(t), rows=rows, columns=columns) for t in squares / 2 * rows]
    for level in (0.1, 1e-2, 1e-3, 1e-4):
        not_too_many(p, level)
    assert (np.asarray(p) <= 0.1).mean() > 0.03  # and not idle


def test_covariance_sees_a_direction_with_more_noise_and_covers_it():
    rng = np.random.default_rng(4)
    blocks, w = planted(20_000, 32, 1.15 * rng.standard_normal(20_000))
    e = evidence(Covariance, blocks)
    assert e.p < 1e-6
    assert abs(np.dot(e.details["d=32, strongest direction"], w)) > 0.8
    assert e.interval.low <= 1.15**2 <= e.interval.high
    assert e.interval.low > 1


@pytest.mark.parametrize(("n", "d", "size"), [(20_000, 16, 0.35), (240, 4096, 5)])
def test_covariance_sees_a_low_rank_component(n, d, size):
    rng = np.random.default_rng(5)
    factor = rng.standard_normal((3, d)) / math.sqrt(d) * size
    blocks = [0.97 * b + rng.standard_normal((len(b), 3)) @ factor for b in honest(n, d)]
    assert evidence(Covariance, blocks).p < 1e-4


@pytest.mark.slow
def test_covariance_of_wide_rows_sees_a_direction_once_rows_outnumber_columns():
    """Rows of d = 300 are kept until there are more than 300 of them, then only their products."""
    rng = np.random.default_rng(13)
    blocks, _ = planted(6_000, 300, math.sqrt(1.6) * rng.standard_normal(6_000), calls=30)
    e = evidence(Covariance, blocks)
    assert e.parts["d=300, largest"] < 1e-6
    assert e.interval.low <= 1.6 <= e.interval.high
    assert "6,000 rows" in e.effect
    assert evidence(Covariance, honest(6_000, 300, calls=30)).p > 1e-3
    assert evidence(Covariance, honest(200, 300, calls=30)).p > 1e-3


@pytest.mark.slow
def test_covariance_sees_a_pair_of_columns_of_wide_rows():
    """Two of 1,200 columns with correlation 0.5 in 300 rows, as no eigenvalue of 256 rows shows."""
    x = np.random.default_rng(14).standard_normal((300, 1200))
    assert evidence(Covariance, [x]).parts["d=1200, one pair of columns"] > 1e-3
    x[:, 900] = 0.5 * x[:, 77] + math.sqrt(0.75) * x[:, 900]
    e = evidence(Covariance, np.array_split(x, 7))
    assert e.parts["d=1200, one pair of columns"] < 1e-6
    assert "columns 77 and 900, correlation +0.5" in e.effect
    assert e.parts["d=1200, largest"] > 1e-3
    x[:, 5] = 1e8
    x[:, 6] = 0.0
    assert all(0 <= p <= 1 for p in evidence(Covariance, [x]).parts.values())


@pytest.mark.slow
def test_the_largest_correlation_of_columns_has_its_level():
    rng = np.random.default_rng(15)
    name = "d=1025, one pair of columns"
    p = [evidence(Covariance, [rng.standard_normal((40, 1025))]).parts[name] for _ in range(60)]
    for level in (0.3, 0.1, 0.01):
        not_too_many(p, level)


def test_covariance_sees_rows_that_are_too_even():
    """Orthogonal rows, as of a scrambled design: every correlation too small."""
    rng = np.random.default_rng(6)
    q = [np.linalg.qr(rng.standard_normal((16, 16)))[0] * math.sqrt(16) for _ in range(50)]
    assert evidence(Covariance, [np.concatenate(q)]).parts["d=16, correlations"] < 1e-6


@pytest.mark.parametrize("zeros", [1, 3])
@pytest.mark.filterwarnings("error")
def test_covariance_of_constant_columns_is_a_number(zeros):
    x = np.random.default_rng(8).standard_normal((64, 3))
    x[:, :zeros] = 0
    e = evidence(Covariance, [x])
    assert e.p < 1e-9
    assert all(0 <= p <= 1 for p in e.parts.values())


@pytest.mark.parametrize(("rows", "d", "repeats"), [(2, 96, 60), (5, 256, 12)])
def test_covariance_of_few_rows_is_quiet_on_honest_noise(rows, d, repeats):
    """From 2 rows the largest of 4,560 cosines rounds to 1 in float32: that is not p = 0."""
    rng = np.random.default_rng([7, rows, d])
    p = [evidence(Covariance, [rng.standard_normal((rows, d))]).p for _ in range(repeats)]
    for level in (0.1, 1e-2, 1e-4):
        not_too_many(p, level)


HIDDEN = [
    (60_000, 64, lambda n: pancake(n, 1.0, 0.1)),
    (16_000, 2, lambda n: pancake(n, 2 * math.sqrt(2), 0.1)),
    (16_000, 4, lambda n: pancake(n, 4.0, 0.1)),
    (30_000, 8, lambda n: pancake(n, 1.5, 0.1)),
    (30_000, 32, lambda n: np.random.default_rng(1).standard_t(5, n) * math.sqrt(3 / 5)),
    (30_000, 32, lambda n: np.random.default_rng(1).choice([-1.0, 1.0], n)),
    (30_000, 32, lambda n: 1.2 * np.random.default_rng(1).standard_normal(n)),
]


@functools.cache
def no_direction(n, d):
    return evidence(HiddenDirection, honest(n, d)).p > 1e-3


@pytest.mark.parametrize(("n", "d", "component"), HIDDEN)
def test_hidden_direction_is_found(n, d, component):
    blocks, w = planted(n, d, component(n))
    e = evidence(HiddenDirection, blocks)
    assert e.p < 1e-6
    assert abs(np.dot(e.details["direction"], w)) > 0.7
    assert no_direction(n, d)


def test_the_recovered_frequency_is_the_pancakes():
    gamma, beta = 2 * math.sqrt(2), 0.1
    blocks, _ = planted(16_000, 2, pancake(16_000, gamma, beta))
    frequency = (gamma**2 + beta**2) / (gamma * math.sqrt(2 * math.pi))
    times = evidence(HiddenDirection, blocks).details["frequency"] / frequency
    assert times == pytest.approx(round(times), abs=0.02)


def test_a_pancake_beyond_reach_is_not_found():
    blocks, _ = planted(30_000, 32, pancake(30_000, 2 * math.sqrt(32), 0.01))
    assert evidence(HiddenDirection, blocks).p > 1e-3


def test_scan_agrees_with_the_definition():
    x = planted(4000, 2, pancake(4000, 2.0, 0.05))[0]
    x = np.concatenate(x).astype(np.float32)
    u = scan(x, count=1)

    def slow(v):
        return np.abs(np.exp(2j * np.pi * (x @ v)).mean())

    assert slow(u[:, 0]) > slow(u[:, 0] + 0.1)
    better, size = climb(x, u, steps=5)
    assert size[0] >= slow(u[:, 0]) - 1e-3
    assert slow(better[:, 0]) == pytest.approx(size[0], abs=1e-4)
    frequency, found = best_frequencies(x, better / np.linalg.norm(better))
    assert frequency[0] == pytest.approx(np.linalg.norm(better), abs=1 / 16)
    assert found[0] > 0.5


@pytest.mark.parametrize("frequency", [0.2, 0.5, 1.3])
def test_phase_bound_holds_and_is_not_idle(frequency):
    rng = np.random.default_rng(12)
    n = 120
    phase = 2 * math.pi * frequency * rng.standard_normal((1_500, n))
    points = zip(np.cos(phase).mean(1), np.sin(phase).mean(1), strict=True)
    p = np.array([phase_p(a, b, n=n, frequency=frequency) for a, b in points])
    for level in (0.1, 1e-2, 1e-3):
        not_too_many(p, level)
    off = math.exp(-2 * (math.pi * frequency) ** 2) + 0.1
    assert phase_p(off, 0.0, n=30_000, frequency=frequency) < 4 * math.exp(-30_000 * 0.1**2 / 4)


@pytest.mark.slow
def test_fourth_order_bound_holds_and_is_not_idle():
    rng = np.random.default_rng(13)
    p = [fourth_order_p(np.bincount(c, minlength=4096)) for c in rng.integers(0, 4096, (5000, 150))]
    for level in (0.1, 1e-2):
        not_too_many(p, level)
    heavy = scipy.special.ndtr(rng.standard_t(5, 20_000) * math.sqrt(3 / 5)) * 4096
    assert fourth_order_p(np.bincount(np.minimum(heavy.astype(int), 4095), minlength=4096)) < 1e-9


def test_exact_law_of_the_features():
    rng = np.random.default_rng(14)
    w = rng.standard_normal((4, 5)) * 0.7
    x = rng.standard_normal((100_000, 4)) @ w
    features = np.hstack([np.cos(x), np.sin(x)])
    mean, covariance = _law(w)
    np.testing.assert_allclose(features.mean(0), mean, atol=0.012)
    np.testing.assert_allclose(np.cov(features.T), covariance, atol=0.012)


@pytest.mark.parametrize(("length", "bandwidth"), [(2, 1.0), (8, 0.15)])
def test_kernel_tail_against_simulation(length, bandwidth):
    rng = np.random.default_rng(15)
    w = rng.standard_normal((length, 16)) / (bandwidth * math.sqrt(length))
    mean, covariance = _law(w)
    n, p, w32 = 1000, [], w.astype(np.float32)
    for _ in range(400):
        x = rng.standard_normal((n, length), dtype=np.float32) @ w32
        delta = np.concatenate([np.cos(x).mean(0), np.sin(x).mean(0)]) - mean
        square, degrees = _hotelling(delta, covariance)
        p.append(scipy.special.chdtrc(degrees, n * square))
    for level in (0.1, 1e-2, 1e-3):
        not_too_many(p, level)
    assert (np.array(p) <= 0.1).mean() > 0.06


def paired_magnitudes(b):
    """Signs and sizes each as claimed, but neighbours share half of their sizes' ranks."""
    flat = b.reshape(-1, 2).copy()
    take = np.random.default_rng(1).random(len(flat)) < 0.2
    flat[take, 1] = np.sign(flat[take, 1]) * np.abs(flat[take, 0])
    return flat.reshape(b.shape)


def parity(b):
    """Three neighbours' signs have the product + more often; pairs are independent."""
    flat = b[:, : b.shape[1] // 3 * 3].reshape(-1, 3).copy()
    wrong = (np.prod(flat, axis=1) < 0) & (np.random.default_rng(1).random(len(flat)) < 0.6)
    flat[wrong, 2] *= -1
    return flat


@pytest.mark.parametrize("flaw", [paired_magnitudes, parity, lambda b: 1.03 * b])
def test_kernel_sees_joint_laws(flaw):
    blocks = honest(4_000, 24, calls=2)
    assert evidence(Kernel, blocks).p > 1e-3
    assert evidence(Kernel, [flaw(b) for b in blocks]).p < 1e-4
