"""Pancakes found without their key."""

from __future__ import annotations

from collections.abc import Iterator

from dpaudit.accounting.hardness import Measured, measured
from result_tables.reading import line, rows


def frontier() -> Iterator[str]:
    """What `dpaudit run keyless-frontier` and `dpaudit_studies.evidence.keyless_cells` found."""
    untold = {
        (row["d"], row["beta"]): (
            f"{round(row['found']['value'] * row['trials'])} of {row['trials']}",
            _seconds(row["all_cpu_seconds"]),
        )
        for row in rows("keyless-frontier")
        if not row["told"]
    }
    for cell in measured():
        if cell.source == "keyless-frontier":
            yield line(
                [
                    cell.dim,
                    f"{cell.beta:g}",
                    cell.rows,
                    cell.reduction,
                    _seconds(cell.seconds),
                    f"{cell.found} of {cell.keys}",
                    *_estimated(cell),
                    *untold.get((cell.dim, cell.beta), ("", "")),
                ]
            )


def _estimated(cell: Measured) -> list[object]:
    return [cell.estimated_block, _seconds(cell.estimated_seconds)]


def _seconds(seconds: float) -> str:
    text = f"{seconds:.2f}" if seconds < 0.995 else f"{seconds:.2g}"
    return text if seconds < 10 else f"{seconds:.0f}"
