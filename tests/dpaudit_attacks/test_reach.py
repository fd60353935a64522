"""What floating point gives away: reachable sums, the Laplace's support, and bit patterns."""

import math
import subprocess
import sys
from fractions import Fraction

import numpy as np
import pytest
import scipy.stats
import torch
from support.attacks import possible as possible_units
from support.in_process import InProcess

from dpaudit.audit.mechanism import MechanismOptions, PrivacyClaim, run_mechanism_audit
from dpaudit.audit.mechanism.attacks import feasible as possible
from dpaudit.audit.mechanism.attacks import named_attack, settle
from dpaudit.errors import UsageError
from dpaudit.noise.floating_point.laplace import NaiveLaplace
from dpaudit.randomness import KeyedStream
from dpaudit.stats import epsilon_lower_bound
from dpaudit_attacks.floating_point import laplace_support
from dpaudit_attacks.floating_point.bit_features import BitFeatures, _pattern
from dpaudit_attacks.floating_point.laplace_support import LaplaceSupport
from dpaudit_attacks.floating_point.reach import Reach

HALVES = np.arange(65_536).astype(np.uint16).view(np.float16)
FINITE = HALVES[np.isfinite(HALVES)]


def feasible(attack, y, v):
    y = np.atleast_1d(np.asarray(y, np.float64))
    return possible_units(attack, y[:, None], np.array([v], np.float64))[:, 0]


def half_values():
    """Both zeros, subnormals, binade edges with neighbours, the largest, and thirty at random."""
    edges = np.array([2.0**e for e in (-24, -15, -14, -3, 0, 1, 10, 15)], np.float16)
    near = [np.nextafter(edges, np.float16(s)) for s in (-np.inf, np.inf)]
    odd = np.array([0.0, -0.0, 3 * 2.0**-24, 65504, -65504, 1023 * 2.0**-24], np.float16)
    return np.concatenate([edges, -edges, *near, odd, np.random.default_rng(1).choice(FINITE, 30)])


@pytest.mark.slow
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


@pytest.mark.parametrize("kind", ["float16", "float32", "float64"])
@pytest.mark.parametrize("divisor", [1.0, 7.0])
def test_truth_is_never_ruled_out(kind, divisor):
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
    y, v = y[keep].astype(np.float64), v[keep].astype(np.float64)
    assert keep.sum() > n
    for told in (kind, *(["auto"] if kind != "float16" else [])):
        attack = Reach(dtype=told, divisor=divisor)
        assert attack._feasible(y[:, None], v[:, None]).all()


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


def test_naive_noise_gives_an_epsilon_of_seven_and_the_law_alone_does_not():
    """P(E|0) = 0.43 at scale 1; ideal noise rounded once has one share of E at both values."""
    rng, n = np.random.default_rng(5), 20_000
    y0, y1 = rng.standard_normal(n), 1.0 + rng.standard_normal(n)
    hits0, hits1 = (int((~feasible(Reach(), y, 1.0)).sum()) for y in (y0, y1))
    assert hits1 == 0
    assert abs(hits0 / n - 0.43) < 0.02
    assert epsilon_lower_bound(hits0, n, hits1, n, delta=0.0) >= 7
    shares, long = [], np.longdouble
    for v in (0.0, 1.0):
        z = rng.standard_normal(200_000).astype(long)
        z += long(2) ** -50 * rng.random(len(z))
        z += long(2) ** -63 * rng.integers(0, 999, len(z))
        y = (long(v) + z).astype(np.float64)
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
    assert possible_units(Reach(), np.empty((0, 2)), np.zeros(2)).shape == (0, 2)


def test_scores_and_evidence():
    rng = np.random.default_rng(9)
    y = torch.from_numpy(rng.standard_normal((400, 3)))
    q = torch.tensor([[1.0, 0.0, 1.0], [0.0, 0.0, 0.0], [0.0, 7.0, 0.0]], dtype=torch.float64)
    attack = Reach()
    scores = attack.score(y, q)
    wanted = [-(~possible_units(attack, y.numpy(), v.numpy())).sum(axis=1) for v in q]
    assert np.array_equal(scores.numpy(), np.stack(wanted, axis=1))
    assert bool((scores[:, 1] == 0).all())
    assert scores[:, 0].min() == -2
    per_release = q[torch.from_numpy(rng.integers(0, 3, (400, 2)))]
    two = attack.score(y, per_release)
    assert torch.equal(two[7:8], attack.score(y[7:8], per_release[7]))
    seen = attack.evidence(y, q, torch.ones(400, dtype=torch.int64))["feasibility"]
    assert seen["truth_ruled_out"] == 0
    assert seen["another_ruled_out"] == int((scores < 0).any(1).sum())


def test_a_lattice_finer_than_float32_is_not_taken_for_float32():
    """Many points of 2^-24·Z are float32 numbers, not all: releases are read in one format."""
    rng = np.random.default_rng(20231)
    for v in (0.0, 1.0, 1000.25):
        y = np.rint((v + rng.standard_normal((20_000, 1))) * 2.0**24) * 2.0**-24
        narrow = y.astype(np.float32) == y
        assert 0 < narrow.mean() < 1
        for candidate in (0.0, 1.0, v):
            assert possible_units(Reach(), y, np.array([candidate])).all()
        if v == 1:
            one_by_one = possible_units(Reach(dtype="float32"), y[narrow[:, 0]], np.ones(1))
            assert not one_by_one.all()


@pytest.mark.parametrize("attack", ["reach", None])
def test_rare_releases_of_another_format_change_no_event(attack):
    """Noise unrelated to the value: float32 Laplace, and one float64 in each half."""
    rng, made = np.random.default_rng(20), []

    def release(value, n):
        y = rng.laplace(size=(n, 1)).astype(np.float32).astype(np.float64)
        if any(sum(made) <= row < sum(made) + n for row in (5_000, 35_000)):
            y[0] += 2.0**-40
        made.append(n)
        return y

    result = run_mechanism_audit(
        InProcess(release),
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
    monkeypatch.setattr("dpaudit.audit.mechanism.attacks._AT_ONCE", 100)
    rng, attack, one = np.random.default_rng(21), named_attack("reach"), np.array([1.0])
    given = rng.laplace(size=(1000, 1)).astype(np.float32).astype(np.float64)
    mixed = np.concatenate([given, [[0.1]]])
    for seen, dtype in (((given, mixed), "float64"), ((given,), "float32")):
        read, alone = settle(attack, *seen), named_attack(f"reach:dtype={dtype}")
        expected = possible(alone, given, one)
        np.testing.assert_array_equal(possible(read, given, one), expected)
        np.testing.assert_array_equal(possible(read, mixed, one)[:-1], expected)
    assert not expected.all()


def noise_numpy(k, bits, b):
    """random_laplace of numpy's distributions.c, word for word, one k at a time."""
    u = math.ldexp(k, -bits)
    return 0.0 - b * math.log(2.0 - u - u) if u >= 0.5 else 0.0 + b * math.log(u + u)


def whole_support(sampler, bits, b):
    if sampler == "numpy":
        return np.array([noise_numpy(k, bits, b) for k in range(1, 2**bits)])
    u = [k * 2.0**-bits for k in range(1, 2**bits + 1)]
    one_sided = np.concatenate([[-b * math.log(x) for x in u], -b * np.log(u)])
    return np.concatenate([one_sided, -one_sided])


@pytest.mark.parametrize(
    ("sampler", "bits"), [("numpy", 2), ("numpy", 8), ("numpy", 10), ("log", 1), ("log", 9)]
)
@pytest.mark.parametrize("b", [0.3, 77.0])
def test_every_uniform(sampler, bits, b):
    """All k, for values from far below the noise to far above it, with neighbours and others."""
    rng, attack = np.random.default_rng(1), LaplaceSupport(scale=b, sampler=sampler, bits=bits)
    noise = whole_support(sampler, bits, b)
    for v in (0.0, 1.0, -0.1, 5e-324, 1000.0, -3e12, 2.0**53, 1e17, 1e300):
        made = np.unique(v + noise)
        near = [np.nextafter(made, side) for side in (-np.inf, np.inf)]
        asked = np.concatenate(
            [made, *near, v + b * rng.laplace(size=500), [-0.0, 1e308, -1e308, 5e-324, v]]
        )
        assert np.array_equal(feasible(attack, asked, v), np.isin(asked, made)), v


@pytest.mark.parametrize("b", [1.0, 10.0])
@pytest.mark.parametrize(
    ("v", "w"), [(0.0, 1.0), (1.0, 0.0), (1000.0, 1001.0), (2.0**20, 2.0**20 + 1)]
)
def test_a_window_of_uniforms_at_53_bits(b, v, w):
    """2·600 + 1 uniforms around the answer by brute force; many lie nearest to 1."""
    y = np.concatenate(
        [v + np.random.default_rng(2).laplace(0, b, 60), v + np.ldexp([1.0, -3.0], -50)]
    )
    found = feasible(LaplaceSupport(scale=b), y, w)
    for release, got in zip(y, found, strict=True):
        exact = np.longdouble(release) - np.longdouble(w)
        middle = int(np.exp(-abs(exact) / np.longdouble(b)) * np.longdouble(2.0**52))
        js = range(max(1, middle - 600), min(2**52, middle + 600) + 1)
        ks = js if exact < 0 else (2**53 - j for j in js)
        # where the window is too short for all that round to y, its middle alone is hit
        wanted = any(w + noise_numpy(k, 53, b) == release for k in ks)
        assert got == wanted, (release, w)


def true_releases(name, v, b, n):
    """Releases of the real samplers at a fixed seed, added by hand and by their own loc."""
    rng, legacy = np.random.default_rng(3), np.random.RandomState(3)
    if name == "generator":
        return np.concatenate([v + rng.laplace(0, b, n - n // 4), rng.laplace(v, b, n // 4)])
    if name == "legacy":
        return np.concatenate([v + legacy.laplace(0, b, n - n // 4), legacy.laplace(v, b, n // 4)])
    if name == "scipy":
        return scipy.stats.laplace.rvs(loc=v, scale=b, size=n, random_state=rng)
    if name == "torch":
        torch.manual_seed(3)
        law = torch.distributions.Laplace(torch.tensor(v), torch.tensor(b))
        return (
            torch.cat([law.sample((n - 350,)), *(law.sample((7,)) for _ in range(50))])
            .double()
            .numpy()
        )
    form, bits = name.split("-")
    source = NaiveLaplace(scale=b, bits=int(bits), form=form)
    return v + source.sample(n, 1, stream=KeyedStream.from_seed("laplace-support"))[:, 0]


def attack_on(name, b):
    sampler, _, bits = {"generator": "numpy", "legacy": "numpy"}.get(name, name).partition("-")
    return LaplaceSupport(scale=b, sampler=sampler, bits=int(bits or 53))


SAMPLERS = ["generator", "legacy", "scipy", "torch", "log-24", "log-53", "numpy-32", "numpy-53"]


@pytest.mark.parametrize("n", [4_000, pytest.param(1_000_000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", SAMPLERS)
@pytest.mark.parametrize("b", [1.0, 10.0])
@pytest.mark.parametrize("v", [0.0, 1.0, 1000.0, 1e7])
def test_the_truth_of_laplace_noise_is_never_ruled_out(name, b, v, n):
    assert feasible(attack_on(name, b), true_releases(name, v, b, n), v).all()


@pytest.mark.parametrize("b", [1.0, 10.0])
@pytest.mark.parametrize("name", ["generator", "legacy", "scipy", "torch"])
def test_names_the_value_in_nine_of_ten(name, b):
    """0 against 1, a coin where both are feasible; ideal noise allows 70 % right at scale 1."""
    attack, n = attack_on(name, b), 40_000 if name == "torch" else 4_000
    right = 0.0
    for v, w in ((0.0, 1.0), (1.0, 0.0)):
        y = true_releases(name, v, b, n)
        right += 1 - feasible(attack, y, w).mean() / 2
    assert right / 2 > 0.9


def test_only_what_reach_allows_and_everything_where_many_uniforms_round_alike():
    rng = np.random.default_rng(4)
    y = rng.laplace(0, 1, 2_000)
    for w in (0.0, 1.0, 0.25):
        assert not (feasible(LaplaceSupport(), y, w) & ~feasible(Reach(), y, w)).any()
    high = 1e9 + rng.laplace(0, 1, 2_000)
    assert feasible(LaplaceSupport(), high, 1e9 + 1).all()
    assert feasible(LaplaceSupport(scale=1e9), high, 1e9 + 1).mean() < 1


def test_laplace_by_hand():
    """The largest noise of numpy's Laplace is 53·ln 2: U = 1 − 2⁻⁵³ makes 2 − U round to 1."""
    attack = LaplaceSupport()
    assert feasible(attack, [-math.log(2.0**-53), math.log(2.0**-52), 0.0, -0.0], 0.0).all()
    assert not feasible(attack, [math.log(2.0**-53), 36.9, 1e300, -1e300, 5e-324], 0.0).any()
    assert list(feasible(attack, [1e18, 1e18 + 128], 1e18)) == [True, False]
    coarse = LaplaceSupport(sampler="log", bits=1)
    assert feasible(coarse, [math.log(0.5), -math.log(0.5)], 0.0).all()


def test_both_logarithms_count_for_log():
    """Where numpy's vectorised log and the C library's differ, releases of either are possible."""
    u = np.random.default_rng(5).integers(1, 2**53, 40_000) * 2.0**-53
    ours, theirs = -np.log(u), -np.array([math.log(x) for x in u])
    attack = LaplaceSupport(sampler="log")
    assert feasible(attack, ours, 0.0).all()
    assert feasible(attack, theirs, 0.0).all()


def test_torch_that_draws_otherwise_is_refused(monkeypatch):
    monkeypatch.setattr(laplace_support, "_BITS32", 10)
    laplace_support._torch_unit_noise.cache_clear()
    laplace_support._torch_noise.cache_clear()
    with pytest.raises(UsageError, match="draws uniforms in a way"):
        feasible(LaplaceSupport(sampler="torch"), [1.0], 0.0)


def test_needs_neither_torch_nor_numba():
    program = (
        "import sys; sys.modules['torch'] = sys.modules['numba'] = None; import numpy as np\n"
        "from dpaudit.protocols import UnitSupport\n"
        "from dpaudit_attacks.floating_point.laplace_support import LaplaceSupport\n"
        "from dpaudit_attacks.floating_point.reach import Reach\n"
        "for a in (LaplaceSupport(), Reach()):\n"
        "    assert not a.score(np.zeros((3, 2)), UnitSupport(np.zeros(2))).any()"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


LAW = math.erf(0.5 / math.sqrt(2)) / 2 + 0.5  # the best guess between N(0, 1) and N(1, 1)


def by_definition(x):
    """Sign, floor(log2 |x|) and trailing zeros, in whole numbers."""
    sign = math.copysign(1.0, x)
    if x == 0:
        return sign, None, None
    exact = abs(Fraction(x))
    top, bottom = exact.numerator, exact.denominator
    exponent = top.bit_length() - bottom.bit_length()
    exponent -= exact < Fraction(2) ** exponent
    lowest = (top & -top).bit_length() - bottom.bit_length()  # the place of the lowest set bit
    return sign, exponent, lowest + 52 - exponent


def success(statistic, y0, y1):
    """Right guesses with the threshold 0 and a coin at 0."""
    return (
        sum(float((s > 0).mean() + (s == 0).mean() / 2) for s in (-statistic(y0), statistic(y1)))
        / 2
    )


def test_patterns_are_sign_exponent_and_trailing_zeros():
    rng = np.random.default_rng(1)
    x = rng.integers(0, 2**64, 4_000, dtype=np.uint64).view(np.float64)
    x = x[np.isfinite(x)]
    cut = np.ldexp(np.rint(np.ldexp(rng.standard_normal(4_000), rng.integers(0, 50, 4_000))), -20)
    tiny = 5e-324 * rng.integers(-1_000, 1_000, 500)
    x = np.concatenate(
        [x, cut, tiny, np.arange(-50.0, 50), [0.0, -0.0, 2.0**53, 1.7976931348623157e308, -5e-324]]
    )
    seen, wanted = _pattern(x), [by_definition(float(v)) for v in x]
    assert seen.min() >= 0
    assert seen.max() < 2**19
    pairs = set(zip(seen.tolist(), wanted, strict=True))
    assert len(pairs) == len(set(seen.tolist())) == len(set(wanted)) > 1_500


def test_finds_naive_noise_without_knowing_the_sampler():
    """Better than the law allows on new releases; an ε above what scale 1 claims at δ = 0."""
    for draw in (
        np.random.RandomState(2).standard_normal,
        np.random.default_rng(2).standard_normal,
    ):
        z = draw((4, 20_000, 1))
        statistic = BitFeatures().learn(z[0], 1 + z[1], neighbours=(np.zeros(1), np.ones(1)))
        assert success(statistic, z[2], 1 + z[3]) > LAW + 0.05
        low = float(np.quantile(statistic(z[0]), 0.3))
        hits = [int((statistic(y) <= low).sum()) for y in (z[2], 1 + z[3])]
        assert epsilon_lower_bound(hits[0], 20_000, hits[1], 20_000, delta=0.0) > 3


def test_sees_only_the_law_of_noise_on_a_lattice():
    """Clean noise: no better than the law allows."""
    rng = np.random.default_rng(3)
    g = 2.0**-20
    z = np.rint(rng.standard_normal((4, 40_000, 1)) / g) * g
    statistic = BitFeatures().learn(z[0], 1 + z[1], neighbours=(np.zeros(1), np.ones(1)))
    got = success(statistic, z[2], 1 + z[3])
    assert 0.66 < got < LAW + 4 * 0.5 / math.sqrt(80_000)


def test_a_difference_tells_what_the_release_does_not():
    """v + n on a lattice of step 1/64, v half a step apart: y − v is coarser for the right v."""
    rng = np.random.default_rng(4)
    v = np.array([107_374_182 * 2.0**-30]), np.array([(107_374_182 + 2**23) * 2.0**-30])
    n = np.rint(rng.standard_normal((4, 5_000, 1)) * 64) / 64
    y = [v[0] + n[0], v[1] + n[1], v[0] + n[2], v[1] + n[3]]
    assert success(BitFeatures().learn(y[0], y[1], neighbours=v), y[2], y[3]) > 0.95
    # one value for both coordinates, and values of another length than the releases
    wide = [np.hstack([a, a]) for a in y]
    assert success(BitFeatures().learn(wide[0], wide[1], neighbours=v), wide[2], wide[3]) > 0.95
    blind = BitFeatures().learn(y[0], y[1], neighbours=(np.zeros(3), np.ones(3)))
    assert success(blind, y[2], y[3]) < 0.55


def test_coordinates_add_up():
    rng, options = np.random.default_rng(5), {"smoothing": 2}
    x0, x1 = rng.standard_normal((2, 3_000, 3))
    x1[:, 1] += 1
    v0, v1 = np.array([0.0, 0.0, 5.0]), np.array([0.0, 1.0, 5.0])
    y = rng.standard_normal((500, 3))

    def learned(*j):
        near = (v0[[*j]], v1[[*j]])
        return BitFeatures(**options).learn(x0[:, j], x1[:, j], neighbours=near)(y[:, j])

    assert np.allclose(learned(0, 1, 2), sum(learned(j) for j in range(3)), rtol=0, atol=1e-12)


def test_log_ratios_by_hand():
    """Patterns 1, 1.5, 4 and the unknown: counts (3, 0, 1, 0) and (0, 1, 2, 0), 1 added to each."""
    x0, x1 = np.array([[1.0], [1.0], [1.0], [4.0]]), np.array([[1.5], [4.0], [4.0]])
    none = (np.zeros(2), np.zeros(2))
    statistic = BitFeatures(smoothing=1.0).learn(x0, x1, neighbours=none)
    wanted = [math.log(a / 7 / (b / 8)) for a, b in ((1, 4), (2, 1), (3, 2), (1, 1))]
    assert np.allclose(
        statistic(np.array([[1.0], [1.5], [4.0], [-7.0]])), wanted, rtol=0, atol=1e-12
    )


def test_odd_numbers():
    """Whole numbers, zeros of either sign (which may differ), subnormals and the largest."""
    zeros, minus = np.zeros((200, 1)), np.full((200, 1), -0.0)
    one, far = (np.zeros(1), np.ones(1)), (np.array([-1.7e308]), np.array([1.7e308]))
    statistic = BitFeatures().learn(zeros, minus, neighbours=one)
    assert (statistic(zeros) < -3).all()
    assert (statistic(minus) > 3).all()
    whole = np.random.default_rng(6).integers(-5, 6, (2, 2_000, 1)).astype(float)
    assert np.isfinite(BitFeatures().learn(whole[0], 1 + whole[1], neighbours=one)(whole[0])).all()
    odd = [5e-324, -5e-324, 1.7e308, -1.7e308, 2.0**53, 2.0**53 - 1, -0.0]
    odd = np.array(odd)[:, None]
    with np.errstate(invalid="raise"):
        assert np.isfinite(BitFeatures().learn(odd, odd[::-1], neighbours=far)(odd)).all()
    assert BitFeatures().learn(odd, odd, neighbours=far)(np.empty((0, 1))).shape == (0,)
