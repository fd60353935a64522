"""What every mitigation keeps to, none at all, and a batch that two parties draw."""

import math

import numpy as np
import pytest
import torch

from dpaudit import registry
from dpaudit.accounting import gaussian_epsilon
from dpaudit.errors import UsageError
from dpaudit.hosts.histogram import Histogram
from dpaudit.interfaces import ProtocolMitigation
from dpaudit.noise.gaussian import Gaussian
from dpaudit.noise.pancake import Pancake
from dpaudit.testing import check_mitigation
from dpaudit.training.private.batches import HonestCoins, OneParty
from dpaudit.vectors.batch_coins import coin_words, members
from dpaudit_mitigations.none import NoMitigation
from dpaudit_mitigations.two_party_batch import SealedShare, TwoPartyBatch

EVERY = [
    "none",
    "smoothing:tau=0.5",
    "smoothing:tau=0.3,own=secure",
    "rounding:grid=1.5",
    "rotation",
    "rotation:randomness=csprng",
    "shared-rotation",
    "dense-rotation:shared=true",
    "structured-rotation:transform=hadamard",
    "two-servers:backdoored=noise,ratio=0.5",
    "two-servers:backdoored=both",
    "joint-seeds:candidates=2,deviate=true",
    "distributed-gaussian:servers=6,colluding=1,dropouts=1,backdoored=2",
    "distributed-gaussian:servers=5,noise=skellam,bits=32,bound=30000",
    "verifiable-counts",
]


@pytest.mark.parametrize("name", EVERY)
def test_conforms(name, make_key):
    mitigation = registry.create("mitigations", name)
    check_mitigation(mitigation, Gaussian(sigma=2.0))
    check_mitigation(mitigation, Pancake(key=make_key(), sigma=2.0))


@pytest.mark.parametrize(
    ("name", "option"),
    [
        ("rotation", "renorm=gauss"),
        ("rotation", "randomness=os"),
        ("structured-rotation", "rounds=0"),
        ("structured-rotation", "transform=dft"),
        ("rounding", "grid=0"),
        ("rounding", "to=int8"),
        ("two-servers", "ratio=0"),
        ("two-servers", "backdoored=all"),
        ("joint-seeds", "candidates=1"),
        ("distributed-gaussian", "servers=2"),
        ("distributed-gaussian", "noise=laplace"),
        ("verifiable-counts", "coins=0"),
    ],
)
def test_bad_options_are_named_with_their_value(name, option):
    with pytest.raises(UsageError, match=option):
        registry.create("mitigations", f"{name}:{option}")


def test_every_registered_mitigation_is_in_the_list():
    assert {name.split(":")[0] for name in EVERY} == set(registry.plugins("mitigations"))


def test_protocols_have_their_role():
    for name in ("two-servers", "joint-seeds", "distributed-gaussian", "verifiable-counts"):
        assert isinstance(registry.create("mitigations", name), ProtocolMitigation)


def test_without_a_mitigation_the_key_holder_has_the_sources_epsilon(make_key):
    host = Histogram()
    pancake = Pancake(key=make_key(dim=host.dim, beta=1e-4), sigma=22.4)
    assert NoMitigation().epsilon(pancake, 1e-10, host=host) == pancake.epsilon(1e-10, host=host)
    assert NoMitigation().epsilon(pancake, 1e-10, host=host).low > 1e5
    many = NoMitigation().epsilon_after(pancake, 1e-9, host=host, releases=10)
    assert many.high == 10 * pancake.epsilon(1e-10, host=host).high
    honest = NoMitigation().epsilon_after(Gaussian(sigma=22.4), 1e-10, host=host, releases=100)
    assert honest.low == honest.high == gaussian_epsilon(1e-10, sigma=22.4, sensitivity=10.0)


@pytest.mark.parametrize("name", EVERY)
def test_bad_queries(name, stream):
    mitigation = registry.create("mitigations", name)
    for query in (
        torch.full((2, 4), math.nan),
        torch.tensor([[1.0, math.inf]]),
        torch.ones(2, 4, dtype=torch.int64),
        torch.ones(4),
        *[torch.full((1, 4), 1e30, dtype=torch.float64)] * (name != "none"),  # beyond the lattice
    ):
        with pytest.raises(UsageError, match=r"query|bound="):
            mitigation.release(query, Gaussian(), stream=stream)


N, RATE = 4000, 0.09


class Known:
    """A party whose every share the attacker knows."""

    def __init__(self, share=bytes(32)):
        self._share = share

    def share(self):
        return self._share


def draws(how, stream, first=None, n=50):
    coins = first or HonestCoins(stream.child(1)), HonestCoins(stream.child(2))
    return np.array([TwoPartyBatch(how=how).draw(coins, N, rate=RATE) for _ in range(n)])


@pytest.mark.parametrize("how", ["xor", "thinning"])
def test_the_batch_is_poisson_of_the_rate(how, stream):
    drawn = draws(how, stream)
    sd = math.sqrt(N * RATE * (1 - RATE))
    assert abs(drawn.sum(1).mean() - N * RATE) < 4 * sd / math.sqrt(50)
    assert 0.5 < drawn.sum(1).var() / sd**2 < 1.7
    assert abs((drawn[1:] & drawn[:-1]).mean() - RATE**2) < 4 * RATE / math.sqrt(49 * N)


def test_given_one_party_s_coins_the_batch_is_poisson_of_what_is_left(stream):
    words = coin_words(bytes(32), N)
    xor = draws("xor", stream, Known())
    for some in (words < np.uint64(1 << 61), words >= np.uint64(7 << 61)):
        assert abs(xor[:, some].mean() - RATE) < 4 * math.sqrt(RATE / (50 * some.sum()))
    thinned, let_in = draws("thinning", stream, Known()), members(words, rate=0.3)
    assert not thinned[:, ~let_in].any()
    assert abs(thinned[:, let_in].mean() - 0.3) < 4 * math.sqrt(0.21 / (50 * let_in.sum()))
    one = OneParty().draw([Known()], N, rate=RATE)
    assert np.array_equal(one, members(words, rate=RATE))
    assert [h.known(RATE) for h in (OneParty(), TwoPartyBatch())] == [RATE, 1.0]
    assert TwoPartyBatch(how="thinning").known(RATE) == pytest.approx(0.3)


def test_a_share_that_is_not_the_committed_one_is_refused():
    shares = SealedShare.of(1, Known()), SealedShare.of(2, Known(b"b" * 32))
    sealed = shares[0].commitment, shares[1].commitment
    both = TwoPartyBatch()
    assert both.opened(shares, sealed, records=N, rate=RATE).any()
    chosen = SealedShare(2, bytes(32), shares[1].salt)
    with pytest.raises(UsageError, match="share=2"):
        both.opened((shares[0], chosen), sealed, records=N, rate=RATE)
    copied = shares[0], SealedShare(1, shares[0].share, shares[0].salt)
    with pytest.raises(UsageError, match="share=2"):
        both.opened(copied, (sealed[0], sealed[0]), records=N, rate=RATE)
    assert sealed[0] != SealedShare.of(1, Known()).commitment  # salted
