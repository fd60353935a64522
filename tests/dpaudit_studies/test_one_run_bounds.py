"""The methods that one run is compared with: their authors' numbers, and a direct simulation."""

import numpy as np
import pytest
import scipy

from dpaudit.audit.mechanism.one_run import Guesses
from dpaudit_studies.evidence import one_run_bounds as study


@pytest.mark.parametrize(
    ("m", "r", "wrong", "published"),
    [(1_000, 250, 36, 3.6327), (10_000, 10_000, 3_085, 4.1592), (1_000, 500, 20, 8.9216)],
)
def test_the_gaussian_null_gives_the_published_bounds(m, r, wrong, published):
    """compare/RESULTS.txt of zihangxiang/tight-privacy-audit-in-one-run, commit 6359b19."""
    found = study.as_gaussian(m, Guesses(r, 0, r - wrong))
    assert found == pytest.approx(published, abs=2e-3)


def test_the_independent_tail_is_that_of_simulated_audits():
    rng, mu, m, r = np.random.default_rng(7), 1.0, 60, 20
    member = rng.random((20_000, m)) < 0.5
    distance = rng.standard_normal((20_000, m)) + mu * member - mu / 2
    guessed = np.argsort(-np.abs(distance), axis=1)[:, :r]
    right = np.take_along_axis((distance > 0) == member, guessed, axis=1).sum(axis=1)
    for v in (16, 18):
        share = float((right >= v).mean())
        tail = study.independent_tail(m, Guesses(r, 0, v), study.gaussian_errors(mu))
        assert share == pytest.approx(tail, abs=4 * (tail / 20_000) ** 0.5)


def test_responses_are_as_private_as_they_say():
    scores, member, _ = study.responses(1.0, 0.02, 200_000, 0)
    bare = np.abs(scores) > 2
    assert ((scores > 0) == member)[bare].all()
    assert bare.mean() == pytest.approx(0.02, abs=4 * (0.02 / 200_000) ** 0.5)
    right = float(((scores > 0) == member)[~bare].mean())
    assert right == pytest.approx(scipy.special.expit(1.0), abs=4 * 0.45 / 200_000**0.5)
