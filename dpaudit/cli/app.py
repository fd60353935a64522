"""The commands of the command line, their groups and their order."""

from __future__ import annotations

from typing import Annotated

import typer

from dpaudit.cli.commands import audits, deployments, experiments, lab, protocols
from dpaudit.cli.plugin_commands import AllCommands, group_of
from dpaudit.cli.runs import runs_app

__all__ = ["app"]


app = typer.Typer(
    name="dpaudit",
    cls=AllCommands,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
    help=(
        "Audit closed differential-privacy samplers, see what someone with a secret key could "
        "still read from their noise, and check the defences.\n\n"
        "Start with [bold]dpaudit demo[/bold], then [bold]dpaudit audit[/bold] your own sampler."
        "\n\nExit codes: 0 no finding, 1 finding, 2 usage error, 3 inconclusive, 4 internal error "
        "or unwritable output."
    ),
)
key_app = typer.Typer(
    no_args_is_help=True, help="Make and show pancake keys (lab specimens; files of mode 0600)."
)
app.add_typer(key_app, name="key")
app.add_typer(
    typer.Typer(
        cls=group_of("services"),
        no_args_is_help=True,
        help=(
            "Run the parties of a distributed mitigation: two servers, secure aggregation.\n\n"
            "Start with [bold]dpaudit serve init[/bold], which makes the parties' certificates."
        ),
    ),
    name="serve",
)
deployment_app = typer.Typer(no_args_is_help=True, help="Audit whole systems from their files.")
app.add_typer(deployment_app, name="deployment")
verify_app = typer.Typer(no_args_is_help=True, help="Check a protocol's transcript, offline.")
app.add_typer(verify_app, name="verify")
app.add_typer(runs_app, name="runs")


def _version(wanted: bool) -> None:
    if wanted:
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


app.command()(experiments.demo)
app.command()(audits.audit)
app.command()(audits.mechanism)
app.command()(lab.attack)
app.command()(experiments.run)
app.command()(experiments.train)
app.command()(experiments.frontier)
app.command(name="list")(experiments.list_)
app.command()(experiments.report)
deployment_app.command("apple")(deployments.deployment_apple)
deployment_app.command("apple-scenario")(deployments.deployment_apple_scenario)
verify_app.command("transcript")(protocols.verify_transcript)
key_app.command("new")(lab.key_new)
key_app.command("show")(lab.key_show)
