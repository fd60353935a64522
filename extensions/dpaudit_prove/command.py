"""``dpaudit prove``: the exact law of a program; ``dpaudit verify certificate``: checks a proof."""

from __future__ import annotations

import dataclasses
import json
import math
import re
import subprocess
import sys
import time
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from dpaudit.cli.options import FormatOption, Output, VerboseOption, with_shared_options
from dpaudit.cli.out_folder import prepare_folder, writing
from dpaudit.cli.output import emit, note, write_json_line
from dpaudit.cli.verdicts import finish, with_command
from dpaudit.errors import UsageError
from dpaudit.options import Argument, Option, command_of
from dpaudit.report import describe
from dpaudit.results.foreign import RefusedError, open_plain, quoted
from dpaudit.results.text import one_line, tell
from dpaudit_prove.certificates import checker
from dpaudit_prove.verdicts.claims import EXAMPLES

if TYPE_CHECKING:
    from dpaudit_prove.certificates.reader import Certificate
    from dpaudit_prove.exploration.engine import ProofOptions
    from dpaudit_prove.run import Proof

__all__ = ["Question", "prove", "verify_certificate"]

_PROGRESS_SECONDS = 5.0
_FRACTION = re.compile(r"-?[0-9]+/[0-9]+")
_POWER = re.compile(r"2\^-([0-9]{1,4})")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A question about a program, as the user writes it."""

    claim: Annotated[str | None, Option(EXAMPLES, "CLAIM", completion="claims")] = None
    args: Annotated[
        str | None,
        Option('Arguments: a list, or an object of named ones; "1/3" is a fraction.', "JSON"),
    ] = None
    coins: Annotated[
        str,
        Option(
            "Generators whose draws count as perfect coins: the module random, NumPy's, or a parameter in which to pass one. The operating system's are always coins.",
            "random|numpy|ARG,…",
        ),
    ] = ""
    neighbours: Annotated[
        str | None, Option("Two neighbouring inputs, as JSON; each is the first argument.", "A,B")
    ] = None
    claim_epsilon: Annotated[str | None, Option("The claimed ε, e.g. 1 or ln(3).", "E")] = None
    claim_delta: Annotated[str, Option("The claimed δ, e.g. 1e-9 or 2^-40.", "D")] = "0"
    disjoint: Annotated[
        bool,
        Option(
            "Also decide whether the returned values have coins of their own; a claim is then about each value."
        ),
    ] = False
    coin_count: Annotated[
        bool, Option("Also bound what the number of coins read tells about the output.")
    ] = False
    determinism: Annotated[
        bool,
        Option(
            "For a library: run it with chosen coins, clock and process number, and show which coins reach which value."
        ),
    ] = False
    residual: Annotated[str, Option("Stop when at most this probability is left.", "P")] = "2^-40"
    tolerance: Annotated[
        str | None,
        Option(
            "Largest total variation to the claim that is still the claim.",
            "P",
            default="twice the residual",
        ),
    ] = None
    time_limit: Annotated[
        float | None, Option("Seconds for each exploration.", default="600; --determinism: 120")
    ] = None

    def __post_init__(self) -> None:
        if self.neighbours is not None and self.claim is not None:
            raise UsageError(
                f"claim={one_line(self.claim)}: --claim and --neighbours exclude each other; drop one"
            )
        if self.claim_epsilon is not None and self.neighbours is None:
            raise UsageError(f"claim_epsilon={one_line(self.claim_epsilon)}: needs --neighbours")

    def options(self) -> ProofOptions:
        """The settings of the proof.

        Raises:
            UsageError: a field that cannot be read.
        """
        from dpaudit_prove.exploration.engine import ProofOptions

        positional, named = arguments_of(self.args)
        residual = probability_of(self.residual, name="residual")
        if not residual:
            raise UsageError("residual=0: must be above 0, such as 2^-40")
        return ProofOptions(
            args=positional,
            kwargs=named,
            coins="" if self.coins == "secrets" else self.coins,
            residual=residual,
            tolerance=None
            if self.tolerance is None
            else probability_of(self.tolerance, name="tolerance"),
            time_limit=600.0 if self.time_limit is None else self.time_limit,
            disjoint=self.disjoint,
            coin_count=self.coin_count,
        )


def arguments_of(text: str | None) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Read ``--args``: a JSON list, or an object of named arguments; "1/3" is a fraction.

    >>> arguments_of('[1, "1/3"]')
    ((1, Fraction(1, 3)), {})

    Raises:
        UsageError: it is neither.
    """
    if text is None:
        return (), {}
    value = _json("args", text)
    if isinstance(value, list):
        return tuple(_with_fractions(v) for v in value), {}
    if isinstance(value, dict):
        return (), {k: _with_fractions(v) for k, v in value.items()}
    raise UsageError(f"args={one_line(text)}: must be a JSON list or object, such as '[1, 2]'")


def neighbours_of(text: str) -> tuple[Any, Any]:
    """Read ``--neighbours a,b``: two JSON values.

    >>> neighbours_of("[0, 1],[1, 1]")
    ([0, 1], [1, 1])

    Raises:
        UsageError: not two values.
    """
    values = _json("neighbours", f"[{text}]")
    if len(values) != 2:
        raise UsageError(
            f"neighbours={one_line(text)}: give two values, such as 0,1 or [0,1],[1,1]"
        )
    return _with_fractions(values[0]), _with_fractions(values[1])


def probability_of(text: str, *, name: str) -> Fraction:
    """Read a probability: ``1e-6``, ``1/3`` or ``2^-40``.

    Raises:
        UsageError: none of these, or not in [0, 1].
    """
    power = _POWER.fullmatch(text.strip())
    try:
        value = Fraction(1, 1 << int(power[1])) if power else Fraction(text)
    except (ValueError, ZeroDivisionError):
        value = Fraction(-1)
    if not 0 <= value <= 1:
        raise UsageError(f"{name}={one_line(text)}: must be a probability, such as 1e-9 or 2^-40")
    return value


def _json(name: str, text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise UsageError(
            f"{name}={one_line(text)}: not JSON; quote it for the shell, such as '[1, \"1/3\"]'"
        ) from None


def _with_fractions(value: Any) -> Any:
    if isinstance(value, str) and _FRACTION.fullmatch(value):
        return Fraction(value)
    if isinstance(value, list):
        return [_with_fractions(v) for v in value]
    if isinstance(value, dict):
        return {k: _with_fractions(v) for k, v in value.items()}
    return value


@with_shared_options
def prove(
    program: Annotated[str, Argument("python:MODULE:FUNCTION | library:PATH:SYMBOL", "PROGRAM")],
    *,
    question: Question,
    out: Annotated[
        Path | None, Option("Write report.html, result.json and certificate.json.gz here.")
    ] = None,
    output: FormatOption = "text",
    verbose: VerboseOption = False,
) -> None:
    r"""The exact law of a sampler's program, from its source: a proof, without sampling.

    The program runs against all its coins. States that are equal are merged,
    and their probabilities are exact rationals. What is shown holds for
    perfect coins and one call, up to the probability that was not followed
    (--residual): a branch that is rarer than that can still hide. It runs in
    this process, without a sandbox: only prove what you would run yourself.

    Exit code 0: proved. 1: refuted, with coins on which Python itself shows it.
    3: not decided in time, or the program uses something that is not a function
    of its coins (the message names it).

    A compiled sampler has no source to follow. With --determinism, its calls
    for coins, time and process number (getrandom, /dev/urandom, RDRAND, …) are
    answered by the auditor. That shows which coins reach which value, and what
    could not be controlled; it is not its law. This part runs in the sandbox.

    [bold]Examples[/bold]

    $ dpaudit prove python:./noise.py:draw --claim discrete-laplace:scale=2
    $ dpaudit prove python:./noise.py:gauss --args '["1/2"]' --coins rng \
        --claim discrete-gaussian:variance=1/2 --out proof
    $ dpaudit prove python:./noise.py:answer --neighbours 0,1 \
        --claim-epsilon 'ln(3)'
    $ dpaudit prove library:./libnoise.so:noise --determinism
    """
    answer = _show_determinism if question.determinism else _show_proof
    answer(program, question, to=Output(out=out, output=output, verbose=verbose))


def _show_proof(program: str, question: Question, *, to: Output) -> NoReturn:
    """Prove, print, write, and exit with the verdict's code."""
    from dpaudit_prove.results import CERTIFICATE
    from dpaudit_prove.run import prove as prove_claim

    options, pair, out = question.options(), question.neighbours, to.out
    neighbours = None if pair is None else neighbours_of(pair)
    command = command_of("prove", program, question)
    function = _load_function(program)
    formats = prepare_folder(to, command)
    proof = prove_claim(
        function,
        program=program,
        claim=question.claim,
        neighbours=neighbours,
        claim_epsilon=question.claim_epsilon,
        claim_delta=probability_of(question.claim_delta, name="claim_delta"),
        options=options,
        progress=_Progress(),
    )
    result, notes = with_command(command, proof.result), []
    if out is not None:
        digest = _write_certificate(proof, program, options, out)
        result = dataclasses.replace(result, certificate=digest)
        notes.append(f"certificate: {out / CERTIFICATE}")
    finish(describe(result), to, also=formats, notes=notes)


def _show_determinism(program: str, question: Question, *, to: Output) -> NoReturn:
    """Run a library with chosen coins, print, write, and exit with the verdict's code."""
    from dpaudit.provenance import with_identity
    from dpaudit.targets.identity import identify
    from dpaudit_prove.determinism.check import determinism

    kind, _, rest = program.partition(":")
    place, colon, symbol = rest.rpartition(":")
    if kind != "library" or not colon or not place or not symbol:
        raise UsageError(
            f"program={one_line(program)}: --determinism needs library:PATH:SYMBOL, a shared "
            "library; a Python program is proved without it"
        )
    command = command_of("prove", program, question)
    formats, files = prepare_folder(to, command), identify(program).files
    limit = 120.0 if question.time_limit is None else question.time_limit
    result = determinism(Path(place), symbol, timeout=limit)
    audited = with_identity(result.provenance, by="", files=files)
    result = with_command(command, dataclasses.replace(result, provenance=audited))
    finish(describe(result), to, also=formats)


class _Progress:
    """A line on stderr every few seconds: states found, probability left."""

    def __init__(self) -> None:
        self._printed_at = time.monotonic()

    def __call__(self, states: int, left: float) -> None:
        if time.monotonic() - self._printed_at > _PROGRESS_SECONDS:
            self._printed_at = time.monotonic()
            tell(f"dpaudit: {states:,} states, probability left to explore: {left:.3g}")


def _load_function(program: str) -> Any:
    from dpaudit.targets.endpoints.callees import named_function

    kind, _, rest = program.partition(":")
    place, colon, member = rest.rpartition(":")
    if kind != "python" or not colon or not place or not member:
        raise UsageError(
            f"program={one_line(program)}: must be python:MODULE:FUNCTION or python:./file.py:NAME"
        )
    return named_function(place, member)


def _write_certificate(proof: Proof, program: str, options: ProofOptions, out: Path) -> str:
    """Write the certificate; returns its SHA-256."""
    from dpaudit_prove.certificates.certificate import certificate_of, write_certificate
    from dpaudit_prove.results import CERTIFICATE

    with writing(out):
        out.mkdir(parents=True, exist_ok=True)
        content = certificate_of(
            proof.explorations,
            program=_absolute_name(program),
            calls=proof.calls,
            kwargs=options.kwargs or {},
            coins=options.coins,
            returned=proof.returned,
            shows=proof.shows,
        )
        return write_certificate(content, out / CERTIFICATE)


def _absolute_name(program: str) -> str:
    """A program's name that means the same from every folder."""
    place, _, member = program.removeprefix("python:").rpartition(":")
    if "/" in place or place.endswith(".py"):
        place = str(Path(place).resolve())
    return f"python:{place}:{member}"


@with_shared_options
def verify_certificate(
    path: Annotated[Path, Argument("A certificate.json.gz file.", "FILE")],
    program: Annotated[
        str | None, Option("Run the program too; name it as the certificate does.", "PROGRAM")
    ] = None,
    tapes: Annotated[
        int, Option("Random coin tapes on which program and certificate are compared.")
    ] = 2000,
    seed: Annotated[str, Option("Seed of these tapes.")] = "1",
    output: FormatOption = "text",
) -> None:
    r"""Check a certificate of `dpaudit prove`; the checker shares no code with the prover.

    It redoes the arithmetic exactly. With --program it also runs the program
    in Python, on the coins of every transition and on random tapes, in this
    process and without a sandbox: a foreign certificate may name any program, so
    you have to name it.

    Exit code 0: it holds. 1: it does not. 2: not a certificate. 3: its
    arithmetic holds, and the program was not run.

    [bold]Examples[/bold]

    $ dpaudit verify certificate proof/certificate.json.gz
    $ dpaudit verify certificate proof/certificate.json.gz \
        --program python:./noise.py:draw
    """
    if tapes < 0:
        raise UsageError(f"tapes={tapes}: must be at least 0")
    certificate = _certificate_at(path, program)
    try:
        report = checker.check(path, run=False)
        if program is not None:
            _check_files(certificate)
            report = _check_in_process(path, tapes=tapes, seed=seed)
    except checker.Wrong as error:
        report = {"holds": False, "says": one_line(error, limit=2000)}
    else:
        report = {"holds": True, "says": _describe_check(report, tapes), **report}
    if output == "json":
        write_json_line(report)
    else:
        from rich.text import Text

        emit(Text(f"{'Holds' if report['holds'] else 'DOES NOT HOLD'}: {report['says']}."))
        if report["holds"] and program is None:
            note(
                f"the program was not run; the certificate says that it is "
                f"{_quoted(certificate.program)}, and a certificate may name any program. If you know "
                "the program, name it with --program: it then runs here, without a sandbox"
            )
    raise typer.Exit(1 if not report["holds"] else 3 if program is None else 0)


def _certificate_at(path: Path, program: str | None) -> Certificate:
    """The certificate in a file.

    Raises:
        UsageError: not a certificate, or one of another program than ``program``.
    """
    from dpaudit_prove.certificates.reader import read_certificate

    try:
        certificate = read_certificate(path)
    except RefusedError as error:
        raise UsageError(
            f"certificate={path}: not a certificate of dpaudit prove ({one_line(error)}); "
            "dpaudit prove --out DIR writes one"
        ) from error
    if program is not None and _absolute_name(program) != certificate.program:
        raise UsageError(
            f"program={one_line(program)}: the certificate says {_quoted(certificate.program)}; "
            "name the program that you had proved, or leave --program out"
        )
    return certificate


def _quoted(program: str) -> str:
    """The program that a certificate names, quoted as foreign text."""
    return quoted(program, limit=400)


def _check_files(certificate: Certificate) -> None:
    """Refuse files that are not plain: the checker reads each to its end."""
    for name in certificate.files:
        try:
            open_plain(name).close()
        except RefusedError as error:
            raise checker.Wrong(f"files: {one_line(name)}: {error}") from error


_CHECK_SCRIPT = """
import json, sys
from pathlib import Path
from dpaudit_prove.certificates import checker
try:
    print(json.dumps(checker.check(Path(sys.argv[1]), tapes=int(sys.argv[2]), seed=sys.argv[3])))
except checker.Wrong as error:
    print(json.dumps({"wrong": str(error)}))
"""


def _check_in_process(path: Path, *, tapes: int, seed: str) -> dict[str, Any]:
    """Check in a process of its own: the checker replaces what draws coins."""
    command = [sys.executable, "-c", _CHECK_SCRIPT, str(path), str(tapes), seed]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    lines = done.stdout.splitlines()
    if done.returncode or not lines:
        last = (done.stderr.strip().splitlines() or ["no output"])[-1]
        raise checker.Wrong(f"the program could not be run: {last}")
    report: dict[str, Any] = json.loads(lines[-1])
    if "wrong" in report:
        raise checker.Wrong(report["wrong"])
    return report


def _describe_check(report: dict[str, Any], tapes: int) -> str:
    sentence = (
        f"the law follows from {report['states']:,} states and {report['transitions']:,} "
        f"transitions, exactly, up to {report['residual']:.3g}{_describe_laws(report)}"
    )
    if "replayed" in report:
        sentence += f"; Python took {report['replayed']:,} of these transitions"
        if tapes:
            sentence += (
                f", and agreed on {tapes:,} random tapes: program and certificate differ with "
                f"probability at most {math.log(1000) / tapes:.2g} (99.9 % confidence)"
            )
    return sentence


def _describe_laws(report: dict[str, Any]) -> str:
    """The checked statements of a certificate about its laws, in words."""
    sentence = ""
    if report["values"]:
        sentence += f"; {report['values']} returned values have coins of their own"
    for epsilon, low, high in report["shows"].get("profile", [])[:1]:
        first, second = (one_line(x, limit=80) for x in report["arguments"])
        bounds = f"between {float(Fraction(low)):.4g} and {float(Fraction(high)):.4g}"
        exponent = "0" if epsilon == "ln(1)" else one_line(epsilon)
        sentence += f"; between arguments {first} and {second} δ({exponent}) is {bounds}"
    if "dependence" in report["shows"]:
        low, high = (float(Fraction(x)) for x in report["shows"]["dependence"])
        sentence += (
            f"; total variation to the product of the marginals between {low:.4g} and {high:.4g}"
        )
    bits = set(report["bits"])
    if not report["values"] and len(bits) == 1 and bits != {None}:
        sentence += f"; every call reads {bits.pop():,} coin bits"
    return sentence
