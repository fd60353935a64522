"""The host's own files: honest ones pass, and wrong scales are found in its impossible cells."""

from __future__ import annotations

import functools

import pytest

from dpaudit.deployments.census.audit import audit_files
from dpaudit.deployments.census.writing import write_measurements
from dpaudit.hosts.topdown.budget import Budget
from dpaudit.hosts.topdown.geography import read_census
from dpaudit.hosts.topdown.topdown import TopDown
from dpaudit.noise.discrete import DiscreteGaussian
from dpaudit.provenance import collect
from dpaudit.randomness import KeyedStream


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
    for group in (zeros, sums):
        assert group.interval.low < factor < group.interval.high
    assert sum(level.rho for level in document.levels) == pytest.approx(Budget().rho, rel=1e-2)
