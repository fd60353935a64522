"""Published generators give their published outputs, and step as their definitions say."""

import numpy as np
import pytest

from dpaudit.numeric import generators


def words(*state):
    return np.array(state, np.uint64)


def twister(seed):
    return generators.mt19937(np.asarray(np.random.RandomState(seed).get_state()[1], np.uint32))


def test_linear_generators_give_their_published_outputs():
    # Marsaglia (2003)
    assert generators.xorshift64(words(88172645463325252))(1)[0] == 8748534153485358512
    state = words(123456789, 362436069, 521288629, 88675123)
    assert generators.xorshift128(state)(1)[0] == 3701687786
    # the C++ standard, 10,000th output
    assert twister(5489)(10_000)[-1] == 4123659995
    # GSL's own tests of taus and taus113
    seeds = [69_069]
    while len(seeds) < 4:
        seeds.append(69_069 * seeds[-1] % 2**32)
    taus = generators.tausworthe(words(*seeds[:3]), 32, generators.TAUS88)
    assert taus(6 + 10_000)[-1] == 2733957125
    lfsr = generators.tausworthe(words(*seeds), 32, generators.LFSR113)
    assert lfsr(10 + 1_000)[-1] == 1925420673
    # LuaJIT's math.random after math.randomseed(0)
    x, state = 0.0, []
    for least in (17, 9, 6, 1):
        x = x * np.pi + np.e
        bits = int(np.float64(x).view(np.uint64))
        state.append(bits + (1 << least if bits < 1 << least else 0))
    lua = generators.tausworthe(words(*state), 64, generators.TW223)(13)[10:] & np.uint64(2**52 - 1)
    assert (lua * 2.0**-52).tolist() == pytest.approx(
        [0.79420629243124, 0.69885246563716, 0.5901037417281], abs=1e-14
    )


def test_generators_without_published_outputs_step_as_defined():
    low = 2**32 - 1
    state = [int(x) for x in np.random.default_rng(1).integers(0, 2**32, 16)]
    fast, slow, at = generators.well512(words(*state)), [], 0
    for _ in range(100):
        z1 = state[at] ^ state[at] << 16 ^ state[at - 3] ^ state[at - 3] << 15
        z2 = state[at - 7] ^ state[at - 7] >> 11
        new = (z1 ^ z2) & low
        z0 = state[at - 1]
        state[at] = new
        z1 &= low
        at = (at - 1) % 16
        state[at] = (z0 ^ z0 << 2 ^ z1 ^ z1 << 18 ^ z2 << 28 ^ new ^ (new << 5 & 0xDA442D24)) & low
        slow.append(state[at])
    assert [*fast(1), *fast(60), *fast(39)] == slow
    mask, (a, b), slow = 2**64 - 1, (3, 5 << 60), []
    both = [generators.xorshift128_plus(words(a, b), added=added) for added in (False, True)]
    for _ in range(64):
        x = a ^ a << 23 & mask
        a, b = b, x ^ x >> 17 ^ b ^ b >> 26
        slow.append((a, (a + b) & mask))
    assert list(zip(*(one(64).tolist() for one in both), strict=True)) == slow
    reversed_ = generators.reversed_blocks(
        generators.xorshift128_plus(words(3, 5 << 60), added=False), 32
    )
    portions = [*reversed_(2), *reversed_(50), *reversed_(12)]
    assert portions == [*(a for a, _ in slow[31::-1]), *(a for a, _ in slow[:31:-1])]


def test_modular_generators_give_their_published_outputs():
    m = 2**31 - 1
    # Park and Miller; the C++ standard
    assert generators.congruential(16_807, 0, m, 1)(10_000)[-1] == 1043618065
    minstd = generators.congruential(48_271, 0, m, 1)
    assert [minstd(1), minstd(9_999)][-1][-1] == 399268537
    source = generators.congruential(16_807, 0, m, 1)
    knuth_b = generators.shuffled(lambda k: source(k) - np.uint64(1), 256, m - 1)
    assert knuth_b(10_000)[-1] + np.uint64(1) == 1112339016
    # drand48 after srand48(0); Java's new Random(42).nextInt(); glibc's rand() after srand(1)
    drand48 = generators.congruential(0x5DEECE66D, 11, 1 << 48, 0x330E)
    assert drand48(1)[0] * 2.0**-48 == 0.17082803610628972
    java = generators.congruential(0x5DEECE66D, 11, 1 << 48, 42 ^ 0x5DEECE66D)
    assert int(java(1)[0] >> np.uint64(16)) - 2**32 == -1170105035
    r = [1]
    for _ in range(30):
        r.append(16_807 * r[-1] % m)
    glibc = generators.lagged(words(*r[3:], *r[:3]), 3, generators.ADD, 32)
    assert (glibc(313)[-3:] >> np.uint64(1)).tolist() == [1804289383, 846930886, 1681692777]
    # L'Ecuyer (1999), all six words of state 12345; Steele, Lea and Flood's program, seed 1234567
    mrg = generators.mrg32k3a(words(*[12_345] * 6))(3) / 4_294_967_088
    assert mrg.tolist() == pytest.approx([0.1270111220466, 0.3185275653968, 0.3091860155833])
    assert generators.splitmix64(1_234_567)(2).tolist() == [
        6457827717110365317,
        3203168211198807973,
    ]
    with pytest.raises(ValueError, match="power of two"):
        generators.congruential(3, 1, 2**33 + 1, 1)


def test_lagged_generators_follow_their_recurrences():
    state = np.random.default_rng(2).integers(0, 1 << 30, 100, np.uint64)
    for kind, joined in (
        (generators.XOR, lambda old, near: old ^ near),
        (generators.ADD, lambda old, near: (old + near) % 2**30),
        (generators.SUBTRACT, lambda old, near: (old - near) % 2**30),
        (generators.REVERSED, lambda old, near: (near - old) % 2**30),
    ):
        slow = [int(x) for x in state]
        for _ in range(500):
            slow.append(joined(slow[-100], slow[-37]))
        fast = generators.lagged(state.copy(), 37, kind, 30)
        assert [*fast(1), *fast(250), *fast(249)] == slow[100:]


def test_generators_step_as_their_definitions_say():
    slow, state = [], 12_345
    for _ in range(1_000):
        state = (1_103_515_245 * state + 12_345) % 2**31
        slow.append(state)
    fast = generators.congruential(1_103_515_245, 12_345, 1 << 31, 12_345)
    assert [*fast(1), *fast(299), *fast(700)] == slow
    slow, state = [], 2_463_534_242
    for _ in range(1_000):
        state ^= state << 13 & 0xFFFFFFFF
        state ^= state >> 17
        state ^= state << 5 & 0xFFFFFFFF
        slow.append(state)
    xor = generators.xorshift32(words(2_463_534_242))
    assert [*xor(1), *xor(300), *xor(699)] == slow
