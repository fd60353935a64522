"""Claims: parsing, its errors, and the exactness of their map to N(0, 1)."""

from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st

from dpaudit.claims import FAMILIES, Claim
from dpaudit.errors import UnknownNameError, UsageError


def spread() -> np.random.Generator:
    return np.random.default_rng(99)


def discrete_law(family: str, scale: float) -> tuple[np.ndarray, np.ndarray]:
    """Support and probabilities from the definition, one exponential at a time."""
    reach = int(60 * scale) + 5
    k = list(range(-reach, reach + 1))
    if family == "discrete-gaussian":
        mass = [math.exp(-(i * i) / (2 * scale * scale)) for i in k]
    else:
        q = math.exp(-1 / scale)
        mass = [(1 - q) / (1 + q) * q ** abs(i) for i in k]
    total = math.fsum(mass)
    return np.array(k, float), np.array(mass) / total


def draw(family: str, scale: float, n: int, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    if family == "gaussian":
        return scale * rng.standard_normal(n)
    if family == "laplace":
        return scale * (rng.exponential(size=n) - rng.exponential(size=n))
    k, mass = discrete_law(family, scale)
    return k[np.minimum(np.searchsorted(np.cumsum(mass), rng.random(n)), len(k) - 1)]


LAWS = [
    ("gaussian", 1.0),
    ("gaussian", 50.97),
    ("laplace", 0.3),
    ("laplace", 20.0),
    ("discrete-gaussian", 0.4),
    ("discrete-gaussian", 1.0),
    ("discrete-gaussian", 30.0),
    ("discrete-laplace", 0.3),
    ("discrete-laplace", 1.0),
    ("discrete-laplace", 25.0),
]


# ---------------------------------------------------------------- the map to N(0, 1)


@pytest.mark.parametrize(("family", "scale"), LAWS)
def test_exact_draws_become_standard_normal(family, scale):
    x = draw(family, scale, 60_000, seed=1)
    z = Claim(family, scale).to_normal(x, spread())
    assert z.shape == x.shape
    assert scipy.stats.kstest(z, "norm").pvalue > 1e-3
    tail = np.abs(z[np.abs(z) > 2])
    norm = scipy.stats.norm
    assert scipy.stats.kstest(tail, lambda v: 1 - norm.sf(v) / norm.sf(2)).pvalue > 1e-3


@pytest.mark.parametrize(("family", "scale"), LAWS)
def test_a_scale_five_percent_off_is_seen(family, scale):
    """The check above has power: the same sample against a claim that is off by 5 %."""
    x = draw(family, scale, 60_000, seed=1)
    z = Claim(family, 1.05 * scale).to_normal(x, spread())
    wrong_scale = abs((z**2).mean() - 1) > 6 * math.sqrt(2 / z.size)
    assert scipy.stats.kstest(z, "norm").pvalue < 1e-6 or wrong_scale


@pytest.mark.parametrize(
    ("family", "scale"), [law for law in LAWS if law[0].startswith("discrete")]
)
def test_each_atom_fills_exactly_its_share_of_the_line(family, scale):
    """An atom's uniforms fill (P(X < k), P(X ≤ k)), from either tail, without sampling error."""
    support, mass = discrete_law(family, scale)
    below = np.concatenate([[0], np.cumsum(mass)])
    claim = Claim(family, scale)
    for k in {0, 1, -1, 2, -3, round(scale), -round(3 * scale)}:
        i = int(np.flatnonzero(support == k)[0])
        u = scipy.stats.norm.cdf(claim.to_normal(np.full(4000, float(k)), spread()))
        low, high = below[i], below[i + 1]
        assert np.all((u >= low - 1e-12) & (u <= high + 1e-12))
        assert scipy.stats.kstest((u - low) / (high - low), "uniform").pvalue > 1e-4


def normal_quantile_of_tail(tail: mpmath.mpf) -> float:
    """z > 0 with P(N > z) = tail, in 40 digits."""
    start = mpmath.sqrt(-2 * mpmath.log(tail))
    return float(
        mpmath.findroot(
            lambda z: mpmath.log(mpmath.erfc(z / mpmath.sqrt(2)) / 2) - mpmath.log(tail), start
        )
    )


@pytest.mark.parametrize("multiple", [1e-9, 0.5, 40.0, 600.0])
@pytest.mark.parametrize("scale", [0.01, 7.0])
def test_laplace_tails_against_forty_digits(multiple, scale):
    claim = Claim("laplace", scale)
    z = claim.to_normal(np.array([multiple * scale, -multiple * scale]), spread())
    with mpmath.workdps(40):
        tail = mpmath.exp(-mpmath.mpf(multiple * scale) / mpmath.mpf(scale)) / 2
        expected = (
            normal_quantile_of_tail(tail)
            if multiple > 1e-6
            else float(multiple * mpmath.sqrt(mpmath.pi / 2))
        )
    assert z[0] == pytest.approx(expected, rel=1e-6 if multiple < 1e-6 else 1e-10)
    assert z[1] == -z[0]


def test_discrete_laplace_far_tail_against_its_closed_form():
    scale = 10.0
    for k in (50, 1000, 6000):
        z = Claim("discrete-laplace", scale).to_normal(
            np.array([float(k), -float(k)] * 500), spread()
        )
        with mpmath.workdps(40):
            q = mpmath.exp(-1 / mpmath.mpf(scale))
            near, far = (normal_quantile_of_tail(q**m / (1 + q)) for m in (k, k + 1))
        assert np.all((z[::2] >= near - 1e-9) & (z[::2] <= far + 1e-9))
        assert np.all((-z[1::2] >= near - 1e-9) & (-z[1::2] <= far + 1e-9))
        assert np.ptp(z[::2]) > 0.9 * (far - near)


def test_discrete_gaussian_far_tail_against_a_sum_in_forty_digits():
    scale = 3.0
    for k in (20, 60, 100):
        z = Claim("discrete-gaussian", scale).to_normal(
            np.array([float(k), -float(k)] * 500), spread()
        )
        with mpmath.workdps(60):
            total = mpmath.nsum(lambda i: mpmath.exp(-(i**2) / 18), [-mpmath.inf, mpmath.inf])
            upper = [
                mpmath.fsum(mpmath.exp(-mpmath.mpf(i**2) / 18) for i in range(m, m + 200))
                for m in (k, k + 1)
            ]
            near, far = (normal_quantile_of_tail(t / total) for t in upper)
        assert np.all((z[::2] >= near - 1e-9) & (z[::2] <= far + 1e-9))
        assert np.all((-z[1::2] >= near - 1e-9) & (-z[1::2] <= far + 1e-9))


@pytest.mark.parametrize("family", FAMILIES)
def test_absurd_values_stay_finite_and_keep_their_sign(family):
    x = np.array([1e15, -1e15, 1e300, -1e300, 0.0])
    z = Claim(family, 2.0).to_normal(x, spread())
    assert np.all(np.isfinite(z))
    assert np.all(np.sign(z[:4]) == [1, -1, 1, -1])
    assert np.all(np.abs(z[:4]) > 30)


@pytest.mark.parametrize("family", [f for f in FAMILIES if f.startswith("discrete")])
def test_off_support_values_count_as_the_nearest_integer(family):
    claim = Claim(family, 5.0)
    assert claim.to_normal(np.array([2.4, -0.6]), spread()) == pytest.approx(
        claim.to_normal(np.array([2.0, -1.0]), spread())
    )


def test_shapes_are_kept_and_the_input_is_not_written_to():
    x = np.arange(12, dtype=np.float64).reshape(3, 4) - 6
    kept = x.copy()
    for family in FAMILIES:
        assert Claim(family, 4.0).to_normal(x, spread()).shape == (3, 4)
    assert np.array_equal(x, kept)


@pytest.mark.parametrize(("family", "scale"), LAWS)
def test_standard_deviation(family, scale):
    if family.startswith("discrete"):
        k, mass = discrete_law(family, scale)
        expected = math.sqrt(math.fsum(mass * k * k))
    else:
        expected = {"gaussian": 1.0, "laplace": math.sqrt(2)}[family] * scale
    assert Claim(family, scale).standard_deviation == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("family", ["discrete-gaussian", "discrete-laplace"])
def test_the_largest_and_smallest_discrete_scales_work(family):
    big = Claim.parse(f"{family}:{FAMILIES[family]}=1e5")
    twin = Claim(family.removeprefix("discrete-"), 1e5)
    x = np.array([-3e5, -1e4, 5e4, 4e5])
    assert big.to_normal(x, spread()) == pytest.approx(twin.to_normal(x, spread()), abs=1e-4)
    assert big.standard_deviation == pytest.approx(twin.standard_deviation, rel=1e-6)
    tiny = Claim.parse(f"{family}:{FAMILIES[family]}=1e-200")
    z = tiny.to_normal(np.zeros(5000), spread())
    assert scipy.stats.kstest(z, "norm").pvalue > 1e-3
    assert abs(tiny.to_normal(np.array([1.0]), spread())[0]) > 30


def test_discrete_says_so():
    assert [f for f in FAMILIES if Claim(f, 1.0).discrete] == [
        "discrete-gaussian",
        "discrete-laplace",
    ]


# ---------------------------------------------------------------- the text


@given(
    st.sampled_from(sorted(FAMILIES)),
    st.floats(min_value=0, exclude_min=True, max_value=1e5) | st.integers(1, 10**5),
)
def test_parse_and_str_are_inverse(family, scale):
    claim = Claim(family, float(scale))
    assert Claim.parse(str(claim)) == claim
    assert Claim.parse(f"{family}:{FAMILIES[family]}={scale!r}") == claim


def test_str_is_what_people_write():
    assert str(Claim.parse("gaussian:sigma=1")) == "gaussian:sigma=1"
    assert str(Claim.parse("laplace: scale = 2.50")) == "laplace:scale=2.5"
    assert str(Claim("gaussian", 0.1 + 0.2)) == "gaussian:sigma=0.30000000000000004"


@pytest.mark.parametrize("family", sorted(FAMILIES))
@pytest.mark.parametrize(
    "value", ["0", "-1", "nan", "-inf", "", "one", "true", "1e400", "1" + "0" * 400, "1/2"]
)
def test_an_impossible_scale_names_value_rule_and_remedy(family, value):
    parameter = FAMILIES[family]
    with pytest.raises(UsageError) as caught:
        Claim.parse(f"{family}:{parameter}={value}")
    message = str(caught.value)
    assert f"claim={family}:{parameter}={value}" in message
    assert "must be a finite number > 0" in message
    assert f"write e.g. {family}:{parameter}=1" in message


@pytest.mark.parametrize(
    ("text", "kind", "says"),
    [
        ("gausian:sigma=1", UnknownNameError, "did you mean 'gaussian'?"),
        ("Laplace:scale=1", UnknownNameError, "did you mean 'laplace'?"),
        ("", UnknownNameError, "there are: discrete-gaussian, discrete-laplace, gaussian, laplace"),
        ("laplace:sigma=1", UnknownNameError, "laplace has no 'sigma'; write e.g. laplace:scale=1"),
        ("gaussian:sigma=1,mean=3", UnknownNameError, "gaussian has no 'mean'"),
        ("gaussian", UsageError, "sigma is missing; write e.g. gaussian:sigma=1"),
        ("laplace:", UsageError, "scale is missing; write e.g. laplace:scale=1"),
        ("gaussian:sigma", UsageError, "an option is written name=value, e.g. gaussian:sigma=1"),
        ("laplace:1", UsageError, "an option is written name=value, e.g. laplace:scale=1"),
        ("gaussian:sigma=1,sigma=2", UsageError, "given twice"),
        ("discrete-gaussian:sigma=100001", UsageError, "above 100000 is not supported"),
        ("discrete-laplace:scale=1e6", UsageError, "above 100000 is not supported"),
    ],
)
def test_what_cannot_be_read_is_explained(text, kind, says):
    with pytest.raises(kind) as caught:
        Claim.parse(text)
    assert says in str(caught.value)
    assert text in str(caught.value)
