"""What a mechanism claims: μ alone, and Gaussian noise at δ = 0."""

import dataclasses
import json

import numpy as np
import pytest
from command_line import here as dpaudit

from dpaudit import registry
from dpaudit.accounting import gaussian_delta
from dpaudit.audit.epsilon.run import audit_mechanism
from dpaudit.audit.options import PrivacyClaim
from dpaudit.errors import UsageError
from dpaudit.report.mechanism import mechanism_facts, mechanism_sentence
from dpaudit.samplers.identity import declared_law

NOISE = """\
import numpy as np
rng = np.random.default_rng(5)
def normal(value, n): return np.round((value + rng.normal(0, 1, n)) * 64) / 64
"""


def test_mu_alone_implies_epsilon_at_delta():
    claim = PrivacyClaim.of(None, 0.0, 1.0)
    assert (claim.mu, claim.delta, claim.only_mu) == (1.0, 1e-5, True)
    # at the implied ε the Gaussian mechanism of μ = 1 has just this δ, never more
    assert gaussian_delta(claim.epsilon, sigma=1.0) <= 1e-5
    assert gaussian_delta(claim.epsilon * (1 - 1e-6), sigma=1.0) > 1e-5
    at_another = PrivacyClaim.of(None, 1e-3, 1.0)
    assert at_another.delta == 1e-3
    assert at_another.epsilon < claim.epsilon
    assert PrivacyClaim.of(None, 0.0, 0.0).epsilon == 0
    both = PrivacyClaim.of(0.5, 1e-6, 2.0)
    assert (both.epsilon, both.delta, both.mu, both.only_mu) == (0.5, 1e-6, 2.0, False)


@pytest.mark.parametrize(
    ("epsilon", "delta", "mu", "says"),
    [
        (None, 0.0, None, "give --claim-epsilon 1"),
        (None, 0.0, -1.0, "claim-mu=-1.0: must be a finite number"),
        (None, 2.0, 1.0, r"claim-delta=2.0: must lie in \[0, 1\)"),
        (None, 0.0, 100.0, "claim-mu=100.0: implies ε = 5426 at δ = 1e-05"),
        (-1.0, 0.0, 1.0, "claim-epsilon=-1.0"),
    ],
)
def test_claims_that_are_none(epsilon, delta, mu, says):
    with pytest.raises(UsageError, match=says):
        PrivacyClaim.of(epsilon, delta, mu)


@pytest.mark.slow
@pytest.mark.parametrize(("mu", "code"), [(1.05, 0), (0.5, 1)])
def test_an_audit_of_mu_alone(tmp_path, mu, code):
    """True μ = 1, rounded to a grid; 2e4 releases at each neighbour show μ of about 0.9."""
    (tmp_path / "noise.py").write_text(NOISE)
    args = ("mechanism", "python:./noise.py:normal", "--neighbours", "0,1", "--claim-mu", mu)
    done = dpaudit(*args, "--samples=2e4", "--seed=1", "--out=o", "--format=json", cwd=tmp_path)
    assert done.returncode == code, done.stderr
    result = json.loads(done.stdout)
    assert result["claim_mu"] == mu
    assert result["details"]["claimed"] == "mu"
    assert result["claim_delta"] == 1e-5
    command = result["provenance"]["command"]
    assert f"--claim-mu {mu}" in command
    assert "--claim-epsilon" not in command
    page = (tmp_path / "o" / "report.html").read_text()
    assert f"{mu}-GDP" in page
    assert "implied ε" in page
    assert "claimed ε 1" not in page
    (curve,) = (test for test in result["tests"] if test["name"] == "trade-off curve")
    assert "at the implied δ" in curve["effect"]
    again = dpaudit("mechanism", *args[1:], "--samples=2e4", "--seed=1", "--out=o", cwd=tmp_path)
    assert again.returncode == code, again.stderr
    assert f"{mu}-GDP" in again.stdout.splitlines()[-1]
    assert "-DP" not in again.stdout.splitlines()[-1].replace(f"{mu}-GDP", "")


def test_the_sentence_and_facts_of_mu_alone():
    rng = np.random.default_rng(3)
    result = audit_mechanism(
        lambda value, n: value + np.round(rng.normal(0, 1, n), 2),
        neighbours=(0, 1), mu=2, samples=4e3, seed=1, real_numbers=True,
    )  # fmt: skip
    assert "claims 2-GDP" in repr(result)
    sentence = mechanism_sentence(result)
    assert ", 2-GDP" in sentence
    assert "we can show μ ≥" in sentence
    facts = dict(mechanism_facts(result))
    assert "ε claimed" not in facts
    assert facts["μ claimed"] == "2"
    assert facts["ε that the claimed μ implies"].endswith("at δ = 1e-05")


GAUSSIAN = (
    "numpy:normal",
    "numpy:legacy-normal:scale=3",
    "opendp:gaussian",
    "opendp:discrete-gaussian",
    "gaussian:sigma=2",
    "secure-gaussian",
    "discrete-gaussian",
    "polar",
    "stdlib:gauss",
    "diffprivlib:Gaussian:epsilon=1,delta=1e-5",
    "tmlt-core:gaussian",
)


@pytest.mark.parametrize("name", GAUSSIAN)
def test_gaussian_noise_at_delta_0_is_refused_before_anything_is_drawn(monkeypatch, name):
    def drawn(*args, **options):
        raise AssertionError("something was drawn")

    monkeypatch.setattr("dpaudit.audit.epsilon.run.open_mechanism", drawn)
    pytest.importorskip("torch")
    with pytest.raises(UsageError, match="is not \\(ε, 0\\)-DP for any ε; give --claim-delta"):
        audit_mechanism(name, neighbours=(0, 1), epsilon=1)
    for claim in ({"epsilon": 1, "delta": 1e-5}, {"mu": 1}):
        with pytest.raises(AssertionError, match="something was drawn"):
            audit_mechanism(name, neighbours=(0, 1), **claim)


def test_the_refusal_is_a_usage_error_of_one_line():
    done = dpaudit("mechanism", "numpy:normal", "--neighbours=0,1", "--claim-epsilon=1")
    assert (done.returncode, done.stdout) == (2, "")
    assert len(done.stderr.splitlines()) == 1
    assert "claim-delta=0: numpy:normal adds Gaussian noise" in done.stderr
    none = dpaudit("mechanism", "numpy:laplace", "--neighbours=0,1")
    assert none.returncode == 2
    assert "--claim-mu 1" in none.stderr


@pytest.mark.parametrize(
    ("name", "law"),
    [
        ("numpy:laplace:scale=2", "laplace:scale=2"),
        ("numpy:normal:scale=2", "gaussian:sigma=2"),
        ("snapping", None),
        ("opendp:bounded-sum:epsilon=1,lower=0,upper=1", None),
        ("python:./noise.py:normal", None),
        ("command:./noise", None),
        ("http://127.0.0.1:1/x", None),
        ("nobody:knows", None),
    ],
)
def test_the_declared_law(name, law):
    found = declared_law(name)
    assert found == law or (name == "snapping" and found.startswith("laplace:"))


def test_other_distributions_sources_are_not_imported_for_it(monkeypatch):
    plugins = dict(registry.plugins("sources"))
    plugins["gaussian"] = dataclasses.replace(
        plugins["gaussian"],
        origin=dataclasses.replace(plugins["gaussian"].origin, distribution="theirs"),
    )
    monkeypatch.setattr(registry, "plugins", lambda kind: plugins)
    monkeypatch.setattr(registry, "create", lambda *args: pytest.fail("was imported"))
    assert declared_law("gaussian:sigma=1") is None
