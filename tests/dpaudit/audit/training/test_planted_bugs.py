"""Bugs planted in a small DP-SGD: each is found at the level that the documents name."""

import pytest

pytest.importorskip("dp_accounting")

bugs = pytest.importorskip("dpaudit_studies.evidence.training_bugs")

HONEST = "none (honest)"


def test_the_claim():
    assert bugs.DpSgd.parse(bugs.CLAIM).epsilon(1e-5) == pytest.approx(2.13, abs=0.01)


@pytest.mark.slow
@pytest.mark.parametrize("name", [HONEST, "no clipping", "no noise when accumulating"])
def test_by_the_weights_of_a_few_runs(name):
    result = bugs.run_level(bugs.BUGS[name], bugs.by_weights, 2, 1)
    assert (result.verdict == "finding") == (name != HONEST)


@pytest.mark.slow
@pytest.mark.parametrize("name", [HONEST, "clipping after averaging", "BatchNorm across records"])
def test_by_one_canary_in_many_runs(name):
    result = bugs.run_level(bugs.BUGS[name], bugs.by_weights, 1_000, 1, 1)
    assert (result.verdict == "finding") == (name != HONEST)


@pytest.mark.slow
@pytest.mark.parametrize("name", [HONEST, "the same noise each step", "noise seeded per epoch"])
def test_by_the_gradients_of_all_steps(name):
    result = bugs.run_level(bugs.BUGS[name], bugs.by_steps, 1, 1)
    assert (result.verdict == "finding") == (name != HONEST)


@pytest.mark.parametrize("name", [HONEST, "shuffled, not Poisson"])
def test_by_the_loader(name):
    assert (bugs.loader_level(bugs.BUGS[name], 1) == "finding") == (name != HONEST)


@pytest.mark.slow
def test_by_a_step():
    pytest.importorskip("opacus")
    assert bugs.step_level("divided by the true batch size", 1) == "finding"
