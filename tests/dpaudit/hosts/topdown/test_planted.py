"""Where specimens hide, and what post-processing keeps of it."""

from __future__ import annotations

import numpy as np
import pytest

from dpaudit.hosts.topdown import Budget, TopDown, census_schema, read_census
from dpaudit.hosts.topdown.planted import ContrastPancake, common_first, contrasts, seeded
from dpaudit.hosts.topdown.sight import sights
from dpaudit.noise.gaussian import Gaussian
from dpaudit.noise.key import PancakeKey
from dpaudit.noise.seed_in_noise.key import SeedKey
from dpaudit.randomness import KeyedStream

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
    plain, moved = (
        seeded(key, nonce_bits=32, order=one)(3.0, 194).sample(
            5, 194, stream=KeyedStream.from_seed(4)
        )
        for one in (np.arange, order)
    )
    assert (moved[:, order(194)] == plain).all()
