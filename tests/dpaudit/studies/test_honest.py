"""What honest noise itself reveals, against simulation and closed forms."""

import math

import numpy as np
import pytest
import scipy.stats
import torch

from dpaudit.studies.opponents import best_bin, best_of_two


def test_two_candidates():
    rng = np.random.default_rng(1)
    pairs = torch.from_numpy(rng.standard_normal((3, 2, 5)))
    got = best_of_two(pairs, sigma=1.5)
    for pair, wanted in zip(pairs.numpy(), got.tolist(), strict=True):
        truth = rng.integers(0, 2, 200_000)
        y = pair[truth] + 1.5 * rng.standard_normal((200_000, 5))
        near = [((y - q) ** 2).sum(1) for q in pair]
        assert ((near[1] < near[0]) == truth).mean() == pytest.approx(wanted, abs=0.004)


@pytest.mark.parametrize("sigma", [0.3, 2.0, 30.0])
def test_two_equal_bins_are_two_candidates(sigma):
    counts = torch.tensor([5.0, 5.0, 0.0])
    assert best_bin(counts, sigma=sigma) == pytest.approx(
        scipy.stats.norm.cdf(math.sqrt(0.5) / sigma), rel=1e-9
    )


@pytest.mark.parametrize(
    ("counts", "sigma"), [((50, 30, 15, 5), 1.0), ((3, 3, 3, 3, 3), 0.5), ((90, 9, 1), 3.0)]
)
def test_more_bins_by_simulation(counts, sigma):
    rng = np.random.default_rng(2)
    share = np.array(counts) / sum(counts)
    truth = rng.choice(len(share), 400_000, p=share)
    r = sigma * rng.standard_normal((400_000, len(share)))
    r[np.arange(400_000), truth] -= 1
    guess = (np.log(share) - r / sigma**2).argmax(1)
    got = best_bin(torch.tensor(counts, dtype=torch.float64), sigma=sigma)
    assert (guess == truth).mean() == pytest.approx(got, abs=0.003)
    assert got >= share.max() - 1e-9


@pytest.mark.slow
def test_many_bins_behind_much_noise_are_a_guess():
    counts = torch.full((5000,), 7.0)
    assert best_bin(counts, sigma=50.0) == pytest.approx(1 / 5000, rel=0.1)
    assert best_bin(counts, sigma=0.05) == pytest.approx(1.0, abs=1e-12)
