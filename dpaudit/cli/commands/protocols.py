"""What a protocol left behind."""

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
            help="joint-seeds: the server's sealed opening, to check the used noise too.",
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
    """Did everyone follow the protocol? Needs the transcript alone: no party and no network.

    Exit 0: it holds. 1: somebody cheated, or it was changed. 2: not a transcript. Whose signatures
    count is yours to say: give the keys that you know the parties by, or compare those that the
    verdict names.

    Example: dpaudit verify transcript joint-seeds.json
    """
    from dpaudit.cli import verifying

    verifying.transcript(
        path, output, opening=opening, release=release, server=server, verifier=verifier
    )
