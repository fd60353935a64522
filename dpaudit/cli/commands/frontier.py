"""``dpaudit frontier``: the map of what an audit detects, and the smoothing for the rest."""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from dpaudit.cli.options import FormatOption, with_shared_options
from dpaudit.cli.out_folder import write_result
from dpaudit.cli.verdicts import show
from dpaudit.codec import convert_value, to_dict
from dpaudit.errors import UsageError
from dpaudit.options import Option, count_of
from dpaudit.report import describe

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from dpaudit.experiments.results import MeasurementsResult
    from dpaudit.types import PowerPoint

__all__ = ["frontier"]


@dataclass(frozen=True, slots=True, kw_only=True)
class FrontierFlags:
    """Options of ``dpaudit frontier``."""

    dim: Annotated[
        int | None,
        Option(
            "Values per vector; chosen by the auditor by default.",
            "N",
            read=functools.partial(count_of, name="dim", unit="values per vector", example="64"),
        ),
    ] = None
    samples: Annotated[
        int,
        Option(
            "Values that the audit draws, e.g. 1M or 1e6.",
            "N",
            default="1e7",
            read=functools.partial(count_of, unit="values", example="1e7"),
        ),
    ] = 10_000_000
    seconds: Annotated[float, Option("Seconds for the search for hidden directions.")] = 15
    out: Annotated[
        Path | None, Option("Also write report.html (with the figure) and result.json here.")
    ] = None
    calibrate: Annotated[
        bool, Option("Propose smoothing that covers the pancakes the audit may miss.")
    ] = False
    eta: Annotated[
        float | None,
        Option(
            "With --calibrate: how close to Gaussian the smoothed noise must be.", default="1e-6"
        ),
    ] = None


@with_shared_options
def frontier(*, flags: FrontierFlags, output: FormatOption = "text") -> None:
    """Show which flaws an audit of this size finds nine times in ten: the detectability map.

    What a pass cannot exclude comes from here. dpaudit run frontier measures
    the map again.

    [bold]Examples[/bold]

    $ dpaudit frontier --dim 64 --samples 1M --seconds 60
    $ dpaudit frontier --dim 64 --samples 1M --calibrate
    """
    from dpaudit.audit.power import frontier as reached
    from dpaudit.audit.power import read_table

    if not flags.seconds >= 0:
        raise UsageError(f"seconds={flags.seconds}: must be ≥ 0")
    if flags.eta is not None and not flags.calibrate:
        raise UsageError(f"eta={flags.eta}: is for --calibrate only; add --calibrate")
    points = read_table()
    here = reached(dim=flags.dim, samples=flags.samples, table=points)
    if not here:
        least = min(p.samples for p in points)
        raise UsageError(
            f"samples={flags.samples:g}: must be at least {least:,}, where the map begins"
        )
    result = _calibration(points, flags) if flags.calibrate else _detected(points, here, flags)
    report = describe(result)
    if flags.out is not None:
        write_result(report, flags.out)
    show(report, output=output, out=flags.out)


def _detected(
    points: tuple[PowerPoint, ...], here: tuple[PowerPoint, ...], flags: FrontierFlags
) -> MeasurementsResult:
    """What one audit detects, as measurements, with the measured curves."""
    from dpaudit import registry
    from dpaudit.audit.power import measured_curves

    dim, samples = flags.dim, flags.samples
    rows = [to_dict(p) for p in here]
    reach = getattr(registry.load("tests", "keyless-search"), "reach", None)
    if reach is not None:
        rows += [
            {"flaw": s.flaw, "dim": dim or 0, "samples": samples}
            | {"size": s.size, "unit": s.unit, "by": s.test}
            for s in reach(dim=dim, seconds=flags.seconds)
        ]
    flaws = {p.flaw for p in here}
    curves = [
        p for curve in measured_curves(points, dim=dim).values() for p in curve if p.flaw in flaws
    ]
    where = f"d = {dim}" if dim else "d chosen by the auditor"
    return _measurements(
        f"What an audit of {samples:,} values detects ({where}, α = 0.01)",
        "Flaws of at least this size are found with probability 0.9 or more; smaller ones "
        "may pass. Measured by simulation (dpaudit run frontier); sizes between measured sample "
        "sizes are interpolated on logarithmic scales.",
        command=f"dpaudit frontier{f' --dim {dim}' if dim else ''} --samples {samples:g} "
        f"--seconds {flags.seconds:g}",
        columns={
            "flaw": ("flaw", "text"),
            "size": ("found nine times in ten", "number"),
            "unit": ("unit", "text"),
            "by": ("by", "text"),
        },
        rows=rows,
        power=(*curves, *here),
        summary=f"{len(rows)} kinds of flaw, each with the smallest size that {samples:,} values "
        "show nine times in ten.",
    )


def _calibration(points: tuple[PowerPoint, ...], flags: FrontierFlags) -> MeasurementsResult:
    """The smoothing that covers what an audit may miss, with its ``proposal`` and ``caveats``."""
    from dpaudit.audit.power import propose_tau

    dim, samples, eta = flags.dim, flags.samples, 1e-6 if flags.eta is None else flags.eta
    threshold = propose_tau(points, dim=dim, samples=samples, eta=eta)
    where = f"d = {dim:,}" if dim else "d chosen by the auditor"
    statement = f"{threshold.says}.".replace("pancakes", "Pancakes", 1)
    return _measurements(
        f"Smoothing behind an audit of {samples:,} values ({where}, η = {eta:g})",
        "The first row covers what the audit may miss; "
        f"the others rest on the assumption in their first column. {' '.join(threshold.caveats)}",
        command=f"dpaudit frontier --calibrate --eta {eta:g}{f' --dim {dim}' if dim else ''} "
        f"--samples {samples:g}",
        columns={
            "assumes": ("assumption", "text"),
            "gamma_min": ("covers γ ≥", "number"),
            "tau": ("τ/σ", "number"),
            "l2_factor": ("L2 error ×", "number"),
            "by": ("by", "text"),
            "mitigation": ("mitigation", "text"),
        },
        rows=[
            {**to_dict(cover), "mitigation": f"smoothing:tau={_up(cover.tau):g}"}
            for cover in threshold.covers
        ],
        summary=statement.replace("no pancake", "No pancake", 1),
        proposal={k: v for k, v in to_dict(threshold).items() if k not in ("covers", "caveats")},
        caveats=tuple(threshold.caveats),
    )


def _up(tau: float) -> float:
    """Round up to four digits."""
    import math

    digit = 10.0 ** (math.floor(math.log10(tau)) - 3)
    return math.ceil(tau / digit - 1e-9) * digit


def _measurements(
    title: str,
    story: str,
    *,
    columns: Mapping[str, tuple[str, str]],
    rows: Sequence[Mapping[str, object]],
    **more: Any,
) -> MeasurementsResult:
    """A table of this command; ``columns`` are headings and formats by key."""
    from dpaudit.experiments.results import Column, measured_nothing
    from dpaudit.provenance import collect

    headers = [
        {"key": key, "label": label, "format": form} for key, (label, form) in columns.items()
    ]
    return replace(
        measured_nothing(convert_value(headers, tuple[Column, ...])),
        name="frontier",
        title=title,
        story=story,
        rows=tuple(rows),
        provenance=to_dict(collect(seed="none", plugins=())),
        **more,
    )
