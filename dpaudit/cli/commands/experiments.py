"""Training a network without privacy."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dpaudit.cli.options import DataRootOption, DeviceOption, FormatOption

__all__ = ["train"]


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
