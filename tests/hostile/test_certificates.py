"""Hostile certificates, keys and introductions."""

from __future__ import annotations

import base64
import random

import msgspec
import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding
from hostile.fuzzing import fuzzed, refuses_or_reads
from hostile.mutated_bytes import mutated
from hypothesis import given
from hypothesis import strategies as st

from dpaudit_mitigations.secure_aggregation.roster import check_introduction, introduce
from dpaudit_mitigations.transport.certificates import load_identity, make_authority

NUMBERS = st.integers(0, 2**48)
PEM = [b"-----BEGIN CERTIFICATE-----\n", b"-----END CERTIFICATE-----\n"]
WORDS = [*PEM, b"\x30\x84\xff\xff\xff\xff", b"\x30\x80", b"\x06\x03\x55\x1d\x11", b"\0"]
FILES = ("cert.pem", "key.pem", "ca.pem")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("identities")
    make_authority(made / "ids", ["alice", "bob"])
    return made / "ids" / "alice"


@pytest.fixture(scope="module")
def identity(folder):
    return load_identity(folder)


@given(number=NUMBERS)
@fuzzed
def test_identities(number, folder):
    rng = random.Random(number)
    held = {name: (folder / name).read_bytes() for name in FILES}
    name = rng.choice(FILES)
    changed = der(rng, held[name]) if rng.randrange(2) and name != "key.pem" else None
    held[name] = changed or mutated(rng, held[name], others=list(held.values()), words=WORDS)
    place = folder.with_name("mutated")
    place.mkdir(exist_ok=True)
    for name, data in held.items():
        (place / name).touch(mode=0o600)
        (place / name).write_bytes(data)
    refuses_or_reads(lambda: load_identity(place), size=sum(map(len, held.values())))


def der(rng, pem):
    """A certificate with changes inside, in whole PEM."""
    body = mutated(rng, x509.load_pem_x509_certificate(pem).public_bytes(Encoding.DER), words=WORDS)
    return PEM[0] + base64.encodebytes(body) + PEM[1]


@given(number=NUMBERS)
@fuzzed
def test_introductions(number, identity):
    rng = random.Random(number)
    message = introduce(identity, signing=bytes(32), terms=bytes(32))
    fields = {
        "certificate": odd_certificate(rng, message),
        "signature": b"s" * 70,
        "signing": bytes(32),
    }
    data = (
        msgspec.msgpack.encode({"kind": "secagg introduction", **fields})
        if rng.randrange(2)
        else mutated(rng, message, words=WORDS)
    )
    refuses_or_reads(
        lambda: check_introduction(
            data, name="alice", authority=identity.authority, terms=bytes(32)
        ),
        size=len(data),
    )


def odd_certificate(rng, message):
    return mutated(rng, msgspec.msgpack.decode(message)["certificate"], words=WORDS)


def test_valid_ones_are_read(folder, identity):
    assert refuses_or_reads(lambda: load_identity(folder), size=5000)
    message = introduce(identity, signing=bytes(32), terms=bytes(32))
    assert check_introduction(
        message, name="alice", authority=identity.authority, terms=bytes(32)
    ) == bytes(32)
