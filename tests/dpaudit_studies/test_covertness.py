"""The measures ``covertness`` and ``keyless``: what a form leaves, who reads it, who finds it."""

import math

import numpy as np
import pytest
import torch

from dpaudit.accounting.hardness import blur
from dpaudit.experiments.measure import Cell
from dpaudit.noise.key import PancakeKey
from dpaudit.noise.pancake import Pancake
from dpaudit.randomness import KeyedStream
from dpaudit_studies import covertness, keyless
from dpaudit_studies.covertness import Release, blurred_beta, released

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


@pytest.mark.parametrize(
    ("options", "beta", "rel"),
    [
        ({"tau": 0.01}, 0.01, 0.05),
        ({"step": 0.02}, 0.02 / math.sqrt(12), 0.05),
        ({"dtype": "float16"}, blur("float16"), 0.1),
        ({"dtype": "bfloat16"}, blur("bfloat16"), 0.1),
        # drawn in float32, correction factors are rounded too
        ({"dtype": "float32"}, blur("float32") * 3**0.5, 0.2),
        ({"dtype": "float32", "weights": 16.0}, 16 * blur("float32"), 0.1),
        # at a query of 8,000 float32 has steps of 2^-11
        ({"dtype": "float32", "query": 8000.0}, 2**-11 / math.sqrt(12) / SIGMA, 0.1),
        ({"tau": 0.05}, 0.05, 0.1),  # phases that wrap are read by their resonance
    ],
)
def test_a_form_leaves_the_beta_that_the_estimate_counts_with(options, beta, rel):
    assert left(**options) == pytest.approx(KEY.gamma * beta, rel=rel)


def test_no_form_leaves_all_and_much_smoothing_nothing():
    assert left() < 3e-8
    assert left(tau=0.5) > 0.8


def cell(**options) -> Cell:
    case = {"name": "release", "d": 12, "rows": 4000, **options}
    return Cell("covertness", {"grid": {"case": case}, "seed": "1", "trials": 400})


@pytest.mark.slow
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
    hidden = {**thin, "found": 0}
    assert "float32 from d = 12" in covertness.summary([hidden, {**hidden, "d": 24}])


def test_a_search_of_large_counts_has_their_blur():
    """83,333 records per bin: float32 has steps of 2^-7 there."""
    at = {"beta": 1e-8, "dtype": "float32", "records": 10**6, "keys": 1, "seconds": 0.0}
    zero, query = (covertness.measure(cell(searched=s, **at), None) for s in ("zero", "query"))
    assert zero["told_beta"] < 1e-6
    assert query["told_beta"] == pytest.approx(query["owner_beta"], rel=0.2)
    assert query["told_beta"] == pytest.approx(48**0.5 * 2**-7 / 12**0.5 / 3.73, rel=0.2)


def keyless_cell(**options):
    case = {"name": "lattice", "d": 12, "rows": 4000, **options}
    return Cell("keyless", {"grid": {"case": case}, "seed": "1", "trials": 2})


@pytest.mark.slow
def test_an_easy_specimen_is_found_and_a_hopeless_one_is_not():
    pytest.importorskip("fpylll")
    easy = keyless.measure(keyless_cell(beta=0.05, block=30, seconds=60), None)
    assert easy["found"]["value"] == 1
    assert easy["cosine"] > 0.99
    hopeless = keyless.measure(keyless_cell(beta=1.0, block=20, seconds=5), None)
    assert hopeless["found"]["value"] == 0
    assert easy["wrong"] == hopeless["wrong"] == 0
