"""Digits of values and of lengths: formats, duplicates in tails, grids, messages in the last."""

import math

import numpy as np
import pytest
import scipy
from support.battery import evidence_of

from dpaudit.audit.battery.granularity import Granularity
from dpaudit.audit.battery.last_digits import LastDigits
from dpaudit.audit.battery.norms import Norms
from dpaudit.audit.battery.resolution import (
    Bulk,
    Largest,
    Precision,
    heaviest,
    on_a_grid,
    single_values,
    survival,
)
from dpaudit.audit.block import SampleBlock
from dpaudit.claims import Claim
from dpaudit.randomness import KeyedStream

NORMAL, LAPLACE = Claim.parse("gaussian:sigma=1"), Claim.parse("laplace:scale=1")


def judged(make, blocks, claim=NORMAL):
    return evidence_of(make, blocks, claim, seed="digits", spread=np.random.default_rng(0))


def single(x):
    return np.asarray(x, dtype=np.float32).astype(np.float64)


def uniforms(rng, bits, shape):
    return (rng.integers(0, 1 << bits, shape) + 0.5) * 2.0**-bits


def laplace(u):
    return np.where(u < 0.5, np.log(2 * u), -np.log(2 * (1 - u)))


def with_last(x, digits, bits=1, *, word="u8"):
    """``x`` with its last digits replaced."""
    words = np.ascontiguousarray(x).view(word)
    words = words >> words.dtype.type(bits) << words.dtype.type(bits)
    return (words | np.asarray(digits, word).reshape(x.shape)).view(x.dtype)


FORMATS = {
    "double": (lambda z: z, 53, 1.0),
    "float32": (single, 24, 1.0),
    "scaled float32": (lambda z: single(z) * 3.7, 24, 3.7),
    "20 zeros": (lambda z: with_last(z, np.zeros(z.shape), 20), 33, 1.0),
}


@pytest.mark.parametrize("name", FORMATS)
def test_the_format_is_what_the_digits_show(name):
    make, bits, factor = FORMATS[name]
    z = make(np.random.default_rng(1).standard_normal(5000))
    precision = Precision.of(z, 3.7)
    assert (precision.bits, precision.factor) == (bits, factor)
    if factor == 1.0:
        assert precision.unit(np.array([1.0])) == max(2.0 ** (1 - bits), precision.step)
    assert len(np.unique(precision.last_digits(z))) == 256


def test_a_grid_has_a_step_and_fewer_digits_near_zero():
    x = np.rint(np.random.default_rng(2).standard_normal(5000) * 2**30) / 2**30
    precision = Precision.of(x, 1.0)
    assert precision.step == 2.0**-30
    assert (precision.unit(x) == 2.0**-30).all()
    np.testing.assert_array_equal(
        precision.last_digits(np.array([7.0, 257.0]) * 2.0**-30), np.array([7, 1], np.uint8)
    )


@pytest.mark.parametrize("claim", [NORMAL, LAPLACE])
def test_no_magnitude_of_rounded_noise_is_likelier_than_allowed(claim):
    """Probability of each float32 magnitude against the bound, in strips and in the tail."""
    precision = Precision(24, 0.0)
    for low, high in ((0.0, 0.1), (0.3, 0.9), (0.9, 1.6), (2.0, 3.0), (3.7, math.inf)):
        x = np.linspace(max(low, 1e-3), min(high, low + 3), 1000, endpoint=False)
        mass = [survival(claim, v - 1e-6) - survival(claim, v + 1e-6) for v in x]
        likeliest = (np.array(mass) / 2e-6 * precision.unit(x)).max()
        assert likeliest <= 0.51 * heaviest(claim, precision, low, high)


def test_duplicates_are_seen_across_the_whole_run_in_little_memory(monkeypatch):
    monkeypatch.setattr("dpaudit.audit.battery.resolution._KEPT", 1 << 12)
    rng = np.random.default_rng(3)
    bulk = Bulk(rng)
    blocks = [scipy.special.ndtri(uniforms(rng, 24, 20_000)) for _ in range(40)]
    for x in blocks:
        bulk.add(x)
    everything = np.abs(np.concatenate(blocks))
    assert sum(map(len, bulk._values)) < 3 << 11
    p, bits, says = bulk.repeats(NORMAL, Precision.of(everything, 1.0))
    assert p < 1e-6
    assert bits == pytest.approx(23, abs=0.2)  # magnitudes
    distinct = int(says.split()[1].replace(",", ""))
    assert distinct == pytest.approx(len(np.unique(everything)), rel=0.02)
    few = Bulk(rng)
    for _ in range(40):
        few.add(rng.choice(blocks[0][:50], 20_000))
    assert sum(map(len, few._values)) <= 2 << 15


@pytest.mark.slow
def test_the_level_of_duplicates_in_float32_noise_is_kept():
    """Of p-values of honest float32 noise few are small; of an inverse CDF of 23 bits all are."""

    def p_values(make):
        for i in range(60):
            rng, top = np.random.default_rng([4, i]), Largest()
            for _ in range(8):
                top.add(single(make(rng)))
            yield top.repeats(NORMAL, Precision(24, 0.0))[0]

    assert sum(p <= 0.05 for p in p_values(lambda rng: rng.standard_normal(1 << 15))) <= 9
    coarse = p_values(lambda rng: scipy.special.ndtri(uniforms(rng, 23, 1 << 15)))
    assert sum(p <= 1e-4 for p in coarse) >= 55


@pytest.mark.slow
def test_a_float32_laplace_shows_in_its_tail():
    rng = np.random.default_rng(5)

    def blocks(bits):
        return [single(laplace(uniforms(rng, bits, (4096, 64)))) for _ in range(10)]

    coarse, fine = (judged(Granularity, blocks(bits), LAPLACE) for bits in (24, 53))
    assert coarse.parts["largest values"] < 1e-6
    assert coarse.p < 1e-6
    assert fine.p > 1e-3


def test_a_coarse_tail_is_found():
    rng = np.random.default_rng(6)
    z = rng.standard_normal((10, 4096, 64))
    rounded = np.where(np.abs(z) > 2.3, np.rint(z * 2**24) / 2**24, z)
    evidence = judged(Granularity, list(rounded))
    assert evidence.parts["digits"] < 1e-6
    assert "of the 2,000 largest" in evidence.effect
    assert judged(Granularity, list(z)).parts["digits"] == 1


@pytest.mark.parametrize("zeros", [1, 20])
def test_last_digits_that_are_always_0_are_found(zeros):
    z = np.random.default_rng(7).standard_normal((64, 64))
    evidence = judged(Granularity, [with_last(z, np.zeros(z.shape), zeros)])
    assert evidence.p < 1e-6
    assert evidence.effect == f"zero bits at the end of every double: {zeros}"
    steps = np.rint(z * 2**40) / 2**40  # a fine grid
    assert judged(Granularity, [steps]).p > 1e-3


@pytest.mark.parametrize(
    ("bits", "offset", "claim"),
    [(32, 0.5, NORMAL), (40, 0.0, NORMAL), (48, 0.3, NORMAL), (32, 0.5, LAPLACE)],
)
def test_short_uniforms_behind_an_inverse_cdf_are_found(bits, offset, claim):
    rng = np.random.default_rng(8)
    u = (rng.integers(1, 1 << bits, (64, 64)) + offset) * 2.0**-bits
    x = scipy.special.ndtri(u) if claim is NORMAL else laplace(u)
    evidence = judged(Granularity, [x], claim)
    assert evidence.p < 1e-6
    assert evidence.details["uniforms"] == bits
    assert f"uniforms of {bits} bits: 2^{bits} · " in evidence.effect


@pytest.mark.parametrize("bits", [24, 32])
def test_short_uniforms_behind_pairs_are_found(bits):
    rng = np.random.default_rng(9)
    u = uniforms(rng, bits, (2, 4096 * 64))
    r = np.sqrt(-2 * np.log(u[0]))
    x = np.stack([r * np.cos(2 * np.pi * u[1]), r * np.sin(2 * np.pi * u[1])], 1)
    assert judged(Granularity, [x.reshape(-1, 64)]).parts["grid"] < 1e-6
    if bits == 24:
        blocks = single(x).reshape(8, -1, 64)
        assert judged(Granularity, list(blocks)).parts["grid"] < 1e-6


@pytest.mark.parametrize("claim", [NORMAL, LAPLACE])
@pytest.mark.parametrize("precision", ["double", "float32", "grid"])
def test_honest_probabilities_lie_on_no_grid(claim, precision):
    seen = []
    for i in range(40):
        rng = np.random.default_rng([10, i])
        x = rng.standard_normal(3000) if claim is NORMAL else rng.laplace(0, 1, 3000)
        if precision == "float32":
            x = single(x)
        elif precision == "grid":
            x = np.rint(x * 2**26) / 2**26
        sides = single_values(x, claim, Precision.of(x, 1.0)).values()
        seen += [on_a_grid(*side).p for side in sides]
    assert sum(p <= 0.05 for p in seen) <= 4


def scaled(z, lengths):
    return z * (lengths / np.linalg.norm(z, axis=1))[:, None]


def test_lengths_from_a_pool_or_from_short_uniforms_are_found():
    rng, d, n = np.random.default_rng(11), 32, 4000
    pool = np.sqrt(rng.chisquare(d, 1 << 14))
    z = rng.standard_normal((n, d))
    copied = judged(Norms, [scaled(z, rng.choice(pool, n))])
    assert copied.parts["equal lengths"] < 1e-6
    assert "occurred before" in copied.effect
    short = np.sqrt(2 * scipy.special.gammaincinv(d / 2, uniforms(rng, 32, n)))
    coarse = judged(Norms, [scaled(z, short)])
    assert coarse.parts["grid of lengths"] < 1e-6
    assert "2^32 · P(length" in coarse.effect
    stepped = judged(Norms, [scaled(z, np.rint(np.linalg.norm(z, axis=1) * 2**28) / 2**28)])
    assert "2^28 · the length is a whole number" in stepped.effect


@pytest.mark.slow
def test_lengths_of_honest_rows_pass_at_every_d():
    seen = []
    for i in range(40):
        rng = np.random.default_rng([12, i])
        blocks = [rng.standard_normal((400, d)) for d in 2 * (2, 3, 64, 1000)]
        evidence = judged(Norms, [*blocks[:4], *map(single, blocks[4:])])
        seen.append(evidence.p)
        assert evidence.parts["equal lengths"] == 1
        assert evidence.parts["grid of lengths"] > 0.01
    assert sum(p <= 0.05 for p in seen) <= 6


def register(n):
    bits = [1, 0, 1] * 10 + [1]
    while len(bits) < n:
        bits.append(bits[-3] ^ bits[-31])
    return np.array(bits)


def same_every_call(z, call):
    return np.random.default_rng(1).integers(0, 8, z.size)


MESSAGES = {
    "counter of calls": (4, "place", lambda z, call: np.full(z.shape, call % 16)),
    "parity of the place": (1, "place", lambda z, call: np.arange(z.size) % z.shape[1] % 2),
    "counter of values": (4, "place", lambda z, call: (call * z.size + np.arange(z.size)) % 16),
    "next sign": (1, "order", lambda z, call: np.roll(z.ravel() > 0, -1)),
    "700 before is large": (1, "order", lambda z, call: np.roll(np.abs(z.ravel()) > 0.7, 700)),
    "register": (1, "recurrence", lambda z, call: register(z.size * 10)[call * z.size :][: z.size]),
    "own sign": (1, "frequency", lambda z, call: z.ravel() > 0),
    "same in every call": (3, "call before", same_every_call),
}


@pytest.mark.parametrize("kind", MESSAGES)
@pytest.mark.parametrize(("dtype", "word", "digits"), [("f8", "u8", 53), ("f4", "u4", 24)])
def test_messages_in_last_digits_are_found(kind, dtype, word, digits):
    rng = np.random.default_rng(13)
    bits, view, message = MESSAGES[kind]
    blocks = []
    for call in range(10):
        z = rng.standard_normal((64, 50))
        blocks.append(with_last(z.astype(dtype), message(z, call), bits, word=word).astype(float))
    evidence = judged(LastDigits, blocks)
    assert evidence.parts[view] < 1e-4
    assert "digit" in evidence.effect
    assert evidence.details["digits"] == digits


HONEST = {
    "ziggurat": lambda rng, shape: rng.standard_normal(shape),
    "float32": lambda rng, shape: rng.standard_normal(shape, dtype=np.float32),
    "scaled float32": lambda rng, shape: 3.7 * single(rng.standard_normal(shape)),
    # the last digit is 0 in 54 % and in 61 %
    "inverse CDF": lambda rng, shape: scipy.special.ndtri(uniforms(rng, 52, shape)),
    "scaled inverse CDF": lambda rng, shape: 2.5 * scipy.special.ndtri(uniforms(rng, 52, shape)),
    # 0 in 69 %
    "sum of four": lambda rng, shape: rng.standard_normal((4, *shape)).sum(0) / 2,
    "grid": lambda rng, shape: np.rint(rng.standard_normal(shape) * 2**40) / 2**40,
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", HONEST)
def test_digits_of_honest_noise_pass_however_unfair_the_last_one_is(kind):
    scale = {"scaled float32": 3.7, "scaled inverse CDF": 2.5}.get(kind, 1.0)
    claim = Claim.parse(f"gaussian:sigma={scale}")
    seen = []
    for i in range(12):
        rng = np.random.default_rng([14, i])
        blocks = [HONEST[kind](rng, (64, 64)) for _ in range(3)]
        seen.append(judged(LastDigits, blocks, claim).p)
    assert sum(p <= 0.05 for p in seen) <= 3


def test_digits_that_a_value_rounds_away_are_no_pattern():
    rng, test = np.random.default_rng(31), LastDigits(LAPLACE, KeyedStream.from_seed("digits"))
    more = {"claim": LAPLACE, "spread": np.random.default_rng(0)}
    for i, value in enumerate((0.0,) * 4 + (1000.0, 1e6) * 2):
        noise = (value + rng.laplace(size=(8192, 1))) - value
        test.update(SampleBlock(i, noise, value=value, **more))
    assert test.evidence(alpha=1e-3).p > 1e-3


def test_encrypted_digits_cannot_be_ruled_out():
    z = np.random.default_rng(15).standard_normal((512, 64))
    secret = np.random.default_rng(16).integers(0, 16, z.shape)
    evidence = judged(LastDigits, [with_last(z, secret, 4)])
    assert evidence.p == 1
    assert any("cipher" in b.says for b in evidence.blind_spots)


def test_a_grid_without_blur_warns_of_nothing(recwarn):
    assert on_a_grid(np.random.default_rng(17).random(500), np.full(500, 1e-320)).p == 1
    assert not recwarn
