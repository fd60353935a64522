"""The plug-in: its cost, what key holder and coalition see, and that its law is the protocol's."""

import math

import numpy as np
import pytest
import torch

from dpaudit.accounting import gaussian_epsilon, peak_spacing
from dpaudit.errors import ProtocolError, UsageError
from dpaudit.hosts.histogram import Histogram
from dpaudit.interfaces import ProtocolMitigation
from dpaudit.noise.gaussian import Gaussian
from dpaudit.noise.pancake import Pancake
from dpaudit.stats import clopper_pearson
from dpaudit.testing import check_mitigation
from dpaudit_attacks.keyed_distinguisher import LikelihoodRatio, NearestPeak
from dpaudit_mitigations.none import NoMitigation
from dpaudit_mitigations.secure_aggregation import ring
from dpaudit_mitigations.secure_aggregation.mitigation import DistributedGaussian
from dpaudit_mitigations.secure_aggregation.noise import NoiseShare

VARIANTS = [
    {},
    {"noise": "skellam"},
    {"backdoored": 0},
    {"servers": 6, "colluding": 1, "dropouts": 1, "backdoored": 2},
    {"servers": 4, "dropouts": 1, "bits": 32, "bound": 30_000.0},
    {"noise": "skellam", "servers": 5, "bits": 32, "bound": 30_000.0},
]


@pytest.mark.parametrize("options", VARIANTS)
def test_conforms(options, make_key):
    mitigation = DistributedGaussian(**options)
    assert isinstance(mitigation, ProtocolMitigation)
    check_mitigation(mitigation, Gaussian(sigma=2.0))
    check_mitigation(mitigation, Pancake(key=make_key(), sigma=2.0))


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
    with pytest.raises(UsageError, match="a round carries one"):
        mitigation.rehearse(torch.zeros(2, 5), Gaussian(), stream=stream)


def successes(mitigation, key, stream, attack, trials=4000):
    source = Pancake(key=key, sigma=1.0)
    shift = torch.from_numpy(np.array(key.direction)) * 0.5 * source.spacing
    q = torch.stack([torch.zeros(key.dim, dtype=torch.float64), shift])
    truth = torch.arange(trials) % 2
    y = mitigation.release(q[truth], source, stream=stream)
    return int((attack(key=key, sigma=1.0).score(y, q).argmax(1) == truth).sum())


@pytest.mark.parametrize("options", [{}, {"noise": "skellam"}, {"servers": 5, "colluding": 2}])
@pytest.mark.parametrize("attack", [NearestPeak, LikelihoodRatio])
def test_the_key_holder_and_the_coalition_are_back_to_guessing(options, attack, make_key, stream):
    key = make_key(beta=1e-3)
    assert successes(NoMitigation(), key, stream, attack) > 3990
    interval = clopper_pearson(
        successes(DistributedGaussian(**options), key, stream, attack), 4000, confidence=0.999
    )
    honest = 0.5 * (1 + math.erf(0.25 * peak_spacing(sigma=1, beta=1e-3, gamma=16) / math.sqrt(2)))
    assert interval.low <= honest
    assert interval.high >= 0.5


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
            with pytest.raises(UsageError, match="source: noise beyond its room"):
                act(torch.tensor([[value]], dtype=torch.float64), Probe(), stream=stream)


def test_noise_meets_its_coordinates_whatever_the_pieces(stream, monkeypatch):
    mitigation = DistributedGaussian()
    source = Gaussian(sigma=2.0)
    query = torch.zeros(1, 50, dtype=torch.float64)
    whole = mitigation.run(query, source, stream=stream)[0]
    monkeypatch.setattr(ring, "_CHUNK", 7)
    monkeypatch.setattr(NoiseShare, "drawer", in_one_go(50))
    assert torch.equal(mitigation.run(query, source, stream=stream)[0], whole)


def in_one_go(count):
    """A drawer that draws all at once and hands out pieces."""

    def drawer(share, stream):
        values = iter(share.draw(count, stream=stream))
        return lambda n: np.array([next(values) for _ in range(n)])

    return drawer


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
    assert DistributedGaussian(servers=6, colluding=2, backdoored=1).scale(2.0) == pytest.approx(
        2 * math.sqrt(4 / 3)
    )


def test_bad_options_and_queries(stream):
    for options, says in (
        ({"servers": 2}, "servers=2"),
        ({"servers": 3.0}, r"servers=3\.0"),
        ({"servers": 3, "dropouts": 1, "colluding": 1}, "no honest"),
        ({"servers": 4, "dropouts": 2}, "dropouts=2: leave 2 .*but 3"),
        ({"servers": 6, "dropouts": 2, "colluding": 2}, "dropouts=2: leave 4 .*but 5"),
        ({"noise": "laplace"}, "noise=laplace"),
        ({"bits": 32}, "needs bound"),
        ({"bits": 24, "bound": 1.0}, "bits=24"),
        ({"bound": math.inf}, "bound=inf"),
    ):
        with pytest.raises(UsageError, match=says):
            DistributedGaussian(**options)
    for bad in (torch.full((1, 3), math.nan), torch.ones(3), torch.ones(1, 3, dtype=torch.int64)):
        with pytest.raises(UsageError, match="query"):
            DistributedGaussian().release(bad, Gaussian(), stream=stream)
    far = torch.tensor([[0.0, 11.0]])
    for act in (DistributedGaussian(bound=10.0).release, DistributedGaussian(bound=10.0).run):
        with pytest.raises(UsageError, match="beyond bound=10"):
            act(far, Gaussian(), stream=stream)


def test_float32_and_many_rows(stream):
    query = torch.zeros(3, 50_000)  # rows end within a chunk
    released = DistributedGaussian().release(query, Gaussian(), stream=stream)
    assert released.dtype == torch.float32
    assert abs(float(released.std()) / math.sqrt(1.5) - 1) < 0.01
    assert len(torch.unique(released[:, 0])) == 3
