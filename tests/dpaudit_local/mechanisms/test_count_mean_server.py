"""The Count Mean Sketch's server: exact counts, Apple's estimate, and errors as large as stated."""

import math

import numpy as np
import pytest
import scipy.stats

from dpaudit.errors import UsageError
from dpaudit.randomness import KeyedStream
from dpaudit_local.mechanisms import mean_sketches
from dpaudit_local.mechanisms.count_mean_sketch import CountMeanServer, CountMeanSketch
from dpaudit_local.mechanisms.hadamard_sketch import HadamardServer, HadamardSketch
from dpaudit_local.mechanisms.reports import SketchReports


def filled(m, functions=5, n=3000, epsilon=2.0):
    sketch = CountMeanSketch(epsilon, m=m, functions=functions)
    reports = sketch.privatize(np.arange(n) % 7, stream=KeyedStream.from_seed(m))
    server = CountMeanServer(sketch)
    server.add(reports)
    return sketch, reports, server


@pytest.mark.parametrize("m", [8, 40, 64, 200, 1024])
def test_counts_are_those_of_unpacked_bits_in_any_order(m):
    sketch, reports, server = filled(m)
    ones, backwards = np.zeros((5, m), np.int64), CountMeanServer(sketch)
    np.add.at(ones, reports.function, np.unpackbits(reports.bits, axis=1, bitorder="little")[:, :m])
    order = reports.function.astype(np.int64)[::-1], np.asfortranarray(reports.bits[::-1])
    backwards.add(SketchReports(*order))
    for one in (server, backwards):
        assert (one.ones == ones).all()
        assert (one.visits == np.bincount(reports.function, minlength=5)).all()
        assert one.reports == len(reports)


def test_estimates_are_apples_word_by_word():
    """The paper's float algorithm: add up k·(c/2·v + 1/2·1), then m/(m−1)·(mean over rows − n/m).

    v is in ±1.
    """
    sketch, reports, server = filled(40)
    m, k, n = 40, 5, len(reports)
    c = (math.exp(1.0) + 1) / (math.exp(1.0) - 1)
    matrix = np.zeros((k, m))
    signs = 2.0 * np.unpackbits(reports.bits, axis=1, bitorder="little")[:, :m] - 1
    np.add.at(matrix, reports.function, k * (c / 2 * signs + 0.5))
    objects = np.arange(20)
    mean = np.mean([matrix[j, sketch.hashes.positions(objects, j)] for j in range(k)], axis=0)
    expected = m / (m - 1) * (mean - n / m)
    assert np.allclose(server.estimate(objects), expected, rtol=1e-10, atol=1e-7)
    assert server.estimate(np.zeros(0, np.int64)).shape == (0,)


def test_many_objects_in_parts_are_the_same_as_few(monkeypatch):
    server = filled(64)[2]
    objects = np.arange(1000)
    whole = server.estimate(objects)
    monkeypatch.setattr("dpaudit_local.mechanisms.mean_sketches._OBJECTS", 64)
    assert (server.estimate(objects) == whole).all()


@pytest.mark.parametrize(
    ("start", "before", "after"), [(2**16 - 2, "u2", "u4"), (2**32 - 2, "u4", "u8")]
)
def test_counts_grow_before_they_overflow(start, before, after):
    sketch, reports, small = filled(8, functions=2, n=40)
    ones, visits = np.full((2, 8), start, before), np.full(2, start, np.int64)
    server = CountMeanServer.of_counts(sketch, ones, visits)
    server.add(reports[:1])
    assert server.ones.dtype == before
    server.add(reports[1:])
    assert server.ones.dtype == after
    assert (server.ones == small.ones.astype(np.int64) + start).all()
    assert small.ones.dtype == "u2"


def test_what_is_refused():
    sketch, reports, server = filled(40)
    wrong = SketchReports(reports.function + 5, reports.bits)
    ones, visits = np.ones((5, 40), np.uint16), np.zeros(5, np.int64)
    for call, says in (
        (lambda: server.add(filled(64)[1]), "bits="),
        (lambda: server.add(wrong), "function="),
        (lambda: CountMeanServer.of_counts(sketch, ones, visits), "more set bits"),
        (lambda: CountMeanServer.of_counts(sketch, ones[:4], visits), "need"),
        *(
            (lambda c=c: server.standard_error(np.array(c)), "counts=")
            for c in ([-1.0], [math.nan], [[1.0]], [3001])
        ),
    ):
        with pytest.raises(UsageError, match=says):
            call()
    assert server.reports == 3000
    with pytest.raises(ValueError, match="read-only"):
        server.ones[0, 0] = 1


COUNTS = np.array([120, 0, 30, 5, 1, 44])


def errors(kind, server, trials, *, m, functions, epsilon):
    """Errors of the estimates (trials, u) and what the server states, one hash family per trial."""
    objects = np.repeat(np.arange(COUNTS.size), COUNTS)
    out = np.empty((trials, COUNTS.size))
    for i in range(trials):
        mechanism = kind(epsilon, m=m, functions=functions, seed=i)
        one = server(mechanism)
        one.add(mechanism.privatize(objects, stream=KeyedStream.from_seed(i).child("trial")))
        out[i] = one.estimate(np.arange(COUNTS.size)) - COUNTS
    return out, one.standard_error(COUNTS)


def error_p(out, stated):
    """p-values of mean 0 and of the stated variance, by the central limit theorem over trials."""
    z = out / stated
    n = len(z)
    mean = scipy.stats.norm.sf(np.abs(z.mean(axis=0)) * math.sqrt(n)).min()
    squares = (z**2).mean(axis=1)
    return min(mean, scipy.stats.norm.sf(abs(squares.mean() - 1) / squares.std() * math.sqrt(n)))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "server"), [(CountMeanSketch, CountMeanServer), (HadamardSketch, HadamardServer)]
)
@pytest.mark.parametrize(("m", "functions", "epsilon"), [(8, 2, 8.0), (8, 50, 8.0), (64, 50, 1.0)])
def test_errors_are_as_large_as_stated(kind, server, m, functions, epsilon):
    out, stated = errors(kind, server, 800, m=m, functions=functions, epsilon=epsilon)
    assert error_p(out, stated) > 1e-5
    assert error_p(out, stated * 1.25) < 1e-9
    if functions == 2:  # without the reports that collide together
        pairs = COUNTS * (COUNTS - 1)
        assert error_p(out, np.sqrt(stated**2 - (pairs.sum() - pairs) / functions / (m - 1))) < 1e-9


def test_rare_objects_may_be_left_out_of_a_standard_error():
    _, _, server = filled(64, functions=500)
    counts = np.bincount(np.arange(3000) % 7)
    some, every = server.standard_error(counts[:2]), server.standard_error(counts)
    assert np.allclose(some, every[:2], rtol=0.05)


def test_a_wrong_debiasing_is_caught(monkeypatch):
    whole = mean_sketches.MeanServer._total
    monkeypatch.setattr(mean_sketches.MeanServer, "_total", lambda *a: whole(*a) * 1.05)
    out, stated = errors(CountMeanSketch, CountMeanServer, 300, m=64, functions=50, epsilon=1.0)
    assert error_p(out, stated) < 1e-9
