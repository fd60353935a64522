"""The commands of the command line, their groups and their order."""

from __future__ import annotations

from typing import Annotated

import typer

from dpaudit.cli.commands import (
    attack,
    audit,
    explain,
    frontier,
    init,
    key,
    listing,
    mechanism,
    replay,
    run,
    training,
    verify,
)
from dpaudit.cli.commands.runs import runs_app
from dpaudit.cli.help import App
from dpaudit.cli.options import with_shared_options
from dpaudit.cli.plugin_commands import AllCommands, group_of, with_report

__all__ = ["app"]

app = App(
    name="dpaudit",
    cls=AllCommands,
    help=(
        "Audit closed differential-privacy samplers, see what someone with a secret key could "
        "still read from their noise, and check the defences.\n\n"
        "Start with [bold]dpaudit demo[/bold], then [bold]dpaudit audit[/bold] your own sampler:"
        "\n\n"
        "$ dpaudit audit numpy:normal --claim gaussian:sigma=1 --samples 1M\n"
        "$ dpaudit mechanism numpy:laplace --neighbours 0,1 --claim-epsilon 1\n\n"
        "Exit codes: 0 no finding, 1 finding, 2 usage error, 3 inconclusive, 4 internal error "
        "or unwritable output."
    ),
)
key_app = App(
    help=(
        "Make and show pancake keys (lab specimens; files of mode 0600), and estimate how hard "
        "they are to find.\n\n"
        "$ dpaudit key new --dim 256 --beta 1e-4 --out key.json\n"
        "$ dpaudit key show key.json\n"
        "$ dpaudit key hardness key.json"
    )
)
app.add_typer(key_app, name="key")
app.add_typer(
    App(
        cls=group_of("services", with_shared_options),
        help=(
            "Run the parties of a distributed mitigation: two servers, secure aggregation.\n\n"
            "Start with [bold]dpaudit serve init[/bold], which makes the parties' certificates:"
            "\n\n"
            "$ dpaudit serve init --out certificates\n"
            "$ dpaudit serve noise --help"
        ),
    ),
    name="serve",
)
deployment_app = App(
    cls=group_of("deployments", with_report),
    help=(
        "Audit whole systems from their files.\n\n"
        "$ dpaudit deployment apple --config configuration\n"
        "$ dpaudit deployment attribution --events events.jsonl\n"
        "$ dpaudit deployment census --nmf US_Person_PL_PROD"
    ),
)
app.add_typer(deployment_app, name="deployment")
verify_app = App(
    cls=group_of("verifiers"),
    help=(
        "Check a protocol's transcript, or the certificate of a proof, offline.\n\n"
        "$ dpaudit verify transcript joint-seeds.json\n"
        "$ dpaudit verify certificate proof/certificate.json.gz\n"
        "$ dpaudit verify transcript counts.json --format json"
    ),
)
app.add_typer(verify_app, name="verify")
app.add_typer(runs_app, name="runs")


def _version(flag: bool) -> None:
    if flag:
        from dpaudit import __version__

        typer.echo(f"dpaudit {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    del version


app.command()(run.demo)
app.command()(audit.audit)
app.command()(mechanism.mechanism)
app.command()(replay.replay)
app.command()(training.training)
app.command()(explain.explain)
app.command()(attack.attack)
app.command()(run.run)
app.command()(training.train)
app.command()(frontier.frontier)
app.command(name="list")(listing.list_)
app.command()(run.report)
app.command()(init.init)
verify_app.command("transcript")(verify.verify_transcript)
key_app.command("new")(key.key_new)
key_app.command("show")(key.key_show)
key_app.command("hardness")(key.key_hardness)
