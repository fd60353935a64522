"""The table of bugs found step by step is that of the committed results."""

from __future__ import annotations

import re

from evidence.code import ROOT
from evidence.plan import RESULTS


def cells(text: str) -> dict[str, list[str]]:
    rows = [line.strip("|").split("|") for line in text.splitlines() if line.startswith("| ")]
    return {row[0].strip(): [cell.strip() for cell in row[1:]] for row in rows}


def test_bugs_found_step_by_step() -> None:
    page = (ROOT / "docs" / "audit-your-training.md").read_text(encoding="utf-8")
    results = (RESULTS / "training-bugs" / "sequential.txt").read_text(encoding="utf-8")
    tables = [cells(part) for part in results.split("MNIST,", 1)]
    start = page.index("| bug | numpy | MNIST |")
    shown = cells(page[start : page.index("\n\n", start)])
    del shown["bug"]
    assert shown == {bug: [t[bug][0] for t in tables] for bug in tables[0] if bug != "bug"}
    assert len(shown) == 14
    counts = re.findall(r"found: (\d+) of 14 rows", results)
    assert f"{counts[0]} of 14 rows in numpy, {counts[1]} on MNIST" in page
