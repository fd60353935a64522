"""Balance between calls, periods, ranks and relations between a few signs."""

import numpy as np
import pytest
import scipy

from dpaudit.audit.battery.triggers import Triggers
from dpaudit.audit.block import SampleBlock
from dpaudit.claims import Claim
from dpaudit.randomness import KeyedStream

NORMAL = Claim.parse("gaussian:sigma=1")


def evidence_of(make, answers):
    """Evidence of a test that sees these answers, (values (n, d), number of calls) each."""
    test, call = make(NORMAL, KeyedStream.from_seed("order")), 0
    for x, calls in answers:
        block = SampleBlock(call, x, claim=NORMAL, spread=np.random.default_rng(7), calls=calls)
        test.update(block)
        call += calls
    return test.evidence(alpha=1e-4)


def has_its_level(p):
    """Whether p-values are no smaller than uniform ones, as far as chance lets us see."""
    return all(
        scipy.special.bdtrc(sum(x <= level for x in p) - 1, len(p), level) > 1e-4
        for level in (0.02, 0.1, 0.3)
    )


def balanced(kind, x):
    if kind == "centred":
        return x - x.mean()
    if kind == "of mean square 1":
        return x / np.sqrt((x * x).mean())
    half = x.ravel()[: x.size // 2]
    return np.concatenate([half, -np.random.default_rng(9).permutation(half)]).reshape(x.shape)


@pytest.mark.parametrize("kind", ["centred", "of mean square 1", "mirrored"])
def test_calls_that_are_too_balanced_are_found(kind):
    rng = np.random.default_rng(53)
    answers = [(balanced(kind, rng.standard_normal((100, 64))), 1) for _ in range(20)]
    evidence = evidence_of(Triggers, answers)
    assert evidence.parts["between calls"] < 1e-6
    assert "20 long calls vary" in evidence.effect


def test_the_variation_between_calls_has_its_level():
    rng = np.random.default_rng(54)
    p = []
    for _ in range(200):
        long = [(rng.standard_normal((5, 64)), 1) for _ in range(6)]
        answers = [(rng.standard_normal((300, 8)), 300), *long]
        p.append(evidence_of(Triggers, answers).parts["between calls"])
    assert has_its_level(p)
