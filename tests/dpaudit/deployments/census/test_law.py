"""The discrete Gaussian of a stated variance, and tails of Σx², against sums written out."""

from __future__ import annotations

import math

import numpy as np
import pytest

from dpaudit.deployments.census.law import IntegerGaussian, law_of_variance

K = np.arange(-400, 401)


def masses(sigma):
    p = np.exp(-(K**2) / (2 * sigma**2))
    return p / p.sum()


@pytest.mark.parametrize("sigma", [0.4, 1.0, 1.5, 7.0, 30.0])
def test_the_law_is_that_of_the_definition(sigma):
    law, p = IntegerGaussian(sigma), masses(sigma)
    assert law.variance == pytest.approx((p * K**2).sum(), rel=1e-9)
    assert law.collision == pytest.approx((p * p).sum(), rel=1e-9)
    for t in (0, 1, 3, 9):
        assert law.beyond(t) == pytest.approx(p[abs(K) >= t].sum(), rel=1e-9, abs=1e-15)
    edges = np.array([-5, -1, 0, 1, 2, 6])
    wanted = [part.sum() for part in np.split(p, np.searchsorted(K, edges))]
    assert law.between(edges) == pytest.approx(wanted, abs=1e-12)
    for m in (2, 5, 8):
        assert law.residues(m) == pytest.approx([p[K % m == r].sum() for r in range(m)])
    t = law.threshold(0.005)
    assert law.beyond(t) <= 0.005 < law.beyond(t - 1)


@pytest.mark.parametrize("sigma", [0.1, 0.4, 1.0, 4.9, 5.0, 300.0])
def test_a_variance_gives_its_law(sigma):
    found = law_of_variance(IntegerGaussian(sigma).variance)
    assert found.sigma == pytest.approx(sigma, rel=1e-6)


def exact_sum_of_squares(sigma, n):
    """P(Σx² = s) of n values for s = 0, 1, …, by powers of a Fourier transform."""
    reach = math.ceil(9 * sigma) + 1
    size = 1 << math.ceil(math.log2(n * sigma**2 * 9 + 20 * reach**2))
    one = np.zeros(size)
    for k, p in zip(K, masses(sigma), strict=True):
        if abs(k) <= reach:
            one[k * k] += p
    return np.fft.irfft(np.fft.rfft(one) ** n, size)


@pytest.mark.parametrize(
    ("sigma", "n", "off"), [(0.4, 100, 0.01), (1.5, 10, 0.2), (2.0, 100, 0.01)]
)
def test_tails_of_sums_of_squares_are_within_their_stated_error(sigma, n, off):
    p = exact_sum_of_squares(sigma, n)
    upto = np.cumsum(p)
    law = IntegerGaussian(sigma)
    mean, spread = n * law.variance, math.sqrt(n * (law.moment(4) - law.variance**2))
    seen = 0
    for z in np.linspace(-4, 5, 19):
        s = round(mean + z * spread)
        if s < 1:
            continue
        wanted = min(1.0, 2 * min(upto[s], 1 - upto[s - 1]))
        if wanted > 0.9:  # next to the mean
            assert law.squares_two_sided(s, n) >= 0.9 * wanted
            continue
        assert law.squares_two_sided(s, n) == pytest.approx(wanted, rel=off), (z, s)
        seen += 1
    assert seen > 10
    assert law.squares_two_sided(0, n) == pytest.approx(min(1, 2 * p[0]), rel=1e-6, abs=1e-12)
