"""Replays of pipelines of libraries: their mechanisms are primitives with what they state."""

from pathlib import Path

import pytest

from dpaudit import replay

CURRENT = Path(__file__).parents[4] / "studies" / "dpaudit_studies" / "replay" / "current"
HOW = {
    "pairs": 12, "seed": "1", "form": "records", "time_limit": 120,
    "bounds": "age=0:100;income=0:100;city=Bonn|Graz|Wien",
}  # fmt: skip
pytestmark = pytest.mark.slow


def _replayed(file, function, epsilon, delta=0.0, neighbours="search"):
    target = f"python:{CURRENT / file}.py:{function}"
    return replay(
        target, CURRENT / "people.csv", epsilon=epsilon, delta=delta, neighbours=neighbours, **HOW
    )


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("library", "file", "function", "epsilon", "delta", "spent"),
    [
        ("pipeline_dp", "pipelinedp_public", "run", 1.0, 0.0, 1.0),
        ("pipeline_dp", "pipelinedp_private", "run", 6.0, 1e-5, None),
        ("pydp", "pydp_aggregates", "run", 3.0, 0.0, 3.0),
        ("opendp", "opendp_context", "run", 1.0, 0.0, 1.0),
        ("opendp", "opendp_chains", "histogram", 1.0, 0.0, 1.0),
        ("snsql", "smartnoise_sql", "by_city", 2.0, 1.5e-6, 2.0),
    ],
)
def test_nothing_is_found_in_a_right_pipeline(library, file, function, epsilon, delta, spent):
    pytest.importorskip(library)
    result = _replayed(file, function, epsilon, delta)
    assert result.verdict == "no-finding"
    assert result.pairs >= 5
    if spent is not None:  # a pair costs what the library says, not nothing
        assert result.epsilon == pytest.approx(spent, rel=1e-3)


@pytest.mark.timeout(300)
def test_a_group_that_comes_or_goes_is_no_other_way_of_the_run():
    pytest.importorskip("pipeline_dp")
    result = _replayed("pipelinedp_private", "run", 6.0, 1e-5)
    assert {p.name for p in result.primitives} >= {"pydp.GaussianMechanism"}
    assert not [d for d in result.divergences if d.kind in ("control flow", "domain")]


@pytest.mark.timeout(300)
def test_groups_that_a_pipeline_selects_by_hand_are_no_finding():
    pytest.importorskip("pydp")
    result = _replayed("pydp_mechanisms", "run", 2.0, 1e-5)
    assert result.findings == []


@pytest.mark.timeout(300)
def test_a_record_that_is_changed_moves_clipped_gradients_twice_as_far():
    pytest.importorskip("opacus")
    result = _replayed("opacus_dpsgd", "run", 8.0, 1e-5, neighbours="replace")
    assert not [d for d in result.divergences if d.kind == "sensitivity"]
    assert result.epsilon > 0


@pytest.mark.timeout(300)
def test_an_empty_list_of_rows_is_an_error_of_pipeline_dp():
    pytest.importorskip("pipeline_dp")
    result = _replayed("pipelinedp_lists", "run", 1.0)
    assert {d.kind for d in result.findings} == {"exception"}


@pytest.mark.timeout(300)
def test_a_sum_that_moves_further_than_its_noise_is_for_is_found_in_diffprivlib():
    pytest.importorskip("diffprivlib")
    result = _replayed("diffprivlib_models", "birth_years", 1.0, neighbours="replace")
    found = [d for d in result.findings if d.kind == "sensitivity"]
    assert [d.name for d in found] == ["diffprivlib.LaplaceTruncated"]
    assert "library states 100" in found[0].says


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("pitfall", "kind"),
    [
        ("sensitivity_alignment", "budget"),
        ("public_metadata", "release"),
        ("gradient_accumulation", "control flow"),
        ("auxiliary_information", "release"),
        ("randomness", "seed"),
    ],
)
def test_a_pitfall_of_training_is_found(pitfall, kind):
    result = _replayed("pitfalls", pitfall, 2.6, 1e-5)
    assert kind in {d.kind for d in result.findings}


def test_training_without_a_pitfall_is_not_accused():
    result = _replayed("pitfalls", "right", 2.6, 1e-5)
    assert result.verdict == "no-finding"
    assert 2 < result.epsilon < 2.6
