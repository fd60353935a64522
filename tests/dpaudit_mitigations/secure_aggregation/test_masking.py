"""Masks, shares of secrets and whole numbers in a ring; known flaws fail the same checks."""

import hashlib
import math
import struct
import subprocess
import sys
from fractions import Fraction

import numpy as np
import pytest
import scipy.stats
import sympy
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from hypothesis import given
from hypothesis import strategies as st

from dpaudit.errors import CheatingError, MessageError, UsageError
from dpaudit.randomness import KeyedStream
from dpaudit_mitigations.secure_aggregation.keys import (
    PRIME,
    SEALED_BYTES,
    SHARE_BYTES,
    Envelope,
    Mask,
    RoundKeys,
    apply_masks,
    own_mask,
    pair_mask,
    public_bytes,
    recombine,
    split,
)
from dpaudit_mitigations.secure_aggregation.plan import LEAST_HEADROOM, FixedPoint, noise_reach

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


@pytest.mark.slow
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


def test_both_ends_of_a_pair_cancel_and_only_these():
    keys, public, rounds = contexts()

    def mask(n, m):
        return pair_mask(keys[n].masking, public[m], agreed=rounds[0], party=n, peer=m)

    zero = np.zeros(100, np.uint32)
    assert not masks(zero, mask("a", "b"), mask("b", "a")).any()
    assert masks(zero, mask("a", "b"), mask("c", "a")).any()
    assert [mask("a", "b").subtract, mask("b", "a").subtract] == [False, True]


def test_no_key_is_used_twice():
    keys, public, rounds = contexts()
    seen = [keys[n].seed for n in "abc"]
    for agreed in rounds:
        seen += [own_mask(keys[n].seed, agreed=agreed, party=n).key for n in "abc"]
        seen += [
            pair_mask(keys[n].masking, public[m], agreed=agreed, party=n, peer=m).key
            for n, m in ("ab", "ac", "bc")
        ]
    # also where secrets repeat: the transcript, the party and the purpose each make another key
    seen.append(own_mask(keys["a"].seed, agreed=rounds[0], party="b").key)
    assert len(set(seen)) == len(seen) == 22
    assert all(len(key) == 32 for key in seen)


def all_bits_count(make):
    """Whether flipping any one of a seed's 256 bits changes the mask."""
    flipped = ((1 << bit).to_bytes(32, "little") for bit in range(256))
    return len({make(bytes(32)), *map(make, flipped)}) == 257


def test_all_256_bits_of_a_seed_count():
    assert all_bits_count(lambda seed: own_mask(seed, agreed=bytes(32), party="a").key)
    # folded to 32 bits, as seen elsewhere
    assert not all_bits_count(lambda seed: struct.unpack("<I", seed[:4]))


def test_secrets_are_not_printed(make_round):
    r = make_round(3).until("mask")
    client = r.clients["a"]
    keys = client._keys
    masks = client._open_envelopes(keys, r.envelopes["a"])
    shown = repr([client, keys, masks, r.plan, r.server])
    for secret in (keys.seed, keys.masking.private_bytes_raw(), masks[0].key):
        assert repr(secret)[2:-1] not in shown
        assert secret.hex() not in shown


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


def test_the_field_holds_every_secret_and_bad_shares_and_calls_are_refused():
    assert PRIME > 2**256
    assert sympy.isprime(PRIME)
    for secret in (bytes(32), b"\xff" * 32):
        shares = dict(enumerate(split(secret, parties=4, threshold=3), 1))
        assert recombine(shares, threshold=3) == secret
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
    sealed = Envelope(own=own, other=public_bytes(other), **ends).seal(seed, key)
    assert len(sealed) == SEALED_BYTES
    assert seed not in sealed
    back = {"own": other, "other": public_bytes(own)}
    assert Envelope(**back, **ends).open(sealed) == (seed, key)
    turned = {"sender": "b", "recipient": "a"}
    for wrong in ({"agreed": b"other"}, {"sender": "c"}, {"recipient": "c"}, turned):
        with pytest.raises(CheatingError, match="not what"):
            Envelope(**back, **(ends | wrong)).open(sealed)
    # another key in the other direction, though the shared secret is the same
    assert Envelope(**back, **(ends | turned)).seal(seed, key) != sealed


@pytest.mark.slow
def test_the_sharing_library_touches_neither_arguments_nor_logs():
    code = (
        "import sys, logging; sys.argv = ['x', '--threshold', 'no number', '-H', '--help'];"
        "import dpaudit_mitigations.secure_aggregation.keys;"
        "assert sys.argv[2] == 'no number'; assert logging.getLogger().handlers == [];"
        "assert 'torch' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


def form(**changes):
    return FixedPoint(
        **{"bits": 32, "granularity": 2.0**-10, "parties": 3, "bound": 1000.0, **changes}
    )


@given(
    bits=st.sampled_from([16, 32, 64]),
    parties=st.integers(1, 20),
    exponent=st.integers(-40, 40),
    share=st.floats(0.0, 1.0),
    seed=st.integers(0, 2**32),
)
def test_sums_of_encoded_values_are_exact(bits, parties, exponent, share, seed):
    g = math.ldexp(1.0, exponent)
    f = FixedPoint.widest(bits=bits, granularity=g, parties=parties, sigma=0.0, length=8)
    rng = np.random.default_rng(seed)
    values = rng.uniform(-1, 1, (parties, 8)) * f.bound * share
    values[:, 0], values[:, 1] = f.bound, -f.bound  # the corners, all parties at once
    total = np.zeros(8, f"<u{bits // 8}")
    for row in values:
        total += f.encode(row)
    exact = [
        sum(round(Fraction(float(v)) / Fraction(g)) for v in values[:, i]) * Fraction(g)
        for i in range(8)
    ]
    assert [Fraction(float(x)) for x in f.decode(total)] == exact


def overflows(encode):
    """Whether an encoder says so when a value is out of range, a little or a lot."""
    said = []
    for value in (1000.01, -1000.01, 1e9, -1e300, math.inf, math.nan):
        try:
            encode(np.array([0.0, value]))
            said.append(False)
        except UsageError:
            said.append(True)
    return all(said)


def test_out_of_range_is_an_error_and_never_clipped():
    f = form()
    assert overflows(f.encode)
    # silent clipping, as elsewhere
    assert not overflows(lambda v: f.encode(np.nan_to_num(np.clip(v, -f.bound, f.bound))))
    with pytest.raises(UsageError, match="clip to public bounds") as e:
        f.encode(np.array([123456.789]))
    assert "123456" not in str(e.value)  # the value stays where it is
    for bad in (np.array([1 + 5j]), np.array(["7"]), np.array([None])):
        with pytest.raises(UsageError, match="takes real numbers"):
            f.encode(bad)
    assert f.decode(f.encode(np.array([-0.0]))).tobytes() == bytes(8)


def test_noise_beyond_its_room_is_an_error_before_anything_is_sent():
    f = form(sigma=1.0)
    most = f.limit - 1024 * 1000
    full = f.encode(np.array([1000.0]), noise=lambda n: np.full(n, most))
    assert f.decode(full)[0] == f.limit / 1024
    for noise in (most + 1, -(most + 1)):
        # whatever the value: that it is refused says nothing of it
        for value in (1000.0, 0.0, -1000.0):
            with pytest.raises(UsageError, match="nothing was sent"):
                f.encode(np.array([value]), noise=lambda n, z=noise: np.full(n, z))


def test_sizes_beyond_all_measure_are_refused_as_such():
    for granularity, sigma in ((2.0**-500, 1e200), (2.0**-960, 1e300), (2.0**-10, 1e160)):
        with pytest.raises(UsageError, match="takes 900 bits"):
            form(granularity=granularity, sigma=sigma)
    for parties in (500, 30_000):
        with pytest.raises(UsageError, match="granularity="):
            FixedPoint.finest(bits=16, parties=parties, bound=1e308, sigma=1.0, length=10)


@pytest.mark.parametrize("sigma", [0.0, 3.0, 500.0])
@pytest.mark.parametrize("parties", [3, 10, 1000])
def test_the_bit_budget(parties, sigma):
    """Construction passes exactly if bound and 8.5σ or more of all parties fit; else a fix."""
    given = {"bits": 32, "granularity": 2.0**-8, "parties": parties, "length": 10**6}
    widest = FixedPoint.widest(**given, sigma=sigma)
    assert widest.headroom >= LEAST_HEADROOM or sigma == 0
    need = widest.bound * 256 + widest.reach
    assert parties * need <= 2**31 - 1 < parties * (need + 1)
    with pytest.raises(UsageError, match="bits=32"):
        FixedPoint(**given, sigma=sigma, bound=widest.bound + 2**-8)


@pytest.mark.parametrize("scale", [0.7, 3.0, 100.0, 1e6])
@pytest.mark.parametrize("values", [1, 10**6, 10**9])
def test_reach_covers_gaussian_and_skellam_tails(scale, values):
    reach = noise_reach(scale, values)
    assert reach >= LEAST_HEADROOM * scale
    assert 2 * values * scipy.stats.norm.sf(reach / scale) <= 2**-40
    if scale <= 100:
        half = scale * scale / 2
        assert 2 * values * scipy.stats.skellam.sf(reach, half, half) <= 2**-40
    assert noise_reach(0.0, values) == 0


def test_finest_is_the_finest():
    for bits, bound, sigma in ((32, 1.0, 0.01), (16, 100.0, 1.0), (64, 3.0, 5.0)):
        options = {"bits": bits, "parties": 5, "bound": bound, "sigma": sigma, "length": 1000}
        f = FixedPoint.finest(**options)
        with pytest.raises(UsageError, match=f"bits={bits}"):
            FixedPoint(granularity=f.granularity / 2, **options)
        four = 4 * f.granularity
        assert FixedPoint.finest(**options, finest=four).granularity == four


def test_a_sum_that_nobody_can_have_sent_is_refused():
    f = form(bits=64)
    assert f.decode(np.array([3 * f.limit], np.uint64))[0] == 3 * f.limit / 1024
    for bad in (3 * f.limit + 1, 2**63, 2**64 - 3 * f.limit - 1):
        with pytest.raises(CheatingError, match="beyond all parties"):
            f.decode(np.array([0, bad], np.uint64))
    with pytest.raises(UsageError, match="int32"):
        form().decode(np.zeros(3, np.int32))


def test_every_field_is_in_the_context():
    changes = {
        "bits": 64,
        "granularity": 0.5,
        "parties": 4,
        "bound": 2.0,
        "sigma": 1.0,
        "length": 2,
    }
    seen = {form(**{name: value}).context for name, value in changes.items()}
    assert len({form().context, *seen}) == 7


@pytest.mark.parametrize(
    "bad",
    [
        ("granularity", 0.3), ("granularity", math.nan), ("granularity", 0.0), ("bits", 31),
        ("parties", 0), ("length", 0), ("bound", -1.0), ("bound", math.inf), ("bound", 1e300),
        ("sigma", math.nan),
    ],
)  # fmt: skip
def test_bad_forms(bad):
    with pytest.raises(UsageError, match=rf"{bad[0]}=|power of two|bits=32"):
        form(**dict([bad]))
