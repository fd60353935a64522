"""The detectability map: read rightly, conservative between and beyond its points, and true where it was measured."""

import itertools

import numpy as np
import pytest

from dpaudit import registry
from dpaudit.audit import AuditOptions, run_audit
from dpaudit.audit.power import blind_spots, frontier, parse, read_table
from dpaudit.claims import Claim

TABLE = parse(
    """# a comment
flaw,dim,samples,size,unit,by,found_low,found_high
wrong scale,0,100000,1.0,%,moments,0.8,1
wrong scale,0,10000000,0.1,%,moments,0.8,1
spike,0,100000,3,%,covariance,0.8,1
spike,64,100000,30,%,covariance,0.8,1
spike,1024,100000,300,%,covariance,0.8,1
""".splitlines()
)


def at(dim, samples):
    return {p.flaw: p.size for p in frontier(dim=dim, samples=samples, table=TABLE)}


def test_between_points_on_logarithmic_scales():
    assert at(None, 1_000_000)["wrong scale"] == pytest.approx(10**-0.5)
    assert at(None, 100_000)["wrong scale"] == 1.0


def test_beyond_the_points_it_promises_no_more_than_was_measured():
    assert at(None, 10**9)["wrong scale"] == 0.1
    assert at(None, 50_000) == {}


def test_a_dimension_is_read_at_the_next_larger_one():
    assert at(None, 10**5)["spike"] == 3
    assert at(10, 10**5)["spike"] == 30
    assert at(65, 10**5)["spike"] == 300
    assert "spike" not in at(2000, 10**5)


def test_the_package_carries_a_map_that_grows_sharper_with_n():
    points = read_table()
    scale = sorted((p.samples, p.size) for p in points if p.flaw == "wrong scale")
    assert [n for n, _ in scale] == [100_000, 1_000_000, 10_000_000]
    assert all(a > 2 * b for (_, a), (_, b) in itertools.pairwise(scale))
    assert all(p.found_high >= 0.9 for p in points)
    assert all(spot.says for spot in blind_spots(points))


def test_a_pass_quotes_the_map_and_a_small_audit_does_not(function_sampler):
    rng = np.random.default_rng(5)
    tests = tuple(sorted(set(registry.plugins("tests")) - {"keyless-search"}))
    for samples, quoted in ((120_000, True), (20_000, False)):
        result = run_audit(
            function_sampler(lambda n, d: rng.standard_normal((n, d))),
            claim=Claim.parse("gaussian:sigma=1"),
            options=AuditOptions(seed="1", samples=samples, tests=tests),
        )
        assert any(b.test.startswith("simulated") for b in result.cannot_rule_out) == quoted
        assert bool(result.power) == quoted
        assert sum(b.flaw == "wrong scale" for b in result.cannot_rule_out) == 1


def test_the_map_is_true_where_it_was_measured(function_sampler):
    """Audits by the whole battery of the very flaw that the map says is found nine times in ten at 10^5 values."""
    size = next(p.size for p in read_table() if p.flaw == "wrong scale" and p.samples == 100_000) / 100
    tests = tuple(sorted(set(registry.plugins("tests")) - {"keyless-search"}))
    found = 0
    for i in range(12):
        rng = np.random.default_rng([8, i])
        result = run_audit(
            function_sampler(lambda n, d, rng=rng: (1 + size) * rng.standard_normal((n, d))),
            claim=Claim.parse("gaussian:sigma=1"),
            options=AuditOptions(seed=str(i), samples=100_000, dim=64, tests=tests),
        )
        found += result.verdict == "finding"
    # 6 or fewer of 12 has probability 0.0005 at a power of 0.9; at a power of 0.3 it has 0.96
    assert found >= 7
