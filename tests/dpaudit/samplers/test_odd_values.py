"""Values and releases at the edges of float64, and mechanisms that refuse them."""

from __future__ import annotations

import numpy as np
import pytest

from dpaudit.errors import SamplerCrashError, SamplerOutputError, UsageError
from dpaudit.samplers import open_sampler
from dpaudit.samplers.libraries import opacus
from dpaudit.samplers.mechanism import open_mechanism

ODD = [-0.0, 5e-324, -2.2250738585072014e-308, 2.0**53, -(2.0**53), 1e300]


def release(text, value, n=4):
    with open_mechanism(text, seed="1") as mechanism:
        return mechanism.release(np.array(value, dtype=np.float64), n, timeout=60)


def test_odd_values_arrive_bit_by_bit(module):
    module("def f(value, n): return np.tile(value, (n, 1))")
    assert release("python:foreign:f", ODD).tobytes() == np.array(ODD).tobytes() * 4


@pytest.mark.parametrize("text", ["numpy:laplace", "scipy:norm", "stdlib:gauss", "python-dp:laplace:epsilon=1"])
def test_libraries_take_odd_values(text):
    released = release(text, ODD)
    assert released.shape == (4, len(ODD))
    assert (np.abs(released[:, :3]) < 50).all()
    assert (released[:, -1] == 1e300).all()


@pytest.mark.parametrize(
    ("given", "match"),
    [
        ("[2**53 + 1] * n", "returned 9007199254740993, which float64 would round: whole numbers are taken up to 2"),
        ("[-2**53 - 1] + [0] * (n - 1)", "returned -9007199254740993, which"),
        ("[2**70] * n", "returned 1180591620717411303424, which"),
        ("np.full(n, 2**64 - 1, np.uint64)", "returned 18446744073709551615, which"),
        ("np.full(n, np.longdouble(1) / 3)", r"returned 0\.333.*, which float64 would round"),
    ],
)
def test_releases_that_float64_would_round_are_refused(given, match, module):
    module(f"def f(value, n): return {given}\ndef g(n, d): return f(0.0, n)")
    with pytest.raises(SamplerOutputError, match=match):
        release("python:foreign:f", [1.0])
    with open_sampler("python:foreign:g", seed="1") as sampler, pytest.raises(SamplerOutputError, match=match):
        sampler.draw(4, 1, timeout=60)


@pytest.mark.parametrize(
    "given", ["[2**53] * n", "[-2**53, 0] * (n // 2)", "np.full(n, 7, np.int8)", "[True] * n + []"]
)
def test_whole_numbers_that_fit_are_taken(given, module):
    module(f"def f(value, n): return np.array({given}) * 1")
    assert release("python:foreign:f", [1.0]).shape == (4, 1)


def test_counts_near_the_end_of_exact_numbers_are_not_silently_rounded():
    """A geometric release of 2^53 is above it with probability 0.27, so one of 200 is, but for one in 10^27."""
    pytest.importorskip("diffprivlib", exc_type=ImportError)
    with pytest.raises(SamplerOutputError, match="which float64 would round"):
        release("diffprivlib:Geometric:epsilon=1", [2.0**53], 200)
    released = release("diffprivlib:Geometric:epsilon=1", [2.0**53 - 1000], 200)
    assert len(np.unique(released)) > 4


def test_a_value_beyond_a_librarys_integers_is_its_refusal_in_its_words():
    pytest.importorskip("opendp")
    with pytest.raises(SamplerCrashError, match=r"opendp:discrete-laplace raised \w+: .*(i64|int|range|large)"):
        release("opendp:discrete-laplace", [1e300])


def test_a_mechanism_that_clamps(module):
    module("def f(value, n): return np.clip(value + np.random.default_rng().laplace(0, 9, n), 0, 1)")
    released = release("python:foreign:f", [0.5], 400)
    assert {0.0, 1.0} < set(released.ravel().tolist())


@pytest.mark.parametrize(
    ("options", "value", "match"),
    [
        ("max_grad_norm=1e-5", 1.0, "raise max_grad_norm and lower noise_multiplier"),
        ("max_grad_norm=0.01", 1.2345678, "do not add up to it exactly in float32"),
        ("noise_multiplier=1", 1e300, "too large for the float32"),
    ],
)
def test_a_step_that_cannot_add_up_to_the_value_is_refused(options, value, match):
    module = pytest.importorskip("opacus.optimizers.optimizer", exc_type=ImportError)
    step, given = opacus.LIBRARY.find(f"step:{options}")
    with pytest.raises(UsageError, match=match):
        step.make(module, **given)(np.array([value]), 1)


def test_a_step_from_many_clipped_gradients():
    """Noise 1e-8 is lost in a float32 of 1: the release is the sum of 128 gradients, none of them clipped."""
    module = pytest.importorskip("opacus.optimizers.optimizer", exc_type=ImportError)
    step, given = opacus.LIBRARY.find("step:max_grad_norm=0.01,noise_multiplier=1e-7")
    np.testing.assert_array_equal(step.make(module, **given)(np.array([1.0, -0.5]), 3), [[1, -0.5]] * 3)
