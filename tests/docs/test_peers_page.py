"""docs/results/peers/README.md: its tables are those of the results files beside it."""

from __future__ import annotations

import json
import runpy
from typing import Any

import pytest
from result_tables.reading import ROOT

PEERS = ROOT / "docs" / "results" / "peers"
TABLES = runpy.run_path(str(ROOT / "benchmarks" / "peers_tables.py"))


def tool(epsilon: float, **more: Any) -> dict[str, Any]:
    return {"epsilon": epsilon, "seconds": 1.0, **more}


def row(ours: float, its: float, interval: tuple[float, float]) -> dict[str, Any]:
    about = {"name": "mean", "claim": 1.0, "delta": 0.0, "true": "2", "sound": False}
    answer = tool(its, ours_less=ours - its, interval=list(interval))
    return {**about, "dpaudit": tool(ours, delta=0.1), "dp-sniper": answer}


@pytest.mark.parametrize(
    ("interval", "told"),
    [((-0.3, -0.1), "DP-Sniper on mean by 0.20."), ((-0.3, 0.1), "none.")],
)
def test_a_peer_above_ours_by_more_than_the_interval_is_named(interval, told):
    rows = [row(1.5, 1.7, interval)]
    table = TABLES["catalogue_table"]({"samples": 1000, "alpha": 0.01, "rows": rows})
    assert f"more than the interval: {told}" in table
    assert f"**1.70** | 1.0 | -0.20 [{interval[0]:+.2f}, {interval[1]:+.2f}] |" in table


def test_text_between_markers_is_replaced_and_the_rest_stays(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("a\n<!-- x -->\n1\n<!-- end -->\nb\n<!-- y -->\n2\n<!-- end -->\nc\n")
    TABLES["written_between"](page, "y", "new")
    assert page.read_text() == (
        "a\n<!-- x -->\n1\n<!-- end -->\nb\n<!-- y -->\nnew\n<!-- end -->\nc\n"
    )


@pytest.mark.parametrize(("name", "of"), [("catalogue", "catalogue_table"), ("results", "tables")])
def test_the_page_shows_the_committed_results(name, of):
    document = json.loads((PEERS / f"{name}.json").read_text(encoding="utf-8"))
    assert TABLES[of](document) in (PEERS / "README.md").read_text(encoding="utf-8")
