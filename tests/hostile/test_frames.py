"""Hostile messages of the networked mitigations, at the code that a peer's bytes reach after gRPC's own limits."""

from __future__ import annotations

import copy
import random
from functools import partial

import msgpack
import numpy as np
import pytest
from hostile.fuzzing import fuzzed, refuses_or_reads
from hostile.mutated_bytes import mutated, mutations
from hostile.mutated_values import with_odd_fields
from hypothesis import given
from hypothesis import strategies as st

from dpaudit.errors import MessageError
from dpaudit.randomness import KeyedStream
from dpaudit_mitigations.secure_aggregation.client import Client
from dpaudit_mitigations.secure_aggregation.keys import new_signing_key, public_bytes
from dpaudit_mitigations.secure_aggregation.plan import Plan, least_threshold
from dpaudit_mitigations.secure_aggregation.server import Server
from dpaudit_mitigations.transport.logs import Log
from dpaudit_mitigations.transport.messages import LARGEST, kind_of, pack, unpack
from dpaudit_mitigations.transport.vectors import read_vector, vector_frames
from dpaudit_mitigations.two_servers.noise_side import NoiseSide
from dpaudit_mitigations.two_servers.words import VECTOR, Offer, Receipt, Terms
from dpaudit_mitigations.verifiable_counts.client_records import check_record, make_record
from dpaudit_mitigations.verifiable_counts.commitments import open_counts
from dpaudit_mitigations.verifiable_counts.prover import Prover
from dpaudit_mitigations.verifiable_counts.terms import Terms as CountTerms
from dpaudit_mitigations.verifiable_counts.verifier import Verifier

ROOT = KeyedStream.from_seed("hostile frames")
WORDS = [
    b"\xc0",
    b"\xc1",
    b"\xc7\x01\x01",
    b"\xd4\x01\0",
    b"\xdd\xff\xff\xff\xff",
    b"\xdf\x7f\xff\xff\xff",
    b"\x91" * 40,
]
WORDS += [
    b"\xc6\xff\xff\xff\xff",
    b"\xdb\x7f\xff\xff\xff",
    b"\xcb\x7f\xf8" + bytes(6),
    b"\xa4kind",
    b"\x81\xa4kind\xa5offer",
]
NUMBERS = st.integers(0, 2**48)


class Round:
    """One round of secure aggregation among three, with each message and who read it when."""

    def __init__(self):
        self.names = ["a", "b", "c"]
        signing = {name: new_signing_key(ROOT.child("signing", name)) for name in self.names}
        self.plan = Plan(
            round=ROOT.child("round").bytes(16),
            roster={name: public_bytes(key) for name, key in signing.items()},
            threshold=least_threshold(3),
            length=4,
            bits=32,
        )
        self.clients = {
            name: Client(self.plan, name, signing_key=key, stream=ROOT.child("party", name))
            for name, key in signing.items()
        }
        self.server, self.readers = Server(self.plan), []
        self.stage("take_advert", lambda client: client.advertise())
        self.step("share_keys", self.server.close_adverts())
        self.stage("take_shares", lambda client: self.answers[client.name])
        self.step("open_envelopes", self.server.close_shares())
        for name in self.names:
            self.server.take_masked(name, self.clients[name].masked_input(np.zeros(4, self.plan.dtype)))
        self.step("confirm", self.server.close_masked())
        self.stage("take_confirmation", lambda client: self.answers[client.name])
        self.step("unmask", self.server.close_confirmations())
        self.stage("take_unmasking", lambda client: self.answers[client.name])
        self.total = self.server.finish().total

    def stage(self, take, message):
        for name in self.names:
            said = message(self.clients[name])
            if name == "a":
                self.readers.append((said, partial(asked, self.snapshot(self.server), take, name)))
            getattr(self.server, take)(name, said)

    def step(self, method, answer):
        self.answers = {}
        for name, client in self.clients.items():
            said = answer if isinstance(answer, bytes) else answer[name]
            if name == "a":
                self.readers.append((said, partial(asked, self.snapshot(client), method)))
            self.answers[name] = getattr(client, method)(said)

    @staticmethod
    def snapshot(party):
        made = copy.copy(party)
        made.__dict__ = {k: v.copy() if isinstance(v, (dict, set, list)) else v for k, v in vars(party).items()}
        return made


def asked(party, method, *arguments):
    return getattr(Round.snapshot(party), method)(*arguments)


@pytest.fixture(scope="module")
def readers():
    made = Round()
    assert not made.total.any()
    return made.readers


def odd_or_mutated(rng, message, others):
    """Half of the changes leave the encoding canonical: a field of another type, size or place."""
    if rng.randrange(2):
        return mutated(rng, message, others=others, words=WORDS)
    fields = with_odd_fields(rng, msgpack.unpackb(message))
    fields = fields if isinstance(fields, dict) else {"kind": fields}
    try:
        return pack(str(fields.pop("kind", "")), **fields)
    except (ValueError, TypeError):
        return mutated(rng, message, others=others, words=WORDS)


@given(number=NUMBERS)
@fuzzed(50)
def test_secure_aggregation(number, readers):
    rng = random.Random(number)
    message, reader = rng.choice(readers)
    data = odd_or_mutated(rng, message, [m for m, _ in readers])
    refuses_or_reads(lambda: reader(data), size=len(data))


def test_secure_aggregation_reads_what_was_said(readers):
    assert len(readers) == 8
    for message, reader in readers:
        assert refuses_or_reads(lambda message=message, reader=reader: reader(message), size=len(message))


OFFER = Offer("week-7", 0, 2.0, 40, 100.0, 2.0)
WORDS_OF_TWO = [OFFER.pack(), Terms(40, 100.0, 2.0).pack(), Receipt("week-7", 0, bytes(32), bytes(32)).pack()]


@given(number=NUMBERS)
@fuzzed(50)
def test_words_of_two_servers(number):
    rng = random.Random(number)
    data = odd_or_mutated(rng, rng.choice(WORDS_OF_TWO), WORDS_OF_TWO)
    for reader in (Offer.unpack, Terms.unpack, Receipt.unpack, kind_of):
        refuses_or_reads(lambda reader=reader: reader(data), size=len(data))


FRAMES = list(vector_frames("v", np.arange(40, dtype=np.float32), session=b"s" * 16, chunk=16))


@given(number=NUMBERS)
@fuzzed(50)
def test_vectors(number):
    rng = random.Random(number)
    frames = list(FRAMES)
    place = rng.randrange(len(frames))
    frames[place] = odd_or_mutated(rng, frames[place], FRAMES)
    if not rng.randrange(4):
        rng.shuffle(frames)
    refuses_or_reads(
        lambda: read_vector(frames, kind="v", session=b"s" * 16, count=40, dtype="float32", bound=None, chunk=16),
        size=sum(map(len, frames)),
    )


def offered(name):
    offer = Offer(name, 0, 2.0, 40, 100.0, 2.0)
    return [offer.pack(), *vector_frames(VECTOR, np.arange(40, dtype=np.int32), session=offer.session)]


@pytest.fixture(scope="module")
def noise_side(tmp_path_factory):
    folder = tmp_path_factory.mktemp("noise")
    (folder / "published").mkdir()
    side = NoiseSide(terms=OFFER.terms, peer="answer", journal=folder, publish=folder / "published", log=Log("noise"))
    assert list(side.publish("answer", iter(offered("first"))))  # whose imports need more memory than an input may take
    yield side
    side.close()


@given(number=NUMBERS)
@fuzzed(15)
def test_the_noise_side_of_two_servers(number, noise_side):
    rng = random.Random(number)
    frames = offered(f"r{number}")
    place = rng.randrange(len(frames))
    frames[place] = odd_or_mutated(rng, frames[place], frames)
    refuses_or_reads(lambda: list(noise_side.publish("answer", iter(frames))), size=sum(map(len, frames)))


@pytest.fixture(scope="module")
def counting():
    """A session of verifiable counts at the places where the other side's bytes come in."""
    terms = CountTerms.fresh(bins=2, coins=40, stream=ROOT.child("counts"))
    prover = Prover(terms, open_counts([7, -3], stream=ROOT.child("openings")), stream=ROOT.child("prover"))
    verifier = Verifier(terms, stream=ROOT.child("verifier"))
    first = prover.commit()
    second = Round.snapshot(verifier).challenge(first)
    third = Round.snapshot(prover).respond(second)
    challenged = Round.snapshot(verifier)
    challenged.challenge(first)
    record, _ = make_record(1, terms, client=b"me", stream=ROOT.child("record"))
    return [
        (first, partial(asked, verifier, "challenge")),
        (second, partial(asked, prover, "respond")),
        (third, partial(asked, challenged, "check")),
        (record, lambda data: check_record(data, terms, client=b"me")),
    ]


@given(number=NUMBERS)
@fuzzed(25)
def test_verifiable_counts(number, counting):
    rng = random.Random(number)
    message, reader = rng.choice(counting)
    data = mutated(rng, message, others=[m for m, _ in counting], words=[bytes(32), b"\xff" * 32])
    refuses_or_reads(lambda: reader(data), size=len(data))


def test_verifiable_counts_reads_what_was_said(counting):
    for message, reader in counting:
        assert refuses_or_reads(lambda message=message, reader=reader: reader(message), size=len(message))


@given(data=mutations([*WORDS_OF_TWO, *FRAMES], words=WORDS))
@fuzzed(50)
def test_any_bytes_as_a_message(data):
    refuses_or_reads(lambda: kind_of(data), size=len(data))
    assert not refuses_or_reads(lambda: unpack(data, "none"), size=len(data)) or data == pack("none")


@pytest.mark.parametrize(
    "data",
    [
        b"\x91" * LARGEST,
        b"\xdd\xff\xff\xff\xff" * 1000,
        b"\xdc\xff\xff" + b"\xdc\xff\xff" * 60_000,
        b"\xdf\x00\x3f\xff\xff" + b"\xa0" * (LARGEST - 5),
        b"\xdd\x00\x3f\xff\xff" + b"\x80" * (LARGEST - 5),
        b"\xc6\x00\x3f\xff\xfb" + bytes(LARGEST - 5),
        b"\0" * (LARGEST + 1),
    ],
)
def test_four_mebibytes_of_claims(data):
    with pytest.raises(MessageError) as caught:
        unpack(data, "none")
    assert str(caught.value).isprintable()
    assert not refuses_or_reads(lambda: unpack(data, "none"), size=len(data))
