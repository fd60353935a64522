"""``dpaudit replay``: where does a pipeline show its data, if its noise is frozen?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from dpaudit.audit.options import ClaimOptions
from dpaudit.audit.replay.request import ReplayOptions
from dpaudit.cli.options import Output, Sandbox, with_shared_options
from dpaudit.cli.out_folder import prepare_folder
from dpaudit.cli.output import note
from dpaudit.cli.verdicts import finish
from dpaudit.options import Argument
from dpaudit.report import describe

if TYPE_CHECKING:
    from dpaudit.audit.replay.request import ReplayResult

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

    Exit code 0: no finding. 1: a finding. 3: the pipeline died, or its noise
    was not seen.

    [bold]Examples[/bold]

    $ dpaudit replay ./release.py:run --data people.csv
    $ dpaudit replay ./release.py:run --data people.csv --claim-epsilon 1 \
        --bounds 'age=0:120;city=Bonn|Graz' --neighbours replace
    $ dpaudit replay release:run --data people.csv --python .venv/bin/python \
        --cover mylibrary --out report
    """
    from dpaudit.audit.replay.run import replay_pipeline
    from dpaudit.cli.progress import AuditProgress

    formats = prepare_folder(to, options.command(pipeline, claimed))
    display = AuditProgress(
        "pairs of neighbours", "confirming on new releases", total=options.pairs
    )
    result: ReplayResult
    with sandbox.policy():
        try:
            with display:
                result = replay_pipeline(pipeline, options, claim=claimed, progress=display)
        except KeyboardInterrupt:
            note(f"interrupted: {display.done:,} pairs are lost; give a shorter --time-limit")
            raise SystemExit(130) from None
    finish(describe(result), to, also=formats)
