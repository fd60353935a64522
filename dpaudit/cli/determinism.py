"""``dpaudit prove library:PATH:SYMBOL --determinism``."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

import typer
from rich.text import Text

from dpaudit.cli.earlier import refuse_another
from dpaudit.cli.formats import without_earlier
from dpaudit.cli.output import emit, note, write_json_line
from dpaudit.cli.proving import command_of_proof
from dpaudit.cli.verdicts import printed, write_page
from dpaudit.documents import DeterminismDocument
from dpaudit.errors import UsageError
from dpaudit.prove.determinism.check import determinism
from dpaudit.provenance import identified
from dpaudit.results.text import one_line
from dpaudit.samplers.identity import identify
from dpaudit.types import DeterminismResult

__all__ = ["show_determinism"]

_TIME_LIMIT = 120.0
_EXIT = {"no-finding": 0, "finding": 1, "inconclusive": 3}
_VERDICT = {
    "no-finding": "No finding: in all runs, each value was a function of coins of its own",
    "finding": "Finding: a value is not a function of coins of its own",
    "inconclusive": "Inconclusive: something could not be controlled",
}


def show_determinism(program: str, *, time_limit: float, out: Path | None, output: str) -> NoReturn:
    """Run, print, write, and exit with the verdict's code."""
    kind, _, rest = program.partition(":")
    place, colon, symbol = rest.rpartition(":")
    if kind != "library" or not colon or not place or not symbol:
        raise UsageError(
            f"program={one_line(program)}: --determinism needs library:PATH:SYMBOL, a shared "
            "library; a Python program is proved without it"
        )
    limit = None if time_limit == _TIME_LIMIT else f"{time_limit:g}"
    command = command_of_proof(program, determinism=True, time_limit=limit)
    refuse_another(out, command)
    also, files = without_earlier((), out), identify(program).files
    result = determinism(Path(place), symbol, timeout=time_limit)
    made = replace(identified(result.provenance, by="", files=files), command=command)
    result = replace(result, provenance=made)
    document = DeterminismDocument(result=result)
    if out is not None:
        write_page(document, out, also=also)
    if output == "json":
        write_json_line(printed(document))
    else:
        for line in _lines(result):
            emit(Text(line))
        if out is not None:
            note(f"report: {out / 'report.html'}")
        emit(Text(f"{_VERDICT[result.verdict]}."))
    raise typer.Exit(_EXIT[result.verdict])


def _lines(result: DeterminismResult) -> Iterator[str]:
    asked = ", ".join(f"{name} ({count} times)" for name, count in result.sources.items())
    yield f"{result.runs:,} runs with chosen coins. In one run it asked for: {asked or 'nothing'}"
    for taken in result.coin_bytes:
        often = str(taken.least) if taken.least == taken.most else f"{taken.least} to {taken.most}"
        yield f"value {taken.value} of a vector depends on {often} bytes of coins"
    yield from (f"finding: {finding}" for finding in result.findings)
    yield from (f"not controlled: {what}" for what in result.not_controlled)
    yield f"Not covered: {'; '.join(result.cannot_rule_out)}"
