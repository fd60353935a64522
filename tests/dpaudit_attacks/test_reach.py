import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from dpaudit import registry
from dpaudit.audit.epsilon import MechanismOptions, PrivacyClaim, run_mechanism_audit
from dpaudit.audit.epsilon.attacks import feasible as possible
from dpaudit.audit.epsilon.attacks import named_attack, settled
from dpaudit.errors import UsageError
from dpaudit.interfaces import Attack, SupportAttack
from dpaudit.stats import epsilon_lower_bound
from dpaudit.testing import check_attack
from dpaudit_attacks.floating_point.reach import Reach

HALVES = np.arange(65_536).astype(np.uint16).view(np.float16)
FINITE = HALVES[np.isfinite(HALVES)]


def feasible(attack, y, v):
    y = np.atleast_1d(np.asarray(y, np.float64))
    return attack.feasible(y[:, None], np.array([v], np.float64))[:, 0]


def half_values():
    """Both zeros, subnormals, binade edges with neighbours, the largest, and thirty at random."""
    edges = np.array([2.0**e for e in (-24, -15, -14, -3, 0, 1, 10, 15)], np.float16)
    near = [np.nextafter(edges, np.float16(s)) for s in (-np.inf, np.inf)]
    odd = np.array([0.0, -0.0, 3 * 2.0**-24, 65504, -65504, 1023 * 2.0**-24], np.float16)
    return np.concatenate([edges, -edges, *near, odd, np.random.default_rng(1).choice(FINITE, 30)])


@pytest.mark.parametrize("divisor", [1.0, 3.0, 1e-3])
def test_every_half_against_every_noise(divisor):
    """float16: all 65,536 noise values for each v, all 63,488 releases; zeros count as one."""
    attack = Reach(dtype="float16", divisor=divisor)
    for v in half_values()[:: 2 if divisor == 1 else 7]:
        with np.errstate(all="ignore"):
            made = (v + HALVES) / np.float16(divisor)
        wanted = np.isin(FINITE.astype(np.float64), made[np.isfinite(made)].astype(np.float64))
        assert np.array_equal(feasible(attack, FINITE, v), wanted), (v, divisor)
        assert not wanted.all() or abs(v) < 2.0**-13 or divisor < 1


@pytest.mark.parametrize(
    ("kind", "told"),
    [
        ("float16", True),
        ("float32", True),
        ("float32", False),
        ("float64", True),
        ("float64", False),
    ],
)
@pytest.mark.parametrize("divisor", [1.0, 7.0])
def test_truth_is_never_ruled_out(kind, divisor, told):
    """Values and noise of random bits (all exponents), of like size, and nearly cancelling."""
    rng, n = np.random.default_rng(2), 15_000
    form = np.dtype(kind)
    bits = rng.integers(0, 256, (2, n * form.itemsize), dtype=np.uint8).view(form)
    like = rng.standard_normal((2, n)).astype(form)
    cancel = np.stack([like[0], (-like[0] * (1 + rng.integers(-3, 4, n) * 2.0**-9)).astype(form)])
    v, noise = np.concatenate([bits, like, cancel, np.zeros_like(like)], axis=1)
    with np.errstate(all="ignore"):
        y = (v + noise) / form.type(divisor)
    keep = np.isfinite(y) & np.isfinite(v)
    attack = Reach(dtype=kind if told else "auto", divisor=divisor)
    y, v = y[keep].astype(np.float64), v[keep].astype(np.float64)
    assert attack._feasible(y[:, None], v[:, None]).all()
    assert keep.sum() > n


def test_zeros_are_one_number():
    for dtype in ("auto", "float16", "float32", "float64"):
        for divisor in (1.0, 3.0):
            attack = Reach(dtype=dtype, divisor=divisor)
            for v in (0.0, -0.0, 1.0, 5e-8):
                assert feasible(attack, [0.0, -0.0], v).all()


def test_by_hand():
    """Next to 1 floats are 2⁻⁵³ apart, so 1 + n ends no finer; 2^53 + 2 needs n = 2^53 + 1."""
    wide = Reach()
    found = feasible(wide, [2.0**-53, 3 * 2.0**-54, 2.0**-60 + 2.0**-100, 0.75], 1.0)
    assert list(found) == [True, False, False, True]
    assert feasible(wide, [2.0**-53, 3 * 2.0**-54, 5e-324], 0.0).all()
    assert list(feasible(wide, [2.0**53 + 2, 2.0**53, 2.0**53 - 1], 1.0)) == [False, True, True]
    assert list(feasible(wide, [2.0**53 + 2, 2.0**53 + 4], 2.0)) == [True, True]
    # a float32, and 0.1 + n in float64, but not fl32(0.1) + n in float32
    odd = (2**23 + 1) * 2.0**-56
    assert feasible(wide, [odd], 0.1).all()
    assert not feasible(Reach(dtype="float32"), [odd], 0.1).any()
    largest = np.finfo(np.float64).max
    assert feasible(wide, [largest], -0.5).all()
    assert not feasible(wide, [1.1], -largest).any()


def test_integers_below_two_to_the_53_are_feasible_from_each_other():
    rng, top = np.random.default_rng(3), 2**53
    edge = np.array(
        [top - 1, top - 2, top - 3, 1 - top, 2 - top, 2**24 + 1, 2**30 + 128, 0, 1, 2, 3]
    )
    scales = 2 ** rng.integers(1, 53, 400)
    y = np.concatenate([edge, rng.integers(-scales, scales)]).astype(np.float64)
    for v in y[:15]:
        assert feasible(Reach(), y, v).all(), v


def test_coarse_lattice_is_feasible_everywhere():
    rng, g = np.random.default_rng(4), 2.0**-10
    for v in (0.0, 1.0, 0.5, -3.0, 1000.0, 1001.0):
        y = v + g * np.rint(rng.standard_normal(20_000) / g)
        for other in (v, v + 1, v - 0.25, 0.0):
            assert feasible(Reach(), y, other).all()


def test_naive_noise_gives_an_epsilon_of_seven_and_the_law_alone_does_not():
    """P(E|0) = 0.43 at scale 1; ideal noise rounded once has one share of E at both values."""
    rng, n = np.random.default_rng(5), 20_000
    y0, y1 = rng.standard_normal(n), 1.0 + rng.standard_normal(n)
    hits0, hits1 = (int((~feasible(Reach(), y, 1.0)).sum()) for y in (y0, y1))
    assert hits1 == 0
    assert abs(hits0 / n - 0.43) < 0.02
    assert epsilon_lower_bound(hits0, n, hits1, n, delta=0.0) >= 7
    shares = []
    for v in (0.0, 1.0):
        z = rng.standard_normal(200_000).astype(np.longdouble)
        z += np.longdouble(2) ** -50 * rng.random(len(z)) + np.longdouble(2) ** -63 * rng.integers(
            0, 999, len(z)
        )
        y = (np.longdouble(v) + z).astype(np.float64)
        y = y[(y > 0.25) & (y < 0.375)]
        shares.append((~feasible(Reach(), y, 1.0)).mean())
        assert len(y) > 8_000 / 2
    assert abs(shares[0] - shares[1]) < 0.045
    assert shares[0] > 0.4


def test_float32_is_told_from_float64_release_by_release():
    """The mechanism is float32: in float64 arithmetic nothing would ever be ruled out."""
    rng, n = np.random.default_rng(6), 20_000
    y = rng.standard_normal(n).astype(np.float32)
    rate = [(~feasible(Reach(dtype=d), y, 1.0)).mean() for d in ("auto", "float32", "float64")]
    assert abs(rate[0] - 0.43) < 0.02
    assert rate[0] == pytest.approx(rate[1], abs=1e-3)
    assert rate[2] == 0
    tenth = np.float32(0.1) + rng.standard_normal(n).astype(np.float32)
    for attack in (Reach(), Reach(dtype="float32")):
        assert feasible(attack, tenth, 0.1).all()
    assert not feasible(Reach(dtype="float32"), y, 0.1).all()


def test_mean_reduction():
    """DP-SGD's p.grad.div_(B) on float32, by torch itself."""
    gen = torch.Generator().manual_seed(7)
    noise = torch.randn(20_000, generator=gen)
    for batch in (60, 64):
        release = (
            (1.0 + noise).div_(batch).double().numpy(),
            noise.clone().div_(batch).double().numpy(),
        )
        attack = Reach(divisor=batch)
        assert feasible(attack, release[0], 1.0).all()
        assert feasible(attack, release[1], 0.0).all()
        assert (~feasible(attack, release[1], 1.0)).mean() > 0.35
    assert not feasible(Reach(), release[0], 1.0).all()


def test_clamped_releases():
    rng = np.random.default_rng(8)
    y = np.clip(0.1 + rng.standard_normal(5_000), 1 / 3, 0.7)
    attack = Reach(lower=1 / 3, upper=0.7)
    assert feasible(attack, y, 0.1).all()
    assert feasible(attack, np.array([1 / 3, 0.7]), 12345.678).all()
    assert not feasible(Reach(), np.array([1 / 3]), 12345.678).any()
    assert not feasible(attack, np.array([0.5 + 2.0**-53]), 12345.678).any()
    assert feasible(Reach(lower=0.1), np.float32([0.1]), 7777.0).all()
    for bad in (0.2, 0.8):
        with pytest.raises(UsageError, match="the bound"):
            feasible(attack, [bad], 0.0)


def test_scores_and_evidence():
    rng = np.random.default_rng(9)
    y = torch.from_numpy(rng.standard_normal((400, 3)))
    q = torch.tensor([[1.0, 0.0, 1.0], [0.0, 0.0, 0.0], [0.0, 7.0, 0.0]], dtype=torch.float64)
    attack = Reach()
    scores = attack.score(y, q)
    wanted = [-(~attack.feasible(y.numpy(), v.numpy())).sum(axis=1) for v in q]
    assert np.array_equal(scores.numpy(), np.stack(wanted, axis=1))
    assert bool((scores[:, 1] == 0).all())
    assert scores[:, 0].min() == -2
    per_release = q[torch.from_numpy(rng.integers(0, 3, (400, 2)))]
    two = attack.score(y, per_release)
    assert torch.equal(two[7:8], attack.score(y[7:8], per_release[7]))
    seen = attack.evidence(y, q, torch.ones(400, dtype=torch.int64))["feasibility"]
    assert seen["truth_ruled_out"] == 0
    assert seen["another_ruled_out"] == int((scores < 0).any(1).sum())


def test_conformance():
    for name in ("reach", "reach:dtype=float64,divisor=64", "reach:lower=-100"):
        attack = registry.create("attacks", name)
        assert isinstance(attack, SupportAttack)
        assert isinstance(attack, Attack)
        for dim in (1, 6):
            check_attack(attack, dim=dim)
    assert Reach().feasible(np.empty((0, 2)), np.zeros(2)).shape == (0, 2)


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"dtype": "bfloat16"}, "dtype=bfloat16"),
        ({"divisor": 0.0}, "divisor=0.0"),
        ({"divisor": "many"}, "divisor=many: must be a number"),
        ({"lower": "none"}, "lower=none: must be a number"),
        ({"divisor": -2.0}, "divisor=-2.0"),
        ({"divisor": math.nan}, "divisor=nan"),
        ({"divisor": math.inf}, "divisor=inf"),
        ({"divisor": 1e30, "dtype": "float16"}, "divisor=1e"),
        ({"lower": 1.0, "upper": 1.0}, "lower=1.0"),
        ({"lower": math.nan}, "lower=nan"),
        ({"upper": math.inf}, "upper=inf"),
    ],
)
def test_bad_options(options, what):
    with pytest.raises(UsageError, match=what):
        Reach(**options)


def test_bad_input():
    attack, y, v = Reach(), np.zeros((4, 2)), np.zeros(2)
    for bad in (math.nan, math.inf):
        with pytest.raises(UsageError, match="releases: contain NaN"):
            attack.feasible(np.full((1, 2), bad), v)
        with pytest.raises(UsageError, match="value: contain NaN"):
            attack.feasible(y, np.full(2, bad))
    with pytest.raises(UsageError, match="releases of shape"):
        attack.feasible(y[0], v)
    with pytest.raises(UsageError, match="value of 3 numbers"):
        attack.feasible(y, np.zeros(3))
    with pytest.raises(UsageError, match="candidates of shape"):
        attack.score(torch.zeros(4, 2), torch.zeros(3, 5))
    with pytest.raises(UsageError, match="candidates of shape"):
        attack.score(torch.zeros(4, 2), torch.zeros(3, 1, 2))
    with pytest.raises(UsageError, match="candidates: contain NaN"):
        attack.score(torch.zeros(4, 2), torch.full((1, 2), math.nan))
    with pytest.raises(UsageError, match="no float32 number"):
        Reach(dtype="float32").feasible(np.full((1, 1), 0.1), np.zeros(1))
    with pytest.raises(UsageError, match="above the largest float16"):
        Reach(dtype="float16").feasible(np.zeros((1, 1)), np.array([1e6]))


def test_a_lattice_finer_than_float32_is_not_taken_for_float32():
    """Many points of 2^-24·Z are float32 numbers, not all: releases are read in one format."""
    rng = np.random.default_rng(20231)
    for v in (0.0, 1.0, 1000.25):
        y = np.rint((v + rng.standard_normal((20_000, 1))) * 2.0**24) * 2.0**-24
        narrow = y.astype(np.float32) == y
        assert 0 < narrow.mean() < 1
        for candidate in (0.0, 1.0, v):
            assert Reach().feasible(y, np.array([candidate])).all()
        if v == 1:
            one_by_one = Reach(dtype="float32").feasible(y[narrow[:, 0]], np.ones(1))
            assert not one_by_one.all()


@pytest.mark.parametrize("attack", ["reach", None])
def test_rare_releases_of_another_format_change_no_event(attack):
    """Noise unrelated to the value: float32 Laplace, and one float64 in each half."""
    rng, made = np.random.default_rng(20), []

    def release(value, n, *, timeout):
        y = rng.laplace(size=(n, 1)).astype(np.float32).astype(np.float64)
        if any(sum(made) <= row < sum(made) + n for row in (5_000, 35_000)):
            y[0] += 2.0**-40
        made.append(n)
        return y

    result = run_mechanism_audit(
        SimpleNamespace(name="alike", release=release),
        neighbours=(np.zeros(1), np.ones(1)),
        claim=PrivacyClaim(0.1, 0),
        options=MechanismOptions(samples=20_000, seed="1"),
        attack=attack,
    )
    assert sum(made) == 40_000
    assert result.verdict == "no-finding"
    assert result.epsilon.low == 0


def test_chunks_and_neighbours_are_read_in_one_format(monkeypatch):
    """Releases of one neighbour that happen to be float32 numbers are read like the other's."""
    monkeypatch.setattr("dpaudit.audit.epsilon.attacks._AT_ONCE", 100)
    rng = np.random.default_rng(21)
    given = rng.laplace(size=(1000, 1)).astype(np.float32).astype(np.float64)
    attack = named_attack("reach")
    mixed = np.concatenate([given, [[0.1]]])
    wide, narrow = settled(attack, given, mixed), settled(attack, given)
    one = np.array([1.0])
    np.testing.assert_array_equal(possible(wide, mixed, one)[:-1], possible(wide, given, one))
    np.testing.assert_array_equal(
        possible(wide, given, one), possible(named_attack("reach:dtype=float64"), given, one)
    )
    expected = possible(named_attack("reach:dtype=float32"), given, one)
    np.testing.assert_array_equal(possible(narrow, given, one), expected)
    np.testing.assert_array_equal(possible(narrow, mixed, one)[:-1], expected)
    assert not expected.all()
