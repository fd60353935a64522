"""``dpaudit explain``."""

from __future__ import annotations

from typing import Annotated

import typer

from dpaudit.cli import completion
from dpaudit.cli.options import FormatOption

__all__ = ["explain"]


def explain(
    test: Annotated[
        str | None,
        typer.Argument(
            metavar="TEST",
            help="A test's name as a finding prints it; without one, all pages are listed.",
            show_default=False,
            autocompletion=completion.explained,
        ),
    ] = None,
    output: FormatOption = "text",
) -> None:
    """Explain a test: what it looks at, what a finding means, and what to do.

    Also says what typically causes a finding, what the test cannot see, and
    where it comes from.

    [bold]Examples[/bold]

    $ dpaudit explain moments
    $ dpaudit explain low-bits --format json
    """
    from dpaudit.cli import explaining

    explaining.show(test, output)
