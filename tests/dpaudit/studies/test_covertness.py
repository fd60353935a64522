"""The measure ``covertness``: what a form leaves of the phase, who reads it and who finds it."""

import math

import numpy as np
import pytest
import torch

from dpaudit.experiments.cell import Cell
from dpaudit.experiments.spec_file import load_spec
from dpaudit.hardness import blur
from dpaudit.noise.key import PancakeKey
from dpaudit.noise.pancake import Pancake
from dpaudit.randomness import KeyedStream
from dpaudit.studies import covertness
from dpaudit.studies.covertness import Release, blurred_beta, form_of, released

KEY = PancakeKey.new(dim=16, beta=1e-8, secret=bytes(32))
SIGMA = 2.0


def seen(query: float = 0.0, **options) -> np.ndarray:
    case = Release(name="release", beta=KEY.beta, **options)
    at = torch.full((4000, 16), query, dtype=torch.float64)
    stream = KeyedStream.from_seed("seen")
    y = released(at, Pancake(key=KEY, sigma=SIGMA), case, sigma=SIGMA, stream=stream)
    return (y - at).numpy()


def left(**options) -> float:
    return blurred_beta(seen(**options), KEY, sigma=SIGMA)


def test_a_form_leaves_the_beta_that_the_estimate_counts_with():
    assert left() < 3e-8
    assert left(tau=0.01) == pytest.approx(KEY.gamma * 0.01, rel=0.05)
    assert left(step=0.02) == pytest.approx(KEY.gamma * 0.02 / math.sqrt(12), rel=0.05)
    for dtype in ("float16", "bfloat16"):
        assert left(dtype=dtype) == pytest.approx(KEY.gamma * blur(dtype), rel=0.1)
    # drawn in float32, correction factors are rounded too
    assert left(dtype="float32") == pytest.approx(KEY.gamma * blur("float32") * 3**0.5, rel=0.2)
    assert left(dtype="float32", weights=16.0) == pytest.approx(
        KEY.gamma * 16 * blur("float32"), rel=0.1
    )


def test_a_large_query_costs_bits_that_a_query_of_zero_keeps():
    """At 8,000 float32 has steps of 2^-11."""
    assert left(dtype="float32", query=8000.0) == pytest.approx(
        KEY.gamma * 2**-11 / math.sqrt(12) / SIGMA, rel=0.1
    )


def test_phases_that_wrap_are_read_by_their_resonance():
    assert left(tau=0.05) == pytest.approx(8 * 0.05, rel=0.1)
    assert left(tau=0.5) > 0.8


def test_values_are_on_the_lattice_and_in_the_type():
    assert np.array_equal(seen(step=0.25), np.rint(seen(step=0.25) / 0.5) * 0.5)
    y = torch.from_numpy(seen(dtype="bfloat16"))
    assert torch.equal(y, y.to(torch.bfloat16).double())


def cell(**options) -> Cell:
    case = {"name": "release", "d": 12, "rows": 4000, **options}
    return Cell("covertness", {"grid": {"case": case}, "seed": "1", "trials": 400})


def test_a_thin_pancake_is_read_and_found_and_a_smoothed_one_neither():
    pytest.importorskip("fpylll")
    thin = covertness.measure(cell(beta=0.02, dtype="float32", block=20, keys=1), None)
    assert thin["reads"]
    assert (thin["found"], thin["searched"], thin["wrong"]) == (1, 1, 0)
    assert thin["cosine"] > 0.99
    assert thin["told_beta"] == pytest.approx(0.02, rel=0.1)
    smooth = covertness.measure(cell(beta=0.02, tau=0.5, block=2, keys=1, seconds=5), None)
    assert not smooth["reads"]
    assert smooth["success"]["low"] < smooth["honest"] < 0.6
    assert (smooth["found"], smooth["wrong"]) == (0, 0)
    assert "nowhere" in covertness.summary([thin, smooth])
    hidden = {**thin, "found": 0}
    assert "float32 from d = 12" in covertness.summary([hidden, {**hidden, "d": 24}])


def test_a_cell_without_keys_asks_the_owner_alone():
    row = covertness.measure(cell(beta=0.02), None)
    assert row["found"] is None
    assert row["seconds"] is None
    assert row["expected_beta"] == pytest.approx(0.02)


def test_a_search_of_large_counts_has_their_blur():
    """83,333 records per bin: float32 has steps of 2^-7 there."""
    at = {"beta": 1e-8, "dtype": "float32", "records": 10**6, "keys": 1, "seconds": 0.0}
    zero, query = (covertness.measure(cell(searched=s, **at), None) for s in ("zero", "query"))
    assert zero["told_beta"] < 1e-6
    assert query["told_beta"] == pytest.approx(query["owner_beta"], rel=0.2)
    assert query["told_beta"] == pytest.approx(48**0.5 * 2**-7 / 12**0.5 / 3.73, rel=0.2)


def test_the_spec_spans_types_lattices_smoothing_and_training():
    cases = [c.settings["grid"]["case"] for c in load_spec("keyless-precision").cells()]
    forms = " | ".join(form_of(Release(**case)) for case in cases)
    for word in ("float64", "float32", "float16", "bfloat16", "lattice", "smoothed", "weights"):
        assert word in forms
