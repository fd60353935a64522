"""The laws of Attribution Reporting against slow oracles; tests that are valid and find flaws."""

import math
from fractions import Fraction
from functools import cache
from itertools import product

import numpy as np
import pytest

from dpaudit.claims import Claim
from dpaudit.errors import UsageError
from dpaudit.randomness import KeyedStream
from dpaudit.results.foreign import RefusedError
from dpaudit_deployments.attribution.evidence import (
    EventGroups,
    claim_of,
    noise_claim,
    noise_evidence,
)
from dpaudit_deployments.attribution.measure import event_sources, summary_batches
from dpaudit_deployments.attribution.records import Batch
from dpaudit_deployments.attribution.registration import (
    Registration,
    Trigger,
    channel_capacity,
    epsilon_of_flip,
    epsilon_of_pick,
    flip_probability,
    pick_rate,
    summary_claim,
)
from dpaudit_deployments.attribution.run import judge_attribution


def enumerated(registration):
    """All output states: every trigger data and window has some reports, within the limits."""
    bins = [(t.data, w, t.most) for t in registration.triggers for w in range(t.windows)]
    found = set()
    for counts in product(range(registration.reports + 1), repeat=len(bins)):
        if sum(counts) > registration.reports:
            continue
        used = {}
        for (data, _, _), n in zip(bins, counts, strict=True):
            used[data] = used.get(data, 0) + n
        if all(used[data] <= most for data, _, most in bins):
            state = [
                (data, w) for (data, w, _), n in zip(bins, counts, strict=True) for _ in range(n)
            ]
            found.add(tuple(sorted(state)))
    return found


def recurrence(registration):
    """The recurrence of the flexible configurations, as in the specification's own tool."""
    per_data = [(t.windows, t.most) for t in registration.triggers]

    @cache
    def count(cap, index, windows, most):
        if index < 0 or (index == 0 and windows == 0):
            return 1
        if windows == 0:
            return count(cap, index - 1, *per_data[index - 1])
        return sum(count(cap - j, index, windows - 1, most - j) for j in range(min(most, cap) + 1))

    last = len(per_data) - 1
    return count(registration.reports, last, *per_data[last]) if per_data else 1


SMALL = [
    Registration("event", 1, (Trigger(0, 1, 1), Trigger(1, 1, 1))),
    Registration("navigation", 3, (Trigger(0, 2, 3), Trigger(1, 2, 3))),
    Registration("navigation", 2, (Trigger(5, 1, 1), Trigger(7, 3, 2))),
    Registration("navigation", 4, (Trigger(0, 1, 4),)),
    Registration("navigation", 3, (Trigger(0, 2, 1), Trigger(1, 1, 3), Trigger(2, 2, 2))),
    Registration("navigation", 3, (Trigger(0, 2, 0), Trigger(1, 2, 3))),
    Registration("navigation", 0, (Trigger(0, 2, 0),)),
    Registration("event", 2, ()),
]


@pytest.mark.parametrize("registration", SMALL)
def test_states_of_small_registrations(registration):
    slow = enumerated(registration)
    assert registration.states == len(slow) == recurrence(registration)
    assert set(registration.index) == slow
    assert sorted(registration.index.values()) == list(range(len(slow)))


@pytest.mark.parametrize(
    ("kind", "states", "pick", "bits"),
    [
        ("navigation", 2925, 0.0024263221679834087, 11.461727965384876),
        ("event", 3, 0.000002494582008677539, 1.584926511508231),
    ],
)
def test_the_defaults_are_as_in_the_specifications_own_tests(kind, states, pick, bits):
    claim = claim_of(Registration.default(kind))
    assert claim.states == states == recurrence(Registration.default(kind))
    assert claim.pick_rate == pytest.approx(pick, rel=1e-14)
    assert claim.capacity == pytest.approx(bits, rel=1e-14)
    assert claim.allowed


@pytest.mark.parametrize(
    ("states", "epsilon", "expected"),
    [(2, math.log(3), 0.18872187554086717), (1, 14, 0.0), (3, 0.0, 0.0)],
)
def test_channel_capacity(states, epsilon, expected):
    assert channel_capacity(states, epsilon) == pytest.approx(expected, abs=1e-14)


@pytest.mark.parametrize(
    ("states", "bits", "epsilon"),
    [(3648, 11.5, 12.233993328032184), (2106, 6.5, 8.366900276574821)],
)
def test_the_capacity_limits_bind_at_the_epsilon_of_the_specifications_tests(states, bits, epsilon):
    assert channel_capacity(states, epsilon) == pytest.approx(bits, abs=1e-12)
    assert channel_capacity(states, epsilon + 1e-9) > bits


@pytest.mark.parametrize("states", [1, 2, 3, 10])
def test_the_response_is_that_of_the_specifications_algorithm(states):
    growth = Fraction(7, 2)
    pick = states / (states - 1 + growth)
    # with this probability a uniform state, else the truth: pure ε-DP, exactly
    own, other = 1 - pick + pick / states, pick / states
    assert own == growth * other
    assert float(pick) == pytest.approx(pick_rate(states, math.log(growth)))
    assert float(1 - own) == pytest.approx(flip_probability(states, math.log(growth)))


@pytest.mark.parametrize("epsilon", [0.0, 1.0, 14.0])
def test_epsilon_comes_back_from_rates(epsilon):
    assert epsilon_of_flip(2925, flip_probability(2925, epsilon)) == pytest.approx(epsilon)
    assert epsilon_of_pick(2925, pick_rate(2925, epsilon)) == pytest.approx(epsilon)
    assert epsilon_of_flip(3, 0.0) == epsilon_of_pick(3, 0.0) == math.inf


def test_the_noise_of_a_summary_report_is_the_claim_of_an_audit():
    assert summary_claim(10) == Claim("discrete-laplace", 6553.6)
    variance = summary_claim(64).standard_deviation ** 2
    ratio = math.exp(-64 / 65_536)
    assert variance == pytest.approx(2 * ratio / (1 - ratio) ** 2)
    for epsilon in (0.0, -1.0, 65.0, math.nan, 0.5):
        with pytest.raises(UsageError, match=r"scale|epsilon="):
            summary_claim(epsilon)


def test_registrations_are_read_as_in_the_specification():
    plain = Registration.parse({"source_type": "event"})
    assert plain == Registration.default("event")
    windows = {"event_report_windows": {"end_times": [7200, 43_200, 86_400]}}
    more = {"trigger_data": [0, 1], "event_level_epsilon": 3, "priority": "1"}
    flexible = Registration.parse({"max_event_level_reports": 2} | windows | more)
    assert (flexible.states, flexible.epsilon) == (math.comb(3 * 2 + 2, 2), 3.0)
    spec = {"trigger_data": [0], "summary_buckets": [1, 2, 3, 4]}
    spec |= {"event_report_windows": {"end_times": [604_800]}}
    counts = Registration.parse({"max_event_level_reports": 4, "trigger_specs": [spec]})
    assert counts.states == 5


@pytest.mark.parametrize(
    ("header", "says"),
    [
        ([], "an object"),
        ({"source_type": "click"}, "navigation or event"),
        ({"max_event_level_reports": 21}, "0 to 20"),
        ({"max_event_level_reports": True}, "0 to 20"),
        ({"event_report_windows": {"end_times": []}}, "1 to 5 end_times"),
        ({"event_level_epsilon": -1}, "from 0 to 700"),
        ({"event_level_epsilon": "14"}, "from 0 to 700"),
        ({"trigger_data": [0, 0]}, "each once"),
        ({"trigger_data": [1 << 32]}, "32-bit"),
        ({"trigger_specs": [1]}, "list of objects"),
        ({"trigger_specs": [{"summary_buckets": 4, "trigger_data": [0]}]}, "summary_buckets"),
    ],
)
def test_bad_registrations_are_refused(header, says):
    with pytest.raises(RefusedError, match=says):
        Registration.parse(header)


def test_registrations_that_a_browser_refuses_are_told():
    wide = Registration.parse({"trigger_data": list(range(16))})
    assert wide.states == 20_825
    assert not claim_of(wide).allowed
    assert not claim_of(Registration.default("event", epsilon=14.5)).allowed
    with pytest.raises(RefusedError, match="output states; at most"):
        _ = Registration("event", 9, wide.triggers).index


NAVIGATION, EVENT = "navigation", "event"


def judged(flaw, *, kind=NAVIGATION, epsilon=8.0, size=20_000, seed=1):
    stream = KeyedStream.from_seed(seed).child(flaw)
    registration = Registration.default(kind, epsilon=epsilon)
    sources = event_sources(flaw, registration=registration, size=size, stream=stream)
    return judge_attribution(sources, [], seed="1")


def summarised(flaw, *, size=2_000, epsilon=10.0, seed=1):
    stream = KeyedStream.from_seed(seed).child(flaw)
    batches = summary_batches(flaw, epsilon=epsilon, size=size, stream=stream)
    return judge_attribution([], batches, epsilon=epsilon, seed="1")


def found(document):
    return {test.name for test in document.tests if test.finding}


@pytest.mark.slow
@pytest.mark.parametrize("kind", [NAVIGATION, EVENT])
def test_honest_reports_pass(kind):
    document = judged("none", kind=kind, epsilon=6.0)
    assert (document.verdict, found(document)) == ("no-finding", set())
    (claim,) = document.claims
    assert claim.by_flips.low < 6 < claim.by_flips.high
    assert 4 < claim.shown <= 6
    assert claim.known == claim.sources == 20_000


@pytest.mark.parametrize(
    ("flaw", "kind", "epsilon", "by"),
    [
        ("ε 10 % too large", NAVIGATION, 8.0, "flip-rate"),
        ("no noise", NAVIGATION, 14.0, "flip-rate"),
        ("one output is never drawn", EVENT, 6.0, "false-outputs-extreme"),
        ("a tenth of outputs is never drawn", NAVIGATION, 8.0, "false-outputs-even"),
        ("modulo bias", NAVIGATION, 8.0, "false-outputs-even"),
        ("a seed used again", NAVIGATION, 8.0, "false-outputs-repeated"),
        ("sources with reports are spared", NAVIGATION, 8.0, "flips-by-truth"),
    ],
)
def test_flaws_of_the_randomised_response_are_found(flaw, kind, epsilon, by):
    document = judged(flaw, kind=kind, epsilon=epsilon)
    assert document.verdict == "finding"
    assert by in found(document)


def test_the_epsilon_that_pairs_show_is_a_finding_above_the_claim():
    document = judged("ε twice the claim", epsilon=3.0)
    assert document.claims[0].shown > 3
    assert any("shows ε ≥" in f.message for f in document.findings)


def test_flips_in_a_row_are_found():
    document = judged("none", epsilon=8.0, size=4_000)
    assert "flips-in-order" not in found(document)
    stream = KeyedStream.from_seed(2)
    registration = Registration.default(NAVIGATION, epsilon=8.0)
    sources = event_sources("none", registration=registration, size=4_000, stream=stream)
    clustered = sorted(sources, key=lambda s: s.reported == s.true)
    document = judge_attribution(clustered, [], seed="1")
    assert found(document) == {"flips-in-order"}


@pytest.mark.parametrize("seed", [1, 2])
def test_honest_noise_passes(seed):
    document = summarised("none", seed=seed)
    assert (document.verdict, found(document)) == ("no-finding", set())
    assert document.noise.by_scale.low < 10 < document.noise.by_scale.high
    assert 4 < document.noise.shown < 10
    assert document.cannot_rule_out


@pytest.mark.parametrize(
    ("flaw", "by"),
    [
        ("half the noise", "noise-scale"),
        ("twice the noise", "noise-scale"),
        ("no noise", "noise-zeros"),
        ("the same noise in each batch", "noise-batches"),
        ("one-sided geometric noise", "noise-sign"),
        ("rounded to multiples of 16", "noise-grid"),
        ("Gaussian of the same variance", "goodness-of-fit"),
    ],
)
def test_flaws_of_the_noise_are_found(flaw, by):
    document = summarised(flaw, size=4_000)
    assert document.verdict == "finding"
    assert by in found(document)


def test_few_values_have_exact_tests_but_no_battery():
    document = summarised("half the noise", size=200)
    assert found(document) == {"noise-scale"}
    assert "200 values of noise: below 1,000" in document.cannot_rule_out[0]
    assert {test.name for test in document.tests} == {
        "noise-zeros", "noise-scale", "noise-sign", "noise-grid", "noise-batches",
    }  # fmt: skip


def uniform(p_values):
    """Whether honest p-values are at most 0.05 in no more than 8 % of files."""
    return np.mean(np.array(p_values) <= 0.05) <= 0.08


@pytest.mark.slow
def test_p_values_of_honest_reports_are_valid():
    registration = Registration.default(NAVIGATION, epsilon=6.0)
    stream = KeyedStream.from_seed(3)
    seen = {}
    for trial in range(300):
        own = stream.child(trial)
        groups = EventGroups()
        for source in event_sources("none", registration=registration, size=200, stream=own):
            groups.add(source)
        for name, evidence in groups.evidence(own.child("spread").numpy()):
            seen.setdefault(name, []).append(evidence.p)
    assert len(seen) == 7
    assert {name for name, p in seen.items() if not uniform(p)} == set()


def test_p_values_of_honest_noise_are_valid():
    stream, seen = KeyedStream.from_seed(4), {}
    for trial in range(300):
        batches = summary_batches("none", epsilon=64.0, size=80, stream=stream.child(trial))
        for name, evidence in noise_evidence(batches, epsilon=64.0):
            seen.setdefault(name, []).append(evidence.p)
    assert len(seen) == 5
    assert {name for name, p in seen.items() if not uniform(p)} == set()


def test_the_interval_of_the_scale_covers():
    rng = KeyedStream.from_seed(5).numpy()
    stop, covered = 1 - np.exp(-8 / 65_536), 0
    for _ in range(400):
        noise = rng.geometric(stop, 12) - rng.geometric(stop, 12)
        claim = noise_claim([Batch("b", tuple(range(12)), noise, 12)], epsilon=8.0)
        covered += claim.by_scale.low <= 8 <= claim.by_scale.high
    assert 368 <= covered <= 394  # 95 % of 400 is 380; ± 3 standard deviations, rounded


def test_a_few_repeats_between_batches_have_their_exact_probability():
    values = np.arange(100) * 997 - 40_000
    second = values + 1
    second[:2] = values[:2]
    rows = tuple(range(100))
    batches = [Batch("a", rows, values, 100), Batch("b", rows, second, 100)]
    evidence = dict(noise_evidence(batches, epsilon=10.0))["noise-batches"]
    masses = np.exp(-np.abs(np.arange(-400_000, 400_001)) * 10 / 65_536)
    chance = ((masses / masses.sum()) ** 2).sum()
    tail = 1 - (1 - chance) ** 100 - 100 * chance * (1 - chance) ** 99
    assert evidence.p == pytest.approx(2 * tail, rel=1e-6)  # by bucket and by row
    assert "a and b: the same noise in 2 of 100 common" in evidence.effect


def test_nothing_to_test_is_inconclusive():
    batch = Batch("b", (), np.array([], dtype=np.int64), 7)
    document = judge_attribution([], [batch], seed="1")
    assert (document.verdict, document.tests) == ("inconclusive", ())
