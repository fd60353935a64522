"""Clients that commit to their own records."""

import itertools

import pytest

from dpaudit.errors import CheatingError, MessageError, UsageError
from dpaudit_mitigations.verifiable_counts.challenges import Challenges
from dpaudit_mitigations.verifiable_counts.client_records import (
    add_commitments,
    add_openings,
    check_openings,
    check_record,
    make_record,
)
from dpaudit_mitigations.verifiable_counts.commitments import Opening, commit
from dpaudit_mitigations.verifiable_counts.disjunctive import check_bit, prove_bit
from dpaudit_mitigations.verifiable_counts.group import (
    L,
    decode_scalars,
    encode_scalar,
    encode_scalars,
    random_scalars,
)
from dpaudit_mitigations.verifiable_counts.prover import Prover
from dpaudit_mitigations.verifiable_counts.terms import CountTerms
from dpaudit_mitigations.verifiable_counts.verifier import Verifier


def gathered(terms, bins, stream):
    made = [
        make_record(b, terms, client=b"client %d" % i, stream=stream.child("client", i))
        for i, b in enumerate(bins)
    ]
    points = [
        check_record(record, terms, client=b"client %d" % i) for i, (record, _) in enumerate(made)
    ]
    return add_commitments(points), [openings for _, openings in made]


def test_clients_to_release(stream):
    terms = CountTerms.fresh(bins=3, coins=4, stream=stream)
    counts, openings = gathered(terms, [0, 2, 2, 2, 0], stream)
    added = add_openings(openings)
    assert [o.value for o in added] == [2, 0, 3]
    assert [o.commitment for o in added] == counts
    prover = Prover(terms, added, stream=stream.child("prover"))
    judge = Verifier(terms, stream=stream.child("verifier"), counts=counts)
    released = judge.check(prover.respond(judge.challenge(prover.commit())))
    assert all(abs(y - n) <= 2 for y, n in zip(released, [2, 0, 3], strict=True))


def test_a_prover_that_drops_or_invents_a_client(stream):
    terms = CountTerms.fresh(bins=2, coins=4, stream=stream)
    counts, openings = gathered(terms, [0, 1, 1], stream)
    _, invented = make_record(1, terms, client=b"nobody", stream=stream.child("nobody"))
    for wrong in (openings[1:], [*openings, invented]):
        prover = Prover(terms, add_openings(wrong), stream=stream.child("prover"))
        with pytest.raises(CheatingError, match="clients"):
            Verifier(terms, stream=stream, counts=counts).challenge(prover.commit())


def test_a_client_that_lies_to_the_prover(stream):
    """Openings that are not its record's would have the honest prover refused as a cheat."""
    terms = CountTerms.fresh(bins=2, coins=4, stream=stream)
    record, openings = make_record(1, terms, client=b"a", stream=stream.child("a"))
    points = check_record(record, terms, client=b"a")
    check_openings(openings, points)
    first, second = openings
    for lie in (
        [second, first],
        [first],
        [first, Opening(0, second.blinding)],
        [first, Opening(1, second.blinding + 1)],
    ):
        with pytest.raises(CheatingError, match="exclude the client"):
            check_openings(lie, points)


def test_a_client_whose_stream_repeats(stream):
    """No nonce twice: with e·r + k and e'·r + k anybody has the blinding r, and so the bin."""
    terms = [CountTerms(bytes([i]) * 32, 3, 4) for i in (0, 1)]
    made = [
        make_record(at, t, client=name, stream=stream.child("client"))[0]
        for t, name, at in (
            (terms[0], b"a", 1),
            (terms[1], b"a", 1),
            (terms[0], b"b", 1),
            (terms[0], b"a", 2),
        )
    ]
    points = {record[at : at + 32] for record in made for at in range(0, 96, 32)}
    assert len(points) == 12
    for record in made:
        proofs = [record[96 + 128 * i : 96 + 128 * (i + 1)] for i in range(3)]
        for one, other in itertools.combinations(
            [*proofs, *(r[96:224] for r in made if r != record)], 2
        ):
            e, f = decode_scalars(one), decode_scalars(other)
            for value in (0, 1):
                blinding = (e[2 + value] - f[2 + value]) * pow(e[value] - f[value], -1, L) % L
                assert commit(value, blinding) not in points


def test_records_of_others_and_of_other_sessions(stream):
    terms = CountTerms.fresh(bins=2, coins=4, stream=stream)
    record, _ = make_record(1, terms, client=b"a", stream=stream.child("a"))
    check_record(record, terms, client=b"a")
    for other, client in ((terms, b"b"), (CountTerms.fresh(bins=2, coins=4, stream=stream), b"a")):
        with pytest.raises(CheatingError):
            check_record(record, other, client=client)
    half = 32 * 2
    swapped = record[32:half] + record[:32] + record[half:]
    with pytest.raises(CheatingError):
        check_record(swapped, terms, client=b"a")
    last = (int.from_bytes(record[-32:], "little") + 1) % L
    with pytest.raises(CheatingError, match="add up"):
        check_record(record[:-32] + encode_scalar(last), terms, client=b"a")
    for bad in (b"", record[:-1], record + b"\0", bytes(len(record))):
        with pytest.raises(MessageError):
            check_record(bad, terms, client=b"a")
    with pytest.raises(UsageError, match="bin_number=2"):
        make_record(2, terms, client=b"a", stream=stream)


def test_two_records_in_one(stream, monkeypatch):
    """A client that counts twice: each commitment is a bit, their sum is not one."""
    from dpaudit_mitigations.verifiable_counts import client_records

    terms = CountTerms.fresh(bins=2, coins=4, stream=stream)
    monkeypatch.setattr(client_records, "Opening", lambda value, blinding: Opening(1, blinding))
    record, _ = make_record(0, terms, client=b"a", stream=stream.child("a"))
    with pytest.raises(CheatingError, match="add up"):
        check_record(record, terms, client=b"a")


@pytest.mark.parametrize("value", [0, 1])
def test_disjunction(value, stream):
    (blinding,) = random_scalars(1, stream)
    point = commit(value, blinding)
    proof = prove_bit(point, Opening(value, blinding), challenges=Challenges(b"t"), stream=stream)
    check_bit(point, proof, challenges=Challenges(b"t"))
    for other, domain in (
        (commit(2, blinding), b"t"),
        (commit(1 - value, blinding), b"t"),
        (point, b"u"),
    ):
        with pytest.raises(CheatingError):
            check_bit(other, proof, challenges=Challenges(domain))
    for at in range(128):
        changed = bytearray(proof)
        changed[at] ^= 1
        with pytest.raises((CheatingError, MessageError)):
            check_bit(point, bytes(changed), challenges=Challenges(b"t"))


def test_no_proof_of_two(stream):
    """Neither from the prover's code nor from one branch simulated and the other claimed."""
    (blinding,) = random_scalars(1, stream)
    point = commit(2, blinding)
    with pytest.raises(CheatingError, match="neither"):
        prove_bit(point, Opening(2, blinding), challenges=Challenges(b"t"), stream=stream)
    simulated = encode_scalars(random_scalars(4, stream))
    with pytest.raises(CheatingError):
        check_bit(point, simulated, challenges=Challenges(b"t"))


def test_disjunctions_are_simulatable(stream, monkeypatch):
    """Any challenges and answers pass for any commitment if the hash is programmed."""
    from dpaudit_mitigations.verifiable_counts import disjunctive

    (blinding,) = random_scalars(1, stream)
    for value in (0, 1, 2):
        numbers = random_scalars(4, stream)
        proof = encode_scalars(numbers)
        with pytest.raises(CheatingError):
            check_bit(commit(value, blinding), proof, challenges=Challenges(b"t"))
        wanted = sum(numbers[:2]) % L
        with monkeypatch.context() as programmed:
            programmed.setattr(disjunctive, "_challenge", lambda *_, wanted=wanted: wanted)
            check_bit(commit(value, blinding), proof, challenges=Challenges(b"t"))
