"""A batch that two parties draw: Poisson to all, and what one party's coins leave of it."""

import math

import numpy as np
import pytest

from dpaudit import registry
from dpaudit.errors import UsageError
from dpaudit.interfaces import BatchDraw
from dpaudit.training.private.batches import HonestCoins, OneParty
from dpaudit.vectors.batch_coins import coin_words, members
from dpaudit_mitigations.two_party_batch import SealedShare, TwoPartyBatch

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
        from dpaudit.types import Reference

        made = registry.create("batches", Reference.parse(name))
        assert isinstance(made, BatchDraw)
        assert made.trusts
    with pytest.raises(UsageError, match="how=both"):
        TwoPartyBatch(how="both")
