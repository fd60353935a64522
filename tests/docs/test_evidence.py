"""`make evidence`: what makes a result stale, and what a run leaves."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from evidence import code, plan, record, running
from evidence.__main__ import status
from evidence.changes import changes
from evidence.plan import Study


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    """A checkout of its own: a module with a table, and a script that uses both."""
    files = {
        "constraints.txt": "# pins\nnumpy==2.0\nnumpy==1.0; python_version < '3'\n",
        "tool/__init__.py": "",
        "tool/used.py": '"""Doc."""\n\n\ndef two():\n    """Doc."""\n    return 2  # why\n',
        "tool/unused.py": "ONE = 1\n",
        "tool/table.toml": "a = 1\n",
        "study.py": "import sys\nfrom pathlib import Path\nfrom tool.used import two\n"
        "Path('tool/table.toml').read_text()\nPath('tool/unused.py').read_text()\n"
        "Path(sys.argv[1], 'results.json').write_text(str(two()))\n",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    for module in (code, plan, record, running):
        monkeypatch.setattr(module, "ROOT", tmp_path)
    for module in (plan, record, sys.modules["evidence.changes"]):
        monkeypatch.setattr(module, "RESULTS", tmp_path / "docs" / "studies" / "results")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    for cached in (code.file_hash, code.pins):
        cached.cache_clear()
    (tmp_path / ".gitignore").write_text("runs\n__pycache__\n")
    commit(tmp_path)
    yield tmp_path
    for cached in (code.file_hash, code.pins):
        cached.cache_clear()


def commit(folder):
    who = ("-c", "user.name=x", "-c", "user.email=x@example.org")
    if not (folder / ".git").exists():
        subprocess.run(("git", "init", "-q"), cwd=folder, check=True)
    subprocess.run(("git", "add", "-A"), cwd=folder, check=True)
    subprocess.run(("git", *who, "commit", "-qm", "x"), cwd=folder, check=True)


def study(*commands, **about):
    run = commands or (f"{sys.executable} study.py {{out}}",)
    return Study(name="tried", minutes=1, run=run, **about)


def reasons(of):
    code.file_hash.cache_clear()
    return list(record.stale(of, record.Record.of(of.name)))


def changed(checkout, name, text):
    (checkout / name).write_text(text)
    return reasons(study())


def test_a_run_notes_what_it_ran_and_opened_and_nothing_else(checkout):
    assert reasons(study()) == ["not yet run by make evidence"]
    assert running.run_stale([study()], jobs=1, budget=1) == 0
    kept = record.Record.of("tried")
    assert list(kept.files) == ["study.py", "tool/__init__.py", "tool/table.toml", "tool/used.py"]
    assert kept.commit == code.commit()
    assert (study().results / "results.json").read_text() == "2"
    assert reasons(study()) == []


def test_only_a_change_of_meaning_in_what_was_used_makes_a_result_stale(checkout):
    running.run_stale([study()], jobs=1, budget=1)
    used = (checkout / "tool/used.py").read_text()
    assert changed(checkout, "tool/unused.py", "ONE = 2\n") == []
    reworded = used.replace("Doc.", "Other.").replace("why", "")
    assert changed(checkout, "tool/used.py", reworded) == []
    assert changed(checkout, "tool/used.py", used.replace("2", "3")) == ["changed: tool/used.py"]
    assert changed(checkout, "tool/used.py", used) == []
    assert changed(checkout, "tool/table.toml", "a = 2\n") == ["changed: tool/table.toml"]
    (checkout / "tool/table.toml").unlink()
    (study().results / "results.json").unlink()
    assert reasons(study("true")) == [
        "the plan has other commands", "no results.json", "changed: tool/table.toml",
    ]  # fmt: skip


def test_another_version_of_a_library_makes_a_result_stale(checkout):
    kept = record.Record(
        commit="x", day="x", machine="x", cpu_minutes=1, run=list(study().run), files={},
        packages={"numpy": "1.0", "unpinned": "1"},
    )  # fmt: skip
    study().results.mkdir(parents=True)
    (study().results / "results.json").write_text("2")
    kept.write(study().results)
    assert reasons(study()) == ["numpy 1.0, now 2.0"]


@pytest.mark.parametrize("command", ["exit 3", "true", "touch {out}/results.json"])
def test_a_study_that_fails_or_leaves_nothing_stops_no_other(checkout, command, capsys):
    good = Study(name="good", minutes=2, run=study().run)
    assert running.run_stale([study(command), good], jobs=1, budget=1) == 1
    assert (record.Record.of("tried"), record.Record.of("good") is None) == (None, False)
    assert "not done: tried" in capsys.readouterr().out


def test_what_runs_alone_begins_after_all_others_have_ended(checkout):
    """Two that take a while, then one that would be cheapest: it writes when both have."""
    word = f"{sys.executable} -c ''; touch {{out}}/results.json; echo %s >> runs/order"
    slow = [Study(name=name, minutes=2, run=(f"sleep 1; {word % name}",)) for name in "ab"]
    alone = Study(name="alone", minutes=1, run=(word % "alone",), alone=True)
    assert running.run_stale([alone, *slow], jobs=2, budget=1) == 0
    order = (checkout / "runs" / "order").read_text().split()
    assert (sorted(order[:2]), order[2:]) == (["a", "b"], ["alone"])


def test_rows_of_other_code_are_not_gone_on_with(checkout):
    """A failed run goes on in its folder; after a commit of code it begins anew."""
    row = f"{sys.executable} -c ''; echo row >> {{out}}/results.json"
    row += "; test $(wc -l < {out}/results.json) = 2"
    assert running.run_stale([study(row)], jobs=1, budget=1) == 1
    assert running.run_stale([study(row)], jobs=1, budget=1) == 0
    (checkout / "tool/used.py").write_text("def two():\n    return 3\n")
    commit(checkout)
    (study().results / "evidence.json").unlink()
    assert running.run_stale([study(row)], jobs=1, budget=1) == 1


def test_what_is_missing_is_named_and_no_result_is_of_uncommitted_code(
    checkout, capsys, monkeypatch
):
    monkeypatch.setenv("DPAUDIT_DATA", str(checkout))
    monkeypatch.setenv("DPAUDIT_ENVS", str(checkout / "runs"))
    lacks = {"programs": "no-such-program", "variables": "NO_SUCH", "modules": "no_such"}
    lacks |= {"environments": "half-made", "data": "no.npz"}
    (checkout / "runs/half-made/bin").mkdir(parents=True)
    (checkout / "runs/half-made/bin/python").touch()
    lacking = study(**{kind: (name,) for kind, name in lacks.items()})
    assert running.run_stale([lacking], jobs=1, budget=1) == 1
    needs = "no-such-program, module no_such, variable NO_SUCH, environment half-made (half made: "
    needs += "make envs goes on), no.npz in DPAUDIT_DATA"
    assert f"left out: needs {needs}" in capsys.readouterr().out
    assert status([lacking]) == 1
    assert f"(needs {needs})" in capsys.readouterr().out
    (checkout / "tool/used.py").write_text("")
    with pytest.raises(SystemExit, match=r"tool/used\.py: not committed"):
        running.run_stale([study()], jobs=1, budget=1)


def test_outside_a_git_checkout_nothing_runs(checkout):
    shutil.rmtree(checkout / ".git")
    with pytest.raises(SystemExit, match="run this in a git checkout"):
        running.run_stale([study()], jobs=1, budget=1)
    assert not study().out.exists()


def test_the_plan_has_every_folder_of_results_and_nothing_unknown():
    planned = {row.name: row for row in plan.plan()}
    kept = {path.name for path in Path(plan.RESULTS).iterdir() if path.is_dir()}
    assert kept - planned.keys() == set()
    assert {name for name in planned.keys() - kept if not planned[name].gpu} == set()
    assert 1 <= sum(row.gpu for row in planned.values()) <= 3
    studies = code.ROOT / "studies" / "dpaudit_studies"
    for name, table in ("published", "specimens.toml"), ("current", "current/current.toml"):
        text = (studies / "replay" / table).read_text()
        asked = set(re.findall(r'^environment = "(?!main")(.*)"', text, re.MULTILINE))
        assert asked == set(planned[f"replay-{name}"].environments)
    asked = {name for row in planned.values() for name in row.environments}
    assert asked == {path.stem for path in (studies / "environments").glob("*.txt")}
    with pytest.raises(SystemExit, match=r"study=zoology: not in plan\.toml"):
        plan.chosen(["zoology"])


def test_verdicts_that_changed_are_listed(checkout):
    """By the settings of their grid, or by name; numbers that are no verdict do not count."""
    own, grid = study(), [{"settings": {"grid": {"case": "", "samples": 0}}}]
    rows = [{"case": "a", "samples": n, "found": True, "p": 0.1} for n in (1, 2)]
    for number in range(2):
        own.results.mkdir(parents=True, exist_ok=True)
        (own.results / "results.json").write_text(json.dumps({"cells": grid, "rows": rows}))
        rows[number] |= {"found": False, "p": 0.2}
        commit(checkout)
    assert list(changes(own, "HEAD")) == []
    assert list(changes(own, "HEAD~")) == ["tried: a, 1: found=True → found=False"]
    (own.results / "results.json").write_text(json.dumps({"rows": [{"name": "b", "ok": 1}]}))
    assert list(changes(own, "HEAD")) == [
        "tried: a, 1: found=False → no row",
        "tried: a, 2: found=True → no row",
        "tried: b: no row → ok=1",
    ]


def test_a_record_is_json_of_one_line_per_field(tmp_path):
    kept = record.Record(
        commit="a", day="b", machine="c", cpu_minutes=0.1, run=["d"], files={"e": "f"}, packages={}
    )
    kept.write(tmp_path)
    text = (tmp_path / "evidence.json").read_text()
    assert len(text.splitlines()) == 9
    assert record.Record(**json.loads(text)) == kept
