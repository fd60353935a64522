"""ε of DP-SGD towards someone who knows coins of the batches."""

import math

import numpy as np
import pytest
import scipy.stats

from dpaudit.accounting.dpsgd import DpSgd
from dpaudit.accounting.known_batches import known_batch_epsilon, worst_known_batch_epsilon
from dpaudit.accounting.mechanisms import gaussian_delta, gaussian_epsilon
from dpaudit.errors import UsageError

DELTA = 1e-5


def test_a_known_batch_is_the_gaussian_mechanism_that_often():
    pytest.importorskip("dp_accounting")
    run = DpSgd(1.1, 0.25, 12)
    found = known_batch_epsilon(run, DELTA, known=0.25)
    steps = np.arange(1, 13)
    deltas = [gaussian_delta(found, sigma=1.1 / math.sqrt(k)) for k in steps]
    assert scipy.stats.binom.pmf(steps, 12, 0.25) @ deltas == pytest.approx(DELTA, rel=2e-3)
    worst = worst_known_batch_epsilon(run, DELTA, known=0.25)
    assert worst == pytest.approx(gaussian_epsilon(DELTA, sigma=1.1 / math.sqrt(12)))
    assert run.epsilon(DELTA) < found < worst


def test_one_step_against_a_mixture_by_hand():
    """Towards an attacker who knows the coin, δ(ε) of one step is rate·δ of a Gaussian."""
    found = known_batch_epsilon(DpSgd(2.0, 0.01, 1), DELTA, known=0.01)
    assert found == pytest.approx(gaussian_epsilon(DELTA / 0.01, sigma=2.0), rel=2e-3)


def test_what_stays_hidden_still_amplifies():
    pytest.importorskip("dp_accounting")
    run = DpSgd(1.1, 0.0625, 20)
    known = [known_batch_epsilon(run, DELTA, known=k) for k in (0.0625, 0.25, 0.5, 1.0)]
    assert known == sorted(known, reverse=True)
    assert known[-1] == run.epsilon(DELTA)
    assert worst_known_batch_epsilon(run, DELTA, known=0.25) == DpSgd(1.1, 0.25, 20).epsilon(DELTA)
    assert worst_known_batch_epsilon(run, DELTA, known=1.0) == run.epsilon(DELTA)
    with pytest.raises(UsageError, match=r"known=0\.01"):
        known_batch_epsilon(run, DELTA, known=0.01)
