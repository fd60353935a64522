"""Checks of a protocol's transcript."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dpaudit.cli.options import FormatOption

__all__ = ["verify_transcript"]


def verify_transcript(
    path: Annotated[
        Path, typer.Argument(metavar="FILE", help="A transcript's JSON file.", show_default=False)
    ],
    opening: Annotated[
        Path | None,
        typer.Option(
            help="joint-seeds: the server's sealed opening, to check also the noise that was used.",
            show_default=False,
        ),
    ] = None,
    release: Annotated[
        Path | None,
        typer.Option(
            help="joint-seeds: the release (.npy), to check it against query and noise.",
            show_default=False,
        ),
    ] = None,
    server: Annotated[
        str | None,
        typer.Option(
            help="joint-seeds: the server's public key, in hexadecimal.", show_default=False
        ),
    ] = None,
    verifier: Annotated[
        str | None,
        typer.Option(help="The verifier's public key, in hexadecimal.", show_default=False),
    ] = None,
    output: FormatOption = "text",
) -> None:
    r"""Did everyone follow the protocol? Needs only the transcript: no party and no network.

    Exit code 0: it holds. 1: a party cheated, or the transcript was changed. 2:
    not a transcript. You decide whose signatures count: give the parties'
    public keys, or compare those that the verdict prints.

    [bold]Examples[/bold]

    $ dpaudit verify transcript joint-seeds.json
    $ dpaudit verify transcript joint-seeds.json --opening opening.json \
        --release release.npy
    """
    from dpaudit.cli import verifying

    verifying.transcript(
        path, output, opening=opening, release=release, server=server, verifier=verifier
    )
