"""Tests of bits, time and calls: from repeats and granularity to timing and forks."""

import math
import re

import numpy as np
import pytest
import scipy

from dpaudit.audit.battery.drift import Drift
from dpaudit.audit.battery.granularity import Granularity
from dpaudit.audit.battery.repeats import Forks, Repeats, _Law
from dpaudit.audit.battery.resolution import poisson_bound
from dpaudit.audit.battery.spectrum import Spectrum
from dpaudit.audit.battery.timing import Timing, _ranks
from dpaudit.audit.battery.triggers import Triggers, _fold
from dpaudit.audit.battery.value_dependence import ValueDependence, _homogeneity, _last_digit
from dpaudit.audit.block import SampleBlock
from dpaudit.claims import Claim
from dpaudit.randomness import KeyedStream

EVERY = [Repeats, Granularity, Spectrum, Drift, Triggers, ValueDependence, Timing, Forks]
NORMAL = Claim.parse("gaussian:sigma=1")


class Feed:
    """Consecutive blocks with their call numbers."""

    def __init__(self, claim=NORMAL):
        self.claim, self.call, self.spread = claim, 0, np.random.default_rng(77)
        self.blocks = []

    def add(self, values, *, call=None, **more):
        number = self.call if call is None else call
        x = np.asarray(values, dtype=np.float64)
        self.blocks.append(SampleBlock(number, x, claim=self.claim, spread=self.spread, **more))
        if more.get("process", 0) == 0:
            self.call += more.get("calls", 1)
        return self

    def to(self, make):
        test = make(self.claim, KeyedStream.from_seed("structure"))
        for block in self.blocks:
            test.update(block)
        return test.evidence(alpha=1e-4)


def fed(blocks, **more):
    """These blocks, with the same facts about each."""
    feed = Feed()
    for x in blocks:
        feed.add(x, **more)
    return feed


def plan(draw, claim=NORMAL, *, short=12, long=8):
    """A small plan: a second process, short calls, a sweep of dimensions, long calls, values."""
    rng = np.random.default_rng(8)
    feed = Feed(claim).add(draw(100, 64), process=1, call=0)
    for _ in range(short):
        feed.add(draw(1280, 8), calls=1280, seconds=rng.random(1280))
    for d in (1, 2, 5, 13, 64, 100, 1000):
        feed.add(draw(max(2, 4096 // d), d))
    for _ in range(long):
        feed.add(draw(512, 64))
    for value in (1.0, -1.0, 1e6):
        feed.add(draw(100, 64), value=value)
    return feed


def box_muller(rng, bits, n, d):
    m = n * d // 2
    u, v = (rng.integers(1, 1 << bits, (2, m)) * 2.0**-bits).reshape(2, m)
    r = np.sqrt(-2 * np.log(u))
    return np.stack([r * np.cos(2 * np.pi * v), r * np.sin(2 * np.pi * v)], 1).reshape(n, d)


def discrete_laplace(rng):
    p = -math.expm1(-0.1)
    return lambda n, d: rng.geometric(p, (n, d)) - rng.geometric(p, (n, d))


def float32(rng):
    return lambda n, d: rng.standard_normal((n, d), dtype=np.float32) * 3.7


HONEST = {
    "gaussian:sigma=1": lambda rng: lambda n, d: rng.standard_normal((n, d)),
    "gaussian:sigma=3.7": float32,
    "laplace:scale=2": lambda rng: lambda n, d: rng.laplace(0, 2, (n, d)),
    "discrete-laplace:scale=10": discrete_laplace,
}


@pytest.mark.parametrize("claim", HONEST)
def test_honest_noise_of_every_kind_passes(claim):
    feed = plan(HONEST[claim](np.random.default_rng(21)), Claim.parse(claim))
    for test in EVERY:
        assert feed.to(test).p > 1e-4, test.__name__


@pytest.mark.parametrize("make", [Spectrum, Drift, Triggers, ValueDependence, Timing])
def test_level_over_the_plan_is_kept(make):
    draw = HONEST["gaussian:sigma=1"](np.random.default_rng(5))
    p = [plan(draw, short=2, long=4).to(make).p for _ in range(30)]
    for level in (0.02, 0.1, 0.3):
        assert scipy.special.bdtrc(sum(x <= level for x in p) - 1, len(p), level) > 1e-5


def test_seeds_that_come_again_after_some_calls_are_found():
    def draw(calls):
        return np.concatenate(
            [np.random.default_rng(1000 + c % 3000).standard_normal((1, 8)) for c in calls]
        )

    feed = Feed()
    for start in range(0, 4000, 1000):
        feed.add(draw(range(start, start + 1000)), calls=1000)
    evidence = feed.to(Repeats)
    assert evidence.p < 1e-6
    assert evidence.statistic >= 1000
    assert evidence.details["again"]["call"] - evidence.details["first"]["call"] == 3000


def test_two_processes_with_one_seed_are_found_whatever_the_calls():
    feed = Feed().add(np.random.default_rng(4).standard_normal((500, 64)), process=1, call=0)
    same = np.random.default_rng(4)
    # and shifted by another call's worth
    feed.add(np.random.default_rng(6).standard_normal((3, 7)))
    for _ in range(10):
        feed.add(-same.standard_normal((128, 8)), calls=128)
    evidence = feed.to(Repeats)
    assert evidence.p < 1e-6
    assert {evidence.details[name]["process"] for name in ("first", "again")} == {0, 1}


@pytest.mark.parametrize(
    "claim", ["gaussian:sigma=1", "discrete-gaussian:sigma=10", "discrete-laplace:scale=1"]
)
def test_a_shifted_replay_is_found(claim):
    law = Claim.parse(claim)
    rng = np.random.default_rng(3)
    x = rng.normal(0, law.standard_deviation, 40_000)
    if law.family == "discrete-gaussian":
        x = np.rint(x)
    elif law.family == "discrete-laplace":
        x = np.subtract(*rng.geometric(-math.expm1(-1 / law.scale), (2, 40_000))).astype(float)
    feed = Feed(law).add(x.reshape(-1, 8)).add(x[1237:-3].reshape(-1, 6))
    assert feed.to(Repeats).p < 1e-6
    assert Feed(law).add(x.reshape(-1, 8)).to(Repeats).p == 1


def test_the_table_stays_small_and_still_sees_a_late_replay(monkeypatch):
    monkeypatch.setattr("dpaudit.audit.battery.repeats._TABLE", 1 << 10)
    rng = np.random.default_rng(2)
    first = rng.standard_normal((2048, 64))
    late = [first, *(rng.standard_normal((2048, 64)) for _ in range(12)), first]
    for blocks in (late, [np.full((2048, 64), 1.51)] * 20):
        test = Repeats(NORMAL, KeyedStream.from_seed(1))
        for i, x in enumerate(blocks):
            test.update(SampleBlock(i, x, claim=NORMAL, spread=rng))
            assert test._table._size <= 1 << 10
        evidence = test.evidence(alpha=0.01)
        assert evidence.p < 1e-6
        if blocks is late:
            assert [evidence.details[name]["call"] for name in ("first", "again")] == [0, 13]


def test_collisions_of_short_discrete_calls_are_as_frequent_as_said():
    """Windows of few bits do coincide: as often as the exact collision probability says."""
    law = Claim.parse("discrete-gaussian:sigma=2")
    bits, rng = _Law.of(law).bits, np.random.default_rng(9)
    k = np.arange(-80, 81)
    mass = np.exp(-0.125 * k**2)
    a, b = rng.choice(k, (2, 400_000), p=mass / mass.sum())
    assert (np.abs(a) == np.abs(b)).mean() == pytest.approx(2.0**-bits, rel=0.01)


def float32_at_100(rng, n, d):
    return np.float32(100) + rng.standard_normal((n, d), dtype=np.float32) - np.float32(100)


def porous(rng, n, d):
    """Half of the values near 1 are rounded."""
    x = rng.standard_normal((n, d))
    return np.where((np.abs(x) > 1) & (np.abs(x) < 1.1), np.round(x, 5), x)


def inverted(rng, bits, n, d):
    return scipy.special.ndtri((np.floor(rng.random((n, d)) * 2**bits) + 0.5) / 2**bits)


COARSE = {
    "16-bit Box-Muller": (lambda *a: box_muller(a[0], 16, *a[1:]), "lengths of neighbours"),
    "22-bit Box-Muller": (lambda *a: box_muller(a[0], 22, *a[1:]), "angles of neighbours"),
    "16-bit Box-Muller in halves": (
        lambda rng, n, d: box_muller(rng, 16, n * d // 2, 2).T.reshape(n, d),
        "lengths of halves",
    ),
    "16-bit Box-Muller in float32": (
        lambda rng, n, d: box_muller(rng, 16, n, d).astype(np.float32),
        "angles of neighbours",
    ),
    "rounded to 1e-4": (lambda rng, *nd: np.round(rng.standard_normal(nd), 4), "magnitudes"),
    "rounded to 1e-7": (lambda rng, *nd: np.round(rng.standard_normal(nd), 7), "lattice"),
    "20-bit inversion": (lambda rng, *nd: inverted(rng, 20, *nd), "magnitudes"),
    "float16": (lambda rng, *nd: rng.standard_normal(nd).astype(np.float16), "magnitudes"),
    "float32 at 100": (float32_at_100, "lattice"),
    "half of the values near 1 rounded": (porous, "strips"),
}


@pytest.mark.parametrize("name", COARSE)
def test_coarse_noise_is_found(name):
    (make, part), rng = COARSE[name], np.random.default_rng(14)
    evidence = fed(make(rng, 256, 64) for _ in range(16)).to(Granularity)
    assert evidence.p < 1e-6
    assert evidence.parts[part] < 1e-6


def test_effective_bits_are_said():
    rng = np.random.default_rng(1)
    cells = (rng.integers(0, 2**16, (256, 64)) for _ in range(16))
    evidence = fed(scipy.special.ndtri((x + 0.5) / 2**16) for x in cells).to(Granularity)
    assert evidence.details["bits, magnitudes"] == pytest.approx(15, abs=0.1)
    assert evidence.effect.startswith("uniforms of 16 bits: 2^16 · ")
    pool = rng.standard_normal(2**15)
    effect = fed([pool[rng.integers(0, 2**15, (4096, 64))]]).to(Granularity).effect
    assert re.match(r"about 1[45]\.\d effective bits in magnitudes", effect)


@pytest.mark.slow
def test_fine_noise_of_many_makes_passes():
    torch = pytest.importorskip("torch")
    torch.manual_seed(3)
    rng = np.random.default_rng(14)

    def inverted():
        return scipy.special.ndtri((rng.integers(0, 2**53, (256, 64)) + 0.5) / 2**53)

    makers = {
        "torch float32": lambda: torch.randn(256, 64).numpy(),
        "torch float64": lambda: torch.randn(256, 64, dtype=torch.float64).numpy(),
        "53-bit Box-Muller in float32": lambda: box_muller(rng, 53, 256, 64).astype(np.float32),
        "53-bit Box-Muller": lambda: box_muller(rng, 53, 256, 64),
        "inversion of 53 bits": inverted,
        "inversion of 53 bits in float32": lambda: inverted().astype(np.float32),
    }
    for name, make in makers.items():
        assert fed(make() for _ in range(16)).to(Granularity).p > 1e-3, name


@pytest.mark.parametrize("n", [120, 500])
def test_the_bound_on_repeats_holds_at_the_edge_of_its_null(n):
    """Values uniform on exactly M atoms: always valid, close if n is far below M (as for pairs)."""
    rng = np.random.default_rng(6)
    atoms = 2.0**12
    expected = poisson_bound(n, atoms)
    assert expected == pytest.approx(-np.log1p(-np.arange(n) / atoms).sum())
    drawn = np.sort(rng.integers(0, int(atoms), (8_000, n), dtype=np.int16), axis=1)
    repeats = (drawn[:, 1:] == drawn[:, :-1]).sum(1)
    for level in (0.1, 0.01, 0.001):
        bound = np.arange(200)
        least = bound[scipy.special.gammainc(np.maximum(bound, 1e-9), expected) <= level][0]
        false_alarms = int((repeats >= least).sum())
        assert scipy.special.bdtrc(false_alarms - 1, len(repeats), level) > 1e-4
        if n == 120:
            assert false_alarms > 0.5 * len(repeats) * scipy.special.gammainc(least, expected) - 4


def test_granularity_of_discrete_noise_is_no_question():
    law = Claim.parse("discrete-gaussian:sigma=10")
    feed = Feed(law).add(np.rint(np.random.default_rng(1).normal(0, 10, (1000, 64))))
    assert feed.to(Granularity).p == 1


def antipersistent(x, rng):
    x[1:] -= 0.03 * x[:-1].copy()
    return x


WAVE = np.arange(1 << 16)
SPECTRA = {
    "sinusoid": lambda x, rng: x + 0.05 * np.sin(2 * np.pi * WAVE / 37.3),
    "scale": lambda x, rng: x * (1 + 0.2 * (WAVE % 4 == 0)),
    "memory": lambda x, rng: 0.999 * x + 0.05 * np.repeat(rng.standard_normal(16), 4096),
    "antipersistent": antipersistent,
}


@pytest.mark.parametrize("kind", SPECTRA)
def test_spectrum_sees(kind):
    rng = np.random.default_rng(30)
    blocks = (SPECTRA[kind](rng.standard_normal(1 << 16), rng) for _ in range(10))
    assert fed(x.reshape(-1, 64) for x in blocks).to(Spectrum).p < 1e-6


def test_ordinates_of_magnitudes_are_exponential_far_in_the_tail():
    rng = np.random.default_rng(12)
    test = Spectrum(NORMAL, KeyedStream.from_seed(0))
    ordinates = []
    for _ in range(25):
        before = test._power.copy()
        test.update(SampleBlock(0, rng.standard_normal((1 << 8, 64)), claim=NORMAL, spread=rng))
        test._blocks = 0
        ordinates.append(test._power - before)
    for row in np.concatenate(ordinates, 1):
        for level in (1e-2, 1e-4):
            k = int((row > -math.log(level)).sum())
            assert scipy.special.pdtrc(k - 1, len(row) * level) > 1e-4
            assert scipy.special.pdtr(k, len(row) * level) > 1e-4


def drifting(kind, rng, x, i):
    if kind == "tails":
        hit = (np.abs(x) > 2) & (rng.random(x.shape) < 0.2 * i / 40)
        return np.where(hit, np.sign(x) * 1.5, x)
    scale = {"scale": 1 + 0.02 * i / 40, "step": 1.02 if i > 30 else 1.0}.get(kind, 1.0)
    return x * scale + (0.04 * i / 40 if kind == "mean" else 0.0)


@pytest.mark.parametrize("kind", ["scale", "mean", "tails", "step"])
def test_drift_is_seen(kind):
    rng, feed = np.random.default_rng(40), Feed()
    for i in range(40):
        n = (64, 900, 5000)[i % 3]
        feed.add(drifting(kind, rng, rng.standard_normal((n, 16)), i))
    evidence = feed.to(Drift)
    assert evidence.p < 1e-6
    if kind == "scale":
        assert evidence.interval.low < 2 < evidence.interval.high


def test_a_wrong_scale_throughout_is_no_drift_of_the_mean_or_of_the_sampler():
    rng = np.random.default_rng(41)
    sizes = (50, 500, 2_000) * 6
    feed = fed(1.01 * rng.standard_normal((n, 10)) for n in sizes)
    assert feed.to(Drift).parts["mean, change"] > 1e-3


def test_drift_keeps_a_bounded_number_of_segments(monkeypatch):
    monkeypatch.setattr("dpaudit.audit.battery.drift._MOST", 16)
    rng = np.random.default_rng(42)
    test, total = Drift(NORMAL, KeyedStream.from_seed(0)), 0
    for i in range(500):
        x = rng.standard_normal((1 + i % 7, 3))
        test.update(SampleBlock(i, x, claim=NORMAL, spread=rng))
        total += x.size
        assert len(test._segments) <= 16
    assert sum(s[0] for s in test._segments) == total
    assert test.evidence(alpha=0.01).p > 1e-3


def short_calls(rng, blocks=30, calls=1280):
    """All short calls in one array."""
    return rng.standard_normal((blocks, calls, 8))


def test_every_thousandth_call_at_half_scale_is_found():
    x = short_calls(np.random.default_rng(50), blocks=40)
    x.reshape(-1, 8)[17::1000] *= 0.5
    evidence = fed(x, calls=1280).to(Triggers)
    assert evidence.p < 1e-6
    assert evidence.parts["short calls"] < 1e-6
    assert "number 17 modulo 1000" in evidence.effect


def test_rare_constant_answers_are_found():
    x = short_calls(np.random.default_rng(51))
    x[11, 500] = 0.7
    evidence = fed(x, calls=1280).to(Triggers)
    assert evidence.parts["single calls"] < 1e-6
    assert f"call {11 * 1280 + 500}" in evidence.effect


@pytest.mark.parametrize("factor", [0.0, 0.9])
def test_a_special_dimension_is_found(factor):
    rng = np.random.default_rng(52)
    blocks = [rng.standard_normal((1 + 8192 // d, d)) for d in (*range(1, 65), 100, 1000)]
    blocks[-2] *= factor
    assert fed(blocks).to(Triggers).parts["dimensions"] < 1e-6


PLACES = {
    "first row": np.s_[0],
    "last row": np.s_[-1],
    "first value": np.s_[0, :1],
    "last value": np.s_[-1, -1:],
}


@pytest.mark.parametrize("place", PLACES)
def test_special_places_in_a_call_are_found(place):
    x = np.random.default_rng(53).standard_normal((60, 40, 16))
    for call in x:
        call[PLACES[place]] *= 0.2
    assert fed(x).to(Triggers).parts["places"] < 1e-6


@pytest.mark.parametrize("period", [2, 3, 64, 1000, 16_384])
def test_folding_is_a_sum_over_residues(period):
    table, at = np.random.default_rng(1).random((3, 20_011)), np.arange(20_011) % period
    slow = np.stack([np.bincount(at, row, minlength=period) for row in table])
    np.testing.assert_allclose(_fold(table, period), slow)


@pytest.mark.parametrize("kind", ["scale", "mean", "shape"])
def test_noise_that_depends_on_the_value_is_found(kind):
    rng = np.random.default_rng(60)
    feed = Feed()
    for value in (0.0, 1.0, -1.0, 1000.5, 1e6):
        x = rng.standard_normal((1000, 64))
        if value == 1000.5:
            shaped = np.sign(x) * np.sqrt(np.abs(x)) / math.sqrt(math.sqrt(2 / math.pi))
            x = {"scale": 1.03 * x, "mean": x + 0.04, "shape": shaped}[kind]
        feed.add(x, value=value)
    evidence = feed.to(ValueDependence)
    assert evidence.p < 1e-6
    if kind == "scale":
        assert evidence.interval.low < 1.03 < evidence.interval.high
        assert "scale at 1000.5" in evidence.effect


def test_homogeneity_is_valid_in_the_tail_at_its_least_counts():
    rng, even = np.random.default_rng(61), np.full(64, 1 / 64)
    sizes = (2 * 64 * 20, 4 * 64 * 20, 100_000)
    tables = (np.stack([rng.multinomial(n, even) for n in sizes]) for _ in range(1500))
    p = np.array([_homogeneity(table) for table in tables])
    for level in (0.1, 0.01, 0.001):
        assert scipy.special.bdtrc(int((p <= level).sum()) - 1, len(p), level) > 1e-4


def test_a_sampler_that_is_told_nothing_is_not_judged():
    evidence = Feed().add(np.random.default_rng(1).standard_normal((100, 64))).to(ValueDependence)
    assert evidence.p == 1
    assert not evidence.blind_spots


def test_the_lattice_of_a_value_is_read_off():
    assert _last_digit(np.array([3.0, -0.75, 0.0])) == -2
    x = np.random.default_rng(1).standard_normal(1000)
    assert _last_digit((x + 1e6) - 1e6) == -33


def test_time_that_follows_the_noise_is_found_through_ties_and_outliers():
    rng = np.random.default_rng(70)
    feed, honest = Feed(), Feed()
    for x in short_calls(rng, blocks=16):
        noise = np.abs(x).sum(1)
        busy = rng.pareto(1.2, 1280) * 1e-5
        clock = np.round(1e-4 + busy, 6)
        honest.add(x, calls=1280, seconds=clock)
        feed.add(x, calls=1280, seconds=np.round(clock + 2e-6 * noise, 6))
    found, passed = feed.to(Timing), honest.to(Timing)
    assert found.p < 1e-6
    assert found.interval.low > 0
    assert "longer" in found.effect
    assert passed.p > 1e-3
    assert Timing.advisory


def test_rank_correlation_is_normal_enough_from_the_least_number_of_calls_on():
    rng = np.random.default_rng(71)
    seconds = _ranks(np.round(rng.exponential(1, 1000), 1))  # many ties
    noise = rng.permuted(np.tile(np.arange(1000.0) - 499.5, (5_000, 1)), axis=1)
    size = math.sqrt(float(seconds @ seconds) * float(noise[0] @ noise[0]))
    r = noise @ seconds / size * math.sqrt(999)
    for level in (0.1, 0.01, 0.001):
        found = int((np.abs(r) >= -scipy.special.ndtri(level / 2)).sum())
        assert scipy.special.bdtrc(found - 1, len(r), level) > 1e-4


def test_ranks_are_middle_ranks():
    values = np.array([5.0, 1.0, 5.0, 9.0])
    np.testing.assert_array_equal(_ranks(values), scipy.stats.rankdata(values) - 2.5)


@pytest.mark.parametrize("shift", [0, 3])
def test_state_shared_over_a_fork_is_found(shift):
    rng = np.random.default_rng(80)
    x = rng.standard_normal(64 * 100 + 64)
    feed = Feed().add(rng.standard_normal((50, 64)))
    feed.add(x[:6400].reshape(100, 64), process=-1, call=1)
    feed.add(x[shift : shift + 6400].reshape(100, 64))
    evidence = feed.to(Forks)
    assert evidence.p < 1e-6
    assert "reseed in the child" in evidence.effect
    assert feed.to(Repeats).p == 1


def test_a_child_with_noise_of_its_own_passes():
    rng, feed = np.random.default_rng(81), Feed()
    for _ in range(3):
        feed.add(rng.standard_normal((50, 64)), process=-1, call=feed.call)
        feed.add(rng.standard_normal((50, 64)))
    assert feed.to(Forks).p == 1
    assert Forks.advisory
