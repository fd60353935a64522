"""Runs the notebooks of the documentation and reads their verdicts.

`python tests/notebooks.py FILE…` runs notebooks again and stores what they show.
"""

from __future__ import annotations

import re
import sys
import warnings
from pathlib import Path

import nbformat
from nbclient import NotebookClient

ROOT = Path(__file__).resolve().parents[1]
NOTEBOOKS = sorted((ROOT / "docs" / "notebooks").glob("*.ipynb"))
VERDICT = re.compile(r"(?:No finding|Finding|Inconclusive)[^(;\n]*|no-finding|finding|inconclusive")
LONGEST = 300  # seconds of a cell


def executed(path: Path, folder: Path) -> nbformat.NotebookNode:
    """The notebook with the outputs of a run in ``folder``; a cell that raises is an error."""
    notebook = nbformat.read(path, as_version=4)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        NotebookClient(
            notebook,
            timeout=LONGEST,
            coalesce_streams=True,
            resources={"metadata": {"path": str(folder)}},
        ).execute()
    return tidied(notebook)


def tidied(notebook: nbformat.NotebookNode) -> nbformat.NotebookNode:
    """Without removed bars, times and messages of the kernel."""
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)
        if cell.cell_type == "code":
            cell.outputs = [output for output in cell.outputs if _shows(output)]
    return notebook


def _shows(output: nbformat.NotebookNode) -> bool:
    if output.output_type == "stream":
        return output.name != "stderr"
    return any(output.get("data", {"error": "text"}).values())


def verdicts(notebook: nbformat.NotebookNode) -> list[str]:
    """The verdicts of all cells in order, with what they are about, without their numbers."""
    found = []
    for number, cell in enumerate(notebook.cells):
        for output in cell.get("outputs", ()):
            text = output.get("text") or output.get("data", {}).get("text/plain", "")
            found += [f"cell {number}: {word}" for word in VERDICT.findall(text)]
    return found


if __name__ == "__main__":
    for name in sys.argv[1:] or NOTEBOOKS:
        file = Path(name)
        nbformat.write(executed(file, file.resolve().parent), file)
        print(name, *verdicts(nbformat.read(file, as_version=4)), sep="\n  ")
