"""The exact law and both ε over all outputs of small filters."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
import scipy.stats
from support.laws import largest_ratio

from dpaudit.errors import UsageError
from dpaudit.randomness import KeyedStream
from dpaudit_local.mechanisms.hashing import RandomHashes
from dpaudit_local.mechanisms.rappor import Rappor
from dpaudit_local.mechanisms.reports import BloomReports

F, P, Q = 0.5, 0.375, 0.75  # exact in binary
OUTPUTS = list(itertools.product((0, 1), repeat=8))


class TableHashes:
    """Positions as written down: one row an object, one column a function."""

    size = 8

    def __init__(self, *rows):
        self.table = np.array(rows, dtype=np.uint32)
        self.count = self.table.shape[1]

    def positions(self, objects, function):
        return self.table[objects, function]

    def each(self, objects, functions):
        return self.table[objects, functions]


def small(*rows, f=F, p=P, q=Q, cohorts=1):
    hashes = TableHashes(*rows)
    shape = {"bits": 8, "per_object": hashes.count // cohorts, "cohorts": cohorts}
    return Rappor(f, p=p, q=q, universe=len(rows), hashes=hashes, **shape)


def filters_of(*rows):
    return [{*row} for row in rows]


def chances(true, f, p, q):
    """P(permanent response) and P(report) for a true filter, all 256 each, by the paper's steps."""
    f, p, q = Fraction(f), Fraction(p), Fraction(q)
    kept = {
        1: {1: f / 2 + (1 - f), 0: f / 2},  # of a true 1: set to 1, set to 0, or left
        0: {1: f / 2, 0: f / 2 + (1 - f)},
    }
    said = {1: {1: q, 0: 1 - q}, 0: {1: p, 0: 1 - p}}
    permanent = [kept[int(i in true)] for i in range(8)]
    report = [{s: sum(bit[b] * said[b][s] for b in (0, 1)) for s in (0, 1)} for bit in permanent]
    return [
        {s: math.prod(bit[x] for bit, x in zip(bits, s, strict=True)) for s in OUTPUTS}
        for bits in (permanent, report)
    ]


CASES = {
    "disjoint": ([0, 1], [2, 3], [1, 2]),
    "sharing": ([0, 1], [1, 2], [0, 2]),  # any two share a bit
    "colliding": ([0, 0], [1, 1], [2, 2]),  # an object's own hash functions meet
    "one of each": ([0, 1], [2, 2], [1, 0]),
    "nested": ([4, 5], [4, 4], [5, 5]),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize(
    ("f", "p", "q"), [(F, P, Q), (0.25, 0.0, 1.0), (0.125, 0.75, 0.25), (0.0, 0.25, 0.5)]
)
def test_epsilon_is_the_largest_likelihood_ratio_over_all_outputs(case, f, p, q):
    rows = CASES[case]
    mechanism = small(*rows, f=f, p=p, q=q)
    laws = [chances(true, f, p, q) for true in filters_of(*rows)]
    assert all(sum(law.values()) == 1 for pair in laws for law in pair)
    one_report = math.log(largest_ratio([report for _, report in laws]))
    attained = any(
        len(a) == len(b) == 2 and not a & b for a in filters_of(*rows) for b in filters_of(*rows)
    )
    assert attained == (case == "disjoint")
    assert (mechanism.epsilon == pytest.approx(one_report, rel=1e-12)) == attained
    assert mechanism.epsilon >= one_report - 1e-12
    if f == 0:
        assert mechanism.permanent_epsilon == math.inf
        return
    permanent = math.log(largest_ratio([law for law, _ in laws]))
    assert mechanism.permanent_epsilon >= permanent - 1e-12
    assert (mechanism.permanent_epsilon == pytest.approx(permanent, rel=1e-12)) == attained
    if (p, q) == (0.0, 1.0):
        assert mechanism.epsilon == pytest.approx(mechanism.permanent_epsilon, rel=1e-12)


def test_the_papers_formulas():
    mechanism = Rappor(0.5, p=0.5, q=0.75, bits=128, per_object=2)
    q, p = 0.25 * 1.25 + 0.5 * 0.75, 0.25 * 1.25 + 0.5 * 0.5
    assert (mechanism.q_star, mechanism.p_star) == (q, p)
    both = mechanism.epsilon, mechanism.permanent_epsilon
    expected = 2 * math.log(q * (1 - p) / (p * (1 - q))), 4 * math.log(0.75 / 0.25)
    assert both == pytest.approx(expected, rel=1e-12)


def test_log_likelihood_is_that_of_all_outputs():
    rows = [*CASES["disjoint"], [4, 4]]
    packed = np.packbits(OUTPUTS, axis=1, bitorder="little")
    reports = BloomReports(np.zeros(256, np.uint32), packed)
    logs = small(*rows).log_likelihood(reports, np.arange(len(rows)))
    laws = [chances(true, F, P, Q)[1] for true in filters_of(*rows)]
    off = logs - np.array([[math.log(law[s]) for law in laws] for s in OUTPUTS])
    np.testing.assert_allclose(off, np.broadcast_to(off[:, :1], off.shape), atol=1e-12)


def test_log_likelihood_uses_each_reports_own_cohort():
    mechanism, objects = Rappor(cohorts=5, bits=16, universe=30), np.array([3, 9])
    reports = mechanism.privatize(np.arange(30), stream=KeyedStream.from_seed("cohorts"))
    logs = mechanism.log_likelihood(reports, objects)
    low, high = mechanism.p_star, mechanism.q_star
    said = {1: math.log(high / low), 0: math.log((1 - high) / (1 - low))}
    for i in range(30):
        alone = mechanism.log_likelihood(reports[i : i + 1], objects)
        np.testing.assert_allclose(alone[0], logs[i], rtol=1e-12)
        bits = np.unpackbits(reports.bits[i], bitorder="little").tolist()
        for column, row in enumerate(mechanism.positions(objects, int(reports.cohort[i])).tolist()):
            assert logs[i, column] == pytest.approx(sum(said[bits[j]] for j in {*row}))


def misfit(bits, law):
    """χ² p-value of reports of one byte against a law of their bits."""
    due = np.zeros(256)
    for s in OUTPUTS:
        due[sum(bit << i for i, bit in enumerate(s))] = len(bits) * float(law[s])
    return scipy.stats.chisquare(np.bincount(bits[:, 0], minlength=256), due).pvalue


def test_permanent_and_instantaneous_responses_follow_their_laws_and_wrong_ones_would_be_seen():
    mechanism, n = small([0, 5], [2, 3]), 100_000
    stream = KeyedStream.from_seed("laws")
    permanent_law, report_law = chances({0, 5}, F, P, Q)
    objects, cohorts = np.zeros(n, np.int64), np.zeros(n, np.uint32)
    assert misfit(mechanism.permanent(objects, cohorts, stream=stream), permanent_law) > 1e-3
    assert misfit(mechanism.privatize(objects, stream=stream).bits, report_law) > 1e-3
    # no permanent step
    forgotten = mechanism.instantaneous(mechanism.bloom(objects, cohorts), stream=stream)
    assert misfit(forgotten, report_law) < 1e-9
    weaker = small([0, 5], [2, 3], f=F - 0.02)
    assert misfit(weaker.permanent(objects, cohorts, stream=stream), permanent_law) < 1e-9


def test_one_time_rappor_reports_the_permanent_response():
    stream, mechanism = KeyedStream.from_seed(1), Rappor(0.25, p=0.0, q=1.0, bits=32)
    permanent = mechanism.permanent(
        np.arange(50), np.arange(50) % 64, stream=KeyedStream.from_seed("once")
    )
    assert np.array_equal(mechanism.instantaneous(permanent, stream=stream), permanent)
    reverse = Rappor(0.25, p=1.0, q=0.0, bits=32)
    assert np.array_equal(reverse.instantaneous(permanent, stream=stream), ~permanent)


def test_bloom_filters_agree_with_positions_and_share_nothing_between_cohorts():
    mechanism, objects = Rappor(bits=16, cohorts=7, per_object=3), np.arange(200)
    for cohort in range(7):
        sets = [{*row} for row in mechanism.positions(objects, cohort).tolist()]
        packed = mechanism.bloom(objects, np.full(200, cohort))
        unpacked = np.unpackbits(packed, axis=1, bitorder="little")
        for filters in (mechanism.filters(objects, cohort), unpacked):
            assert [{*np.flatnonzero(row)} for row in filters] == sets
        assert min(map(len, sets)) < 3  # collisions are there to be seen
    apart = mechanism.positions(objects, 0) != mechanism.positions(objects, 1)
    assert apart.any(axis=1).mean() > 0.9


def test_cohorts_are_drawn_uniformly_and_a_seed_makes_another_mechanism():
    reports = Rappor().privatize(np.arange(2000), stream=KeyedStream.from_seed("same"))
    assert reports.bits.shape == (2000, 16)
    assert scipy.stats.chisquare(np.bincount(reports.cohort, minlength=64)).pvalue > 1e-3
    one, again, other = (
        Rappor(seed=seed).positions(np.arange(50), 0).tolist() for seed in (1, 1, 2)
    )
    assert one == again != other


def hashes(count, size):
    return RandomHashes(count, size, stream=KeyedStream.from_seed(0))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        *(({"f": f}, f"f={f}") for f in (-0.1, 1.5, 1.0, math.nan, "0.5", 1e-30)),
        ({"p": 1.1}, "p=1.1"),
        ({"q": math.nan}, "q=nan"),
        ({"p": 0.3, "q": 0.3}, "p=0.3, q=0.3: must differ"),
        ({"f": 0.0, "p": 0.0}, "f=0.0, p=0.0, q=0.75: a report would prove"),
        ({"f": 0.0, "q": 1.0}, "a report would prove"),
        ({"bits": 12}, "bits=12: must be a multiple of 8"),
        ({"bits": 8, "per_object": 5}, "bits=8: must be a whole number from 10 to"),
        ({"bits": 128.0}, "bits=128.0"),
        ({"per_object": 0}, "per_object=0"),
        ({"cohorts": 0}, "cohorts=0"),
        ({"universe": 1}, "universe=1"),
        ({"universe": 1 << 33}, "universe=8589934592"),
        ({"hashes": hashes(128, 64)}, "hashes=128 functions to 64 positions"),
        ({"hashes": hashes(127, 128)}, "hashes=127 functions to 128 positions"),
    ],
)
def test_bad_options(options, message):
    with pytest.raises(UsageError, match=message):
        Rappor(**options)


def test_bad_objects_and_reports():
    mechanism, stream, one = Rappor(universe=300), KeyedStream.from_seed(0), np.array([1])
    for objects in ([300], [-1], [0.5], [[1]], [True]):
        bad = np.array(objects)
        for call in (
            lambda x: mechanism.privatize(x, stream=stream),
            lambda x: mechanism.positions(x, 0),
        ):
            with pytest.raises(UsageError, match="objects"):
                call(bad)
    for cohort, bits, says in (
        ([0], np.zeros((1, 15), np.uint8), r"reports.bits of shape \(1, 15\)"),
        ([0], np.zeros((1, 16), np.int64), "type int64"),
        ([64], np.zeros((1, 16), np.uint8), "cohorts=64"),
        ([0, 1], np.zeros((1, 16), np.uint8), "cohorts=2"),
    ):
        with pytest.raises(UsageError, match=says):
            mechanism.log_likelihood(BloomReports(np.array(cohort), bits), one)
    for call, says in (
        (lambda: mechanism.positions(one, 64), "cohort=64"),
        (lambda: mechanism.bloom(one, np.array([64])), "cohorts=64"),
    ):
        with pytest.raises(UsageError, match=says):
            call()
