"""Two servers as state machines: no socket, each fault by hand, and nothing is published by one."""

import numpy as np
import pytest

from dpaudit.errors import MessageError, PeerError, UsageError
from dpaudit.protocols import Party
from dpaudit_mitigations.transport.connection import Log, follow
from dpaudit_mitigations.two_servers.agreement import PUBLISH, TERMS, ReleaseTerms
from dpaudit_mitigations.two_servers.answer_side import Answer, AnswerSide, Question
from dpaudit_mitigations.two_servers.noise_side import NoiseSide

VALUES = np.array([1.5, -2.25, 314.15927, 0.0, 7.0, -960.0])
QUESTION = Question(VALUES, release="week-7", sigma=2.0, peer_sigma=2.0)


@pytest.fixture
def two(tmp_path):
    """The two sides, and a call from one to the other."""
    for name in ("answer", "noise"):
        (tmp_path / name).mkdir()
    answer = AnswerSide(journal=tmp_path / "answer", log=Log("answer"))
    noise = NoiseSide(
        terms=ReleaseTerms(dim=6, bound=1000.0, sigma=2.0),
        peer="answer",
        journal=tmp_path / "noise",
        publish=tmp_path / "published",
        log=Log("noise"),
    )

    def ask(method, messages):
        (reply,) = noise.handlers[method]("answer", iter(messages))
        return reply

    yield answer, ask
    answer.close()
    noise.close()


def party(side, question=QUESTION):
    return Answer(question, side=side, peer="noise")


def published(tmp_path):
    return sorted(path.name for path in (tmp_path / "published").glob("*.npy"))


def at_publish(side, ask):
    """A party that waits for the receipt, and its messages."""
    waiting = party(side)
    return waiting, waiting.step(ask(TERMS, waiting.step(None)))


def test_a_release_and_its_second_life(two, tmp_path):
    side, ask = two
    first = party(side)
    assert isinstance(first, Party)
    assert follow(first, ask) == [TERMS, PUBLISH]
    assert first.done
    release = np.load(tmp_path / "published" / "week-7@0.npy")
    assert np.abs(release - VALUES).max() < 8 * 2.0 * 2**0.5
    again = party(side)  # published: it asks for nothing
    assert follow(again, ask) == []
    assert again.receipt == first.receipt


def test_a_dropped_server_gets_the_same_messages_again(two, tmp_path):
    side, ask = two

    def gone(method, messages):
        if method == PUBLISH:
            raise PeerError("gone")
        return ask(method, messages)

    with pytest.raises(PeerError):
        follow(party(side), gone)
    waiting, messages = party(side), None
    messages = waiting.step(None)  # it resumes: no terms are asked for
    assert waiting.stage == PUBLISH
    assert list(messages) == list(messages)
    cut = list(messages)[:-1]
    with pytest.raises(MessageError, match="cut short"):
        ask(PUBLISH, cut)
    assert published(tmp_path) == []
    assert follow(party(side), ask) == [PUBLISH]
    assert published(tmp_path) == ["week-7@0.npy"]


def test_a_repeated_message_and_one_out_of_order_end_a_party(two, tmp_path):
    side, ask = two
    terms = ask(TERMS, ())
    for messages in ([None, None], [terms], [None, terms, terms]):
        fresh = party(side)
        for message in messages[:-1]:
            fresh.step(message)
        with pytest.raises(MessageError):
            fresh.step(messages[-1])
        assert fresh.done
        with pytest.raises(MessageError, match="after the end"):
            fresh.step(terms)
    assert published(tmp_path) == []
    waiting = party(side)
    messages = waiting.step(None)
    receipt = ask(PUBLISH, messages)
    assert ask(PUBLISH, messages) == receipt  # server 2 answers a repeat, and publishes once
    assert waiting.step(receipt) is None
    with pytest.raises(MessageError, match="after the end"):
        waiting.step(receipt)


def test_corrupted_messages_settle_nothing(two, tmp_path):
    side, ask = two
    terms = ask(TERMS, ())
    for bad in (
        b"",
        terms[:-1],
        terms.replace(b"1000.0", b"9.0"),
        terms.replace(b"terms", b"teams"),
    ):
        fresh = party(side)
        fresh.step(None)
        with pytest.raises((MessageError, UsageError)):
            fresh.step(bad)
        assert side.journal.state("week-7@0") is None
    waiting, messages = at_publish(side, ask)
    frames = list(messages)
    for at in (0, 1, 2):
        broken = [*frames[:at], frames[at][:-1] + bytes([frames[at][-1] ^ 1]), *frames[at + 1 :]]
        with pytest.raises(MessageError):
            ask(PUBLISH, broken)
    assert published(tmp_path) == []
    receipt = ask(PUBLISH, frames)
    with pytest.raises(MessageError, match="not for what was sent"):
        waiting.step(receipt.replace(b'"round":0', b'"round":1'))
    assert side.journal.state("week-7@0") == "sent"
    assert list((tmp_path / "answer").glob("*.seed"))  # so it can still be finished
    assert follow(party(side), ask) == [PUBLISH]
    assert side.journal.state("week-7@0") == "published"
