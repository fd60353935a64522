"""Values and releases at the edges of float64, and mechanisms that refuse them."""

from __future__ import annotations

import importlib

import numpy as np
import pytest

from dpaudit.errors import SamplerOutputError, UsageError
from dpaudit.samplers.adapters import opacus
from dpaudit.samplers.check import numbers

ODD = [-0.0, 5e-324, -2.2250738585072014e-308, 2.0**53, -(2.0**53), 1e300]


def release(text, value, n=4):
    """A library's releases, in this process, as the worker would take them."""
    name, _, target = text.partition(":")
    library = importlib.import_module(f"dpaudit.samplers.adapters.{name.replace('-', '_')}").LIBRARY
    module = (
        pytest.importorskip(library.module.partition(".")[0], exc_type=ImportError)
        and library.module
    )
    mechanism, options = library.find(target)
    made = mechanism.make(importlib.import_module(module), **options)
    return numbers(made(np.array(value, dtype=np.float64), n), "it returned", "")


def test_odd_values_arrive_bit_by_bit(tell):
    assert tell("return np.tile(value, (n, 1))", ODD).tobytes() == np.array(ODD).tobytes() * 4


@pytest.mark.parametrize(
    "text", ["numpy:laplace", "scipy:norm", "stdlib:gauss", "python-dp:laplace:epsilon=1"]
)
def test_libraries_take_odd_values(text):
    released = release(text, ODD)
    assert released.shape == (4, len(ODD))
    assert (np.abs(released[:, :3]) < 50).all()
    assert (released[:, -1] == 1e300).all()


@pytest.mark.parametrize(
    ("given", "match"),
    [
        (
            [2**53 + 1] * 4,
            "returned 9007199254740993, which float64 would round: whole numbers are accepted up",
        ),
        ([-(2**53) - 1, 0, 0, 0], "returned -9007199254740993, which"),
        ([2**70] * 4, "returned 1180591620717411303424, which"),
        (np.full(4, 2**64 - 1, np.uint64), "returned 18446744073709551615, which"),
        (np.full(4, np.longdouble(1) / 3), r"returned 0\.333.*, which float64 would round"),
    ],
)
def test_releases_that_float64_would_round_are_refused(given, match):
    with pytest.raises(SamplerOutputError, match=match):
        numbers(given, "it returned", "")


def test_they_are_refused_by_samplers_and_by_mechanisms(ask, tell):
    for answer in (lambda body: ask(body, 4, 1), tell):
        with pytest.raises(
            SamplerOutputError, match="returned 9007199254740993, which float64 would round"
        ):
            answer("return [2**53 + 1] * n")


@pytest.mark.parametrize("given", [[2**53] * 4, [-(2**53), 0] * 2, np.full(4, 7, np.int8)])
def test_whole_numbers_that_fit_are_taken(given):
    np.testing.assert_array_equal(numbers(given, "it returned", ""), given)


def test_truth_values_times_one_are_taken(tell):
    assert tell("return np.array([True] * n) * 1").shape == (4, 1)


def test_counts_near_the_end_of_exact_numbers_are_not_silently_rounded():
    """A geometric release of 2^53 is above it with probability 0.27: one of 200 is (1 − 1e-27)."""
    with pytest.raises(SamplerOutputError, match="which float64 would round"):
        release("diffprivlib:Geometric:epsilon=1", [2.0**53], 200)
    released = release("diffprivlib:Geometric:epsilon=1", [2.0**53 - 1000], 200)
    assert len(np.unique(released)) > 4


def test_a_value_beyond_a_librarys_integers_is_its_refusal_in_its_words():
    with pytest.raises(Exception, match=r"i64|int|range|large"):
        release("opendp:discrete-laplace", [1e300])


def test_a_mechanism_that_clamps(tell):
    released = tell(
        "return np.clip(value + np.random.default_rng().laplace(0, 9, n), 0, 1)", [0.5], 400
    )
    assert {0.0, 1.0} < set(released.ravel().tolist())


@pytest.mark.parametrize(
    ("options", "value", "match"),
    [
        ("max_grad_norm=1e-5", 1.0, "raise it and lower noise_multiplier"),
        ("max_grad_norm=0.01", 1.2345678, "do not sum to it exactly in float32"),
        ("noise_multiplier=1", 1e300, "too large for the float32"),
    ],
)
def test_a_step_that_cannot_add_up_to_the_value_is_refused(options, value, match):
    module = pytest.importorskip("opacus.optimizers.optimizer", exc_type=ImportError)
    step, given = opacus.LIBRARY.find(f"step:{options}")
    with pytest.raises(UsageError, match=match):
        step.make(module, **given)(np.array([value]), 1)


def test_a_step_from_many_clipped_gradients():
    """Noise 1e-8 is lost in a float32 of 1: the release is the sum of 128 unclipped gradients."""
    module = pytest.importorskip("opacus.optimizers.optimizer", exc_type=ImportError)
    step, given = opacus.LIBRARY.find("step:max_grad_norm=0.01,noise_multiplier=1e-7")
    np.testing.assert_array_equal(
        step.make(module, **given)(np.array([1.0, -0.5]), 3), [[1, -0.5]] * 3
    )
