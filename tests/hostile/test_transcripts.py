"""Hostile transcripts at ``dpaudit verify transcript``, by people who hold the keys, too."""

from __future__ import annotations

import contextlib
import io
import json
import random
from dataclasses import replace

import numpy as np
import pytest
import typer
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hostile.fuzzing import fuzzed, refuses_or_reads
from hostile.mutated_bytes import mutated
from hostile.mutated_values import with_odd_fields
from hypothesis import given
from hypothesis import strategies as st

from dpaudit.cli import verifying
from dpaudit.randomness import KeyedStream
from dpaudit_mitigations.joint_seeds import transcript as joint_seeds
from dpaudit_mitigations.joint_seeds.commitments import labelled_hash
from dpaudit_mitigations.joint_seeds.opening import Opening
from dpaudit_mitigations.joint_seeds.server import SeedServer
from dpaudit_mitigations.joint_seeds.session import run_session as run_joint_seeds
from dpaudit_mitigations.joint_seeds.terms import SessionTerms
from dpaudit_mitigations.joint_seeds.verifier import Verifier
from dpaudit_mitigations.verifiable_counts import transcript as verifiable_counts
from dpaudit_mitigations.verifiable_counts.messages import sign_session
from dpaudit_mitigations.verifiable_counts.session import run_session as run_verifiable_counts

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
        verifying.transcript(path, "json")


@given(number=st.integers(0, 2**48))
@fuzzed
def test_mutated_files(number, seeds):
    path, rng = seeds / "x.json", random.Random(number)
    valid = [(seeds / name).read_bytes() for name in ("seeds.json", "counts.json")]
    path.write_bytes(mutated(rng, rng.choice(valid), others=valid, words=WORDS))
    for door in doors(path):
        refuses_or_reads(door, size=path.stat().st_size)


@given(number=st.integers(0, 2**48))
@fuzzed
def test_documents_with_odd_fields(number, seeds):
    path, rng = seeds / "x.json", random.Random(number)
    document = json.loads((seeds / rng.choice(("seeds.json", "counts.json"))).read_bytes())
    text = json.dumps(with_odd_fields(rng, document), sort_keys=True, separators=(",", ":"))
    path.write_bytes(text.encode() + b"\n")
    for door in doors(path):
        refuses_or_reads(door, size=path.stat().st_size)


@given(number=st.integers(0, 2**48))
@fuzzed
def test_joint_seeds_by_parties_that_sign_anything(number, seeds):
    path, rng = seeds / "x.json", random.Random(number)
    document = json.loads((seeds / "seeds.json").read_bytes())
    document["messages"] = signed(document["messages"], rng)
    with contextlib.suppress(ValueError):  # a number that their own encoding refuses
        path.write_bytes(canonical(document) + b"\n")
    refuses_or_reads(lambda: joint_seeds.verify(path, threads=1), size=path.stat().st_size)


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


@given(number=st.integers(0, 2**48))
@fuzzed
def test_verifiable_counts_by_a_prover_with_a_key(number, seeds):
    path, rng = seeds / "x.json", random.Random(number)
    said = {name: getattr(COUNTS, name) for name in MESSAGES}
    said[rng.choice(MESSAGES)] = mutated(
        rng, said[rng.choice(MESSAGES)], others=list(said.values())
    )
    more = rng.choice(({}, {"bins": 1 << 16, "coins": 1 << 10}, {"coins": 1 << 24}))
    terms = replace(COUNTS.terms, **more)
    signature = sign_session(terms, **said, key=KEYS["verifier"])
    path.write_bytes(
        replace(
            COUNTS, terms=terms, **said, verifier=PUBLIC["verifier"], signature=signature
        ).encode()
    )
    refuses_or_reads(lambda: verifiable_counts.verify(path), size=path.stat().st_size)


@given(number=st.integers(0, 2**48))
@fuzzed
def test_openings_and_releases(number, seeds):
    rng = random.Random(number)
    given = {"opening": "opening.json", "release": "release.npy"}
    name = rng.choice(tuple(given))
    data = mutated(rng, (seeds / given[name]).read_bytes(), words=WORDS)
    given[name] = f"x{given[name]}"
    (seeds / given[name]).touch(mode=0o600)
    (seeds / given[name]).write_bytes(data)
    paths = {key: seeds / value for key, value in given.items()}
    refuses_or_reads(
        lambda: joint_seeds.verify(seeds / "seeds.json", **paths, threads=1), size=len(data)
    )


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
