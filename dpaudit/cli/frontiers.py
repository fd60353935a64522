"""``dpaudit frontier``."""

from __future__ import annotations

import csv
import io
from pathlib import Path

from dpaudit.audit.power import COLUMNS, frontier, measured_curves, parse, read_table
from dpaudit.cli.calibrating import calibration
from dpaudit.cli.verdicts import show as show_report
from dpaudit.cli.verdicts import write_result
from dpaudit.codec import to_dict
from dpaudit.errors import UsageError
from dpaudit.experiments.results import Column, MeasurementsResult
from dpaudit.provenance import collect
from dpaudit.report import describe
from dpaudit.results.files import write_file
from dpaudit.types import PowerPoint

__all__ = ["show"]

_COLUMN_WORDS = (
    Column(key="flaw", label="flaw", format="text"),
    Column(key="size", label="found nine times in ten", format="number"),
    Column(key="unit", label="unit", format="text"),
    Column(key="by", label="by", format="text"),
)


def show(
    *,
    dim: int | None,
    samples: float,
    seconds: float,
    table: Path | None,
    write: Path | None,
    out: Path | None,
    output: str,
    calibrate: bool = False,
    eta: float | None = None,
) -> None:
    """Print the map for one audit.

    ``table`` is a run of the experiment ``frontier``; ``write`` is where the map goes as CSV. With
    ``calibrate``, print instead the smoothing, to ``eta`` (default 1e-6), that covers what such an
    audit may miss.
    """
    if dim is not None and dim < 1:
        raise UsageError(f"dim={dim}: must be at least 1; leave it out if the auditor chooses")
    if not 1 <= samples <= 1e15:
        raise UsageError(f"samples={samples}: must be a number of values, e.g. 1e7")
    if not seconds >= 0:
        raise UsageError(f"seconds={seconds}: must be ≥ 0")
    if eta is not None and not calibrate:
        raise UsageError(f"eta={eta}: is for --calibrate only; add --calibrate")
    points = read_table() if table is None else _measured(table)
    if write is not None:
        try:
            _write(points, write)
        except OSError as error:
            raise UsageError(
                f"write={write}: cannot be written ({error.strerror}); choose another --write"
            ) from error
    here = frontier(dim=dim, samples=int(samples), table=points)
    if not here:
        least = min(p.samples for p in points)
        raise UsageError(f"samples={samples:g}: must be at least {least:,}, where the map begins")
    if calibrate:
        result = calibration(
            points, dim=dim, samples=int(samples), eta=1e-6 if eta is None else eta
        )
    else:
        result = _result(points, here, dim, int(samples), seconds)
    report = describe(result)
    if out is not None:
        write_result(report, out)
    show_report(report, output=output, out=out)


def _result(
    points: tuple[PowerPoint, ...],
    here: tuple[PowerPoint, ...],
    dim: int | None,
    samples: int,
    seconds: float,
) -> MeasurementsResult:
    """What one audit detects, as measurements, with the measured curves."""
    from dpaudit import registry

    rows = [to_dict(p) for p in here]
    reach = getattr(registry.load("tests", "keyless-search"), "reach", None)
    if reach is not None:
        rows += [
            {"flaw": s.flaw, "dim": dim or 0, "samples": samples}
            | {"size": s.size, "unit": s.unit, "by": s.test}
            for s in reach(dim=dim, seconds=seconds)
        ]
    flaws = {p.flaw for p in here}
    curves = [
        p for curve in measured_curves(points, dim=dim).values() for p in curve if p.flaw in flaws
    ]
    where = f"d = {dim}" if dim else "d chosen by the auditor"
    return MeasurementsResult(
        name="frontier",
        title=f"What an audit of {samples:,} values detects ({where}, α = 0.01)",
        story="Flaws of at least this size are found with probability 0.9 or more; smaller ones "
        "may pass. Measured by simulation (dpaudit run frontier); sizes between measured sample "
        "sizes are interpolated on logarithmic scales.",
        command=f"dpaudit frontier{f' --dim {dim}' if dim else ''} --samples {samples:g} "
        f"--seconds {seconds:g}",
        columns=_COLUMN_WORDS,
        figures=(),
        rows=tuple(rows),
        power=(*curves, *here),
        misses=(),
        summary=f"{len(rows)} kinds of flaw, each with the smallest size that {samples:,} values "
        "show nine times in ten.",
        cells=(),
        provenance=to_dict(collect(seed="none", plugins=())),
    )


def _measured(folder: Path) -> tuple[PowerPoint, ...]:
    from dpaudit.experiments import Store

    with Store.read(folder) as store:
        if store.spec.get("name") != "frontier":
            raise UsageError(
                f"table={folder}: holds {store.spec.get('name')!r}, not a frontier; "
                "run dpaudit run frontier --out DIR first"
            )
        results = store.results()
    lines = [",".join(COLUMNS)]
    for result in results:
        grid, outcome = result.settings["grid"], result.outcome
        if outcome["size"] is not None:
            size = float(f"{outcome['size']:.4g}")
            words = (grid["flaw"], grid["dim"], grid["samples"], size, outcome["unit"])
            found = (f"{outcome['found'][end]:.4f}" for end in ("low", "high"))
            lines.append(",".join(f'"{w}"' for w in (*words, outcome["by"], *found)))
    return parse(lines)


def _write(points: tuple[PowerPoint, ...], path: Path) -> None:
    here = collect(seed="as in the spec", plugins=())
    file = io.StringIO()
    file.write(
        "# dpaudit run frontier; "
        f"dpaudit frontier --table runs/frontier --write {path.name}\n# {here.hardware}\n"
    )
    rows = csv.DictWriter(file, COLUMNS, lineterminator="\n")
    rows.writeheader()
    rows.writerows(to_dict(p) for p in points)
    write_file(path, file.getvalue())
