"""Claims of ρ-zCDP, Rényi DP, a δ(ε) curve and f: what they imply, and when counts refute them."""

import dataclasses
import json
import math
import re

import numpy as np
import pytest
from command_line import here as dpaudit
from scipy import integrate, optimize, stats

from dpaudit import audit_mechanism, registry
from dpaudit.accounting import gaussian_delta, gaussian_epsilon
from dpaudit.audit.claims import (
    DeltaCurve,
    Gaussian,
    PrivacyClaim,
    Renyi,
    TradeOff,
    ZeroConcentrated,
    epsilon_of_renyi,
)
from dpaudit.audit.claims.implied import of_renyi
from dpaudit.audit.mechanism.bounds import Band, band
from dpaudit.audit.mechanism.one_run import tradeoff_of_mu, tradeoff_of_profile
from dpaudit.audit.mechanism.verdict import two_neighbour_blind_spots
from dpaudit.errors import UsageError
from dpaudit.report import describe
from dpaudit.targets.identity import declared_law

EXACT = 1e-6


def delta_of_renyi(epsilon, *, order, divergence):
    """Canonne, Kamath and Steinke 2020, Proposition 12."""
    log = (order - 1) * (divergence - epsilon + math.log1p(-1 / order)) - math.log(order)
    return math.exp(min(0.0, log))


def facts_of(result):
    """The names and values at the top of a result's report."""
    blocks = describe(result).sections[0].blocks
    return dict(pair for block in blocks for pair in block.rows)


def known(p0, p1):
    """The band of events whose probabilities are known."""
    return Band(*map(np.asarray, (p0, p0, p1, p1)))


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
    low, _ = ZeroConcentrated(0.5).bound([whole])
    assert 0.499 < low < 0.5
    assert not ZeroConcentrated(0.5).contradicted(whole)
    assert ZeroConcentrated(0.499).contradicted(whole)
    assert 0.998 * 1.5 < Renyi(3.0, 1.5).bound([whole])[0] <= 1.5


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


D2, D30 = (divergence([0.75, 0.25], [0.25, 0.75], order) for order in (2, 30))
RHO = max(divergence([0.75, 0.25], [0.25, 0.75], a) / a for a in 1 + np.geomspace(1e-4, 500, 4000))
E_DELTA = 0.75 - 0.25 * math.e


def responses(stated, *, runs, n, alpha=0.05, seed=11):
    """The share of simulated audits in which the claim is refuted: 0.75 against 0.25."""
    rng = np.random.default_rng(seed)
    k0, k1 = rng.binomial(n, 0.25, runs), rng.binomial(n, 0.75, runs)
    pairs = zip(k0[:, None], k1[:, None], strict=True)
    return np.mean([stated.contradicted(band(a, n, b, n, alpha=alpha)) for a, b in pairs])


AT_THE_CLAIM = [
    ZeroConcentrated(RHO),
    Renyi(2.0, D2),
    Renyi(30.0, D30),
    DeltaCurve(((0.0, 0.5), (1.0, E_DELTA), (math.log(3), 0.0))),
    TradeOff(((0.1, 0.7), (0.25, 0.25), (0.7, 0.1))),
]
BEYOND = [
    ZeroConcentrated(RHO / 1.1),
    Renyi(2.0, D2 / 1.1),
    Renyi(30.0, D30 / 1.1),
    DeltaCurve(((0.0, 0.5), (1.0, E_DELTA), (math.log(3) / 1.1, 0.0))),
    TradeOff(((0.1, 0.7), (0.25, 0.275), (0.7, 0.1))),
]


@pytest.mark.slow
@pytest.mark.parametrize("stated", AT_THE_CLAIM, ids=lambda s: s.text)
def test_a_mechanism_at_its_claim_is_refuted_no_more_often_than_alpha(stated):
    share = responses(stated, runs=1500, n=1000)
    assert share <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / 1500)


@pytest.mark.parametrize("stated", BEYOND, ids=lambda s: s.text)
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


@pytest.mark.slow
@pytest.mark.parametrize("name", OF_GAUSSIAN)
@pytest.mark.parametrize(("scale", "verdict"), [(1.02, "no-finding"), (0.9, "finding")])
def test_gaussian_noise_of_a_tenth_less_is_found(name, scale, verdict):
    """The grid adds a little sensitivity, so the honest scale is 1.02."""
    claim = {name: OF_GAUSSIAN[name]}
    result = audit_mechanism(gaussian(scale), neighbours=(0, 1), samples=1e5, seed=1, **claim)
    assert result.verdict == verdict
    stated = result.stated
    assert {stated.claim, stated.says} <= set(facts_of(result).values())
    assert stated.claim in describe(result).headline
    if stated.value is not None:
        assert stated.says.startswith(f"{stated.unit} ≥ ")
        assert (stated.shown.low > stated.value) == (verdict == "finding")
        assert stated.shown.confidence == pytest.approx(0.99)
    (curve,) = (t for t in result.tests if t.name == "trade-off curve")
    assert "at the implied δ" in curve.effect


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({}, "give --claim-epsilon 1"),
        ({"epsilon": -1.0, "mu": 1.0}, "claim-epsilon=-1.0"),
        ({"mu": -1.0}, "claim-mu=-1.0"),
        ({"mu": 100.0}, "claim-mu=100.0: implies ε = 5426 at δ = 1e-05"),
        ({"rho": math.nan}, "claim-rho=nan"),
        ({"rho": 1e4}, "claim-rho=10000-zCDP: implies ε = .* promises nothing"),
        ({"renyi": "2"}, "claim-renyi=2"),
        ({"renyi": (1.0, 1.0)}, "the order must lie above 1"),
        ({"renyi": "2,-1"}, "ε must be a finite number ≥ 0"),
        ({"curve": []}, "claim-curve: has no rows"),
        ({"curve": "1,0.1;2,0.2"}, "δ grows from 0.1 at 1 to 0.2 at 2"),
        ({"curve": "1,1.5"}, "claim-curve=1.0,1.5"),
        ({"curve": "gone.csv"}, "claim-curve=gone.csv"),
        ({"f": "0.1,0.95"}, "the errors add up to more than 1"),
        ({"f": "0,1;0.1,0.1;0.2,0.3"}, "type II grows from 0.1 at 0.1 to 0.3"),
        ({"rho": 1.0, "epsilon": 1.0}, "claim-epsilon: cannot be given with claim-rho"),
        ({"rho": 1.0, "renyi": "2,1"}, "claim-renyi: cannot be given with claim-rho"),
        ({"curve": "1,0.1", "delta": 1e-5}, "claim-curve has its own δ"),
        ({"rho": 1.0, "delta": 2.0}, "claim-delta=2.0"),
    ],
)
def test_claims_that_are_none_are_refused(given, says):
    with pytest.raises(UsageError, match=says):
        PrivacyClaim.of(given.pop("epsilon", None), given.pop("delta", 0.0), **given)


@pytest.mark.slow
def test_what_a_pass_excludes_is_counted_in_terms_of_the_claim():
    """Nine in ten simulated counts of an event of the said ε contradict the claim; of less, not."""
    draws, alpha = 20_000, 0.0025
    both = (alpha, alpha)
    claim = PrivacyClaim.of(None, rho=0.5)
    found = two_neighbour_blind_spots(draws=draws, drawn=2 * draws, claim=claim, alphas=both)
    spots = {s.flaw: s for s in found}
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
    few = two_neighbour_blind_spots(draws=20, drawn=40, claim=claim, alphas=both)
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
        (("--claim-mu", "0.5"), None),
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
    again = next(t["reproduce"] for t in result["tests"] if t["finding"])
    assert " ".join(words) in again
    assert "--claim-epsilon" not in again
    if claim:
        assert result["stated"]["claim"] == claim
        assert ("--claim-delta" in again) == (words[0] in ("--claim-rho", "--claim-renyi"))
    else:
        assert (result["claim_mu"], result["claim_delta"]) == (0.5, 1e-5)
        assert result["details"]["claimed"] == "mu"
    page = re.sub("</?span[^>]*>", "", (tmp_path / "o" / "report.html").read_text())
    assert f"is not {claim or '0.5-GDP'}: we can show " in page


@pytest.fixture
def clear_scores(tmp_path):
    """400 canaries that give themselves away."""
    rng = np.random.default_rng(2)
    member = rng.integers(0, 2, 400)
    path = tmp_path / "s.npz"
    np.savez(path, score=member + rng.normal(0, 0.1, 400), member=member)
    return f"scores:{path}"


@pytest.mark.slow
def test_recorded_scores_are_judged_in_the_claims_own_terms(clear_scores):
    result = audit_mechanism(clear_scores, rho=0.02, seed=1)
    assert result.verdict == "finding"
    assert result.tests[0].name == "one run, ρ"
    assert result.stated.claim == "0.02-zCDP"
    assert result.stated.says.startswith("ρ ≥ ")
    assert result.stated.shown.low > 0.5
    assert result.claim_epsilon == pytest.approx(ZeroConcentrated(0.02).implied(1e-5)[0])


DPSGD = {"dpsgd": "sigma=2,rate=0.1,steps=20"}
HALF = [(a, stats.norm.cdf(stats.norm.isf(a) - 0.5)) for a in np.geomspace(1e-9, 0.999, 60)]


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ({"renyi": (8, 0.5)}, "one run, D_8"),
        ({"curve": [(0.5, 1e-4), (1.0, 1e-6)]}, "one run, δ(ε) curve"),
        ({"f": HALF}, "one run, f"),
        (DPSGD, "one run, DP-SGD"),
    ],
)
def test_every_claim_has_a_test_of_its_own_in_one_run(clear_scores, given, name):
    if given is DPSGD:
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


def test_mu_alone_implies_epsilon_at_delta():
    claim = PrivacyClaim.of(None, 0.0, 1.0)
    assert (claim.mu, claim.delta, claim.only_mu) == (1.0, 1e-5, True)
    # at the implied ε the Gaussian mechanism of μ = 1 has just this δ, never more
    assert gaussian_delta(claim.epsilon, sigma=1.0) <= 1e-5
    assert gaussian_delta(claim.epsilon * (1 - 1e-6), sigma=1.0) > 1e-5
    at_another = PrivacyClaim.of(None, 1e-3, 1.0)
    assert at_another.delta == 1e-3
    assert at_another.epsilon < claim.epsilon
    assert PrivacyClaim.of(None, 0.0, 0.0).epsilon == 0
    both = PrivacyClaim.of(0.5, 1e-6, 2.0)
    assert (both.epsilon, both.delta, both.mu, both.only_mu) == (0.5, 1e-6, 2.0, False)


def test_the_sentence_and_facts_of_mu_alone():
    rng = np.random.default_rng(3)
    result = audit_mechanism(
        lambda value, n: value + np.round(rng.normal(0, 1, n), 2),
        neighbours=(0, 1), mu=2, samples=4e3, seed=1, real_numbers=True,
    )  # fmt: skip
    assert ", 2-GDP" in describe(result).headline
    facts = facts_of(result)
    assert "ε claimed" not in facts
    assert facts["μ claimed"] == "2"


GAUSSIAN = (
    *("numpy:normal", "numpy:legacy-normal:scale=3", "opendp:gaussian", "opendp:discrete-gaussian"),
    *("gaussian:sigma=2", "secure-gaussian", "discrete-gaussian", "polar", "stdlib:gauss"),
    "diffprivlib:Gaussian:epsilon=1,delta=1e-5",
)


@pytest.mark.parametrize("name", GAUSSIAN)
def test_gaussian_noise_at_delta_0_is_refused_before_anything_is_drawn(monkeypatch, name):
    def drawn(*args, **options):
        raise AssertionError("something was drawn")

    monkeypatch.setattr("dpaudit.audit.mechanism.run.open_mechanism", drawn)
    pytest.importorskip("torch")
    for claim in ({"epsilon": 1}, {"curve": [(1, 0.1), (9, 0.0)]}):
        with pytest.raises(UsageError, match=r"is not \(ε, 0\)-DP for any ε"):
            audit_mechanism(name, neighbours=(0, 1), **claim)
    for claim in ({"epsilon": 1, "delta": 1e-5}, {"mu": 1}, {"rho": 0.5}):
        with pytest.raises(AssertionError, match="something was drawn"):
            audit_mechanism(name, neighbours=(0, 1), **claim)


LAWS = {
    "numpy:laplace:scale=2": "laplace:scale=2",
    "numpy:normal:scale=2": "gaussian:sigma=2",
    **dict.fromkeys(["opendp:bounded-sum:epsilon=1,lower=0,upper=1", "python:./noise.py:normal"]),
    **dict.fromkeys(["command:./noise", "http://127.0.0.1:1/x", "nobody:knows"]),
}


def test_the_declared_law():
    assert {name: declared_law(name) for name in LAWS} == LAWS
    assert declared_law("snapping") is None or declared_law("snapping").startswith("laplace:")


def test_other_distributions_sources_are_not_imported_for_it(monkeypatch):
    plugins = dict(registry.plugins("sources"))
    plugins["gaussian"] = dataclasses.replace(
        plugins["gaussian"],
        origin=dataclasses.replace(plugins["gaussian"].origin, distribution="theirs"),
    )
    monkeypatch.setattr(registry, "plugins", lambda kind: plugins)
    monkeypatch.setattr(registry, "create", lambda *args: pytest.fail("was imported"))
    assert declared_law("gaussian:sigma=1") is None


PLACES = (1e-4, 0.02, 0.3, 0.5, 0.7, 0.98, 0.9999)


def least_allowed(y, order, most):
    """The least P₀(E) for P₁(E) = y with both Rényi divergences of the coins at most ``most``."""

    def excess(x):
        pair = (y, 1 - y), (x, 1 - x)
        return max(divergence(a, b, order) for a, b in (pair, pair[::-1])) - most

    return optimize.brentq(excess, y * 1e-12, y - 1e-12)


@pytest.mark.parametrize(("order", "most"), [(1.5, 0.3), (2.0, 1.0), (8.0, 0.5)])
def test_renyi_pairs_touch_the_border_of_what_is_allowed(order, most):
    inverse = tradeoff_of_profile(of_renyi(np.array([order]), np.array([most])))
    for y in PLACES:
        exact = least_allowed(y, order, most)
        assert inverse(y) <= exact + 1e-9
        assert inverse(y) >= 0.97 * exact - 1e-6


@pytest.mark.parametrize("mu", [0.3, 1.0, 3.0])
def test_gaussian_noise_keeps_what_its_claims_imply(mu):
    """N(0, 1) against N(μ, 1) is μ-GDP, μ²/2-zCDP, and (α, αμ²/2)-Rényi at every α."""
    exact = tradeoff_of_mu(mu)
    for claim in (Gaussian(mu), ZeroConcentrated(mu**2 / 2), Renyi(4.0, 2 * mu**2)):
        inverse = tradeoff_of_profile(claim.profile)
        for y in PLACES:
            assert inverse(y) <= exact(y) + 1e-9
    near = tradeoff_of_profile(Gaussian(mu).profile)
    assert near(0.7) == pytest.approx(exact(0.7), rel=1e-3)


def test_a_claim_that_the_neighbours_look_alike():
    for claim in (ZeroConcentrated(0.0), Renyi(2.0, 0.0), Gaussian(0.0)):
        assert tradeoff_of_profile(claim.profile)(0.3) == pytest.approx(0.3)


def test_a_table_of_f_implies_the_hull_of_its_steps():
    """Between two rows only monotony is claimed, and tests can be mixed by a coin."""
    inverse = tradeoff_of_profile(TradeOff(((0.1, 0.5), (0.5, 0.2))).profile)
    # P₁ is at most 0.5 up to P₀ = 0.1, then 0.8 up to 0.5, then 1: the hull is 0.5 + 3·P₀ and
    # 0.75 + P₀/2; with the neighbours swapped, P₀ ≥ 0.25 − (1 − P₁)/2 as well
    assert inverse(0.5) == pytest.approx(0.0, abs=1e-9)
    assert inverse(0.8) == pytest.approx(0.15)
    assert inverse(0.65) == pytest.approx(0.075)
    assert inverse(1.0) == pytest.approx(0.5)
    rows = [(a, float(stats.norm.cdf(stats.norm.isf(a) - 1))) for a in np.linspace(0, 1, 201)]
    many = tradeoff_of_profile(TradeOff(tuple((float(a), b) for a, b in rows)).profile)
    for y in (0.05, 0.3, 0.7, 0.95):
        exact = tradeoff_of_mu(1.0)(y)
        assert exact - 0.01 <= many(y) <= exact + 1e-9
