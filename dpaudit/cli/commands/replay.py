"""``dpaudit replay``: where does a pipeline show its data, if its noise is frozen?"""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

from dpaudit.audit.options import ClaimOptions
from dpaudit.audit.replay.request import ReplayOptions
from dpaudit.cli.options import Output, Sandbox, with_shared_options
from dpaudit.cli.out_folder import prepare_folder
from dpaudit.cli.verdicts import audit_with_progress, finish
from dpaudit.options import Argument
from dpaudit.report import describe

__all__ = ["replay"]


@with_shared_options
def replay(
    pipeline: Annotated[str, Argument("Your function of one data set; see above.", "PIPELINE")],
    claimed: ClaimOptions,
    *,
    options: ReplayOptions,
    sandbox: Sandbox,
    to: Output,
) -> None:
    r"""Where does my pipeline show its data, if its noise is frozen?

    Runs the pipeline on a data set and keeps what its noise primitives
    returned; then runs it on neighbours with the same noise. What differs then
    is not hidden by noise. Your code is not changed: noise of numpy, random,
    secrets, scipy, torch, OpenDP, diffprivlib, Opacus, SmartNoise SQL, PyDP and
    jax is intercepted in a sandboxed process.

    [bold]PIPELINE[/bold] is python:MODULE:FUNCTION, e.g. ./release.py:run; the
    function gets the data set and returns what it releases.

    Reports, each with file and line: noise whose number, order, shape or scale
    depends on the data; an input that moves further than the library states;
    keys, lengths, errors, files and values that are not noised; noise used
    twice; fixed seeds; a budget overspent. New releases confirm every ε.

    A pass holds for the pairs tried, given the stated laws of the primitives:
    see "what was not seen" and the lines that no pair reached.

    Exit code 0: no finding. 1: a finding. 3: something could not be judged: a
    run died, most pairs took too long, noise was not seen, or its law is not
    known and there is a claim.

    [bold]Examples[/bold]

    $ dpaudit replay ./release.py:run --data people.csv
    $ dpaudit replay ./release.py:run --data people.csv --claim-epsilon 1 \
        --bounds 'age=0:120;city=Bonn|Graz' --neighbours replace
    $ dpaudit replay release:run --data people.csv --python .venv/bin/python \
        --cover mylibrary --out report
    """
    from dpaudit.audit.replay.run import inconclusive, replay_pipeline
    from dpaudit.cli.progress import AuditProgress

    command = options.command(pipeline, claimed)
    formats = prepare_folder(to, command)
    with sandbox.policy() as policy:
        result = audit_with_progress(
            lambda progress: replay_pipeline(pipeline, options, claim=claimed, progress=progress),
            command=command,
            display=AuditProgress(
                "pairs of neighbours", "confirming on new releases", total=options.pairs
            ),
            nothing=lambda reason, seconds: replace(
                inconclusive(pipeline, options, claimed, reason),
                sandbox=policy.reached,
                seconds=seconds,
            ),
            to=to,
            formats=formats,
            releases=True,
        )
    finish(describe(result), to, also=formats)
