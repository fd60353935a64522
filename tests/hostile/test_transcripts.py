"""Hostile transcripts, certificates and introductions, by people who hold the keys, too."""

from __future__ import annotations

import base64
import contextlib
import io
import json
from dataclasses import replace

import msgspec
import numpy as np
import pytest
import typer
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding
from hostile.fuzzing import fuzz, mutated, refuses_or_reads, with_odd_fields

from dpaudit.cli.commands.verify import verify_transcript
from dpaudit.randomness import KeyedStream
from dpaudit_mitigations.joint_seeds import transcript as joint_seeds
from dpaudit_mitigations.joint_seeds.derivation import labelled_hash
from dpaudit_mitigations.joint_seeds.messages import SessionTerms
from dpaudit_mitigations.joint_seeds.mitigation import run_session as run_joint_seeds
from dpaudit_mitigations.joint_seeds.parties import SeedServer, Verifier
from dpaudit_mitigations.joint_seeds.transcript import Opening
from dpaudit_mitigations.secure_aggregation.terms import check_introduction, introduce
from dpaudit_mitigations.transport.certificates import load_identity, make_authority
from dpaudit_mitigations.verifiable_counts import transcript as verifiable_counts
from dpaudit_mitigations.verifiable_counts.messages import sign_session
from dpaudit_mitigations.verifiable_counts.mitigation import run_session as run_verifiable_counts

ROOT = KeyedStream.from_seed("hostile transcripts")
KEYS = {
    name: Ed25519PrivateKey.from_private_bytes(ROOT.child(name).bytes(32))
    for name in ("server", "verifier")
}
PUBLIC = {name: key.public_key().public_bytes_raw() for name, key in KEYS.items()}
COUNTS = run_verifiable_counts([7, -3], coins=40, stream=ROOT.child("counts")).transcript
MESSAGES = ("commitments", "challenge", "response")
WORDS = [
    b"{", b"[" * 3000, b'{"a":' * 1000, b'"', b"\\", b"\\ud800", b"\xff", b"1e999", b"NaN",
    b"9" * 5000, b",", b"\x1b[",
]  # fmt: skip


@pytest.fixture(scope="module")
def seeds(tmp_path_factory):
    """A transcript of joint seeds, its opening and its release."""
    folder = tmp_path_factory.mktemp("transcripts")
    terms = SessionTerms(candidates=3, dim=2, scale=2.0**24, granularity=2.0**-24, **PUBLIC)
    server = SeedServer(np.arange(2) << 24, terms=terms, key=KEYS["server"], stream=ROOT.child("s"))
    verifier = Verifier(terms=terms, key=KEYS["verifier"], stream=ROOT.child("v"))
    session = run_joint_seeds(server, verifier)
    joint_seeds.write(session.record, folder / "seeds.json")
    server.opening().save(folder / "opening.json")
    np.save(folder / "release.npy", session.release)
    (folder / "counts.json").write_bytes(COUNTS.encode())
    return folder


def doors(path):
    return (
        lambda: command(path),
        lambda: joint_seeds.verify(path, threads=1),
        lambda: verifiable_counts.verify(path),
    )


def command(path):
    aside = io.StringIO()
    with (
        contextlib.redirect_stdout(aside),
        contextlib.redirect_stderr(aside),
        contextlib.suppress(typer.Exit),
    ):
        verify_transcript(path=path, output="json")


def refusing(path, doors):
    """Whether any of them reads it."""
    read = [refuses_or_reads(door, size=path.stat().st_size) for door in doors]
    return any(read)


@pytest.mark.parametrize("what", ["bytes", "fields"])
def test_mutated_files(what, seeds):
    path = seeds / "x.json"
    valid = [(seeds / name).read_bytes() for name in ("seeds.json", "counts.json")]

    def one(rng):
        data = rng.choice(valid)
        if what == "bytes":
            data = mutated(rng, data, others=valid, words=WORDS)
        else:
            data = canonical(with_odd_fields(rng, json.loads(data))) + b"\n"
        path.write_bytes(data)
        return refusing(path, doors(path))

    fuzz(one, seen=set())


def test_joint_seeds_by_parties_that_sign_anything(seeds):
    path = seeds / "x.json"

    def one(rng):
        document = json.loads((seeds / "seeds.json").read_bytes())
        document["messages"] = signed(document["messages"], rng)
        with contextlib.suppress(ValueError):  # a number that their own encoding refuses
            path.write_bytes(canonical(document) + b"\n")
        return refusing(path, [lambda: joint_seeds.verify(path, threads=1)])

    fuzz(one, seen=set())


def canonical(document):
    return json.dumps(document, sort_keys=True, separators=(",", ":")).encode()


def signed(messages, rng):
    head, out, odd = labelled_hash("start"), [], rng.randrange(len(messages))
    for place, message in enumerate(messages):
        body = message["body"]
        if place == odd:
            found = with_odd_fields(rng, body)
            body = found if isinstance(found, dict) else body
        with contextlib.suppress(ValueError):
            unsigned = {**message, "body": body}
            del unsigned["signature"]
            signature = KEYS[message["sender"]].sign(
                labelled_hash("signature", head, canonical(unsigned))
            )
            out.append({**unsigned, "signature": signature.hex()})
            head = labelled_hash("link", head, canonical(out[-1]))
    return out


def test_verifiable_counts_by_a_prover_with_a_key(seeds):
    path = seeds / "x.json"

    def one(rng):
        said = {name: getattr(COUNTS, name) for name in MESSAGES}
        known = list(said.values())
        said[rng.choice(MESSAGES)] = mutated(rng, said[rng.choice(MESSAGES)], others=known)
        more = rng.choice(({}, {"bins": 1 << 16, "coins": 1 << 10}, {"coins": 1 << 24}))
        said["terms"] = replace(COUNTS.terms, **more)
        said["signature"] = sign_session(**said, key=KEYS["verifier"])
        path.write_bytes(replace(COUNTS, **said, verifier=PUBLIC["verifier"]).encode())
        return refusing(path, [lambda: verifiable_counts.verify(path)])

    fuzz(one, seen=set())


def test_openings_and_releases(seeds):
    whole = {"opening": seeds / "opening.json", "release": seeds / "release.npy"}

    def one(rng):
        name = rng.choice(tuple(whole))
        path = seeds / f"x{whole[name].name}"
        path.touch(mode=0o600)
        path.write_bytes(mutated(rng, whole[name].read_bytes(), words=WORDS))
        files = {**whole, name: path}
        return refusing(
            path, [lambda: joint_seeds.verify(seeds / "seeds.json", **files, threads=1)]
        )

    fuzz(one, seen=set())


def test_valid_transcripts_hold(seeds):
    files = {"opening": seeds / "opening.json", "release": seeds / "release.npy"}
    assert joint_seeds.verify(seeds / "seeds.json", **files, threads=1).holds
    assert verifiable_counts.verify(seeds / "counts.json").holds
    assert Opening.load(seeds / "opening.json")
    for name in ("seeds.json", "counts.json"):
        assert refuses_or_reads(lambda name=name: command(seeds / name), size=1)


@pytest.mark.parametrize(
    "data",
    [
        b"[" * (8 << 20),
        b'{"transcript":"verifiable-counts","x":[' + b"[]," * (4 << 20) + b"0]}",
        b'{"transcript":"verifiable-counts","x":[' + b"{}," * (4 << 20) + b"0]}",
        b'{"transcript":"joint-seeds","x":[' + b"0," * (6 << 20) + b"0]}",
        b'{"transcript":"joint-seeds","x":"' + b"\\ud83d\\ude00" + b"x" * (12 << 20) + b'"}',
        b'{"transcript":"joint-seeds","x":"' + "\U0001f600".encode() + b"x" * (12 << 20) + b'"}',
        b'{"transcript":' + b'"' * (8 << 20),
        b"\0" * (8 << 20),
        b" " * (8 << 20),
    ],
)
def test_megabytes_are_refused_in_little_memory(data, seeds):
    path = seeds / "large.json"
    path.write_bytes(data)
    assert not refuses_or_reads(lambda: command(path), size=len(data))
    for door in doors(path)[1:]:
        refuses_or_reads(door, size=len(data))


def test_devices_are_refused_and_no_more_is_read_than_a_session_has(seeds):
    for path in ("/dev/zero", seeds, seeds / "none.json"):
        for door in doors(seeds / path):
            assert not refuses_or_reads(door, size=0)
    huge = seeds / "huge.json"
    with huge.open("wb") as file:
        file.truncate(1 << 40)
    assert "at most 1,048,576" in joint_seeds.verify(huge).says


# ---------------------------------------------------------------- certificates, introductions

PEM = [b"-----BEGIN CERTIFICATE-----\n", b"-----END CERTIFICATE-----\n"]
DER_WORDS = [*PEM, b"\x30\x84\xff\xff\xff\xff", b"\x30\x80", b"\x06\x03\x55\x1d\x11", b"\0"]
FILES = ("cert.pem", "key.pem", "ca.pem")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("identities")
    make_authority(made / "ids", ["alice", "bob"])
    return made / "ids" / "alice"


def test_identities(folder):
    valid = {name: (folder / name).read_bytes() for name in FILES}
    place = folder.with_name("mutated")
    place.mkdir()
    assert refuses_or_reads(lambda: load_identity(folder), size=5000)

    def one(rng):
        held, name = dict(valid), rng.choice(FILES)
        if rng.randrange(2) and name != "key.pem":  # changes inside, in whole PEM
            der = x509.load_pem_x509_certificate(held[name]).public_bytes(Encoding.DER)
            body = base64.encodebytes(mutated(rng, der, words=DER_WORDS))
            held[name] = PEM[0] + body + PEM[1]
        else:
            held[name] = mutated(rng, held[name], others=list(held.values()), words=DER_WORDS)
        for name, data in held.items():
            (place / name).touch(mode=0o600)
            (place / name).write_bytes(data)
        return refuses_or_reads(lambda: load_identity(place), size=sum(map(len, held.values())))

    fuzz(one, seen=set())


def test_introductions(folder):
    identity = load_identity(folder)
    message = introduce(identity, signing=bytes(32), terms=bytes(32))
    known = {"name": "alice", "authority": identity.authority, "terms": bytes(32)}
    assert check_introduction(message, **known) == bytes(32)

    def one(rng):
        data = mutated(rng, message, words=DER_WORDS)
        if rng.randrange(2):
            certificate = base64.b64decode(msgspec.json.decode(message)["certificate"])
            certificate = mutated(rng, certificate, words=DER_WORDS)
            fields = {"certificate": certificate, "signature": b"s" * 70, "signing": bytes(32)}
            data = msgspec.json.encode({"kind": "secagg introduction", **fields})
        return refuses_or_reads(lambda: check_introduction(data, **known), size=len(data))

    fuzz(one, seen=set())
