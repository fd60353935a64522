"""What keys read in a census, that they read nothing else, and what is left without them."""

from __future__ import annotations

import numpy as np
import pytest

from dpaudit.noise.discrete import DiscreteGaussian
from dpaudit.noise.key import PancakeKey
from dpaudit.noise.seed_in_noise.key import SeedKey
from dpaudit.protocols import CountShifts
from dpaudit.randomness import KeyedStream
from dpaudit_deployments.topdown.census import Budget, census_schema, read_census
from dpaudit_deployments.topdown.planted import (
    ContrastPancake,
    common_first,
    contrasts,
    seeded,
    sights,
)
from dpaudit_deployments.topdown.topdown import TopDown
from dpaudit_deployments.topdown.topdown_reader import TopDownReader

KEY, OTHER = (SeedKey.new(secret=letter * 32) for letter in (b"a", b"b"))
SCHEMA = census_schema()
ZEROS = np.concatenate([SCHEMA.zeros, np.zeros(22, dtype=bool)])
COUNTY = 4
BITS = 16  # few, so that tables give them in a second


@pytest.fixture(scope="module")
def run():
    return TopDown(census=read_census(states="33"), budget=Budget.of_epsilon(4.0))


def reader(order="schema", key=KEY):
    return TopDownReader(key=key, order=order, nonce_bits=BITS, draws=512)


def known_of(run, moved=None):
    """True counts, or these plus what somebody thinks is there in the county."""
    known = [level.counts.copy() for level in run.census.levels]
    if moved is not None:
        for counts, row in zip(known, (0, 0, COUNTY), strict=True):
            counts[row] += moved
    return tuple(known)


def move(run, away=86 + 30, to=86 + 33):
    change = np.zeros(172, dtype=np.int64)
    change[away], change[to] = -1, 1
    return change


def rows_of(run, measured):
    return np.concatenate([measured.of("county", q.name).values for q in run.queries("county")], 1)


@pytest.fixture(scope="module")
def planted(run):
    """By order of the rows: measurements and tables of seeded noise."""
    found = {}
    for order, places in (("schema", np.arange), ("common", common_first(SCHEMA))):
        noise = seeded(KEY, nonce_bits=BITS, order=places)
        measured = run.measure(noise, stream=KeyedStream.from_seed("planted"))
        found[order] = measured, run.tables(measured)
    return found


def test_without_a_key_scores_are_log_likelihoods(run):
    measured = run.measure(
        lambda scale, _: DiscreteGaussian(sigma=scale), stream=KeyedStream.from_seed(1)
    )
    change, steps = move(run), np.arange(-2, 3)
    seen = sights(run, known=known_of(run), county=COUNTY, measured=measured)
    scores = TopDownReader().score(seen, CountShifts(change, steps))
    wanted = []
    for step in steps:
        total = 0.0
        for level, row in zip(run.census.levels, (0, 0, COUNTY), strict=True):
            for query in run.queries(level.name):
                answer = measured.of(level.name, query.name)
                true = (level.counts[row] + step * change) @ query.matrix
                total -= np.square(answer.values[row] - true).sum() / (2 * answer.scale**2)
        wanted.append(total)
    assert scores == pytest.approx(wanted)


def test_structural_zeros_give_all_counts_of_a_county(run, planted):
    measured, _ = planted["schema"]
    nothing = tuple(np.zeros_like(level.counts) for level in run.census.levels)  # no count known
    sight = sights(run, known=nothing, county=COUNTY, measured=measured)[0]
    noise = reader().read(sight, ZEROS)
    true = run.census.levels[2].counts[COUNTY]
    assert (rows_of(run, measured)[COUNTY] - noise == true @ sight.matrix).all()
    assert reader(key=OTHER).read(sight, ZEROS) is None
    assert TopDownReader().read(sight, ZEROS) is None


@pytest.mark.parametrize("order", ["schema", "common"])
@pytest.mark.parametrize("truth", [0, 1])
def test_measurements_give_a_single_record(run, planted, order, truth):
    measured, _ = planted[order]
    change = move(run)
    seen = sights(run, known=known_of(run, -truth * change), county=COUNTY, measured=measured)
    scores = reader(order).score(seen, CountShifts(change, np.arange(2)))
    assert scores.argmax() == truth
    assert abs(scores[1] - scores[0]) > 1e5  # no doubt
    weak = reader(order, OTHER).score(seen, CountShifts(change, np.arange(2)))
    assert abs(weak[1] - weak[0]) < 10


@pytest.mark.slow
def test_tables_alone_give_noise_of_published_cells_and_never_wrong_noise(run, planted):
    measured, tables = planted["common"]
    true = rows_of(run, measured) - run.census.levels[2].counts @ _matrix(run)
    read = 0
    for county in range(0, 10, 2):
        sight = sights(run, known=known_of(run), county=county, tables=tables)[0]
        for row, noise in reader("common").read_table(sight).items():
            assert (noise == true[row]).all()
            read += row == county
    assert read >= 2
    assert reader("common", OTHER).read_table(sight) == {}
    zeros = sights(run, known=known_of(run), county=COUNTY, tables=planted["schema"][1])[0]
    assert reader().read_table(zeros) == {}


def _matrix(run):
    return np.concatenate([query.matrix for query in run.queries("county")], axis=1)


@pytest.mark.slow
def test_a_read_table_names_a_count(run, planted):
    """Where the noise of the county and of a sibling is read, the replay says which count it is."""
    _, tables = planted["common"]
    right = tried = 0
    for county in range(0, 10, 2):
        attack = reader("common")
        cell, steps = 86 + 40, np.arange(-40, 41)
        change = np.eye(172, dtype=np.int64)[cell]
        away = int(tables[2][county, cell] - run.census.levels[2].counts[county, cell])
        known = [level.counts.copy() for level in run.census.levels]
        for counts, row in zip(known, (0, 0, county), strict=True):
            counts[row] += away * change
        seen = sights(run, known=tuple(known), county=county, tables=tables)
        if len(attack.read_table(seen[0])) > 2:
            tried += 1
            right += steps[attack.score(seen, CountShifts(change, steps)).argmax()] == -away
    assert tried >= 2
    assert right >= tried - 1


@pytest.mark.slow
@pytest.mark.parametrize("view", ["measured", "tables"])
def test_a_pancake_in_contrasts_survives(run, view):
    basis = contrasts(SCHEMA)
    key = PancakeKey.new(dim=67, beta=0.01, secret=b"p" * 32, directions=32)
    right = {"key": 0, "none": 0}
    for trial in range(12):
        measured = run.measure(
            lambda scale, _: ContrastPancake(key=key, sigma=scale, basis=basis),
            stream=KeyedStream.from_seed("pancake").child(trial),
        )
        seen_of = {"measured": measured} if view == "measured" else {"tables": run.tables(measured)}
        change, truth = np.eye(172, dtype=np.int64)[86 + 5 * trial], trial % 5
        seen = sights(run, known=known_of(run, -truth * change), county=COUNTY, **seen_of)
        for name, attack in (("key", TopDownReader(key=key)), ("none", TopDownReader())):
            right[name] += (
                attack.score(seen, CountShifts(change, np.arange(-10, 11))).argmax() == truth + 10
            )
    assert right["key"] > right["none"] + 2


def test_siblings_tell_the_shift_of_phases():
    """At a county's true counts its phases are likelier than Gaussian ones, from tables alone."""
    run = TopDown(census=read_census(states="33"), budget=Budget.of_epsilon(1.0))
    key = PancakeKey.new(dim=67, beta=0.01, secret=b"p" * 32, directions=32)
    noise = contrasts(SCHEMA)
    measured = run.measure(
        lambda scale, _: ContrastPancake(key=key, sigma=scale, basis=noise),
        stream=KeyedStream.from_seed("shift"),
    )
    seen = sights(run, known=known_of(run), county=COUNTY, tables=run.tables(measured))[:1]
    change, now = np.zeros(172, dtype=np.int64), np.zeros(1, dtype=np.int64)
    keyed, plain, other = (
        TopDownReader(key=one).score(seen, CountShifts(change, now))[0]
        for one in (key, None, PancakeKey.new(dim=67, beta=0.01, secret=b"q" * 32, directions=32))
    )
    assert keyed > plain + 3 > other
