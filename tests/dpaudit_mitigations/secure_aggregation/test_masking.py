"""Masks look uniform, cancel, and no key serves two purposes; known flaws fail the same checks."""

import hashlib
import struct

import numpy as np
import pytest
import scipy.stats
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from dpaudit.randomness import KeyedStream
from dpaudit_mitigations.secure_aggregation.keys import RoundKeys, public_bytes
from dpaudit_mitigations.secure_aggregation.masking import Mask, apply_masks, own_mask, pair_mask

D = 1 << 17


def masks(vector, *which):
    out = vector.copy()
    apply_masks(out, which)
    return out


def counter_mode(key, blocks):
    """AES in counter mode, out of AES on single blocks."""
    ecb = Cipher(algorithms.AES256(key), modes.ECB()).encryptor()
    return ecb.update(b"".join(i.to_bytes(16, "big") for i in range(blocks)))


@pytest.mark.parametrize(("dtype", "bits"), [("<u2", 16), ("<u4", 32), ("<u8", 64)])
def test_a_mask_is_the_counter_stream_in_the_ring(dtype, bits):
    # around the chunk's border
    for length in (1, 3, 1000, 131_072 // (bits // 8), 131_072 // (bits // 8) + 5):
        key, size = bytes(range(32)), bits // 8
        stream = counter_mode(key, -(-length * size // 16))[: length * size]
        words = [int.from_bytes(stream[i * size : (i + 1) * size], "little") for i in range(length)]
        start = np.arange(length, dtype=np.uint64).astype(dtype)
        assert masks(start, Mask(key=key)).tolist() == [
            (i % 2**bits + w) % 2**bits for i, w in enumerate(words)
        ]
        assert masks(start, Mask(key=key, subtract=True)).tolist() == [
            (i - w) % 2**bits for i, w in enumerate(words)
        ]
        assert np.array_equal(masks(start, Mask(key=key), -Mask(key=key)), start)


def uniform(vector):
    """Three times the least p-value for uniform bytes, neighbouring differences and repeats."""
    data = vector.view(np.uint8)
    by_byte = [
        scipy.stats.chisquare(np.bincount(data[i :: vector.itemsize], minlength=256)).pvalue
        for i in range(4)
    ]
    steps = np.diff(vector).view(np.uint8)
    differences = scipy.stats.chisquare(np.bincount(steps, minlength=256)).pvalue
    repeats = len(vector) - len(np.unique(vector))
    expected = len(vector) ** 2 / 2 / 2**32
    return min(
        1.0, 3 * min(4 * min(by_byte), differences, scipy.stats.poisson.sf(repeats - 1, expected))
    )


INPUTS = [np.zeros(D, np.uint32), np.arange(D, dtype=np.uint32), np.full(D, 0xFFFF0000, np.uint32)]


def test_masked_vectors_look_uniform_and_flawed_ones_do_not(make_round):
    for i, values in enumerate(INPUTS):
        r = make_round(3, length=D, tag=f"uniform {i}")
        r.vectors = {name: values.copy() for name in r.names}
        r.until("mask").mask()
        for name in r.names:
            assert uniform(r.masked[name]) > 1e-4
            assert uniform(r.masked[name] - values) > 1e-4  # the mask itself
        assert uniform(sum(r.masked.values())) > 1e-4
        assert uniform(values) < 1e-12  # unmasked
        assert uniform(values + np.uint32(0x9E3779B9)) < 1e-12  # one scalar for the whole vector
        short = np.resize(np.frombuffer(counter_mode(bytes(32), 4096), "<u4"), D)
        # a stream of 2^16 bytes, repeated
        assert uniform(values + short) < 1e-12 or uniform(short) < 1e-12
        narrow = np.frombuffer(counter_mode(bytes(32), D // 4), "<u4") >> 8
        assert uniform(values + narrow) < 1e-12  # 24 bits of mask for 32 of vector


def contexts():
    """Masks for several rounds, parties and purposes: which keys must differ, which must agree."""
    stream = KeyedStream.from_seed("masks")
    keys = {n: RoundKeys.draw(stream.child(n)) for n in "abc"}
    public = {n: public_bytes(keys[n].masking) for n in "abc"}
    return keys, public, [hashlib.sha256(bytes([i])).digest() for i in range(3)]


def test_no_key_is_used_twice():
    keys, public, rounds = contexts()
    seen = []
    for agreed in rounds:
        seen += [own_mask(keys[n].seed, agreed=agreed, party=n).key for n in "abc"]
        seen += [
            pair_mask(keys[n].masking, public[m], agreed=agreed, party=n, peer=m).key
            for n, m in ("ab", "ac", "bc")
        ]
    assert len(set(seen)) == len(seen) == 18
    # also where secrets repeat: the transcript, the party and the purpose each make another key
    same = keys["a"].seed
    assert (
        own_mask(same, agreed=rounds[0], party="a").key
        != own_mask(same, agreed=rounds[0], party="b").key
    )
    assert keys["a"].seed not in seen
    assert all(len(key) == 32 for key in seen)


def test_both_ends_of_a_pair_cancel_and_only_these():
    keys, public, rounds = contexts()
    zero = np.zeros(100, np.uint32)

    def mask(n, m):
        return pair_mask(keys[n].masking, public[m], agreed=rounds[0], party=n, peer=m)

    assert not masks(zero, mask("a", "b"), mask("b", "a")).any()
    assert masks(zero, mask("a", "b"), mask("c", "a")).any()
    assert [mask("a", "b").subtract, mask("b", "a").subtract] == [False, True]


def all_bits_count(make):
    """Whether flipping any one of a seed's 256 bits changes the mask."""
    seed = bytes(32)
    base = make(seed)
    flipped = (bytearray(seed) for _ in range(256))
    others = []
    for bit, other in enumerate(flipped):
        other[bit // 8] ^= 1 << bit % 8
        others.append(make(bytes(other)))
    return len({base, *others}) == 257


def test_all_256_bits_of_a_seed_count():
    agreed = bytes(32)
    assert all_bits_count(lambda seed: own_mask(seed, agreed=agreed, party="a").key)
    # folded to 32 bits, as seen elsewhere
    assert not all_bits_count(lambda seed: struct.unpack("<I", seed[:4]))
    private = [X25519PrivateKey.from_private_bytes(bytes([64 + i] * 32)) for i in range(2)]
    assert pair_mask(
        private[0], public_bytes(private[1]), agreed=agreed, party="a", peer="b"
    ).key == (
        pair_mask(private[1], public_bytes(private[0]), agreed=agreed, party="b", peer="a").key
    )


def test_secrets_are_not_printed(make_round):
    r = make_round(3).until("mask")
    client = r.clients["a"]
    client.open_envelopes(r.envelopes["a"])
    keys = client._keys
    shown = repr([client, keys, client._masks, r.plan, r.server])
    for secret in (keys.seed, keys.masking.private_bytes_raw(), client._masks[0].key):
        assert repr(secret)[2:-1] not in shown
        assert secret.hex() not in shown
