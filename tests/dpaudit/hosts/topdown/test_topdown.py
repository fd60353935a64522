"""The hierarchy, the budget, and what the published tables hold."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest

from dpaudit.errors import UsageError
from dpaudit.hosts.topdown import Budget, TopDown, census_schema, read_census
from dpaudit.hosts.topdown.budget import SENSITIVITY
from dpaudit.noise.discrete import DiscreteGaussian
from dpaudit.noise.gaussian import Gaussian
from dpaudit.randomness import KeyedStream

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


def test_the_generated_nation_has_the_real_counties():
    nation, state, county = read_census().levels
    assert (len(state.geocodes), len(county.geocodes)) == (51, 3143)
    assert county.counts.sum(1)[0] == 43952  # Autauga, as in the shipped table
    assert (county.counts[:, census_schema().zeros] == 0).all()
    assert (nation.counts[0] == state.counts.sum(0)).all()
    for at, code in enumerate(county.geocodes):
        assert state.geocodes[county.parents[at]] == code[:2]


def test_some_states_are_the_same_as_among_all(census):
    everywhere = read_census().levels[2]
    for code, counts in zip(census.levels[2].geocodes, census.levels[2].counts, strict=True):
        assert (counts == everywhere.counts[everywhere.geocodes.index(code)]).all()


def test_the_real_table(tmp_path, monkeypatch):
    lines = [f"{code},{age},{age + code % 7}" for code in (1001, 1003, 56045) for age in range(86)]
    path = tmp_path / "us_county_age_population_2000.csv.gz"
    import gzip

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


def test_measurements_are_the_answers_plus_noise_of_their_scale(run):
    top_down, measured, _ = run
    assert [(q.level, q.query) for q in measured.queries] == [
        (level.name, query.name)
        for level in top_down.census.levels
        for query in top_down.queries(level.name)
    ]
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


def test_totals_of_nation_and_states_are_not_measured(run):
    _, measured, _ = run
    assert measured.of("county", "total").values.shape == (18, 1)
    with pytest.raises(KeyError):
        measured.of("state", "total")


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
    one, two = (
        top_down.measure(
            lambda scale, length: Gaussian(sigma=scale), stream=KeyedStream.from_seed(seed)
        )
        for seed in (3, 3)
    )
    assert (one.queries[0].values == two.queries[0].values).all()
    assert one.queries[0].values.dtype == np.int64


def test_measurements_of_another_census_are_refused(run, census):
    _, measured, _ = run
    other = TopDown(census=read_census(states="10"), budget=Budget())
    with pytest.raises(UsageError, match="of another census"):
        other.tables(measured)
