"""Audits of a user's own training."""

from __future__ import annotations

from typing import Annotated

import typer

from dpaudit.audit.options import ClaimOptions, TrainingOptions
from dpaudit.cli.options import Output, with_shared_options

__all__ = ["training"]


@with_shared_options
def training(
    target: Annotated[
        str,
        typer.Argument(
            metavar="MODULE:TRAIN",
            help="Your file or module, and the training function in it.",
            show_default=False,
        ),
    ],
    claimed: ClaimOptions,
    data: Annotated[
        str, typer.Option(metavar="NAME", help="The module's data, or a function that makes it.")
    ] = "data",
    canaries: Annotated[
        str | None,
        typer.Option(
            metavar="N|NAME",
            help="How many records of the data are canaries, or the module's own canaries.",
            show_default="the module's canaries, else half of the data, at most 1,000",
        ),
    ] = None,
    score: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="The module's score function; a loss if its name ends in loss, of all canaries at once if in scores.",
            show_default="score, loss or scores, if defined",
        ),
    ] = None,
    *,
    options: TrainingOptions,
    to: Output,
) -> None:
    r"""Is what my training function returns as private as claimed?

    Fair coins put canaries into the training data or leave them out. The
    function trains, and each canary is scored by the model. The scores give a
    lower bound for ε that holds with confidence 1 − α, from one run.

    [bold]MODULE[/bold] is ./file.py or a module's name. It defines

    train(dataset, seed)   returns the model; the function that is named
    data                   what it trains on, or a function that makes it: an
                           array, a tuple of arrays, a list, a data frame
    score(model, record)   higher if the model knows the record; or
                           loss(model, record), or scores(model, canaries);
                           not needed for a torch model of (input, label)
    canaries               records to add (optional)

    Your code runs in this process, without a sandbox.

    Exit code 0: nothing contradicts the claim. 1: a finding. 3: the training
    raised.

    [bold]Examples[/bold]

    $ dpaudit training ./mine.py:train --claim-dpsgd sigma=1,rate=0.05,steps=80
    $ dpaudit training ./mine.py:train --claim-epsilon 3 --claim-delta 1e-5 \
        --canaries 1000
    """
    from dpaudit.cli import training_loops

    training_loops.training(
        target,
        data=data,
        canaries=canaries,
        score=score,
        claim=claimed.claim(),
        options=options,
        to=to,
    )
