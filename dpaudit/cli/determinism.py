"""``dpaudit prove library:PATH:SYMBOL --determinism``."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import NoReturn

from dpaudit.cli.earlier import refuse_another
from dpaudit.cli.formats import without_earlier
from dpaudit.cli.proving import command_of_proof
from dpaudit.cli.verdicts import finish, with_command
from dpaudit.errors import UsageError
from dpaudit.prove.determinism.check import determinism
from dpaudit.provenance import identified
from dpaudit.report import describe
from dpaudit.results.text import one_line
from dpaudit.samplers.identity import identify

__all__ = ["show_determinism"]

_TIME_LIMIT = 120.0


def show_determinism(
    program: str, *, time_limit: float, out: Path | None, output: str, verbose: bool
) -> NoReturn:
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
    result = replace(result, provenance=identified(result.provenance, by="", files=files))
    result = with_command(command, result)
    finish(describe(result), out=out, also=also, output=output, verbose=verbose)
