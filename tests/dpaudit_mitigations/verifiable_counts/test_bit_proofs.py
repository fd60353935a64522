"""The block proof: complete, sound against deviations in every place, simulatable."""

import contextlib
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
import rbcl

from dpaudit.errors import CheatingError, MessageError
from dpaudit_mitigations.verifiable_counts import bit_proofs
from dpaudit_mitigations.verifiable_counts import terms as terms_module
from dpaudit_mitigations.verifiable_counts.bit_proofs import (
    BlockProof,
    BlockSecrets,
    BlockStatement,
    add_claims,
    basis_at,
    challenges_of,
    combine,
    prove,
    relation_at,
    vanishing_at,
    weights_of,
)
from dpaudit_mitigations.verifiable_counts.group import (
    BLINDING_BASE,
    IDENTITY,
    VALUE_BASE,
    L,
    Relation,
    add,
    blinding_multiple,
    column_bases,
    commit,
    commit_rows,
    decode_point,
    decode_scalar,
    encode_scalar,
    generator,
    multiple,
    random_scalar,
    random_scalars,
    sum_of_multiples,
)
from dpaudit_mitigations.verifiable_counts.terms import Challenges, session_challenges

K, M = 5, 8


def honest(stream, k=K, m=M):
    bits = np.frombuffer(stream.bytes(k * m), np.uint8).reshape(k, m) % 2
    signs = (np.frombuffer(stream.bytes(k * m), np.uint8) % 3).reshape(k, m)
    sums = (bits.astype(int) * (signs.astype(int) - 1)).sum(1).tolist()
    secrets = BlockSecrets(bits, random_scalars(k, stream), sums, random_scalars(k, stream))
    points = [commit(s, r) for s, r in zip(sums, secrets.sum_blindings, strict=True)]
    return BlockStatement(commit_rows(bits, secrets.row_blindings), points, signs), secrets


def holds(statement, proof, stream, challenges=None, at=None):
    y, x = at or challenges_of(proof, challenges or Challenges(b"test"))
    weights, relation = random_scalars(3, stream.child("weights")), Relation()
    add_claims(statement, proof, y=y, x=x, weights=weights, into=relation)
    return relation.holds()


def proved(statement, secrets, stream):
    return prove(statement, secrets, challenges=Challenges(b"test"), stream=stream.child("prover"))


def slowly(table, small):
    """``combine`` in Python's integers."""
    return [
        [sum(w * int(s) for w, s in zip(row, column, strict=True)) for column in small.T]
        for row in table
    ]


@pytest.mark.parametrize(("k", "m"), [(1, 4), (2, 4), (5, 8), (64, 12)])
def test_complete(k, m, stream):
    statement, secrets = honest(stream, k, m)
    proof = proved(statement, secrets, stream)
    assert holds(statement, proof, stream)
    data = proof.encode()
    assert len(data) == BlockProof.size(rows=k, columns=m)
    assert BlockProof.decode(data, rows=k, columns=m) == proof
    assert not holds(statement, proof, stream, Challenges(b"another place"))
    for bad in (data[:-1], data + bytes(1), data[:-32] + b"\xff" * 32, bytes(32) + data[32:]):
        with pytest.raises(MessageError):
            BlockProof.decode(bad, rows=k, columns=m)


def row_of(numbers, blinding):
    return add(sum_of_multiples(column_bases(len(numbers)), numbers), blinding_multiple(blinding))


@pytest.mark.parametrize("forged", [2, 3, 255])
def test_a_coin_that_is_no_bit(forged, stream):
    """One coin of 40 is committed as 2 (or more); the rest, its sum too, as by an honest prover."""
    statement, secrets = honest(stream)
    bits = secrets.bits.copy()
    bits[3, 6] = forged
    sums = (bits.astype(int) * (statement.signs.astype(int) - 1)).sum(1).tolist()
    wrong, cheat = forged_block(secrets, bits, statement.signs, sums)
    assert not holds(wrong, proved(wrong, cheat, stream), stream)


@pytest.fixture
def any_numbers(monkeypatch):
    """LAB SPECIMEN: a prover whose "bits" may be any scalars, in Python's integers."""
    monkeypatch.setattr(bit_proofs, "weights_of", lambda table: table)
    monkeypatch.setattr(bit_proofs, "combine", slowly)
    bit_proofs._further_points.cache_clear()
    yield
    bit_proofs._further_points.cache_clear()


def forged_block(secrets, numbers, signs, sums):
    rows = [row_of(b, r) for b, r in zip(numbers.tolist(), secrets.row_blindings, strict=True)]
    points = [commit(s, r) for s, r in zip(sums, secrets.sum_blindings, strict=True)]
    return BlockStatement(rows, points, signs), replace(secrets, bits=numbers, sums=sums)


def test_two_forged_coins_that_cancel(any_numbers, stream, monkeypatch):
    """a(a − 1) + c(c − 1) = 0, neither a bit: passes with equal weights, not with powers of y."""
    statement, secrets = honest(stream)
    t = 5  # a rational point of (2a − 1)² + (2c − 1)² = 2
    over = pow(t * t + 1, -1, L)
    a, c = ((1 + over * top) * pow(2, -1, L) % L for top in (t * t - 2 * t - 1, 1 - 2 * t - t * t))
    assert (a * (a - 1) + c * (c - 1)) % L == 0
    assert not {a, c} & {0, 1}
    numbers, signs = secrets.bits.astype(object), statement.signs.copy()
    numbers[0, :2], signs[0] = (a, c), 1
    sums = [0, *secrets.sums[1:]]
    wrong, cheat = forged_block(secrets, numbers, signs, sums)
    assert not holds(wrong, proved(wrong, cheat, stream), stream)
    monkeypatch.setattr(bit_proofs, "_powers", lambda y, m: [y] * m + [y * y])
    assert holds(wrong, proved(wrong, cheat, stream), stream)


def test_a_sum_made_to_fit_a_challenge(any_numbers, stream, monkeypatch):
    """A coin of 1,000 hidden by a sum that cancels it at one y: passes only for a known y."""
    statement, secrets = honest(stream)
    numbers, signs = secrets.bits.astype(object), statement.signs.copy()
    numbers[2, 3], signs[2] = 1000, 2
    known = 12345
    fitted = (sum(numbers[2]) + known**4 * 1000 * 999 * pow(known, -(M + 1), L)) % L
    sums = [*secrets.sums[:2], fitted, *secrets.sums[3:]]
    wrong, cheat = forged_block(secrets, numbers, signs, sums)
    assert not holds(wrong, proved(wrong, cheat, stream), stream)
    monkeypatch.setattr(bit_proofs, "_y", lambda *_: known)
    assert holds(wrong, proved(wrong, cheat, stream), stream)


def test_a_sum_that_is_not_the_rows(stream):
    statement, secrets = honest(stream)
    sums = [*secrets.sums[:-1], secrets.sums[-1] + 1]
    wrong, cheat = forged_block(secrets, secrets.bits, statement.signs, sums)
    assert wrong.rows == statement.rows
    assert not holds(wrong, proved(wrong, cheat, stream), stream)


def test_other_bits_than_were_committed(stream):
    """After the signs are known: other bits in the proof, and sums that carry the difference."""
    statement, secrets = honest(stream)
    better = 1 - secrets.bits
    sums = (better.astype(int) * (statement.signs.astype(int) - 1)).sum(1).tolist()
    points = [commit(s, r) for s, r in zip(sums, secrets.sum_blindings, strict=True)]
    changed = replace(secrets, bits=better, sums=sums)
    plain = replace(statement, sums=points)
    assert not holds(plain, proved(plain, changed, stream), stream)
    shift = better.astype(int) - secrets.bits.astype(int)
    carried = [
        add(point, sum_of_multiples(column_bases(M), [int(x) for x in row]))
        for point, row in zip(points, shift, strict=True)
    ]
    smuggled = replace(statement, sums=carried)
    assert not holds(smuggled, proved(smuggled, changed, stream), stream)


@pytest.mark.parametrize("swapped", ["rows", "sums"])
def test_swapped_commitments(swapped, stream):
    statement, secrets = honest(stream)
    proof = proved(statement, secrets, stream)
    points = list(getattr(statement, swapped))
    points[0], points[1] = points[1], points[0]
    assert not holds(replace(statement, **{swapped: points}), proof, stream)


def simulated(statement, y, x, stream):
    """A proof from statement and challenges alone: uniform values, three computed points."""
    row, (total, z, z_sum, z_quotient) = random_scalars(M, stream), random_scalars(4, stream)
    free = [multiple(random_scalar(stream), VALUE_BASE) for _ in range(K)]
    first, *rest = basis_at(x, start=0, count=K + 1)
    between = basis_at(x, start=K + 1, count=K + 1)
    draft = BlockProof(
        VALUE_BASE, VALUE_BASE, [VALUE_BASE, *free], row, total, z, z_sum, z_quotient
    )
    quotient = relation_at(statement.signs, draft, y=y, x=x) * pow(vanishing_at(x, count=K), -1, L)

    def solve(wanted, points, scalars, by):
        missing = add(wanted, multiple(L - 1, sum_of_multiples(points, scalars)))
        return multiple(pow(by, -1, L), missing)

    return replace(
        draft,
        row_mask=solve(row_of(row, z), statement.rows, rest, first),
        sum_mask=solve(commit(total, z_sum), statement.sums, rest, first),
        quotients=[solve(commit(quotient, z_quotient), free, between[1:], between[0]), *free],
    )


def test_simulated_proofs_hold_for_programmed_challenges(stream):
    """Also for a false statement (random points): who may choose the challenges needs no secret."""
    statement, _ = honest(stream)
    random_points = [
        [multiple(random_scalar(stream), VALUE_BASE) for _ in range(K)] for _ in range(2)
    ]
    y, x = random_scalars(2, stream)
    for claim in (statement, BlockStatement(*random_points, statement.signs)):
        proof = simulated(claim, y, x, stream)
        assert holds(claim, proof, stream, at=(y, x))
        assert not holds(claim, proof, stream, at=(y, x + 1))
        assert not holds(claim, proof, stream)  # the hash's challenges are others


def test_opened_rows_are_uniform_whatever_the_bits(stream):
    """The top three bits of 1,600 revealed scalars, all-zero or all-one rows: uniform if masked."""
    for bit in (0, 1):
        bits = np.full((K, M), bit, dtype=np.uint8)
        signs = np.ones((K, M), dtype=np.uint8)
        secrets = BlockSecrets(bits, random_scalars(K, stream), [0] * K, random_scalars(K, stream))
        sums = [commit(0, r) for r in secrets.sum_blindings]
        statement = BlockStatement(commit_rows(bits, secrets.row_blindings), sums, signs)
        scalars = []
        for number in range(40):
            proof = prove(
                statement, secrets, challenges=Challenges(b"test"), stream=stream.child(bit, number)
            )
            scalars += proof.row
        counts = np.bincount([value * 8 // L for value in scalars], minlength=8)
        assert ((counts - 40) ** 2 / 40).sum() < 30  # χ² with 7 degrees of freedom: p = 1e-4
        assert len(set(scalars)) == len(scalars)


@pytest.fixture
def small_blocks(monkeypatch):
    monkeypatch.setattr(terms_module, "_BLOCK", 3)


@pytest.mark.slow
def test_one_bad_place_among_many_is_found_and_named(small_blocks, play, stream):
    """Every scalar and every point of a response with three blocks, each spoilt alone."""
    session = play([3, -5, 0, 7, 1, 10**9, 2, 4, 6], coins=4, stream=stream)
    response = session.response
    assert len(response.proofs) == 3
    assert session.check(response) == session.released
    spoilt_point = multiple(7, VALUE_BASE)

    def spoil(name, values, at):
        values = list(values)
        values[at] = spoilt_point if isinstance(values[at], bytes) else values[at] + 1
        return {name: values}

    cases = []
    for name, what in (("sums", ""), ("released", "bin"), ("blindings", "bin")):
        values = getattr(response, name)
        cases += [(what, at, replace(response, **spoil(name, values, at))) for at in range(9)]
    for number, proof in enumerate(response.proofs):
        changed = [
            replace(proof, **spoil(name, getattr(proof, name), at))
            for name in ("quotients", "row")
            for at in range(len(getattr(proof, name)))
        ]
        changed += [replace(proof, **{name: spoilt_point}) for name in ("row_mask", "sum_mask")]
        changed += [
            replace(proof, **{name: (getattr(proof, name) + 1) % L})
            for name in ("total", "row_blinding", "sum_blinding", "quotient_blinding")
        ]
        for one in changed:
            proofs = [*response.proofs[:number], one, *response.proofs[number + 1 :]]
            cases.append(("block", number, replace(response, proofs=proofs)))
    assert len(cases) == 27 + 3 * (4 + 4 + 2 + 4)
    for what, at, case in cases:
        with pytest.raises(CheatingError, match=f"^{what} {at + 1} of" if what else "of"):
            session.check(case)


def test_errors_that_cancel_are_still_found(small_blocks, play, stream):
    """Pairs of claims off by +1 and −1: their sum with equal weights would hold."""
    session = play([3, 4, 5, 6], coins=4, stream=stream)
    response = session.response
    a, b, *rest = response.released
    with pytest.raises(CheatingError, match="bin 1 of 4"):
        session.check(replace(response, released=[a + 1, b - 1, *rest]))
    one, two = response.proofs
    names = ("row_blinding", "sum_blinding", "quotient_blinding")
    for first in names:
        up = replace(one, **{first: (getattr(one, first) + 1) % L})
        for second in names:
            down = replace(two, **{second: (getattr(two, second) - 1) % L})
            with pytest.raises(CheatingError, match="block 1 of 2"):
                session.check(replace(response, proofs=[up, down]))
            if second != first:
                both = replace(up, **{second: (getattr(up, second) - 1) % L})
                with pytest.raises(CheatingError, match="block 1 of 2"):
                    session.check(replace(response, proofs=[both, two]))


def test_challenges_hang_on_every_part(play, stream):
    """y on terms, both messages, all sums, the block's number and masks; x on the quotients too."""
    session = play([3, 4], coins=8, stream=stream)
    proof, sums = session.response.proofs[0], session.response.sums
    other = multiple(7, VALUE_BASE)

    def at(*, changed=proof, block=0, **parts):
        said = {"commitments": session.first, "challenge": session.second, "sums": sums} | parts
        of_session = session_challenges(said.pop("terms", session.terms), **said)
        return challenges_of(changed, of_session.fork(b"block %d" % block))

    seen = [
        at(),
        at(commitments=session.first[:-1] + b"x"),
        at(challenge=session.second[:-1] + b"x"),
        at(sums=[*sums[:-1], other]),
        at(terms=replace(session.terms, coins=10)),
        at(block=1),
        at(changed=replace(proof, row_mask=other)),
        at(changed=replace(proof, sum_mask=other)),
        at(changed=replace(proof, quotients=[*proof.quotients[:-1], other])),
    ]
    assert len({x for _, x in seen}) == len(seen)
    assert len({y for y, _ in seen}) == len(seen) - 1
    assert seen[0][0] == seen[-1][0]


P = 2**255 - 19


def test_order_and_base_are_the_standards():
    """RFC 9496: the generator's encoding (A.1), and the order."""
    assert BLINDING_BASE.hex() == "e2f2ae0a6abc4e71a884a961c500515f58e30b6aa582dd8db6a65945e08d2d76"
    assert multiple(L - 1, BLINDING_BASE) != IDENTITY
    assert add(multiple(L - 1, BLINDING_BASE), BLINDING_BASE) == IDENTITY


def test_scalars_have_one_encoding():
    """A verifier that reduced modulo L would accept a second encoding."""
    for value in (0, 1, L - 1):
        assert decode_scalar(value.to_bytes(32, "little")) == value
    for value in (L, L + 1, 2 * L, 2**255, 2**256 - 1):
        with pytest.raises(MessageError, match="scalar"):
            decode_scalar(value.to_bytes(32, "little"))


def test_points_have_one_encoding(stream):
    point = multiple(random_scalars(1, stream)[0], VALUE_BASE)
    assert decode_point(point) == point
    number = int.from_bytes(point, "little")
    for other in (number + P, P - number, number | 1, number | 1 << 255, 0, 1, P, P - 1):
        if other < 2**256 and other.to_bytes(32, "little") != point:
            with pytest.raises(MessageError, match="point"):
                decode_point(other.to_bytes(32, "little"))
    for data in (b"", point[:-1], point + b"\0"):
        with pytest.raises(MessageError, match="point"):
            decode_point(data)


def test_about_half_of_all_strings_are_no_points(stream):
    """The rule is not merely a length: 400 random strings below p, even, top bit clear."""
    accepted = 0
    for _ in range(400):
        number = int.from_bytes(stream.bytes(32), "little") & (1 << 255) - 2
        with contextlib.suppress(MessageError):
            decode_point(number.to_bytes(32, "little"))
            accepted += 1
    assert 20 < accepted < 250


def test_generators_differ_and_are_hashes(stream):
    bases = [VALUE_BASE, BLINDING_BASE, *column_bases(128)]
    assert len(set(bases)) == 130
    assert all(rbcl.crypto_core_ristretto255_is_valid_point(base) for base in bases)
    assert generator("value") == VALUE_BASE != generator("column 1")


def test_commitments_add_up(stream):
    a, b, r, s = random_scalars(4, stream)
    assert add(commit(a, r), commit(b, s)) == commit(a + b, r + s)
    assert commit(-3, r) == commit(L - 3, r) != commit(3, r)
    assert commit(0, 0) == IDENTITY
    assert commit(5, 0) == add(add(*[VALUE_BASE] * 2), add(add(*[VALUE_BASE] * 2), VALUE_BASE))


def test_rows_are_sums_of_the_bases_of_their_ones(stream):
    bits = np.unpackbits(np.frombuffer(stream.bytes(9), np.uint8)).reshape(6, 12)
    bits[0], bits[1] = 0, 1
    blindings = random_scalars(6, stream)
    for row, blinding, point in zip(
        bits.tolist(), blindings, commit_rows(bits, blindings), strict=True
    ):
        slow = sum_of_multiples(column_bases(12), row)
        assert point == add(slow, blinding_multiple(blinding))


def test_relation_merges_terms_and_finds_the_odd_one(stream):
    points, scalars = column_bases(4), random_scalars(4, stream)
    relation = Relation()
    for point, scalar in zip(points, scalars, strict=True):
        relation.add(point, scalar)
        relation.add(point, 5)
    relation.add(sum_of_multiples(points, [s + 5 for s in scalars]), -1)
    assert relation.holds()
    relation.add(BLINDING_BASE, 1)
    assert not relation.holds()
    relation.add(BLINDING_BASE, -1)
    assert relation.holds()


def test_interpolation_against_fractions(stream):
    for start, count in ((0, 1), (0, 5), (6, 5), (0, 65)):
        for x in (start + count + 3, 10**9):
            for j, value in enumerate(basis_at(x, start=start, count=count)):
                exact = Fraction(1)
                for i in range(count):
                    if i != j:
                        exact *= Fraction(x - start - i, j - i)
                assert value == exact.numerator * pow(exact.denominator, -1, L) % L
    assert basis_at(2, start=0, count=4) == [0, 0, 1, 0]
    assert vanishing_at(10, count=4) == 9 * 8 * 7 * 6
    assert vanishing_at(3, count=4) == 0


def test_sums_of_words_are_exact(stream):
    table = [random_scalars(64, stream) for _ in range(3)]
    table[0] = [L - 1] * 64
    small = (np.frombuffer(stream.bytes(64 * 8), np.uint8) % 3).reshape(64, 8)
    small[:, 0] = 2
    assert combine(weights_of(table), small) == slowly(table, small)


def test_challenges_depend_on_all_that_was_said():
    def scalar(*said, domain=b"a", fork=None):
        challenges = Challenges(domain)
        for label, data in said:
            challenges.absorb(label, data)
        return (challenges.fork(fork) if fork else challenges).scalar(b"x")

    seen = [
        scalar((b"a", b"b")),
        scalar((b"a", b"c")),
        scalar((b"ab", b"")),
        scalar((b"", b"ab")),
        scalar((b"a", b""), (b"", b"b")),
        scalar((b"a", b"b"), domain=b"b"),
        scalar((b"a", b"b"), fork=b"1"),
        scalar((b"a", b"b"), fork=b"2"),
    ]
    assert len(set(seen)) == len(seen)
    assert seen[0] == scalar((b"a", b"b"))
    once = Challenges(b"a")
    # the second depends on the first having been asked
    assert once.scalar(b"x") != once.scalar(b"x")
    assert encode_scalar(seen[0]) == seen[0].to_bytes(32, "little")
