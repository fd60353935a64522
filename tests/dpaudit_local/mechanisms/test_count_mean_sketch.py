"""The Count Mean (and Median) Sketch's device: its exact ε and law, its reports, Apple's bits."""

import itertools
import math
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
import scipy.stats
from support.laws import largest_ratio, logarithm

from dpaudit.errors import UsageError
from dpaudit.randomness import KeyedStream
from dpaudit_local.mechanisms.count_mean_sketch import CountMeanSketch, CountMedianSketch
from dpaudit_local.mechanisms.hashing import RandomHashes
from dpaudit_local.mechanisms.reports import SketchReports

FINE, BAD = 1e-4, 1e-9
UNIVERSE = np.arange(6)


def small(epsilon=1.5, m=8, functions=2):
    return CountMeanSketch(epsilon, m=m, functions=functions, seed=3)


def exact_law(sketch, q):
    """P(j, b | object) by definition, as fractions: {(j, b): [one per object]}, m = 8."""
    one = Fraction(1, sketch.functions)
    law = {}
    for j, b in itertools.product(range(sketch.functions), range(256)):
        law[j, b] = []
        for x in UNIVERSE:
            differ = (b ^ (1 << int(sketch.hashes.positions(np.array([x]), j)[0]))).bit_count()
            law[j, b].append(one * q**differ * (1 - q) ** (8 - differ))
    return law


def every_output(sketch):
    outputs = list(itertools.product(range(sketch.functions), range(256)))
    functions = np.array([j for j, _ in outputs], np.uint32)
    return SketchReports(functions, np.array([[b] for _, b in outputs], np.uint8))


@pytest.mark.parametrize("epsilon", [0.01, 1.5, 4.0, 8.0, 33.0])
def test_epsilon_is_the_largest_ratio_of_all_outputs(epsilon):
    sketch = small(epsilon)
    q = Fraction(sketch.flip_words, 2**64)
    law = exact_law(sketch, q)
    assert all(sum(p[x] for p in law.values()) == 1 for x in range(len(UNIVERSE)))
    largest = largest_ratio(zip(*law.values(), strict=True))
    assert largest == ((1 - q) / q) ** 2
    exact = logarithm(largest)
    assert Decimal(epsilon) - Decimal("2e-12") < exact <= Decimal(epsilon)
    assert math.isclose(sketch.epsilon, float(exact), rel_tol=1e-15)
    assert sketch.flip == pytest.approx(1 / (1 + math.exp(epsilon / 2)), rel=1e-11)
    if epsilon <= 8:
        assert sketch.epsilon == pytest.approx(epsilon, abs=1e-15)


def test_log_likelihood_is_the_laws_logarithm():
    sketch = small()
    law = exact_law(sketch, Fraction(sketch.flip_words, 2**64))
    law = np.array(list(law.values()), dtype=float)
    got = sketch.log_likelihood(every_output(sketch), UNIVERSE)
    assert got.shape == law.shape
    difference = np.log(law) - got
    assert np.ptp(difference, axis=1).max() < 1e-12


def law_p(sketch, *, epsilon, n=200_000, seed="law"):
    """p-value that ``sketch`` has the paper's law with ``epsilon`` for object 1 (512 outputs)."""
    law = exact_law(sketch, 1 / (1 + Fraction(math.exp(epsilon / 2))))
    reports = sketch.privatize(np.ones(n, np.int64), stream=KeyedStream.from_seed(seed))
    seen = np.bincount(reports.function.astype(int) * 256 + reports.bits[:, 0], minlength=len(law))
    expected = np.array([float(p[1]) for p in law.values()]) * n
    assert expected.min() > 5
    return scipy.stats.chisquare(seen, expected).pvalue


def test_what_is_sampled_has_the_law():
    assert law_p(small(), epsilon=1.5) > FINE
    assert law_p(small(), epsilon=1.5, seed="again") > FINE


def test_a_wrong_flip_or_place_is_caught(monkeypatch):
    assert law_p(small(3.0), epsilon=1.5) < BAD  # q = 1 / (1 + e^ε), the whole ε on each bit
    assert law_p(small(1.56), epsilon=1.5) < BAD
    monkeypatch.setattr(
        "dpaudit_local.mechanisms.count_mean_sketch._flip", lambda bits, positions: None
    )
    assert law_p(small(), epsilon=1.5) < BAD


def test_functions_are_uniform_and_bits_of_wide_sketches_have_the_law():
    sketch = CountMeanSketch(2.0, m=1000, functions=37, seed=1)
    n = 20_000
    reports = sketch.privatize(np.full(n, 5), stream=KeyedStream.from_seed("wide"))
    assert reports.bits.shape == (n, 125)
    assert scipy.stats.chisquare(np.bincount(reports.function, minlength=37)).pvalue > FINE
    bits = np.unpackbits(reports.bits, axis=1, bitorder="little")
    rows = np.arange(n)
    own = bits[rows, sketch.hashes.each(np.full(n, 5), reports.function)]
    assert scipy.stats.binomtest(int(own.sum()), n, 1 - sketch.flip).pvalue > FINE
    others = int(bits.sum()) - int(own.sum())
    assert scipy.stats.binomtest(others, n * 999, sketch.flip).pvalue > FINE
    spread = (bits.sum(axis=1) - own - 999 * sketch.flip).astype(float)
    assert abs(spread.var() / (999 * sketch.flip * (1 - sketch.flip)) - 1) < 6 * math.sqrt(2 / n)


def test_a_report_depends_on_the_stream_and_its_number_only(stream):
    sketch = CountMeanSketch(4.0, m=64, functions=1 << 20)
    objects = np.arange(8200) % 50  # more than one chunk
    whole = sketch.privatize(objects, stream=stream)
    part = sketch.privatize(objects[:100].astype(np.uint8), stream=stream)
    assert (whole[:100].bits == part.bits).all()
    assert (whole[:100].function == part.function).all()
    other = sketch.privatize(objects, stream=stream.child(1))
    assert (whole.function == other.function).mean() < 0.01
    words = whole.bits.view("<u8")[:, 0].tolist()
    assert len(set(zip(whole.function.tolist(), words, strict=True))) == len(objects)
    assert len(sketch.privatize(np.zeros(0, np.int64), stream=stream)) == 0


def test_what_it_refuses(stream):
    for epsilon in (0, -1.0, 64.1, math.nan, math.inf, "4", True, None):
        with pytest.raises(UsageError, match="epsilon="):
            CountMeanSketch(epsilon)
    for options in ({"m": 1}, {"m": 12}, {"m": 8, "hashes": RandomHashes(4, 16, stream=stream)}):
        with pytest.raises(UsageError, match=r"m=|size="):
            CountMeanSketch(4.0, **options)
    sketch = small()
    for objects in (np.array([-1]), np.array([0.5]), np.zeros((2, 2), int)):
        with pytest.raises(UsageError):
            sketch.privatize(objects, stream=stream)
    j, b = np.zeros(3, np.uint32), np.zeros((3, 1), np.uint8)
    for bad in ((j + 2, b), (j, b.repeat(2, 1)), (j[:2], b), (j, b * 1.0)):
        with pytest.raises(UsageError):
            sketch.log_likelihood(SketchReports(*bad), UNIVERSE)


# ---------------------------------------------------------------- Count Median Sketch


def median_law(position, parameter, m):
    """P(vector) of Figure 16 taken literally: m coins of bias 1/(e^p + 1), one bit flipped."""
    bias, law = 1 / (math.exp(parameter) + 1), {}
    for coins in itertools.product((0, 1), repeat=m):
        vector = tuple(coin ^ (i == position) for i, coin in enumerate(coins))
        law[vector] = math.prod(bias if coin else 1 - bias for coin in coins)
    return law


@pytest.mark.parametrize("parameter", [0.5, 1.0, 2.0])
def test_one_vector_has_twice_the_privacy_parameter(parameter):
    m = 8
    laws = [median_law(position, parameter, m) for position in range(m)]
    assert math.log(largest_ratio(laws)) == pytest.approx(2 * parameter, rel=1e-12)
    sketch = CountMedianSketch(parameter, m=m, functions=3)
    assert sketch.epsilon == pytest.approx(2 * parameter, rel=1e-12)
    assert sketch.flip == pytest.approx(1 / (1 + math.exp(parameter)), rel=1e-12)
    assert sketch.privacy_parameter == parameter
    # and log_likelihood is that law's, for every report
    vectors = np.array(list(itertools.product((0, 1), repeat=m)), np.uint8)
    packed = np.packbits(vectors, axis=1, bitorder="little")
    objects = np.arange(6)
    for function in range(3):
        reports = SketchReports(np.full(len(packed), function, np.uint32), packed)
        places = sketch.hashes.positions(objects, function)
        listed = np.log([[laws[place][tuple(v)] for place in places] for v in vectors.tolist()])
        ours = sketch.log_likelihood(reports, objects)
        assert np.allclose(ours - ours[:, :1], listed - listed[:, :1], atol=1e-12)


def test_apples_bias_is_the_one_that_was_observed():
    """Figure 20: 0.1192029220221175 at PrivacyParameter 2; that is ε = 4 per vector."""
    sketch = CountMedianSketch(2.0, m=8, functions=1)
    assert sketch.flip == pytest.approx(0.1192029220221175, rel=1e-15)
    assert sketch.epsilon == pytest.approx(4.0, rel=1e-15)


def test_hashed_positions_are_turned_over():
    """At a parameter where coins hardly ever come up, the one bit set is the hashed one."""
    sketch = CountMedianSketch(30.0, m=256, functions=5)
    objects = np.arange(600) % 3
    reports = sketch.privatize(objects, stream=KeyedStream.from_seed("sha"))
    bits = np.unpackbits(reports.bits, axis=1, bitorder="little")
    assert (bits.sum(axis=1) == 1).all()
    assert (bits.argmax(axis=1) == sketch.hashes.each(objects, reports.function)).all()
    assert set(reports.function.tolist()) == set(range(5))


def test_parameters_out_of_range_are_refused():
    for parameter in (0.0, math.nan, "2", 33.0):
        with pytest.raises(UsageError):
            CountMedianSketch(parameter)
