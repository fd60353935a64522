"""The likeliest cause of a finding, on specimens of the public zoo and the training half."""

import numpy as np
import pytest
from support.function_sampler import FunctionSampler

from dpaudit.audit import AuditOptions, run_audit
from dpaudit.audit.causes import cause_of
from dpaudit.claims import Claim
from dpaudit.randomness import KeyedStream
from dpaudit.report.sentences import audit_sentence
from dpaudit.studies.zoo import HALVES, specimen, specimen_sampler
from dpaudit.types import Interval, TestResult

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
    with specimen_sampler(subject, stream=stream) as sampler:
        return run_audit(sampler, claim=Claim.parse(subject.claim), options=options)


@pytest.mark.parametrize(("name", "test", "samples"), SPECIMENS)
def test_each_cause_is_recognised(name, test, samples):
    result = audited(name, test, samples)
    assert result.verdict == "finding"
    expected = SPECIMENS[name, test, samples]
    assert result.cause.startswith(expected)
    assert bool(result.cause) == bool(expected)


def test_the_cause_is_named_first():
    result = audited("inverse-cdf-23", "granularity", 20_000)
    begins = "Finding: inverse CDF of 23-bit uniforms, as in float32; granularity contradicts gauss"
    assert audit_sentence(result).startswith(begins)


def test_a_pass_has_no_cause():
    rng = np.random.default_rng(5)
    options = AuditOptions(samples=20_000, seed="7", tests=("moments", "granularity"))
    draw = FunctionSampler(lambda n, d: rng.standard_normal((n, d)))
    assert not run_audit(draw, claim=Claim.parse("gaussian:sigma=1"), options=options).cause


def found(name, effect, *, finding=True, **more):
    return TestResult(
        name=name, p=0.0, p_adjusted=0.0, statistic=1.5, looks_at="", effect=effect,
        finding=finding, parts={}, **more,
    )  # fmt: skip


GENERATOR = found("congruential", "minstd and Box-Muller: 9 of 9 held-out values predicted")
WIDE = Interval(low=1.49, high=1.51, confidence=0.99, method="χ²")


def test_a_generator_comes_before_what_follows_from_it():
    coarse = found("granularity", "uniforms of 31 bits: 2^31 · F(x) is a whole number at 9 of 9")
    assert cause_of([coarse, GENERATOR]) == "minstd and Box-Muller"
    assert cause_of([coarse]) == "inverse CDF of 31-bit uniforms"


def test_a_wrong_scale_is_a_cause_beside_a_generator_but_not_beside_repeats():
    scale = found("moments", "scale 1.50000 × claimed", interval=WIDE)
    assert cause_of([scale]) == "scale 1.5 × the claimed one"
    assert cause_of([GENERATOR, scale]) == "minstd and Box-Muller; scale 1.5 × the claimed one"
    again = found("repeats", "900 of 1,000 windows seen before, such as …", details={
        "first": {"process": 0, "call": 1, "row": 0}, "again": {"process": 0, "call": 2, "row": 0},
    })  # fmt: skip
    assert cause_of([scale, again]) == "reseeded every call"


def test_what_is_no_finding_is_no_cause():
    assert not cause_of([found("predictable", "PCG64 with seed 1 gives the noise", finding=False)])
    assert cause_of([found("predictable", "PCG64 with seed 1 gives the noise: 9 of 9")]) == (
        "PCG64, seeded with 1"
    )


def test_only_some_calls_repeat():
    places = {"first": {"process": 0, "call": 1, "row": 0}}
    later = {"process": 0, "call": 9, "row": 0}
    some = found("repeats", "9 of 1,000 windows seen before", details={**places, "again": later})
    assert cause_of([some]) == "calls repeat earlier calls"
    runs = found("repeats", "9 of 1,000 windows seen before", details={
        **places, "again": {**later, "row": 3},
    })  # fmt: skip
    assert cause_of([runs]) == "noise repeats earlier noise"
