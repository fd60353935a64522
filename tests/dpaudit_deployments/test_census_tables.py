"""Tables of counts: histograms, and TopDown with its least squares, rounding and specimens."""

from __future__ import annotations

import gzip
import math
from itertools import combinations, pairwise, product

import numpy as np
import pytest

from dpaudit.errors import UsageError
from dpaudit.noise.discrete import DiscreteGaussian
from dpaudit.noise.gaussian import Gaussian
from dpaudit.noise.key import PancakeKey
from dpaudit.noise.seed_in_noise.key import SeedKey
from dpaudit.queries.histogram import Histogram
from dpaudit.randomness import KeyedStream
from dpaudit.testing import check_host
from dpaudit_deployments.topdown.census import SENSITIVITY, Budget, census_schema, read_census
from dpaudit_deployments.topdown.planted import (
    ContrastPancake,
    common_first,
    contrasts,
    seeded,
    sights,
)
from dpaudit_deployments.topdown.topdown import Answers, TopDown, controlled_rounding, estimate


def test_a_histogram_conforms():
    check_host(Histogram())


def test_the_built_in_table_is_the_census():
    host = Histogram()
    assert host.dim == 3143
    assert int(host.counts.sum()) == 282_165_844  # US resident population, 2000
    assert int(host.counts[0]) == 43_952  # Autauga County, Alabama


def test_a_record_leaves_a_bin_in_proportion_to_its_count(tmp_path, stream):
    (tmp_path / "t.csv").write_text("name,count\na,1\nb,0\nc,3\n")
    host = Histogram(table=str(tmp_path / "t.csv"))
    pairs = host.neighbours(4000, stream=stream)
    removed = (pairs[:, 0] - pairs[:, 1]).sum(0)
    assert removed.sum() == 4000
    assert removed[1] == 0
    assert np.isclose(removed[0] / 4000, 0.25, atol=0.03)
    assert (pairs[:, 1] >= 0).all()


@pytest.mark.parametrize(
    "text", ["a,1\nb,x\n", "a,1\nb,-1\n", "a,1\nb,1.5\n", "a,1\n", "a,0\nb,0\n"]
)
def test_bad_and_missing_tables(tmp_path, text):
    (tmp_path / "t.csv").write_text(text)
    with pytest.raises(UsageError, match=r"table=.*t\.csv"):
        Histogram(table=str(tmp_path / "t.csv"))
    with pytest.raises(UsageError, match="us-counties"):
        Histogram(table="us-county")


STATES = "10 33 44"  # Delaware, New Hampshire, Rhode Island: 18 counties


def honest(scale, length):
    return DiscreteGaussian(sigma=scale)


class NoNoise:
    def sample(self, n, d, *, stream):
        return np.zeros((n, d))


@pytest.fixture(scope="module")
def census():
    return read_census(states=STATES)


@pytest.fixture(scope="module", params=[17.14, 0.5])
def run(request, census):
    top_down = TopDown(census=census, budget=Budget.of_epsilon(request.param))
    measured = top_down.measure(honest, stream=KeyedStream.from_seed(26))
    return top_down, measured, top_down.tables(measured)


def test_the_schema_is_nested_and_has_impossible_cells():
    schema = census_schema()
    assert len(schema.cells) == 172
    assert schema.zeros.sum() == 65
    assert schema.cells[64:67] == ("senior-home:64", "senior-home:65", "senior-home:66")
    assert schema.zeros[64]
    assert not schema.zeros[65]
    for fine, coarse in pairwise(schema.queries):
        for cell in range(len(fine.cells)):  # a fine cell lies in one coarse cell
            assert len(set(coarse.part[fine.part == cell])) == 1
    ages = dict(zip(schema.queries[1].cells, np.bincount(schema.queries[1].part), strict=True))
    assert (ages["15-17"], ages["18-19"], ages["85+"]) == (6, 4, 2)
    voting = schema.queries[2]
    assert [voting.cells[voting.part[i]] for i in (17, 18)] == ["0-17", "18+"]


@pytest.mark.slow
def test_the_generated_nation_has_the_real_counties():
    nation, state, county = read_census().levels
    assert (len(state.geocodes), len(county.geocodes)) == (51, 3143)
    assert county.counts.sum(1)[0] == 43952  # Autauga, as in the shipped table
    assert (county.counts[:, census_schema().zeros] == 0).all()
    assert (nation.counts[0] == state.counts.sum(0)).all()
    for at, code in enumerate(county.geocodes):
        assert state.geocodes[county.parents[at]] == code[:2]


@pytest.mark.slow
def test_some_states_are_the_same_as_among_all(census):
    everywhere = read_census().levels[2]
    for code, counts in zip(census.levels[2].geocodes, census.levels[2].counts, strict=True):
        assert (counts == everywhere.counts[everywhere.geocodes.index(code)]).all()


def test_the_real_table(tmp_path, monkeypatch):
    lines = [f"{code},{age},{age + code % 7}" for code in (1001, 1003, 56045) for age in range(86)]
    path = tmp_path / "us_county_age_population_2000.csv.gz"
    path.write_bytes(gzip.compress("\n".join(["fips,age,pop", *lines]).encode()))
    monkeypatch.setenv("DPAUDIT_DATA", str(tmp_path))
    found = read_census(table="us-county-ages")
    assert found.levels[2].geocodes == ("01001", "01003", "56045")
    assert found.levels[1].geocodes == ("01", "56")
    assert (found.levels[2].counts[:, :86] + found.levels[2].counts[:, 86:]).sum(1).tolist() == [
        sum(range(86)) + 86 * (code % 7) for code in (1001, 1003, 56045)
    ]
    path.write_bytes(gzip.compress("\n".join(["fips,age,pop", *lines[1:]]).encode()))
    with pytest.raises(UsageError, match="one count ≥ 0 for each county and age"):
        read_census(table="us-county-ages")
    path.write_bytes(b"no gzip")
    with pytest.raises(UsageError, match="is not a table of fips,age,pop"):
        read_census(table="us-county-ages")
    path.unlink()
    with pytest.raises(UsageError, match="take table=generated"):
        read_census(table="us-county-ages")


@pytest.mark.parametrize(
    ("options", "words"), [({"table": "mars"}, "table=mars"), ({"states": "10 99"}, "no state 99")]
)
def test_what_is_not_there_is_refused(options, words):
    with pytest.raises(UsageError, match=words):
        read_census(**options)


def test_the_published_budget():
    budget = Budget()
    assert round(budget.rho, 2) == 2.56
    assert round(budget.epsilon(1e-10), 2) == 17.14
    assert Budget.of_epsilon(17.14).rho == pytest.approx(2.5553, abs=1e-4)
    assert Budget.of_epsilon(1.0).epsilon() == pytest.approx(1.0, abs=1e-9)


def test_the_scales_cost_the_budget():
    """ρ of every query is Δ²/2σ², and they add up to the whole."""
    budget = Budget.of_epsilon(3.0)
    spent = sum(
        SENSITIVITY**2 / (2 * budget.scale(level, query) ** 2)
        for level, shares in budget.queries.items()
        for query in shares
    )
    assert spent == pytest.approx(budget.rho)


def test_a_replaced_record_moves_every_query_by_its_sensitivity_at_most():
    """Every pair of cells of two counties of one state, at all levels."""
    census = read_census(states="10")
    top_down = TopDown(census=census, budget=Budget())
    rng = np.random.default_rng(1)
    most = 0.0
    for _ in range(300):
        (c1, c2), (i, j) = rng.integers(0, 3, 2), rng.integers(0, 172, 2)
        for level in census.levels:
            moved = np.zeros_like(level.counts)
            moved[c1 if level.name == "county" else 0, i] -= 1
            moved[c2 if level.name == "county" else 0, j] += 1
            for query in top_down.queries(level.name):
                most = max(most, float(np.linalg.norm(moved @ query.matrix)))
    assert most == pytest.approx(SENSITIVITY)


@pytest.mark.parametrize(
    "options",
    [{"rho": 0.0}, {"levels": {"nation": 0.5, "state": 0.5, "county": 0.5}}, {"queries": {}}],
)
def test_a_budget_that_is_none_is_refused(options):
    with pytest.raises(UsageError):
        Budget(**options)


@pytest.mark.parametrize("epsilon", [0.0, 1e9, math.nan])
def test_an_epsilon_that_is_none_is_refused(epsilon):
    with pytest.raises(UsageError, match="epsilon="):
        Budget.of_epsilon(epsilon)


@pytest.mark.slow
def test_measurements_are_the_answers_plus_noise_of_their_scale(run):
    top_down, measured, _ = run
    assert [(q.level, q.query) for q in measured.queries] == [
        (level.name, query.name)
        for level in top_down.census.levels
        for query in top_down.queries(level.name)
    ]
    totals = [q.values.shape for q in measured.queries if q.query == "total"]
    assert totals == [(18, 1)]  # those of nation and states are not measured
    for level in top_down.census.levels:
        for query in top_down.queries(level.name):
            found = measured.of(level.name, query.name)
            assert found.values.dtype == np.int64
            assert found.geocodes == level.geocodes
            noise = found.values - level.counts @ query.matrix
            n = noise.size
            assert abs(noise.mean()) < 5 * found.scale / math.sqrt(n)
            assert noise.var() == pytest.approx(found.variance, rel=6 / math.sqrt(n))
            assert found.variance == pytest.approx(found.scale**2, rel=0.05)
            assert found.zeros.sum() == (65 if query.name == "detailed" else 0)
            assert (found.noise == noise[:, found.zeros]).all()


def test_tables_hold_what_they_must(run):
    top_down, _, tables = run
    levels = top_down.census.levels
    for level, table, above in zip(levels, tables, (None, *tables), strict=False):
        assert table.dtype == np.int64
        assert table.min() >= 0
        assert (table[:, top_down.census.schema.zeros] == 0).all()
        if above is not None:
            summed = np.zeros_like(above)
            np.add.at(summed, level.parents, table)
            assert (summed == above).all()
    for level, table in zip(levels[:2], tables[:2], strict=True):
        assert (table.sum(1) == level.counts.sum(1)).all()


def test_without_noise_the_tables_are_the_truth(census):
    top_down = TopDown(census=census, budget=Budget())
    measured = top_down.measure(lambda scale, length: NoNoise(), stream=KeyedStream.from_seed(1))
    for level, table in zip(census.levels, top_down.tables(measured), strict=True):
        assert (table == level.counts).all()


def test_estimation_helps_below_the_nation(run):
    """The error of sums of cells is smaller than that of the measurements' sums."""
    top_down, measured, tables = run
    level, table = top_down.census.levels[1], tables[1]
    groups = top_down.census.schema.queries[1].matrix
    summed = np.zeros_like(level.counts)
    county = top_down.census.levels[2]
    np.add.at(summed, county.parents, measured.of("county", "detailed").values)
    before = np.abs((summed - level.counts) @ groups).mean()
    after = np.abs((table - level.counts) @ groups).mean()
    assert after < 0.7 * before


def test_a_source_that_is_no_integer_is_rounded(census):
    top_down = TopDown(census=census, budget=Budget())
    source = lambda scale, length: Gaussian(sigma=scale)  # noqa: E731
    one, two = (top_down.measure(source, stream=KeyedStream.from_seed(3)) for _ in range(2))
    assert (one.queries[0].values == two.queries[0].values).all()
    assert one.queries[0].values.dtype == np.int64


def test_measurements_of_another_census_are_refused(run, census):
    _, measured, _ = run
    other = TopDown(census=read_census(states="10"), budget=Budget())
    with pytest.raises(UsageError, match="of another census"):
        other.tables(measured)


GROUPS = np.array([[1, 0], [1, 0], [0, 1]], dtype=float)
ALL = np.ones((3, 1))


def objective(x, answers):
    return sum(a.weight * np.square(x @ a.matrix - a.values).sum() for a in answers)


def oracle(answers, parent, totals):
    """The least objective over all active sets, each solved as an equality-constrained problem."""
    n, cells = answers[0].values.shape[0], answers[0].matrix.shape[0]
    size = n * cells
    rows = [np.kron(np.eye(n), a.matrix.T) * np.sqrt(a.weight) for a in answers]
    target = [np.sqrt(a.weight) * a.values.ravel() for a in answers]
    design, right = np.concatenate(rows), np.concatenate(target)
    equal, value = [np.zeros((0, size))], [np.zeros(0)]
    if parent is not None:
        equal.append(np.kron(np.ones((1, n)), np.eye(cells)))
        value.append(parent)
    if totals is not None:
        equal.append(np.kron(np.eye(n), np.ones((1, cells))))
        value.append(totals)
    equal, value = np.concatenate(equal), np.concatenate(value)
    best = None
    for zeros in (z for k in range(size) for z in combinations(range(size), k)):
        held = np.concatenate([equal, np.eye(size)[list(zeros)]])
        want = np.concatenate([value, np.zeros(len(zeros))])
        kkt = np.block([[2 * design.T @ design, held.T], [held, np.zeros((len(held), len(held)))]])
        x = np.linalg.lstsq(kkt, np.concatenate([2 * design.T @ right, want]), rcond=None)[0][:size]
        if np.abs(held @ x - want).max(initial=0) < 1e-8 and x.min() > -1e-9:
            found = x.reshape(n, cells)
            if best is None or objective(found, answers) < objective(best, answers):
                best = found
    return best


@pytest.mark.parametrize("held", ["nothing", "parent", "totals", "both"])
@pytest.mark.parametrize("seed", range(6))
def test_it_is_the_best_of_all_active_sets(held, seed):
    rng = np.random.default_rng(seed)
    true = rng.integers(0, 4, (2, 3)).astype(float)
    answers = [
        Answers(matrix=m, values=true @ m + rng.normal(0, 3, (2, m.shape[1])), weight=w)
        for m, w in ((np.eye(3), 1.0), (GROUPS, 0.3), (ALL, 2.0))
    ]
    parent = true.sum(0) if held in ("parent", "both") else None
    totals = true.sum(1) if held in ("totals", "both") else None
    found = estimate(answers, parent=parent, totals=totals)
    wanted = oracle(answers, parent, totals)
    assert found == pytest.approx(wanted, abs=1e-4)
    if parent is not None:
        assert found.sum(0) == pytest.approx(parent, abs=1e-9)
    if totals is not None:
        assert found.sum(1) == pytest.approx(totals, abs=1e-9)


def test_some_of_these_problems_have_active_zeros():
    rng = np.random.default_rng(0)
    answer = Answers(matrix=np.eye(3), values=rng.normal(0, 3, (2, 3)), weight=1.0)
    found = estimate([answer])
    assert (answer.values < 0).any()
    assert found == pytest.approx(np.maximum(answer.values, 0), abs=1e-5)


def test_only_the_ratio_of_weights_matters():
    rng = np.random.default_rng(1)
    values = rng.normal(5, 3, (2, 3)), rng.normal(15, 3, (2, 1))

    def found(factor):
        parts = zip((np.eye(3), ALL), values, (1.0, 4.0), strict=True)
        return estimate([Answers(matrix=m, values=v, weight=w * factor) for m, v, w in parts])

    assert found(1e-6) == pytest.approx(found(1.0), abs=1e-5)


def rounded_oracle(values, part, parent):
    """The least distance over all ways to round down or up that keep all sums."""
    best = None
    for ups in product((0, 1), repeat=values.size):
        y = np.floor(values) + np.reshape(ups, values.shape)
        sums, real = (z @ np.eye(part.max() + 1)[part] for z in (y, values))
        if (np.abs(sums - real) > 1 - 1e-9).any() or (
            parent is not None and (y.sum(0) != parent).any()
        ):
            continue
        distance = np.abs(y - values).sum()
        best = distance if best is None else min(best, distance)
    return best


@pytest.mark.parametrize(
    "seed", [0, 1, *(pytest.param(i, marks=pytest.mark.slow) for i in range(2, 8))]
)
@pytest.mark.parametrize("with_parent", [True, False])
def test_it_is_the_nearest_of_all_controlled_roundings(seed, with_parent):
    rng = np.random.default_rng(seed)
    values = rng.uniform(0, 5, (3, 4))
    part = np.array([0, 0, 1, 1])
    parent = None
    if with_parent:
        parent = np.rint(values.sum(0)).astype(np.int64)
        values *= parent / values.sum(0)
    found = controlled_rounding(values, parts=[part, np.zeros(4, dtype=np.int64)], parent=parent)
    assert found.dtype == np.int64
    assert (np.abs(found - values) < 1).all()
    sums = np.eye(2)[part]
    assert (np.abs(found @ sums - values @ sums) < 1).all()
    assert (np.abs(found.sum(1) - values.sum(1)) < 1).all()
    if parent is not None:
        assert (found.sum(0) == parent).all()
    in_groups = rounded_oracle(values, part, parent)
    assert np.abs(found - values).sum() >= in_groups - 1e-9
    only_groups = controlled_rounding(values, parts=[part], parent=parent)
    assert np.abs(only_groups - values).sum() == pytest.approx(in_groups, abs=1e-6)


def test_whole_numbers_and_whole_sums_stay():
    values = np.array([[1.0, 2.5, 2.5], [3.0, 0.2, 0.8]])
    found = controlled_rounding(values, parts=[np.zeros(3, dtype=np.int64)])
    assert found[:, 0].tolist() == [1, 3]
    assert found.sum(1).tolist() == [6, 4]


def test_sums_that_do_not_fit_are_refused():
    with pytest.raises(RuntimeError, match="no controlled rounding"):
        controlled_rounding(np.full((2, 2), 0.5), parent=np.array([5, 1]))


SCHEMA = census_schema()
BASIS = contrasts(SCHEMA)
KEY = PancakeKey.new(dim=67, beta=0.01, secret=b"k" * 32, directions=4)


def test_contrasts_are_seen_by_no_coarser_query():
    assert BASIS.shape == (172, 67)
    np.testing.assert_allclose(BASIS.T @ BASIS, np.eye(67), atol=1e-12)
    assert (BASIS[:86] == 0).all()
    for query in SCHEMA.queries[1:]:
        np.testing.assert_allclose(query.matrix.T @ BASIS, 0, atol=1e-12)


def test_a_pancake_lies_in_the_contrasts_and_nowhere_else():
    source = ContrastPancake(key=KEY, sigma=5.0, basis=BASIS)
    rows = source.sample(400, 194, stream=KeyedStream.from_seed(1))
    assert rows.std() == pytest.approx(5.0, rel=0.02)
    spacing = np.sqrt(2 * np.pi) * 5.0 / KEY.gamma  # β² is 0 beside γ²
    for directions, hidden in ((KEY.basis, True), (np.roll(KEY.basis, 1, axis=1), False)):
        phase = rows[:, :172] @ BASIS @ directions.T / spacing
        away = np.abs(phase - np.rint(phase)).mean()
        assert (away < 0.01) if hidden else (0.2 < away < 0.3)


def test_least_squares_keeps_contrasts_up_to_one_shift_for_all_siblings():
    run = TopDown(census=read_census(states="33"), budget=Budget())
    measured = run.measure(lambda scale, _: Gaussian(sigma=scale), stream=KeyedStream.from_seed(2))
    tables = run.tables(measured)
    known = tuple(level.counts for level in run.census.levels)
    (seen, *_), (published, *_) = (
        sights(run, known=known, county=3, **one)
        for one in ({"measured": measured}, {"tables": tables})
    )
    shift = published.replay(seen.residual + seen.known @ seen.matrix) - seen.known
    shift = (shift - seen.residual[:, :172]) @ BASIS
    assert shift == pytest.approx(np.broadcast_to(shift[0], shift.shape), abs=1e-3)
    assert np.abs(shift[0]).max() > 0.1


def test_rows_begin_where_tables_show_something():
    order = common_first(SCHEMA)(194)
    assert sorted(order.tolist()) == list(range(194))
    assert order[:86].tolist() == list(range(86, 172))
    assert not SCHEMA.zeros[order[:107]].any()
    assert SCHEMA.zeros[order[107:172]].all()


def test_seeded_rows_are_the_sources_in_another_order():
    key = SeedKey.new(secret=b"s" * 32)
    order = common_first(SCHEMA)
    sources = [seeded(key, nonce_bits=32, order=one)(3.0, 194) for one in (np.arange, order)]
    plain, moved = (s.sample(5, 194, stream=KeyedStream.from_seed(4)) for s in sources)
    assert (moved[:, order(194)] == plain).all()
