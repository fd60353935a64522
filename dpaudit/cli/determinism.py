"""``dpaudit prove library:PATH:SYMBOL --determinism``."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

import typer
from rich.text import Text

from dpaudit.cli.output import emit, note, write_json_line
from dpaudit.documents import DeterminismDocument
from dpaudit.errors import UsageError
from dpaudit.prove.determinism.check import determinism
from dpaudit.report.files import write_text
from dpaudit.results.text import json_escaped, one_line
from dpaudit.types import DeterminismResult, to_dict

__all__ = ["show_determinism"]

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
    result = determinism(Path(place), symbol, timeout=time_limit)
    document = DeterminismDocument(result=result)
    if out is not None:
        try:
            out.mkdir(parents=True, exist_ok=True)
            text = json.dumps(to_dict(document), indent=2, ensure_ascii=False, allow_nan=False)
            write_text(json_escaped(text) + "\n", out / "result.json")
        except OSError as error:
            raise UsageError(
                f"out={out}: cannot be written ({error.strerror}); choose another --out"
            ) from error
    if output == "json":
        write_json_line({"schema": document.schema, **to_dict(result)})
    else:
        for line in _lines(result):
            emit(Text(line))
        if out is not None:
            note(f"result: {out / 'result.json'}")
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
