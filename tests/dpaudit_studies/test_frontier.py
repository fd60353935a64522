"""The map in the package is what the stored run measured."""

from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import pytest

from dpaudit.audit.power import read_table
from dpaudit.errors import UsageError
from dpaudit_studies.evidence import frontier, stored_rows


def stored(monkeypatch, name):
    """A folder of ``dpaudit run frontier`` with the rows that are kept of it."""
    rows = stored_rows("frontier")
    cells = [SimpleNamespace(settings={"grid": row}, outcome=row) for row in rows]
    store = SimpleNamespace(spec={"name": name}, results=lambda: cells)
    monkeypatch.setattr(frontier.Store, "read", lambda folder: nullcontext(store))
    return Path("runs") / name


def test_the_map_is_that_of_the_run(monkeypatch, tmp_path):
    folder = stored(monkeypatch, "frontier")
    assert tuple(frontier.read_points(folder)) == read_table()
    monkeypatch.setattr(frontier, "TABLE", tmp_path / "frontier.csv")
    monkeypatch.setattr("sys.argv", ["frontier", f"--run={folder}"])
    frontier.main()
    written, kept = (
        [line for line in path.read_text(encoding="utf-8").splitlines() if line[0] != "#"]
        for path in (tmp_path / "frontier.csv", frontier.ROOT / "dpaudit/audit/frontier.csv")
    )
    assert written == kept


def test_another_experiment_is_no_map(monkeypatch):
    with pytest.raises(UsageError, match="holds 'zoo', not a frontier"):
        list(frontier.read_points(stored(monkeypatch, "zoo")))
