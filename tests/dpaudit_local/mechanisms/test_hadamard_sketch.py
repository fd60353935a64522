"""The Hadamard Count Mean Sketch: ε and law over all outputs, the transform, the server's sums."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
import scipy.linalg
import scipy.stats
from support.laws import largest_ratio

from dpaudit.errors import UsageError
from dpaudit.randomness import KeyedStream
from dpaudit_local.mechanisms.hadamard_sketch import HadamardServer, HadamardSketch, _transform
from dpaudit_local.mechanisms.reports import HadamardReports

FINE, BAD = 1e-4, 1e-9
UNIVERSE = np.arange(6)


def small(epsilon=1.5):
    return HadamardSketch(epsilon, m=8, functions=2, seed=3)


def exact_law(sketch, q):
    """P(j, l, s | object) from the definition, as fractions, (32 outputs, objects)."""
    matrix = scipy.linalg.hadamard(8)
    law = []
    for j, row, sign in itertools.product(range(2), range(8), (-1, 1)):
        truth = matrix[row, sketch.hashes.positions(UNIVERSE, j)]
        law.append([Fraction(1, 16) * (1 - q if t == sign else q) for t in truth])
    return law


def every_output():
    j, row, sign = zip(*itertools.product(range(2), range(8), (-1, 1)), strict=True)
    return HadamardReports(
        np.array(j, np.uint32), np.array(row, np.uint32), np.array(sign, np.int8)
    )


@pytest.mark.parametrize("epsilon", [0.01, 1.5, 4.0, 8.0, 20.0])
def test_epsilon_is_the_largest_ratio_of_all_outputs(epsilon):
    sketch = small(epsilon)
    q = Fraction(sketch.flip_words, 2**64)
    law = exact_law(sketch, q)
    assert all(sum(column) == 1 for column in zip(*law, strict=True))
    largest = largest_ratio(zip(*law, strict=True))
    assert largest == (1 - q) / q
    assert sketch.epsilon == pytest.approx(math.log(largest), rel=1e-15)
    assert epsilon * (1 - 1e-10) < sketch.epsilon <= epsilon
    assert sketch.flip == pytest.approx(1 / (1 + math.exp(epsilon)), rel=1e-9)
    got = sketch.log_likelihood(every_output(), UNIVERSE)
    assert np.ptp(np.log(np.array(law, dtype=float)) - got, axis=1).max() < 1e-9


def law_p(sketch, *, epsilon, n=200_000):
    reports = sketch.privatize(np.ones(n, np.int64), stream=KeyedStream.from_seed("law"))
    number = (reports.function.astype(int) * 8 + reports.coordinate) * 2 + (reports.sign > 0)
    law = exact_law(sketch, 1 / (1 + Fraction(math.exp(epsilon))))
    expected = n * np.array([float(p[1]) for p in law])
    return scipy.stats.chisquare(np.bincount(number, minlength=32), expected).pvalue


def test_what_is_sampled_has_the_law(monkeypatch):
    assert law_p(small(), epsilon=1.5) > FINE
    # q = 1 / (1 + e^(ε/2)), as if it were a bit of the other sketch
    assert law_p(small(0.75), epsilon=1.5) < BAD
    assert law_p(small(1.56), epsilon=1.5) < BAD
    monkeypatch.setattr(
        "dpaudit_local.mechanisms.hadamard_sketch._sign",
        lambda signs, *_: np.copyto(signs, 1 - 2 * signs),
    )
    assert law_p(small(), epsilon=1.5) < BAD


def test_signs_are_the_matrix_of_a_wide_sketch(stream):
    sketch = HadamardSketch(32.0, m=512, functions=1 << 20)  # lies once in 1e14
    objects = np.arange(3000)
    reports = sketch.privatize(objects, stream=stream)
    positions = sketch.hashes.each(objects, reports.function)
    assert (reports.sign == scipy.linalg.hadamard(512)[reports.coordinate, positions]).all()
    assert scipy.stats.chisquare(np.bincount(reports.coordinate, minlength=512)).pvalue > FINE


def test_a_report_depends_on_the_stream_and_its_number_only(stream):
    sketch = HadamardSketch(2.0, m=512, functions=1 << 20)
    whole, part = (sketch.privatize(np.arange(n), stream=stream) for n in (9000, 10))
    assert (part.sign == whole[:10].sign).all()
    assert (part.coordinate == whole[:10].coordinate).all()


@pytest.mark.parametrize("m", [1, 2, 8, 1024])
def test_the_transform_is_the_matrix(m):
    values = np.random.default_rng(m).integers(-1000, 1000, m)
    expected = scipy.linalg.hadamard(m) @ values if m > 1 else values.copy()
    _transform(values)
    assert (values == expected).all()


def test_estimates_are_apples_word_by_word():
    """The paper's float algorithm: add up k·c·sign, transform, m/(m−1)·(mean over rows − n/m)."""
    m, k, epsilon = 16, 5, 2.0
    sketch = HadamardSketch(epsilon, m=m, functions=k)
    reports = sketch.privatize(np.arange(3000) % 7, stream=KeyedStream.from_seed(1))
    c, n, objects = (math.exp(epsilon) + 1) / (math.exp(epsilon) - 1), 3000, np.arange(20)
    matrix = np.zeros((k, m))
    np.add.at(matrix, (reports.function, reports.coordinate), k * c * reports.sign)
    matrix = matrix @ scipy.linalg.hadamard(m).T
    mean = np.mean([matrix[j, sketch.hashes.positions(objects, j)] for j in range(k)], axis=0)
    server = HadamardServer(sketch)
    server.add(reports)
    expected = m / (m - 1) * (mean - n / m)
    assert np.allclose(server.estimate(objects), expected, rtol=1e-10, atol=1e-7)


def test_sums_grow_before_they_overflow():
    sketch = HadamardSketch(1.0, m=2, functions=1)
    many, zeros = 40_000, np.zeros(40_000, np.uint32)
    reports = HadamardReports(zeros, zeros, np.full(many, -1, np.int8))
    server = HadamardServer(sketch)
    server.add(reports[:32767])
    assert server.sums.dtype == "i2"
    server.add(reports[32767:])
    assert server.sums.tolist() == [[-many, 0]]
    assert server.visits.tolist() == [many]


def test_what_it_refuses():
    for call, says in (
        *((lambda m=m: HadamardSketch(4.0, m=m), "power of two") for m in (3, 24, 1000)),
        *((lambda e=e: HadamardSketch(e), "epsilon=") for e in (0, math.nan, 33.0)),
    ):
        with pytest.raises(UsageError, match=says):
            call()
    server, j, one = HadamardServer(small()), np.zeros(3, np.uint32), np.ones(3, np.int8)
    for bad in (
        (j + 2, j, one),
        (j, j + 8, one),
        (j, j, one * 0),
        (j[:2], j, one),
        (j, j, one * 1.0),
    ):
        with pytest.raises(UsageError):
            server.add(HadamardReports(*bad))
    assert server.reports == 0
