"""Bits of noise that follow a linear recurrence: shift registers, Mersenne Twisters, xorshift."""

import itertools
import math
import random

import numpy as np
import pytest
import scipy
import torch
from support.battery import evidence_of

from dpaudit.audit.battery.predictable.berlekamp_massey import shortest_recurrence
from dpaudit.audit.battery.predictable.bit_streams import LONGEST
from dpaudit.audit.battery.predictable.linear_complexity import LinearComplexity, _chance
from dpaudit.audit.battery.predictable.rejected import REGISTERS, find_replay
from dpaudit.audit.block import SampleBlock
from dpaudit.audit.options import AuditOptions
from dpaudit.audit.run import run_audit
from dpaudit.claims import Claim
from dpaudit.randomness import KeyedStream
from dpaudit.targets.callables import CallableTarget

MASK = (1 << 64) - 1


def seen(blocks, claim="gaussian:sigma=1", calls=1):
    return evidence_of(LinearComplexity, blocks, claim, calls=calls)


def massey(bits):
    """The algorithm as Massey wrote it down, bit by bit: the length only."""
    now, before = [1] + [0] * len(bits), [1] + [0] * len(bits)
    length, since = 0, -1
    for i in range(len(bits)):
        if sum(now[j] * bits[i - j] for j in range(length + 1)) % 2:
            kept = now[:]
            for j in range(len(bits) + 1 - (i - since)):
                now[j + i - since] ^= before[j]
            if 2 * length <= i:
                length, since, before = i + 1 - length, i, kept
    return length


def test_the_shortest_recurrence_is_masseys():
    rng = np.random.default_rng(5)
    for _ in range(400):
        bits = (rng.random(rng.integers(1, 60)) < rng.choice([0.1, 0.5])).astype(np.uint8)
        assert shortest_recurrence(bits).length == massey(bits.tolist())


@pytest.mark.parametrize("constant", [0, 1])
def test_a_recurrence_is_continued(constant):
    """x^31 + x^3 + 1, and one more place where all bits are swapped."""
    bits = prbs31(1_000) ^ constant
    found = shortest_recurrence(bits[:200])
    assert (found.length, found.registers) == (31 + constant, (1, 31))
    np.testing.assert_array_equal(found.following(800), bits[200:])
    np.testing.assert_array_equal(found.one_ahead(bits[:300]), bits[found.length : 300])


@pytest.mark.parametrize("ones", [0, 1, 3, 4, 7])
@pytest.mark.parametrize("predicted", [0, 2, 4, 7])
def test_the_p_value_is_exact_for_every_order(ones, predicted):
    """Over all orders of the held-out bits."""
    guess = np.array([1] * predicted + [0] * (7 - predicted), np.uint8)
    p = [
        _chance(np.isin(np.arange(7), places).astype(np.uint8), guess)
        for places in itertools.combinations(range(7), ones)
    ]
    for level in {round(one, 12) for one in p}:
        assert np.mean(np.array(p) <= level + 1e-12) == pytest.approx(level, abs=1e-9)


def coarse(rng, shape):
    return np.round(rng.standard_normal(shape), 1)


def half_precision(rng, shape):
    return rng.standard_normal(shape).astype(np.float16).astype(float)


def single(rng, shape):
    return rng.standard_normal(shape).astype(np.float32).astype(float)


def rarely_negative(rng, shape):
    """Another law than claimed is not this test's matter."""
    x = np.abs(rng.standard_normal(shape))
    return np.where(rng.random(shape) < 0.004, -x, x)


@pytest.mark.slow
@pytest.mark.parametrize("noise", [coarse, half_precision, single, rarely_negative])
def test_independent_noise_of_any_law_and_precision_passes(noise):
    rng = KeyedStream.from_seed("honest").numpy()
    p = [seen([noise(rng, (8, 64))]).p for _ in range(40)]
    assert min(p) > 1e-3
    assert np.mean(np.array(p) <= 0.05) <= 0.05


@pytest.mark.parametrize("far", [1e300, 5e-324])
def test_values_far_beyond_the_law_are_no_error(far):
    rng = np.random.default_rng(3)
    x = rng.standard_normal((64, 64))
    x[rng.random((64, 64)) < 0.2] *= far
    assert seen([x]).p == 1


def test_every_try_is_paid_for():
    """37 held-out bits of 300, in more than 100 streams."""
    x = signed(prbs31(300)).reshape(5, 60)
    assert 100 / math.comb(37, 18) < seen([x]).p < 1e-6


def prbs31(count):
    bits = np.ones(count + 31, np.uint8)
    bits[3:9] = 0
    for i in range(31, count + 31):
        bits[i] = bits[i - 3] ^ bits[i - 31]
    return bits[31:]


def signed(bits):
    """Independent sizes with these signs."""
    return np.abs(np.random.default_rng(4).standard_normal(len(bits))) * (1.0 - 2 * bits)


def xorshift128_plus(count):
    """State words before each step: what V8 makes numbers of."""
    one, two = 0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F
    found = []
    for _ in range(count):
        one, two = two, one ^ one << 23 & MASK
        two ^= two >> 17 ^ one ^ one >> 26
        found.append(one)
    return found


def of_v8(count):
    """``Math.random`` of Node: 52 bits of a word, out of a cache of 64, last first."""
    words = xorshift128_plus(-(-count // 64) * 64)
    numbers = np.array([word >> 12 for word in words]) * 2.0**-52
    return numbers.reshape(-1, 64)[:, ::-1].ravel()[:count]


def of_luajit(count):
    """``math.random`` of LuaJIT 2: four Tausworthe generators of 64 bits."""
    state = [0x7A3F5C9184D2E6B1, 0x1B5E8D2C7F4A9360, 0xC4E1F7A2953B6D08, 0x5D9A3E8C1F7B2460]
    shifts = ((63, 31, 18), (58, 19, 28), (55, 24, 7), (47, 21, 8))
    found = []
    for _ in range(count):
        for i, (k, q, s) in enumerate(shifts):
            z = state[i]
            state[i] = (z << q & MASK ^ z) >> (k - s) ^ (z & MASK << (64 - k) & MASK) << s & MASK
        mixed = state[0] ^ state[1] ^ state[2] ^ state[3]
        found.append((mixed & (1 << 52) - 1) * 2.0**-52)
    return np.array(found)


def words32(count, seed=9):
    return np.random.RandomState(seed)._bit_generator.random_raw(count)


def inverse(u):
    return scipy.special.ndtri(np.clip(u, 2.0**-60, 1 - 2.0**-53))


def box_muller(u):
    size = np.sqrt(-2 * np.log1p(-u[::2]))
    return np.stack([size * np.cos(2 * np.pi * u[1::2]), size * np.sin(2 * np.pi * u[1::2])])


def by_gauss(count):
    generator = random.Random(8)
    return np.array([generator.gauss(0, 1) for _ in range(count)])


def of_torch(count):
    return torch.randn(count, generator=torch.Generator().manual_seed(8)).double().numpy()


def vectorised_xorshift(count):
    """The low 24 bits of xorshift32 as torch's float32 randn turns words into pairs 8 apart."""
    x, words = 2463534242, []
    for _ in range(count):
        x ^= x << 13 & 0xFFFFFFFF
        x ^= x >> 17
        x ^= x << 5 & 0xFFFFFFFF
        words.append(x & 0xFFFFFF)
    size, angle = np.moveaxis((np.array(words) * 2.0**-24).reshape(-1, 2, 8), 1, 0)
    radius, turned = np.sqrt(-2 * np.log1p(-size)), 2 * np.pi * angle
    both = np.stack([radius * np.cos(turned), radius * np.sin(turned)], 1)
    return both.ravel().astype(np.float32).astype(np.float64)


def by_legacy_laplace():
    return np.random.RandomState(8).laplace(0, 3, 42_000)


def of_low_bits():
    return 2 * inverse((np.array(xorshift128_plus(600)) % 2**32 + 0.5) / 2**32)


def on_a_lattice():
    return words32(504_000).reshape(-1, 12).astype(float).sum(axis=1) / 2**32 - 6


def with_parities():
    return 2 * np.rint(np.random.default_rng(3).normal(0, 5, 900)) + prbs31(900)


NORMAL = "gaussian:sigma=1"
SAMPLERS = {
    # the claim, the values, the length of the recurrence, what is known to have it
    "R's inversion": (NORMAL, lambda: inverse(words32(84_000)[::2] / 2**32), 19_937, "Twister"),
    "numpy's legacy Laplace": ("laplace:scale=3", by_legacy_laplace, 19_937, "Twister"),
    "random.gauss": (NORMAL, lambda: by_gauss(84_000), 19_937, "Twister"),
    "torch.randn": (NORMAL, lambda: of_torch(LONGEST), 19_937, "Twister"),
    "Node": (NORMAL, lambda: inverse(of_v8(19_200)), 2_048, "V8"),
    "Node, Box-Muller": (NORMAL, lambda: box_muller(of_v8(19_200)).T.ravel(), 2_048, "V8"),
    "LuaJIT": (NORMAL, lambda: inverse(of_luajit(1_200)), 223, "LuaJIT"),
    "LuaJIT, two halves": (NORMAL, lambda: box_muller(of_luajit(4_200)).ravel(), 223, "LuaJIT"),
    "the last of 32 bits": ("gaussian:sigma=2", of_low_bits, 128, "xoroshiro128"),
    "a lattice": (NORMAL, on_a_lattice, 19_937, "Twister"),
    "parities of whole numbers": ("discrete-gaussian:sigma=10", with_parities, 31, "PRBS31"),
}


@pytest.mark.parametrize("name", SAMPLERS)
def test_a_linear_generator_is_found_and_predicted(name):
    claim, values, length, generator = SAMPLERS[name]
    evidence = seen([values().reshape(-1, 6)], claim)
    assert evidence.p < 1e-12, evidence.effect
    assert evidence.details["recurrence"] in (length, length + 1)
    assert generator in evidence.details["generator"]
    right, of = map(int, evidence.details["predicted"].split(" of "))
    assert right == of >= 60


def test_pairs_8_apart_of_single_precision_are_read():
    """Also where each sign is drawn afresh: a pair's length does not depend on it."""
    signs = np.random.default_rng(4).choice([-1, 1], 16 * 1024)
    evidence = seen([(signs * vectorised_xorshift(16 * 1024)).reshape(-1, 64)])
    assert evidence.p < 1e-30
    assert evidence.details["recurrence"] in (32, 33)
    assert evidence.details["bits"].endswith("of values 8 apart")


def test_registers_that_take_turns_are_counted():
    bits = np.stack([prbs31(900), prbs31(1_800)[900:]]).T.ravel()
    assert shortest_recurrence(bits[:400]).registers == (2, 31)


def test_the_first_values_of_short_calls_are_read_too():
    """Each call begins its own stretch; how many numbers the rest of it takes is unknown."""
    rng, blocks = np.random.default_rng(2), []
    for bits in prbs31(4_000).reshape(4, -1):
        x = rng.standard_normal((1_000, 8))
        x[:, 0] = np.abs(x[:, 0]) * (1.0 - 2 * bits)
        blocks.append(x)
    found = seen(blocks, calls=1_000)
    assert found.details["bits"] == "signs of first values of calls"
    assert found.details["values needed"] == 2 * found.details["recurrence"] * 8


def test_columns_and_the_last_digits_of_single_precision_are_read():
    columns = signed(prbs31(12_800)).reshape(64, -1).T
    assert seen([columns]).details["bits"] == "signs of every value, by columns"
    x = np.random.default_rng(6).standard_normal(2_000).astype(np.float32)
    x = (x.view(np.uint32) & ~np.uint32(1) | prbs31(2_000)).view(np.float32)
    found = seen([x.reshape(-1, 10)])
    assert found.details["bits"] == "last digits of every value"
    assert found.details["recurrence"] == 31


def polar(u, *, second_first=False):
    v = 2 * u[: len(u) // 2 * 2].reshape(-1, 2) - 1
    s = (v**2).sum(axis=1, keepdims=True)
    v, s = v[s[:, 0] < 1], s[s[:, 0] < 1]
    pairs = v * np.sqrt(-2 * np.log(s) / s)
    return pairs[:, :: -1 if second_first else 1].ravel()


def numbers(register, count):
    rng = np.random.default_rng(7)
    state = [int(w) for w in rng.integers(1 << 31, 1 << min(63, register.wide), register.words)]
    made = register.numbers(state)(-(-count // register.block) * register.block)
    return made.reshape(-1, register.block)[:, ::-1].ravel().tolist()


@pytest.mark.parametrize(("name", "make"), [("LuaJIT", of_luajit), ("V8", of_v8)])
@pytest.mark.parametrize("second_first", [False, True])
@pytest.mark.parametrize("late", [0, 1])
def test_a_small_generator_behind_the_polar_method_is_found(name, make, second_first, late):
    z = polar(make(3_200), second_first=second_first)[late:][:1_280]
    found = seen([3 * z.reshape(-1, 8)], "gaussian:sigma=3")
    assert found.p == 0
    assert name in found.details["generator"]
    held_out = min(1_000, len(z) - found.details["values needed"])
    right, of = map(int, found.details["predicted"].split(" of "))
    assert right == of >= held_out - 1
    assert found.details["values needed"] < 300


@pytest.mark.parametrize("register", REGISTERS, ids=lambda r: f"{r.name}, {r.bits} bits")
@pytest.mark.parametrize("mirrored", [False, True])
def test_every_register_is_found_where_pairs_were_rejected(register, mirrored):
    z = polar(np.array([w * 2.0**-register.bits for w in numbers(register, 1_400)]))
    found = find_replay(-z if mirrored else z)
    assert found.hits == found.held_out > 200
    assert found.p < 1e-100
    assert found.generator == register.name


STATES = {"TW223": 223, "V8": 8_192, "xorshift32": 32, "xorshift64": 64, "xorshift128": 128}
STATES |= {"taus88": 88, "lfsr113": 113, "WELL512a": 512}


@pytest.mark.parametrize("name", STATES)
def test_registers_have_the_recurrences_of_their_names(name):
    register = next(r for r in REGISTERS if name in r.name.replace("128+ as", ""))
    words = numbers(register, 2 * STATES[name] + 64)
    bits = np.array([w >> (register.bits - 1) & 1 for w in words], np.uint8)
    assert shortest_recurrence(bits).length == STATES[name]


def test_xorshift128_is_marsaglias():
    register = next(r for r in REGISTERS if r.name == "xorshift128")
    state = [123456789, 362436069, 521288629, 88675123]
    assert register.numbers(state)(2).tolist() == [3701687786, 458299110]


def test_every_replay_is_paid_for():
    z = polar(of_luajit(60))[:18]
    found = find_replay(z)
    assert (found.learned_from, found.hits, found.held_out) == (8, 10, 10)
    assert found.p == pytest.approx(8 * 256 * len(REGISTERS) * 2.0**-160, rel=1e-6, abs=0)


@pytest.mark.slow
@pytest.mark.parametrize("noise", [coarse, half_precision, single, rarely_negative])
def test_independent_noise_has_no_state(noise):
    rng = KeyedStream.from_seed("states").numpy()
    assert all(find_replay(noise(rng, 1_000)) is None for _ in range(10))


def test_what_is_kept_is_bounded():
    law, stream = Claim.parse("gaussian:sigma=1"), KeyedStream.from_seed(11)
    test, more = LinearComplexity(law, stream), {"claim": law, "spread": stream.numpy()}
    x = np.random.default_rng(1).standard_normal((4_096, 64))
    for i in range(12):
        test.update(SampleBlock(i, x[:, : 64 - i % 2], **more))
        test.update(SampleBlock(i, x, calls=4_096, **more))
    kept = test._stretches
    parts = [kept._first, *kept._runs.values(), *kept._heads.values()]
    assert sum(a.nbytes for part in parts for a in part) < 16e6


def test_an_audit_says_how_much_is_predicted():
    rng = np.random.RandomState(3)
    options = {"seed": "1", "samples": 150_000, "tests": ("linear-complexity", "moments")}
    with CallableTarget(lambda n, d: rng.laplace(0, 1, (n, d)), name="legacy").open(
        timeout=60
    ) as sampler:
        options = AuditOptions(alpha=1e-6, **options)
        found = run_audit(sampler, claim=Claim.parse("laplace:scale=1"), options=options)
    (only,) = (t for t in found.tests if t.finding)
    assert only.effect.startswith("like the Mersenne Twister MT19937, or WELL19937: signs of every")
    assert only.details["values needed"] == 2 * only.details["recurrence"]
