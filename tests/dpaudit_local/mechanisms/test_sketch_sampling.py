"""Many submissions drawn at once: the exact law where it can be listed, and 10^6 real ones."""

import itertools

import numpy as np
import pytest
import scipy.stats

from dpaudit.errors import UsageError
from dpaudit.randomness import KeyedStream
from dpaudit_local.mechanisms import count_mean_sketch
from dpaudit_local.mechanisms.count_mean_sketch import (
    CountMeanServer,
    CountMeanSketch,
    sample_sketch,
)

FINE, BAD = 1e-4, 1e-9


# ---------------------------------------------------------------- all outcomes of three submissions


def tiny():
    return CountMeanSketch(2.0, m=8, functions=2, seed=5)


def seen_in(ones, visits, places):
    """What the law is listed for: visits of function 0, and counts at one place per function."""
    return int(visits[0]), int(ones[0, places[0]]), int(ones[1, places[1]])


def exact_law(sketch, counts):
    """The law of :func:`seen_in`, submission by submission from the definition."""
    places = [int(sketch.hashes.positions(np.array([0]), j)[0]) for j in (0, 1)]
    law = {(0, 0, 0): 1.0}
    for x in np.repeat(np.arange(len(counts)), counts):
        after = {}
        for (n, a, b), p in law.items():
            for j, bit in itertools.product((0, 1), (0, 1)):
                own = sketch.hashes.positions(np.array([x]), j)[0] == places[j]
                one = 1 - sketch.flip if own else sketch.flip
                key = (n + 1 - j, a + bit * (1 - j), b + bit * j)
                after[key] = after.get(key, 0) + p * 0.5 * (one if bit else 1 - one)
        law = after
    return places, law


def exact_p(draw, sketch, counts, trials=3_000):
    places, law = exact_law(sketch, counts)
    seen = dict.fromkeys(law, 0)
    for i in range(trials):
        seen[seen_in(*draw(i), places)] += 1
    expected = np.array(list(law.values())) * trials
    assert expected.min() > 5
    return scipy.stats.chisquare(np.array(list(seen.values())), expected).pvalue


def state(sketch, counts, stream):
    server = sample_sketch(sketch, counts, stream=stream)
    return server.ones, server.visits


@pytest.mark.slow
@pytest.mark.parametrize("many", [0, 8])
def test_three_submissions_have_the_exact_law(monkeypatch, many, stream):
    """``many`` 0: functions' counts drawn as a multinomial; 8: each report's function drawn."""
    monkeypatch.setattr(count_mean_sketch, "_MANY", many)
    sketch, counts = tiny(), np.array([2, 1])
    assert exact_p(lambda i: state(sketch, counts, stream.child(many, i)), sketch, counts) > FINE


@pytest.mark.slow
def test_shortcuts_that_are_not_exact_are_caught(stream):
    """Each function its expected share of reports; one binomial with the mean probability."""
    sketch, counts = tiny(), np.array([2, 1])

    def drawn(name, visits_of):
        def draw(i):
            rng = stream.child(name, i).numpy()
            visits, ones = visits_of(rng), np.zeros((2, 8), int)
            for j in (0, 1):
                places = sketch.hashes.positions(np.arange(2), j)
                share = np.bincount(places, weights=counts / 3, minlength=8)
                chance = share * (1 - sketch.flip) + (1 - share) * sketch.flip
                ones[j] = rng.binomial(visits[j], chance)
            return ones, visits

        return exact_p(draw, sketch, counts)

    def even(rng):
        return np.array([2, 1]) if rng.random() < 0.5 else np.array([1, 2])

    def mixed(rng):
        return (first := rng.binomial(3, 0.5)), 3 - first

    assert drawn("even", even) < BAD
    assert drawn("mixed", mixed) < BAD


# ---------------------------------------------------------------- a million submissions


M, FUNCTIONS, UNIVERSE, Z = 64, 128, 60, 1_000_000
BIG = CountMeanSketch(4.0, m=M, functions=FUNCTIONS, seed=2)
POPULARITY = 1 / np.arange(1, UNIVERSE + 1)
SUBMITTED = np.round(POPULARITY / POPULARITY.sum() * Z).astype(np.int64)
SUBMITTED[0] += Z - SUBMITTED.sum()


def really(i):
    """Every submission made, reported and added."""
    server = CountMeanServer(BIG)
    objects = np.repeat(np.arange(UNIVERSE), SUBMITTED)
    stream = KeyedStream.from_seed("really").child(i)
    for n, part in enumerate(np.array_split(objects, 8)):
        server.add(BIG.privatize(part, stream=stream.child(n)))
    return server


def sampled(i):
    return sample_sketch(BIG, SUBMITTED, stream=KeyedStream.from_seed("sampled").child(i))


def too_even(i):
    """A bad shortcut: visits have their law, but bits vary as if objects were shared out evenly."""
    rng = np.random.default_rng(i)
    visits = rng.multinomial(Z, np.full(FUNCTIONS, 1 / FUNCTIONS))
    ones = np.zeros((FUNCTIONS, M), np.uint32)
    for j in range(FUNCTIONS):
        own = np.bincount(
            BIG.hashes.positions(np.arange(UNIVERSE), j), weights=SUBMITTED / FUNCTIONS, minlength=M
        )
        own = np.minimum(np.round(own).astype(int), visits[j])
        ones[j] = rng.binomial(own, 1 - BIG.flip) + rng.binomial(visits[j] - own, BIG.flip)
    return CountMeanServer.of_counts(BIG, ones, visits)


PLACES = np.array([BIG.hashes.positions(np.arange(UNIVERSE), j) for j in range(FUNCTIONS)])


def moments_p(servers):
    """p-values against exact moments: cells, neighbours' products, visits, and estimates.

    A cell is a sum of Z independent bits (report of x: its function has probability 1/k, then 1 − q
    or q), so is an estimate of independent terms; over the families fixed here both means and
    variances are exact.
    """
    chi2, t_test = scipy.stats.chi2, scipy.stats.ttest_1samp
    q, c, n = BIG.flip, 1 / (1 - 2 * BIG.flip), len(servers)
    own = np.zeros((FUNCTIONS, M, UNIVERSE), bool)
    for j in range(FUNCTIONS):
        own[j, PLACES[j], np.arange(UNIVERSE)] = True
    r = np.where(own, 1 - q, q) / FUNCTIONS
    mean, variance = r @ SUBMITTED, (r * (1 - r)) @ SUBMITTED
    cells = np.array([s.ones.astype(float) for s in servers])
    z = (cells - mean) / np.sqrt(variance)
    heaviest = z.mean(axis=0)[np.arange(FUNCTIONS), PLACES[:, 0]]
    # covariance of neighbours
    pair = (r[:, 1:] * r[:, :-1] * FUNCTIONS - r[:, 1:] * r[:, :-1]) @ SUBMITTED
    correlation = pair / np.sqrt(variance[:, 1:] * variance[:, :-1])
    shared = (z[:, :, 1:] * z[:, :, :-1]).mean(axis=(0, 2)) - correlation.mean(axis=1)
    total = cells.sum(axis=(1, 2)) - Z * ((M - 1) * q + 1 - q)  # of 64 Z independent bits
    total = abs(total.sum()) / (Z * M * q * (1 - q) * n) ** 0.5
    squares = (z**2).mean(axis=(0, 2)) - 1  # one value a function: those are all but independent
    visits = np.array([s.visits for s in servers]) - Z / FUNCTIONS
    visits = (visits**2 / (Z / FUNCTIONS)).sum(), n * (FUNCTIONS - 1)
    same = (PLACES[:, :, None] == PLACES[:, None, :]).mean(axis=0)  # of two objects, over functions
    spread = c * c * q * (1 - q) + same - same**2
    error = np.array([(M - 1) / M * s.estimate(np.arange(UNIVERSE)) + Z / M for s in servers])
    error = (error - same @ SUBMITTED) / np.sqrt(spread @ SUBMITTED)
    p = {
        "means": float(chi2.sf(n * (heaviest**2).sum(), FUNCTIONS)),
        "total": float(2 * scipy.stats.norm.sf(total)),
        "cells": float(t_test(squares, 0).pvalue),
        "neighbours": float(t_test(shared, 0).pvalue),
        "visits": float(chi2.sf(*visits)),
        "few visits": float(chi2.cdf(*visits)),
        "estimates": float(scipy.stats.kstest(error.ravel(), "norm").pvalue),
    }
    return p, z, error


@pytest.mark.slow
def test_a_million_submissions_give_what_the_shortcut_gives():
    real, real_z, real_error = moments_p([really(i) for i in range(3)])
    short, short_z, short_error = moments_p([sampled(i) for i in range(25)])
    assert min(real.values()) > FINE, real
    assert min(short.values()) > FINE, short
    assert scipy.stats.ks_2samp(real_z.ravel(), short_z[:3].ravel()).pvalue > FINE
    assert scipy.stats.ks_2samp(real_error.ravel(), short_error.ravel()).pvalue > FINE


def other_flip(i):
    """A bad shortcut: the flip probability a thousandth too small."""
    other = CountMeanSketch(4.0023, hashes=BIG.hashes)
    server = sample_sketch(other, SUBMITTED, stream=KeyedStream.from_seed(i))
    return CountMeanServer.of_counts(BIG, server.ones, server.visits)


@pytest.mark.parametrize(("bad", "shows"), [(too_even, "cells"), (other_flip, "total")])
def test_bad_shortcuts_are_caught_at_a_million(bad, shows):
    values, _, _ = moments_p([bad(i) for i in range(25)])
    assert values[shows] < BAD, values


# ---------------------------------------------------------------- edges


def test_the_state_is_by_stream_and_fits(stream):
    counts = np.array([5000, 0, 3, 70_000_000], np.int64)
    sketch = CountMeanSketch(4.0, m=64, functions=50)
    server = sample_sketch(sketch, counts, stream=stream)
    assert server.reports == counts.sum()
    assert server.ones.dtype == "u4"
    assert (server.ones == sample_sketch(sketch, counts, stream=stream).ones).all()
    assert (server.ones != sample_sketch(sketch, counts, stream=stream.child(1)).ones).any()
    error = (server.estimate(np.arange(4)) - counts) / server.standard_error(counts)
    assert np.abs(error).max() < 5
    server.add(sketch.privatize(np.arange(100), stream=stream))
    assert server.reports == counts.sum() + 100


def test_nobody_submitted_anything(stream):
    for counts in (np.zeros(3, np.int64), np.zeros(0, np.int64)):
        server = sample_sketch(tiny(), counts, stream=stream)
        assert server.reports == 0
        assert not server.ones.any()


def test_chunks_of_reports_are_whole(monkeypatch, stream):
    monkeypatch.setattr(count_mean_sketch, "_REPORTS", 7)
    monkeypatch.setattr(count_mean_sketch, "_CELLS", 8)
    counts = np.array([0, 0, 5, 0, 9, 1, 0])
    sketch = CountMeanSketch(64.0, m=1024, functions=3)  # flips once in 10^10 bits
    server = sample_sketch(sketch, counts, stream=stream)
    assert server.reports == 15
    total = sum(
        server.ones[j, sketch.hashes.positions(np.arange(7), j)].astype(int) for j in range(3)
    )
    assert total.tolist() == counts.tolist()


def test_what_it_refuses(stream):
    for counts in (np.array([-1]), np.array([1.5]), np.ones((2, 2), int)):
        with pytest.raises(UsageError, match="counts="):
            sample_sketch(tiny(), counts, stream=stream)
