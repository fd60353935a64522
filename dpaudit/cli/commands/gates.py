"""dpaudit as a gate of somebody's own project."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

__all__ = ["init"]


def init(
    kind: Annotated[
        Literal["github", "gitlab", "pytest"],
        typer.Argument(metavar="KIND", help="github, gitlab or pytest.", show_default=False),
    ],
    force: Annotated[bool, typer.Option("--force", help="Replace files that are there.")] = False,
) -> None:
    """Write a gate into this folder: CI fails if the noise is not what it claims.

    github writes an action and a workflow that audit a sampler and a mechanism
    before a release. gitlab writes two jobs for merge requests. pytest writes
    tests/test_noise.py with the fixture that comes with dpaudit.

    Then says what to edit. Nothing is overwritten without --force.

    [bold]Examples[/bold]

    $ dpaudit init pytest
    $ dpaudit init github --force
    """
    from dpaudit.cli import gates

    gates.write(kind, force=force)
