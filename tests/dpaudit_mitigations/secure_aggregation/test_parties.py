"""A round among processes as state machines: from certificates to the file's digest, no socket."""

import hashlib

import numpy as np
import pytest

from dpaudit.errors import MessageError, PeerError, ProtocolError
from dpaudit.protocols import Hub, Party
from dpaudit.randomness import KeyedStream
from dpaudit_mitigations.rehearsal import Meter, gather
from dpaudit_mitigations.secure_aggregation.client import Contributor
from dpaudit_mitigations.secure_aggregation.mitigation import _Leaving
from dpaudit_mitigations.secure_aggregation.server import RoundServer
from dpaudit_mitigations.secure_aggregation.terms import RoundTerms
from dpaudit_mitigations.secure_aggregation.wire import VECTOR_KIND
from dpaudit_mitigations.transport.certificates import load_identity, make_authority
from dpaudit_mitigations.transport.journal import Journal
from dpaudit_mitigations.transport.vectors import read_vector

NAMES = ("alice", "bob", "carol", "dave")
STAGES = ("join", "advertise", "share", "mask", "confirm", "unmask")
TERMS = RoundTerms(
    round="r", parties=NAMES, threshold=3, length=50, bound=2.0**20, sigma=0.0, colluding=0
)
VALUES = {name: np.arange(50.0) * 2.0**i for i, name in enumerate(NAMES)}


@pytest.fixture(scope="module")
def identities(tmp_path_factory):
    folder = tmp_path_factory.mktemp("certificates") / "c"
    make_authority(folder, ["aggregator", *NAMES])
    return {name: load_identity(folder / name) for name in ("aggregator", *NAMES)}


@pytest.fixture
def parties(identities, tmp_path):
    """The contributors, each with a journal of its own."""
    journals = {name: Journal(tmp_path / f"{name}.sqlite", kind="contributor") for name in NAMES}
    yield {
        name: Contributor(
            TERMS,
            identity=identities[name],
            vector=TERMS.encode(VALUES[name], stream=KeyedStream.from_seed(name).child("noise")),
            stream=KeyedStream.from_seed(name),
            journal=journals[name],
        )
        for name in NAMES
    }
    for journal in journals.values():
        journal.close()


@pytest.fixture
def server(identities):
    return RoundServer(TERMS, authority=identities["aggregator"].authority)


def run(server, parties):
    """The whole round."""

    def carry(_, message):
        if isinstance(message, bytes):
            return message
        return read_vector(message, kind=VECTOR_KIND, **server.plan.vector)

    gather(server, parties, meter=Meter(), name="aggregator", carry=carry)


def test_a_round_and_what_everybody_knows_at_its_end(server, parties):
    assert isinstance(server, Hub)
    assert all(isinstance(party, Party) for party in parties.values())
    run(server, parties)
    content = b"".join(map(bytes, server.release.parts))
    assert hashlib.sha256(content).hexdigest() == server.release.sha256
    total = np.frombuffer(content[-400:], "<f8")
    assert np.array_equal(total, sum(VALUES.values()))
    assert server.release.survivors == NAMES


@pytest.mark.parametrize("stage", STAGES)
def test_a_dropped_contributor(server, parties, stage):
    leaving = {"dave": _Leaving(parties["dave"], steps=STAGES.index(stage))}
    run(server, parties | leaving)
    before = ("join", "advertise", "share", "mask")
    assert server.release.survivors == (NAMES[:3] if stage in before else NAMES)
    with pytest.raises(ProtocolError, match="the round is over"):
        server.step({})


def test_too_few_reveal_nothing(server, parties):
    leaving = {name: _Leaving(parties[name], steps=3) for name in ("carol", "dave")}
    with pytest.raises(ProtocolError, match="below the threshold of 3"):
        run(server, parties | leaving)
    assert server.done
    assert server.release is None


@pytest.mark.parametrize("stage", STAGES)
def test_a_corrupted_answer_ends_its_contributor(server, parties, stage):
    """One digit of the aggregator's ``stage``-th answer to dave is another."""
    answers = iter(range(100))

    class Dave:
        done = False

        def step(self, message):
            if message is not None and next(answers) == STAGES.index(stage):
                at = message.rindex(b'"', 0, len(message) - 3) + 3
                message = message[:at] + bytes([message[at] ^ 1]) + message[at + 1 :]
            return parties["dave"].step(message)

    if stage == "unmask":  # it comes after the sum
        run(server, parties | {"dave": Dave()})
        return
    with pytest.raises(ProtocolError):
        run(server, parties | {"dave": Dave()})
    assert parties["dave"].done
    assert parties["dave"].receipt is None


def test_messages_repeated_or_out_of_order(server, parties):
    introduction = parties["alice"].step(None)
    with pytest.raises(PeerError, match="another party's"):
        server.step({"bob": introduction})
    server.step({"alice": introduction})
    for sender in ("alice", "zoe"):
        with pytest.raises(MessageError, match="repeated, or not asked for"):
            server.step({sender: introduction})
    with pytest.raises(MessageError, match="out of order"):
        parties["alice"].step(None)
    assert parties["alice"].done
    with pytest.raises(MessageError, match="out of order"):
        parties["bob"].step(introduction)
    with pytest.raises(ProtocolError, match="1 of 4 parties joined"):
        server.step({})
    assert server.done
    assert server.expected == ()
    with pytest.raises(MessageError, match="not asked for"):
        server.step({"carol": parties["carol"].step(None)})
    with pytest.raises(MessageError, match="the round is over"):
        server.step({})


def test_a_contributor_that_has_refused_keeps_no_secret(server, parties):
    for name, party in parties.items():
        server.step({name: party.step(None)})
    rosters = server.step({})
    with pytest.raises(ProtocolError):
        parties["alice"].step(b"{}")
    parties["bob"].step(rosters["bob"])
    parties["carol"].step(rosters["carol"])
    with pytest.raises(MessageError, match="out of order"):
        parties["bob"].step(None)
    for name in ("alice", "bob", "carol"):
        assert parties[name]._secrets is None
    assert parties["bob"]._client.done
    assert not parties["carol"]._client.done
