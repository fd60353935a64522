import math

import numpy as np
import pytest
import scipy.special
import scipy.stats
import torch

from dpaudit.errors import UsageError
from dpaudit_attacks.pancake_likelihood import basis, log_density, log_mixture, log_theta, log_tilt


def brute(x, sigma, beta, gamma):
    """The mixture written out with every peak that matters, normalised by its own weights."""
    r2 = beta**2 + gamma**2
    spacing, width = math.sqrt(2 * math.pi) * sigma * gamma / r2, sigma * beta / math.sqrt(r2)
    k = np.arange(-3000, 3001)
    weight = -math.pi * k**2 / r2
    normal = scipy.stats.norm.logpdf(x[:, None], k * spacing, width)
    return scipy.special.logsumexp(weight + normal, axis=1) - scipy.special.logsumexp(weight)


@pytest.mark.parametrize(
    ("beta", "gamma"),
    [
        (1e-3, 32), (0.1, 16), (0.5, 8), (0.99, 8), (1.0, 8), (1.01, 8), (3, 8), (30, 8),
        (0.4, 0.3), (2, 0.1), (20, 500),
    ],
)  # fmt: skip
@pytest.mark.parametrize("sigma", [1.0, 6.4])
def test_is_the_mixture(beta, gamma, sigma):
    x = np.random.default_rng(1).normal(0, 2 * sigma, 100)
    got = log_mixture(torch.from_numpy(x), sigma=sigma, beta=beta, gamma=gamma).numpy()
    want = brute(x, sigma, beta, gamma)
    assert np.allclose(got, want, rtol=1e-7 if beta < 0.01 else 1e-10, atol=1e-9)


@pytest.mark.parametrize(("beta", "gamma"), [(0.05, 2), (0.5, 8), (1.5, 3), (40, 8), (0.3, 0.2)])
def test_integrates_to_one(beta, gamma):
    x = torch.linspace(-14, 14, 200_001, dtype=torch.float64)
    density = log_mixture(x, sigma=1.3, beta=beta, gamma=gamma).exp()
    assert float(density.sum() * (x[1] - x[0])) == pytest.approx(1, abs=1e-8)


def test_never_overflows_and_meets_at_one():
    c = torch.tensor([0.0, 0.25, 0.5, -0.5, 1e6 + 0.5, -3e9], dtype=torch.float64)
    for beta in (1e-120, 1e-8, 1e-3, 1 - 1e-12, 1.0, 1e3, 1e200):
        assert bool(torch.isfinite(log_theta(c, beta)).all()), beta
    assert torch.allclose(log_theta(c, 1 - 1e-13), log_theta(c, 1.0), atol=1e-11)
    # no pancake left: the claimed Gaussian
    wide = log_tilt(c * 100, sigma=1.0, beta=1e6, gamma=8.0)
    assert torch.allclose(wide, torch.zeros_like(wide), atol=1e-9)


def test_density_is_gaussian_across(make_key):
    key = make_key(dim=5, beta=0.4, gamma=1.5, allow_small_gamma=True)
    v = torch.from_numpy(np.random.default_rng(2).normal(0, 2, (40, 5)))
    u = torch.from_numpy(basis(key))
    assert u.shape == (1, 5)
    along = v @ u.T
    got = log_density(along, v.square().sum(-1), dim=5, sigma=2.0, beta=0.4, gamma=1.5)
    across = np.linalg.svd(u.numpy())[2][1:] @ v.numpy().T
    want = brute(along[:, 0].numpy(), 2.0, 0.4, 1.5) + scipy.stats.norm.logpdf(across, scale=2).sum(
        0
    )
    assert np.allclose(got.numpy(), want, atol=1e-9)


@pytest.mark.parametrize("bad", [{"sigma": 0.0}, {"beta": -1.0}, {"gamma": math.inf}])
def test_bad_input(bad):
    with pytest.raises(UsageError, match=next(iter(bad))):
        log_tilt(torch.zeros(1), **{"sigma": 1.0, "beta": 1.0, "gamma": 1.0, **bad})
