"""The noise of two shares: against slow arithmetic, on any split of work, in another process."""

import hashlib
import os
import struct
import subprocess
import sys
from decimal import Decimal, localcontext
from fractions import Fraction

import numpy as np
import pytest
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from dpaudit.randomness import KeyedStream
from dpaudit_mitigations.joint_seeds.commitments import joint_key, labelled_hash
from dpaudit_mitigations.joint_seeds.derivation import (
    BLOCK,
    block_count,
    derived_noise,
    vector_blocks,
    vector_digest,
)

KEY = bytes(range(32))
DIM = 2 * BLOCK + 1000
KNOWN = "519ff068ab51fc47c70263ac9286336fbe63850e9e493d93680f4d871f821923"


def slow_integers(n, scale, stream):
    """Trials of 16 bytes: block by inversion, place, sign; accepted by 36 bits < exp(−diff)."""
    width = 1 << max(0, int(Fraction(scale) / 32).bit_length() - 1)
    shift, twice = width.bit_length() - 1, 2 * Fraction(scale) ** 2
    with localcontext() as context:
        context.prec = 60

        def weight(potential):
            return (-Decimal(potential.numerator) / Decimal(potential.denominator)).exp()

        weights = [
            weight(Fraction(k * width) ** 2 / twice) for k in range(int(15 * scale / width) + 2)
        ]
        whole, borders, so_far = sum(weights), [], Decimal(0)
        for each in weights:
            so_far += each
            borders.append(so_far / whole * 2**64)
        out, words = [], []
        while len(out) < n:
            if not words:
                left = min(n - len(out), 1 << 16)
                data = stream.bytes(16 * (left + left // 32 + 4))
                words = list(struct.iter_unpack("<QQ", data))[::-1]
            coarse, word = words.pop()
            block = next(k for k, border in enumerate(borders) if coarse < border)
            # 64 bits were enough
            assert block == next(k for k, border in enumerate(borders) if coarse + 1 <= border)
            place, negative = (word >> 1) & (width - 1), word & 1
            p = (
                weight(
                    (Fraction(block * width + place) ** 2 - Fraction(block * width) ** 2) / twice
                )
                * 2**36
            )
            accepted = (word >> 28) < p
            assert accepted == ((word >> 28) + 1 <= p)  # and 36
            value = (block << shift) + place
            if accepted and not (value == 0 and negative):
                out.append(-value if negative else value)
    return out


@pytest.mark.parametrize("scale", [2.0**24, 1.37 * 2**24, 3.7, 2.0**32])
def test_a_block_is_what_slow_arithmetic_makes_of_the_same_bytes(scale):
    block = derived_noise(KEY, dim=BLOCK + 1500, scale=scale)(1)
    stream = KeyedStream(KEY).child("noise").child("block", 1)
    assert block.tolist() == slow_integers(1500, scale, stream)


def test_a_joint_key_is_hkdf_of_both_shares_alone():
    session, server, verifier = bytes(32), b"a" * 32 + b"n" * 32, b"b" * 32 + b"m" * 32
    expected = HKDF(
        SHA256(), 32, salt=session, info=b"dpaudit joint-seeds 1 candidate\0\0\0\7"
    ).derive(b"a" * 32 + b"b" * 32)
    assert joint_key(session, 7, server, verifier) == expected
    keys = {
        joint_key(session, 7, server, verifier),
        joint_key(session, 8, server, verifier),
        joint_key(b"1" * 32, 7, server, verifier),
        joint_key(session, 7, verifier, server),
        joint_key(session, 7, server, server),
    }
    assert len(keys) == 5


def test_labelled_hashes_are_unambiguous():
    assert (
        len(
            {
                labelled_hash(*parts)
                for parts in (("ab", b"c"), ("a", b"bc"), ("ab", b"", b"c"), ("abc",))
            }
        )
        == 4
    )


def whole_vector():
    noise = derived_noise(KEY, dim=DIM, scale=2.0**24)
    return np.concatenate([noise(number) for number in range(block_count(DIM))])


def test_blocks_threads_and_order_do_not_matter():
    vector = whole_vector()
    assert vector.shape == (DIM,)
    leaves = [
        hashlib.sha256(struct.pack(f"<{len(part)}q", *part.tolist())).digest()
        for part in np.split(vector, [BLOCK, 2 * BLOCK])
    ]
    expected = labelled_hash("noise", DIM.to_bytes(8, "big"), *leaves)
    noise = derived_noise(KEY, dim=DIM, scale=2.0**24)
    for threads in (1, 2, 5):
        assert vector_digest("noise", noise, dim=DIM, threads=threads) == expected
    assert vector_digest("noise", vector_blocks(vector), dim=DIM, threads=2) == expected
    assert vector_digest("query", noise, dim=DIM) != expected
    vector[-1] += 1
    assert vector_digest("noise", vector_blocks(vector), dim=DIM) != expected
    backwards = [noise(number) for number in reversed(range(3))][::-1]
    assert np.array_equal(np.concatenate(backwards), whole_vector())
    # a block of any dimension
    assert np.array_equal(derived_noise(KEY, dim=BLOCK, scale=2.0**24)(0), backwards[0])


def test_the_known_answer():
    """Another answer is another protocol: old transcripts no longer verify. Raise its version."""
    assert vector_digest("noise", vector_blocks(whole_vector()), dim=DIM).hex() == KNOWN


@pytest.mark.slow
@pytest.mark.parametrize(
    "processor",
    [{}, {"NUMBA_CPU_NAME": "generic", "NUMBA_CPU_FEATURES": ""}, {"NUMBA_OPT": "0"}],
    ids=["this", "no wide registers", "unoptimised"],
)
def test_the_known_answer_on_another_processor(processor, tmp_path):
    code = (
        "from dpaudit_mitigations.joint_seeds.derivation import derived_noise, vector_digest\n"
        f"noise = derived_noise({KEY!r}, dim={DIM}, scale=2.0**24)\n"
        f"print(vector_digest('noise', noise, dim={DIM}, threads=2).hex())\n"
        "import sys; assert 'torch' not in sys.modules\n"
    )
    compiled = {"NUMBA_CACHE_DIR": str(tmp_path)} if processor else {}
    got = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=200,
        check=True,
        env=os.environ | processor | compiled,
    )
    assert got.stdout.strip() == KNOWN
