"""The notebooks of the documentation run, and show the verdicts that are stored in them."""

from __future__ import annotations

import nbformat
import pytest
from nbclient.exceptions import CellExecutionError
from nbformat.v4 import new_code_cell, new_notebook
from notebooks import NOTEBOOKS, executed, verdicts

pytestmark = [pytest.mark.packaging, pytest.mark.timeout(600)]


def test_there_are_notebooks():
    assert {path.stem for path in NOTEBOOKS} == {
        "audit-a-sampler",
        "catch-a-backdoored-optimizer",
        "write-an-attack",
    }


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_shows_what_is_stored_in_it(path, tmp_path):
    stored = verdicts(nbformat.read(path, as_version=4))
    assert len(stored) >= 3
    again = f"if that is right: python tests/notebooks.py {path}"
    assert verdicts(executed(path, tmp_path)) == stored, again


def written(folder, *cells):
    path = folder / "own.ipynb"
    nbformat.write(new_notebook(cells=[new_code_cell(cell) for cell in cells]), path)
    return path


def test_a_cell_that_fails_and_another_verdict_are_noticed(tmp_path):
    with pytest.raises(CellExecutionError):
        executed(written(tmp_path, "1 / 0"), tmp_path)
    one, other = (
        verdicts(executed(written(tmp_path, f"print('{said} (p 0.1).')"), tmp_path))
        for said in ("Finding: tails contradict x", "No finding: nothing")
    )
    assert one == ["cell 0: Finding: tails contradict x "]
    assert other == ["cell 0: No finding: nothing "]


def test_the_bar_is_gone_after_an_audit_in_a_kernel(tmp_path):
    run = executed(
        written(
            tmp_path,
            "import dpaudit\n"
            "r = dpaudit.audit_sampler('numpy:normal', samples=1e5, alpha=1e-9, seed=1)\n"
            "print(r.verdict)",
        ),
        tmp_path,
    )
    assert [output.output_type for output in run.cells[0].outputs] == ["stream"]
