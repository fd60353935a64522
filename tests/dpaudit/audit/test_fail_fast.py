"""An audit stops at a look where a finding is certain, unless it is asked for everything."""

import numpy as np
import pytest
from support.function_sampler import FunctionSampler

from dpaudit.audit import AuditOptions, run_audit
from dpaudit.audit.battery import CERTAIN, LOOKS
from dpaudit.claims import Claim
from dpaudit.report.sentences import audit_sentence

CLAIM = Claim.parse("gaussian:sigma=1")
SAMPLES = 2_000_000


def audit(scale, **options):
    rng = np.random.default_rng(3)
    draw = FunctionSampler(lambda n, d: scale * rng.standard_normal((n, d)))
    options = {"seed": "7", "samples": SAMPLES, "tests": ("moments", "drift"), **options}
    return run_audit(draw, claim=CLAIM, options=AuditOptions(**options))


def test_what_is_certain_ends_the_audit_and_says_so():
    result = audit(1.1)
    assert result.verdict == "finding"
    assert 1_000_000 <= result.samples < 0.9 * SAMPLES
    assert f"; stopped after {result.samples:,} of " in result.reason
    assert audit_sentence(result).endswith("values, certain: --all continues.")
    assert result.tests[0].reproduce.endswith("--alpha 0.01 --seed 7")


@pytest.mark.parametrize("options", [{"all_values": True}, {"samples": 900_000}, {"bits": "bits"}])
def test_all_values_are_drawn_where_they_are_asked_for_or_few(options, tmp_path):
    """Bits for another battery are of all values too."""
    options = {k: tmp_path / v if k == "bits" else v for k, v in options.items()}
    result = audit(1.1, **options)
    assert result.verdict == "finding"
    assert result.samples > 0.95 * options.get("samples", SAMPLES)
    assert "stopped" not in result.reason


def test_a_finding_that_is_not_certain_does_not_stop():
    """Six standard errors of the scale."""
    result = audit(1 + 6 / np.sqrt(2 * SAMPLES))
    assert result.verdict == "finding"
    assert result.samples > 0.95 * SAMPLES


def test_p_values_of_a_stopped_audit_count_for_all_looks():
    result = audit(1.01)
    moments = result.tests[0]
    assert "stopped" in result.reason
    assert moments.p_adjusted == pytest.approx(2 * moments.p * LOOKS / CERTAIN, rel=1e-9, abs=0)
    assert moments.finding
    assert not result.tests[1].finding


@pytest.mark.slow
def test_a_direction_does_not_stop_an_audit():
    """The search for it may need all values."""
    rng = np.random.default_rng(3)

    def draw(n, d):
        x = rng.standard_normal((n, d))
        x[:, 0] *= 1.5 if d > 1 else 1.0
        return x

    options = AuditOptions(seed="7", samples=SAMPLES, tests=("covariance",), dim=8)
    result = run_audit(FunctionSampler(draw), claim=CLAIM, options=options)
    assert result.verdict == "finding"
    assert result.samples > 0.95 * SAMPLES
