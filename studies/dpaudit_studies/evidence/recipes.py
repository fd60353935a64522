"""Public training recipes, the seeds in their source, and which noise follows from them.

``python -m dpaudit_studies.evidence.recipes`` reads ``docs/studies/results/recipes/rows.toml``,
runs the reproducer in ``docs/disclosures/`` that a row names, and prints the rows: project, recipe,
where its seed is, whether that is the default, and how many values of a gradient or of the noise
someone with the source alone has right in the first step. A reproducer runs in the Python of
``--python``, which needs that library and not dpaudit; where it is not installed the row is not
run. ``--sources FOLDER`` first compares each quoted line with the repositories in it (work trees
FOLDER/OWNER+NAME, or their git folders in it, named ``repo``). ``--write`` keeps the results if
all were run.

Not claimed: that a model was trained on private data by such a recipe.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dpaudit.errors import SpecError
from dpaudit_studies.evidence import MACHINE, RESULTS, ROOT, options, write

FOLDER = RESULTS / "recipes"
SCRIPTS = ROOT / "docs" / "disclosures"
LIBRARIES = "torch opacus jax jax-privacy keras numpy transformers fastDP private-transformers pfl"
PRINTED = re.compile(r"^(?P<label>.+): (?P<right>\d+) of (?P<of>\d+) values", re.MULTILINE)
LONGEST = 300.0
VERSIONS = f"""
import json
from importlib.metadata import distributions
found = {{name: d.version for name in {LIBRARIES.split()} for d in distributions(name=name)}}
print(json.dumps(found))
"""

Row = Mapping[str, Any]
Counts = dict[str, tuple[int, int]]
"""By label of a reproducer: values that are right, of how many."""


def read_rows() -> list[dict[str, Any]]:
    """The rows of ``rows.toml``, in order."""
    rows: list[dict[str, Any]] = tomllib.loads((FOLDER / "rows.toml").read_text("utf-8"))["row"]
    return rows


def check_lines(row: Row, sources: Path) -> int:
    """Compare each line that a row quotes with the source, and count them.

    Raises:
        SpecError: the line has another text in the row's commit, or the repository is not there.
    """
    places = [*row["seeds"], *row["noise"]]
    folder = sources / row["repository"].replace("/", "+")
    folder = folder / "repo" if (folder / "repo").is_dir() else folder
    for place in places:
        command = ["git", "-C", str(folder), "show", f"{row['commit']}:{place['path']}"]
        shown = subprocess.run(command, capture_output=True, text=True, check=False)
        lines = shown.stdout.splitlines()[place["line"] - 1 :][:1]
        if shown.returncode or not lines or place["text"] not in lines[0]:
            where = f"{row['repository']}@{row['commit'][:7]}:{place['path']}:{place['line']}"
            raise SpecError(f"place={where}: must have {place['text']!r}; correct rows.toml")
    return len(places)


def run_script(name: str, python: str) -> Counts:
    """What a reproducer prints; nothing if a library that it imports is not installed.

    Raises:
        SpecError: it failed otherwise, or printed no count.
    """
    command = [python, "-W", "ignore", str(SCRIPTS / f"{name}.py")]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=LONGEST, check=False)
    if "ModuleNotFoundError" in ran.stderr:
        return {}
    found = {m["label"]: (int(m["right"]), int(m["of"])) for m in PRINTED.finditer(ran.stdout)}
    if ran.returncode or not found:
        raise SpecError(f"script={name}: failed; run it by hand: {ran.stderr.strip()[-300:]}")
    return found


def row_text(row: Row) -> str:
    """One line of text for a row."""
    places = " ".join(f"{place['path']}:{place['line']}" for place in row["seeds"])
    right = row["right"]
    ran = "not run" if right is None else f"{right[0]:,} of {right[1]:,} values"
    ran = "-" if row["default"].startswith("no") else ran
    return f"{row['project']} | {row['seed']} | {places or '-'} | {row['default']} | {ran}"


def main() -> None:
    chosen = options(__doc__, python=sys.executable, sources=Path, write=False)
    rows = read_rows()
    if chosen.sources:
        lines = sum(check_lines(row, chosen.sources) for row in rows)
        print(f"{lines} quoted lines are in the sources", file=sys.stderr)
    names = sorted({row["script"] for row in rows if "script" in row})
    runs = {name: run_script(name, chosen.python) for name in names}
    for row in rows:
        row["right"] = runs.get(row.get("script", ""), {}).get(row.get("label", ""))
        print(row_text(row))
    for name, counts in runs.items():
        print(name, counts or "not run: its library is not installed", file=sys.stderr)
    if chosen.write and all(runs.values()):
        found = subprocess.run([chosen.python, "-c", VERSIONS], capture_output=True, check=True)
        document = {"machine": MACHINE, "versions": json.loads(found.stdout), "runs": runs}
        write(FOLDER / "results.json", {**document, "rows": rows})


if __name__ == "__main__":
    main()
