"""``dpaudit prove`` and ``dpaudit verify certificate``."""

from __future__ import annotations

import json
import math
import shlex
import subprocess
import sys
import time
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any, NoReturn

import typer
from rich.text import Text

from dpaudit.cli.earlier import refuse_another
from dpaudit.cli.formats import without_earlier
from dpaudit.cli.output import emit, note, write_json_line
from dpaudit.cli.verdicts import finish, with_command
from dpaudit.errors import UsageError
from dpaudit.prove.certificates import checker
from dpaudit.prove.certificates.certificate import certificate_of, write_certificate
from dpaudit.prove.certificates.reader import Certificate, read_certificate
from dpaudit.prove.questions import (
    ProofOptions,
    arguments_of,
    neighbours_of,
    probability_of,
)
from dpaudit.prove.results import CERTIFICATE
from dpaudit.prove.run import Proof, prove
from dpaudit.report import describe
from dpaudit.results.foreign import RefusedError, open_plain, shown
from dpaudit.results.text import one_line, tell
from dpaudit.samplers.endpoints.targets import named_function

__all__ = ["check_certificate", "command_of_proof", "prove_program"]

_PROGRESS_SECONDS = 5.0
_TIME_LIMIT = 600.0


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
    coin_count: bool,
    out: Path | None,
    output: str,
    verbose: bool,
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
        coin_count=coin_count,
    )
    if not options.residual:
        raise UsageError("residual=0: must be above 0, such as 2^-40")
    command = command_of_proof(
        program,
        claim=claim,
        neighbours=neighbours,
        claim_epsilon=claim_epsilon,
        claim_delta=None if claim_delta == "0" else claim_delta,
        args=args,
        coins=coins or None,
        disjoint=disjoint,
        coin_count=coin_count,
        residual=None if residual == "2^-40" else residual,
        tolerance=tolerance,
        time_limit=None if time_limit == _TIME_LIMIT else f"{time_limit:g}",
    )
    function = _function(program)
    refuse_another(out, command)
    earlier = without_earlier((), out)
    proof = prove(
        function,
        program=program,
        claim=claim,
        neighbours=pair,
        claim_epsilon=claim_epsilon,
        claim_delta=probability_of(claim_delta, name="claim_delta"),
        options=options,
        progress=_Progress(),
    )
    result = with_command(command, proof.result)
    notes = []
    if out is not None:
        digest = _write_certificate(proof, program, options, out)
        result = replace(result, certificate=digest)
        notes.append(f"certificate: {out / CERTIFICATE}")
    report = describe(result)
    finish(report, out=out, also=earlier, output=output, verbose=verbose, notes=notes)


def command_of_proof(program: str, **options: str | bool | None) -> str:
    """``dpaudit prove`` on a program, with the options that are given.

    >>> command_of_proof("python:m:f", claim="bernoulli:p=1/2", disjoint=True, args=None)
    'dpaudit prove python:m:f --claim bernoulli:p=1/2 --disjoint'
    """
    words = ["dpaudit", "prove", program]
    for name, value in options.items():
        if value is None or value is False:
            continue
        words += [f"--{name.replace('_', '-')}", *([] if value is True else [str(value)])]
    return shlex.join(words)


def _function(program: str) -> Any:
    kind, _, rest = program.partition(":")
    place, colon, member = rest.rpartition(":")
    if kind != "python" or not colon or not place or not member:
        raise UsageError(
            f"program={one_line(program)}: must be python:MODULE:FUNCTION or python:./file.py:NAME"
        )
    return named_function(place, member)


def _write_certificate(proof: Proof, program: str, options: ProofOptions, out: Path) -> str:
    """Write the certificate; returns its SHA-256."""
    try:
        out.mkdir(parents=True, exist_ok=True)
        made = certificate_of(
            proof.explorations,
            program=_resolved(program),
            calls=proof.calls,
            kwargs=options.kwargs or {},
            coins=options.coins,
            returned=proof.returned,
            shows=proof.shows,
        )
        return write_certificate(made, out / CERTIFICATE)
    except OSError as error:
        raise UsageError(
            f"out={out}: cannot be written ({error.strerror}); choose another --out"
        ) from error


def _resolved(program: str) -> str:
    """A program's name that means the same from every folder."""
    place, _, member = program.removeprefix("python:").rpartition(":")
    if "/" in place or place.endswith(".py"):
        place = str(Path(place).resolve())
    return f"python:{place}:{member}"


def check_certificate(
    path: Path, *, program: str | None, tapes: int, seed: str, output: str
) -> NoReturn:
    """Check, print, and exit with the verdict's code."""
    if tapes < 0:
        raise UsageError(f"tapes={tapes}: must be at least 0")
    try:
        made = read_certificate(path)
    except RefusedError as error:
        raise UsageError(
            f"certificate={path}: not a certificate of dpaudit prove ({one_line(error)}); "
            "dpaudit prove --out DIR writes one"
        ) from error
    if program is not None and _resolved(program) != made.program:
        raise UsageError(
            f"program={one_line(program)}: the certificate says {_quoted(made.program)}; "
            "name the program that you had proved, or leave --program out"
        )
    try:
        found = checker.check(path, run=False)
        if program is not None:
            _check_files(made)
            found = _run_apart(path, tapes=tapes, seed=seed)
    except checker.Wrong as error:
        found = {"holds": False, "says": one_line(error, limit=2000)}
    else:
        found = {"holds": True, "says": _checked(found, tapes), **found}
    if output == "json":
        write_json_line(found)
    else:
        emit(Text(f"{'Holds' if found['holds'] else 'DOES NOT HOLD'}: {found['says']}."))
        if found["holds"] and program is None:
            note(
                f"the program was not run; the certificate says that it is "
                f"{_quoted(made.program)}, and a certificate may name any program. If you know "
                "the program, name it with --program: it then runs here, without a sandbox"
            )
    raise typer.Exit(1 if not found["holds"] else 3 if program is None else 0)


def _quoted(program: str) -> str:
    """The certificate's word for its program, so that nobody takes it for ours."""
    return shown(program, limit=400)


def _check_files(made: Certificate) -> None:
    """The program's files are plain: the checker reads each to its end."""
    for name in made.files:
        try:
            open_plain(name).close()
        except RefusedError as error:
            raise checker.Wrong(f"files: {one_line(name)}: {error}") from error


_APART = """
import json, sys
from pathlib import Path
from dpaudit.prove.certificates import checker
try:
    print(json.dumps(checker.check(Path(sys.argv[1]), tapes=int(sys.argv[2]), seed=sys.argv[3])))
except checker.Wrong as error:
    print(json.dumps({"wrong": str(error)}))
"""


def _run_apart(path: Path, *, tapes: int, seed: str) -> dict[str, Any]:
    """Check in a process of its own: the checker replaces what draws coins."""
    command = [sys.executable, "-c", _APART, str(path), str(tapes), seed]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    lines = done.stdout.splitlines()
    if done.returncode or not lines:
        last = (done.stderr.strip().splitlines() or ["no output"])[-1]
        raise checker.Wrong(f"the program could not be run: {last}")
    found: dict[str, Any] = json.loads(lines[-1])
    if "wrong" in found:
        raise checker.Wrong(found["wrong"])
    return found


def _checked(found: dict[str, Any], tapes: int) -> str:
    says = (
        f"the law follows from {found['states']:,} states and {found['transitions']:,} "
        f"transitions, exactly, up to {found['residual']:.3g}{_shown(found)}"
    )
    if "replayed" in found:
        says += f"; Python took {found['replayed']:,} of these transitions"
        if tapes:
            says += (
                f", and agreed on {tapes:,} random tapes: program and certificate differ with "
                f"probability at most {math.log(1000) / tapes:.2g} (99.9 % confidence)"
            )
    return says


def _shown(found: dict[str, Any]) -> str:
    """What the certificate says of its laws, in words; the checker has checked it."""
    says = ""
    if found["values"]:
        says += f"; {found['values']} returned values have coins of their own"
    for epsilon, low, high in found["shows"].get("profile", [])[:1]:
        first, second = (one_line(x, limit=80) for x in found["arguments"])
        bounds = f"between {float(Fraction(low)):.4g} and {float(Fraction(high)):.4g}"
        shown = "0" if epsilon == "ln(1)" else one_line(epsilon)
        says += f"; between arguments {first} and {second} δ({shown}) is {bounds}"
    if "dependence" in found["shows"]:
        low, high = (float(Fraction(x)) for x in found["shows"]["dependence"])
        says += (
            f"; total variation to the product of the marginals between {low:.4g} and {high:.4g}"
        )
    bits = set(found["bits"])
    if not found["values"] and len(bits) == 1 and bits != {None}:
        says += f"; every call reads {bits.pop():,} coin bits"
    return says
