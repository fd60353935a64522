"""From pairs of releases to impossible values, by noise of the real libraries."""

import random

import numpy as np
import pytest
import torch

from dpaudit import registry
from dpaudit.errors import UnknownNameError, UsageError
from dpaudit.interfaces import Attack, SupportAttack
from dpaudit.randomness import KeyedStream
from dpaudit.stats import clopper_pearson
from dpaudit_attacks.floating_point.pair_inversion import PairInversion

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
        true, false = (attack.feasible(y, np.full(y.shape[1], v)) for v in (value, other))
        right += int(np.where(true == false, coin.random(true.shape) < 0.5, true).sum())
        wrong += int((~true).sum())
    return right, wrong


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_one_pair_tells_0_from_1(sampler):
    pairs = 8_000
    attack = PairInversion(sampler=sampler)
    right, wrong = guesses(attack, noise_of, 0.0, 1.0, pairs)
    assert wrong == 0
    assert clopper_pearson(right, 2 * pairs).low > 0.97


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_ideal_noise_is_no_pair(sampler):
    """It rules both values out mostly; what is left is reach and luck."""
    right, wrong = guesses(PairInversion(sampler=sampler), ideal, 0.0, 1.0, 3_200)
    assert wrong > 3_200
    assert 0.5 < right / 6_400 < 0.6


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_large_scale_and_large_values(sampler):
    attack = PairInversion(sampler=sampler, scale=10.0)
    right, wrong = guesses(attack, noise_of, 0.0, 1.0, 4_000, scale=10.0)
    assert wrong == 0
    assert right / 8_000 > 0.97
    right, wrong = guesses(attack, noise_of, 1e4, 1e4 + 1, 8_000, scale=10.0)
    assert wrong == 0
    assert abs(right / 16_000 - 0.5) < 0.02


@pytest.mark.slow
@pytest.mark.parametrize("sampler", SAMPLERS)
@pytest.mark.parametrize("scale", [1.0, 10.0])
def test_a_million_pairs(sampler, scale):
    pairs = 500_000
    right, wrong = guesses(
        PairInversion(sampler=sampler, scale=scale), noise_of, 0.0, 1.0, pairs, scale=scale
    )
    assert wrong == 0
    assert clopper_pearson(right, 2 * pairs).low > 0.97


@pytest.mark.parametrize(
    ("name", "sampler"),
    [("box-muller-f32", "BoxMullerF32"), ("box-muller-f64", "BoxMullerF64"), ("polar", "Polar")],
)
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_specimens(name, sampler, dtype):
    if dtype == "float32" and name != "box-muller-f32":
        with pytest.raises(UsageError, match="makes float64 noise"):
            PairInversion(sampler=name, dtype=dtype)
        return
    source = registry.create("sources", f"{name}:sigma=0.5")
    attack = PairInversion(sampler=name, scale=0.5, dtype=dtype)
    noise = source.sample(4000, 4, stream=KeyedStream.from_seed("s")).astype(dtype)
    value = np.array([0.25, 0.0, 0.125, -0.5])
    y = (value.astype(dtype) + noise).astype(float)
    assert attack.feasible(y, value).all()
    assert attack.feasible(y, value + 0.5).mean() < 0.3


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
    true = attack.feasible(y, value)
    assert true.shape == (3, len(attack.units(sum(sizes))))
    assert true.all()
    other = value.copy()
    other[200] += 2.0**-10
    unit = next(i for i, u in enumerate(attack.units(len(value))) if 200 in u)
    assert not attack.feasible(y, other)[:, unit].all()
    assert np.delete(attack.feasible(y, other), unit, axis=1).all()
    scores = attack.score(torch.from_numpy(y), torch.from_numpy(np.stack([value, other])))
    assert scores[:, 0].eq(0).all()
    assert scores[:, 1].sum() == -(~attack.feasible(y, other)).sum()


def test_candidates_of_each_release_and_evidence():
    rng = np.random.RandomState(8)
    values = np.array([[0.0, 0.0], [1.0, 2.0], [3.0, 0.5]])
    y = torch.from_numpy(values + rng.normal(0, 1, values.shape))
    candidates = torch.from_numpy(np.stack([values, values + 0.75], axis=1))
    attack = PairInversion(sampler="numpy-legacy")
    scores = attack.score(y, candidates)
    assert scores[:, 0].tolist() == [0, 0, 0]
    one_by_one = [
        attack.feasible(y[i : i + 1].numpy(), candidates[i, 1].numpy()).all() for i in range(3)
    ]
    assert scores[:, 1].eq(0).tolist() == one_by_one
    shown = attack.evidence(y, candidates, torch.zeros(3, dtype=torch.long))
    assert shown["feasibility"]["truth_ruled_out"] == 0


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
    assert at[0].feasible(even, zero).all()
    assert at[1].feasible(odd, zero).all()
    assert at[0].feasible(odd, zero).mean() < 0.6
    for y in (even, odd):
        found = at["unknown"].feasible(y, zero)
        assert found.shape == (500, 1)
        assert found.all()
        assert at["unknown"].feasible(y, one).mean() < 0.05
    assert at["unknown"].feasible(odd[:, :5].copy(), zero[:5]).all()


def test_short_torch_tensors_in_float64():
    """5 + 20 + 3 numbers: the 8 of short tensors pair across them, the 20 in lanes."""
    generator = torch.Generator().manual_seed(6)
    parts = [
        [torch.normal(0.0, 1.0, (n,), generator=generator, dtype=torch.float64) for n in (5, 20, 3)]
        for _ in range(200)
    ]
    y = torch.stack([torch.cat(row) for row in parts]).numpy()
    attack = PairInversion(sampler="torch-f64", sizes="5+20+3")
    assert attack.feasible(y, np.zeros(28)).all()
    units = attack.units(28)
    assert {(0, 1), (2, 3), (4, 25), (26, 27), (9, 17)} <= set(units)
    wrong = attack.feasible(y, np.ones(28))
    pairs = [i for i, unit in enumerate(units) if len(unit) == 2]
    assert (wrong[:, pairs].mean(0) < 0.1).all()
    with pytest.raises(UsageError, match="an odd number, which shifts"):
        PairInversion(sampler="torch-f64", sizes="5+20").feasible(y[:, :25], np.zeros(25))
    unknown = PairInversion(sampler="torch-f64", sizes="5+20+3", offset="unknown")
    assert unknown.feasible(y, np.zeros(28)).all()
    assert not unknown.feasible(y, np.ones(28)).any()


def test_hostile_releases():
    """Zeros, the largest numbers, subnormals and far values: no warning, no excluded truth."""
    attack = PairInversion(sampler="numpy-legacy")
    y = np.array(
        [
            [0.0, -0.0],
            [1e308, -1e308],
            [5e-324, 1e-310],
            [1.0, 1.0],
            [1e9, 1.0],
            [9007199254740993.0, 0.5],
        ]
    )
    with np.errstate(all="raise"):
        assert attack.feasible(y[:1], np.zeros(2)).all()
        assert attack.feasible(np.array([[1.0, 2.0]]), np.array([1.0, 2.0])).all()
        assert attack.feasible(y, np.zeros(2)).shape == (6, 1)
        assert attack.feasible(y, np.full(2, -1e308)).shape == (6, 1)
        assert not attack.feasible(np.array([[50.0, 0.25]]), np.zeros(2)).any()
        assert (
            not PairInversion(sampler="stdlib-gauss")
            .feasible(np.array([[9.0, 0.25]]), np.zeros(2))
            .any()
        )
    assert attack.feasible(np.empty((0, 4)), np.zeros(4)).shape == (0, 2)


def test_protocols_and_registry():
    attack = registry.create(
        "attacks", "pair-inversion:sampler=torch-f32,scale=2,sizes=20+16,divisor=8"
    )
    assert isinstance(attack, SupportAttack)
    assert isinstance(attack, Attack)
    assert attack.sizes == (20, 16)
    assert PairInversion(sampler="torch-f32", sizes=20).sizes == (20,)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"sampler": "numpy-legcy"}, "did you mean 'numpy-legacy'"),
        ({"sampler": "numpy-legacy", "scale": 0.0}, "scale=0.0: must be a finite"),
        ({"sampler": "numpy-legacy", "scale": float("nan")}, "scale=nan"),
        ({"sampler": "torch-f32", "scale": 1e-60}, "is 0 as a float32"),
        ({"sampler": "torch-f32", "scale": 1e60}, "finite float32"),
        ({"sampler": "torch-f32", "divisor": -1}, "divisor=-1"),
        ({"sampler": "numpy-legacy", "offset": 2}, "offset=2"),
        ({"sampler": "numpy-legacy", "offset": True}, "offset=True"),
        ({"sampler": "torch-f64", "dtype": "float32"}, "makes float64 noise"),
        ({"sampler": "torch-f64", "dtype": "f64"}, "no such format"),
        ({"sampler": "numpy-legacy", "sizes": 16}, "only torch's samplers"),
        ({"sampler": "torch-f32", "sizes": "16+x"}, "must be whole numbers above 0"),
        ({"sampler": "torch-f32", "sizes": (16, 0)}, "must be whole numbers above 0"),
        ({"sampler": "torch-f32", "sizes": (16.5,)}, "must be whole numbers above 0"),
        ({"sampler": "torch-f32", "sizes": True}, "must be whole numbers above 0"),
        ({"sampler": "torch-f32", "sizes": (10, 6)}, "use attack=reach"),
    ],
)
def test_bad_options(options, words):
    with pytest.raises(UsageError, match=words):
        PairInversion(**options)


LEGACY, FLOAT32 = {"sampler": "numpy-legacy"}, {"sampler": "torch-f32"}


@pytest.mark.parametrize(
    ("options", "releases", "value", "words"),
    [
        (LEGACY, np.full((1, 2), np.nan), np.zeros(2), "NaN or infinity"),
        (LEGACY, np.zeros((1, 2)), np.array([0, np.inf]), "NaN or infinity"),
        (LEGACY, np.zeros((1, 3)), np.zeros(3), "an odd number shifts"),
        (LEGACY | {"offset": "unknown"}, np.zeros((1, 2)), np.zeros(2), "three and more"),
        (LEGACY, np.zeros((1, 2)), np.zeros(4), "2 coordinates"),
        (LEGACY, np.zeros(2), np.zeros(2), "needs 2 axes"),
        (FLOAT32, np.zeros((1, 20)), np.zeros(20), "say sizes=20"),
        (FLOAT32 | {"sizes": "20+16"}, np.zeros((1, 32)), np.zeros(32), "add up to 36"),
        (FLOAT32, np.full((1, 16), 0.1), np.zeros(16), "is no float32 number"),
        (FLOAT32, np.zeros((1, 16)), np.full(16, 1e39), "above the largest float32"),
    ],
)
def test_bad_releases(options, releases, value, words):
    with pytest.raises(UsageError, match=words):
        PairInversion(**options).feasible(releases, value)


def test_unknown_option_by_name():
    with pytest.raises(UnknownNameError):
        registry.create("attacks", "pair-inversion:sampler=polar,sigma=1")
