"""Training without privacy, to a checkpoint with its accuracy; resumes after any crash."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from dpaudit.errors import UsageError
from dpaudit.training.checkpoint import Checkpoint, load_checkpoint, save_checkpoint
from dpaudit.training.files import locked
from dpaudit.training.plain_training import PlainTraining, Training

__all__ = ["Epoch", "fit"]


@dataclass(frozen=True)
class Epoch:
    """One epoch done and saved: its number from 1, of how many, and its mean loss in nats."""

    number: int
    of: int
    loss: float


def fit(
    training: Training,
    *,
    out: Path,
    resume: bool = False,
    wait: bool = False,
    on_epoch: Callable[[Epoch], None] | None = None,
) -> Checkpoint:
    """Train a network by its recipe, measure it on the test split, and save it as ``out``.

    On CUDA the forward pass runs in bfloat16 where torch considers it safe (``torch.autocast``),
    with channels last; accuracy is always measured in float32.

    After each epoch everything needed to resume is in ``OUT.partial``, then ``on_epoch`` is called;
    with ``resume`` training continues from there, from the start if there is nothing, and ends at
    once if ``out`` is what it would write. The lock file ``.OUT.dpaudit-lock`` keeps a second
    process away, or waiting if it says ``wait``.

    Formal guarantee: on one CPU, with the same versions and number of threads, the weights are a
    function of the model, the data, ``epochs`` and ``seed``, bit for bit, however often it was
    interrupted. torch's global generators are left as they were. Not claimed: that on CUDA, where
    some sums depend on timing; privacy of any kind.

    Raises:
        UsageError: data that does not fit the model or is not there, a seed outside 0 … 2^32 − 1,
            an ``out`` that is a folder, cannot be written, is in use, or (``resume``) belongs to
            another training; training that has diverged.
    """
    if not out.name or os.path.isdir(out):
        raise UsageError(f"out={out}: is a folder; name a file in it, e.g. {training.model}.pt")
    partial = out.with_name(f"{out.name}.partial")
    with locked(out, wait=wait):
        if resume and out.exists() and not partial.exists():
            return _finished(out, training)
        running = PlainTraining(training)
        if resume and partial.exists():
            running.load(partial)
        while running.done < training.epochs:
            loss = running.run_epoch()
            running.save(partial)
            if on_epoch is not None:
                on_epoch(Epoch(running.done, training.epochs, loss))
        checkpoint = running.checkpoint()
        save_checkpoint(out, checkpoint)
        partial.unlink(missing_ok=True)
    return checkpoint


def _finished(out: Path, training: Training) -> Checkpoint:
    checkpoint = load_checkpoint(out, model=training.model)
    for name in ("data", "epochs", "seed"):
        found, wanted = getattr(checkpoint, name), getattr(training, name)
        if found != wanted:
            raise UsageError(
                f"out={out}: was trained with {name}={found}, not {wanted}; choose another --out"
            )
    return checkpoint
