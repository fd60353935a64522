"""Prover and verifier, honest and not: what is released, what is refused, the law of the noise."""

import hashlib
from dataclasses import replace

import numpy as np
import pytest
import scipy.stats
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from dpaudit.errors import CheatingError, MessageError, UsageError
from dpaudit_mitigations.verifiable_counts import prover as prover_module
from dpaudit_mitigations.verifiable_counts import verifier as verifier_module
from dpaudit_mitigations.verifiable_counts.client_records import make_record
from dpaudit_mitigations.verifiable_counts.commitments import commit, open_counts
from dpaudit_mitigations.verifiable_counts.messages import (
    Commitments,
    Response,
    check_signature,
    encode_seed,
    public_coins,
    wire_bytes,
)
from dpaudit_mitigations.verifiable_counts.prover import Prover
from dpaudit_mitigations.verifiable_counts.terms import MOST_BINS, MOST_COINS, CountTerms
from dpaudit_mitigations.verifiable_counts.verifier import Verifier


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


@pytest.mark.parametrize(
    ("counts", "coins"),
    [([0], 3), ([0], 0), ([0], 2.0), ([], 2), ([0], MOST_COINS + 2), ([0] * (MOST_BINS + 1), 2)],
)
def test_terms_out_of_range(counts, coins, stream):
    with pytest.raises(UsageError, match=r"(coins|bins)="):
        CountTerms.fresh(bins=len(counts), coins=coins, stream=stream)


def test_terms_refuse_a_session_of_another_length_and_more_than_one_takes(stream):
    with pytest.raises(UsageError, match="session"):
        CountTerms(b"short", 1, 2)
    with pytest.raises(UsageError, match="joint-seeds"):
        CountTerms(bytes(32), MOST_BINS, MOST_COINS)


def test_each_step_once_and_in_order(play, stream):
    session = play([1], coins=4, stream=stream)
    for call in (
        session.prover.commit,
        lambda: session.prover.respond(session.second),
        lambda: session.verifier.challenge(session.first),
        lambda: session.verifier.check(session.third),
    ):
        with pytest.raises(MessageError, match="once, in order"):
            call()
    fresh = Verifier(session.terms, stream=stream)
    with pytest.raises(MessageError, match="once, in order"):
        fresh.check(session.third)
    early = Prover(session.terms, open_counts([1], stream=stream), stream=stream)
    with pytest.raises(MessageError, match="once, in order"):
        early.respond(session.second)


def test_without_a_stream_nothing_repeats(stream):
    """In real processes: the operating system's randomness, however often counts are released."""
    seen = set()
    for _ in range(3):
        terms = CountTerms(bytes(32), 1, 400)
        prover, judge = Prover(terms, open_counts([0], stream=stream)), Verifier(terms)
        first = prover.commit()
        second = judge.challenge(first)
        judge.check(prover.respond(second))
        seen |= {first, second}
    assert len(seen) == 6


def test_one_stream_used_twice(play, stream):
    """A reused stream keeps the masks: other challenges, other masks; other terms, other rows."""
    terms = CountTerms(bytes(32), 1, 8)
    thirds, firsts = [], []
    for number in range(2):
        prover = Prover(
            terms, open_counts([0], stream=stream.child("counts")), stream=stream.child("prover")
        )
        judge = Verifier(terms, stream=stream.child("verifier", number))
        firsts.append(prover.commit())
        thirds.append(Response.decode(prover.respond(judge.challenge(firsts[-1])), terms))
    assert firsts[0] == firsts[1]
    assert thirds[0].proofs[0].row_mask != thirds[1].proofs[0].row_mask
    assert thirds[0].sums[0] != thirds[1].sums[0]
    for other, count in ((CountTerms(bytes([1] * 32), 1, 8), 0), (terms, 1)):
        prover = Prover(
            other,
            open_counts([count], stream=stream.child("counts")),
            stream=stream.child("prover"),
        )
        rows = [
            Commitments.decode(first, t).rows
            for first, t in ((firsts[0], terms), (prover.commit(), other))
        ]
        assert rows[0] != rows[1]


def test_counts_and_records_need_no_stream():
    """The operating system's randomness where none is given: the same count, another commitment."""
    assert open_counts([5])[0].commitment != open_counts([5])[0].commitment
    terms = CountTerms(bytes(32), 2, 4)
    assert make_record(1, terms, client=b"a")[0] != make_record(1, terms, client=b"a")[0]


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
    refused = Verifier(session.terms, stream=stream.child("verifier"))
    judge.challenge(session.first)
    refused.challenge(session.first)
    with pytest.raises(CheatingError):
        refused.check(
            replace(session.response, released=[session.released[0] + 1]).encode(session.terms)
        )
    for each in (Verifier(session.terms), judge, refused):
        with pytest.raises(MessageError, match="once, in order"):
            each.sign(key)


def test_a_refusal_is_final(play, stream):
    """After a bad message the verifier takes no other: nobody may try until something passes."""
    session = play([1], coins=4, stream=stream)
    judge = Verifier(session.terms, stream=stream.child("verifier"))
    judge.challenge(session.first)
    with pytest.raises(CheatingError):
        judge.check(
            replace(session.response, released=[session.released[0] + 1]).encode(session.terms)
        )
    with pytest.raises(MessageError, match="refused"):
        judge.check(session.third)


def test_a_bad_challenge_costs_the_prover_nothing(play, stream):
    terms = CountTerms.fresh(bins=1, coins=4, stream=stream)
    prover = Prover(terms, open_counts([1], stream=stream.child(1)), stream=stream.child(2))
    first = prover.commit()
    judge = Verifier(terms, stream=stream.child(3))
    second = judge.challenge(first)
    other = CountTerms.fresh(bins=1, coins=4, stream=stream)
    for bad in (b"", second[:-1], second + b"\0", encode_seed(bytes(32), other), first):
        with pytest.raises(MessageError):
            prover.respond(bad)
    judge.check(prover.respond(second))


def test_replays_are_refused(play, stream):
    """A response, or a whole session, of another session, seed, or position."""
    one = play([5, 6], coins=8, stream=stream.child(1))
    two = play([5, 6], coins=8, stream=stream.child(2))
    with pytest.raises(MessageError, match="session"):
        one.check(two.third)
    with pytest.raises(CheatingError):  # the same bytes under this session's header
        one.check(two.response)
    # the same session id, other coins
    judge = Verifier(one.terms, stream=stream.child("another verifier"))
    judge.challenge(one.first)
    with pytest.raises(CheatingError):
        judge.check(one.third)
    big = play(list(range(70)), coins=4, stream=stream.child(3))
    proofs = big.response.proofs
    assert len(proofs[0].quotients) != len(proofs[1].quotients) or proofs[0] != proofs[1]
    response = one.response
    swapped = replace(
        response, released=response.released[::-1], blindings=response.blindings[::-1]
    )
    with pytest.raises(CheatingError):
        one.check(swapped)


def test_a_proof_moved_to_another_block(play, stream, monkeypatch):
    from dpaudit_mitigations.verifiable_counts import terms as terms_module

    monkeypatch.setattr(terms_module, "_BLOCK", 2)
    session = play([0] * 4, coins=4, stream=stream)
    proofs = session.response.proofs
    for moved in (proofs[::-1], [proofs[0], proofs[0]]):
        with pytest.raises(CheatingError, match="block"):
            session.check(replace(session.response, proofs=moved))


def test_swapped_commitments_and_counts(play, stream):
    """In message 1, after the fact: two counts' commitments, two rows', a count's and a row's."""
    session = play([5, 6], coins=8, stream=stream)
    points = [*Commitments.decode(session.first, session.terms).counts]
    points += Commitments.decode(session.first, session.terms).rows
    for i, j in ((0, 1), (2, 3), (0, 2)):
        other = list(points)
        other[i], other[j] = other[j], other[i]
        first = Commitments(other[:2], other[2:]).encode(session.terms)
        with pytest.raises(CheatingError):
            verifier_module.check_session(
                session.terms, first, session.second, session.third, stream=stream.child("again")
            )


class WaitingProver(Prover):
    """LAB SPECIMEN: takes its bits after it has seen the coins, so that every flip shows a head."""

    def respond(self, challenge):
        public = public_coins(self._terms, commitments=self._commitments, challenge=challenge)
        self._bits = self._terms.in_rows(1 - public, rest=0)
        return super().respond(challenge)


class BiasedProver(Prover):
    """LAB SPECIMEN: adds 3 to what it releases."""

    def respond(self, challenge):
        response = Response.decode(super().respond(challenge), self._terms)
        return replace(response, released=[y + 3 for y in response.released]).encode(self._terms)


class NoiselessProver(Prover):
    """LAB SPECIMEN: takes the noise off again by opening another count than it committed to."""

    def respond(self, challenge):
        public = public_coins(self._terms, commitments=self._commitments, challenge=challenge)
        bits = self._bits.reshape(self._terms.bins, -1)[:, : self._terms.coins]
        noise = (bits ^ public).sum(1, dtype=int) - self._terms.coins // 2
        self._openings = [
            replace(o, value=o.value - int(z)) for o, z in zip(self._openings, noise, strict=True)
        ]
        return super().respond(challenge)


@pytest.mark.parametrize("cheat", [WaitingProver, BiasedProver, NoiselessProver])
def test_provers_that_cheat_are_caught(cheat, play, stream):
    with pytest.raises(CheatingError):
        play([10, 20], coins=24, stream=stream, of_prover=cheat)


def test_expected_counts(play, stream):
    session = play([5, 6], coins=8, stream=stream)
    counts = Commitments.decode(session.first, session.terms).counts
    Verifier(session.terms, stream=stream, counts=counts).challenge(session.first)
    with pytest.raises(CheatingError, match="clients"):
        Verifier(session.terms, stream=stream, counts=[counts[0], commit(6, 1)]).challenge(
            session.first
        )
    with pytest.raises(UsageError, match="counts"):
        Verifier(session.terms, stream=stream, counts=counts[:1])


def noise_of(play, stream, sessions, of_prover=Prover):
    out = []
    for number in range(sessions):
        session = play([50] * 40, coins=8, stream=stream.child(number), of_prover=of_prover)
        out += [y - 50 for y in session.released]
    return np.array(out)


def p_value(noise, coins=8):
    seen = np.bincount(noise + coins // 2, minlength=coins + 1)
    wanted = scipy.stats.binom.pmf(np.arange(coins + 1), coins, 0.5) * len(noise)
    return scipy.stats.chisquare(seen, wanted).pvalue


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


@pytest.mark.parametrize("dishonest", ["nobody", "prover", "verifier", "both"])
def test_one_honest_party_makes_the_noise_binomial(dishonest, play, stream, monkeypatch):
    """Bits all 0 with honest coins, coins all 1 with honest bits: 800 draws. Both: no noise."""
    if dishonest in {"verifier", "both"}:
        monkeypatch.setattr(prover_module, "public_coins", constant_coins)
        monkeypatch.setattr(verifier_module, "public_coins", constant_coins)
    prover = ZeroProver if dishonest in {"prover", "both"} else Prover
    noise = noise_of(play, stream.child(dishonest), 4 if dishonest == "both" else 20, prover)
    if dishonest == "both":
        assert (noise == 4).all()
        assert p_value(noise) < 1e-100
    else:
        assert p_value(noise) > 1e-3


def test_the_test_of_the_law_has_power(stream):
    """800 draws tell Binomial(8, 0.55), and Binomial(10) cut to the range, from Binomial(8)."""
    rng = stream.numpy()
    assert p_value(rng.binomial(8, 0.55, 800) - 4) < 1e-3
    assert p_value(np.clip(rng.binomial(10, 0.5, 800) - 5, -4, 4)) < 1e-3


@pytest.mark.parametrize("which", [0, 1, 2])
def test_truncated_and_lengthened_messages(which, play, stream):
    session = play([5, 6], coins=8, stream=stream)
    messages = [session.first, session.second, session.third]
    for data in (
        b"",
        messages[which][:-1],
        messages[which] + b"\0",
        messages[which - 1],
        bytes(len(messages[which])),
    ):
        changed = [*messages]
        changed[which] = data
        with pytest.raises(MessageError, match="message"):
            verifier_module.check_session(session.terms, *changed, stream=stream.child("again"))


def test_secrets_are_not_printed(stream):
    opening = open_counts([123456789], stream=stream)[0]
    assert "123456789" not in repr(opening)
    assert str(opening.blinding) not in f"{opening}"
    with pytest.raises(UsageError) as caught:
        Prover(
            CountTerms.fresh(bins=1, coins=2, stream=stream),
            [replace(opening, value=2**60)],
            stream=stream,
        )
    assert str(2**60) not in str(caught.value)
