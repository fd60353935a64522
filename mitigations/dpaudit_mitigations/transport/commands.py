"""``dpaudit serve init``: the certificates by which a protocol's parties authenticate."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

__all__ = ["init", "say"]


def init(
    out: Annotated[
        Path, typer.Option(help="New folder for the certificates; an existing one must be empty.")
    ],
    party: Annotated[
        list[str] | None,
        typer.Option(help="A party's name; once for each.", show_default="answer and noise"),
    ] = None,
    host: Annotated[
        list[str] | None,
        typer.Option(
            help="A further host name or IP address of the servers.",
            show_default="localhost, 127.0.0.1, ::1",
        ),
    ] = None,
    days: Annotated[int, typer.Option(help="How long the certificates are valid.")] = 365,
) -> None:
    r"""Make a certificate and key for each party of a protocol, signed by a throw-away authority.

    [bold]certificates/NAME/[/bold] holds cert.pem, key.pem (mode 0600) and ca.pem
    for NAME. Move it to that party's machine over a channel you trust, and
    delete it here. Whoever has key.pem is that party.

    The authority's key is not kept: no party can be added later.
    To add or replace one, make new certificates for all.

    [bold]Examples[/bold]

    $ dpaudit serve init --out certificates
    $ dpaudit serve init --out certificates --party aggregator \
        --party alice --party bob --party carol
    """
    from dpaudit_mitigations.transport.certificates import make_authority

    parties = party or ["answer", "noise"]
    make_authority(out, parties, hosts=host or (), days=days)
    for name in parties:
        typer.echo(f"{out / name}: cert.pem, key.pem, ca.pem for {name}, {days} days")
    typer.echo(
        "\nEach party needs only its own folder; this authority cannot sign anything more.",
        err=True,
    )


def say(**facts: Any) -> None:
    """Print one line of JSON."""
    typer.echo(json.dumps(facts))
