"""The mitigation and the noise of two shares: the protocol's law, slow arithmetic, key holders."""

import bisect
import hashlib
import itertools
import os
import struct
import subprocess
import sys
from decimal import Decimal, localcontext
from fractions import Fraction
from functools import partial

import numpy as np
import pytest
import scipy.stats
import torch
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from support.keyed_attackers import guesses, half_a_spacing

from dpaudit.noise.gaussian import Gaussian
from dpaudit.noise.pancake import Pancake
from dpaudit.noise.secure_gaussian import SecureGaussian
from dpaudit.numeric.lattice import lattice_step
from dpaudit.queries.histogram import Histogram
from dpaudit.randomness import KeyedStream
from dpaudit.stats import clopper_pearson
from dpaudit_attacks.keyed_distinguisher import LikelihoodRatio
from dpaudit_mitigations.joint_seeds.derivation import (
    BLOCK,
    block_count,
    derived_noise,
    joint_key,
    labelled_hash,
    vector_blocks,
    vector_digest,
)
from dpaudit_mitigations.joint_seeds.mitigation import JointSeeds
from dpaudit_mitigations.joint_seeds.transcript import verify, write


def test_release_has_the_law_of_the_protocol_and_lies_on_its_lattice(stream):
    query = torch.linspace(-50, 50, 20_000, dtype=torch.float64)[None]
    step = lattice_step(3.0)
    session = JointSeeds(candidates=2).sessions(query, Gaussian(sigma=3.0), stream=stream)[-1]
    released = (
        JointSeeds(candidates=2).release(query, Gaussian(sigma=3.0), stream=stream)[0].numpy()
    )
    rounded = np.rint(query[0].numpy() / step) * step
    for values in (session.release, released):
        assert np.array_equal(values / step, np.rint(values / step))
        assert scipy.stats.kstest((values - rounded) / 3.0, "norm").pvalue > 1e-3
    assert not np.array_equal(session.release, released)


def test_rehearsal_runs_the_protocol_whose_transcript_holds(stream, tmp_path):
    query, mitigation = torch.zeros(1, 500), JointSeeds(candidates=5)
    rehearsal = mitigation.rehearse(query, Gaussian(), stream=stream)
    assert set(rehearsal.seconds) == {"server", "verifier", "total"}
    assert 500 * 8 + 5 * 700 < rehearsal.wire < 500 * 8 + 5 * 900 + 4000
    (session,) = mitigation.sessions(query, Gaussian(), stream=stream)
    write(session.record, tmp_path / "t.json")
    assert verify(tmp_path / "t.json").holds


def test_a_key_holder_is_left_with_one_kth(make_key, stream):
    key, attacks = make_key(beta=1e-3), [LikelihoodRatio]

    def share(mitigation):
        release = partial(mitigation.release, stream=stream)
        (right,) = guesses(release, key, trials=3000, attacks=attacks)
        return clopper_pearson(right, 3000, confidence=0.999)

    honest = share(JointSeeds())
    # what the shift gives away in honest noise, to its best test
    alone = scipy.stats.norm.cdf(0.5 * half_a_spacing(key, sigma=1.0))
    assert honest.low <= alone
    assert honest.high >= 0.5
    for k in (2, 5):
        deviating = share(JointSeeds(candidates=k, deviate=True))
        assert deviating.low <= 1 / k + (1 - 1 / k) * alone
        assert deviating.high >= 1 / k + (1 - 1 / k) * 0.5
        assert deviating.low > honest.high


@pytest.mark.slow
def test_the_specimen_is_released_in_one_session_of_k_and_never_after_it_was_caught(
    make_key, stream
):
    source = Pancake(key=make_key(beta=1e-3), sigma=1.0)
    w, released, ends = torch.from_numpy(np.array(source.key.direction)), [], []
    for i in range(90):
        sessions = JointSeeds(candidates=3, deviate=True).sessions(
            torch.zeros(1, 64, dtype=torch.float64), source, stream=stream.child(i)
        )
        ends.append([s.outcome for s in sessions])
        turns = float(torch.from_numpy(sessions[-1].release) @ w) / source.spacing
        released.append(abs(turns - round(turns)) < 0.01)
        if len(sessions) == 2:
            assert sessions[1].record.terms.previous == sessions[0].record.head
            assert sessions[0].release is None
    assert {tuple(end) for end in ends} == {("complete",), ("caught", "complete")}
    lucky = np.array([len(end) == 1 for end in ends])
    assert np.array(released)[lucky].all()
    assert np.array(released)[~lucky].mean() < 0.1
    interval = clopper_pearson(int(lucky.sum()), 90, confidence=0.999)
    assert interval.low <= 1 / 3 <= interval.high


@pytest.mark.slow
def test_epsilon(make_key):
    host = Histogram()
    pancake = Pancake(key=make_key(dim=host.dim, beta=1e-4), sigma=22.4)
    own = JointSeeds().epsilon(pancake, 1e-10, host=host)
    assert own == SecureGaussian(sigma=22.4).epsilon(1e-10, host=host)
    deviating = JointSeeds(deviate=True).epsilon(pancake, 1e-10, host=host)
    assert deviating.low == pancake.epsilon(1e-9, host=host).low
    assert deviating.high > pancake.epsilon(1e-10, host=host).low
    # one session in ten is less than δ
    rare = JointSeeds(deviate=True).epsilon(pancake, 0.2, host=host)
    assert rare.low < 1
    honest = JointSeeds(deviate=True).epsilon(Gaussian(sigma=22.4), 1e-10, host=host)
    assert own.low * 0.99 < honest.low <= own.low
    assert honest.high == pytest.approx(own.high, rel=1e-3)


KEY = bytes(range(32))
DIM = 2 * BLOCK + 1000
KNOWN = "d9e5382053d752357e603bafdae109a7e00795c458511dd7dbfa6eed6b72706c"


def chacha_words(key, counter, trial, second):
    """Eight words of ChaCha20 under the nonce (counter, trial, second)."""
    nonce = struct.pack("<QII", counter, trial, second)
    cipher = Cipher(algorithms.ChaCha20(key, nonce), mode=None).encryptor()
    return struct.unpack("<8Q", cipher.update(bytes(64)))


def slow_integers(n, scale, stream):
    """Trials of 8 bytes: accepted by 13 bits, place, sign, block by inversion of 25; 64 more each.

    Three in a hundred thousand words need them per border.
    """
    width = 1 << min(25, max(0, int(Fraction(scale) / 128).bit_length() - 1))
    twice, key = 2 * Fraction(scale) ** 2, stream.bytes(32)
    with localcontext() as context:
        context.prec = 60

        def weight(potential):
            return (-Decimal(potential.numerator) / Decimal(potential.denominator)).exp()

        weights = [
            weight(Fraction(k * width) ** 2 / twice) for k in range(int(15 * scale / width) + 2)
        ]
        weights[0] /= 2 if width == 1 else 1
        whole, borders, so_far = sum(weights), [], Decimal(0)
        for each in weights:
            so_far += each
            borders.append(so_far / whole)

        def below(prefix, bits, points, more):
            """How many of the points are at or below the uniform number that begins so."""
            for known, size in ((prefix, bits), (prefix << 64 | more, bits + 64)):
                low, high = (
                    bisect.bisect_right(points, Decimal(known + i) / 2**size) for i in (0, 1)
                )
                if low == high:
                    return low
            raise AssertionError

        def integer(position):
            for trial in itertools.count():
                own = chacha_words(key, position, trial, 1)
                bulk = chacha_words(key, position // 8, 0, 0)[position % 8]
                word = own[0] if trial else bulk
                block = below(word >> 39, 25, borders, own[1])
                place, negative = word % width, word >> 25 & 1
                p = weight(((block * width + place) ** 2 - Fraction(block * width) ** 2) / twice)
                accepted = not place or not below(word >> 26 & 8191, 13, [p], own[4])
                value = block * width + place
                if accepted and not (value == 0 and negative and width > 1):
                    return -value if negative else value
            raise AssertionError

        return [integer(position) for position in range(n)]


@pytest.mark.parametrize("scale", [2.0**24, 1.37 * 2**24, 3.7, 2.0**32])
def test_a_block_is_what_slow_arithmetic_makes_of_the_same_bytes(scale):
    block = derived_noise(KEY, dim=BLOCK + 1500, scale=scale)(1)
    stream = KeyedStream(KEY).child("noise").child("block", 1)
    assert block.tolist() == slow_integers(1500, scale, stream)


def test_a_joint_key_is_hkdf_of_both_shares_alone():
    session, server, verifier = bytes(32), b"a" * 32 + b"n" * 32, b"b" * 32 + b"m" * 32
    about = b"dpaudit joint-seeds 2 candidate\0\0\0\7"
    expected = HKDF(SHA256(), 32, salt=session, info=about).derive(b"a" * 32 + b"b" * 32)
    assert joint_key(session, 7, server, verifier) == expected
    others = {
        joint_key(session, 8, server, verifier),
        joint_key(b"1" * 32, 7, server, verifier),
        joint_key(session, 7, verifier, server),
        joint_key(session, 7, server, server),
    }
    assert len(others | {expected}) == 5


def test_labelled_hashes_are_unambiguous():
    said = ("ab", b"c"), ("a", b"bc"), ("ab", b"", b"c"), ("abc",)
    assert len({labelled_hash(*parts) for parts in said}) == 4


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
    env = os.environ | processor | ({"NUMBA_CACHE_DIR": str(tmp_path)} if processor else {})
    got = subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=200, env=env)
    assert got.stdout.decode().strip() == KNOWN, got.stderr
