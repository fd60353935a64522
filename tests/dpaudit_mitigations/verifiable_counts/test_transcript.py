"""Transcripts on disk: what holds, and a thousand changes of which none does."""

import base64
import json
import re
from dataclasses import replace

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from dpaudit.accounting.mechanisms import binomial_epsilon
from dpaudit.errors import UsageError
from dpaudit_mitigations.verifiable_counts.group import (
    BLINDING_BASE,
    L,
    encode_scalar,
    multiple,
    open_counts,
    random_scalar,
)
from dpaudit_mitigations.verifiable_counts.messages import encode_seed, public_coins, sign_session
from dpaudit_mitigations.verifiable_counts.mitigation import run_session
from dpaudit_mitigations.verifiable_counts.parties import Prover
from dpaudit_mitigations.verifiable_counts.terms import CountTerms
from dpaudit_mitigations.verifiable_counts.transcript import Transcript, verify

NAMES = ("commitments", "challenge", "response")


@pytest.fixture
def sessions(stream):
    return [run_session([7, -3], coins=40, stream=stream.child("session", i)) for i in range(2)]


def test_holds(sessions, tmp_path):
    path = tmp_path / "t.json"
    sessions[0].transcript.write(path)
    verdict = verify(path)
    assert verdict.holds, verdict.says
    assert verdict.details["released"] == sessions[0].released
    assert verdict.details["epsilon"] == binomial_epsilon(1e-10, coins=40)
    assert verdict.details["bins"] == 2
    assert Transcript.decode(path.read_bytes()) == sessions[0].transcript
    with pytest.raises(UsageError, match="not written"):
        sessions[0].transcript.write(path)
    with pytest.raises(UsageError, match="cannot be read"):
        verify(tmp_path / "missing.json")


def test_a_prover_that_plays_its_own_verifier(sessions, stream, tmp_path):
    """It draws "the verifier's" coins until the noise is 8 (2.5σ), but it lacks the key."""
    terms = CountTerms.fresh(bins=1, coins=40, stream=stream)
    prover = Prover(terms, open_counts([100], stream=stream), stream=stream.child("prover"))
    first = prover.step(None)
    bits = prover._bits.reshape(1, -1)[:, :40]
    for number in range(10_000):
        second = encode_seed(number.to_bytes(32, "little"), terms)
        if (bits ^ public_coins(terms, commitments=first, challenge=second)).sum() == 28:
            break
    alone = Transcript(
        terms, first, second, prover.step(second), verifier=bytes(32), signature=bytes(64)
    )
    genuine, path = sessions[0].transcript, tmp_path / "t.json"
    path.write_bytes(alone.encode())
    assert not verify(path).holds
    path.write_bytes(
        replace(alone, verifier=genuine.verifier, signature=genuine.signature).encode()
    )
    assert verify(path).says.startswith("the session")
    path.write_bytes(signed(alone, Ed25519PrivateKey.generate()).encode())
    assert not verify(path, verifier=genuine.verifier).holds
    verdict = verify(path)  # whose key it is, only the reader can say
    assert verdict.holds
    assert verdict.details["released"] == [108]
    assert verdict.details["verifier"] in verdict.says
    assert "its own verifier" in verdict.cannot_rule_out
    path.write_bytes(genuine.encode())
    assert verify(path, verifier=genuine.verifier).holds


def mutated(rng, original, other):
    """One change of a random kind; never the transcript itself."""
    messages = {name: bytearray(getattr(original, name)) for name in NAMES}
    name = NAMES[rng.integers(3)]
    data, theirs = messages[name], getattr(other, name)
    head = 54  # the header's change is one of the kinds below
    pieces = max(1, (len(data) - head) // 32)
    at, to = (head + 32 * int(rng.integers(pieces)) for _ in range(2))
    number = int.from_bytes(data[at : at + 32], "little")
    match rng.integers(11):
        case 0:
            data[rng.integers(len(data))] ^= 1 << rng.integers(8)
        case 1:
            data[at : at + 32] = encode_scalar(int.from_bytes(rng.bytes(32), "little"))
        case 2:
            data[at : at + 32] = multiple(int.from_bytes(rng.bytes(31), "little"), BLINDING_BASE)
        case 3:
            data[at : at + 32], data[to : to + 32] = data[to : to + 32], data[at : at + 32]
        case 4:
            data[at : at + 32] = theirs[at : at + 32]
        case 5:
            del data[at : at + 32]
        case 6:
            data[:] = theirs
        case 7:
            data[at : at + 32] = ((number + L) % 2**256).to_bytes(32, "little")
        case 8:
            data[at : at + 32] = ((number + 1) % 2**256).to_bytes(32, "little")
        case 9:
            data[at:at] = data[at : at + 32]
        case 10:
            data[head:] = theirs[head:]
    return replace(original, **{name: bytes(data)})


def test_other_terms_than_the_sessions(sessions, tmp_path):
    one, two = (session.transcript for session in sessions)
    path, key = tmp_path / "t.json", Ed25519PrivateKey.generate()
    for change in ({"session": two.terms.session}, {"bins": 3}, {"coins": 42}):
        path.write_bytes(signed(replace(one, terms=replace(one.terms, **change)), key).encode())
        assert not verify(path).holds


def signed(transcript, key):
    """By whoever has ``key``: the proofs have to hold by themselves."""
    said = {name: getattr(transcript, name) for name in NAMES}
    public = key.public_key().public_bytes_raw()
    return replace(
        transcript, verifier=public, signature=sign_session(transcript.terms, **said, key=key)
    )


@pytest.mark.slow
def test_mutations_none_accepted(sessions, stream, tmp_path):
    """Refused for the signature that they had, and for what they say if the forger signs them."""
    rng = stream.child("mutations").numpy()
    one, two = (session.transcript for session in sessions)
    path, key = tmp_path / "t.json", Ed25519PrivateKey.generate()
    tried, refused, words = 0, 0, set()
    while tried < 240:  # twenty of each kind
        change = mutated(rng, one, two)
        if change == one:
            continue
        tried += 1
        path.write_bytes(change.encode())
        assert not verify(path).holds
        path.write_bytes(signed(change, key).encode())
        verdict = verify(path)
        refused += not verdict.holds
        words.add(verdict.says.split(":")[0])
    assert refused == 240
    # decoding, and proofs: the changes reached both
    assert {"point", "scalar", "block 1 of 1"} <= words
    assert any(word.startswith("bin ") for word in words)


def test_mutations_of_the_file(sessions, stream, tmp_path):
    """100 changed bytes anywhere, cut and repeated ends, other spellings of the same document."""
    data, rng, path = sessions[0].transcript.encode(), stream.numpy(), tmp_path / "t.json"
    document = json.loads(data)
    files = [data[:-1], data + b"\n", b" " + data, b"", b"{}", b"[]", b"1", b"[" * 100_000]
    files += [data[: len(data) // 2], json.dumps(document, sort_keys=True).encode() + b"\n"]
    for _ in range(100):
        at, other = rng.integers(len(data)), int(rng.integers(1, 256))
        files.append(data[:at] + bytes([data[at] ^ other]) + data[at + 1 :])
    for name, value in (
        ("bins", '2,"bins":2'),
        ("bins", "2.0"),
        ("bins", "true"),
        ("bins", "1e400"),
        ("coins", "4e1"),
        ("coins", "16777216"),
        ("version", "true"),
    ):
        files.append(re.sub(rb'"%s":\d+' % name.encode(), f'"{name}":{value}'.encode(), data))
    odd = (None, 3, "", "é", "AAA", "A" * 4_000_000, base64.b64encode(bytes(200)).decode())
    changes = [{"more": 1}, *({n: v} for n in (*NAMES, "verifier", "signature") for v in odd)]
    for change in changes:
        spelt = json.dumps(document | change, sort_keys=True, separators=(",", ":"))
        files.append(spelt.encode() + b"\n")
    for changed in files:
        path.write_bytes(changed)
        assert not verify(path).holds


def test_a_point_or_scalar_spelt_otherwise(sessions, stream, tmp_path):
    """The last scalar plus the order: the same number, another encoding."""
    one = sessions[0].transcript
    number = int.from_bytes(one.response[-32:], "little") + L
    path = tmp_path / "t.json"
    spelt = replace(one, response=one.response[:-32] + number.to_bytes(32, "little"))
    path.write_bytes(signed(spelt, Ed25519PrivateKey.generate()).encode())
    assert verify(path).says.startswith("scalar")
    assert random_scalar(stream) < L
