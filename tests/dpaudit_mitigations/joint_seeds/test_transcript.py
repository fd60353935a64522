"""What a third party can tell from a transcript, and that it takes no other for one."""

import collections
import copy
import itertools
import json

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from msgspec import structs

from dpaudit.errors import KeyFileError, UsageError
from dpaudit_mitigations.joint_seeds.derivation import (
    joint_key,
    labelled_hash,
    vector_blocks,
    vector_digest,
)
from dpaudit_mitigations.joint_seeds.messages import MOST_CANDIDATES
from dpaudit_mitigations.joint_seeds.mitigation import SubstitutingServer
from dpaudit_mitigations.joint_seeds.parties import SeedServer, Verifier
from dpaudit_mitigations.joint_seeds.record import candidate_noise
from dpaudit_mitigations.joint_seeds.transcript import verify, write


def written(both, path, link=None):
    session = both.run(link=link)
    write(session.record, path)
    return session


@pytest.fixture
def honest(pair, tmp_path):
    both = pair("honest", candidates=3, dim=8)
    path = tmp_path / "transcript.json"
    return both, written(both, path), path


def test_an_honest_transcript_holds_and_says_who_signed(honest):
    both, session, path = honest
    verdict = verify(path)
    assert verdict.holds
    assert verdict.kind == "joint-seeds"
    assert verdict.details["outcome"] == "complete"
    assert verdict.details["used"] == session.record.used
    for key in (both.terms.server, both.terms.verifier):
        assert key.hex() in verdict.says
    assert "1/3" in verdict.cannot_rule_out
    assert verify(path, server=both.terms.server, verifier=both.terms.verifier).holds
    assert not verify(path, server=both.terms.verifier).holds
    assert path.stat().st_size < 5000
    with pytest.raises(UsageError, match="not written"):
        write(session.record, path)


def encode(document):
    return json.dumps(document, sort_keys=True, separators=(",", ":")).encode()


class Blind(Verifier):
    """Accepts everything."""

    def wrong(self):
        return (False,) * self.record.terms.candidates


class Slanderer(Verifier):
    """Says that it caught a server that it did not catch."""

    def wrong(self):
        return tuple(i != self.record.used for i in range(self.record.terms.candidates))


def test_what_does_not_hold_says_why(pair, tmp_path):
    substitute = {"candidate": 0, "substitute": np.zeros(4, np.int64), "server": SubstitutingServer}

    def first(**options):  # a session whose coin leaves the substituted candidate to be opened
        for tag in range(100):
            both = pair(tag, **options)
            path = tmp_path / f"{len(list(tmp_path.iterdir()))}.json"
            if written(both, path).record.used != 0:
                return verify(path)
        raise AssertionError

    caught = first(**substitute)
    blind = first(**substitute, verifier=Blind)
    slander = first(verifier=Slanderer)
    assert not any(verdict.holds for verdict in (caught, blind, slander))
    assert caught.details["outcome"] == "caught"
    assert "candidates 0 are not" in caught.says
    assert blind.details["outcome"] == slander.details["outcome"] == "invalid"
    assert "[0]" in blind.says
    assert "[]" in slander.says
    path = tmp_path / "aborted.json"
    written(pair(), path, link=lambda sender, frame: None if b'"openings"' in frame else frame)
    aborted = verify(path)
    assert not aborted.holds
    assert aborted.details["outcome"] == "aborted"
    assert "openings" in aborted.says


def places(node, kind, path=()):
    """Where a JSON document has a node of this kind, as paths; ``None``: where it has a leaf."""
    inner = isinstance(node, (dict, list))
    if isinstance(node, kind) if kind else not inner:
        yield path
    for key in (node if isinstance(node, dict) else range(len(node))) if inner else ():
        yield from places(node[key], kind, (*path, key))


def at(node, path):
    for key in path:
        node = node[key]
    return node


def replaced(document, path, value):
    if not path:
        return value
    new = copy.deepcopy(document)
    at(new, path[:-1])[path[-1]] = value
    return new


def pick(rng, items):
    items = list(items)
    return items[int(rng.integers(len(items)))]


def another(rng, value, *, digits="0123456789abcdefgF."):
    """Another value of the same type."""
    if value is None:
        return pick(rng, ["00" * 32, "00" * 64, False])
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return value + int(pick(rng, [-1, 1, 2**20, 2**60]))
    digit = int(rng.integers(len(value)))
    return value[:digit] + pick(rng, sorted(set(digits) - {value[digit]})) + value[digit + 1 :]


def mutations(rng, document, others):
    """Endless: one change each, as a document or as bytes; some are none."""
    raw = encode(document) + b"\n"
    lists = [p for p in places(document, list) if len(set(map(str, at(document, p)))) > 1]
    while True:
        theirs, i, digit = pick(rng, others), int(rng.integers(9)), int(rng.integers(len(raw)))
        leaf = pick(rng, places(document, None))
        yield "leaf", replaced(document, leaf, another(rng, at(document, leaf)))
        yield "another session's leaf", replaced(document, leaf, at(theirs, leaf))
        message = theirs["messages"][i]
        yield "another session's message", replaced(document, ("messages", i), message)
        ends = document["messages"][:i] + theirs["messages"][i:]
        yield "another session's end", replaced(document, ("messages",), ends) if i else document
        path = pick(rng, lists)
        some = list(at(document, path))
        j, k = (int(x) for x in rng.choice(len(some), 2, replace=False))
        less = some[:j] + some[j + 1 :]
        yield "missing or twice", replaced(document, path, pick(rng, [less, [*some, some[j]]]))
        some[j], some[k] = some[k], some[j]
        yield "two swapped", replaced(document, path, some)
        path = pick(rng, places(document, dict))
        fields = dict(at(document, path))
        if fields and rng.integers(2):
            del fields[pick(rng, fields)]
        else:
            fields["more"] = 1
        yield "fields", replaced(document, path, fields)
        flipped = bytes([raw[digit] ^ (1 << int(rng.integers(8)))])
        yield "byte", raw[:digit] + flipped + raw[digit + 1 :]
        yield "cut", raw[:digit]
        yield "longer", raw + (raw[:digit] or b" ")
        yield "space", raw.replace(b",", b", ", 1 + digit % 30)
        key = pick(rng, [b'"body"', b'"kind"', b'"transcript"', b'"used"', b'"coin"', b'"nonce"'])
        where, value = raw.index(key), pick(rng, [b"0", b'"joint-seeds"', b"{}"])
        yield "repeated key", raw[:where] + key + b":" + value + b"," + raw[where:]


@pytest.mark.slow
def test_hundreds_of_mutations_and_none_is_accepted(honest, pair, tmp_path):
    document, others = json.loads(honest[2].read_bytes()), []
    for tag in range(40):
        other = tmp_path / f"other{tag}.json"
        session = written(pair(("other", tag), candidates=3, dim=8), other)
        if session.record.used == honest[1].record.used:  # their leaves are in the same places
            others.append(json.loads(other.read_bytes()))
    assert len(others) > 3
    mutated, seen = tmp_path / "mutated.json", collections.Counter()
    rng = np.random.default_rng(6)
    for kind, changed in itertools.islice(mutations(rng, document, others), 400):
        mutated.write_bytes(changed if isinstance(changed, bytes) else encode(changed) + b"\n")
        if mutated.read_bytes() == honest[2].read_bytes():
            continue
        verdict = verify(mutated, threads=1)
        assert not verdict.holds, kind
        assert verdict.details["outcome"] == "invalid"
        seen[kind] += 1
    assert seen.total() > 300
    assert len(seen) == 12
    mutated.write_bytes(encode(document) + b"\n")
    assert verify(mutated).holds


def test_every_leaf_and_every_digit_of_the_signatures_counts(honest, tmp_path):
    document = json.loads(honest[2].read_bytes())
    mutated, rng = tmp_path / "mutated.json", np.random.default_rng(7)
    for path in places(document, None):
        changed = replaced(document, path, another(rng, at(document, path)))
        mutated.write_bytes(encode(changed) + b"\n")
        assert not verify(mutated, threads=1).holds, path


def test_somebody_elses_keys_sign_something_else(honest, pair, tmp_path):
    """Anyone can write a transcript with new keys: it holds, names them, and fails given keys."""
    both, forged, path = honest[0], pair("forged"), tmp_path / "forged.json"
    mine = [Ed25519PrivateKey.from_private_bytes(bytes([i]) * 32) for i in (1, 2)]
    public = [key.public_key().public_bytes_raw() for key in mine]
    terms = structs.replace(forged.terms, server=public[0], verifier=public[1])
    stream = forged.server._stream
    forged.server = SeedServer(forged.steps, terms=terms, key=mine[0], stream=stream)
    forged.verifier = Verifier(terms=terms, key=mine[1], stream=forged.verifier._stream)
    written(forged, path)
    verdict = verify(path)
    assert verdict.holds
    assert public[0].hex() in verdict.says
    assert not verify(path, server=both.terms.server, verifier=both.terms.verifier).holds
    with pytest.raises(UsageError, match=r"key: is not the server's"):
        SeedServer(both.steps, terms=both.terms, stream=stream, key=mine[0])
    with pytest.raises(UsageError, match=r"key: is not the verifier's"):
        Verifier(terms=both.terms, stream=stream, key=mine[1])


class AnySignature:
    """Takes every signature for good."""

    @classmethod
    def from_public_bytes(cls, _):
        return cls()

    def verify(self, *_):
        return None


def test_behind_the_signatures_commitments_hold_everything_but_what_only_an_opening_shows(
    honest, tmp_path, monkeypatch
):
    """Both keys in one hand: only the used candidate's noise is free, and the opening binds it."""
    both, session, path = honest
    monkeypatch.setattr("dpaudit_mitigations.joint_seeds.record.Ed25519PublicKey", AnySignature)
    document, used = json.loads(path.read_bytes()), session.record.used
    mutated, seal, rng = tmp_path / "mutated.json", tmp_path / "seal", np.random.default_rng(8)
    both.server.opening().save(seal)
    free = set()
    for where in places(document, None):
        other = another(rng, at(document, where), digits="0123456789abcdef")
        changed = replaced(document, where, other)
        mutated.write_bytes(encode(changed) + b"\n")
        if verify(mutated, threads=1).holds:
            free.add(where[1:])
    signatures = {(i, "signature") for i in range(2, 9)}
    assert free <= signatures | {(2, "sealed"), (3, "body", "noises", used)}
    assert (3, "body", "noises", used) in free
    changed = replaced(document, ("messages", 3, "body", "noises", used), "00" * 32)
    mutated.write_bytes(encode(changed) + b"\n")
    assert not verify(mutated, opening=seal).holds


def test_nothing_of_the_used_candidate_is_in_the_transcript(honest):
    both, session, path = honest
    text, opening, terms = path.read_text(), both.server.opening(), both.terms
    key = both.server.candidate_key(session.record.used)
    noise = candidate_noise(key, terms)
    secret = {
        "key": key,
        "salt": labelled_hash("salt", key),
        "noise": noise(0).tobytes(),
        "noise digest": vector_digest("noise", noise, dim=8),
        "query digest": vector_digest("query", vector_blocks(both.steps), dim=8),
        "query salts": opening.query,
        "server's share": opening.server,
        "verifier's share": opening.verifier,
    }
    for name, value in secret.items():
        for part in (value, value[:32], value[32:]):
            assert not part or part.hex() not in text, name
    shown = (session.record.used + 1) % 3  # the search can find something
    assert both.server._shares[shown].hex() in text
    assert both.server._theirs[shown].hex() in text


def test_a_transcript_confirms_no_guess_of_the_query(honest):
    """Known bad: without salts release − guess can be hashed and compared; one salt is no help."""
    both, session, path = honest
    used, terms, text = session.record.used, both.terms, path.read_text()
    steps = (session.release / terms.granularity).astype(np.int64)

    def unsalted(guess):
        digest = vector_digest("noise", vector_blocks(steps - guess), dim=8)
        return labelled_hash(
            "noise commitment", session.record.session, used.to_bytes(4, "big"), digest
        )

    right, wrong = both.steps, both.steps + 1
    known_bad = unsalted(right)  # what such a protocol would have committed to
    assert [unsalted(guess) == known_bad for guess in (right, wrong)] == [True, False]
    assert unsalted(right).hex() not in text
    # all that is public
    about = "noise commitment", session.record.session, used.to_bytes(4, "big")
    for theirs in (bytes(64), *both.server._theirs[:used], *both.server._theirs[used + 1 :]):
        key = joint_key(session.record.session, used, both.server._shares[used], theirs)
        digest = vector_digest("noise", vector_blocks(steps - right), dim=8)
        assert labelled_hash(*about, labelled_hash("salt", key), digest).hex() not in text
    # with both shares it is found: the search can find something
    key = both.server.candidate_key(used)
    assert labelled_hash(*about, labelled_hash("salt", key), digest).hex() in text


class Adder(SeedServer):
    """Deviates at the very end: releases something else than it committed to, and signs that."""

    def _verdict(self):
        self._steps = self._steps + 1
        return super()._verdict()


def test_the_sealed_opening_shows_the_sum_bit_for_bit(pair, tmp_path):
    for tag, server, right in (("right", SeedServer, True), ("wrong", Adder, False)):
        both = pair(tag, dim=300, server=server)
        path, seal, array = (tmp_path / f"{tag}.{end}" for end in ("json", "seal", "npy"))
        session = written(both, path)
        np.save(array, session.release)
        both.server.opening().save(seal)
        assert seal.stat().st_mode & 0o777 == 0o600
        assert verify(path).holds  # nobody can tell without the seal
        assert verify(path, opening=seal).holds
        assert verify(path, opening=seal).details["audited"] == "noise"
        full = verify(path, opening=seal, release=array)
        assert full.holds == right
        if right:
            assert "very end" in verify(path).cannot_rule_out
            assert "very end" not in full.cannot_rule_out
            np.save(array, session.release + 2.0**-24)
            assert not verify(path, opening=seal, release=array).holds
            np.save(array, session.release.astype(np.float32))
            assert not verify(path, opening=seal, release=array).holds
            with pytest.raises(UsageError, match="opening"):
                verify(path, release=array)
            with pytest.raises(KeyFileError, match="not written"):
                both.server.opening().save(seal)
    assert (
        "another session's" in verify(tmp_path / "right.json", opening=tmp_path / "wrong.seal").says
    )


def test_an_opening_shows_luck(pair, tmp_path):
    for tag in range(100):
        both = pair(tag, server=SubstitutingServer, candidate=0, substitute=np.zeros(4, np.int64))
        path, seal = tmp_path / f"{tag}.json", tmp_path / f"{tag}.seal"
        if written(both, path).outcome == "complete":
            break
    both.server.opening().save(seal)
    assert verify(path).holds
    verdict = verify(path, opening=seal)
    assert not verdict.holds


def test_bad_openings_and_releases(honest, tmp_path):
    both, _, path = honest
    seal = tmp_path / "seal"
    both.server.opening().save(seal)
    seal.chmod(0o640)
    with pytest.raises(KeyFileError, match="chmod"):
        verify(path, opening=seal)
    seal.chmod(0o600)
    data = seal.read_bytes()
    other = data.replace(b'"version":1', b'"version":2')
    for content in (b"", b"{}", data[:-9], other, b"[" * 5000):
        bad = tmp_path / "bad"
        bad.touch(mode=0o600)
        bad.write_bytes(content)
        with pytest.raises(KeyFileError):
            verify(path, opening=bad)
    (tmp_path / "no.npy").write_bytes(b"\x93NUMPY nothing")
    np.save(tmp_path / "object.npy", np.array([{}], dtype=object), allow_pickle=True)
    for name in ("no.npy", "object.npy", "none.npy"):
        with pytest.raises(UsageError, match="release="):
            verify(path, opening=seal, release=tmp_path / name)


def test_a_transcript_cannot_ask_for_endless_work(honest, pair, tmp_path):
    document, path = json.loads(honest[2].read_bytes()), tmp_path / "big.json"
    for name, value in (
        ("dim", 2**40),
        ("candidates", 10**9),
        ("scale", (2.0**40).hex()),
        ("granularity", "inf"),
    ):
        changed = replaced(document, ("messages", 0, "body", "terms", name), value)
        path.write_bytes(encode(changed) + b"\n")
        assert not verify(path).holds
    most = tmp_path / "most.json"
    written(pair(candidates=MOST_CANDIDATES), most)  # the largest there is fits
    assert verify(most).holds
