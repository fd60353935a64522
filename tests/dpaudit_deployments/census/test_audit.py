"""Audits of files with known noise and of the host's own; the law of integers they test for."""

from __future__ import annotations

import functools
import json
import math

import numpy as np
import pytest
from command_line import here

from dpaudit.errors import UsageError
from dpaudit.noise.discrete import DiscreteGaussian
from dpaudit.provenance import collect
from dpaudit.randomness import KeyedStream
from dpaudit_deployments.census.audit import audit_files
from dpaudit_deployments.census.files import Measurement, write_level, write_measurements
from dpaudit_deployments.census.law import IntegerGaussian, law_of_variance
from dpaudit_deployments.census.noise import Rule
from dpaudit_deployments.census.simulation import PRODUCT, make_files, noise_of
from dpaudit_deployments.topdown.census import Budget, read_census
from dpaudit_deployments.topdown.topdown import TopDown

K = np.arange(-400, 401)


def masses(sigma):
    p = np.exp(-(K**2) / (2 * sigma**2))
    return p / p.sum()


@pytest.mark.parametrize("sigma", [0.4, 1.0, 1.5, 7.0, 30.0])
def test_the_law_is_that_of_the_definition(sigma):
    law, p = IntegerGaussian(sigma), masses(sigma)
    assert law.variance == pytest.approx((p * K**2).sum(), rel=1e-9)
    assert law.collision == pytest.approx((p * p).sum(), rel=1e-9)
    for t in (0, 1, 3, 9):
        assert law.beyond(t) == pytest.approx(p[abs(K) >= t].sum(), rel=1e-9, abs=1e-15)
    edges = np.array([-5, -1, 0, 1, 2, 6])
    wanted = [part.sum() for part in np.split(p, np.searchsorted(K, edges))]
    assert law.between(edges) == pytest.approx(wanted, abs=1e-12)
    for m in (2, 5, 8):
        assert law.residues(m) == pytest.approx([p[K % m == r].sum() for r in range(m)])
    t = law.threshold(0.005)
    assert law.beyond(t) <= 0.005 < law.beyond(t - 1)


@pytest.mark.parametrize("sigma", [0.1, 0.4, 1.0, 4.9, 5.0, 300.0])
def test_a_variance_gives_its_law(sigma):
    found = law_of_variance(IntegerGaussian(sigma).variance)
    assert found.sigma == pytest.approx(sigma, rel=1e-6)


def exact_sum_of_squares(sigma, n):
    """P(Σx² = s) of n values for s = 0, 1, …, by powers of a Fourier transform."""
    reach = math.ceil(9 * sigma) + 1
    size = 1 << math.ceil(math.log2(n * sigma**2 * 9 + 20 * reach**2))
    one = np.zeros(size)
    for k, p in zip(K, masses(sigma), strict=True):
        if abs(k) <= reach:
            one[k * k] += p
    return np.fft.irfft(np.fft.rfft(one) ** n, size)


@pytest.mark.parametrize(
    ("sigma", "n", "off"), [(0.4, 100, 0.01), (1.5, 10, 0.2), (2.0, 100, 0.01)]
)
def test_tails_of_sums_of_squares_are_within_their_stated_error(sigma, n, off):
    p = exact_sum_of_squares(sigma, n)
    upto = np.cumsum(p)
    law = IntegerGaussian(sigma)
    mean, spread = n * law.variance, math.sqrt(n * (law.moment(4) - law.variance**2))
    seen = 0
    for z in np.linspace(-4, 5, 19):
        s = round(mean + z * spread)
        if s < 1:
            continue
        wanted = min(1.0, 2 * min(upto[s], 1 - upto[s - 1]))
        if wanted > 0.9:  # next to the mean
            assert law.squares_two_sided(s, n) >= 0.9 * wanted
            continue
        assert law.squares_two_sided(s, n) == pytest.approx(wanted, rel=off), (z, s)
        seen += 1
    assert seen > 10
    assert law.squares_two_sided(0, n) == pytest.approx(min(1, 2 * p[0]), rel=1e-6, abs=1e-12)


PROVENANCE = collect(seed="none", plugins=())


def files(folder, flaw="none", *, seed=1, states=8, counties=12):
    stream = KeyedStream.from_seed(seed)
    noise = noise_of(flaw, states=states, stream=stream.child("flaw"))
    return make_files(folder, stream=stream, noise=noise, states=states, counties=counties)


def audited(*paths, **options):
    return audit_files(paths, **({"alpha": 0.01, "provenance": PROVENANCE, "sums": True} | options))


def found_by(document):
    return {test.name.rpartition(": ")[2] for test in document.tests if test.finding}


@pytest.fixture(scope="module")
def honest(tmp_path_factory):
    return files(tmp_path_factory.mktemp("honest"))


@pytest.mark.slow
def test_honest_files_pass_and_every_test_looks(honest):
    document = audited(honest)
    assert document.verdict == "no-finding"
    looked = {test.name.rpartition(": ")[2] for test in document.tests}
    assert looked == {
        "scale", "mean", "tails", "law", "residues", "correlation along", "correlation within",
        "repeats", "levels",
    }  # fmt: skip
    assert [level.level for level in document.levels] == ["US", "State", "County"]
    assert [level.geographies for level in document.levels] == [1, 8, 96]
    # ρ = Σ 1/σ²
    assert document.levels[2].rho == pytest.approx(1 / 36 + 1 / 9 + 1 / 4 + 1 / 1.5**2, rel=1e-5)
    by = {(g.level, g.query, g.kind): g for g in document.groups}
    county = by["County", "detailed", "zeros"]
    assert county.sigma == pytest.approx(1.5, rel=1e-6)
    assert sum(b.observed for b in county.bins) == pytest.approx(county.values, abs=5)
    assert sum(b.expected for b in county.bins) == pytest.approx(county.values, rel=1e-3)
    assert by["US", "total", "totals"].values == 1
    assert by["State", "detailed", "sums"].values == 8 * 224
    assert not by["US", "total", "sums"].tested


@pytest.mark.slow
@pytest.mark.parametrize(
    ("flaw", "test"),
    [
        ("σ 5 % too small", "scale"),
        ("cut at 3 σ", "tails"),
        ("two states alike", "repeats"),
        ("no noise in one level", "scale"),
        ("one seed for all levels", "levels"),
    ],
)
def test_a_flaw_is_found_by_its_test(tmp_path, flaw, test):
    document = audited(files(tmp_path, flaw, counties=30))
    assert document.verdict == "finding"
    assert test in found_by(document)


@pytest.mark.slow
def test_a_flaw_of_one_level_is_found_there(tmp_path):
    document = audited(files(tmp_path, "no noise in one level"), sums=False)
    found = {t.name.partition(",")[0] for t in document.tests if t.finding}
    assert found <= {"State", "all levels"}


@pytest.mark.slow
def test_sums_need_no_constraints(tmp_path):
    """Half the noise in every state, in files without any known cell."""
    folder = files(tmp_path / "files")
    for place in folder.glob("*/*/Constraint"):
        place.rename(tmp_path / f"{place.parent.name} left out")
    nothing = audited(folder, sums=False)
    assert nothing.verdict == "inconclusive"
    assert "--sums" in nothing.reason
    assert audited(folder).verdict == "no-finding"
    assert {group.kind for group in audited(folder).groups} == {"sums"}


def test_too_little_noise_in_parents_is_found_by_sums(tmp_path):
    rng = np.random.default_rng(5)

    def rows(codes, sigma):  # fmt: skip
        for code in codes:
            yield Measurement(
                geocode=code, query="detailed", specs=("detailed",), shape=(300,), variance=9.0,
                value=np.rint(rng.normal(0, sigma, 300)).astype(np.int64),
            )  # fmt: skip

    write_level(tmp_path / "P", "State", axes=("a",), measurements=rows(["01", "02"], 0.1))
    children = [f"{s}{c:03d}" for s in ("01", "02") for c in range(2)]
    write_level(tmp_path / "P", "County", axes=("a",), measurements=rows(children, 3.0))
    assert "scale" in found_by(audited(tmp_path))


@pytest.mark.slow
def test_zeros_may_come_from_a_table(honest, tmp_path):
    folder = files(tmp_path)
    for constraints in folder.glob("*/*/Constraint/**/*.parquet"):
        constraints.unlink()
    rule = Rule(cells={"hhgq": [3], "votingage": [0]})
    document = audited(folder, rules=(rule,), sums=False)
    assert document.verdict == "no-finding"
    assert {group.values for group in document.groups} == {14, 14 * 8, 14 * 96}
    wrong = Rule(cells={"hhgq": [0]})
    assert audited(folder, rules=(wrong,), sums=False).verdict == "finding"
    with pytest.raises(UsageError, match="rule 2 fits no query"):
        audited(folder, rules=(rule, Rule(cells={"age": [1]})), sums=False)


@pytest.mark.slow
def test_the_same_rows_twice_are_a_usage_error(honest, tmp_path):
    again = tmp_path / PRODUCT / "County.parquet" / "DPQuery" / "State=01"
    again.mkdir(parents=True)
    source = next((honest / PRODUCT / "County.parquet" / "DPQuery" / "State=01").iterdir())
    (again / "part-1.parquet").write_bytes(source.read_bytes())
    zeros = next((honest / PRODUCT / "County.parquet" / "Constraint" / "State=01").iterdir())
    (again / "part-2.parquet").write_bytes(zeros.read_bytes())
    with pytest.raises(UsageError, match="occurs twice with the same values"):
        audited(honest, tmp_path)


@pytest.mark.slow
def test_false_findings_on_honest_files_are_rare(tmp_path):
    """At α = 0.3, of 20 sets: more than 11 have probability 1 % at most; the seeds are fixed."""
    found = 0
    for seed in range(20):
        folder = files(tmp_path / str(seed), seed=f"honest {seed}", states=2, counties=12)
        found += audited(folder, alpha=0.3).verdict == "finding"
    assert 0 < found <= 11


def census(*args, code=0):
    result = here("deployment", "census", *args)
    assert result.returncode == code, result.stderr + result.stdout
    assert "Traceback" not in result.stderr
    return result


@pytest.mark.slow
def test_on_the_command_line(honest, tmp_path):
    said = census("--nmf", honest, "--out", tmp_path / "audit").stdout
    assert said.splitlines()[-1].startswith("No finding: ")
    html = (tmp_path / "audit" / "report.html").read_text()
    assert html.count("<figure") == 4  # scales, and one per level
    assert "County: the noise itself" in html
    printed = json.loads(census("--nmf", honest, "--format", "json").stdout)
    assert (printed["kind"], printed["verdict"], printed["alpha"]) == ("census", "no-finding", 0.01)
    table = tmp_path / "zeros.toml"
    table.write_text("[[zero]]\ncells = { hhgq = [0] }\n")
    found = census("--nmf", honest, "--zeros", table, code=1).stdout
    assert found.splitlines()[-1].startswith("Finding: ")
    county = honest / PRODUCT / "County.parquet" / "DPQuery"
    assert "Inconclusive" in census("--nmf", county, code=3).stdout
    assert "no Parquet file there" in census("--nmf", tmp_path / "none", code=2).stderr
    assert "alpha=2.0" in census("--nmf", honest, "--alpha", 2, code=2).stderr


@functools.cache
def host():
    return TopDown(census=read_census(states="04 09 10 23 25 33 44 50"), budget=Budget())


@pytest.mark.parametrize(("factor", "verdict"), [(1.0, "no-finding"), (0.9, "finding")])
def test_a_run_of_the_host_is_audited(tmp_path, factor, verdict):
    noisy = host().measure(
        lambda sigma, _: DiscreteGaussian(sigma=factor * sigma), stream=KeyedStream.from_seed(3)
    )
    write_measurements(tmp_path / "host", noisy)
    document = audit_files(
        [tmp_path], alpha=0.01, provenance=collect(seed="none", plugins=()), sums=True
    )
    assert document.verdict == verdict
    assert [level.level for level in document.levels] == ["nation", "state", "county"]
    by = {(g.level, g.query, g.kind): g for g in document.groups}
    zeros, sums = by["county", "detailed", "zeros"], by["state", "detailed", "sums"]
    assert zeros.values == 65 * zeros.geographies
    assert by["nation", "detailed", "sums"].values == sums.values / 8 == 172
    found = [test.name for test in document.tests if test.finding]
    assert found == [] or "county, detailed, structural zeros: scale" in found
    for group in (zeros, sums):  # twice as wide as 95 %: 3.9 standard errors, of 11 to the other
        half = (group.interval.high - group.interval.low) / 2
        assert group.interval.low - half < factor < group.interval.high + half
        assert not group.interval.low - half < 1.9 - factor < group.interval.high + half
    assert sum(level.rho for level in document.levels) == pytest.approx(Budget().rho, rel=1e-2)
