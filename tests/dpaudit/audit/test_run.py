"""The audit as a whole: level, power, plan, and what it says when something goes wrong."""

import math
import time

import numpy as np
import pytest
from support.function_sampler import FunctionSampler

from dpaudit import registry
from dpaudit.audit import AuditOptions, run_audit
from dpaudit.audit.battery import repeats
from dpaudit.audit.battery.repeats import Repeat
from dpaudit.audit.options import MechanismOptions
from dpaudit.audit.plan import growing_plan, make_plan, plan_audit
from dpaudit.audit.run import conclude, draw, search_deadline
from dpaudit.audit.verdict import cause_of
from dpaudit.claims import Claim
from dpaudit.errors import SamplerCrashError, SamplerOutputError, SamplerTimeoutError, UsageError
from dpaudit.options import arguments_of
from dpaudit.protocols import Facts, Reply
from dpaudit.randomness import KeyedStream
from dpaudit.stats import binomial_two_sided
from dpaudit.types import TestResult
from dpaudit_studies.zoo import HALVES, specimen, specimen_sampler

BATTERY = tuple(sorted(set(registry.plugins("tests")) - {"keyless-search"}))  # it has its own tests
GAUSSIAN = Claim.parse("gaussian:sigma=1")


def noise(scale=1.0, seed=(5, 2311)):
    rng = np.random.default_rng(seed)
    return lambda n, d: scale * rng.standard_normal((n, d))


def audit(function, *, claim="gaussian:sigma=1", **options):
    options = AuditOptions(**{"seed": "7", "samples": 50_000, "tests": BATTERY, **options})
    return run_audit(FunctionSampler(function), claim=Claim.parse(claim), options=options)


def test_the_stages_of_an_audit_by_themselves():
    """Plan, draw, conclude: each can be called alone, and nothing is drawn before the second."""
    calls = []

    def half(n, d):
        calls.append((n, d))
        return noise(0.5)(n, d)

    options = AuditOptions(seed="7", samples=20_000, tests=("moments", "tails"))
    sampler = FunctionSampler(half)
    plan = plan_audit(sampler, claim=GAUSSIAN, options=options)
    assert plan.planned == sum(call.size for call in plan.calls) <= 20_000
    assert not calls
    drawn = draw(plan, sampler)
    assert sum(n * d for n, d in calls) == drawn.sampling.drawn <= plan.planned
    assert (set(drawn.evidence), drawn.won, drawn.sampling.ended) == (
        {"moments", "tails"},
        False,
        None,
    )
    result = conclude(plan, drawn)
    assert (result.verdict, result.samples) == ("finding", drawn.sampling.drawn)
    assert {t.name for t in result.tests if t.finding} == {"moments", "tails"}


@pytest.mark.slow
def test_family_wise_error():
    """20 audits of honest noise at α = 0.05.

    Fails from 6 findings on, which a level of 0.5 gives in 98 of 100 cases. Without any correction
    for 19 tests the level is about 0.6. ``make evidence ONLY=calibrate`` makes 1,200 audits.
    """
    results = (
        audit(noise(seed=(1000 + i, 2311)), seed=str(i), samples=20_000, alpha=0.05)
        for i in range(20)
    )
    found = sum(result.verdict == "finding" for result in results)
    assert found <= 2 or binomial_two_sided(found, 20, 0.05) > 1e-3


HONEST = {
    "laplace:scale=2": lambda rng: lambda n, d: rng.laplace(0, 2, (n, d)),
    "discrete-laplace:scale=9.491221581029903": lambda rng: (
        lambda n, d: (rng.geometric(0.1, (n, d)) - rng.geometric(0.1, (n, d))).astype(float)
    ),
    "gaussian:sigma=1": lambda rng: lambda n, d: rng.standard_normal((n, d), dtype=np.float32),
}


@pytest.mark.parametrize("claim", HONEST)
def test_honest_laws_pass(claim):
    draw = HONEST[claim](np.random.default_rng((5, 2311)))
    result = audit(draw, claim=claim, samples=120_000)
    assert result.verdict == "no-finding"
    flaws = {b.flaw for b in result.cannot_rule_out}
    assert flaws >= {"wrong scale", "correlation", "truncated tails"}


@pytest.mark.slow
def test_a_pass_names_what_no_test_excludes_and_the_pancake_only_where_there_can_be_one():
    many, one = (audit(noise(), dim=dim).cannot_rule_out for dim in (256, 1))
    assert any("pancake with γ ≥ 2√d (≥ 32 at d = 256)" in b.flaw for b in many)
    assert any("1e-8 at d = 256" in b.says for b in many)
    assert not any("pancake" in b.flaw for b in one)
    for spots in (many, one):
        of_all = {b.flaw: b for b in spots if b.test == "every black-box test"}
        assert "messages in the low bits" in of_all
        assert "a cryptographic generator under somebody's seed" in of_all
        assert any("secret nonce" in b.says for b in of_all.values())
        assert not any("linear" in b.says or "replayable" in b.flaw for b in of_all.values())


@pytest.mark.slow
@pytest.mark.parametrize("size", [1e12, 1e200, 1e308])
def test_absurdly_large_values_are_a_finding_not_an_overflow(size):
    assert audit(lambda n, d: np.full((n, d), size), samples=10_000).verdict == "finding"


def ends(sampler, values, error):
    """``sampler(size)``, which raises ``error`` after so many values."""
    given = [0]

    def draw(n, d):
        if given[0] >= values:
            raise error
        given[0] += n * d
        return sampler((n, d))

    return draw


ENDS = [
    SamplerCrashError("abort()"),
    SamplerOutputError("1 of 64 values is nan"),
    SamplerTimeoutError("silent"),
]


@pytest.mark.parametrize(("scale", "verdict"), [(1.0, "inconclusive"), (2.0, "finding")])
@pytest.mark.parametrize("error", ENDS, ids=lambda error: type(error).__name__)
def test_what_a_sampler_gave_before_it_ended_is_judged(error, scale, verdict):
    """A vendor cannot escape by crashing; an honest sampler that crashes is still inconclusive."""
    rng = np.random.default_rng((5, 2311))
    draw = ends(lambda size: scale * rng.standard_normal(size), 700_000, error)
    result = audit(draw, samples=1_000_000, tests=("moments", "tails"))
    assert result.verdict == verdict
    assert 700_000 <= result.samples < 1_000_000
    assert str(error) in result.reason
    assert f"{result.samples:,} of" in result.reason
    assert result.cannot_rule_out == ()


@pytest.mark.parametrize("error", ENDS, ids=lambda error: type(error).__name__)
def test_a_sampler_that_ends_before_there_is_enough_to_judge_raises(error):
    for values in (0, 900):
        draw = ends(lambda size: np.full(size, 9.0), values, error)
        with pytest.raises(type(error), match=str(error).split("(")[0]):
            audit(draw, samples=20_000)


class Quitter:
    """Honest noise that ends as soon as its own mean or scale looks wrong."""

    def __init__(self, seed):
        self.rng, self.n, self.sum, self.square = np.random.default_rng(seed), 0, 0.0, 0.0

    def __call__(self, n, d):
        off = max(abs(self.sum), abs(self.square - self.n) / 2**0.5) > 2.3 * self.n**0.5
        if n > 1 and self.n > 1000 and off:
            raise SamplerCrashError("enough")
        z = self.rng.standard_normal((n, d))
        self.n, self.sum = self.n + z.size, self.sum + z.sum()
        self.square += np.square(z).sum()
        return z


@pytest.mark.slow
def test_an_end_that_the_values_choose_keeps_the_error_rate():
    """160 audits by one test at α = 0.05.

    Judged as if the end had been fixed beforehand, three times as many are findings. Fails from 20
    findings on; without the factor there are about 25.
    """
    found = naive = 0
    for i in range(160):
        result = audit(Quitter(i), seed=str(i), samples=10_000, alpha=0.05, tests=("moments",))
        found += result.verdict == "finding"
        naive += result.tests[0].p <= 0.05
    assert naive > 8
    assert binomial_two_sided(naive, 160, 0.05) < 1e-4
    assert found <= 8 or binomial_two_sided(found, 160, 0.05) > 1e-3


@pytest.mark.slow
def test_same_seed_same_verdict():
    assert audit(noise(), samples=20_000).tests == audit(noise(), samples=20_000).tests


@pytest.mark.parametrize("samples", [1_000, 12_345, 200_000, 10_000_000])
@pytest.mark.parametrize("dim", [None, 1, 5, 64, 1000])
def test_plan_adds_up(samples, dim):
    """A large one ends with many processes."""
    plan = make_plan(samples, dim=dim)
    total = sum(c.size for c in plan)
    assert samples * 0.9 - (dim or 64) <= total <= samples
    assert all(c.n >= 1 and c.size <= max(1 << 18, dim or 0) for c in plan)
    if dim:
        assert {c.d for c in plan} == {dim}
    last = plan[-1]
    assert [c for c in plan if c.purpose == "processes"] == [last] * (samples > 900_000)
    if samples > 900_000:
        assert last.n * last.d >= 64
        assert last.size <= 100_000
        assert 20 < last.calls <= 40


BAD = {
    "alpha": (0, 1.5),
    "time_limit": (0, math.nan),
    "search_limit": (math.nan,),
    "samples": (10,),
}
BAD["dim"] = (0, 10**7)


@pytest.mark.parametrize(("name", "value"), [(n, v) for n, some in BAD.items() for v in some])
def test_bad_options(name, value):
    with pytest.raises(UsageError):
        audit(lambda n, d: np.zeros((n, d)), **{name: value})


@pytest.mark.parametrize(
    ("options", "seconds"),
    [
        ({}, 15.0),
        ({"time_limit": 60.0}, 10.0),
        ({"time_limit": 60.0, "search_limit": 2.0}, 2.0),
        ({"time_limit": 60.0, "search_limit": 20.0}, 10.0),
    ],
)
def test_when_searches_end_in_an_audit_that_has_taken_50_seconds(options, seconds):
    started = time.monotonic() - 50
    end = search_deadline(started, AuditOptions(**options), certain=False)
    assert end - started - 50 == pytest.approx(seconds, abs=0.5)
    end = search_deadline(started, AuditOptions(**options), certain=True)
    assert end - started - 50 == pytest.approx(min(seconds, 3.0), abs=0.5)


def test_dim_against_a_sampler_of_fixed_dimension():
    sampler = FunctionSampler(None, dim=4)
    with pytest.raises(UsageError, match="dim=5"):
        run_audit(sampler, claim=GAUSSIAN, options=AuditOptions(seed="1", dim=5))


def test_single_values_of_a_recording_are_read_as_rows_of_the_dimension_asked_for():
    """Equal values within a row of 64 are a finding by rows; the last values make no row."""
    rng = np.random.default_rng((5, 2311))
    recorded = np.repeat(rng.standard_normal(4000), 16)
    asked = []

    def draw(n, d):
        asked.append((n, d))
        start = sum(n for n, _ in asked[:-1])
        return recorded[start : start + n].reshape(n, d)

    sampler = FunctionSampler(draw, dim=1, available=len(recorded))
    options = AuditOptions(seed="1", dim=48, tests=("covariance",))
    result = run_audit(sampler, claim=GAUSSIAN, options=options)
    assert result.dims == (48,)
    assert result.samples == 64_000 // 48 * 48
    assert {d for _, d in asked} == {1}
    assert result.verdict == "finding"


def test_a_free_dimension_is_swept():
    plan = make_plan(10_000_000, dim=None)
    assert {c.d for c in plan} >= {1, 2, 3, 8, 16, 32, 48, 64, 96, 100, 1000, 4096}
    assert sum(c.calls for c in plan if c.purpose == "short") > 1 << 16
    assert [c.purpose for c in plan].count("other process") == 3
    # a file is read once
    assert sum(c.n for c in make_plan(10_000_000, dim=4, available=77)) == 77


def test_a_large_plan_has_random_shapes():
    plan, same, other = (
        make_plan(10_000_000, dim=None, shapes=np.random.default_rng(seed)) for seed in (1, 1, 2)
    )
    assert plan == same != other
    drawn = [(c.n, c.d) for c in plan if c.purpose == "shape"]
    assert len({d for n, d in drawn if n == 1}) > 90
    assert len({n for n, d in drawn if d == 1}) > 20
    assert sum(n * d for n, d in drawn) < 500_000
    small = make_plan(200_000, dim=None, shapes=np.random.default_rng(1))
    assert small == make_plan(200_000, dim=None)


def test_a_large_plan_asks_for_some_shapes_again_at_the_end():
    plan = make_plan(10_000_000, dim=None, shapes=np.random.default_rng(1))
    end = max(i for i, c in enumerate(plan) if c.purpose == "main")
    asked = [(c.n, c.d) for c in plan[:end] if c.purpose in ("sweep", "shape")]
    again = [(c.n, c.d) for c in plan[end:] if c.purpose == "shape"]
    assert set(again) <= set(asked)
    assert len(set(again)) == len(again) > 20
    assert {n == 1 for n, _ in again} == {d == 1 for _, d in again} == {True, False}
    assert sum(n * d for n, d in again) <= 100_000
    fixed = make_plan(10_000_000, dim=8, shapes=np.random.default_rng(1))
    assert "shape" not in {c.purpose for c in fixed}


def test_calls_that_come_again_after_a_long_while_are_found():
    """What was given for a shape is given again when its last call was long ago."""
    rng, kept, drawn = np.random.default_rng(5), {}, 0

    def draw(n, d):
        nonlocal drawn
        since, values = kept.get((n, d), (0, None))
        if values is None or drawn - since < 300_000:
            values = rng.standard_normal((n, d))
        drawn += n * d
        kept[n, d] = drawn, values
        return values

    result = audit(draw, samples=1_200_000, tests=("repeats",))
    assert result.verdict == "finding"
    first, again = (result.tests[0].details[name]["call"] for name in ("first", "again"))
    assert again - first > 10


@pytest.mark.slow
def test_a_special_d_beside_the_sweep_is_found_and_the_chance_of_that_is_stated():
    draw, options = noise(seed=(5, 2312)), {"samples": 1_100_000, "tests": ("triggers",)}
    honest = audit(draw, **options)
    assert honest.verdict == "no-finding"
    assert max(honest.dims) == 4096
    assert len(honest.dims) < 25
    (spot,) = [spot for spot in honest.cannot_rule_out if spot.flaw == "a flaw at one d"]
    assert "31 of them were drawn" in spot.says
    third = audit(lambda n, d: draw(n, d) * (0.5 if d > 1024 and d % 3 == 0 else 1.0), **options)
    assert third.verdict == "finding"


@pytest.mark.parametrize("last", ["apart", "shared", "refused"])
def test_processes_started_in_the_same_second_are_compared(last):
    """The first three are seconds apart; of those started at the end some share a second.

    Those that cannot be started are left out.
    """
    seeds = {"apart": range(100, 140), "shared": [100 + i // 8 for i in range(40)], "refused": []}
    sampler = Repeatable([0, 1, 2, 3, *seeds[last]])

    def again():
        if not sampler.seeds:
            raise SamplerCrashError("no more processes")
        return Repeatable([sampler.seeds.pop(0)])

    sampler.again = again
    options = AuditOptions(seed="1", samples=1_000_000, tests=("repeats",))
    result = run_audit(sampler, claim=GAUSSIAN, options=options)
    assert sampler.seeds == []
    assert result.verdict == ("finding" if last == "shared" else "no-finding")
    assert result.samples > 0.99e6


def test_a_growing_plan_adds_up_and_grows():
    plan = growing_plan(1_000_000, dim=64)
    sizes = [c.size for c in plan]
    assert 999_936 <= sum(sizes) <= 1_000_000
    assert sizes[0] == 1024
    assert sizes[:-1] == sorted(sizes[:-1])


@pytest.mark.slow
def test_a_dimension_that_is_refused_is_left_out_and_named():
    normal = noise()

    def draw(n, d):
        if d == 7:
            raise SamplerCrashError("no sevens")
        return normal(n, d)

    result = audit(draw)
    assert result.verdict == "no-finding"
    assert result.dims_refused == (7,)
    assert 7 not in result.dims


class SlowClock:
    """A simulated clock: drawing takes ``rate`` seconds per value and ``call`` per call."""

    def __init__(self, monkeypatch, rate, call=0.0):
        self.now, self.rate, self.call = 0.0, rate, call
        self.rng, self.asked = np.random.default_rng((5, 2311)), []
        for module in ("sampling", "run", "plan", "progress"):
            monkeypatch.setattr(f"dpaudit.audit.{module}.time", self)

    def monotonic(self):
        return self.now

    def draw(self, n, d):
        self.asked.append((n, d))
        self.now += self.rate * n * d + self.call
        return self.rng.standard_normal((n, d))


@pytest.mark.slow
def test_a_slow_sampler_gets_fewer_short_calls(monkeypatch):
    monkeypatch.setattr("dpaudit.audit.sampling._SHORT_SECONDS", 0.2)
    slow = SlowClock(monkeypatch, 0.0, call=0.005)
    planned = sum(c.calls for c in make_plan(100_000, dim=None) if c.n == 1)
    assert audit(slow.draw, samples=100_000).verdict == "no-finding"
    assert 32 <= [n for n, _ in slow.asked].count(1) < 200 < planned / 3


def test_a_machine_that_is_busy_for_a_while_changes_no_p_value(monkeypatch):
    """The seconds of a batch's first calls say in how many questions the rest is asked for."""
    told = []
    for stall in (0.0, 2.5):
        clock = SlowClock(monkeypatch, 0.0, call=1e-6)

        def draw(n, d, clock=clock, stall=stall):
            clock.now += stall if len(clock.asked) == 20 else 0.0
            return clock.draw(n, d)

        result = audit(draw, samples=100_000, tests=("correlation", "order"))
        told.append([(test.name, test.p, test.statistic) for test in result.tests])
    assert told[0] == told[1]


@pytest.mark.parametrize("refused", [True, False])
def test_random_shapes_may_be_refused_and_take_a_bounded_time(monkeypatch, refused):
    """No sampler need serve every d: nothing is said of the others; one may compile for each."""
    fast = SlowClock(monkeypatch, 1e-8)
    swept, others = {c.d for c in make_plan(2_000_000, dim=None)}, []

    def draw(n, d):
        if d not in swept:
            others.append(d)
            fast.now += 1.5
            if refused:
                raise SamplerCrashError("compiled for the dimensions of the sweep alone")
        return fast.draw(n, d)

    result = audit(draw, samples=2_000_000, tests=("triggers",))
    assert result.verdict == "no-finding"
    assert result.dims_refused == ()
    assert len(set(others)) == (1 if refused else 3)
    assert set(result.dims) - set(others) == swept


@pytest.mark.slow
def test_long_vectors_of_a_very_slow_sampler_are_left_out(monkeypatch):
    """1 ms per value: a vector of 4096 would take 4 of the 20 seconds."""
    slow = SlowClock(monkeypatch, 1e-3)
    result = audit(slow.draw, samples=100_000, time_limit=20)
    assert result.verdict == "no-finding"
    assert slow.now < 20
    assert 4096 not in result.dims
    assert {1, 8, 64, 256} <= set(result.dims)
    assert 4096 not in {d for _, d in slow.asked}
    assert "(about 1,000 values per second)" in result.shortened


@pytest.mark.slow
def test_the_plan_is_fitted_to_the_speed(monkeypatch):
    """300 µs per value: 2e5 values take 60 s. In 30 s there are fewer of everything."""
    slow = SlowClock(monkeypatch, 300e-6)
    result = audit(slow.draw, samples=200_000, time_limit=30)
    assert result.verdict == "no-finding"
    assert 60_000 < result.samples < 100_000
    assert f"{result.samples:,} of" in result.reason
    assert "fit into the time limit of 30 s" in result.reason
    assert "(about 3,300 values per second)" in result.shortened
    assert slow.now < 30
    drawn = dict.fromkeys(result.dims, 0)
    for n, d in slow.asked:
        drawn[d] += n * d
    full = {d: sum(c.size for c in make_plan(200_000, dim=None) if c.d == d) for d in drawn}
    assert set(drawn) == {c.d for c in make_plan(200_000, dim=None)}
    assert all(0.3 < drawn[d] / full[d] < 0.6 for d in (4, 16, 32, 64, 4096))  # all in proportion


@pytest.mark.slow
def test_a_sampler_that_slows_down_still_ends_in_time(monkeypatch):
    slow = SlowClock(monkeypatch, 150e-6)

    def draw(n, d):
        slow.rate = 150e-6 if slow.now < 12 else 450e-6
        return slow.draw(n, d)

    result = audit(draw, samples=200_000, time_limit=30)
    assert result.verdict == "no-finding"
    assert slow.now < 30


@pytest.mark.slow
def test_a_plan_that_hardly_fits_is_inconclusive_and_says_what_to_ask_for(monkeypatch):
    slow = SlowClock(monkeypatch, 1e-3)
    result = audit(slow.draw, samples=1_000_000, time_limit=60)
    assert result.verdict == "inconclusive"
    assert 40_000 < result.samples < 60_000
    assert "ask for --samples 5" in result.reason
    assert slow.now < 60


@pytest.mark.slow
def test_a_fast_sampler_gets_the_plan_as_it_is(monkeypatch):
    fast = SlowClock(monkeypatch, 1e-8)
    result = audit(fast.draw, samples=200_000)
    assert result.verdict == "no-finding"
    assert result.reason == "nothing that was looked at contradicts the claim"
    plan = [c for c in make_plan(200_000, dim=None) if c.purpose not in {"other process", "fork"}]
    assert fast.asked == [(c.n, c.d) for c in plan for _ in range(c.calls)]


class Repeatable(FunctionSampler):
    """Processes started one after the other, the i-th with the seed ``seeds[i]``."""

    def __init__(self, seeds):
        self.seeds = list(seeds)
        self.rng = np.random.default_rng((self.seeds.pop(0), 2311))
        super().__init__(None)
        self.facts = Facts({"noise", "noise in calls", "noise over a fork"})

    def ask(self, request, *, timeout):
        values = self.rng.standard_normal((request.rows, request.dim))
        return Reply(values[:0] if request.forked else values, np.full(request.calls or 1, 1e-6))

    def again(self):
        return Repeatable([self.seeds.pop(0)])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("seeds", "fixed"), [([0, 0, 0, 0], True), ([0, 1, 2, 3], False), ([0, 1, 2, 1], True)]
)
def test_a_seed_that_processes_share_is_found(seeds, fixed):
    """Of three further processes two may share a seed of a few bits (a process number)."""
    options = AuditOptions(seed="1", samples=50_000, tests=BATTERY)
    result = run_audit(Repeatable(seeds), claim=GAUSSIAN, options=options)
    assert [t.name for t in result.tests if t.finding] == (["repeats"] if fixed else [])


def test_bits_are_of_the_first_process_only(tmp_path):
    """A forked child repeats its parent, and another process may, by their nature."""

    class Forking(Repeatable):
        def ask(self, request, *, timeout):
            if not request.forked:
                return super().ask(request, timeout=timeout)
            same = self.rng.standard_normal((request.n, request.dim))
            return Reply(np.concatenate([same, same]))

    options = AuditOptions(seed="1", samples=50_000, tests=("moments",), bits=tmp_path / "bits")
    result = run_audit(Forking([0, 1, 2, 3]), claim=GAUSSIAN, options=options)
    bits = np.fromfile(tmp_path / "bits", dtype="<u2")
    size = make_plan(50_000, dim=None)[0].size
    assert len(bits) == result.samples - 4 * size  # the child's and three processes'
    windows = np.lib.stride_tricks.sliding_window_view(bits, 8)[::8].copy()
    assert len(np.unique(windows, axis=0)) == len(windows)


@pytest.mark.slow
def test_of_equal_p_values_the_likely_cause_is_first():
    """At twice the scale a dozen tests have p = 0; the scale is what is wrong."""
    result = audit(noise(2))
    assert sum(t.p == 0 for t in result.tests) > 3
    assert result.tests[0].name == "moments"
    assert result.reason.startswith("moments, ")
    assert result.cannot_rule_out == ()


@pytest.mark.slow
def test_a_finding_says_when_it_was_seen_and_how_to_see_it_again():
    """A scale two percent off."""
    result = audit(noise(1.02), dim=32)
    assert result.verdict == "finding"
    scale = next(t for t in result.tests if t.name == "moments")
    assert scale.finding
    assert scale.seen_after <= 50_000
    assert scale.interval.low < 1.02 < scale.interval.high
    assert scale.reproduce == (
        "dpaudit audit 'test sampler' --claim gaussian:sigma=1 --dim 32 "
        f"--samples {scale.seen_after} --tests moments --seed 7"
    )


def test_the_words_of_options_and_those_that_an_open_sampler_cannot_have():
    opening = {"dtype": "f32", "text": True, "mitigation": "rotation"}
    words = ["--dim", "32", "--sequential", "--dtype", "f32", "--text", "--mitigation", "rotation"]
    assert arguments_of(AuditOptions(dim=32, sequential=True, seed="", **opening)) == words
    assert arguments_of(AuditOptions(seed="")) == []
    for name, value in opening.items():
        with pytest.raises(UsageError, match=f"{name}={value}: test sampler is already open"):
            audit(lambda n, d: np.zeros((n, d)), **{name: value})


def test_options_without_a_seed_have_a_fresh_one():
    assert AuditOptions().seed != AuditOptions().seed
    assert len(MechanismOptions().seed) == 16


def test_a_sampler_that_can_starts_its_other_processes_ahead():
    class Preparing(Repeatable):
        asked = ()

        def prepare(self, others):
            self.asked = (*self.asked, others)

    for dim, asked in ((64, (3,)), (None, ())):
        sampler = Preparing([0, 1, 2, 3])
        options = AuditOptions(samples=50_000, tests=("moments",), dim=dim)
        run_audit(sampler, claim=GAUSSIAN, options=options)
        assert sampler.asked == asked


def test_advice_is_never_a_finding_and_takes_no_alpha():
    """Two tests, one of them advisory: the other has all of α."""
    result = audit(noise(), tests=("moments", "timing"))
    moments, timing = sorted(result.tests, key=lambda t: t.advisory)
    assert timing.advisory
    assert not timing.finding
    assert moments.p_adjusted == moments.p


@pytest.mark.slow
def test_bits_for_another_battery(tmp_path):
    result = audit(noise(), bits=tmp_path / "bits")
    bits = np.fromfile(tmp_path / "bits", dtype="<u2")
    assert len(bits) == result.samples
    counts = np.bincount(bits >> 8, minlength=256)
    assert abs(counts - len(bits) / 256).max() < 6 * (len(bits) / 256) ** 0.5
    with pytest.raises(UsageError, match="bits="):
        audit(noise(), bits=tmp_path / "none" / "bits")


SPECIMENS = {
    ("minstd-box-muller", "congruential", 20_000): "minstd (multiplier 48271) and Box-Muller",
    ("java-polar", "congruential", 20_000): "drand48 and java.util.Random and the polar method",
    ("mt19937-polar", "state-recovery", 20_000): "MT19937 and the polar method, as in numpy.random",
    ("mt19937-inverse", "linear-complexity", 50_000): "a linear generator: the Mersenne Twister",
    ("last-bit-register", "linear-complexity", 5_000): "a linear generator in the last digits: a ",
    ("box-muller-float32", "granularity", 100_000): "Box–Muller of 24-bit uniforms, as in float32",
    ("inverse-cdf-23", "granularity", 20_000): "inverse CDF of 23-bit uniforms, as in float32",
    ("rounded-1e-3", "granularity", 20_000): "rounded to 0.001",
    ("low-20-bits-zero", "granularity", 20_000): "a shorter number format: the last 20 binary dig",
    ("kreutzer-inverse", "granularity", 100_000): "noise of 20.",
    ("sigma-minus-1pc", "moments", 500_000): "",  # too near 1 to be the cause of anything else
    ("fixed-seed", "repeats", 100_000): "every process is seeded alike",
    ("seed-every-256", "repeats", 100_000): "reseeded every call",
}


def audited(name, test, samples):
    assert HALVES.get(name, "training") == "training"
    subject = specimen(name)
    options = AuditOptions(samples=samples, seed="7", tests=(test,))
    stream = KeyedStream.from_seed("7").child(name)
    with specimen_sampler(subject, stream=stream).open(timeout=60) as sampler:
        return run_audit(sampler, claim=Claim.parse(subject.claim), options=options)


@pytest.mark.parametrize(("name", "test", "samples"), SPECIMENS)
def test_each_cause_is_recognised(name, test, samples):
    result = audited(name, test, samples)
    assert result.verdict == "finding"
    expected = SPECIMENS[name, test, samples]
    assert result.cause.startswith(expected)
    assert bool(result.cause) == bool(expected)


def named(cause, rank, *, finding=True):
    return TestResult(
        name=cause, p=0.0, p_adjusted=0.0, statistic=1.5, looks_at="", effect="", finding=finding,
        parts={}, cause=cause, cause_rank=rank,
    )  # fmt: skip


def test_the_cause_of_the_lowest_rank_is_named_and_a_wrong_scale_beside_computed_noise():
    generator, repeats, coarse, scale = (
        named(cause, rank)
        for cause, rank in (("minstd", 3), ("repeats", 6), ("coarse", 7), ("×", 9))
    )
    assert cause_of([coarse, generator]) == "minstd"
    assert cause_of([generator, scale]) == "minstd; ×"
    assert cause_of([scale, repeats]) == "repeats"
    assert cause_of([scale, coarse]) == "coarse"
    assert not cause_of([named("minstd", 3, finding=False), named("", 0)])


@pytest.mark.parametrize(
    ("first", "again", "share", "cause"),
    [
        ((1, 0), (2, 0), 0.9, "reseeded every call"),
        ((1, 0), (9, 0), 0.01, "calls repeat earlier calls"),
        ((1, 0), (9, 3), 0.01, "noise repeats earlier noise"),
    ],
)
def test_what_repeats_names_its_cause(first, again, share, cause):
    places = [{"process": 0, "call": call, "row": row} for call, row in (first, again)]
    assert repeats._cause(Repeat(*places), share=share) == cause
    assert repeats._cause(Repeat(places[0], {**places[1], "process": 1}), share=share) == (
        "every process is seeded alike"
    )
