"""Every frame of every protocol, spoilt in every way, at the code that a peer's bytes reach."""

from __future__ import annotations

import itertools
import random
from functools import partial

import msgspec
import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hostile.fuzzing import fuzzed, refuses_or_reads
from hypothesis import given
from support.refusals import SPOILS, Step, never, refused, snapshot, spoils, spoilt

from dpaudit.errors import MessageError
from dpaudit.randomness import KeyedStream
from dpaudit_mitigations.codec import LARGEST, Message, pack, unpack
from dpaudit_mitigations.joint_seeds.messages import SessionTerms
from dpaudit_mitigations.joint_seeds.parties import SeedServer
from dpaudit_mitigations.joint_seeds.parties import Verifier as SeedVerifier
from dpaudit_mitigations.secure_aggregation.client import Client
from dpaudit_mitigations.secure_aggregation.keys import new_signing_key, public_bytes
from dpaudit_mitigations.secure_aggregation.plan import Plan, least_threshold
from dpaudit_mitigations.secure_aggregation.server import Aggregator
from dpaudit_mitigations.transport.connection import Log
from dpaudit_mitigations.transport.vectors import read_vector, vector_frames
from dpaudit_mitigations.two_servers.agreement import (
    VECTOR,
    Offer,
    PublicationReceipt,
    ReleaseTerms,
)
from dpaudit_mitigations.two_servers.noise_side import NoiseSide
from dpaudit_mitigations.verifiable_counts.group import open_counts
from dpaudit_mitigations.verifiable_counts.parties import Prover, Verifier
from dpaudit_mitigations.verifiable_counts.terms import CountTerms

ROOT = KeyedStream.from_seed("hostile protocols")


def take(party, frames):
    """One frame of the other party."""
    return party.step(*frames)


def take_from_b(party, frames):
    return party.step({"b": frames[0]})


def step(name, party, frame, deliver=take, **more):
    """A step of ``party``, which takes one frame."""
    return {"name": name, "party": snapshot(party), "deliver": deliver, "frames": [frame], **more}


def always(_):
    """What is wrong with another frame of the right form is noticed later."""
    return True


def fewer(message):
    """The same without some parties, who may have dropped out; all must confirm this view."""
    honest = msgspec.json.decode(message)

    def late(frame):
        found = msgspec.json.decode(frame)
        lists = {name: value for name, value in honest.items() if isinstance(value, list)}
        return all(
            [item for item in lists[name] if item in value] == value
            if name in lists
            else value == honest[name]
            for name, value in found.items()
        )

    return late


def with_frames_of(own, other):
    """The steps of one session, each knowing all frames of both."""
    frames, foreign = ([f for one in steps for f in one["frames"]] for steps in (own, other))
    return [Step(own=frames, foreign=foreign, **one) for one in own]


def aggregation(tag):
    """One round among four, of which d sends no vector."""
    names, stream = "abcd", ROOT.child(tag)
    signing = {name: new_signing_key(ROOT.child("signing", name)) for name in names}
    plan = Plan(
        round=stream.child("round").bytes(16),
        roster={name: public_bytes(key) for name, key in signing.items()},
        threshold=least_threshold(4),
        length=4,
        bits=32,
    )
    vector = np.arange(4, dtype=plan.dtype)
    clients = {
        name: Client(
            plan,
            name,
            vector=vector.copy(),
            signing_key=signing[name],
            stream=stream.child(name),
        )
        for name in names
    }
    server, steps = Aggregator(plan), []

    def to_server(messages, *, late=never):
        for name, sent in messages.items():
            if name == "b" and isinstance(sent, bytes):
                more = {"late": late, "secrets": secrets(clients)}
                steps.append(step(f"take {server.stage}", server, sent, take_from_b, **more))
            server.step({name: sent})
        return server.step({})

    def to_clients(answers):
        for name, sent in answers.items():
            if name == "a":
                more = {"ends": emptied, "late": fewer(sent), "secrets": secrets(clients)}
                number = f"answer {len(steps)}"
                steps.append(step(number, clients[name], sent, **more))
        return {name: clients[name].step(sent) for name, sent in answers.items()}

    shares = to_clients(to_server({name: clients[name].step(None) for name in names}))
    # another ciphertext is noticed by whom it is for
    masked = to_clients(to_server(shares, late=always))
    signatures = to_clients(to_server({name: masked[name] for name in "abc"}))
    unmaskings = to_clients(to_server(signatures))
    # another share, by the commitments at the end
    assert to_server(unmaskings, late=always) == {}
    assert (server.release.total == 3 * vector).all()
    return steps


def secrets(clients):
    keys = [client._keys for client in clients.values() if client._keys is not None]
    own = [
        part
        for k in keys
        for part in (k.seed, k.masking.private_bytes_raw(), k.sharing.private_bytes_raw())
    ]
    return own + [
        part for client in clients.values() for pair in client._shares.values() for part in pair
    ]


def emptied(client):
    return (
        client.done
        and client._keys is None
        and client._signing_key is None
        and client._vector is None
        and not client._shares
    )


def seeds(tag):
    """One session of joint seeds to its receipt."""
    keys = [
        Ed25519PrivateKey.from_private_bytes(ROOT.child(name).bytes(32))
        for name in ("server", "verifier")
    ]
    public = [key.public_key().public_bytes_raw() for key in keys]
    terms = SessionTerms(
        candidates=3,
        dim=2,
        scale=2.0**24,
        granularity=2.0**-24,
        server=public[0],
        verifier=public[1],
    )
    stream = ROOT.child(tag)
    server = SeedServer(np.arange(2) << 24, terms=terms, key=keys[0], stream=stream.child("s"))
    verifier = SeedVerifier(terms=terms, key=keys[1], stream=stream.child("v"))
    steps, frame = [], verifier.step(None)
    party = server
    while frame is not None:
        name = f"{party.record.last or 'start'} → {type(party).__name__}"
        told = server.record.last in ("openings", "verdict", "release")
        held = [] if told else list(server._shares)
        steps.append(step(name, party, frame, secrets=held))
        frame = party.step(frame)
        if frame is None and party is verifier:
            frame = verifier.receipt(server.release)
        party = verifier if party is server else server
    return steps


def counts(tag):
    """One session of verifiable counts; a refusal ends it."""
    stream = ROOT.child(tag)
    terms = CountTerms.fresh(bins=2, coins=40, stream=stream.child("counts"))
    prover = Prover(
        terms, open_counts([7, -3], stream=stream.child("openings")), stream=stream.child("prover")
    )
    verifier, steps, frame = Verifier(terms, stream=stream.child("verifier")), [], prover.step(None)
    for party, name in ((verifier, "challenge"), (prover, "respond"), (verifier, "check")):
        # another challenge is as good, other commitments will not open
        late = never if name == "check" else always
        ends = always if party is verifier else None
        steps.append(step(name, party, frame, form="bytes", late=late, ends=ends))
        frame = party.step(frame)
    assert len(verifier.released) == 2
    return steps


PROTOCOLS = {aggregation: 8, seeds: 9, counts: 3}


@pytest.fixture(scope="module")
def sessions():
    made = {build: (build("own"), build("other")) for build in PROTOCOLS}
    return {build: with_frames_of(*both) for build, both in made.items()}


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_honest_frames_are_taken(protocol, sessions):
    """So that what is refused below is refused for what was done to it."""
    assert len(sessions[protocol]) == PROTOCOLS[protocol]
    for step in sessions[protocol]:
        step.deliver(snapshot(step.party), step.frames)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_every_frame_in_the_place_of_every_other_is_refused(protocol, sessions):
    """Of this session and of another: replayed, out of order, or for somebody else."""
    for step in sessions[protocol]:
        for frame in {*step.own, *step.foreign} - {*step.frames}:
            if protocol is seeds and frame == step.foreign[0] and step is sessions[protocol][0]:
                continue  # another session's offer begins that session
            assert refused(step, [frame]), step.name


def spoil_each(steps, what, rng):
    for step in steps:
        frames = spoilt(what, rng, step)
        if frames != list(step.frames) and not (
            step.name.startswith("start") and frames[0] in step.foreign[:1]
        ):
            refused(step, frames)


@pytest.mark.parametrize("protocol", PROTOCOLS)
@given(spoil=spoils())
@fuzzed
def test_spoilt_frames(protocol, spoil, sessions):
    spoil_each(sessions[protocol], *spoil)


SECRET = 987654321
NUMBERS = itertools.count()
OFFER = Offer(release="week-7", round=0, sigma=2.0, dim=40, bound=1000.0, noise_sigma=2.0)
TERMS = ReleaseTerms(dim=40, bound=1000.0, sigma=2.0)


def offered(name, **fields):
    offer = Offer(
        **{f: getattr(OFFER, f) for f in Offer.__struct_fields__} | {"release": name} | fields
    )
    steps = np.arange(40, dtype=np.int32)
    steps[7] = SECRET
    return [pack(offer), *vector_frames(VECTOR, steps, session=offer.session)]


@pytest.fixture(scope="module")
def noise_side(tmp_path_factory):
    folder = tmp_path_factory.mktemp("noise")
    side = NoiseSide(
        terms=TERMS, peer="answer", journal=folder, publish=folder / "published", log=Log("noise")
    )
    # whose imports need more memory than an input may take
    assert list(side.publish("answer", iter(offered("first"))))
    yield side, folder / "published"
    side.close()


@given(spoil=spoils())
@fuzzed
def test_two_servers(spoil, noise_side):
    """Nothing is published and no draft stays; the release can then be offered as meant."""
    side, folder = noise_side
    what, rng = spoil
    name = f"r{next(NUMBERS)}"
    step = Step(
        name="publish",
        party=side,
        deliver=lambda party, frames: list(party.publish("answer", iter(frames))),
        frames=offered(name),
        own=[*offered("first"), pack(TERMS)],
        foreign=[*offered(name, round=1), *offered(name, sigma=3.0)],
        secrets=[str(SECRET).encode()],
        state=lambda _: (
            sorted(p.name for p in folder.glob("[!.]*")),
            list((folder / ".drafts").iterdir()),
        ),
        copies=False,
    )
    frames = spoilt(what, rng, step)
    if frames == step.frames:
        return
    assert refused(step, frames)
    assert not (folder / f"{name}@0.npy").exists()
    if frames[:1] == step.frames[:1]:  # an offer under this name says what the name stands for
        step.deliver(side, step.frames)
        assert (folder / f"{name}@0.npy").exists()


FRAMES = list(vector_frames("v", np.arange(40, dtype=np.float32), session=b"s" * 16, chunk=16))
OTHERS = [
    *vector_frames("w", np.arange(40, dtype=np.float32), session=b"s" * 16, chunk=16),
    *vector_frames("v", np.arange(40, dtype=np.float32), session=b"t" * 16, chunk=16),
    *vector_frames("v", np.arange(41, dtype=np.float32), session=b"s" * 16, chunk=16),
]
VECTOR_STEP = Step(
    name="vector",
    party=None,
    deliver=lambda _, frames: read_vector(
        frames, kind="v", session=b"s" * 16, count=40, dtype="float32", bound=None, chunk=16
    ),
    frames=FRAMES,
    own=FRAMES,
    foreign=OTHERS,
)


@given(spoil=spoils())
@fuzzed
def test_vectors(spoil):
    frames = spoilt(*spoil, VECTOR_STEP)
    if frames[: len(FRAMES)] != FRAMES:
        assert refused(VECTOR_STEP, frames)


class Nothing(Message, frozen=True, kw_only=True, tag="none"):
    """A message without fields."""


KINDS = (Offer, ReleaseTerms, PublicationReceipt, Nothing)
MESSAGES = [
    pack(OFFER),
    pack(TERMS),
    pack(PublicationReceipt(release="week-7", round=0, payload=bytes(32), published=bytes(32))),
    pack(Nothing()),
]


@given(spoil=spoils())
@fuzzed
def test_any_bytes_as_a_message(spoil):
    """What is read is what would be written, byte for byte."""
    for message in MESSAGES:
        step = Step(
            name="", party=None, deliver=len, frames=[message], own=MESSAGES, foreign=FRAMES
        )
        (data,) = spoilt(*spoil, step)
        for kind in KINDS:
            if refuses_or_reads(partial(unpack, data, kind), size=len(data)):
                assert pack(unpack(data, kind)) == data


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
        unpack(data, Nothing)
    assert str(caught.value).isprintable()
    assert not refuses_or_reads(lambda: unpack(data, Nothing), size=len(data))


def test_each_way_of_spoiling_spoils():
    for what in SPOILS:
        assert any(spoilt(what, random.Random(seed), VECTOR_STEP) != FRAMES for seed in range(9))
