"""Proofs about the text of a program, and checks of their certificates."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dpaudit.cli import completion
from dpaudit.cli.options import FormatOption, VerboseOption
from dpaudit.prove.verdicts.claims import EXAMPLES

__all__ = ["prove", "verify_certificate"]


def prove(
    program: Annotated[
        str,
        typer.Argument(
            metavar="PROGRAM",
            help="python:MODULE:FUNCTION | library:PATH:SYMBOL",
            show_default=False,
        ),
    ],
    claim: Annotated[
        str | None,
        typer.Option(
            metavar="CLAIM",
            help=EXAMPLES,
            show_default=False,
            autocompletion=completion.claims,
        ),
    ] = None,
    args: Annotated[
        str | None,
        typer.Option(
            metavar="JSON",
            help='Arguments: a list, or an object of named ones; "1/3" is a fraction.',
            show_default=False,
        ),
    ] = None,
    coins: Annotated[
        str,
        typer.Option(
            metavar="random|numpy|ARG,…",
            help="Generators whose draws count as perfect coins: the module random, NumPy's, or a parameter in which to pass one. The operating system's are always coins.",
            show_default=False,
        ),
    ] = "",
    neighbours: Annotated[
        str | None,
        typer.Option(
            metavar="A,B",
            help="Two neighbouring inputs, as JSON; each is the first argument.",
            show_default=False,
        ),
    ] = None,
    claim_epsilon: Annotated[
        str | None,
        typer.Option(metavar="E", help="The claimed ε, e.g. 1 or ln(3).", show_default=False),
    ] = None,
    claim_delta: Annotated[
        str, typer.Option(metavar="D", help="The claimed δ, e.g. 1e-9 or 2^-40.")
    ] = "0",
    disjoint: Annotated[
        bool,
        typer.Option(
            "--disjoint",
            help="Also decide whether the returned values have coins of their own; a claim is then about each value.",
        ),
    ] = False,
    coin_count: Annotated[
        bool,
        typer.Option(
            "--coin-count", help="Also bound what the number of coins read tells about the output."
        ),
    ] = False,
    determinism: Annotated[
        bool,
        typer.Option(
            "--determinism",
            help="Of a library: run it with chosen coins, clock and process number, and show which coins reach which value.",
        ),
    ] = False,
    residual: Annotated[
        str, typer.Option(metavar="P", help="Stop when at most this probability is left.")
    ] = "2^-40",
    tolerance: Annotated[
        str | None,
        typer.Option(
            metavar="P",
            help="Largest total variation to the claim that is still the claim.",
            show_default="twice the residual",
        ),
    ] = None,
    time_limit: Annotated[
        float | None,
        typer.Option(help="Seconds for each exploration.", show_default="600; --determinism: 120"),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            help="Write report.html, result.json and certificate.json.gz here.", show_default=False
        ),
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
    3: not decided in time, or the program uses what is not a function of its
    coins (the message names it).

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
    if determinism:
        from dpaudit.cli.determinism import show_determinism

        show_determinism(
            program,
            time_limit=120.0 if time_limit is None else time_limit,
            out=out,
            output=output,
            verbose=verbose,
        )
    from dpaudit.cli import proving

    proving.prove_program(
        program,
        claim=claim,
        neighbours=neighbours,
        claim_epsilon=claim_epsilon,
        claim_delta=claim_delta,
        args=args,
        coins=coins,
        residual=residual,
        tolerance=tolerance,
        time_limit=600.0 if time_limit is None else time_limit,
        disjoint=disjoint,
        coin_count=coin_count,
        out=out,
        output=output,
        verbose=verbose,
    )


def verify_certificate(
    path: Annotated[
        Path,
        typer.Argument(metavar="FILE", help="A certificate.json.gz file.", show_default=False),
    ],
    program: Annotated[
        str | None,
        typer.Option(
            metavar="PROGRAM",
            help="Run the program too; name it as the certificate does.",
            show_default=False,
        ),
    ] = None,
    tapes: Annotated[
        int, typer.Option(help="Random coin tapes on which program and certificate are compared.")
    ] = 2000,
    seed: Annotated[str, typer.Option(help="Seed of these tapes.")] = "1",
    output: FormatOption = "text",
) -> None:
    r"""Does a certificate of `dpaudit prove` hold? The checker knows nothing of the prover.

    It redoes the arithmetic exactly. With --program it also runs the program
    in Python, on the coins of every transition and on random tapes, in this
    process and without a sandbox: a certificate from a stranger may name any
    program, so you have to name it.

    Exit code 0: it holds. 1: it does not. 2: not a certificate. 3: its
    arithmetic holds, and the program was not run.

    [bold]Examples[/bold]

    $ dpaudit verify certificate proof/certificate.json.gz
    $ dpaudit verify certificate proof/certificate.json.gz \
        --program python:./noise.py:draw
    """
    from dpaudit.cli import proving

    proving.check_certificate(path, program=program, tapes=tapes, seed=seed, output=output)
