"""The tables of measured results in the documents, built from `docs/studies/results/`.

A table between `<!-- NAME -->` and `<!-- end -->` on a page has the rows that `TABLES[NAME]()`
yields, under a head of its own, and below them the commits of the results that they are from.
`PYTHONPATH=docs/studies python -m result_tables` writes them all anew.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from evidence.code import ROOT
from evidence.plan import RESULTS
from evidence.record import Record

from result_tables import (
    audits,
    defences,
    deployments,
    folders,
    ftrl,
    histories,
    keyless,
    nonces,
    one_run,
    pancake,
    papers,
    proofs,
    replays,
    sequential,
)
from result_tables.reading import READ

__all__ = ["MARKED", "PAGES", "TABLES", "written", "wrong_rows"]

PAGES: tuple[Path, ...] = (
    ROOT / "README.md",
    *sorted((ROOT / "docs" / "studies").glob("*.md")),
    RESULTS / "README.md",
)
MARKED = re.compile(
    r"(<!-- ([\w-]+) -->\n\|.*\n\|[-|: ]+\n)((?:\|.*\n)*)((?:\n.+\n)?\n?<!-- end -->)"
)
TABLES: Mapping[str, Callable[[], Iterator[str]]] = {
    "bpia": papers.bpia,
    "census-files": deployments.census_files,
    "dp-ftrl-audit": ftrl.audit,
    "folders": folders.folders,
    "gpm": pancake.published,
    "gpm-differs": pancake.differs,
    "gpm-gradients": pancake.gradients,
    "gpm-print": pancake.in_print,
    "gpm-runs": pancake.runs,
    "history": histories.bad,
    "keyless-frontier": keyless.frontier,
    "libraries": audits.libraries,
    "next-batch": defences.next_batch,
    "other-batteries": audits.batteries,
    "one-run": one_run.shown,
    "one-run-errors": one_run.errors,
    "opacus-replay": defences.opacus_replay,
    "pools": papers.pools,
    "proved-opendp": proofs.opendp,
    "proved-sampled": proofs.sampled,
    "predictable": audits.predictable,
    "public-seeds": audits.public_seeds,
    "replay-cases": replays.cases,
    "replay-catalogue": replays.catalogue,
    "replay-current": replays.current,
    "replay-published": replays.published,
    "seeded": defences.seeded,
    "seeds": defences.seeds,
    "sequential-price": sequential.price,
    "sequential-small": sequential.small,
    "sequential-until": sequential.until,
    "short-nonces": nonces.short,
    "synthetic": audits.synthetic,
    "training": defences.training,
    "zoo": audits.zoo,
}


@functools.cache
def _table(name: str) -> tuple[tuple[str, ...], str]:
    """Its rows, and the commits of the studies that were read for them."""
    READ.clear()
    rows = tuple(TABLES[name]())
    by: dict[str, list[str]] = {}
    for study in sorted(READ):
        record = Record.of(study)
        at = f"commit {record.commit}, {record.day}" if record else "before commits were recorded"
        by.setdefault(at, []).append(study)
    if not by:
        return rows, ""
    said = "; ".join(at if len(by) == 1 else f"{', '.join(of)}: {at}" for at, of in by.items())
    return rows, f"\n*Results: {said}.*\n"


def wrong_rows(page: str) -> list[str]:
    """Rows of marked tables that the results do not give, and rows that the page lacks."""
    wrong = []
    for _, name, body, _ in MARKED.findall(page):
        shown, want = body.splitlines(), list(_table(name)[0])
        wrong += [f"{name}: shown {row}" for row in shown if row not in want]
        wrong += [f"{name}: lacks {row}" for row in want if row not in shown]
        if not wrong and shown != want:
            wrong.append(f"{name}: another order, or a row twice")
    return wrong


def written(page: str) -> str:
    """The page with every marked table as the results have it."""

    def anew(found: re.Match[str]) -> str:
        rows, said = _table(found[2])
        return "\n".join([found[1] + "\n".join(rows), said, "<!-- end -->"])

    return MARKED.sub(anew, page)
