"""The plug-in, its noise and its ε: the protocol's law, and what key holder and coalition see."""

import math
from functools import partial

import numpy as np
import pytest
import scipy.optimize
import scipy.special
import scipy.stats
import torch
from support.keyed_attackers import guesses, half_a_spacing
from support.laws import profile

from dpaudit.accounting import gaussian_epsilon
from dpaudit.accounting.discrete import (
    discrete_gaussian_sum_bounds,
    discrete_gaussian_sum_factor,
    skellam_bounds,
    skellam_rdp,
)
from dpaudit.errors import ProtocolError, UsageError
from dpaudit.noise.gaussian import Gaussian
from dpaudit.noise.pancake import Pancake
from dpaudit.queries.histogram import Histogram
from dpaudit.randomness import KeyedStream
from dpaudit.stats import clopper_pearson
from dpaudit_mitigations.none import NoMitigation
from dpaudit_mitigations.secure_aggregation import plan
from dpaudit_mitigations.secure_aggregation.mitigation import DistributedGaussian
from dpaudit_mitigations.secure_aggregation.noise import (
    LARGEST_SKELLAM_SCALE,
    NoiseShare,
    draw_skellam,
    finest_granularity,
    least_honest,
)

VARIANTS = [
    {},
    {"servers": 6, "colluding": 1, "dropouts": 1, "backdoored": 2},
    {"noise": "skellam", "servers": 5, "bits": 32, "bound": 30_000.0},
]


@pytest.mark.parametrize("options", VARIANTS)
def test_the_law_is_what_the_protocol_publishes(options, stream):
    """Bit for bit, from one stream; with colluders the release lacks their noise, nothing else."""
    mitigation, source = DistributedGaussian(**options), Gaussian(sigma=2.0)
    query = torch.linspace(-50, 50, 96, dtype=torch.float64)[None]
    released = mitigation.release(query, source, stream=stream)
    published, outcome = mitigation.run(query, source, stream=stream)
    assert len(outcome.survivors) == mitigation.servers - mitigation.dropouts
    form, share = mitigation._form(2.0, 96)
    theirs = np.zeros(96)
    for i in range(mitigation.backdoored, mitigation.backdoored + mitigation.colluding):
        theirs += share.draw(96, stream=stream.child("server", i)) * form.granularity
    assert torch.equal(released + torch.from_numpy(theirs), published)
    assert torch.equal(released, published) is (mitigation.colluding == 0)


def test_rehearsal(stream):
    mitigation = DistributedGaussian(servers=5, dropouts=1, bits=32, bound=10.0)
    query = torch.zeros(1, 50_000)
    seen = mitigation.rehearse(query, Gaussian(), stream=stream)
    assert set(seen.seconds) == {"aggregator", "total", *(f"party-00{i}" for i in range(1, 6))}
    assert sum(v for k, v in seen.seconds.items() if k != "total") <= seen.seconds["total"]
    assert 4 * 4 * 50_000 <= seen.wire <= 1.05 * 4 * 4 * 50_000


@pytest.mark.parametrize("options", [{}, {"noise": "skellam"}, {"servers": 5, "colluding": 2}])
def test_the_key_holder_and_the_coalition_are_back_to_guessing(options, make_key, stream):
    key = make_key(beta=1e-3)
    bare, found = (
        guesses(partial(m.release, stream=stream), key, trials=4000)
        for m in (NoMitigation(), DistributedGaussian(**options))
    )
    assert min(bare) > 3990
    honest = scipy.stats.norm.cdf(0.5 * half_a_spacing(key, sigma=1.0))
    for right in found:
        interval = clopper_pearson(right, 4000, confidence=0.999)
        assert interval.low <= honest
        assert interval.high >= 0.5


@pytest.mark.slow
def test_the_noise_that_the_coalition_cannot_take_away(stream):
    """All but the honest servers absent: what is left has scale σ, for each use of the others."""

    class Silent:
        sigma, dim, claim = 3.0, None, "gaussian:sigma=3"

        def sample(self, n, d, **_):
            return torch.zeros(n, d, dtype=torch.float64)

    for options in VARIANTS:
        mitigation = DistributedGaussian(**options)
        left = mitigation.release(
            torch.zeros(400, 256, dtype=torch.float64), Silent(), stream=stream
        )
        assert abs(float(left.std()) / 3.0 - 1) < 5 / math.sqrt(2 * left.numel())


@pytest.mark.parametrize("options", [*VARIANTS, {"servers": 5, "colluding": 2}])
def test_an_aggregator_cannot_leave_out_more_than_was_planned_for(options, stream):
    """Whichever servers it keeps, all its helpers too: the honest shares in the sum make σ."""
    mitigation, query = DistributedGaussian(**options), torch.zeros(1, 8, dtype=torch.float64)
    assert mitigation.threshold - mitigation.colluding - mitigation.backdoored == mitigation.honest
    mitigation.run(query, Gaussian(sigma=2.0), stream=stream)
    mitigation.dropouts += 1
    with pytest.raises(ProtocolError, match="below the threshold"):
        mitigation.run(query, Gaussian(sigma=2.0), stream=stream)


@pytest.mark.parametrize("options", [{}, {"bits": 32, "bound": 100.0}])
def test_a_source_cannot_probe_the_query_by_noise_that_only_just_fits(options, stream):
    """Noise up to the ring's edge less 5 would be refused with 6 in the query, accepted with 4."""
    mitigation = DistributedGaussian(**options)
    form, _ = mitigation._form(2.0, 1)

    class Probe:
        sigma, dim, claim = 2.0, None, "gaussian:sigma=2"

        def sample(self, n, d, **_):
            edge = (form.limit * form.granularity - 5.0) * math.sqrt(mitigation.honest)
            return torch.full((n, d), edge, dtype=torch.float64)

    for act in (mitigation.release, mitigation.run):
        for value in (4.0, 6.0, -100.0):
            with pytest.raises(UsageError, match="source: noise beyond"):
                act(torch.tensor([[value]], dtype=torch.float64), Probe(), stream=stream)


def in_one_go(share, stream):
    """A drawer that draws all at once and hands out pieces."""
    values = iter(share.draw(50, stream=stream))
    return lambda n: np.array([next(values) for _ in range(n)])


def test_noise_meets_its_coordinates_whatever_the_pieces(stream, monkeypatch):
    def run():
        query = torch.zeros(1, 50, dtype=torch.float64)
        return DistributedGaussian().run(query, Gaussian(sigma=2.0), stream=stream)[0]

    whole = run()
    monkeypatch.setattr(plan, "_CHUNK", 7)
    monkeypatch.setattr(NoiseShare, "drawer", in_one_go)
    assert torch.equal(run(), whole)


def test_float32_and_many_rows_and_a_query_beyond_the_bound(stream):
    query = torch.zeros(3, 50_000)  # rows end within a chunk
    released = DistributedGaussian().release(query, Gaussian(), stream=stream)
    assert released.dtype == torch.float32
    assert abs(float(released.std()) / math.sqrt(1.5) - 1) < 0.01
    assert len(torch.unique(released[:, 0])) == 3
    for act in (DistributedGaussian(bound=10.0).release, DistributedGaussian(bound=10.0).run):
        with pytest.raises(UsageError, match="beyond bound=10"):
            act(torch.tensor([[0.0, 11.0]]), Gaussian(), stream=stream)


def test_scale_and_epsilon(make_key):
    host, delta = Histogram(), 1e-10
    pancake = Pancake(key=make_key(dim=host.dim, beta=1e-4), sigma=22.4)
    plain = Gaussian(sigma=22.4)
    ideal = gaussian_epsilon(delta, sigma=22.4, sensitivity=host.sensitivity)
    for options in (
        {},
        {"servers": 6, "colluding": 2, "dropouts": 0},
        {"servers": 9, "dropouts": 3},
    ):
        mitigation = DistributedGaussian(**options)
        bounds = mitigation.epsilon(pancake, delta, host=host)
        assert bounds.low == 0
        assert ideal <= bounds.high < 1.001 * ideal  # rounding included
    assert NoMitigation().epsilon(pancake, delta, host=host).low > 1e5
    both = DistributedGaussian(backdoored=0).epsilon(plain, delta, host=host)
    assert 0.999 * ideal < both.low <= ideal <= both.high < 1.001 * ideal
    skellam = DistributedGaussian(noise="skellam").epsilon(pancake, delta, host=host)
    assert ideal <= skellam.high < 1.3 * ideal
    assert DistributedGaussian().scale(2.0) == pytest.approx(2 * math.sqrt(3 / 2))
    six = DistributedGaussian(servers=6, colluding=2, backdoored=1)
    assert six.scale(2.0) == pytest.approx(2 * math.sqrt(4 / 3))


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


@pytest.mark.slow
def test_skellam_at_the_scale_that_is_used():
    scale = 4096.5
    draws = draw_skellam(N, scale=scale, stream=KeyedStream.from_seed("skellam"))
    assert abs(draws.mean()) < 5 * scale / math.sqrt(N)
    assert abs(draws.var() / scale**2 - 1) < 5 * math.sqrt(2 / N)
    # N·(rounding) is far below what the test sees
    assert scipy.stats.kstest(draws / scale, "norm").pvalue > 1e-3
    assert scipy.stats.kstest(draws / scale * 1.02, "norm").pvalue < 1e-3
    assert len(set((draws & 1).tolist())) == 2


SHARE = {"law": "discrete-gaussian", "sigma": 1.0, "granularity": 2.0**-10}
SUM = {"scale": 1.0, "parties": 2, "sensitivity": 1.0, "dim": 1}
SKELLAM = {"variance": 1.0, "sensitivity": 1.0, "dim": 1}
CANNOT_BE = [
    (partial(NoiseShare, **SHARE | {"law": "laplace"}), "noise=laplace"),
    (partial(NoiseShare, **SHARE | {"sigma": 0.0}), "sigma=0"),
    (partial(NoiseShare, **SHARE | {"granularity": 4.0}), "granularity=4"),
    (partial(NoiseShare, **SHARE | {"law": "skellam", "granularity": 2.0**-20}), "granularity=9"),
    (partial(least_honest, 3, dropouts=1, colluding=1, backdoored=1), "no honest"),
    (partial(least_honest, 3, dropouts=-1, colluding=0), "dropouts=-1"),
    *((partial(discrete_gaussian_sum_bounds, 1e-6, **SUM | {n: 0}), n) for n in SUM),
    *((partial(skellam_bounds, 1e-6, **SKELLAM | {n: 0}), n) for n in ("sensitivity", "dim")),
    (partial(skellam_bounds, 1e-6, **SKELLAM | {"variance": math.nan}), "variance"),
    *((partial(skellam_bounds, delta, **SKELLAM), "delta") for delta in (0.0, 1.0)),
    *(
        (partial(draw_skellam, 1, scale=scale, stream=KeyedStream.from_seed(1)), "scale=")
        for scale in (0.0, math.nan, LARGEST_SKELLAM_SCALE * 1.01)
    ),
]


@pytest.mark.parametrize(("make", "says"), CANNOT_BE)
def test_what_cannot_be_drawn_shared_or_accounted(make, says):
    with pytest.raises(UsageError, match=says):
        make()


@pytest.mark.slow
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


def gaussian(scale, reach):
    z = np.arange(-reach, reach + 1)
    mass = np.exp(-0.5 * (z / scale) ** 2)
    return mass / mass.sum()


def summed(scale, parties):
    """P(z) of the sum at −reach..reach: convolved in positive terms, exact for small ones too."""
    one = gaussian(scale, math.ceil(20 * scale))
    out = one
    for _ in range(parties - 1):
        out = np.convolve(out, one)
    return out


def epsilon(mass, shift, delta):
    """The least ε ≥ 0 at δ between ``mass`` (1D or 2D) and its ``shift``, by Σ(P − e^ε·Q)₊."""
    pad = [(0, abs(s)) for s in shift]
    p = np.pad(mass, pad)
    q = np.pad(mass, [(abs(s), 0) for s in shift])

    def excess(eps):
        return profile(p, q, eps) - delta

    return 0.0 if excess(0.0) <= 0 else scipy.optimize.brentq(excess, 0.0, 300.0, xtol=1e-12)


@pytest.mark.parametrize("scale", [0.4, 0.6, 0.8, 1.0, 2.0, 6.0])
@pytest.mark.parametrize("parties", [1, 2, 3, 8])
def test_sum_of_discrete_gaussians(scale, parties):
    mass = summed(scale, parties)
    for shift, delta in ((1, 1e-2), (1, 1e-6), (3, 1e-6)):
        exact = epsilon(mass, (shift,), delta)
        bounds = discrete_gaussian_sum_bounds(
            delta, scale=scale, parties=parties, sensitivity=shift, dim=1
        )
        assert bounds.low - 1e-9 <= exact <= bounds.high + 1e-9
        if scale >= 1:
            assert bounds.high <= 1.01 * exact + 1e-6  # and tight where shares are not tiny
            assert bounds.low >= 0.99 * exact - 1e-6


@pytest.mark.parametrize(("scale", "parties"), [(0.6, 2), (1.0, 3), (2.5, 2)])
def test_sum_of_discrete_gaussians_in_two_dimensions(scale, parties):
    one = summed(scale, parties)
    for shift, delta in (((1, 1), 1e-5), ((2, 1), 1e-3)):
        exact = epsilon(np.outer(one, one), shift, delta)
        bounds = discrete_gaussian_sum_bounds(
            delta, scale=scale, parties=parties, sensitivity=math.hypot(*shift), dim=2
        )
        assert bounds.low - 1e-9 <= exact <= bounds.high


@pytest.mark.parametrize("scale", [0.5, 0.7, 1.0, 1.5])
@pytest.mark.parametrize("parties", [2, 3, 5])
def test_the_factor_bounds_every_ratio_and_is_not_idle(scale, parties):
    mass = summed(scale, parties)
    reach = len(mass) // 2
    whole = gaussian(scale * math.sqrt(parties), reach)
    # the convolved windows are cut off further out
    inner = slice(reach - int(8 * scale), reach + int(8 * scale) + 1)
    worst = np.abs(np.log(mass[inner] / whole[inner])).max()
    factor = discrete_gaussian_sum_factor(scale, parties)
    assert worst <= factor + 1e-12
    if scale == 0.7:
        assert factor < 20 * worst
    assert worst > 1e-9 or scale > 1


def test_rounding_is_included():
    """Values 1.4 apart become whole numbers up to 2 apart, in d dimensions up to 1.4 + √d."""
    mass = summed(2.0, 3)
    bounds = discrete_gaussian_sum_bounds(
        1e-6, scale=2.0, parties=3, sensitivity=1.4, dim=1, rounded=True
    )
    assert bounds.high >= epsilon(mass, (2,), 1e-6) - 1e-9
    without = discrete_gaussian_sum_bounds(1e-6, scale=2.0, parties=3, sensitivity=1.4, dim=1)
    assert without.high < epsilon(mass, (2,), 1e-6)
    far = discrete_gaussian_sum_bounds(
        1e-6, scale=100.0, parties=3, sensitivity=50.0, dim=400, rounded=True
    )
    ideal = gaussian_epsilon(1e-6, sigma=100 * math.sqrt(3), sensitivity=70.0)
    assert ideal <= far.high <= 1.01 * ideal
    sk = skellam_bounds(1e-6, variance=9e6, sensitivity=50.0, dim=400, rounded=True)
    assert sk.high >= gaussian_epsilon(1e-6, sigma=3000.0, sensitivity=70.0)
    assert sk.high > skellam_bounds(1e-6, variance=9e6, sensitivity=50.0, dim=400).high


def test_many_coordinates_cost_something_only_for_tiny_shares():
    big = discrete_gaussian_sum_bounds(
        1e-10, scale=2.0**20, parties=3, sensitivity=2.0**18, dim=39_000_000
    )
    assert big.high == pytest.approx(
        gaussian_epsilon(1e-10, sigma=2**20 * math.sqrt(3), sensitivity=2.0**18), rel=1e-6
    )
    small = [
        discrete_gaussian_sum_bounds(1e-6, scale=1.0, parties=3, sensitivity=1.0, dim=d).high
        for d in (1, 100, 10**6)
    ]
    assert small[0] < small[1] < small[2]
    assert (
        discrete_gaussian_sum_bounds(1e-6, scale=0.2, parties=3, sensitivity=1.0, dim=1).high
        == math.inf
    )


def log_skellam(z, variance):
    return np.log(scipy.special.ive(np.abs(z).astype(float), variance))


def exact_divergence(order, variance, shift):
    """ln Σ P^α·Q^(1−α)/(α−1) for one coordinate."""
    reach = int(14 * math.sqrt(variance)) + order * shift + 25
    reach = min(reach, int(60 + 30 * math.sqrt(variance)))
    z = np.arange(-reach, reach + 1)
    log = order * log_skellam(z, variance) + (1 - order) * log_skellam(z - shift, variance)
    log = log[np.isfinite(log)]
    return float(scipy.special.logsumexp(log)) / (order - 1)


@pytest.mark.parametrize("variance", [4.0, 25.0, 400.0])
@pytest.mark.parametrize("shift", [1, 3])
@pytest.mark.parametrize("order", [2, 3, 8])
def test_skellam_divergence(variance, shift, order):
    exact = exact_divergence(order, variance, shift)
    bound = skellam_rdp(np.array([order]), variance=variance, l1=shift, l2=shift)
    assert exact <= bound
    if variance >= 400:
        # and no idle one
        assert skellam_rdp(np.array([order]), variance=1.1 * variance, l1=shift, l2=shift) < exact


def test_skellam_theorem_by_hand():
    """The exact divergence is mostly below the Gaussian's: this checks the second term itself."""
    first, second = skellam_rdp(np.array([2.0, 100.0]), variance=4.0, l1=1.0, l2=1.0)
    assert first == 2 / 8 + 9 / 64
    assert second == 100 / 8 + 3 / 8  # where 205/64 would be more
    assert skellam_bounds(0.5, variance=1e4, sensitivity=1.0, dim=1).high < 1e-3


@pytest.mark.parametrize("variance", [4.0, 25.0, 400.0])
def test_skellam_epsilon(variance):
    z = np.arange(-int(35 * math.sqrt(variance)), int(35 * math.sqrt(variance)) + 1)
    mass = scipy.special.ive(np.abs(z).astype(float), variance)
    for shift, delta in (((1,), 1e-3), ((1,), 1e-8), ((3,), 1e-6)):
        exact = epsilon(mass, shift, delta)
        bounds = skellam_bounds(delta, variance=variance, sensitivity=shift[0], dim=1)
        assert bounds.low <= exact <= bounds.high
        assert bounds.high < 2 * exact
    if variance == 25:
        shift = (1, 2)
        exact = epsilon(np.outer(mass, mass), shift, 1e-4)
        assert (
            exact <= skellam_bounds(1e-4, variance=25.0, sensitivity=math.hypot(*shift), dim=2).high
        )
