"""More than a hundred right and wrong pipelines in the ways in which people add noise."""

import importlib.util
from pathlib import Path

import pytest

from dpaudit import replay

HERE = Path(__file__).parents[3] / "support" / "replay_cases"
pytestmark = pytest.mark.slow


KNOWN = {"count_dlaplace"}
"""False alarms that are known: a difference of two draws that C code makes a plain number."""
FILES = {group: sorted((HERE / group).glob("*.py")) for group in ("right", "planted")}


def _cases(path):
    spec = importlib.util.spec_from_file_location(f"{path.parent.name}_{path.stem}", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.CASES.items()


def _replayed(path, name, case):
    how = "replace" if case["adjacency"] == "replace" else "search"
    claim = {"delta": 0.0, **case["claim"]}
    return replay(
        f"python:{path}:{name}", case["data"], neighbours=how, pairs=20, seed="1",
        bounds=case.get("bounds"), time_limit=60, **claim,
    )  # fmt: skip


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("path", FILES["right"], ids=lambda path: path.stem)
def test_nothing_is_found_in_right_pipelines(path):
    verdicts = {name: _replayed(path, name, case).verdict for name, case in _cases(path)}
    assert {name for name, verdict in verdicts.items() if verdict != "no-finding"} == KNOWN & set(
        verdicts
    )


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("path", FILES["planted"], ids=lambda path: path.stem)
def test_planted_mistakes_are_found(path):
    missed = []
    for name, case in _cases(path):
        found = {d.kind for d in _replayed(path, name, case).findings}
        missed += [] if found & {case["expect"], *case.get("or", ())} else [name]
    assert missed == []
