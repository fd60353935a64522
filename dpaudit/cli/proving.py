"""``dpaudit prove`` and ``dpaudit verify certificate``."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any, NoReturn

import typer
from rich.console import Group
from rich.text import Text

from dpaudit.cli.output import emit, note, write_json_line
from dpaudit.documents import ProofDocument
from dpaudit.errors import UsageError
from dpaudit.prove.questions import (
    ProofOptions,
    arguments_of,
    neighbours_of,
    probability_of,
)
from dpaudit.prove.run import Proof, prove
from dpaudit.report.terminal.proofs import proof_table
from dpaudit.results.text import one_line, tell
from dpaudit.samplers.endpoints.targets import named_function
from dpaudit.types import to_dict

__all__ = ["check_certificate", "prove_program"]

_EXIT = {"proved": 0, "refuted": 1, "undecided": 3}
_PROGRESS_SECONDS = 5.0


class _Progress:
    """A line on stderr every few seconds: states found, probability left."""

    def __init__(self) -> None:
        self._said = time.monotonic()

    def __call__(self, states: int, left: float) -> None:
        if time.monotonic() - self._said > _PROGRESS_SECONDS:
            self._said = time.monotonic()
            tell(f"dpaudit: {states:,} states, probability left to explore: {left:.3g}")


def prove_program(
    program: str,
    *,
    claim: str | None,
    neighbours: str | None,
    claim_epsilon: str | None,
    claim_delta: str,
    args: str | None,
    coins: str,
    residual: str,
    tolerance: str | None,
    time_limit: float,
    disjoint: bool,
    out: Path | None,
    output: str,
) -> NoReturn:
    """Prove, print, write, and exit with the verdict's code."""
    positional, named = arguments_of(args)
    pair = None if neighbours is None else neighbours_of(neighbours)
    if neighbours is not None and claim is not None:
        raise UsageError(f"claim={one_line(claim)}: a law is not claimed with --neighbours")
    if claim_epsilon is not None and neighbours is None:
        raise UsageError(f"claim_epsilon={one_line(claim_epsilon)}: needs --neighbours")
    options = ProofOptions(
        args=positional,
        kwargs=named,
        coins="" if coins == "secrets" else coins,
        residual=probability_of(residual, name="residual"),
        tolerance=None if tolerance is None else probability_of(tolerance, name="tolerance"),
        time_limit=time_limit,
        disjoint=disjoint,
    )
    if not options.residual:
        raise UsageError("residual=0: must be above 0, such as 2^-40")
    proof = prove(
        _function(program),
        program=program,
        claim=claim,
        neighbours=pair,
        claim_epsilon=claim_epsilon,
        claim_delta=probability_of(claim_delta, name="claim_delta"),
        options=options,
        progress=_Progress(),
    )
    document = ProofDocument(result=proof.result)
    if out is not None:
        document = _written(proof, out, options)
    if output == "json":
        write_json_line({"schema": document.schema, **to_dict(document.result)})
    else:
        emit(Group(*proof_table(document.result)))
        if out is not None:
            note(f"result: {out / 'result.json'}")
        emit(Text(f"{document.result.verdict.capitalize()}: {document.result.reason}."))
    raise typer.Exit(_EXIT[document.result.verdict])


def _function(program: str) -> Any:
    kind, _, rest = program.partition(":")
    place, colon, member = rest.rpartition(":")
    if kind != "python" or not colon or not place or not member:
        raise UsageError(
            f"program={one_line(program)}: must be python:MODULE:FUNCTION or python:./file.py:NAME"
        )
    return named_function(place, member)


def _written(proof: Proof, out: Path, options: ProofOptions) -> ProofDocument:
    from dpaudit.report.files import write_text
    from dpaudit.results.text import json_escaped

    del options
    document = ProofDocument(result=proof.result)
    try:
        out.mkdir(parents=True, exist_ok=True)
        text = json.dumps(to_dict(document), indent=2, ensure_ascii=False, allow_nan=False)
        write_text(json_escaped(text) + "\n", out / "result.json")
    except OSError as error:
        raise UsageError(
            f"out={out}: cannot be written ({error.strerror}); choose another --out"
        ) from error
    return document


def check_certificate(path: Path, *, tapes: int, seed: str, output: str) -> NoReturn:
    """Check, print, and exit with the verdict's code."""
    raise UsageError(f"certificate={path}, tapes={tapes}, seed={seed}, {output}: not there yet")
