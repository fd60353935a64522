"""Training without privacy, to a checkpoint with its accuracy; resumes after any crash."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch

from dpaudit.errors import UsageError
from dpaudit.registry import nearest
from dpaudit.training.checkpoint import Checkpoint, load_checkpoint, save_checkpoint
from dpaudit.training.files import locked
from dpaudit.training.models import MODELS
from dpaudit.training.plain_training import RECIPES, PlainTraining

__all__ = ["Epoch", "fit", "usable_device"]


@dataclass(frozen=True)
class Epoch:
    """One epoch done and saved: its number from 1, of how many, and its mean loss in nats."""

    number: int
    of: int
    loss: float


def fit(
    model: str,
    *,
    out: Path,
    epochs: int | None = None,
    seed: int = 0,
    data: str | None = None,
    root: str = "",
    device: str = "cpu",
    resume: bool = False,
    wait: bool = False,
    on_epoch: Callable[[Epoch], None] | None = None,
) -> Checkpoint:
    """Train ``model`` by its recipe, measure it on the test split, and save it as ``out``.

    ``data`` replaces the data set that the model is for (``synthetic`` and ``synthetic-colour``
    need no files), ``epochs`` the recipe's number. On CUDA the forward pass runs in bfloat16 where
    torch considers it safe (``torch.autocast``), with channels last; accuracy is always measured in
    float32.

    After each epoch everything needed to resume is in ``OUT.partial``, then ``on_epoch`` is called;
    with ``resume`` training continues from there, from the start if there is nothing, and ends at
    once if ``out`` is what it would write. The lock file ``.OUT.dpaudit-lock`` keeps a second
    process away, or waiting if it says ``wait``.

    Formal guarantee: on one CPU, with the same versions and number of threads, the weights are a
    function of the model, the data, ``epochs`` and ``seed``, bit for bit, however often it was
    interrupted. torch's global generators are left as they were. Not claimed: that on CUDA, where
    some sums depend on timing; privacy of any kind.

    Raises:
        UsageError: an unknown model or data set, data that does not fit the model or is not there,
            epochs below 1, a seed outside 0 … 2^32 − 1, no such device, an ``out`` that is a
            folder, cannot be written, is in use, or (``resume``) belongs to another training;
            training that has diverged.
    """
    if model not in MODELS:
        raise UsageError(f"model={model}: not known{nearest(model, MODELS)}")
    recipe, data, where = RECIPES[model], data or MODELS[model].data, usable_device(device)
    epochs = recipe.epochs if epochs is None else epochs
    if epochs < 1:
        raise UsageError(f"epochs={epochs}: must be at least 1")
    if not out.name or os.path.isdir(out):
        raise UsageError(f"out={out}: is a folder; name a file in it, e.g. {model}.pt")
    partial = out.with_name(f"{out.name}.partial")
    with locked(out, wait=wait):
        if resume and out.exists() and not partial.exists():
            return _finished(out, model=model, data=data, epochs=epochs, seed=seed)
        training = PlainTraining(
            model, recipe, data=data, epochs=epochs, seed=seed, root=root, device=where
        )
        if resume and partial.exists():
            training.load(partial)
        while training.done < epochs:
            loss = training.run_epoch()
            training.save(partial)
            if on_epoch is not None:
                on_epoch(Epoch(training.done, epochs, loss))
        checkpoint = training.checkpoint()
        save_checkpoint(out, checkpoint)
        partial.unlink(missing_ok=True)
    return checkpoint


def usable_device(name: str) -> torch.device:
    """``cpu``, ``cuda`` or ``cuda:N``, if this machine has it.

    Raises:
        UsageError: another word, or a device that is not here.
    """
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise UsageError(f"device={name}: must be cpu, cuda or cuda:N") from error
    if device.type not in ("cpu", "cuda"):
        raise UsageError(f"device={name}: must be cpu, cuda or cuda:N")
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise UsageError(
            f"device={name}: torch sees {torch.cuda.device_count()} CUDA devices here; "
            "take device=cpu"
        )
    return torch.device("cuda", device.index or 0) if device.type == "cuda" else torch.device("cpu")


def _finished(out: Path, *, model: str, **settings: object) -> Checkpoint:
    checkpoint = load_checkpoint(out, model=model)
    for name, wanted in settings.items():
        found = getattr(checkpoint, name)
        if found != wanted:
            raise UsageError(
                f"out={out}: was trained with {name}={found}, not {wanted}; choose another --out"
            )
    return checkpoint
