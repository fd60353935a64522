"""Shamir shares against Lagrange's formula in plain integers, and that fewer say nothing."""

import subprocess
import sys

import pytest
import sympy
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from hypothesis import given
from hypothesis import strategies as st

from dpaudit.errors import CheatingError, MessageError, UsageError
from dpaudit_mitigations.secure_aggregation.keys import public_bytes
from dpaudit_mitigations.secure_aggregation.shares import (
    PRIME,
    SEALED_BYTES,
    SHARE_BYTES,
    open_shares,
    recombine,
    seal_shares,
    split,
)


def lagrange(points, at):
    total = 0
    for i, y in points.items():
        top = bottom = 1
        for j in points:
            if j != i:
                top, bottom = top * (at - j) % PRIME, bottom * (i - j) % PRIME
        total += y * top * pow(bottom, -1, PRIME)
    return total % PRIME


@given(st.data(), st.integers(1, 12), st.binary(min_size=32, max_size=32))
def test_any_threshold_of_shares_gives_the_secret(data, n, secret):
    t = data.draw(st.integers(1, n))
    shares = split(secret, parties=n, threshold=t)
    assert all(len(s) == SHARE_BYTES for s in shares)
    places = data.draw(st.permutations(range(1, n + 1)))[: data.draw(st.integers(t, n))]
    assert recombine({p: shares[p - 1] for p in places}, threshold=t) == secret
    points = {p: int.from_bytes(shares[p - 1], "big") for p in places[:t]}
    assert lagrange(points, 0) == int.from_bytes(secret, "big")
    for p in range(1, n + 1):  # all on one polynomial of degree t − 1
        assert lagrange(points, p) == int.from_bytes(shares[p - 1], "big")


def test_the_field_holds_every_secret():
    assert PRIME > 2**256
    assert sympy.isprime(PRIME)
    for secret in (bytes(32), b"\xff" * 32):
        assert (
            recombine(dict(enumerate(split(secret, parties=3, threshold=2), 1)), threshold=2)
            == secret
        )


def test_fewer_shares_fit_every_secret_and_sharings_are_fresh():
    """Through t − 1 shares and any secret whatever there is a polynomial of degree t − 1."""
    shares = split(b"s" * 32, parties=5, threshold=3)
    two = {p: int.from_bytes(shares[p - 1], "big") for p in (2, 4)}
    for guess in (0, 1, PRIME - 1, int.from_bytes(b"s" * 32, "big")):
        points = {0: guess, **two}
        assert all(lagrange(points, p) == y for p, y in two.items())
    again = split(b"s" * 32, parties=5, threshold=3)
    assert all(a != b for a, b in zip(shares, again, strict=True))
    assert len(set(shares)) == 5  # degree 0 would make them equal


def test_bad_shares_and_bad_calls():
    shares = dict(enumerate(split(bytes(32), parties=4, threshold=3), 1))
    with pytest.raises(MessageError, match="2 shares"):
        recombine({p: shares[p] for p in (1, 2)}, threshold=3)
    for bad in (PRIME.to_bytes(33, "big"), b"\xff" * 33, bytes(32)):
        with pytest.raises(MessageError, match="place 2"):
            recombine(shares | {2: bad}, threshold=3)
    for secret, parties, threshold in ((bytes(31), 3, 2), (bytes(32), 3, 4), (bytes(32), 3, 0)):
        with pytest.raises(UsageError):
            split(secret, parties=parties, threshold=threshold)


def test_envelopes_open_for_one_recipient_one_sender_one_round():
    own, other = X25519PrivateKey.generate(), X25519PrivateKey.generate()
    seed, key = b"1" * SHARE_BYTES, b"2" * SHARE_BYTES
    ends = {"agreed": b"round", "sender": "a", "recipient": "b"}
    sealed = seal_shares(seed, key, own=own, other=public_bytes(other), **ends)
    assert len(sealed) == SEALED_BYTES
    assert seed not in sealed
    back = {"own": other, "other": public_bytes(own)}
    assert open_shares(sealed, **back, **ends) == (seed, key)
    for wrong in (
        {"agreed": b"other"},
        {"sender": "c"},
        {"recipient": "c"},
        {"sender": "b", "recipient": "a"},
    ):
        with pytest.raises(CheatingError, match="not what"):
            open_shares(sealed, **back, **(ends | wrong))
    reverse = seal_shares(
        seed, key, own=other, other=public_bytes(own), agreed=b"round", sender="b", recipient="a"
    )
    # another key in the other direction, though the shared secret is the same
    assert reverse != sealed


def test_the_sharing_library_touches_neither_arguments_nor_logs():
    code = (
        "import sys, logging; sys.argv = ['x', '--threshold', 'no number', '-H', '--help'];"
        "import dpaudit_mitigations.secure_aggregation.shares;"
        "assert sys.argv[2] == 'no number'; assert logging.getLogger().handlers == [];"
        "assert 'torch' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
