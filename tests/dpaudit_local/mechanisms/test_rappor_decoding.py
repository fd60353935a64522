"""The server's shares, the regression's pieces against other ways, and what decoding finds."""

import functools
import itertools
import operator

import numpy as np
import pytest
import scipy.optimize
import scipy.sparse
import scipy.stats

from dpaudit.errors import DpauditError, UsageError
from dpaudit.randomness import KeyedStream
from dpaudit.stats import clopper_pearson
from dpaudit_local.mechanisms import rappor_decoding
from dpaudit_local.mechanisms.rappor import Rappor, RapporServer
from dpaudit_local.mechanisms.rappor_decoding import (
    candidate_matrix,
    decode,
    nonnegative_lasso,
    uniform_sum_bound,
)
from dpaudit_local.mechanisms.reports import BloomReports

PLANTED = 6
CANDIDATES = np.arange(150)


def collect(mechanism, people, name):
    server = RapporServer(mechanism)
    server.add(mechanism.privatize(people, stream=KeyedStream.from_seed(name)))
    return server


def population(n, unnamed=0.0):
    """Objects 0 … 5 with frequencies as 1/rank, and a share of one that is no candidate."""
    share = (1 - unnamed) / np.arange(1, PLANTED + 1) / (1 / np.arange(1, PLANTED + 1)).sum()
    counts = np.round(share * n).astype(int)
    return np.append(np.repeat(np.arange(PLANTED), counts), np.full(round(unnamed * n), 1000))


# ------------------------------------------------------------------ the server


def test_the_servers_shares_are_unbiased_in_exact_arithmetic():
    """All bits of a report set, and none: the two values of a bit's share, weighed by chance."""
    mechanism = Rappor(0.25, p=0.4, q=0.7, bits=8, cohorts=1)
    shares = []
    for byte in (255, 0):
        server = RapporServer(mechanism)
        server.add(BloomReports(np.zeros(1, np.uint32), np.full((1, 1), byte, np.uint8)))
        shares.append(server.shares())
    for chance, true in ((mechanism.q_star, 1), (mechanism.p_star, 0)):
        np.testing.assert_allclose(chance * shares[0] + (1 - chance) * shares[1], true, atol=1e-12)


def test_shares_come_near_the_true_filters():
    mechanism = Rappor(bits=16, cohorts=3, seed=5)
    server = collect(mechanism, np.repeat([4, 8, 9], [60_000, 30_000, 10_000]), "shares")
    frequency = np.array([0.6, 0.3, 0.1])
    true = np.array([frequency @ mechanism.filters(np.array([4, 8, 9]), c) for c in range(3)])
    # the most that it can be
    error = 0.5 / (mechanism.q_star - mechanism.p_star) / np.sqrt(server.sizes)[:, None]
    z = (server.shares() - true) / error
    assert np.abs(z).max() < 4
    assert 0.5 < z.std() < 1.2


def test_counts_are_those_of_a_plain_loop(monkeypatch):
    monkeypatch.setattr("dpaudit_local.mechanisms.rappor._UNPACKED", 24 * 50)  # in ten parts
    mechanism = Rappor(bits=24, cohorts=5)
    reports = mechanism.privatize(np.arange(500) % 7, stream=KeyedStream.from_seed("loop"))
    counts, sizes = np.zeros((5, 24), int), np.zeros(5, int)
    for i in range(500):
        sizes[reports.cohort[i]] += 1
        for j in range(24):
            counts[reports.cohort[i], j] += reports.bits[i, j // 8] >> j % 8 & 1
    server = RapporServer(mechanism)
    for part in (reports, reports[:0]):
        server.add(part)
        np.testing.assert_array_equal(server.counts, counts)
        np.testing.assert_array_equal(server.sizes, sizes)
        assert server.reports == 500


def test_bad_reports_add_nothing():
    server = RapporServer(Rappor(bits=24, cohorts=5))
    for cohort, width, says in ((5, 3, "cohorts=5"), (0, 4, r"reports.bits of shape \(1, 4\)")):
        with pytest.raises(UsageError, match=says):
            server.add(BloomReports(np.array([cohort]), np.zeros((1, width), np.uint8)))
    assert server.reports == 0
    with pytest.raises(UsageError, match=r"server\.reports=0"):
        decode(server, CANDIDATES)


# ------------------------------------------------------------------ the pieces of the regression


def test_candidate_matrix_is_the_bloom_filters():
    mechanism = Rappor(bits=8, per_object=3, cohorts=4)
    objects = np.array([5, 0, 77])
    dense = candidate_matrix(mechanism, objects).toarray()
    filters = np.array([mechanism.filters(objects, c) for c in range(4)])
    np.testing.assert_array_equal(dense, filters.transpose(0, 2, 1).reshape(32, 3))
    assert dense.sum() < 36  # some hash functions collide, and still count once


def test_lasso_without_penalty_is_scipys_nnls():
    rng = np.random.default_rng(1)
    matrix, target = rng.normal(size=(80, 20)), rng.normal(size=80)
    expected = scipy.optimize.nnls(matrix, target)[0]
    assert 0 < (expected > 0).sum() < 20
    found = nonnegative_lasso(scipy.sparse.csc_matrix(matrix), target, np.zeros(20))
    np.testing.assert_allclose(found, expected, atol=1e-12)


@pytest.mark.parametrize("size", [1.0, 1e5])
def test_lasso_meets_the_conditions_of_optimality(size):
    rng = np.random.default_rng(2)
    matrix = (rng.random((60, 200)) < 0.1) * 1.0  # more columns than rows
    matrix[0] = 1.0
    truth = np.where(np.arange(200) < 5, 3.0, 0.0)
    target = size * (matrix @ truth + 0.1 * rng.normal(size=60))
    penalty = size * 0.5 * np.linalg.norm(matrix, axis=0)
    beta = nonnegative_lasso(scipy.sparse.csc_matrix(matrix), target, penalty)
    gradient = matrix.T @ (matrix @ beta - target) + penalty
    assert beta.min() >= 0
    assert set(range(5)) <= set(np.flatnonzero(beta).tolist())
    assert (beta > 0).sum() < 60
    scale = np.linalg.norm(matrix, axis=0) * np.linalg.norm(target)
    assert np.abs(gradient / scale)[beta > 0].max() < 1e-9
    assert (gradient / scale).min() > -1e-9


@pytest.mark.slow
def test_lasso_is_the_best_of_all_supports():
    """Every set of columns by the normal equations; only the optimum meets the conditions."""
    rng = np.random.default_rng(4)
    for _ in range(20):
        matrix, penalty = rng.normal(size=(6, 8)), rng.random(8)
        target = 2 * matrix[:, :3].sum(axis=1) + rng.normal(size=6)
        best = (target @ target / 2, np.zeros(8))
        for size in range(1, 7):
            for support in map(list, itertools.combinations(range(8), size)):
                chosen, beta = matrix[:, support], np.zeros(8)
                right = chosen.T @ target - penalty[support]
                beta[support] = np.linalg.solve(chosen.T @ chosen, right)
                if (beta >= 0).all():
                    left = target - matrix @ beta
                    best = min(
                        best, (left @ left / 2 + penalty @ beta, beta), key=operator.itemgetter(0)
                    )
        found = lasso(matrix, target, penalty)
        np.testing.assert_allclose(found, best[1], atol=1e-9)


def lasso(matrix, target, penalty):
    return nonnegative_lasso(scipy.sparse.csc_matrix(matrix), target, penalty)


def test_lasso_of_equal_columns_takes_one_of_them():
    matrix = np.repeat(np.eye(3), 2, axis=1)
    beta = lasso(matrix, np.array([3.0, 2.0, -1.0]), np.full(6, 0.5))
    np.testing.assert_allclose(beta.reshape(3, 2).sum(axis=1), [2.5, 1.5, 0.0], atol=1e-12)
    assert np.count_nonzero(beta) == 2
    assert not lasso(matrix, np.zeros(3), np.zeros(6)).any()


@pytest.mark.parametrize("answer", [[0.5, 0.0], [np.nan, 0.0], RuntimeError("iterations")])
def test_lasso_checks_its_solver_and_says_that_it_stopped(monkeypatch, answer):
    def solver(*_):
        if isinstance(answer, Exception):
            raise answer
        return np.array(answer), 0.0

    monkeypatch.setattr(scipy.optimize, "nnls", solver)
    says = "iterations" if isinstance(answer, Exception) else "not converged"
    with pytest.raises(DpauditError, match=f"2 columns: {says}"):
        lasso(np.eye(2), np.ones(2), np.zeros(2))


def test_the_bound_on_uniform_sums_holds_and_is_not_idle():
    rng = np.random.default_rng(3)
    far = np.array([[0, 0, 0, 10.0]])
    for values, draws in ((rng.normal(size=(3, 4)), 2), (far, 5), (rng.random((2, 8)), 3)):
        rows = np.repeat(values, draws, axis=0)
        sums = np.array([sum(pick) for pick in itertools.product(*rows)])
        for total in np.quantile(sums, [0.5, 0.9, 0.99, 1.0]):
            exact = (sums >= total - 1e-12).mean()
            bound = uniform_sum_bound(values, draws, float(total))
            assert exact <= bound * (1 + 1e-9)
            if total > sums.mean():
                assert bound < 12 * exact
    assert uniform_sum_bound(np.zeros((2, 3)), 2, 0.0) == 1.0
    assert uniform_sum_bound(np.array([[0.0, 1.0]]), 4, 1.0) == 1.0  # below the mean


# ------------------------------------------------------------------ decoding


@pytest.mark.slow
def test_planted_heavy_hitters_are_found_with_their_counts():
    mechanism = Rappor(bits=64, cohorts=16, seed=1)
    people = population(400_000)
    found = decode(collect(mechanism, people, "planted"), CANDIDATES)
    assert found.candidates[found.detected].tolist() == [0, 1, 2, 3, 4, 5]
    assert found.tested == 150
    true = np.bincount(people)[:PLANTED]
    z = (found.estimate[:PLANTED] - true) / found.standard_error[:PLANTED]
    assert np.abs(z).max() < 4
    assert (found.estimate[:PLANTED] / true - 1).max() < 0.2
    assert abs(found.others) < 4 * found.others_error
    assert found.overdispersion < 1.3
    assert (np.diff(found.estimate) <= 0).all()


def test_decoding_a_slow_way_gives_the_same_fit():
    """Ordinary least squares by numpy on the dense filters of the selected, weighted by cohort."""
    mechanism = Rappor(bits=32, cohorts=6, seed=2)
    server = collect(mechanism, population(30_000), "slow")
    found = decode(server, CANDIDATES)
    chance = server.counts / server.sizes[:, None]
    gap = mechanism.q_star - mechanism.p_star
    typical = chance.mean(axis=1)
    weight = np.sqrt(server.sizes * gap**2 / (typical * (1 - typical)))[:, None]
    # (cohort, candidate, bit)
    filters = np.array([mechanism.filters(found.candidates, c) for c in range(6)], float)
    columns = [*filters.transpose(1, 0, 2), np.full((6, 32), 1 - (31 / 32) ** 2)]
    design = np.stack([(weight * c).ravel() for c in columns], axis=1)
    observed = (weight * (chance - mechanism.p_star) / gap).ravel()
    fitted = 30_000 * np.linalg.lstsq(design, observed, rcond=None)[0]
    np.testing.assert_allclose([*found.estimate, found.others], fitted, rtol=1e-8, atol=1e-6)


LAWS = {
    "default": {"bits": 64, "cohorts": 16},
    "one-time": {"f": 0.25, "p": 0.0, "q": 1.0, "bits": 32, "cohorts": 16},
}


RUNS = 15  # where the normal law alone decides, more than half of them have a false discovery


@functools.cache
def collections(law, unnamed):
    """Servers, each with its own hash family; a frequent string among the candidates or not."""
    people = population(10_000, unnamed)
    return [collect(Rappor(seed=i, **LAWS[law]), people, f"{law} {i}") for i in range(RUNS)]


def false_discoveries(decoded):
    return sum(bool((d.detected & (d.candidates >= PLANTED)).any()) for d in decoded)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("law", "unnamed"), [("one-time", 0.0), ("one-time", 0.3), ("default", 0.3)]
)
def test_false_discoveries_stay_within_alpha(law, unnamed):
    decoded = [decode(server, CANDIDATES) for server in collections(law, unnamed)]
    assert false_discoveries(decoded) <= 2
    if law == "one-time" and not unnamed:
        # and yet they are found
        assert np.mean([d.detected[:PLANTED].sum() for d in decoded]) > 0.95 * PLANTED


def test_the_normal_law_alone_would_promise_too_much(monkeypatch):
    monkeypatch.setattr(rappor_decoding._Regression, "chance", lambda *_: 0.0)
    false = false_discoveries(decode(server, CANDIDATES) for server in collections("one-time", 0.3))
    assert clopper_pearson(false, RUNS, confidence=0.999).low > 0.05


def within(z):
    """Whether the squares of z (collections, objects) sum up as the normal law's do, by object."""
    low, high = scipy.stats.chi2.ppf([0.0005, 0.9995], len(z))
    squares = np.square(z).sum(axis=0)
    return ((low < squares) & (squares < high)).all()


@pytest.mark.slow
@pytest.mark.parametrize("law", LAWS)
def test_standard_errors_are_those_of_repeated_collections(law):
    people, z = population(6_000), []
    true = np.bincount(people)[:2]
    for i in range(25):
        server = collect(Rappor(seed=i, **LAWS[law]), people, f"errors {law} {i}")
        found = decode(server, CANDIDATES[: PLANTED + 1])
        where = [found.candidates.tolist().index(x) for x in range(2)]
        z.append((found.estimate[where] - true) / found.standard_error[where])
    assert within(z)
    assert np.abs(np.mean(z, axis=0)).max() < 4 / np.sqrt(len(z))


def test_more_candidates_than_bits():
    mechanism = Rappor(0.25, p=0.0, q=1.0, bits=32, cohorts=8, seed=3)
    found = decode(collect(mechanism, population(100_000), "many"), np.arange(600))
    assert {0, 1, 2} <= {*found.candidates[found.detected].tolist()} <= {*range(PLANTED)}


@pytest.mark.slow
def test_cohorts_without_reports_are_left_out():
    mechanism = Rappor(bits=64, cohorts=2000, seed=1)
    server = collect(mechanism, population(1500), "few")
    assert (server.sizes == 0).any()
    found = decode(server, CANDIDATES)
    assert np.isfinite(found.estimate).all()
    assert np.isfinite(found.standard_error).all()
    assert found.detected[found.candidates >= PLANTED].sum() == 0


@pytest.mark.slow
@pytest.mark.filterwarnings("error")
def test_candidates_that_cannot_be_told_apart_have_an_error_all_the_same():
    """16 bits, one cohort: filters coincide, and people's variance must not bring it below 0."""
    for i in range(40):
        mechanism = Rappor(0.01, p=0.0, q=1.0, bits=16, cohorts=1, seed=i)
        found = decode(collect(mechanism, np.zeros(500, np.int64), f"alike {i}"), np.arange(12))
        assert len(found.candidates) >= 1
        assert (found.standard_error > 0).all()
        assert found.others_error > 0


def test_reports_about_nothing_named_detect_nothing():
    mechanism = Rappor(bits=64, cohorts=16, seed=1)
    found = decode(collect(mechanism, np.arange(1000, 21_000), "others"), CANDIDATES)
    assert not found.detected.any()
    assert abs(found.others - 20_000) < 4 * found.others_error


@pytest.mark.parametrize(
    ("candidates", "options", "message"),
    [
        ([1, 1], {}, "candidates=2: needs at least one, each once"),
        ([], {}, "candidates=0"),
        ([-1], {}, "candidates=-1"),
        ([0.5], {}, "candidates of shape"),
        *(([1], {"alpha": alpha}, f"alpha={alpha}") for alpha in (0.0, float("nan"))),
        *(([1], {"penalty": penalty}, f"penalty={penalty}") for penalty in (0.0, float("inf"))),
        (range(3000), {"penalty": 0.01}, "penalty=0.01: selects .* more than half of 16 bits"),
    ],
)
def test_bad_requests(candidates, options, message):
    server = collect(Rappor(bits=8, cohorts=2), population(5000), "bad")
    objects = np.array(candidates) if len(candidates) else np.array([], np.int64)
    with pytest.raises(UsageError, match=message):
        decode(server, objects, **options)


@pytest.mark.slow
def test_standard_errors_hold_where_people_and_not_coins_make_them():
    """Almost no coins, 8 bits, 4 cohorts: the errors come from who is in which cohort."""
    mechanism = Rappor(0.01, p=0.0, q=1.0, bits=8, cohorts=4)
    z = []
    for i in range(25):
        server = collect(mechanism, np.arange(4000) % 4, f"people {i}")
        found = decode(server, np.arange(4), penalty=0.01)
        assert len(found.candidates) == 4
        z.append(((found.estimate - 1000) / found.standard_error)[np.argsort(found.candidates)])
    assert within(z)  # squares of about 600 each from the coins' variance alone
