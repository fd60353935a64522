"""The tests of recorded reports: valid on honest reports, and every planted flaw is a finding."""

import numpy as np
import pytest

from dpaudit.audit.recorded import audit_values
from dpaudit.deployments.attribution.events import EventGroups
from dpaudit.deployments.attribution.noise import noise_claim, noise_evidence
from dpaudit.deployments.attribution.records import Batch
from dpaudit.deployments.attribution.registration import Registration
from dpaudit.deployments.attribution.run import judge_attribution
from dpaudit.randomness import KeyedStream
from dpaudit.studies.attribution import event_sources, summary_batches

NAVIGATION, EVENT = "navigation", "event"


def judged(flaw, *, kind=NAVIGATION, epsilon=8.0, size=20_000, seed=1):
    stream = KeyedStream.from_seed(seed).child(flaw)
    registration = Registration.default(kind, epsilon=epsilon)
    sources = event_sources(flaw, registration=registration, size=size, stream=stream)
    return judge_attribution(sources, [], seed="1", battery=audit_values)


def summarised(flaw, *, size=2_000, epsilon=10.0, seed=1):
    stream = KeyedStream.from_seed(seed).child(flaw)
    batches = summary_batches(flaw, epsilon=epsilon, size=size, stream=stream)
    return judge_attribution([], batches, epsilon=epsilon, seed="1", battery=audit_values)


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
    document = judge_attribution(clustered, [], seed="1", battery=audit_values)
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
    document = judge_attribution([], [batch], seed="1", battery=audit_values)
    assert (document.verdict, document.tests) == ("inconclusive", ())
