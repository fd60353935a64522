"""The whole round: the sum is exact whoever drops out and when, or nothing comes out at all."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpaudit.errors import MessageError, ProtocolError, UsageError
from dpaudit.randomness import KeyedStream
from dpaudit_mitigations.secure_aggregation.keys import new_signing_key, public_bytes
from dpaudit_mitigations.secure_aggregation.plan import Plan, least_threshold
from dpaudit_mitigations.secure_aggregation.simulation import AGGREGATOR, party_names, simulate

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


def test_ten_parties_three_dropouts_at_three_stages_and_the_wire():
    d = 50_000
    vectors = [np.full(d, i + 1, dtype=np.uint32) for i in range(10)]
    outcome = simulate(
        [v.copy() for v in vectors],
        length=d,
        bits=32,
        stream=KeyedStream.from_seed(1),
        dropouts={"share": [0], "mask": [4], "unmask": [9]},
    )
    assert (outcome.total == sum(range(1, 11)) - 1 - 5).all()
    bytes_each = {name: n for name, n in outcome.sent.items() if name != AGGREGATOR}
    assert max(bytes_each.values()) <= 1.05 * 4 * d
    assert outcome.wire == sum(outcome.sent.values())
    assert bytes_each["party-005"] < 2000  # it left before its vector


def test_a_masked_vector_says_nothing_and_neither_does_a_partial_sum(make_round):
    r = make_round(4, length=20_000).until("confirm")
    for name in r.names:
        assert (r.masked[name] != r.vectors[name]).mean() > 0.99
    masked_sum = sum(r.masked.values())
    # the own masks are still on: pair masks alone cancel
    assert (masked_sum != r.expected(r.names)).mean() > 0.99


def test_below_the_threshold_ends_the_round_for_good(make_round):
    for stage, close in (
        ("advertise", "close_adverts"),
        ("share", "close_shares"),
        ("mask", "close_masked"),
        ("confirm", "close_confirmations"),
        ("unmask", "finish"),
    ):
        r = make_round(4).until(stage)
        with pytest.raises(ProtocolError, match=r"0 of 4 parties .*below the threshold of 3"):
            getattr(r.server, close)()
        assert r.server.stage == "ended"
        assert r.server._total is None
        with pytest.raises(UsageError, match="cannot close"):
            getattr(r.server, close)()


def test_order_of_parties_and_of_arrival_does_not_matter(make_round):
    r = make_round(5).until("mask")
    total = None
    for order in (r.names, r.names[::-1]):
        r = make_round(5).until("mask")
        r.mask(order)
        r.confirm(order)
        total = r.unmask(order[:3]).total
        assert np.array_equal(total, r.expected(r.names))


def test_server_refuses_unknown_parties_repeats_and_steps_out_of_order(make_round):
    r = make_round(4)
    advert = r.clients["a"].advertise()
    with pytest.raises(MessageError, match="not asked for"):
        r.server.take_advert("zoe", advert)
    with pytest.raises(MessageError, match="another party"):
        r.server.take_advert("b", advert)
    r.server.take_advert("a", advert)
    with pytest.raises(MessageError, match="repeated, or not asked for"):
        r.server.take_advert("a", advert)
    with pytest.raises(MessageError, match="the round is at advertise"):
        r.server.take_masked("a", r.vectors["a"])
    r = make_round(4).until("mask")
    for bad in (
        r.vectors["a"][:-1],
        r.vectors["a"].astype(np.uint64),
        r.vectors["a"].astype(np.int32),
    ):
        with pytest.raises(MessageError, match="not of this plan"):
            r.server.take_masked("a", bad)
    assert r.server.expected == tuple(r.names)  # nothing counted


def test_a_client_gives_each_answer_once(make_round):
    r = make_round(4).until("confirm")
    client = r.clients["a"]
    client.confirm(r.survivors)
    with pytest.raises(MessageError, match="out of order or repeated"):
        client.confirm(r.survivors)
    assert client.ended
    with pytest.raises(MessageError, match="out of order or repeated"):
        client.unmask(b"")


def test_vectors_are_masked_in_place_and_wrong_ones_leave_the_client_ready(make_round):
    r = make_round(3).until("mask")
    client = r.clients["a"]
    client.open_envelopes(r.envelopes["a"])
    frozen = r.vectors["a"].copy()
    frozen.flags.writeable = False
    for bad in (
        np.zeros(5, np.int32),
        np.zeros(4, np.uint32),
        np.zeros(10, np.uint32)[::2],
        frozen,
    ):
        with pytest.raises(UsageError, match="vector"):
            client.masked_input(bad)
    mine = r.vectors["a"].copy()
    assert client.masked_input(mine) is mine
    assert not np.array_equal(mine, r.vectors["a"])


def plan(**changes):
    keys = {n: public_bytes(new_signing_key(KeyedStream.from_seed(n))) for n in "abcdef"}
    return Plan(**{"round": bytes(16), "roster": keys, "threshold": 4, "length": 7, **changes})


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"round": b"1"}, "round of 1 bytes"),
        ({"roster": {"a": bytes(32), "b": bytes([1]) * 32}}, "3 to 1000"),
        ({"roster": {c: bytes(32) for c in "abc"}, "threshold": 2}, "same public key"),
        ({"roster": {c: bytes([i]) * 31 for i, c in enumerate("abc")}}, "31 bytes"),
        ({"roster": {c: bytes([i]) * 32 for i, c in enumerate(["a", "b", "-c"])}}, "roster name"),
        ({"threshold": 3}, "threshold=3: takes 4"),
        ({"threshold": 7}, "threshold=7"),
        ({"colluding": 2}, "threshold=4: takes 5"),
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
    others = [
        {"round": bytes([1]) * 16},
        {"threshold": 5},
        {"length": 8},
        {"bits": 64},
        {"colluding": 1},
        {"context": b"x"},
    ]
    others.append({"roster": {**base.roster, "f": bytes(32)}})
    assert len({base.digest, *(plan(**o).digest for o in others)}) == len(others) + 1


def test_no_threshold_allows_two_signed_lists():
    """t signatures, c of n parties sign twice: 2t − c ≤ n must be impossible, not for t − 1."""
    for n in range(3, 30):
        for c in range(n - 1):
            t = least_threshold(n, colluding=c)
            assert 2 * t - c > n >= 2 * (t - 1) - c


def test_bad_simulations():
    vectors = [np.zeros(3, np.uint32) for _ in range(3)]
    settings_ = {"length": 3, "bits": 32, "stream": KeyedStream.from_seed(0)}
    for dropouts, says in (
        ({"lunch": [0]}, "lunch"),
        ({"mask": [3]}, "party 3"),
        ({"mask": [0], "share": [0]}, "two stages"),
    ):
        with pytest.raises(UsageError, match=says):
            simulate(vectors, dropouts=dropouts, **settings_)
