"""Experiments, their reports, and the map of what an audit detects."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from dpaudit.cli import completion
from dpaudit.cli.options import (
    AlsoOption,
    DataRootOption,
    DeviceOption,
    DimOption,
    FormatOption,
    optional_count,
)
from dpaudit.registry import Kind

__all__ = ["demo", "frontier", "list_", "report", "run", "train"]


def demo(
    out: Annotated[Path, typer.Option(help="Folder for report.html and the results.")] = Path(
        "dpaudit-demo"
    ),
    jobs: Annotated[
        str, typer.Option(metavar="N|all", help="Worker processes on this machine; 1 starts none.")
    ] = "all",
    also: AlsoOption = None,
    output: FormatOption = "text",
) -> None:
    """Show the whole story on real data, offline, in a minute.

    Releases one DP histogram of 3,143 US counties with seven samplers: an honest
    one, and two backdoored ones, each alone and behind two defences.

    [bold]Examples[/bold]

    $ dpaudit demo
    $ dpaudit demo --out first --also markdown
    """
    from dpaudit.cli import experiments

    experiments.demo(out, output, jobs=jobs, also=also)


def run(
    experiment: Annotated[
        str,
        typer.Argument(
            metavar="EXPERIMENT",
            help="A name from dpaudit list experiments, or a SPEC.toml.",
            show_default=False,
            autocompletion=completion.experiments,
        ),
    ],
    out: Annotated[
        Path | None,
        typer.Option(
            help="Folder for results; runs/NAME by default, runs/NAME-IofN of a shard.",
            show_default=False,
        ),
    ] = None,
    resume: Annotated[
        bool,
        typer.Option("--resume", help="Resume an interrupted run; finished cells are kept."),
    ] = False,
    trials: Annotated[
        str | None,
        typer.Option(
            metavar="N", help="Trials per cell, instead of the spec's number.", show_default=False
        ),
    ] = None,
    log: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME[:…]",
            help="Also log to jsonl:path=FILE or mlflow:uri=URL,experiment=NAME; repeatable.",
            show_default=False,
        ),
    ] = None,
    where: Annotated[
        str,
        typer.Option(
            help="local, or a Dask scheduler on a trusted network: tcp://host:8786 or tls://…"
        ),
    ] = "local",
    jobs: Annotated[
        str, typer.Option(metavar="N|all", help="Worker processes on this machine; 1 starts none.")
    ] = "1",
    shard: Annotated[
        str | None,
        typer.Option(
            metavar="I/N",
            help="Run only this one of N shares of the cells; dpaudit runs merge joins them.",
            show_default=False,
        ),
    ] = None,
    device: DeviceOption = "cpu",
    data_root: DataRootOption = None,
    also: Annotated[
        str | None,
        typer.Option(
            metavar="NAME,…",
            help="Also write these formats into --out, comma-separated: junit, sarif, markdown.",
            show_default=False,
        ),
    ] = None,
    output: FormatOption = "text",
) -> None:
    """Run an experiment: a grid of host × source × mitigation × attack.

    Each finished cell is saved at once; a cell that fails does not stop the
    others. The numbers do not depend on where cells run. Exit code 0: all cells
    have a result, whatever they found. 3: some failed.

    [bold]Examples[/bold]

    $ dpaudit run gpm-fig4
    $ dpaudit run gpm-fig5 --trials 200 --jobs all --out runs/small
    $ dpaudit run my-experiment.toml --resume
    $ dpaudit run gpm-fig5 --shard 2/8
    """
    from dpaudit.cli import experiments
    from dpaudit.experiments.options import RunOptions
    from dpaudit.experiments.shard import Shard

    part = None if shard is None else Shard.parse(shard)
    folder = out if out is not None else experiments.default_folder(experiment, part)
    experiments.run(
        experiment,
        RunOptions(out=folder, resume=resume, where=where, jobs=jobs, shard=part),
        trials=optional_count(trials, name="trials", what="trials", example="1000"),
        device=device,
        data_root=data_root,
        output=output,
        log=log or (),
        also=also,
    )


def train(
    model: Annotated[
        str,
        typer.Argument(
            metavar="MODEL",
            help="lenet5-tanh lenet5 cnn mlp (MNIST); resnet20 resnet56 vgg19-bn resnet50 mobilenet-v2 (CIFAR-10).",
            show_default=False,
        ),
    ],
    epochs: Annotated[
        int | None,
        typer.Option(
            help="Passes over the data; the model's own number by default.", show_default=False
        ),
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of weights, order, crops and dropout.")] = 0,
    device: DeviceOption = "cpu",
    data_root: DataRootOption = None,
    out: Annotated[
        Path | None,
        typer.Option(
            help="File to write or replace; by default where experiments look.",
            show_default=False,
        ),
    ] = None,
    resume: Annotated[
        bool,
        typer.Option("--resume", help="Resume an interrupted training; finished epochs are kept."),
    ] = False,
    output: FormatOption = "text",
) -> None:
    """Train a network without privacy, to attack its gradients later.

    Measures its accuracy on the test images. Experiments with weights =
    "trained" read the checkpoint: MODEL.pt in the folder that
    DPAUDIT_CHECKPOINTS names, else in the user's cache. The MNIST networks take
    minutes on a CPU core (lenet5-tanh, 20 epochs: three) and are trained on
    demand; the CIFAR-10 networks need a GPU (--device cuda) and must be trained
    first, except resnet20 and resnet56, whose published weights are used
    instead.

    Each finished epoch is saved before the next begins. For private training,
    use dpaudit run dpsgd-training.

    [bold]Examples[/bold]

    $ dpaudit train lenet5-tanh --epochs 20
    $ dpaudit train resnet50 --device cuda --resume
    """
    from dpaudit.cli import training

    training.train(
        model,
        epochs=epochs,
        seed=seed,
        device=device,
        data_root=data_root,
        out=out,
        resume=resume,
        output=output,
    )


def frontier(
    dim: DimOption = None,
    samples: Annotated[
        str, typer.Option(metavar="N", help="Values that the audit draws, e.g. 1M or 1e6.")
    ] = "1e7",
    seconds: Annotated[
        float, typer.Option(help="Seconds for the search for hidden directions.")
    ] = 15,
    table: Annotated[
        Path | None,
        typer.Option(
            help="Read the map from this folder of dpaudit run frontier, not from the package.",
            show_default=False,
        ),
    ] = None,
    write: Annotated[
        Path | None,
        typer.Option(
            help="Also write the whole map as CSV, in the package's format.", show_default=False
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            help="Also write report.html (with the figure) and result.json here.",
            show_default=False,
        ),
    ] = None,
    calibrate: Annotated[
        bool,
        typer.Option(
            "--calibrate", help="Propose smoothing that covers the pancakes the audit may miss."
        ),
    ] = False,
    eta: Annotated[
        float | None,
        typer.Option(
            help="With --calibrate: how close to Gaussian the smoothed noise must be.",
            show_default="1e-6",
        ),
    ] = None,
    output: FormatOption = "text",
) -> None:
    """Show which flaws an audit of this size finds nine times in ten: the detectability map.

    What a pass cannot exclude comes from here. dpaudit run frontier measures
    the map again.

    [bold]Examples[/bold]

    $ dpaudit frontier --dim 64 --samples 1M --seconds 60
    $ dpaudit frontier --dim 64 --samples 1M --calibrate
    """
    from dpaudit.cli import frontiers
    from dpaudit.options import count_of

    frontiers.show(
        dim=optional_count(dim, name="dim", what="values per vector", example="64"),
        samples=count_of(samples, what="values", example="1e7"),
        seconds=seconds,
        table=table,
        write=write,
        out=out,
        output=output,
        calibrate=calibrate,
        eta=eta,
    )


def report(
    folder: Annotated[
        Path | None,
        typer.Argument(
            metavar="DIR",
            help="Folder with the results of an audit, a proof, a run or the demo.",
            show_default=False,
        ),
    ] = None,
    also: Annotated[
        str | None,
        typer.Option(
            metavar="NAME,…",
            help="Also write these formats, comma-separated: junit, sarif, markdown.",
            show_default=False,
        ),
    ] = None,
    schema: Annotated[
        bool,
        typer.Option(
            "--schema", help="Print the JSON Schema of all documents instead; needs no DIR."
        ),
    ] = False,
) -> None:
    """Write DIR/report.html, one self-contained page, from the results in DIR.

    [bold]Examples[/bold]

    $ dpaudit report runs/demo
    $ dpaudit report audit --also junit,sarif,markdown
    """
    from dpaudit.cli import experiments

    experiments.report(folder, also=also, schema=schema)


def list_(
    kind: Annotated[
        Literal[Kind, "mechanisms", "experiments"],
        typer.Argument(metavar="KIND", help="One of the kinds above.", show_default=False),
    ],
    verbose: Annotated[
        bool,
        typer.Option("--verbose", "-v", help="Also show where each plug-in's code is."),
    ] = False,
    output: FormatOption = "text",
) -> None:
    """List what dpaudit has by name: sources, mechanisms, attacks, experiments and more.

    [bold]KIND[/bold] is one of

    sources      noise inside dpaudit, safe kinds and lab specimens
    mechanisms   of libraries: numpy:laplace, opendp:gaussian, …
    samplers     the ways to reach a sampler: python:, command:, library:, …
    tests        what an audit runs
    attacks, mitigations, hosts, measures, local, submissions, batches,
    loggers      what an experiment is made of
    experiments  what dpaudit run runs, with rough minutes
    services, transcripts
                 what dpaudit serve runs and dpaudit verify checks

    Each with a description, its options with their defaults, whether it is a
    LAB SPECIMEN, and the extra it needs. No plug-in is imported.

    [bold]Examples[/bold]

    $ dpaudit list mechanisms
    $ dpaudit list sources --format json
    """
    from dpaudit.cli import listing

    listing.show(kind, output, verbose=verbose)
