"""The estimate of `dpaudit key hardness` compared with the searches that were measured.

`python -m dpaudit_studies.evidence.hardness` (a second): fits the two constants of seconds for each
reducer and prints the residuals, cell by cell. `--write` puts the cells of docs/studies/results/
into dpaudit/accounting/hardness.csv, and keeps those that were measured elsewhere. CPU seconds,
where a reducer has three cells or more of a second or more, are fitted alone.
"""

from __future__ import annotations

import csv
import io
import json
import math
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, fields
from itertools import groupby
from typing import Any

import numpy as np
import scipy

from dpaudit.accounting.hardness import Measured, entry_bits, estimate, measured, seconds_of
from dpaudit.noise.key import parse_gamma
from dpaudit_studies.evidence import RESULTS, ROOT, options, stored_rows

TABLE = ROOT / "dpaudit" / "accounting" / "hardness.csv"
RUNS = ("keyless", "keyless-far")
FRONTIER = "keyless-frontier"
HEAD = """\
# python -m dpaudit_studies.evidence.hardness --write
# from docs/studies/results/, and where source is `elsewhere` from one loaded core, one key each,
# BLASter 0.1.1, β told, 2026-11-22; seconds are wall time, those of keyless-frontier CPU time, to
# the key, or of all that was tried
"""

# arXiv 2509.23834: where, what, d, γ, β; a test compares them with the experiments' specs
_PAPER: tuple[tuple[str, str, int, tuple[str, ...], tuple[float, ...]], ...] = (
    *(("Figure 5", f"histogram, {bins:,} bins", bins, ("2sqrtd", "20sqrtd", "2d", "20d"),
       (1e-5, 1e-4, 1e-3, 1e-2, 1e-1)) for bins in (256, 4096, 65536)),
    ("Figure 6", "MNIST, LeNet-5", 61_706, ("2sqrtd", "20sqrtd", "200sqrtd"),
     tuple(2.0**-k for k in range(17, 9, -1))),
    *(("Table 2", f"CIFAR-10, {network}", weights, ("2sqrtd",), (1e-5, 1e-4, 1e-3))
      for network, weights in (("MobileNetV2", 2_236_682), ("ResNet-50", 23_520_842),
                               ("VGG-19", 38_958_922))),
)  # fmt: skip


def from_results(names: Sequence[str] = (*RUNS, FRONTIER)) -> Iterator[Measured]:
    """The found cells of the committed runs; of keyless-frontier with β told, by their CPU time."""
    for name in names:
        far = name == FRONTIER
        for row in stored_rows(name):
            if not (row["told"] and row["found"]["value"]):
                continue
            yield Measured(
                dim=row["d"],
                beta=row["beta"],
                gamma=row["gamma"],
                rows=row["lattice_rows"],
                reduction=_reduction(row) if far else row["reduction"],
                seconds=float(f"{row['cpu_seconds' if far else 'seconds']:.3g}"),
                found=round(row["found"]["value"] * row["trials"]),
                keys=row["trials"],
                reducer="BLASter" if far else "fpylll",
                source=name,
            )


def _reduction(row: Mapping[str, Any]) -> str:
    return str(row["reduction"]).replace("deep LLL", "4-deep-LLL")


def from_points() -> Iterator[Measured]:
    """The cells of :mod:`keyless_cells`: full precision, one direction, β and γ told."""
    path = RESULTS / FRONTIER / "points.json"
    plain = {"dtype": "float64", "step": 0, "differences": False, "directions": 1}
    cells: dict[tuple[Any, ...], list[Mapping[str, Any]]] = {}
    for point in json.loads(path.read_text()) if path.exists() else ():
        exact = (point["searched_beta"], point["searched_gamma"]) == (point["beta"], point["gamma"])
        if exact and plain.items() <= point.items():
            name = (point["d"], point["beta"], point["gamma"], point["n"], point["reducer"])
            cells.setdefault(name, []).append(point)
    for (dim, beta, gamma, n, reducer), points in cells.items():
        hits = [point for point in points if point["found"]]
        of = hits or points
        last = max(of, key=lambda point: point["block"])
        yield Measured(
            dim=dim,
            beta=beta,
            gamma=gamma,
            rows=n,
            reduction=_reduction(last),
            seconds=statistics.median(point["cpu_seconds"] for point in of),
            found=len(hits),
            keys=len(points),
            reducer={"blaster": "BLASter"}.get(reducer, reducer),
            source=FRONTIER,
        )


def fitted_to(cells: Sequence[Measured]) -> list[Measured]:
    """Those of one reducer that its constants are fitted to: of a second of CPU time or more."""
    by_cpu = [cell for cell in cells if cell.source == FRONTIER and cell.seconds >= 1]
    return by_cpu if len(by_cpu) >= 3 else list(cells)


def table(cells: Iterable[Measured]) -> str:
    """All cells as CSV."""
    out = io.StringIO()
    rows = csv.DictWriter(out, [f.name for f in fields(Measured)], lineterminator="\n")
    rows.writeheader()
    rows.writerows(asdict(c) for c in sorted(cells, key=lambda c: (c.dim, -c.beta, c.seconds)))
    return HEAD + out.getvalue()


def fit(cells: Sequence[Measured]) -> tuple[float, float]:
    """c₁ and c₂ with the least squared log-ratios of modelled to measured seconds."""

    def residuals(logs: Sequence[float]) -> list[float]:
        return [math.log2(modelled(cell, *np.exp(logs)) / cell.seconds) for cell in cells]

    first, second = np.exp(scipy.optimize.least_squares(residuals, [-1.0, -11.0]).x)
    return float(first), float(second)


def modelled(cell: Measured, first: float, second: float) -> float:
    bits = entry_bits(cell.beta / math.sqrt(2 * math.pi))
    return seconds_of(cell.rows, cell.block, bits=bits, first=first, second=second)


def off_by(cells: Sequence[Measured], first: float, second: float) -> float:
    """The factor that modelled seconds are off by: the root mean square of its logarithm."""
    logs = [math.log(modelled(cell, first, second) / cell.seconds) for cell in cells]
    return math.exp(math.sqrt(statistics.fmean(log * log for log in logs)))


def paper() -> Iterator[Mapping[str, Any]]:
    """The 93 settings of Figures 5 and 6 and Table 2 of arXiv 2509.23834, an estimate each."""
    for where, subject, dim, gammas, betas in _PAPER:
        for gamma in gammas:
            for beta in betas:
                estimated = estimate(dim, beta, parse_gamma(gamma, dim=dim))
                lattice = estimated.lattice
                yield {
                    "where": where,
                    "what": subject,
                    "dim": dim,
                    "gamma": gamma,
                    "beta": beta,
                    "attack": estimated.attack,
                    "rows": estimated.rows,
                    "block": estimated.block,
                    "log2_core_svp": None if lattice is None else lattice.log2_core_svp,
                    "log2_operations": estimated.log2_operations,
                    "within_reach": estimated.within_reach,
                }


def main() -> None:
    """Print the comparison, or write the table."""
    if options(__doc__, write=False).write:
        elsewhere = [cell for cell in measured() if cell.source == "elsewhere"]
        cells = [*from_results(), *from_points(), *elsewhere]
        TABLE.write_text(table(cells), encoding="utf-8")
    ordered = sorted(measured(), key=lambda c: (c.reducer, c.dim, -c.beta))
    for reducer, group in groupby(ordered, key=lambda c: c.reducer):
        own = list(group)
        first, second = fit(fitted_to(own))
        rms = math.log2(off_by(fitted_to(own), first, second))
        print(f"{reducer}: c1 = {first:.3g}, c2 = {second:.3g}, residual {rms:.2f} bits (rms)")
        print("    d      beta  rows  measured   found  block by (5)    seconds  modelled   bits")
        for cell in own:
            by, seconds = cell.estimated_block, modelled(cell, first, second)
            print(
                f"{cell.dim:5} {cell.beta:9.0e} {cell.rows:5}  {cell.reduction:10} "
                f"{cell.found}/{cell.keys}  {by or '-':>12}  {cell.seconds:9.3g} "
                f"{seconds:9.3g}  {math.log2(seconds / cell.seconds):+5.2f}"
            )


if __name__ == "__main__":
    main()
