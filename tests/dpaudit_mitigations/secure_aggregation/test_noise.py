"""Skellam draws against scipy's law, and shares that sum to σ for the fewest honest servers."""

import math

import numpy as np
import pytest
import scipy.stats

from dpaudit.accounting import gaussian_epsilon
from dpaudit.errors import UsageError
from dpaudit.randomness import KeyedStream
from dpaudit_mitigations.secure_aggregation.noise import (
    NoiseShare,
    finest_granularity,
    least_honest,
)
from dpaudit_mitigations.secure_aggregation.skellam import LARGEST_SKELLAM_SCALE, draw_skellam

N = 400_000


def p_value(draws, scale):
    """Chi-square against scipy's Skellam law, in cells of at least about 50 draws."""
    half = scale * scale / 2
    reach = int(4 * scale) + 4
    edges = np.unique(np.round(np.linspace(-reach, reach, 41)).astype(int))
    below = scipy.stats.skellam.cdf(edges, half, half)
    expected = np.diff(np.concatenate([[0.0], below, [1.0]])) * len(draws)
    seen = np.histogram(draws, np.concatenate([[-np.inf], edges + 0.5, [np.inf]]))[0]
    keep = expected > 50
    return scipy.stats.chisquare(
        np.append(seen[keep], seen[~keep].sum()), np.append(expected[keep], expected[~keep].sum())
    ).pvalue


# with five bits most draws are settled by the exact comparison
@pytest.mark.parametrize("bits", [64, 5])
@pytest.mark.parametrize("scale", [0.5, 1.7, 30.0])
def test_skellam_law(scale, bits):
    n = N if bits == 64 else 60_000
    draws = draw_skellam(
        n, scale=scale, stream=KeyedStream.from_seed("skellam").child(str(scale), bits), bits=bits
    )
    assert p_value(draws, scale) > 1e-3
    flawed = draws + math.ceil(2 * scale) * (np.arange(n) % 50 == 0)
    assert p_value(flawed, scale) < 1e-6  # one in fifty is too high


def test_skellam_at_the_scale_that_is_used():
    scale = 4096.5
    draws = draw_skellam(N, scale=scale, stream=KeyedStream.from_seed("skellam"))
    assert abs(draws.mean()) < 5 * scale / math.sqrt(N)
    assert abs(draws.var() / scale**2 - 1) < 5 * math.sqrt(2 / N)
    # N·(rounding) is far below what the test sees
    assert scipy.stats.kstest(draws / scale, "norm").pvalue > 1e-3
    assert scipy.stats.kstest(draws / scale * 1.02, "norm").pvalue < 1e-3
    assert len(set((draws & 1).tolist())) == 2


def test_skellam_of_one_stream_is_reproducible_and_bad_scales_are_refused():
    one, two = (draw_skellam(100, scale=3.0, stream=KeyedStream.from_seed(1)) for _ in range(2))
    assert np.array_equal(one, two)
    for scale in (0.0, -1.0, math.nan, LARGEST_SKELLAM_SCALE * 1.01):
        with pytest.raises(UsageError, match="scale="):
            draw_skellam(1, scale=scale, stream=KeyedStream.from_seed(1))


@pytest.mark.parametrize("law", ["discrete-gaussian", "skellam"])
def test_the_least_honest_servers_add_the_noise_that_was_promised(law):
    """Of seven servers two leave, one colludes, one is backdoored: three shares make σ."""
    sigma, n = 5.0, 200_000
    honest = least_honest(7, dropouts=2, colluding=1, backdoored=1)
    assert honest == 3
    g = finest_granularity(law, sigma / math.sqrt(honest))
    for count, fits in ((honest, True), (7, False)):
        share = NoiseShare.calibrated(law, sigma=sigma, honest=count, granularity=g)
        stream = KeyedStream.from_seed("shares").child(law, count)
        total = sum(share.draw(n, stream=stream.child(i)) for i in range(3)) * g
        assert bool(abs(total.std() / sigma - 1) < 5 / math.sqrt(2 * n)) is fits


@pytest.mark.parametrize("law", ["discrete-gaussian", "skellam"])
def test_epsilon_of_shares_counts_the_rounding(law):
    """A coarse grid moves neighbours g√d further apart: two shares of 50 steps, Δ = 20 steps."""
    share = NoiseShare(law=law, sigma=25.0, granularity=0.5)
    high = share.epsilon(1e-6, honest=2, sensitivity=10.0, dim=400).high
    ideal = gaussian_epsilon(1e-6, sigma=25 * math.sqrt(2), sensitivity=10.0 + 0.5 * 20)
    assert ideal <= high < 1.3 * ideal


def test_shares_that_cannot_be():
    for options, says in (
        ({"law": "laplace"}, "noise=laplace"),
        ({"sigma": 0.0}, "sigma=0"),
        ({"sigma": math.inf}, "sigma=inf"),
        ({"granularity": 4.0}, "granularity=4"),
        ({"law": "skellam", "granularity": 2.0**-20}, "granularity=9"),
    ):
        with pytest.raises(UsageError, match=says):
            NoiseShare(
                **{"law": "discrete-gaussian", "sigma": 1.0, "granularity": 2.0**-10, **options}
            )
    for options, says in (
        ({"dropouts": 1, "colluding": 1, "backdoored": 1}, "no honest"),
        ({"dropouts": -1, "colluding": 0}, "dropouts=-1"),
        ({"dropouts": 0, "colluding": 0.5}, "colluding"),
    ):
        with pytest.raises(UsageError, match=says):
            least_honest(3, **options)
