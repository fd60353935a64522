"""What every mitigation keeps to, none at all, and a batch that two parties draw."""

import math

import numpy as np
import pytest
import torch

from dpaudit import registry
from dpaudit.accounting import gaussian_epsilon
from dpaudit.errors import UsageError
from dpaudit.noise.gaussian import Gaussian
from dpaudit.noise.pancake import Pancake
from dpaudit.noise.secure_gaussian import SecureGaussian
from dpaudit.protocols import BatchDraw, ProtocolMitigation
from dpaudit.queries.histogram import Histogram
from dpaudit.randomness import coin_words, members
from dpaudit.testing import check_mitigation
from dpaudit.training.private.run import HonestCoins, OneParty
from dpaudit_mitigations.none import NoMitigation
from dpaudit_mitigations.two_party_batch import SealedShare, TwoPartyBatch

EVERY = [
    "none", "smoothing:tau=0.5", "smoothing:dim=64,ratio=1.5", "smoothing:tau=0.3,own=secure",
    "rounding:grid=1.5", "rounding:peaks=2,dim=64", "rounding:to=integers", "rotation",
    "rotation:randomness=csprng", "rotation:renorm=chi", "shared-rotation",
    "dense-rotation:shared=true", "structured-rotation:transform=hadamard",
    "two-servers:backdoored=noise,ratio=0.5", "two-servers:backdoored=both", "joint-seeds",
    "joint-seeds:candidates=2,deviate=true",
    "distributed-gaussian:servers=6,colluding=1,dropouts=1,backdoored=2",
    "distributed-gaussian:servers=5,noise=skellam,bits=32,bound=30000", "verifiable-counts",
    "verifiable-counts:coins=15", "verifiable-counts:epsilon=2,delta=1e-3",
]  # fmt: skip


def make(name):
    return registry.create("mitigations", name)


@pytest.mark.parametrize("name", EVERY)
def test_conforms(name, make_key):
    mitigation = make(name)
    for source in (Gaussian(sigma=2.0), Pancake(key=make_key(), sigma=2.0)):
        check_mitigation(mitigation, source)
    if name.startswith(("smoothing", "rounding", "two-servers")):  # a source with its own lattice
        check_mitigation(mitigation, SecureGaussian(sigma=2.0))


BAD = [  # the last option is named, or what stands after the bar
    "smoothing | needs tau", "smoothing:tau=-1", "smoothing:tau=nan", "smoothing:gamma_min=-3",
    "smoothing:gamma_min=0.5 | gamma=0.5", "smoothing:dim=-3", "smoothing:dim=64,eta=0",
    "smoothing:dim=64,eta=1.5", "smoothing:dim=64,ratio=a", "smoothing:dim=4,ratio=1.5",
    "smoothing:tau=0.1,eta=0.5", "smoothing:tau=0.1,gamma_min=9",
    "smoothing:dim=64,ratio=1,eta=0.1", "smoothing:tau=0.1,own=opendp",
    "smoothing:own=secure,tau=1e-06",
    "smoothing:own=secure,tau=1000.0", "rounding | exactly one",
    "rounding:grid=1,to=bf16 | exactly one", "rounding:grid=0", "rounding:dim=4,peaks=-1",
    "rounding:peaks=2 | gamma_min", "rounding:peaks=2,dim=0", "rounding:to=int8",
    "rotation:renorm=gauss", "rotation:randomness=os", "dense-rotation:shared=1",
    "structured-rotation:rounds=0", "structured-rotation:rounds=2.0",
    "structured-rotation:transform=dft", "two-servers:backdoored=all", "two-servers:ratio=0",
    "two-servers:ratio=x", "joint-seeds:candidates=1", "joint-seeds:candidates=257",
    "joint-seeds:candidates=2.0", "distributed-gaussian:servers=2",
    "distributed-gaussian:servers=3.0", "distributed-gaussian:noise=laplace",
    "distributed-gaussian:servers=3,dropouts=1,colluding=1 | no honest",
    "distributed-gaussian:servers=4,dropouts=2 | leave 2 .*but 3",
    "distributed-gaussian:servers=6,dropouts=2,colluding=2 | leave 4 .*but 5",
    "distributed-gaussian:bits=32 | needs bound", "distributed-gaussian:bound=1,bits=24",
    "distributed-gaussian:bound=inf", "verifiable-counts:coins=4,epsilon=1",
    "verifiable-counts:coins=0", "verifiable-counts:coins=4.0", "verifiable-counts:coins=16777217",
    "verifiable-counts:epsilon=0", "verifiable-counts:epsilon=1,delta=0",
    "verifiable-counts:rehearsed=0",
]  # fmt: skip


@pytest.mark.parametrize("row", BAD)
def test_bad_options_are_named_with_their_value(row):
    name, _, says = row.partition(" | ")
    with pytest.raises(UsageError, match=says or name.rpartition(",")[2].rpartition(":")[2]):
        make(name)


def test_every_registered_mitigation_is_in_the_list_and_those_with_two_parties_are_protocols():
    assert {name.split(":")[0] for name in EVERY} == set(registry.plugins("mitigations"))
    for name in ("two-servers", "joint-seeds", "distributed-gaussian", "verifiable-counts"):
        assert isinstance(make(name), ProtocolMitigation)


@pytest.mark.slow
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
    mitigation = make(name)
    rehearse = [mitigation.rehearse] if isinstance(mitigation, ProtocolMitigation) else []
    for query, says in (
        (torch.full((1, 4), math.nan), "query"),
        (torch.tensor([[1.0, math.inf]]), "query"),
        (torch.ones(1, 4, dtype=torch.int64), "query"),
        (torch.ones(4), "query"),
        *[(torch.full((1, 4), 1e30, dtype=torch.float64), "query|bound=")] * (name != "none"),
    ):
        for work in (mitigation.release, *rehearse):
            with pytest.raises(UsageError, match=says):
                work(query, Gaussian(), stream=stream)
    for work in rehearse:
        with pytest.raises(UsageError, match=r"one row|2 rows|carries one"):
            work(torch.zeros(2, 4), Gaussian(), stream=stream)


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


def test_both_are_registered_and_fit_their_role():
    for name in ("one-party", "two-party:how=thinning"):
        made = registry.create("batches", name)
        assert isinstance(made, BatchDraw)
        assert made.trusts
    with pytest.raises(UsageError, match="how=both"):
        TwoPartyBatch(how="both")
