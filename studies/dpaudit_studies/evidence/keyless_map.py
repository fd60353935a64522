"""The figure of (d, β) with contours of seconds: docs/studies/keyless-map.svg.

`python -m dpaudit_studies.evidence.keyless_map`. Contours are the estimate
(`dpaudit.accounting.hardness`), dots the cells that were measured with BLASter, with their CPU
seconds; crosses are those that were not found.
"""

from __future__ import annotations

import math
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure

from dpaudit.accounting.hardness import estimate, measured
from dpaudit_studies.evidence import ROOT

OUT = ROOT / "docs" / "studies" / "keyless-map.svg"
DIMS = np.arange(24, 297, 8)
BETAS = np.geomspace(1e-9, 0.2, 60)
CONTOURS = {1.0: "1 s", 10.0: "10 s", 60.0: "1 min", 3600.0: "1 h", 86400.0: "1 day"}
FIXED: Any = {"svg.hashsalt": "keyless-map", "svg.fonttype": "none", "font.size": 9}


def seconds(d: int, beta: float) -> float:
    """Of lattice reduction by the estimate; infinite where it is not expected to succeed."""
    lattice = estimate(d, beta, 2 * math.sqrt(d)).lattice
    return math.inf if lattice is None else lattice.seconds


def duration(seconds: float) -> str:
    """Seconds below 100, then minutes."""
    return f"{seconds:.2g} s" if seconds < 99.5 else f"{seconds / 60:.0f} min"


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
        reached = {(cell.dim, cell.beta) for cell in cells if cell.found}
        for cell in cells:
            if cell.found or (cell.dim, cell.beta) not in reached:
                mark = "o" if cell.found else "x"
                axes.plot(cell.dim, cell.beta, mark, color="#0b5394", markersize=5)
                side = -1 if cell.dim > DIMS[-6] else 1  # the last would leave the figure
                at = (cell.dim + 2 * side, cell.beta * 1.15)
                style: dict[str, Any] = {"ha": "left" if side > 0 else "right", "fontsize": 7.5}
                if cell.found and cell.clock == "CPU":
                    axes.annotate(duration(cell.seconds), at, color="#0b5394", **style)
        axes.plot(256, 1e-5, "D", color="#990000", markersize=6, markerfacecolor="none")
        axes.annotate(
            "the paper's smallest", (254, 2e-5), ha="right", fontsize=7.5, color="#990000"
        )
        axes.set(yscale="log", xlabel="d", ylabel="β", xlim=(24, 296), ylim=(3e-9, 0.2))
        figure.savefig(OUT, metadata={"Date": None})


if __name__ == "__main__":
    main()
