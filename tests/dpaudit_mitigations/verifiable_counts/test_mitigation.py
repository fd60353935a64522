"""The plug-in: conforms, its law is the protocol's, and ε is the exact profile's."""

import math

import numpy as np
import pytest
import scipy.stats
import torch

from dpaudit import registry
from dpaudit.accounting.binomial import binomial_coins, binomial_epsilon
from dpaudit.errors import UsageError
from dpaudit.hosts.histogram import Histogram
from dpaudit.interfaces import ProtocolMitigation
from dpaudit.noise.gaussian import Gaussian
from dpaudit.noise.pancake import Pancake
from dpaudit.testing import check_mitigation
from dpaudit_mitigations.verifiable_counts.mitigation import VerifiableCounts, draw_heads


@pytest.mark.parametrize("options", [{}, {"coins": 15}, {"epsilon": 2.0, "delta": 1e-3}])
def test_conforms(options, make_key):
    mitigation = registry.load("mitigations", "verifiable-counts")(**options)
    assert isinstance(mitigation, ProtocolMitigation)
    check_mitigation(mitigation, Gaussian(sigma=2.0))
    check_mitigation(mitigation, Pancake(key=make_key(), sigma=2.0))


def p_value(heads, coins):
    seen = np.bincount(heads, minlength=coins + 1)
    wanted = scipy.stats.binom.pmf(np.arange(coins + 1), coins, 0.5) * len(heads)
    keep = wanted > 10
    rest = len(heads) - wanted[keep].sum()
    seen_rest = seen[~keep].sum()
    if rest < 1e-9 * len(heads):
        return scipy.stats.chisquare(seen[keep], wanted[keep]).pvalue if seen_rest == 0 else 0.0
    return scipy.stats.chisquare([*seen[keep], seen_rest], [*wanted[keep], rest]).pvalue


@pytest.mark.parametrize("coins", [1, 2, 10, 63, 64, 66, 130])
def test_heads_are_binomial(coins, stream):
    """200,000 draws: one coin more or less is detected, and for few coins a rounded normal."""
    draw = draw_heads(200_000, coins=coins, stream=stream.child(coins))
    assert p_value(draw, coins) > 1e-3
    if coins > 2:
        for other in (coins - 1, coins + 1):
            bad = draw_heads(200_000, coins=other, stream=stream.child(coins))
            assert p_value(np.minimum(bad, coins), coins) < 1e-3
    if 2 < coins < 40:
        normal = coins / 2 + math.sqrt(coins) / 2 * stream.numpy().standard_normal(200_000)
        assert p_value(np.clip(np.rint(normal), 0, coins).astype(int), coins) < 1e-3


def test_release_is_query_plus_centred_heads(stream):
    query = torch.arange(-3.0, 4.0, dtype=torch.float64).repeat(5_000, 1)
    source = Gaussian(sigma=1.5)
    mitigation = VerifiableCounts()
    release = mitigation.release(query, source, stream=stream)
    assert mitigation.coins(1.5) == 10  # 4σ² = 9, and even
    noise = (release - query).numpy().astype(int)
    assert p_value(noise.ravel() + 5, 10) > 1e-3
    assert abs(np.corrcoef(noise.T) - np.eye(7)).max() < 0.06


def test_scale_and_coins(stream):
    assert VerifiableCounts().coins(6.439) == 166
    assert VerifiableCounts().scale(6.439) == math.sqrt(166) / 2 >= 6.439
    assert VerifiableCounts(epsilon=1.0).coins(99.0) == binomial_coins(1.0, 1e-10) + 1 == 156
    assert VerifiableCounts(coins=331).scale(1.0) == math.sqrt(332) / 2


def test_epsilon_is_the_profiles():
    host = Histogram(table="uniform", bins=8, records=1000)
    mitigation = VerifiableCounts(epsilon=1.0)
    bounds = mitigation.epsilon(Gaussian(sigma=3.0), 1e-10, host=host)
    assert bounds.low == bounds.high == binomial_epsilon(1e-10, coins=156) <= 1.0
    assert (
        VerifiableCounts(coins=20).epsilon(Gaussian(sigma=3.0), 1e-10, host=host).high == math.inf
    )

    class Wider(Histogram):
        sensitivity = math.sqrt(2)

    bounds = mitigation.epsilon(Gaussian(sigma=3.0), 1e-10, host=Wider(table="uniform", bins=8))
    assert (bounds.low, bounds.high) == (0.0, math.inf)
    assert bounds.says.startswith("unknown")


@pytest.mark.parametrize(
    "query",
    [
        torch.tensor([[0.5]], dtype=torch.float64),
        torch.tensor([[2.0**53]], dtype=torch.float64),
        torch.tensor([[math.nan]], dtype=torch.float64),
        torch.tensor([1.0], dtype=torch.float64),
        torch.tensor([[1]]),
    ],
)
def test_refuses_what_is_no_count(query, stream):
    for call in (VerifiableCounts(coins=4).release, VerifiableCounts(coins=4).rehearse):
        with pytest.raises(UsageError, match="query"):
            call(query, Gaussian(sigma=1.0), stream=stream)


@pytest.mark.parametrize(
    "options",
    [
        {"coins": 4, "epsilon": 1.0},
        {"coins": 0},
        {"coins": 4.0},
        {"coins": True},
        {"coins": 2**24 + 1},
        {"epsilon": 0.0},
        {"epsilon": 1.0, "delta": 0.0},
        {"rehearsed": 0},
    ],
)
def test_refuses_options(options):
    with pytest.raises(UsageError, match="="):
        VerifiableCounts(**options)


def test_float32_keeps_its_type_or_is_refused(stream):
    small = VerifiableCounts(coins=4).release(torch.ones(2, 3), Gaussian(sigma=1.0), stream=stream)
    assert small.dtype == torch.float32
    assert torch.equal(small, small.round())


def test_rehearsal_is_a_real_session(stream):
    query = torch.arange(6.0, dtype=torch.float64).reshape(1, 6)
    whole = VerifiableCounts(coins=20).rehearse(query, Gaussian(sigma=1.0), stream=stream)
    assert set(whole.seconds) == {"prover", "verifier", "total"}
    assert whole.seconds["total"] == whole.seconds["prover"] + whole.seconds["verifier"] > 0
    part = VerifiableCounts(coins=20, rehearsed=70).rehearse(
        query, Gaussian(sigma=1.0), stream=stream
    )
    assert set(part.seconds) == {"prover", "verifier", "total", "measured: 3 of 6 bins"}
    assert math.isclose(part.seconds["total"], 2 * part.seconds["measured: 3 of 6 bins"])
    assert part.wire == whole.wire > 6 * 20
    with pytest.raises(UsageError, match="2 rows"):
        VerifiableCounts(coins=4).rehearse(
            torch.ones(2, 3).double(), Gaussian(sigma=1.0), stream=stream
        )
