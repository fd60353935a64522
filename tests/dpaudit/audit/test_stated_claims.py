"""Claims of ρ-zCDP, Rényi DP, a δ(ε) curve and f: what they imply, and when counts refute them."""

import json
import math
import re

import numpy as np
import pytest
from command_line import here as dpaudit
from scipy import integrate, optimize, stats

from dpaudit import audit_mechanism
from dpaudit.accounting import gaussian_delta, gaussian_epsilon
from dpaudit.audit.epsilon.bounds import Band, band
from dpaudit.audit.epsilon.verdict import two_neighbour_blind_spots
from dpaudit.audit.options import PrivacyClaim
from dpaudit.audit.stated_claims import (
    DeltaCurve,
    Renyi,
    TradeOff,
    ZeroConcentrated,
    delta_of_renyi,
    epsilon_of_renyi,
)
from dpaudit.errors import UsageError
from dpaudit.report.meaning import mechanism_meaning
from dpaudit.report.mechanism import mechanism_facts, mechanism_sentence

EXACT = 1e-6


def known(p0, p1):
    """The band of events whose probabilities are known."""
    return Band(np.asarray(p0), np.asarray(p0), np.asarray(p1), np.asarray(p1))


def divergence(p, q, order):
    """Rényi divergence of two lists of probabilities, the plain sum."""
    return math.log(sum(a**order * b ** (1 - order) for a, b in zip(p, q, strict=True))) / (
        order - 1
    )


@pytest.mark.parametrize("order", [1.5, 3.0, 20.0])
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 3.0])
def test_delta_of_a_divergence_is_an_upper_bound_with_the_best_constant(order, epsilon):
    """For Gaussian noise by integration; the constant by a search over losses."""
    sigma = 1.3
    loss = lambda x: (2 * x - 1) / (2 * sigma**2)  # noqa: E731
    p = stats.norm(1, sigma)
    true, _ = integrate.quad(
        lambda x: p.pdf(x) * max(0.0, 1 - math.exp(epsilon - loss(x))), -20, 20, limit=400
    )
    assert true == pytest.approx(gaussian_delta(epsilon, sigma=sigma), rel=1e-4)
    bound = delta_of_renyi(epsilon, order=order, divergence=order / (2 * sigma**2))
    assert true <= bound
    x = np.linspace(epsilon, epsilon + 10, 200_001)
    constant = ((1 - np.exp(epsilon - x)) * np.exp(-(order - 1) * x)).max()
    assert delta_of_renyi(epsilon, order=order, divergence=0.0) == pytest.approx(constant, rel=1e-6)
    back = epsilon_of_renyi(bound, order=order, divergence=order / (2 * sigma**2))
    assert bound == 1 or back == pytest.approx(epsilon, abs=1e-9)


@pytest.mark.parametrize("rho", [0.01, 0.5, 4.0])
@pytest.mark.parametrize("delta", [1e-10, 1e-5, 1e-2])
def test_rho_implies_the_least_epsilon_over_orders(rho, delta):
    epsilon, at = ZeroConcentrated(rho).implied(delta)
    best = optimize.minimize_scalar(
        lambda t: epsilon_of_renyi(
            delta, order=1 + math.exp(t), divergence=rho * (1 + math.exp(t))
        ),
        bounds=(-5, 10),
        method="bounded",
        options={"xatol": 1e-10},
    )
    assert at == delta
    assert best.fun - 1e-9 <= epsilon <= best.fun * (1 + 1e-4) + 1e-6
    # Gaussian noise of that ρ has it; the plain conversion of Bun and Steinke is worse
    assert gaussian_epsilon(delta, sigma=1 / math.sqrt(2 * rho)) < epsilon
    assert epsilon < rho + 2 * math.sqrt(rho * math.log(1 / delta))


def test_all_events_show_the_whole_divergence_and_some_show_less():
    rng = np.random.default_rng(7)
    for _ in range(20):
        p, q = rng.dirichlet(np.ones(6)), rng.dirichlet(np.ones(6))
        by_ratio = np.argsort(-p / q)
        p1, p0 = np.cumsum(p[by_ratio])[:-1], np.cumsum(q[by_ratio])[:-1]
        for order in (1.01, 2.0, 7.0):
            orders = np.array([order])
            true = max(divergence(p, q, order), divergence(q, p, order))
            assert known(p0, p1).renyi(orders)[0] == pytest.approx(true, rel=EXACT)
            assert known(p1, p0).renyi(orders)[0] == pytest.approx(true, rel=EXACT)
            assert known(1 - p0, 1 - p1).renyi(orders)[0] == pytest.approx(true, rel=EXACT)
            some = rng.random(5) < 0.5
            if some.any():
                assert known(p0[some], p1[some]).renyi(orders)[0] <= true * (1 + EXACT)
    one = known([0.2], [0.7]).renyi(np.array([3.0]))[0]
    assert one == pytest.approx(
        max(divergence([0.7, 0.3], [0.2, 0.8], 3), divergence([0.2, 0.8], [0.7, 0.3], 3))
    )


def test_half_lines_of_gaussian_noise_approach_rho_from_below():
    at = np.linspace(-8, 9, 2001)
    whole = known(stats.norm.sf(at), stats.norm.sf(at - 1))
    low, _ = ZeroConcentrated(0.5).shown([whole])
    assert 0.499 < low < 0.5
    assert not ZeroConcentrated(0.5).contradicted(whole)
    assert ZeroConcentrated(0.499).contradicted(whole)
    assert 0.998 * 1.5 < Renyi(3.0, 1.5).shown([whole])[0] <= 1.5


def test_power_is_that_of_mixed_tests_in_both_directions():
    some = known([0.1, 0.4], [0.5, 0.8])
    # from (0, 0) over (0.1, 0.5) and (0.4, 0.8) to (1, 1); reflected, over (0.2, 0.6), (0.5, 0.9)
    assert some.power(np.array([0.05, 0.1, 0.25]))[:2] == pytest.approx([0.25, 0.5])
    assert some.power(np.array([0.25]))[0] == pytest.approx(0.65)
    assert some.power(np.array([0.5]))[0] == pytest.approx(0.9)  # the reflected corner
    assert known([0.5], [0.5]).power(np.array([0.3]))[0] == pytest.approx(0.3)


def test_f_implies_epsilon_by_its_steps():
    """Against a search over all type-I errors, with f constant between rows."""
    rows = ((0.0, 0.99), (0.1, 0.6), (0.3, 0.3), (0.6, 0.05))
    claim = TradeOff(rows)

    def f(a):
        return next((b for at, b in rows if a <= at), 0.0)

    for delta in (1e-5, 0.45, 0.6):
        epsilon, at = claim.implied(delta)
        errors = np.linspace(0, 1, 50_001)[1:]
        need = max(1 - f(a) - math.exp(epsilon) * a for a in (0.0, *errors))
        assert need <= at + 1e-9
        worse = max(1 - f(a) - math.exp(epsilon - 0.01) * a for a in errors)
        assert epsilon == 0 or worse > at
    assert claim.implied(1e-5)[1] == pytest.approx(0.4)  # just above 0, f is 0.6


def test_a_curve_implies_its_row():
    claim = DeltaCurve.of([(4, 1e-6), (0, 0.3), (1, 0.1)])
    assert claim.implied(1e-5) == (4, 1e-6)
    assert claim.implied(0.2) == (1, 0.1)
    assert DeltaCurve.of("0,0.3;1,0.1").implied(1e-5) == (1, 0.1)


RESPONSE = 0.75  # randomized response: 0.75 against 0.25
RHO = max(divergence([0.75, 0.25], [0.25, 0.75], a) / a for a in 1 + np.geomspace(1e-4, 500, 4000))


def responses(stated, *, runs, n, p=RESPONSE, alpha=0.05, seed=11):
    """The share of simulated audits of one event in which the claim is refuted."""
    rng = np.random.default_rng(seed)
    k0, k1 = rng.binomial(n, 1 - p, runs), rng.binomial(n, p, runs)
    found = [
        stated.contradicted(band(k0[i : i + 1], n, k1[i : i + 1], n, alpha=alpha))
        for i in range(runs)
    ]
    return float(np.mean(found))


AT_THE_CLAIM = [
    ZeroConcentrated(RHO),
    Renyi(2.0, divergence([0.75, 0.25], [0.25, 0.75], 2)),
    Renyi(30.0, divergence([0.75, 0.25], [0.25, 0.75], 30)),
    DeltaCurve(((0.0, 0.5), (1.0, 0.75 - 0.25 * math.e), (math.log(3), 0.0))),
    TradeOff(((0.1, 0.7), (0.25, 0.25), (0.7, 0.1))),
]


@pytest.mark.parametrize("stated", AT_THE_CLAIM, ids=lambda s: s.text)
def test_a_mechanism_at_its_claim_is_refuted_no_more_often_than_alpha(stated):
    share = responses(stated, runs=1500, n=1000)
    assert share <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / 1500)


@pytest.mark.parametrize(
    "stated",
    [
        ZeroConcentrated(RHO / 1.1),
        Renyi(2.0, divergence([0.75, 0.25], [0.25, 0.75], 2) / 1.1),
        Renyi(30.0, divergence([0.75, 0.25], [0.25, 0.75], 30) / 1.1),
        DeltaCurve(((0.0, 0.5), (1.0, 0.75 - 0.25 * math.e), (math.log(3) / 1.1, 0.0))),
        TradeOff(((0.1, 0.7), (0.25, 0.275), (0.7, 0.1))),
    ],
    ids=lambda s: s.text,
)
def test_a_tenth_beyond_the_claim_is_refuted(stated):
    assert responses(stated, runs=50, n=40_000) >= 0.9


def gaussian(scale, seed=5):
    rng = np.random.default_rng(seed)
    return lambda value, n: np.round((value + rng.normal(0, scale, n)) * 64) / 64


ERRORS = np.linspace(0, 1, 201)
OF_GAUSSIAN = {
    "rho": 0.5,
    "renyi": (1.1, 0.55),
    "curve": [(e, gaussian_delta(e, sigma=1.0)) for e in (0.0, 0.5, 1.0, 2.0, 4.0)],
    "f": [(float(a), float(stats.norm.cdf(stats.norm.isf(a) - 1))) for a in ERRORS],
}


@pytest.mark.parametrize("name", OF_GAUSSIAN)
@pytest.mark.parametrize(("scale", "verdict"), [(1.02, "no-finding"), (0.9, "finding")])
def test_gaussian_noise_of_a_tenth_less_is_found(name, scale, verdict):
    """The grid adds a little sensitivity, so the honest scale is 1.02."""
    result = audit_mechanism(
        gaussian(scale), neighbours=(0, 1), samples=1e5, seed=1, **{name: OF_GAUSSIAN[name]}
    )
    assert result.verdict == verdict
    stated = result.stated
    assert stated.claim in mechanism_sentence(result)
    assert stated.says in mechanism_sentence(result)
    assert stated.claim in repr(result)
    facts = dict(mechanism_facts(result))
    assert (facts["Claimed"], facts["Shown"]) == (stated.claim, stated.says)
    assert "ε claimed" not in facts
    if stated.value is not None:
        assert stated.says.startswith(f"{stated.unit} ≥ ")
        assert (stated.shown.low > stated.value) == (verdict == "finding")
        assert stated.shown.confidence == pytest.approx(0.99)
    (curve,) = (t for t in result.tests if t.name == "trade-off curve")
    assert "at the implied δ" in curve.effect
    if verdict == "no-finding":
        assert f"{stated.claim} is claimed" in mechanism_meaning(result)[0].says


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"rho": -1.0}, "claim-rho=-1.0: must be a finite number ≥ 0"),
        ({"rho": math.nan}, "claim-rho=nan"),
        ({"rho": 1e4}, "claim-rho=10000-zCDP: implies ε = .* promises nothing"),
        ({"renyi": "2"}, "claim-renyi=2: write ORDER,EPSILON"),
        ({"renyi": "x,1"}, "claim-renyi=x,1: write ORDER,EPSILON"),
        ({"renyi": (1.0, 1.0)}, "the order must lie above 1"),
        ({"renyi": "inf,1"}, "is pure ε-DP; write --claim-epsilon"),
        ({"renyi": "2,-1"}, "ε must be a finite number ≥ 0"),
        ({"curve": []}, "claim-curve: has no rows"),
        ({"curve": "1,0.1;2,0.2"}, "δ grows from 0.1 at 1 to 0.2 at 2"),
        ({"curve": "1,1.5"}, "claim-curve=1.0,1.5: out of range"),
        ({"curve": "1;2"}, "claim-curve=1;2: not pairs of numbers"),
        ({"curve": "gone.csv"}, "claim-curve=gone.csv: .*check the path"),
        ({"f": "0.1,0.95"}, "the errors add up to more than 1"),
        ({"f": "0,1;0.1,0.1;0.2,0.3"}, "type II grows from 0.1 at 0.1 to 0.3"),
        ({"f": "0,1;1,0"}, "promises nothing"),
        ({"rho": 1.0, "epsilon": 1.0}, "claim-epsilon: cannot be given with claim-rho"),
        ({"f": "0.1,0.5", "mu": 1.0}, "claim-mu: cannot be given with claim-f"),
        ({"rho": 1.0, "renyi": "2,1"}, "claim-renyi: cannot be given with claim-rho"),
        ({"f": "0.1,0.5", "delta": 1e-5}, "claim-delta=1e-05: claim-f has its own δ"),
        ({"curve": "1,0.1", "delta": 1e-5}, "claim-curve has its own δ at every row"),
        ({"rho": 1.0, "delta": 2.0}, r"claim-delta=2.0: must lie in \[0, 1\)"),
    ],
)
def test_claims_that_are_none_are_refused(given, says):
    with pytest.raises(UsageError, match=says):
        PrivacyClaim.of(given.pop("epsilon", None), given.pop("delta", 0.0), **given)


def test_a_gaussian_with_a_row_at_delta_0_is_refused_and_with_rho_is_not(monkeypatch):
    def drawn(*args, **options):
        raise AssertionError("something was drawn")

    monkeypatch.setattr("dpaudit.audit.epsilon.run.open_mechanism", drawn)
    with pytest.raises(UsageError, match=r"is not \(ε, 0\)-DP for any ε"):
        audit_mechanism("numpy:normal", neighbours=(0, 1), curve=[(1, 0.1), (9, 0.0)])
    with pytest.raises(AssertionError, match="something was drawn"):
        audit_mechanism("numpy:normal", neighbours=(0, 1), rho=0.5)


def test_what_a_pass_excludes_is_counted_in_terms_of_the_claim():
    """Nine in ten simulated counts of an event of the said ε contradict the claim; of less, not."""
    draws, alpha = 20_000, 0.0025
    both = (alpha, alpha)
    claim = PrivacyClaim.of(None, rho=0.5)
    spots = {s.flaw: s for s in two_neighbour_blind_spots(draws=draws, claim=claim, alphas=both)}
    spot = spots["ε above the claim, on an event of probability 1/2"]
    rng = np.random.default_rng(3)
    n = draws // 2

    def found(epsilon):
        k0, k1 = rng.binomial(n, 0.5 * math.exp(-epsilon), 300), rng.binomial(n, 0.5, 300)
        return np.mean([
            claim.stated.contradicted(band(a, n, b, n, alpha=alpha))
            for a, b in zip(k0[:, None], k1[:, None], strict=True)
        ])  # fmt: skip

    assert found(spot.size) >= 0.85
    assert found(0.95 * spot.size) < 0.85
    assert spot.size < claim.epsilon  # the ε that ρ implies would need far more
    few = two_neighbour_blind_spots(draws=20, claim=claim, alphas=both)
    assert "0.5-zCDP is more than so few releases can show" in few[1].says


NOISE = """\
import numpy as np
rng = np.random.default_rng(5)
def normal(value, n): return np.round((value + rng.normal(0, 0.7, n)) * 64) / 64
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "claim"),
    [
        (("--claim-rho", "0.5"), "0.5-zCDP"),
        (("--claim-renyi", "1.5,0.75"), "(1.5, 0.75)-Rényi DP"),
        (("--claim-curve", "curve.csv"), "(ε, δ)-DP for all of (0, 0.383), (1, 0.127)"),
        (("--claim-f", "f.csv"), "f-DP with f through (0.1, 0.6), (0.3, 0.3)"),
    ],
)
def test_the_command_line_says_the_claim_as_it_was_stated(tmp_path, words, claim):
    (tmp_path / "noise.py").write_text(NOISE)
    (tmp_path / "curve.csv").write_text("epsilon,delta\n0,0.383\n1,0.127\n")
    (tmp_path / "f.csv").write_text("0.3,0.3\n0.1,0.6\n")
    args = ("mechanism", "python:./noise.py:normal", "--neighbours", "0,1", *words)
    done = dpaudit(*args, "--samples=2e4", "--seed=1", "--out=o", "--format=json", cwd=tmp_path)
    assert done.returncode == 1, done.stderr
    result = json.loads(done.stdout)
    assert result["stated"]["claim"] == claim
    again = next(t["reproduce"] for t in result["tests"] if t["finding"])
    assert " ".join(words) in again
    assert "--claim-epsilon" not in again
    assert ("--claim-delta" in again) == (words[0] in ("--claim-rho", "--claim-renyi"))
    page = (tmp_path / "o" / "report.html").read_text()
    assert f"is not {claim}: we can show " in re.sub("</?span[^>]*>", "", page)


@pytest.fixture
def clear_scores(tmp_path):
    """400 canaries that give themselves away."""
    rng = np.random.default_rng(2)
    member = rng.integers(0, 2, 400)
    path = tmp_path / "s.npz"
    np.savez(path, score=member + rng.normal(0, 0.1, 400), member=member)
    return f"scores:{path}"


def test_recorded_scores_are_judged_in_the_claims_own_terms(clear_scores):
    result = audit_mechanism(clear_scores, rho=0.02, seed=1)
    assert result.verdict == "finding"
    assert result.tests[0].name == "one run, ρ"
    assert result.stated.claim == "0.02-zCDP"
    assert result.stated.says.startswith("ρ ≥ ")
    assert result.stated.shown.low > 0.5
    assert result.claim_epsilon == pytest.approx(ZeroConcentrated(0.02).implied(1e-5)[0])


TINY = np.geomspace(1e-9, 0.999, 60)


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ({"renyi": (8, 0.5)}, "one run, D_8"),
        ({"curve": [(0.5, 1e-4), (1.0, 1e-6)]}, "one run, δ(ε) curve"),
        ({"f": [(a, stats.norm.cdf(stats.norm.isf(a) - 0.5)) for a in TINY]}, "one run, f"),
        ({"dpsgd": "sigma=2,rate=0.1,steps=20"}, "one run, DP-SGD"),
    ],
)
def test_every_claim_has_a_test_of_its_own_in_one_run(clear_scores, given, name):
    if "dpsgd" in given:
        pytest.importorskip("dp_accounting")
    result = audit_mechanism(clear_scores, seed=1, **given)
    assert result.tests[0].name == name
    assert result.tests[0].finding
    assert result.stated.says


def test_the_shares_of_alpha_add_up(clear_scores):
    """ε at δ beside another claim is shown with a tenth of α."""
    beside = audit_mechanism(clear_scores, curve=[(1.0, 1e-5)], seed=1, alpha=0.1)
    alone = audit_mechanism(clear_scores, epsilon=1.0, delta=1e-5, seed=1, alpha=0.01)
    rows = [t for t in (*beside.tests, *alone.tests) if t.name == "one run, ε at δ"]
    assert rows[0].statistic == pytest.approx(rows[1].statistic)


def test_counts_are_judged_in_the_claims_own_terms():
    result = audit_mechanism("counts:490,10,10,490", rho=0.1, seed=1)
    assert result.verdict == "finding"
    assert result.stated.says.startswith("ρ ≥ ")
    assert audit_mechanism("counts:260,240,245,255", rho=0.1, seed=1).verdict == "no-finding"
