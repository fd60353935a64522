"""Sessions of prover and verifier, the plug-in: released or refused."""

import hashlib
import math
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import scipy.stats
import torch
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from dpaudit.accounting.mechanisms import binomial_coins, binomial_epsilon
from dpaudit.errors import CheatingError, MessageError, UsageError
from dpaudit.noise.gaussian import Gaussian
from dpaudit.queries.histogram import Histogram
from dpaudit_mitigations.verifiable_counts import parties
from dpaudit_mitigations.verifiable_counts import terms as terms_module
from dpaudit_mitigations.verifiable_counts.group import (
    commit,
    open_counts,
)
from dpaudit_mitigations.verifiable_counts.messages import (
    Commitments,
    Response,
    check_signature,
    encode_seed,
    public_coins,
    wire_bytes,
)
from dpaudit_mitigations.verifiable_counts.mitigation import VerifiableCounts, draw_heads
from dpaudit_mitigations.verifiable_counts.parties import Prover, Verifier
from dpaudit_mitigations.verifiable_counts.terms import (
    MOST_BINS,
    MOST_COINS,
    CountTerms,
)


@pytest.mark.parametrize(("bins", "coins"), [(1, 2), (3, 10), (1, 332), (70, 12), (2, 1000)])
def test_complete(bins, coins, play, stream):
    counts = [(-1) ** i * 1000 * i for i in range(bins)]
    session = play(counts, coins=coins, stream=stream)
    assert session.released == session.response.released
    assert all(abs(y - c) <= coins // 2 for y, c in zip(session.released, counts, strict=True))
    sizes = len(session.first), len(session.second), len(session.third)
    assert sizes == (Commitments.size(session.terms), 86, Response.size(session.terms))
    assert wire_bytes(bins=bins, coins=coins) == sum(sizes)


def test_the_noise_is_the_flipped_bits(play, stream):
    """Recomputed from the prover's stream: transcript and private bits together give the noise."""
    session = play([100, 200, 300], coins=24, stream=stream)
    counts = b"".join(Commitments.decode(session.first, session.terms).counts)
    about = hashlib.sha512(session.terms.encode() + counts).hexdigest()
    data = np.frombuffer(stream.child("prover").child("coins", about).bytes(9), np.uint8)
    bits = np.unpackbits(data).reshape(3, 24)
    public = public_coins(session.terms, commitments=session.first, challenge=session.second)
    noise = (bits ^ public).sum(1, dtype=int) - 12
    assert [100 + noise[0], 200 + noise[1], 300 + noise[2]] == session.released
    alone = bits.sum(1, dtype=int) - 12  # without the transcript the bits say nothing
    assert noise.tolist() != alone.tolist()


def test_public_coins_hang_on_both_messages(play, stream):
    """Else one party would choose them; and a fair share of them flips."""
    session = play([0], coins=2000, stream=stream)
    said = {"commitments": session.first, "challenge": session.second}
    coins = public_coins(session.terms, **said)
    assert 850 < coins.sum() < 1150
    for name in said:
        other = public_coins(session.terms, **said | {name: said[name][:-1] + b"x"})
        assert 850 < (coins ^ other).sum() < 1150


def test_one_stream_used_twice(play, stream):
    """A reused stream keeps the masks: other challenges, other masks; other terms, other rows."""
    terms = CountTerms(bytes(32), 1, 8)
    thirds, firsts = [], []
    for number in range(2):
        prover = Prover(
            terms, open_counts([0], stream=stream.child("counts")), stream=stream.child("prover")
        )
        judge = Verifier(terms, stream=stream.child("verifier", number))
        firsts.append(prover.step(None))
        thirds.append(Response.decode(prover.step(judge.step(firsts[-1])), terms))
    assert firsts[0] == firsts[1]
    assert thirds[0].proofs[0].row_mask != thirds[1].proofs[0].row_mask
    assert thirds[0].sums[0] != thirds[1].sums[0]
    rows = Commitments.decode(firsts[0], terms).rows
    for other, count in ((CountTerms(bytes([1] * 32), 1, 8), 0), (terms, 1)):
        openings = open_counts([count], stream=stream.child("counts"))
        prover = Prover(other, openings, stream=stream.child("prover"))
        assert Commitments.decode(prover.step(None), other).rows != rows


def test_only_what_was_accepted_is_signed(play, stream):
    session = play([1], coins=4, stream=stream)
    key = Ed25519PrivateKey.generate()
    said = {"commitments": session.first, "challenge": session.second, "response": session.third}
    public = key.public_key().public_bytes_raw()
    check_signature(session.verifier.sign(key), session.terms, **said, verifier=public)
    for name in said:
        changed = said | {name: said[name][:-1] + bytes([said[name][-1] ^ 1])}
        with pytest.raises(CheatingError, match="signed"):
            check_signature(session.verifier.sign(key), session.terms, **changed, verifier=public)
    judge = Verifier(session.terms, stream=stream.child("verifier"))
    judge.step(session.first)
    for each in (Verifier(session.terms), judge):
        with pytest.raises(MessageError, match="once, in order"):
            each.sign(key)


def test_each_step_once_and_in_order(play, stream):
    session = play([1], coins=4, stream=stream)
    for call in (
        lambda: session.prover.step(None),
        lambda: session.prover.step(session.second),
        lambda: session.verifier.step(session.first),
        lambda: session.verifier.step(session.third),
    ):
        with pytest.raises(MessageError, match="once, in order"):
            call()
    fresh = Verifier(session.terms, stream=stream)
    with pytest.raises(MessageError, match="message 1"):
        fresh.step(session.third)
    early = Prover(session.terms, open_counts([1], stream=stream), stream=stream)
    with pytest.raises(MessageError, match="once, in order"):
        early.step(session.second)


def test_a_bad_challenge_costs_the_prover_nothing(play, stream):
    terms = CountTerms.fresh(bins=1, coins=4, stream=stream)
    prover = Prover(terms, open_counts([1], stream=stream.child(1)), stream=stream.child(2))
    first = prover.step(None)
    judge = Verifier(terms, stream=stream.child(3))
    second = judge.step(first)
    other = CountTerms.fresh(bins=1, coins=4, stream=stream)
    for bad in (b"", second[:-1], second + b"\0", encode_seed(bytes(32), other), first):
        with pytest.raises(MessageError):
            prover.step(bad)
    judge.step(prover.step(second))


def test_replays_are_refused(play, stream):
    """A response, or a whole session, of another session, seed, or position."""
    one, two = (play([5, 6], coins=8, stream=stream.child(i)) for i in (1, 2))
    with pytest.raises(MessageError, match="session"):
        one.check(two.third)
    said = one.response
    swapped = replace(said, released=said.released[::-1], blindings=said.blindings[::-1])
    for response in (two.response, swapped):  # two's bytes under this session's header
        with pytest.raises(CheatingError):
            one.check(response)
    # the same session id, other coins
    judge = Verifier(one.terms, stream=stream.child("another verifier"))
    judge.step(one.first)
    with pytest.raises(CheatingError):
        judge.step(one.third)


def test_a_proof_moved_to_another_block(play, stream, monkeypatch):
    monkeypatch.setattr(terms_module, "_BLOCK", 2)
    session = play([0] * 4, coins=4, stream=stream)
    proofs = session.response.proofs
    for moved in (proofs[::-1], [proofs[0], proofs[0]]):
        with pytest.raises(CheatingError, match="block"):
            session.check(replace(session.response, proofs=moved))


def test_swapped_commitments_and_counts(play, stream):
    """In message 1, after the fact: two counts' commitments, two rows', a count's and a row's."""
    session = play([5, 6], coins=8, stream=stream)
    said, again = Commitments.decode(session.first, session.terms), stream.child("again")
    rest = session.second, session.third
    for i, j in ((0, 1), (2, 3), (0, 2)):
        other = [*said.counts, *said.rows]
        other[i], other[j] = other[j], other[i]
        first = Commitments(other[:2], other[2:]).encode(session.terms)
        with pytest.raises(CheatingError):
            parties.check_session(session.terms, first, *rest, stream=again)


def test_expected_counts(play, stream):
    session = play([5, 6], coins=8, stream=stream)
    counts = Commitments.decode(session.first, session.terms).counts
    judge = partial(Verifier, session.terms, stream=stream)
    judge(counts=counts).step(session.first)
    with pytest.raises(CheatingError, match="clients"):
        judge(counts=[counts[0], commit(6, 1)]).step(session.first)
    with pytest.raises(UsageError, match="counts"):
        judge(counts=counts[:1])


def test_a_refusal_is_final(play, stream):
    """After a bad message the verifier takes no other: nobody may try until something passes."""
    session = play([1], coins=4, stream=stream)
    judge, key = Verifier(session.terms, stream=stream.child("verifier")), Ed25519PrivateKey
    judge.step(session.first)
    wrong = replace(session.response, released=[session.released[0] + 1])
    with pytest.raises(CheatingError):
        judge.step(wrong.encode(session.terms))
    with pytest.raises(MessageError, match="refused"):
        judge.step(session.third)
    with pytest.raises(MessageError, match="once, in order"):
        judge.sign(key.generate())


@pytest.mark.parametrize("which", [0, 1, 2])
def test_truncated_and_lengthened_messages(which, play, stream):
    session = play([5, 6], coins=8, stream=stream)
    sent, again = [session.first, session.second, session.third], stream.child("again")
    own = sent[which]
    for data in (b"", own[:-1], own + b"\0", sent[which - 1], bytes(len(own))):
        changed = [*sent[:which], data, *sent[which + 1 :]]
        with pytest.raises(MessageError, match="message"):
            parties.check_session(session.terms, *changed, stream=again)


def test_without_a_stream_nothing_repeats(stream):
    """In real processes: the operating system's randomness, however often counts are released."""
    seen, terms = set(), CountTerms(bytes(32), 1, 400)
    for _ in range(3):
        prover, judge = Prover(terms, open_counts([0], stream=stream)), Verifier(terms)
        first = prover.step(None)
        second = judge.step(first)
        judge.step(prover.step(second))
        seen |= {first, second, open_counts([5])[0].commitment}
    assert len(seen) == 9


@pytest.mark.parametrize(
    ("session", "bins", "coins", "says"),
    [
        *((bytes(32), 1, coins, "coins=") for coins in (3, 0, 2.0, MOST_COINS + 2)),
        *((bytes(32), bins, 2, "bins=") for bins in (0, MOST_BINS + 1)),
        (b"short", 1, 2, "session"),
        (bytes(32), MOST_BINS, MOST_COINS, "joint-seeds"),
    ],
)
def test_terms_out_of_range(session, bins, coins, says):
    with pytest.raises(UsageError, match=says):
        CountTerms(session, bins, coins)


class WaitingProver(Prover):
    """LAB SPECIMEN: takes its bits after it has seen the coins, so that every flip shows a head."""

    def _respond(self, challenge):
        public = public_coins(self._terms, commitments=self._commitments, challenge=challenge)
        self._bits = self._terms.in_rows(1 - public, rest=0)
        return super()._respond(challenge)


class BiasedProver(Prover):
    """LAB SPECIMEN: adds 3 to what it releases."""

    def _respond(self, challenge):
        response = Response.decode(super()._respond(challenge), self._terms)
        return replace(response, released=[y + 3 for y in response.released]).encode(self._terms)


class NoiselessProver(Prover):
    """LAB SPECIMEN: takes the noise off again by opening another count than it committed to."""

    def _respond(self, challenge):
        public = public_coins(self._terms, commitments=self._commitments, challenge=challenge)
        bits = self._bits.reshape(self._terms.bins, -1)[:, : self._terms.coins]
        noise = (bits ^ public).sum(1, dtype=int) - self._terms.coins // 2
        self._openings = [
            replace(o, value=o.value - int(z)) for o, z in zip(self._openings, noise, strict=True)
        ]
        return super()._respond(challenge)


@pytest.mark.parametrize("cheat", [WaitingProver, BiasedProver, NoiselessProver])
def test_provers_that_cheat_are_caught(cheat, play, stream):
    with pytest.raises(CheatingError):
        play([10, 20], coins=24, stream=stream, of_prover=cheat)


def noise_of(play, stream, sessions, of_prover=Prover):
    out = []
    for number in range(sessions):
        session = play([50] * 40, coins=8, stream=stream.child(number), of_prover=of_prover)
        out += [y - 50 for y in session.released]
    return np.array(out)


def p_value(heads, coins):
    """Against Binomial(coins, 1/2), in cells of at least 10."""
    seen = np.bincount(heads, minlength=coins + 1)
    wanted = scipy.stats.binom.pmf(np.arange(coins + 1), coins, 0.5) * len(heads)
    keep = wanted > 10
    rest = len(heads) - wanted[keep].sum()
    seen_rest = seen[~keep].sum()
    if rest < 1e-9 * len(heads):
        return scipy.stats.chisquare(seen[keep], wanted[keep]).pvalue if seen_rest == 0 else 0.0
    return scipy.stats.chisquare([*seen[keep], seen_rest], [*wanted[keep], rest]).pvalue


class ZeroProver(Prover):
    """LAB SPECIMEN: its private bits are all 0."""

    def __init__(self, terms, openings, *, stream):
        super().__init__(terms, openings, stream=ZeroCoins(stream))


class ZeroCoins:
    def __init__(self, stream):
        self.stream = stream

    def child(self, *labels):
        return ZeroBytes() if labels[0] == "coins" else self.stream.child(*labels)


class ZeroBytes:
    def bytes(self, n):
        return bytes(n)


def constant_coins(terms, *, commitments, challenge):
    return np.ones((terms.bins, terms.coins), dtype=np.uint8)


@pytest.mark.slow
@pytest.mark.parametrize("dishonest", ["nobody", "prover", "verifier", "both"])
def test_one_honest_party_makes_the_noise_binomial(dishonest, play, stream, monkeypatch):
    """Bits all 0 with honest coins, coins all 1 with honest bits: 800 draws. Both: no noise."""
    if dishonest in {"verifier", "both"}:
        monkeypatch.setattr(parties, "public_coins", constant_coins)
    prover = ZeroProver if dishonest in {"prover", "both"} else Prover
    noise = noise_of(play, stream.child(dishonest), 4 if dishonest == "both" else 20, prover)
    if dishonest == "both":
        assert (noise == 4).all()
        assert p_value(noise + 4, 8) < 1e-100
    else:
        assert p_value(noise + 4, 8) > 1e-3


def test_the_test_of_the_law_has_power(stream):
    """800 draws tell Binomial(8, 0.55), and Binomial(10) cut to the range, from Binomial(8)."""
    rng = stream.numpy()
    assert p_value(rng.binomial(8, 0.55, 800), 8) < 1e-3
    assert p_value(np.clip(rng.binomial(10, 0.5, 800) - 1, 0, 8), 8) < 1e-3


def test_secrets_are_not_printed(stream):
    opening = open_counts([123456789], stream=stream)[0]
    assert "123456789" not in repr(opening)
    assert str(opening.blinding) not in f"{opening}"
    terms = CountTerms.fresh(bins=1, coins=2, stream=stream)
    with pytest.raises(UsageError) as caught:
        Prover(terms, [replace(opening, value=2**60)], stream=stream)
    assert str(2**60) not in str(caught.value)


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


@pytest.mark.parametrize(
    "query", [torch.tensor([[value]], dtype=torch.float64) for value in (0.5, 2.0**53, math.nan)]
)
def test_refuses_what_is_no_count(query, stream):
    for call in (VerifiableCounts(coins=4).release, VerifiableCounts(coins=4).rehearse):
        with pytest.raises(UsageError, match="query"):
            call(query, Gaussian(sigma=1.0), stream=stream)


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
    small = VerifiableCounts(coins=4).release(torch.ones(2, 3), Gaussian(), stream=stream)
    assert small.dtype == torch.float32
    assert torch.equal(small, small.round())
