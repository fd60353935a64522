"""Claims: parsing, its errors, and the exactness of their map to N(0, 1)."""

from __future__ import annotations

import math
import shlex

import mpmath
import numpy as np
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st

from dpaudit.accounting.dpsgd import DpSgd
from dpaudit.audit.claims import DeltaCurve, PrivacyClaim, Renyi, TradeOff
from dpaudit.claims import FAMILIES, Claim
from dpaudit.errors import UnknownNameError, UsageError
from dpaudit_prove.verdicts import claims as proofs


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


def laplace_tails(k):
    """P(X ≥ k) and P(X > k) of the discrete Laplace law of scale 10, in closed form."""
    q = mpmath.exp(-1 / mpmath.mpf(10))
    return [q**m / (1 + q) for m in (k, k + 1)]


def gaussian_tails(k):
    """P(X ≥ k) and P(X > k) of the discrete Gaussian of σ = 3, by sums."""
    total = mpmath.nsum(lambda i: mpmath.exp(-(i**2) / 18), [-mpmath.inf, mpmath.inf])
    terms = [mpmath.exp(-mpmath.mpf(i**2) / 18) for i in range(k, k + 201)]
    return [mpmath.fsum(terms) / total, mpmath.fsum(terms[1:]) / total]


@pytest.mark.parametrize(
    ("claim", "tails", "places"),
    [
        (Claim("discrete-laplace", 10.0), laplace_tails, (50, 1000, 6000)),
        (Claim("discrete-gaussian", 3.0), gaussian_tails, (20, 60, 100)),
    ],
)
def test_far_discrete_tails_against_sixty_digits(claim, tails, places):
    for k in places:
        z = claim.to_normal(np.array([float(k), -float(k)] * 500), spread())
        with mpmath.workdps(60):
            near, far = map(normal_quantile_of_tail, tails(k))
        for side in (z[::2], -z[1::2]):
            assert np.all((side >= near - 1e-9) & (side <= far + 1e-9))
            assert tails is gaussian_tails or np.ptp(side) > 0.9 * (far - near)


@pytest.mark.parametrize("family", FAMILIES)
def test_absurd_values_stay_finite_and_keep_their_sign_and_the_input_its_values(family):
    x = np.array([[1e15, -1e15], [1e300, -1e300], [0.0, 1.0]])
    kept = x.copy()
    z = Claim(family, 2.0).to_normal(x, spread())
    assert np.array_equal(x, kept)
    assert np.all(np.isfinite(z))
    assert np.all(np.sign(z[:2]) == [1, -1])
    assert np.all(np.abs(z[:2]) > 30)


@pytest.mark.parametrize("family", [f for f in FAMILIES if f.startswith("discrete")])
def test_off_support_values_count_as_the_nearest_integer(family):
    claim = Claim(family, 5.0)
    assert claim.to_normal(np.array([2.4, -0.6]), spread()) == pytest.approx(
        claim.to_normal(np.array([2.0, -1.0]), spread())
    )


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


# ---------------------------------------------------------------- the text


@pytest.mark.slow
@given(
    st.sampled_from(sorted(FAMILIES)),
    st.floats(min_value=0, exclude_min=True, max_value=1e5) | st.integers(1, 10**5),
)
def test_parse_and_str_are_inverse(family, scale):
    claim = Claim(family, float(scale))
    assert Claim.parse(str(claim)) == claim
    assert Claim.parse(f"{family}:{FAMILIES[family]}={scale!r}") == claim


@pytest.mark.parametrize("family", sorted(FAMILIES))
@pytest.mark.parametrize(
    "value", ["0", "-1", "nan", "-inf", "", "one", "true", "1e400", "1" + "0" * 400, "1/2"]
)
def test_an_impossible_scale_names_its_value(family, value):
    with pytest.raises(UsageError, match=f"claim={family}:{FAMILIES[family]}={value}"):
        Claim.parse(f"{family}:{FAMILIES[family]}={value}")


@pytest.mark.parametrize(
    ("text", "kind", "says"),
    [
        ("gausian:sigma=1", UnknownNameError, "'gaussian'"),
        ("Laplace:scale=1", UnknownNameError, "'laplace'"),
        ("", UnknownNameError, ""),
        ("laplace:sigma=1", UnknownNameError, "'sigma'.* laplace:scale=1"),
        ("gaussian:sigma=1,mean=3", UnknownNameError, "'mean'"),
        ("gaussian:sigma=1,sigma=2", UsageError, "twice"),
        ("discrete-gaussian:sigma=100001", UsageError, "above 100000"),
        ("discrete-laplace:scale=1e6", UsageError, "above 100000"),
    ],
)
def test_what_cannot_be_read_is_explained(text, kind, says):
    with pytest.raises(kind, match=f"{text}.*{says}"):
        Claim.parse(text)


# ------------------------------------------------------ an error ends with a claim to be typed

PARSE = {"audit": Claim.parse, "prove": proofs.ClaimedLaw.parse}
FAMILY = [("audit", name) for name in FAMILIES] + [("prove", name) for name in proofs.FAMILIES]
STATED = {"curve": DeltaCurve, "f": TradeOff, "renyi": Renyi, "dpsgd": DpSgd}


def example_in(error):
    (example,) = shlex.split(str(error.value).rpartition("e.g. ")[2])
    return example


@pytest.mark.parametrize(("command", "family"), FAMILY)
@pytest.mark.parametrize("rest", ["", ":", ":x", ":x=1", ":dim=x", ":{0}=x", ":{0}=-1"])
def test_an_error_ends_with_a_claim_that_parses(command, family, rest):
    first = FAMILIES[family] if command == "audit" else "weights"
    with pytest.raises(UsageError) as error:
        PARSE[command](f"{family}{rest.format(first)}")
    assert example_in(error).startswith(f"{family}:")
    assert PARSE[command](example_in(error)).__class__ in (Claim, proofs.ClaimedLaw)


@pytest.mark.parametrize(
    ("command", "separator", "known"),
    [("audit", ", ", FAMILIES), ("prove", " | ", proofs.FAMILIES)],
)
def test_an_unknown_family_is_answered_with_one_claim_of_each(command, separator, known):
    with pytest.raises(UsageError) as error:
        PARSE[command]("cauchy:scale=1")
    examples = str(error.value).rpartition("write one of ")[2].split(separator)
    assert [PARSE[command](x) and x.partition(":")[0] for x in examples] == [*known]


@pytest.mark.parametrize("name", STATED)
@pytest.mark.parametrize("text", ["x", "", "x=1", "-1,2"])
def test_an_error_about_a_mechanism_ends_with_a_claim_that_parses(name, text):
    with pytest.raises(UsageError, match=f"claim-{name}") as error:
        PrivacyClaim.of(None, **{name: text})
    assert PrivacyClaim.of(None, **{name: example_in(error)}).stated is not None
    assert example_in(error) == STATED[name].EXAMPLE
