"""The whole round: the sum is exact whoever drops out and when, or nothing comes out at all."""

import time
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpaudit.errors import MessageError, ProtocolError, UsageError
from dpaudit.randomness import KeyedStream
from dpaudit_mitigations.secure_aggregation.client import Client
from dpaudit_mitigations.secure_aggregation.keys import new_signing_key, public_bytes
from dpaudit_mitigations.secure_aggregation.mitigation import party_names, simulate
from dpaudit_mitigations.secure_aggregation.network import HubServer
from dpaudit_mitigations.secure_aggregation.plan import Plan, least_threshold
from dpaudit_mitigations.secure_aggregation.terms import RoundTerms

STAGES = ("advertise", "share", "mask", "confirm", "unmask")


@st.composite
def rounds(draw):
    n = draw(st.integers(3, 7))
    colluding = draw(st.integers(0, max(0, n - 3)))
    threshold = draw(st.integers(least_threshold(n, colluding=colluding), n))
    gone = {i: draw(st.sampled_from(STAGES)) for i in draw(st.sets(st.integers(0, n - 1)))}
    length = draw(st.integers(1, 40))
    bits = draw(st.sampled_from([16, 32, 64]))
    return n, colluding, threshold, gone, length, bits, draw(st.integers(0, 2**32))


@pytest.mark.slow
@given(rounds())
def test_sum_is_exact_or_nothing_comes_out(case):
    n, colluding, threshold, gone, length, bits, seed = case
    rng = np.random.default_rng(seed)
    vectors = [
        rng.integers(0, 2**bits, length, dtype=np.uint64).astype(f"<u{bits // 8}") for _ in range(n)
    ]
    dropouts = {stage: [i for i, s in gone.items() if s == stage] for stage in STAGES}

    def run():
        return simulate(
            [v.copy() for v in vectors],
            length=length,
            bits=bits,
            stream=KeyedStream.from_seed(seed),
            threshold=threshold,
            colluding=colluding,
            dropouts=dropouts,
        )

    if n - len(gone) < threshold:
        with pytest.raises(ProtocolError, match="below the threshold"):
            run()
        return
    outcome = run()
    alive = [i for i in range(n) if gone.get(i) not in ("advertise", "share", "mask")]
    assert outcome.survivors == tuple(party_names(n)[i] for i in alive)
    # Python's own integers
    plain = [sum(int(vectors[i][k]) for i in alive) % 2**bits for k in range(length)]
    assert outcome.total.tolist() == plain


def test_below_the_threshold_ends_the_round_for_good(make_round):
    for stage in STAGES:
        r = make_round(4).until(stage)
        with pytest.raises(ProtocolError, match=r"threshold of 3"):
            r.server.step({})
        assert r.server.done
        assert r.server._total is r.server.release is None
        with pytest.raises(MessageError, match="the round is over"):
            r.server.step({})


def test_order_of_parties_and_of_arrival_does_not_matter(make_round):
    for order in (1, -1):
        r = make_round(5).until("mask")
        r.mask(r.names[::order])
        r.confirm(r.names[::order])
        assert np.array_equal(r.unmask(r.names[::order][:3]).total, r.expected(r.names))


def test_server_refuses_unknown_parties_repeats_and_messages_out_of_order(make_round):
    r = make_round(4)
    advert = r.clients["a"].step(None)
    with pytest.raises(MessageError, match="not asked for"):
        r.server.step({"zoe": advert})
    with pytest.raises(MessageError, match="another party"):
        r.server.step({"b": advert})
    r.server.step({"a": advert})
    with pytest.raises(MessageError, match="at stage advertise: repeated"):
        r.server.step({"a": advert})
    for early in (r.vectors["b"], advert[:-1]):
        with pytest.raises(MessageError, match="message advert"):
            r.server.step({"b": early})
    assert r.server.expected == ("b", "c", "d")
    r = make_round(4).until("mask")
    own = r.vectors["a"]
    for bad in (own[:-1], own.astype(np.uint64), own.astype(np.int32)):
        with pytest.raises(MessageError, match="not of this plan"):
            r.server.step({"a": bad})
    with pytest.raises(MessageError, match="another kind"):
        r.server.step({"a": r.sent["shares", "a"]})
    assert r.server.expected == tuple(r.names)  # nothing counted


@pytest.mark.parametrize("stage", STAGES[1:])
@pytest.mark.parametrize("fault", ["dropped", "repeated", "out of order", "corrupted"])
def test_a_client_leaves_at_the_first_fault_and_the_others_have_their_sum(make_round, stage, fault):
    r = make_round(4).until(stage)
    answers = {"share": r.adverts, "mask": getattr(r, "envelopes", {}).get("d")}
    answers |= {"confirm": getattr(r, "survivors", b""), "unmask": getattr(r, "confirmations", b"")}
    message, victim = answers[stage], r.clients["d"]
    if fault == "repeated":
        assert victim.step(message) is not None
    if fault != "dropped":
        wrong = {"out of order": r.sent["advert", "a"], "corrupted": message[:-9] + message[-8:]}
        with pytest.raises(ProtocolError):
            victim.step(wrong.get(fault, message))
        assert victim.done
        assert victim._keys is victim._signing_key is victim._vector is None
        with pytest.raises(MessageError, match="it has left the round"):
            victim.step(message)
    for name in STAGES[STAGES.index(stage) :]:
        total = getattr(r, name)("abc")
    alive = "abc" if stage in ("share", "mask") else "abcd"
    assert total.survivors == tuple(alive)
    assert np.array_equal(total.total, r.expected(alive))


def test_vectors_are_masked_in_place_and_wrong_ones_are_refused_at_once(make_round):
    r = make_round(3)

    def client(vector):
        stream, key = KeyedStream.fresh(), r.signing["a"]
        return Client(r.plan, "a", vector=vector, signing_key=key, stream=stream)

    frozen = r.vectors["a"].copy()
    frozen.flags.writeable = False
    wrong = np.zeros(5, np.int32), np.zeros(4, np.uint32), np.zeros(10, np.uint32)[::2], frozen
    for bad in wrong:
        with pytest.raises(UsageError, match="vector"):
            client(bad)
    mine = r.vectors["a"].copy()
    r.clients["a"], r.clients["b"] = client(mine), client(lambda: wrong[0])
    r.clients["b"].name, r.clients["b"]._signing_key = "b", r.signing["b"]
    r.until("mask")
    assert r.clients["a"].step(r.envelopes["a"]) is mine
    assert not np.array_equal(mine, r.vectors["a"])
    with pytest.raises(UsageError, match="vector"):
        r.clients["b"].step(r.envelopes["b"])
    assert r.clients["b"].done


def plan(**changes):
    keys = {n: public_bytes(new_signing_key(KeyedStream.from_seed(n))) for n in "abcdef"}
    return Plan(**{"round": bytes(16), "roster": keys, "threshold": 4, "length": 7, **changes})


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"round": b"1"}, "round"),
        ({"roster": {"a": bytes(32), "b": bytes([1]) * 32}}, "roster"),
        ({"roster": {c: bytes(32) for c in "abc"}, "threshold": 2}, "same public key"),
        ({"roster": {c: bytes([i]) * 31 for i, c in enumerate("abc")}}, "31 bytes"),
        ({"roster": {c: bytes([i]) * 32 for i, c in enumerate(["a", "b", "-c"])}}, "roster name"),
        ({"threshold": 3}, "threshold=3"),
        ({"threshold": 7}, "threshold=7"),
        ({"colluding": 2}, "threshold=4"),
        ({"colluding": 5}, "colluding=5"),
        ({"length": 0}, "length=0"),
        ({"bits": 24}, "bits=24"),
        ({"context": bytes(2000)}, "context"),
    ],
)
def test_plans_that_cannot_be(changes, says):
    with pytest.raises(UsageError, match=says):
        plan(**changes)


def test_every_field_of_a_plan_is_in_its_digest():
    base = plan()
    others = {"round": bytes([1]) * 16, "threshold": 5, "length": 8, "bits": 64, "colluding": 1}
    others |= {"context": b"x", "roster": {**base.roster, "f": bytes(32)}}
    digests = {plan(**{name: value}).digest for name, value in others.items()}
    assert len({base.digest, *digests}) == 8


def test_no_threshold_allows_two_signed_lists():
    """t signatures, c of n parties sign twice: 2t − c ≤ n must be impossible, not for t − 1."""
    for n in range(3, 30):
        for c in range(n - 1):
            t = least_threshold(n, colluding=c)
            assert 2 * t - c > n >= 2 * (t - 1) - c


TERMS = RoundTerms(
    round="r", parties=("a", "b", "c", "d"), threshold=4, length=8, bound=100.0, sigma=4.0,
    bits=64, colluding=1,
)  # fmt: skip
OTHERS = {
    "round": "s", "parties": ("a", "b", "c", "e"), "threshold": 3, "length": 9, "bound": 101.0,
    "sigma": 4.5, "bits": 32, "colluding": 0, "law": "skellam",
}  # fmt: skip
BAD = [
    {"round": ""}, {"round": "a/b"}, {"round": "x" * 65}, {"parties": ("a", "a", "b", "c")},
    {"parties": ("a", "b")}, {"parties": ("A", "b", "c", "d")}, {"threshold": 5}, {"threshold": 2},
    {"parties": tuple(f"p{i}" for i in range(501)), "threshold": 400}, {"length": 0},
    {"sigma": -1.0}, {"sigma": np.nan}, {"bound": np.inf}, {"law": "laplace"},
    {"bits": 16, "bound": 1e9, "sigma": 1e-3},
]  # fmt: skip


@pytest.mark.parametrize("change", BAD)
def test_terms_that_cannot_be(change):
    with pytest.raises(UsageError):
        replace(TERMS, **change)


def test_every_field_is_in_the_digest():
    digests = {replace(TERMS, **{name: value}).digest for name, value in OTHERS.items()}
    assert len({TERMS.digest, *digests}) == 1 + len(OTHERS)
    assert replace(TERMS, parties=TERMS.parties[::-1]).digest == TERMS.digest


def test_shares_are_for_the_least_honest_survivors_and_the_ring_has_room_for_them():
    assert TERMS.honest == 3
    assert TERMS.share.sigma == pytest.approx(4 / np.sqrt(3))
    assert TERMS.ring.sigma == pytest.approx(TERMS.share.sigma)
    assert TERMS.ring.reach * TERMS.ring.granularity >= 8.5 * TERMS.share.sigma
    assert TERMS.share.granularity == TERMS.ring.granularity
    assert replace(TERMS, sigma=0.0).share is None


def test_encoding_refuses_before_anything_is_sent():
    plain = replace(TERMS, sigma=0.0)
    assert np.array_equal(
        plain.ring.decode(plain.encode(np.arange(8.0), stream=KeyedStream.fresh())), np.arange(8.0)
    )
    with pytest.raises(UsageError, match="shape"):
        TERMS.encode(np.zeros(7), stream=KeyedStream.fresh())
    for bad in (100.5, np.nan, np.inf):
        with pytest.raises(UsageError, match="beyond bound"):
            TERMS.encode(np.full(8, bad), stream=KeyedStream.fresh())


class OneStage:
    """A hub that asks a and b once."""

    def __init__(self):
        self.stage, self.taken = "join", []

    @property
    def expected(self):
        return [name for name in "ab" if name not in self.taken]

    def step(self, inbox):
        if inbox:
            self.taken.extend(inbox)
            return {}
        self.stage = "ended"
        return dict.fromkeys(self.taken, b"yes")


@pytest.fixture
def server():
    return HubServer(OneStage(), {"join": next})


def test_a_message_that_was_begun_in_time_and_ended_late_is_not_taken(server):
    handle, noted = server.handlers["join"], []

    def slow():
        with server.closing(0.05, lambda stage, parties: noted.append((stage, [*parties]))):
            pass
        yield b"late"

    server._begin("join", "a")
    server._take("join", "a", b"")
    with pytest.raises(MessageError, match="a second time"):
        list(handle("a", iter([b""])))
    with pytest.raises(MessageError, match="not asked"):
        list(handle("zoe", iter([b""])))
    for request in (slow(), iter([b""])):
        with pytest.raises(MessageError, match="too late"):
            list(handle("b", request))
    assert noted == [("join", ["b"])]
    assert server.hub.taken == ["a"]
    server.fail(ProtocolError("later"))  # an answered stage stays answered
    assert server._await_answer("join", "a") == b"yes"


def test_a_round_that_is_over_is_over_for_who_comes_later(server):
    server.fail(ProtocolError("the end"))
    with pytest.raises(ProtocolError, match="the end"):
        list(server.handlers["join"]("a", iter([b""])))


def test_a_sender_that_breaks_off_is_not_waited_for(server):
    def breaking():
        raise MessageError("broken")
        yield b""

    for name in "ab":
        with pytest.raises(MessageError, match="broken"):
            list(server.handlers["join"](name, breaking()))
    began = time.monotonic()
    with server.closing(60, lambda *_: None):
        pass
    assert time.monotonic() - began < 30
    assert server.hub.taken == []
