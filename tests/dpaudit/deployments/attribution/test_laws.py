"""The laws of Attribution Reporting against slow oracles, and the published numbers."""

import math
from fractions import Fraction
from functools import cache
from itertools import product

import pytest

from dpaudit.claims import Claim
from dpaudit.deployments.attribution.events import claim_of
from dpaudit.deployments.attribution.laws import (
    channel_capacity,
    epsilon_of_flip,
    epsilon_of_pick,
    flip_probability,
    laplace_mass,
    null_report_law,
    pick_rate,
    response_law,
    summary_claim,
)
from dpaudit.deployments.attribution.registration import Registration, Trigger
from dpaudit.errors import UsageError
from dpaudit.results.foreign import RefusedError


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
def test_the_response_is_a_law_with_exactly_this_epsilon(states):
    growth = Fraction(7, 2)
    pick = states / (states - 1 + growth)
    for truth in range(states):
        law = response_law(states, truth=truth, growth=growth)
        # the specification's algorithm: with probability pick a uniform state, else the truth
        slow = [pick / states + (1 - pick if s == truth else 0) for s in range(states)]
        assert law == slow
        assert sum(law) == 1
        for other in range(states):
            ratios = [
                p / q
                for p, q in zip(law, response_law(states, truth=other, growth=growth), strict=True)
            ]
            assert max(ratios) == (growth if other != truth else 1)
    flips = 1 - response_law(states, truth=0, growth=growth)[0]
    assert float(flips) == pytest.approx(flip_probability(states, math.log(3.5)))


@pytest.mark.parametrize("epsilon", [0.0, 1.0, 14.0])
def test_epsilon_comes_back_from_rates(epsilon):
    assert epsilon_of_flip(2925, flip_probability(2925, epsilon)) == pytest.approx(epsilon)
    assert epsilon_of_pick(2925, pick_rate(2925, epsilon)) == pytest.approx(epsilon)
    assert epsilon_of_flip(3, 0.0) == epsilon_of_pick(3, 0.0) == math.inf


def test_the_laplace_law_is_the_difference_of_two_geometric_numbers():
    ratio, reach = Fraction(2, 3), 200
    geometric = [(1 - ratio) * ratio**k for k in range(reach)]
    for x in range(-4, 5):
        slow = sum(geometric[k] * geometric[k + abs(x)] for k in range(reach - 4))
        mass = laplace_mass(x, ratio=ratio)
        assert 0 <= mass - slow < Fraction(1, 10**30)
    assert laplace_mass(0, ratio=ratio) / laplace_mass(65_536, ratio=ratio) == ratio**-65_536
    total = sum(laplace_mass(x, ratio=ratio) for x in range(-reach, reach + 1))
    assert 1 - total == 2 * ratio ** (reach + 1) / (1 + ratio)


def test_the_noise_of_a_summary_report_is_the_claim_of_an_audit():
    assert summary_claim(10) == Claim("discrete-laplace", 6553.6)
    variance = summary_claim(64).standard_deviation ** 2
    ratio = math.exp(-64 / 65_536)
    assert variance == pytest.approx(2 * ratio / (1 - ratio) ** 2)
    for epsilon in (0.0, -1.0, 65.0, math.nan, 0.5):
        with pytest.raises(UsageError, match=r"scale|epsilon="):
            summary_claim(epsilon)


@pytest.mark.parametrize("attributed", [False, True])
def test_null_reports(attributed):
    plain = null_report_law(with_source_time=False, attributed=attributed)
    assert plain == ([1] if attributed else [Fraction(19, 20), Fraction(1, 20)])
    law = null_report_law(with_source_time=True, attributed=attributed)
    slow = [Fraction(1)]
    for _ in range(31 - attributed):
        coin = [Fraction(992, 1000), Fraction(8, 1000)]
        slow = [
            sum(slow[n - c] * coin[c] for c in (0, 1) if 0 <= n - c < len(slow))
            for n in range(len(slow) + 1)
        ]
    assert law == slow
    assert sum(law) == 1


def test_registrations_are_read_as_in_the_specification():
    plain = Registration.parse({"source_type": "event"})
    assert plain == Registration.default("event")
    flexible = Registration.parse(
        {
            "max_event_level_reports": 2,
            "event_report_windows": {"end_times": [7200, 43_200, 86_400]},
            "trigger_data": [0, 1],
            "event_level_epsilon": 3,
            "priority": "1",
        }
    )
    assert (flexible.states, flexible.epsilon) == (math.comb(3 * 2 + 2, 2), 3.0)
    counts = Registration.parse(
        {
            "max_event_level_reports": 4,
            "trigger_specs": [
                {
                    "trigger_data": [0],
                    "event_report_windows": {"end_times": [604_800]},
                    "summary_buckets": [1, 2, 3, 4],
                }
            ],
        }
    )
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
        ({"trigger_data": [1 << 32]}, "32 bits"),
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
