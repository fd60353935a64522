"""studies/dpaudit_studies/evidence/recipes.py: quoted lines are compared, reproducers are run."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from dpaudit.errors import SpecError
from dpaudit_studies.evidence import recipes


def git(folder: Path, *words: str) -> str:
    who = ("-c", "user.name=a", "-c", "user.email=a@b")
    ran = subprocess.run(["git", *who, *words], cwd=folder, capture_output=True, check=True)
    return ran.stdout.decode().strip()


def test_rows_name_scripts_and_say_what_is_default() -> None:
    rows = recipes.read_rows()
    public = [row for row in rows if row["default"].startswith("yes")]
    assert sum(len(row["recipes"]) for row in public) >= 10
    assert all(row["seeds"] and row["needs"] for row in public)
    assert any(row["default"].startswith("no") for row in rows)
    for row in rows:
        assert len(row["commit"]) == 40
        assert row["noise"]
        assert "script" not in row or (recipes.SCRIPTS / f"{row['script']}.py").is_file()


@pytest.mark.parametrize("bare", [False, True])
def test_a_quoted_line_is_compared_with_the_commit_and_not_with_the_work_tree(tmp_path, bare):
    tree = tmp_path / "owner+name"
    tree.mkdir()
    git(tree, "init", "-q")
    (tree / "train.py").write_text("import torch\ntorch.manual_seed(7)\n")
    git(tree, "add", "train.py")
    git(tree, "commit", "-q", "-m", "a")
    commit = git(tree, "rev-parse", "HEAD")
    (tree / "train.py").write_text("")
    if bare:
        (tree / ".git").rename(tree / "repo")
    place = {"path": "train.py", "line": 2, "text": "manual_seed(7)"}
    row = {"repository": "owner/name", "commit": commit, "seeds": [place], "noise": [place]}
    assert recipes.check_lines(row, tmp_path) == 2
    wrong = ({"line": 1}, {"line": 3}, {"text": "manual_seed(8)"}, {"path": "other.py"})
    for change in wrong:
        with pytest.raises(SpecError, match=r"place=owner/name@.*must have"):
            recipes.check_lines({**row, "noise": [place | change]}, tmp_path)


@pytest.mark.parametrize(
    ("text", "counts"),
    [
        (
            "print('a: 3 of 4 values are read')\nprint('b: 0 of 4 values')",
            {"a": (3, 4), "b": (0, 4)},
        ),
        ("import a_library_that_is_not_there", {}),
        ("print('nothing')", None),
        ("print('a: 3 of 4 values are read')\nraise SystemExit(1)", None),
    ],
)
def test_a_reproducer_is_run_skipped_or_an_error(tmp_path, monkeypatch, text, counts):
    monkeypatch.setattr(recipes, "SCRIPTS", tmp_path)
    (tmp_path / "own.py").write_text(text)
    if counts is None:
        with pytest.raises(SpecError, match="script=own: failed"):
            recipes.run_script("own", sys.executable)
    else:
        assert recipes.run_script("own", sys.executable) == counts
