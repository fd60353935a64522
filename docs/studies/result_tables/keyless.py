"""Pancakes found without their key, and the estimate of what that takes."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from functools import cache
from statistics import median
from typing import Any

from dpaudit.accounting.hardness import REACH, Measured, blur, estimate, measured
from dpaudit_studies.evidence.hardness import paper
from result_tables.reading import RESULTS, interval, line, rows

TRIED_BEFORE = {
    (12, 0.1): "0.2 s",
    (16, 0.1): "1.6 s",
    (20, 0.1): "not found",
    (24, 0.1): "not found",
    (32, 0.01): "7 s",
    (48, 0.01): "70 s",
    (48, 0.001): "78 s",
    (48, 1e-05): "88 s",
    (64, 0.001): "70 s",
}
"""What the recipe that we started from reports for (d, β)."""
DIMS = (32, 48, 64, 96, 128, 192, 256, 384, 512)
BETAS = (1e-1, 1e-2, 1e-3, 1e-4, 1e-5, 1e-6, 1e-7, 1e-8)

_THIN = 1e-9  # a β that every form below blurs
READ_UP_TO = 0.225  # the widest β left at which the owner was measured to read
FORMS = {
    "float32": blur("float32") * math.sqrt(3),
    "float32, weights of 16 σ": 16 * blur("float32"),
    "float16": blur("float16"),
    "bfloat16": blur("bfloat16"),
    **{f"smoothed by {tau:g} σ": tau for tau in (1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 2e-2)},
    **{f"lattice of {step:g} σ": blur(step=step) for step in (1e-3, 1e-2)},
}
"""Standard deviation, in σ, that a form adds along w."""


def found() -> Iterator[str]:
    """What `dpaudit run keyless` and `keyless-far` found."""
    cells = {(cell.dim, cell.beta): cell for cell in measured() if cell.reducer == "fpylll"}
    results = [row for name in ("keyless", "keyless-far") for row in rows(name)]
    for row in sorted(results, key=lambda one: (one["d"], -one["beta"])):
        values = [
            row["d"],
            f"{row['beta']:g}",
            f"{row['rows']:,}",
            row["lattice_rows"],
            row["reduction"],
            _seconds(row["seconds"]),
            f"{round(row['found']['value'] * row['trials'])} of {row['trials']}",
            *_estimated(cells[row["d"], row["beta"]]),
        ]
        yield f"{line(values)} {TRIED_BEFORE.get((row['d'], row['beta']), '')} |"


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


def elsewhere() -> Iterator[str]:
    """What was measured outside this repository."""
    for cell in measured():
        if cell.source == "elsewhere":
            yield line(
                [
                    cell.dim,
                    f"{cell.beta:g}",
                    cell.rows,
                    cell.reduction,
                    _seconds(cell.seconds),
                    "yes" if cell.found else "no",
                    cell.estimated_block,
                ]
            )


def variants() -> Iterator[str]:
    """Other forms of noise and other guesses, by `dpaudit_studies.evidence.keyless_cells`."""
    path = RESULTS / "keyless-frontier" / "variants.json"
    cells: dict[tuple[object, ...], list[Mapping[str, Any]]] = {}
    for point in json.loads(path.read_text(encoding="utf-8")):
        root = math.sqrt(point["d"])
        name = [
            _form(point),
            point["d"],
            f"{point['beta']:g}",
            f"{point['searched_beta']:g}",
            *(f"{point[key] / root:.3g}" for key in ("gamma", "searched_gamma")),
        ]
        cells.setdefault(tuple(name), []).append(point)
    for name, points in cells.items():
        found = [point for point in points if point["found"]]
        yield line(
            [
                *name,
                max(point["n"] for point in points),
                max(points, key=lambda point: point["cpu_seconds"])["reduction"],
                _seconds(median(point["cpu_seconds"] for point in points)),
                f"{len(found)} of {len(points)}",
            ]
        )


def _form(point: Mapping[str, Any]) -> str:
    if point["directions"] > 1:
        return f"{point['directions']} directions"
    if point["differences"]:
        return "differences of two releases"
    return f"lattice of {point['step']:g} σ" if point["step"] else str(point["dtype"])


def searched() -> Iterator[str]:
    """What `dpaudit run keyless-precision` searched."""
    for row in rows("keyless-precision"):
        if row["searched"]:
            yield line(
                [
                    *_release(row),
                    f"{row['told_beta']:.2g}",
                    interval(row["success"]),
                    f"{row['found']} of {row['searched']}",
                    row["up_to"],
                    _seconds(row["seconds"]),
                    f"{row['log2_operations']:.0f}",
                ]
            )


def owner() -> Iterator[str]:
    """What `dpaudit run keyless-precision` asked the owner alone."""
    for row in rows("keyless-precision"):
        if not row["searched"]:
            yield line([*_release(row), f"{row['owner_beta']:.2g}", interval(row["success"])])


def covert() -> Iterator[str]:
    """From which d no β is found in 2^64 operations, and up to which d the owner reads."""
    for form, b in FORMS.items():
        hidden = next(
            d
            for d in range(8, 4096)
            if estimate(d, _THIN, 2 * math.sqrt(d), tau=b).log2_operations > REACH
        )
        yield line([form, f"{b:.2g}", hidden, _about((READ_UP_TO / (2 * b)) ** 2)])


def _about(d: float) -> str:
    return f"{float(f'{d:.2g}'):,.0f}" if d < 1e6 else "over a million"


def _release(row: Mapping[str, Any]) -> list[str]:
    return [row["form"], f"{row['d']:,}", f"{row['beta']:g}"]


@cache
def _map() -> tuple[str, ...]:
    return tuple(
        line([d, *(f"{estimate(d, b, 2 * math.sqrt(d)).log2_operations:.0f}" for b in BETAS)])
        for d in DIMS
    )


def bits() -> Iterator[str]:
    """The estimate by dimension and β at γ = 2√d."""
    yield from _map()


@cache
def _paper() -> tuple[tuple[str, ...], tuple[str, ...]]:
    small, large = [], []
    groups: dict[tuple[str, str, int, str], list[float]] = {}
    for row in paper():
        log2 = row["log2_operations"]
        if row["dim"] == 256:
            values = [row["gamma"], f"{row['beta']:g}", f"{row['rows']:,}", f"{row['block']:,}"]
            small.append(line([*values, f"{row['log2_core_svp']:.0f}", f"{log2:.0f}"]))
        else:
            name = (row["where"], row["what"], row["dim"], row["gamma"])
            groups.setdefault(name, []).append(log2)
    for (where, what, dim, gamma), log2 in groups.items():
        large.append(line([where, what, f"{dim:,}", gamma, _span(min(log2)), _span(max(log2))]))
    return tuple(small), tuple(large)


def paper_small() -> Iterator[str]:
    """The paper's settings in 256 dimensions."""
    yield from _paper()[0]


def paper_large() -> Iterator[str]:
    """The paper's other settings, from the smallest β to the largest."""
    yield from _paper()[1]


def _span(log2: float) -> str:
    return f"{log2:,.0f}" if log2 < 1e6 else f"{log2 / 1e6:.1f} million"


def _estimated(cell: Measured) -> list[object]:
    return [cell.estimated_block, _seconds(cell.estimated_seconds)]


def _seconds(seconds: float) -> str:
    text = f"{seconds:.2f}" if seconds < 0.995 else f"{seconds:.2g}"
    return text if seconds < 10 else f"{seconds:.0f}"
