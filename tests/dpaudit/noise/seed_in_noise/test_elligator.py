"""Elligator 2 on Curve25519, against RFC 9380 and against X25519 of OpenSSL."""

import numpy as np
import pytest
import scipy.stats

from dpaudit.errors import UsageError
from dpaudit.noise.seed_in_noise.elligator import (
    ORDER,
    FixedBase,
    L,
    P,
    _at,
    _times,
    base_point,
    from_representative,
    representative,
    uniform_below,
)
from dpaudit.noise.seed_in_noise.nonces import OpenedNonces, SealedNonces, private_key

# RFC 9380, appendix J.4.2, curve25519_XMD:SHA-512_ELL2_NU_: u[0] and Q.x
RFC = [
    (
        "608d892b641f0328523802a6603427c26e55e6f27e71a91a478148d45b5093cd",
        "51125222da5e763d97f3c10fcc92ea6860b9ccbbd2eb1285728f566721c1e65b",
    ),
    (
        "46f5b22494bfeaa7f232cc8d054be68561af50230234d7d1d63d1d9abeca8da5",
        "7d56d1e08cb0ccb92baf069c18c49bb5a0dcd927eff8dcf75ca921ef7f3e6eeb",
    ),
    (
        "235fe40c443766ce7e18111c33862d66c3b33267efa50d50f9e8e5d252a40aaa",
        "3fbe66b9c9883d79e8407150e7c2a1c8680bee496c62fabe4619a72b3cabe90f",
    ),
    (
        "001e92a544463bda9bd04ddbe3d6eed248f82de32f522669efc5ddce95f46f5b",
        "227e0bb89de700385d19ec40e857db6e6a3e634b1c32962f370d26f84ff19683",
    ),
    (
        "1a68a1af9f663592291af987203393f707305c7bac9c8d63d6a729bdc553dc19",
        "3bcd651ee54d5f7b6013898aab251ee8ecc0688166fce6e9548d38472f6bd196",
    ),
]


@pytest.mark.parametrize(("r", "u"), RFC)
def test_the_map_is_that_of_the_rfc(r, u):
    r, u = int(r, 16), int(u, 16)
    assert from_representative(r) == from_representative(P - r) == u
    assert min(r, P - r) in (representative(u, second=False), representative(u, second=True))


def test_half_of_the_points_have_two_representatives_that_map_back(stream):
    some = [uniform_below(ORDER, stream.bytes) for _ in range(60)]
    points = [base_point().multiple(k) for k in some]
    found = [[representative(u, second=s) for s in (False, True)] for u in points]
    have = [(u, rs) for u, rs in zip(points, found, strict=True) if rs[0] is not None]
    assert 15 <= len(have) <= 45
    for u, rs in have:
        assert rs[0] != rs[1]
        assert all(0 <= r <= (P - 1) // 2 and from_representative(r) == u for r in rs)
    assert all((rs[0] is None) == (rs[1] is None) for rs in found)
    assert representative(0, second=False) is None


def test_multiples_are_those_of_x25519():
    key = private_key(b"k" * 32)
    k = bytearray(key.private_bytes_raw())
    k[0], k[31] = k[0] & 248, k[31] & 127 | 64
    u = base_point().multiple(int.from_bytes(k, "little") % ORDER)
    # multiples of 8 lose the part of order 8
    assert u.to_bytes(32, "little") == key.public_key().public_bytes_raw()


def test_points_are_of_the_whole_group():
    """A subgroup of points would show: L times a nonce's point would be neutral."""
    assert base_point().vanishes(ORDER)
    assert not base_point().vanishes(ORDER // 2)
    assert not base_point().vanishes(8)
    assert FixedBase.at(9).vanishes(L)


def test_only_the_owner_finds_the_seed_of_a_sealed_nonce(stream):
    owner, other = OpenedNonces(b"a" * 32), OpenedNonces(b"b" * 32)
    sealed = SealedNonces(owner.public.hex())
    for _ in range(10):
        nonce, seed = sealed.fresh(stream)
        assert (len(nonce), len(seed)) == (32, 32)
        assert owner.seed(nonce) == seed != other.seed(nonce)
        assert owner.seed(nonce[:31] + bytes([nonce[31] ^ 64])) != seed  # the top bits count


@pytest.mark.slow
def test_sealed_nonces_look_like_random_bits(stream):
    owner = OpenedNonces(b"a" * 32)
    sealed = SealedNonces(owner.public.hex())
    drawn = np.array([np.frombuffer(sealed.fresh(stream)[0], np.uint8) for _ in range(250)])
    bits = np.unpackbits(drawn, axis=1, bitorder="little")
    shares = bits.mean(0)
    assert np.abs(shares - 0.5).max() < 5 * 0.5 / np.sqrt(250)  # the highest two among them
    assert scipy.stats.chisquare(np.bincount(drawn.ravel() >> 4, minlength=16)).pvalue > 1e-3
    # points of the prime-order subgroup, which a careless sampler takes, show here
    points = [from_representative(int.from_bytes(n.tobytes(), "little") % 2**254) for n in drawn]
    multiples = [_times(L, _at((u - 1) * pow(u + 1, -1, P) % P)) for u in points[:60]]
    neutral = sum((y - z) % P == 0 for _, y, z, _ in multiples)
    assert neutral < 30  # one in eight


def test_no_public_key():
    for bad in ("", "xyz", "00" * 32, "01" + "00" * 31, "02" + "00" * 31, 5, "A" * 64):
        with pytest.raises(UsageError, match="public_key="):
            SealedNonces(bad)


def test_a_nonce_of_small_order_raises_nothing():
    assert len(OpenedNonces(b"a" * 32).seed(bytes(32))) == 32
