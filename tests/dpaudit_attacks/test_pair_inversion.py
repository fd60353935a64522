"""Impossible values from pairs of releases; replays against libraries, searches against lists."""

import itertools
import math
import os
import random
import subprocess
import sys

import numpy as np
import pytest
import torch
from support.attacks import possible

from dpaudit import registry
from dpaudit.errors import UsageError
from dpaudit.randomness import KeyedStream
from dpaudit.stats import clopper_pearson
from dpaudit_attacks.floating_point.pair_inversion import PairInversion, in_order, in_tensors
from dpaudit_attacks.floating_point.replay import libm, samplers
from dpaudit_attacks.floating_point.replay.box_muller import BoxMuller
from dpaudit_attacks.floating_point.replay.polar import Polar
from dpaudit_attacks.floating_point.replay.release import Addition

SAMPLERS = ("numpy-legacy", "stdlib-gauss", "torch-f32", "torch-f64")
KINDS = {"torch-f32": torch.float32, "torch-f64": torch.float64}


def noise_of(sampler, pairs, *, scale, seed):
    """Rows of 2 (numpy, Python) or 16 (torch)."""
    if sampler == "numpy-legacy":
        return np.random.RandomState(seed).normal(0.0, scale, (pairs, 2))
    if sampler == "stdlib-gauss":
        rng = random.Random(seed)
        return np.array([rng.gauss(0.0, scale) for _ in range(2 * pairs)]).reshape(-1, 2)
    generator = torch.Generator().manual_seed(seed)
    return torch.normal(
        0.0, scale, (pairs // 8, 16), generator=generator, dtype=KINDS[sampler]
    ).numpy()


def ideal(sampler, pairs, *, scale, seed):
    """A ziggurat's doubles, rounded to the number type, in the same rows."""
    z = np.random.default_rng(seed).normal(0.0, scale, 2 * pairs)
    if sampler == "torch-f32":
        z = z.astype(np.float32)
    return z.reshape(-1, 16 if sampler in KINDS else 2)


def guesses(attack, draw, first, second, pairs, *, scale=1.0):
    """Right guesses from one pair, ties by a fair coin, and how often the truth was ruled out."""
    coin, right, wrong = np.random.default_rng(1), 0, 0
    for side, (value, other) in enumerate(((first, second), (second, first))):
        noise = draw(attack.sampler, pairs, scale=scale, seed=11 + side)
        y = (noise.dtype.type(value) + noise).astype(np.float64)
        true, false = (possible(attack, y, np.full(y.shape[1], v)) for v in (value, other))
        right += int(np.where(true == false, coin.random(true.shape) < 0.5, true).sum())
        wrong += int((~true).sum())
    return right, wrong


@pytest.mark.parametrize("pairs", [8_000, pytest.param(500_000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("scale", [1.0, 10.0])
@pytest.mark.parametrize("sampler", SAMPLERS)
def test_one_pair_tells_0_from_1(sampler, scale, pairs):
    attack = PairInversion(sampler=sampler, scale=scale)
    right, wrong = guesses(attack, noise_of, 0.0, 1.0, pairs, scale=scale)
    assert wrong == 0
    assert clopper_pearson(right, 2 * pairs).low > 0.97


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_ideal_noise_is_no_pair(sampler):
    """It rules both values out mostly; what is left is reach and luck."""
    right, wrong = guesses(PairInversion(sampler=sampler), ideal, 0.0, 1.0, 3_200)
    assert wrong > 3_200
    assert 0.5 < right / 6_400 < 0.6


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_large_values_hide_the_pair(sampler):
    attack = PairInversion(sampler=sampler, scale=10.0)
    right, wrong = guesses(attack, noise_of, 1e4, 1e4 + 1, 8_000, scale=10.0)
    assert wrong == 0
    assert abs(right / 16_000 - 0.5) < 0.02


@pytest.mark.parametrize(
    ("name", "dtype"),
    [(f"box-muller-f{n}", f"float{m}") for n, m in ((32, 64), (32, 32), (64, 64))]
    + [("polar", "float64")],
)
def test_specimens(name, dtype):
    source = registry.create("sources", f"{name}:sigma=0.5")
    attack = PairInversion(sampler=name, scale=0.5, dtype=dtype)
    noise = source.sample(4000, 4, stream=KeyedStream.from_seed("s")).astype(dtype)
    value = np.array([0.25, 0.0, 0.125, -0.5])
    y = (value.astype(dtype) + noise).astype(float)
    assert possible(attack, y, value).all()
    assert possible(attack, y, value + 0.5).mean() < 0.3


def test_many_float32_tensors_with_a_mean():
    """DP-SGD with odd tensors: as Opacus adds, and divides in place."""
    sizes, batch, sigma = (150, 6, 2400, 16, 12072, 10), 48, 1.1
    generator = torch.Generator().manual_seed(4)
    sums = [torch.normal(0.0, 0.02, (n,), generator=generator) for n in sizes]
    rows = []
    for _ in range(3):
        grads = [s + torch.normal(0.0, sigma, s.shape, generator=generator) for s in sums]
        for g in grads:
            g /= batch
        rows.append(torch.cat(grads))
    y, value = torch.stack(rows).double().numpy(), torch.cat(sums).double().numpy()
    attack = PairInversion(sampler="torch-f32", scale=sigma, sizes=sizes, divisor=batch)
    true = possible(attack, y, value)
    assert true.shape == (3, len(attack.units(sum(sizes))))
    assert true.all()
    other = value.copy()
    other[200] += 2.0**-10
    unit = next(i for i, u in enumerate(attack.units(len(value))) if 200 in u)
    assert not possible(attack, y, other)[:, unit].all()
    assert np.delete(possible(attack, y, other), unit, axis=1).all()
    scores = attack.score(torch.from_numpy(y), torch.from_numpy(np.stack([value, other])))
    assert scores[:, 0].eq(0).all()
    assert scores[:, 1].sum() == -(~possible(attack, y, other)).sum()


def test_lost_alignment():
    rng = np.random.RandomState(21)
    even = rng.normal(0, 1, (500, 6))
    rng.normal()
    odd = rng.normal(0, 1, (500, 6))
    zero, one = np.zeros(6), np.ones(6)
    at = {o: PairInversion(sampler="numpy-legacy", offset=o) for o in (0, 1, "unknown")}
    assert at[0].units(6) == ((0, 1), (2, 3), (4, 5))
    assert at[1].units(6) == ((0,), (1, 2), (3, 4), (5,))
    assert at["unknown"].units(6) == ((0, 1, 2, 3, 4, 5),)
    assert possible(at[0], even, zero).all()
    assert possible(at[1], odd, zero).all()
    assert possible(at[0], odd, zero).mean() < 0.6
    for y in (even, odd):
        found = possible(at["unknown"], y, zero)
        assert found.shape == (500, 1)
        assert found.all()
        assert possible(at["unknown"], y, one).mean() < 0.05
    assert possible(at["unknown"], odd[:, :5].copy(), zero[:5]).all()


def test_short_torch_tensors_in_float64():
    """5 + 20 + 3 numbers: the 8 of short tensors pair across them, the 20 in lanes."""
    options = {"generator": torch.Generator().manual_seed(6), "dtype": torch.float64}
    rows = [[torch.normal(0.0, 1.0, (n,), **options) for n in (5, 20, 3)] for _ in range(200)]
    y = torch.stack([torch.cat(row) for row in rows]).numpy()
    attack, unknown = (
        PairInversion(sampler="torch-f64", sizes="5+20+3", offset=o) for o in (0, "unknown")
    )
    assert possible(attack, y, np.zeros(28)).all()
    units = attack.units(28)
    assert {(0, 1), (2, 3), (4, 25), (26, 27), (9, 17)} <= set(units)
    pairs = [i for i, unit in enumerate(units) if len(unit) == 2]
    assert (possible(attack, y, np.ones(28))[:, pairs].mean(0) < 0.1).all()
    assert possible(unknown, y, np.zeros(28)).all()
    assert not possible(unknown, y, np.ones(28)).any()
    with pytest.raises(UsageError, match="an odd number, which shifts"):
        possible(PairInversion(sampler="torch-f64", sizes="5+20"), y[:, :25], np.zeros(25))


def test_hostile_releases():
    """Zeros, the largest numbers, subnormals and far values: no warning, no excluded truth."""
    attack, gauss = (PairInversion(sampler=name) for name in ("numpy-legacy", "stdlib-gauss"))
    y = [[0.0, -0.0], [1e308, -1e308], [5e-324, 1e-310], [1.0, 1.0], [1e9, 1.0], [2.0**53 + 2, 0.5]]
    with np.errstate(all="raise"):
        assert possible(attack, np.array(y[:1]), np.zeros(2)).all()
        assert possible(attack, np.array([[1.0, 2.0]]), np.array([1.0, 2.0])).all()
        for value in (np.zeros(2), np.full(2, -1e308)):
            assert possible(attack, np.array(y), value).shape == (6, 1)
        assert not possible(attack, np.array([[50.0, 0.25]]), np.zeros(2)).any()
        assert not possible(gauss, np.array([[9.0, 0.25]]), np.zeros(2)).any()
    assert possible(attack, np.empty((0, 4)), np.zeros(4)).shape == (0, 2)


PLAIN = Addition(np.dtype(np.float64))
EDGES = np.array([0, 1, 2, 3, 5, 17, 1000, 4097])


def test_numpy_legacy_bit_for_bit():
    """The uniforms are consumed one by one here, as the method is written down."""
    uniforms = np.random.RandomState(3)
    wanted = np.random.RandomState(3).normal(0.0, 2.5, 2000)
    for first, second in wanted.reshape(-1, 2):
        while True:
            x1, x2 = 2.0 * uniforms.random_sample() - 1.0, 2.0 * uniforms.random_sample() - 1.0
            if 0 < x1 * x1 + x2 * x2 < 1:
                break
        got = Polar().outputs(np.array([x1]), np.array([x2]), scale=2.5)
        assert got[:, 0].tolist() == [first, second]


def test_stdlib_gauss_bit_for_bit():
    uniforms, wanted = random.Random(4), random.Random(4)
    replay = samplers.verified_replay("stdlib-gauss")
    for _ in range(2000):
        turn, radius = int(uniforms.random() * 2**53), int(2**53 - uniforms.random() * 2**53)
        got = replay.outputs(np.array([radius]), np.array([turn]), scale=0.3)
        assert got[:, 0].tolist() == [wanted.gauss(0.0, 0.3), wanted.gauss(0.0, 0.3)]


@pytest.mark.parametrize(
    ("dtype", "bits", "name"), [("float32", 24, "torch-f32"), ("float64", 53, "torch-f64")]
)
@pytest.mark.parametrize("std", [1.0, 0.1, 1e3])
def test_torch_bit_for_bit(dtype, bits, name, std):
    """200 whole blocks and a tail that is drawn again, over the block before it."""
    kind, n = getattr(torch, dtype), 16 * 200 + 5
    wanted = torch.normal(
        0.0, std, (n,), dtype=kind, generator=torch.Generator().manual_seed(9)
    ).numpy()
    u = torch.rand(n + 16, dtype=kind, generator=torch.Generator().manual_seed(9)).numpy()
    whole = (u.astype(float) * 2.0**bits).astype(np.int64)
    replay = samplers.verified_replay(name)
    made = np.empty(n, dtype)
    for start, source in [*((i, i) for i in range(0, n - 15, 16)), (n - 16, n)]:
        lanes = whole[source : source + 16].reshape(2, 8)
        made[start : start + 16] = replay.outputs(2**bits - lanes[0], lanes[1], scale=std).ravel()
    assert np.array_equal(made, wanted)


def test_torch_normals_of_short_tensors_bit_for_bit():
    """Five at a time: the pairs go on from call to call."""
    first, second = (torch.Generator().manual_seed(2) for _ in range(2))
    options = {"dtype": torch.float64, "generator": first}
    wanted = [torch.normal(0.0, 1.3, (5,), **options).numpy() for _ in range(40)]
    u = torch.rand(100, 2, dtype=torch.float64, generator=second).numpy()
    whole = (u * 2.0**53).astype(np.int64)
    made = samplers.verified_replay("torch-f64-short").outputs(
        2**53 - whole[:, 1], whole[:, 0], scale=1.3
    )
    assert np.array_equal(made.T.ravel(), np.concatenate(wanted))


@pytest.mark.slow
@pytest.mark.parametrize(("capability", "allowed"), [("default", [2]), ("avx2", [0, 1, 2])])
def test_torch_without_wider_vectors(capability, allowed):
    """torch chooses its loops when it is loaded, so another process has to."""
    code = (
        "from dpaudit_attacks.floating_point.replay import samplers\n"
        "replay = samplers.verified('torch-f32')\n"
        "print(samplers._TABLE['torch-f32'][1].index(replay))\n"
    )
    path = {"ATEN_CPU_CAPABILITY": capability, "PYTHONPATH": os.pathsep.join(sys.path)}
    told = {"capture_output": True, "text": True, "check": True}
    run = subprocess.run([sys.executable, "-c", code], env={**os.environ, **path}, **told)
    assert int(run.stdout) in allowed


def test_refuses_where_the_library_is_another(monkeypatch):
    """A replay that is wrong in the last bit of a hundredth of its pairs."""
    known, _ = samplers._TABLE["torch-f32"]

    def turn(k):
        cosine, sine = libm.turn32(k)
        return np.where(k % 100 == 0, np.nextafter(cosine, np.float32(2)), cosine), sine

    broken = BoxMuller(24, np.dtype(np.float32), libm.radius32, turn)
    monkeypatch.setitem(samplers._TABLE, "torch-f32", (known, [broken]))
    samplers.verified_replay.cache_clear()
    with pytest.raises(UsageError, match="the replay differs from the library installed here in"):
        samplers.verified_replay("torch-f32")
    samplers.verified_replay.cache_clear()


# The searches


def coarse(bits):
    """A Box-Muller on a grid so coarse that all its pairs can be listed."""

    def radius(k):
        return np.sqrt(-2 * np.log(k * 2.0**-bits))

    def turn(k):
        return np.cos(2 * np.pi * (k * 2.0**-bits)), np.sin(2 * np.pi * (k * 2.0**-bits))

    return BoxMuller(bits, np.dtype(np.float64), radius, turn)


@pytest.mark.parametrize(
    "value", [(0.0, 0.0), (3.0, -0.25), (2.0**43, -(2.0**44)), (2.0**46, 2.0**46)]
)
def test_box_muller_search_agrees_with_a_list_of_all_pairs(value):
    """From 2^43 the sum keeps a few bits of the noise, so several pairs lead to one release."""
    replay = coarse(6)
    # without u = 1, where the noise is 0
    k, t = (a.ravel() for a in np.meshgrid(np.arange(1, 64), np.arange(64)))
    v = np.broadcast_to(np.array(value)[:, None], (2, k.size)).copy()
    possible = v + replay.outputs(k, t, scale=1.5)
    listed = set(map(tuple, possible.T.tolist()))
    moved = np.nextafter(
        possible, np.random.default_rng(1).choice([-np.inf, np.inf], possible.shape)
    )
    for y in (possible, moved):
        wanted = [pair in listed for pair in map(tuple, y.T.tolist())]
        got = replay.feasible(y, v, addition=PLAIN, scale=1.5)
        big = abs(value[0]) > 2**45  # then some count as feasible without a search
        assert np.all(got >= wanted)
        assert big or got.tolist() == wanted
    assert big or not all(wanted)


def test_polar_search_agrees_with_a_wide_slow_one():
    """Python's own arithmetic over ±25 grid points, for releases of 0 tested at 0.5 and 1."""
    z = np.random.RandomState(12).normal(0, 1, (20, 2))
    found = 0
    for value, row in itertools.product((0.5, 1.0), z):
        first, second = (float(x) - value for x in row)
        r = math.hypot(first, second)
        if r < 0.3:
            continue
        ring = math.exp(-r * r / 4) / r
        centre = [round(x * ring * 2**52) for x in (second, first)]
        wanted = False
        for a, b in itertools.product(range(-25, 26), repeat=2):
            x1, x2 = (centre[0] + a) / 2**52, (centre[1] + b) / 2**52
            r2 = x1 * x1 + x2 * x2
            if 0 < r2 < 1:
                f = math.sqrt(-2.0 * math.log(r2) / r2)
                wanted |= value + f * x2 == row[0] and value + f * x1 == row[1]
        y, v = row[:, None].copy(), np.full((2, 1), value)
        assert Polar().feasible(y, v, addition=PLAIN, scale=1.0)[0] == wanted
        found += wanted
    assert 0 < found < 20


def uniforms(replay, n, rng):
    """Uniforms as the sampler draws them, and those at the edges of its grid."""
    if isinstance(replay, Polar):
        x = 2 * rng.random((2 * n, 2)) - 1
        small = np.exp(rng.uniform(-36, 0, (n, 2))) * rng.choice([-1, 1], (n, 2))
        angle, inside = rng.uniform(0, 2 * np.pi, n), np.exp(rng.uniform(-36, -1, n))
        rim = np.stack([np.cos(angle), np.sin(angle)], 1) * (1 - inside)[:, None]
        axis = rim * [1, 2.0**-50]
        x = np.round(np.concatenate([x, small, rim, axis, axis[:, ::-1]]) * 2.0**52) * 2.0**-52
        r2 = x[:, 0] * x[:, 0] + x[:, 1] * x[:, 1]
        return x[(r2 < 1) & (r2 > 0)].T.copy()
    size, least = 2**replay.bits, int(replay.whole_turn)
    k, t = rng.integers(1, size + 1, n), rng.integers(least, size + least, n)
    k_edge = np.concatenate([1 + EDGES, size - EDGES, 2 ** (replay.bits // 2) + EDGES])
    t_edge = np.unique([i * size // 16 + d for i in range(17) for d in (*EDGES, *-EDGES)])
    t_edge = t_edge[(t_edge >= least) & (t_edge < size + least)]
    both = np.stack([a.ravel() for a in np.meshgrid(k_edge, t_edge)])
    mixed = (
        [rng.choice(k_edge, n), rng.integers(least, size + least, n)],
        [rng.integers(1, size + 1, n), rng.choice(t_edge, n)],
    )
    return np.concatenate([[k, t], both, *mixed], axis=1)


VALUES = (0.0, 1.0, -0.1, 7.3, 1000.0, -123456.789, 1e-6)


def never_excluded(name, n, *, divisors, seed, values):
    """How many true pairs, none of them infeasible."""
    replay, rng, pairs = samplers.verified_replay(name), np.random.default_rng(seed), 0
    kinds = (
        [np.float32, np.float64]
        if getattr(replay, "dtype", np.float64) == np.float32
        else [np.float64]
    )
    for kind, scale, value, divisor in itertools.product(
        kinds, (1.0, 10.0, 0.37, 1e-4), values, divisors
    ):
        addition = Addition(np.dtype(kind), divisor)
        noise = replay.outputs(*uniforms(replay, n, rng), scale=scale)
        v = addition.rounded(np.broadcast_to([[value], [0.7 * value]], noise.shape).astype(float))
        y = (v + noise).astype(kind) / kind(divisor)
        ok = replay.feasible(y, v, addition=addition, scale=scale)
        assert ok.all(), (name, kind, scale, value, divisor, y[:, ~ok][:, 0])
        pairs += ok.size
    return pairs


SMALL = (100, (1.0, 48.7), 5, (0.0, -0.1, 1000.0), 10_000)
LARGE = (8_000, (1.0, 64.0, 3.0, 0.1), 6, VALUES, 1_000_000)


@pytest.mark.parametrize("name", list(samplers._TABLE))
@pytest.mark.parametrize(
    ("n", "divisors", "seed", "values", "least"),
    [SMALL, pytest.param(*LARGE, marks=pytest.mark.slow)],
)
def test_the_truth_is_never_excluded(name, n, divisors, seed, values, least):
    assert never_excluded(name, n, divisors=divisors, seed=seed, values=values) > least


@pytest.mark.slow
@pytest.mark.parametrize("name", ["torch-f32", "box-muller-f32"])
def test_search_bounds_hold_for_every_float32_uniform(name):
    """Radius within 3 roundings; angle within a step and a quarter and two products' roundings."""
    for replay in samplers._TABLE[name][1]:
        for start in range(0, 2**24, 2**21):
            k = np.arange(start + 1, start + 2**21 + 1)
            exact = np.sqrt(-2 * np.log(k * 2.0**-24))
            assert np.all(np.abs(replay.radius(k) - exact) <= 3 * 2.0**-24 * exact)
            t = k if replay.whole_turn else k - 1
            cosine, sine = (x.astype(float) for x in replay.turn(t))
            wanted = 2 * np.pi * (t * 2.0**-24)
            off = np.arctan2(
                sine * np.cos(wanted) - cosine * np.sin(wanted),
                cosine * np.cos(wanted) + sine * np.sin(wanted),
            )
            assert np.abs(off).max() <= 1.25 * 2 * np.pi * 2.0**-24 + 2.0**-24
            assert np.abs(np.hypot(cosine, sine) - 1).max() <= 2 * 2.0**-24


# Which coordinates pair


@pytest.mark.parametrize("size", [16, 17, 23, 24, 25, 31, 32, 33, 40, 47, 48, 49, 63, 64, 65])
def test_lanes_as_the_loop_overwrites_them(size):
    """torch's loop on names of uniforms: each output remembers the two that made it."""
    made = [None] * size
    for start, draw in [
        *((i, "first") for i in range(0, size - 15, 16)),
        *([(size - 16, "again")] if size % 16 else []),
    ]:
        for lane in range(16):
            made[start + lane] = (draw, start, lane % 8)
    pairs = {(i, j) for i, j in itertools.combinations(range(size), 2) if made[i] == made[j]}
    layout = in_tensors([size], offset=0, short_pairs=False)
    assert set(map(tuple, layout.pairs.tolist())) == pairs
    assert sorted([*layout.pairs.ravel(), *layout.alone]) == list(range(size))


def test_order_and_short_tensors():
    assert in_order(5, offset=1).units == ((0,), (1, 2), (3, 4))
    both = in_tensors([3, 16, 5], offset=0, short_pairs=True)
    assert both.units[:2] == ((0, 1), (2, 19))
    assert both.units[2:10] == tuple((3 + j, 11 + j) for j in range(8))
    assert both.units[10:] == ((20, 21), (22, 23))
    alone = in_tensors([3, 16], offset=0, short_pairs=False)
    assert alone.units[:3] == ((0,), (1,), (2,))
