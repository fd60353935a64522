"""``dpaudit train``."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from dpaudit.cli.data import use_data_root
from dpaudit.cli.output import emit, note, progress_bar, write_json_line
from dpaudit.codec import to_dict

if TYPE_CHECKING:
    from dpaudit.training.fitting import Epoch

__all__ = ["train"]


def train(
    model: str,
    *,
    data_root: Path | None,
    epochs: int | None,
    seed: int,
    device: str,
    out: Path | None,
    resume: bool,
    output: str,
    data: str | None = None,
) -> None:
    """Train one network without privacy and print its accuracy.

    Without ``out`` the checkpoint goes where experiments with ``trained`` weights look.
    """
    from dpaudit.training.fitting import fit
    from dpaudit.training.models import MODELS
    from dpaudit.training.plain_training import Training
    from dpaudit.training.weights import checkpoint_file

    use_data_root(data_root)
    file = checkpoint_file(model) if out is None else out
    started = time.monotonic()
    done = 0
    with _interruptible(file, lambda: done), progress_bar() as bar:
        task = bar.add_task(model, total=None)

        def show(epoch: Epoch) -> None:
            nonlocal done
            done = epoch.number
            bar.update(
                task,
                total=epoch.of,
                completed=epoch.number,
                description=f"{model}, loss {epoch.loss:.4f}, epochs",
            )

        checkpoint = fit(
            Training.of(model, epochs=epochs, seed=seed, data=data, device=device),
            out=file,
            resume=resume,
            on_epoch=show,
        )
    document = {
        "model": checkpoint.model,
        "data": checkpoint.data,
        "parameters": MODELS[model].parameters,
        "accuracy": to_dict(checkpoint.accuracy),
        "epochs": checkpoint.epochs,
        "seed": checkpoint.seed,
        "seconds": round(time.monotonic() - started, 3),
        "file": str(file),
        "versions": dict(checkpoint.versions),
        "hardware": checkpoint.hardware,
    }
    if output == "json":
        write_json_line(document)
        return
    right = checkpoint.accuracy
    emit(
        f"{model}: {right.value:.2%} of {right.total:,} test images of {checkpoint.data} correct "
        f"({right.confidence:.0%} interval {right.low:.2%} to {right.high:.2%}); "
        f"{document['parameters']:,} parameters, epochs {checkpoint.epochs}, "
        f"seed {checkpoint.seed}, {document['seconds']:.0f} s"
    )
    note(f"checkpoint: {file}")


@contextmanager
def _interruptible(file: Path, done: Callable[[], int]) -> Iterator[None]:
    try:
        yield
    except KeyboardInterrupt as interrupt:
        note(
            f"interrupted: {done():,} epochs are kept beside {file}; "
            "repeat the command with --resume"
        )
        raise typer.Exit(130) from interrupt
