"""Hostile pipelines: none passes in silence, ends the auditor, or takes longer than it may."""

import pytest
from support import hostile_insiders, hostile_pipelines
from support.hostile_pipelines import EXPECTED
from support.right_pipelines import BOUNDS, DATA

from dpaudit import replay
from dpaudit.errors import DpauditError

HOW = {
    "pairs": 4, "seed": "1", "form": "records", "epsilon": 1.0,
    "bounds": BOUNDS,
}  # fmt: skip
LIMITS = {"hangs": 3.0, "sleeps": 3.0, "signals": 3.0, "generates_forever": 3.0, "huge": 60.0,
          "recurses_natively": 3.0, "huge_and_noised_list": 6.0, "huge_list": 20.0}  # fmt: skip


def _said(name):
    """The verdict and all that is said; a refusal is an error with a message."""
    function = getattr(hostile_pipelines, name, None) or getattr(hostile_insiders, name)
    try:
        result = replay(function, DATA, **HOW, time_limit=LIMITS.get(name, 20.0))
    except DpauditError as error:
        return "refused", str(error)
    says = [f"{d.path} {d.says}" for d in result.divergences]
    return result.verdict, "\n".join([result.reason, *result.unseen, *result.advice, *says])


@pytest.mark.slow
@pytest.mark.parametrize("name", EXPECTED)
def test_a_hostile_pipeline_is_refused_found_or_named(name, monkeypatch):
    monkeypatch.setattr("dpaudit.audit.replay.run._CONFIRMED", 0)
    verdict, said = _said(name)
    expected, word = EXPECTED[name]
    assert verdict in expected.split("|"), f"{verdict}: {said[:600]}"
    assert word in said
    assert "Traceback" not in said


@pytest.mark.slow
def test_control_characters_do_no_harm():
    result = replay(hostile_pipelines.escapes, DATA, **HOW)
    assert result.verdict == "no-finding"
    assert chr(27) not in str(result)


@pytest.mark.slow
def test_nothing_that_was_written_is_left(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    assert _said("writes_outside")[0] == "finding"
    assert not list(tmp_path.iterdir())
