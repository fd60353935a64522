"""Right pipelines, in which nothing may be found, and pipelines with one mistake, which must be."""

import re

import pytest
from support.replay_run import HERE, replayed

FALSE_ALARMS: dict[str, str] = {}
"""Right pipelines in which something is found, and why."""
MISSES = {
    "numpy_scalar.drawn_until_positive": "1,000 releases do not show 1.5 ε",
    "selection.plays_as_scores": "the pair with the largest ε is none whose releases show it",
}
"""Mistakes that are not found, and why."""
QUICK = {
    "right": [
        "numpy_scalar.mean_of_two_queries", "numpy_scalar.second_query_if_many",
        "numpy_array.histogram_add_out", "numpy_array.largest_bin",
        "legacy_numpy.sum_exponential_difference", "legacy_numpy.count_geometric_difference",
        "stdlib.votes_as_json", "stdlib.votes_of_a_path", "inverse_cdf.sum_math_log",
        "local.hours_laplace", "selection.laplace_maximum", "selection.median_by_bisection",
    ],
    "planted": [
        "numpy_scalar.scale_of_the_range", "numpy_scalar.seed_fixed",
        "numpy_scalar.one_draw_for_two", "numpy_scalar.nothing_if_empty",
        "numpy_array.noise_on_a_copy", "numpy_array.length_of_the_largest_code",
        "numpy_array.first_bin_forgotten", "legacy_numpy.global_seed", "stdlib.truth_in_a_file",
        "stdlib.total_in_json", "local.answer_beside_the_noise", "selection.score_of_the_winner",
    ],
}  # fmt: skip


def _params(group, quick):
    known = FALSE_ALARMS if group == "right" else MISSES
    for path in sorted((HERE / group).glob("*.py")):
        table = path.read_text(encoding="utf-8").partition("CASES = {")[2]
        for name in re.findall(r'^    "(\w+)":', table, re.MULTILINE):
            case = f"{path.stem}.{name}"
            if (case in QUICK[group]) == quick:
                marks = [] if quick else [pytest.mark.slow]
                if case in known:
                    marks.append(pytest.mark.xfail(strict=True, reason=known[case]))
                yield pytest.param(path, name, id=case, marks=marks)


@pytest.mark.parametrize(("path", "name"), [*_params("right", True), *_params("right", False)])
def test_nothing_is_found_in_a_right_pipeline(path, name):
    one = replayed(path, name)
    assert (one["ok"], one["found"], one["pairs"]) == (True, [], 20), one["reason"]


@pytest.mark.parametrize(("path", "name"), [*_params("planted", True), *_params("planted", False)])
def test_a_planted_mistake_is_found(path, name, monkeypatch):
    if f"{path.stem}.{name}" in QUICK["planted"]:  # they need no new releases
        monkeypatch.setattr("dpaudit.audit.replay.run._CONFIRMED", 0)
    one = replayed(path, name)
    assert (one["verdict"], one["ok"]) == ("finding", True), one["found"]


def test_the_names_of_known_and_quick_cases_are_those_of_cases():
    for group, known in (("right", FALSE_ALARMS), ("planted", MISSES)):
        names = {p.id for quick in (True, False) for p in _params(group, quick)}
        assert {*known, *QUICK[group]} <= names
