"""The figure of (d, β) with contours of seconds: docs/reproduce/keyless-map.svg.

`python benchmarks/keyless_map.py`. Contours are the estimate (`dpaudit.hardness`), dots the cells
that were measured with BLASter, with their CPU seconds; crosses are those that were not found.
"""

from __future__ import annotations

import math
from pathlib import Path

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure

from dpaudit.hardness import estimate, measured

OUT = Path(__file__).parents[1] / "docs" / "reproduce" / "keyless-map.svg"
DIMS = np.arange(24, 273, 8)
BETAS = np.geomspace(1e-9, 0.2, 60)
CONTOURS = {1.0: "1 s", 10.0: "10 s", 60.0: "1 min", 3600.0: "1 h", 86400.0: "1 day"}
FIXED = {"svg.hashsalt": "keyless-map", "svg.fonttype": "none", "font.size": 9}


def seconds(d: int, beta: float) -> float:
    """Of lattice reduction by the estimate; infinite where it is not expected to succeed."""
    lattice = estimate(d, beta, 2 * math.sqrt(d)).lattice
    return math.inf if lattice is None else lattice.seconds


def main() -> None:
    """Draw the figure."""
    values = np.array([[seconds(int(d), float(b)) for d in DIMS] for b in BETAS])
    with mpl.rc_context(FIXED):
        figure = Figure(figsize=(6.4, 4.2), layout="constrained")
        axes = figure.subplots()
        logs = np.log10(np.minimum(values, 1e30))
        lines = axes.contour(
            DIMS, BETAS, logs, levels=[math.log10(s) for s in CONTOURS], colors="0.5", linewidths=1
        )
        names = dict(zip(lines.levels, CONTOURS.values(), strict=True))
        axes.clabel(lines, fmt=names, fontsize=8)
        cells = [cell for cell in measured() if cell.reducer == "BLASter"]
        found = {(cell.dim, cell.beta) for cell in cells if cell.found}
        for cell in cells:
            if cell.found or (cell.dim, cell.beta) not in found:
                mark = "o" if cell.found else "x"
                axes.plot(cell.dim, cell.beta, mark, color="#0b5394", markersize=5)
                at = (cell.dim + 2, cell.beta * 1.15)
                if cell.found and cell.clock == "CPU":
                    axes.annotate(f"{cell.seconds:.2g} s", at, fontsize=7.5, color="#0b5394")
        axes.plot(256, 1e-5, "D", color="#990000", markersize=6, markerfacecolor="none")
        axes.annotate("the paper's smallest", (200, 1.6e-5), fontsize=7.5, color="#990000")
        axes.set(yscale="log", xlabel="d", ylabel="β", xlim=(24, 272), ylim=(3e-9, 0.2))
        figure.savefig(OUT, metadata={"Date": None})


if __name__ == "__main__":
    main()
