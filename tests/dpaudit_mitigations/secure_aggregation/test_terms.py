"""What contributors must agree on is all in the digest; a stage takes what comes in time only."""

from dataclasses import replace

import numpy as np
import pytest

from dpaudit.errors import MessageError, ProtocolError, UsageError
from dpaudit.randomness import KeyedStream
from dpaudit_mitigations.secure_aggregation.gathering import Gathering, Stage
from dpaudit_mitigations.secure_aggregation.terms import RoundTerms

TERMS = RoundTerms(
    round="r",
    parties=("a", "b", "c", "d"),
    threshold=4,
    length=8,
    bound=100.0,
    sigma=4.0,
    bits=64,
    colluding=1,
)
OTHERS = {
    "round": "s",
    "parties": ("a", "b", "c", "e"),
    "threshold": 3,
    "length": 9,
    "bound": 101.0,
    "sigma": 4.5,
    "bits": 32,
    "colluding": 0,
    "law": "skellam",
}


def test_every_field_is_in_the_digest():
    digests = {
        TERMS.digest,
        *(replace(TERMS, **{name: value}).digest for name, value in OTHERS.items()),
    }
    assert len(digests) == 1 + len(OTHERS)
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


@pytest.mark.parametrize(
    "change",
    [
        {"round": ""},
        {"round": "a/b"},
        {"round": "x" * 65},
        {"parties": ("a", "a", "b", "c")},
        {"parties": ("a", "b")},
        {"parties": ("A", "b", "c", "d")},
        {"parties": tuple(f"p{i}" for i in range(501)), "threshold": 400},
        {"threshold": 5},
        {"threshold": 2},
        {"length": 0},
        {"sigma": -1.0},
        {"sigma": float("nan")},
        {"bound": float("inf")},
        {"bits": 16, "bound": 1e9, "sigma": 1e-3},
        {"law": "laplace"},
    ],
)
def test_terms_that_cannot_be(change):
    with pytest.raises(UsageError):
        replace(TERMS, **change)


def test_a_message_that_was_begun_in_time_and_ended_late_is_not_taken():
    taken = []
    stage = Stage("mask", ["a", "b"], take=lambda party, message: taken.append(party), seconds=0.05)
    stage.begin("a")
    stage.begin("b")
    stage.hand_in("a", b"")
    with stage.closing(lambda came: taken.append(sorted(came))):
        pass
    with pytest.raises(MessageError, match="too late"):
        stage.hand_in("b", b"")
    with pytest.raises(MessageError, match="too late"):
        stage.begin("c")
    assert taken == ["a", ["a"]]
    stage.answer({"a": b"yes"})
    stage.fail(ProtocolError("later"))  # an answered stage stays answered
    assert stage.await_answer("a") == b"yes"


def test_a_round_that_is_over_is_over_for_who_comes_later():
    gathering = Gathering({"join": lambda request: next(request)})
    handle = gathering.handlers["join"]
    with pytest.raises(MessageError, match="current stage"):
        list(handle("a", iter([b""])))
    gathering.open(Stage("join", ["a"], take=lambda *_: None, seconds=9))
    gathering.fail(ProtocolError("the end"))
    with pytest.raises(ProtocolError, match="the end"):
        list(handle("a", iter([b""])))


def test_a_sender_that_breaks_off_is_not_waited_for():
    gathering = Gathering({"join": lambda request: next(request)})
    stage = gathering.open(Stage("join", ["a"], take=lambda *_: None, seconds=60))

    def breaking():
        raise MessageError("broken")
        yield b""

    with pytest.raises(MessageError, match="broken"):
        list(gathering.handlers["join"]("a", breaking()))
    came = []
    with stage.closing(came.append):
        assert came == [set()]
        assert stage._left() > 30
