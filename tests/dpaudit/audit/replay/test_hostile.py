"""Hostile pipelines: none passes in silence, ends the auditor, or takes longer than it may."""

import pytest
from support import hostile_insiders, hostile_pipelines
from support.hostile_pipelines import EXPECTED

from dpaudit import replay
from dpaudit.errors import DpauditError

DATA = [
    {"age": 34, "city": "Bonn"}, {"age": 51, "city": "Graz"}, {"age": 28, "city": "Bonn"},
    {"age": 67, "city": "Wien"}, {"age": 45, "city": "Graz"},
]  # fmt: skip
HOW = {
    "pairs": 4, "seed": "1", "form": "records", "epsilon": 1.0,
    "bounds": {"age": (0, 100), "city": ["Bonn", "Graz", "Wien"]},
}  # fmt: skip
LIMITS = {"hangs": 3.0, "sleeps": 3.0, "signals": 3.0, "generates_forever": 3.0, "huge": 60.0,
          "recurses_natively": 3.0, "huge_and_noised_list": 6.0, "huge_list": 20.0}  # fmt: skip
_OPAQUE = "values._foreign_leaves: a value of unknown parts is compared by its type alone"
_BELOW = "watch.watching: only sys.stdout is kept, not what descriptors 1 and 2 get"
_FIRST = "watch.summary: only the first 64 KiB are compared"
_BASE = "values.base trusts the value's own _dpaudit_plain, and dict methods of its class"
_STATE = "server.Run: what a run leaves in its module is not named"
_OURS = "server.Pipeline: a pipeline that imports our package is not named"
WEAK = {
    "edits_the_tape": _OURS,
    "behaves_if_watched": _OURS,
    "needs_memory_and_says_so": "server._about runs the pipeline without _limit_memory",
    "raises_base": "server.Run catches Exception, and not BaseException",
    "floods_with_data": _FIRST,
    "writes_much": _FIRST,
    "writes_below": _BELOW,
    "writes_stderr": _BELOW,
    "writes_and_removes": "watch.summary: a file that is gone is not named",
    "writes_by_descriptor": "watch._audit: os.open has flags and no mode",
    "hostile_slots": _OPAQUE,
    "same_text": _OPAQUE,
    "long_text": _OPAQUE,
    "nested_generator": _OPAQUE,
    "returns_function": _OPAQUE,
    "asynchronous": _OPAQUE,
    "lying_number": _BASE,
    "lying_dict": _BASE,
    "keeps": _STATE,
    "keeps_noise": _STATE,
}
"""Pipelines that pass in silence, or end with an error of ours, and the cause."""


def _said(name):
    """The verdict and all that is said; a refusal is an error with a message."""
    function = getattr(hostile_pipelines, name, None) or getattr(hostile_insiders, name)
    try:
        result = replay(function, DATA, **HOW, time_limit=LIMITS.get(name, 20.0))
    except DpauditError as error:
        return "refused", str(error)
    says = [f"{d.path} {d.says}" for d in result.divergences]
    return result.verdict, "\n".join([result.reason, *result.unseen, *result.advice, *says])


def _case(name):
    mark = pytest.mark.xfail(strict=True, reason=WEAK.get(name, ""))
    return pytest.param(name, marks=[mark] if name in WEAK else [])


@pytest.mark.slow
@pytest.mark.parametrize("name", [_case(name) for name in EXPECTED])
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
