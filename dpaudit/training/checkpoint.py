"""A trained network's file: weights, training data and accuracy. Never unpickled."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from dpaudit.errors import UsageError
from dpaudit.registry import nearest
from dpaudit.training.accuracy import Accuracy, accuracy_from_counts
from dpaudit.training.files import read_tensors, write_atomically
from dpaudit.training.models import MODELS, make_model

__all__ = ["Checkpoint", "check_state", "load_checkpoint", "save_checkpoint"]

_FORMAT, _VERSION = "dpaudit-checkpoint", 1
_MANY = 1 << 53
_FIELDS: Mapping[str, type] = {
    "model": str,
    "data": str,
    "state": dict,
    "accuracy": dict,
    "epochs": int,
    "seed": int,
    "versions": dict,
    "hardware": str,
}


@dataclass(frozen=True)
class Checkpoint:
    """Weights with their origin.

    Attributes:
        model: the network's name.
        data: the data set's, whose test split ``accuracy`` was measured on.
        state: what ``load_state_dict`` takes: tensors on the CPU by name.
        accuracy: of these very weights, in evaluation mode and float32.
        epochs: how many times training went through the data.
        seed: of the initial weights, the order of batches, cropping and dropout.
        versions: of the software that trained them.
        hardware: that it ran on.
    """

    model: str
    data: str
    state: Mapping[str, torch.Tensor]
    accuracy: Accuracy
    epochs: int
    seed: int
    versions: Mapping[str, str]
    hardware: str


def save_checkpoint(path: Path, checkpoint: Checkpoint) -> None:
    """Write the file atomically: a reader sees the old one or the new one, also after power loss.

    Raises:
        UsageError: weights that are not ``checkpoint.model``'s or not finite, or a place that
            cannot be written.
    """
    check_state(checkpoint.state, model=checkpoint.model, name=f"out={path}")
    document = {
        "format": _FORMAT,
        "version": _VERSION,
        "model": checkpoint.model,
        "data": checkpoint.data,
        "state": {
            k: v.detach().to("cpu", copy=True).contiguous() for k, v in checkpoint.state.items()
        },
        "accuracy": {"correct": checkpoint.accuracy.correct, "total": checkpoint.accuracy.total},
        "epochs": checkpoint.epochs,
        "seed": checkpoint.seed,
        "versions": dict(checkpoint.versions),
        "hardware": checkpoint.hardware,
    }
    write_atomically(path, lambda file: torch.save(document, file))


def load_checkpoint(path: Path, *, model: str | None = None) -> Checkpoint:
    """Read a checkpoint, of ``model`` if that is given.

    Formal guarantee: nothing in the file is executed (``torch.load(weights_only=True)``), every
    weight is finite, and names, shapes and types are the model's own. Not claimed: that the
    accuracy in it is true of them; a third-party file can say anything (``dpaudit train`` has
    measured what it wrote).

    Raises:
        UsageError: no such file, not a checkpoint, of a newer dpaudit, of another model, or with
            broken weights.
    """
    name = f"checkpoint={path}"
    found = read_tensors(path, name=name)
    if not isinstance(found, dict) or found.get("format") != _FORMAT:
        raise UsageError(f"{name}: is no checkpoint of dpaudit's; dpaudit train MODEL makes one")
    version = found.get("version")
    if type(version) is not int or version < 1:
        raise UsageError(f"{name}: format version {version!r} is none; train it again")
    if version > _VERSION:
        raise UsageError(
            f"{name}: of format version {version}, this dpaudit reads up to {_VERSION}; "
            "take a newer one"
        )
    for field, kind in _FIELDS.items():
        if type(found.get(field)) is not kind:
            raise UsageError(
                f"{name}: its field {field!r} is missing or no {kind.__name__}; train it again"
            )
    if model is not None and found["model"] != model:
        raise UsageError(
            f"{name}: holds {found['model']}, not {model}; name another checkpoint or another model"
        )
    check_state(found["state"], model=found["model"], name=name)
    return Checkpoint(
        model=found["model"],
        data=found["data"],
        state=found["state"],
        accuracy=_accuracy(found["accuracy"], name=name),
        epochs=found["epochs"],
        seed=found["seed"],
        versions={str(k): str(v) for k, v in found["versions"].items()},
        hardware=found["hardware"],
    )


def check_state(state: Mapping[str, Any], *, model: str, name: str) -> None:
    """Check that these are all weights of ``model`` and nothing else, and finite.

    ``name`` begins the error message.

    Raises:
        UsageError: they are not.
    """
    if model not in MODELS:
        raise UsageError(
            f"{name}: holds {model!r}, a model that is not known{nearest(model, MODELS)}"
        )
    wanted = make_model(model).state_dict()
    if set(state) != set(wanted):
        odd = sorted(map(str, set(state) ^ set(wanted)))
        raise UsageError(
            f"{name}: its weights are not those of {model}: {odd[0]!r} is missing or one too many"
        )
    for key, like in wanted.items():
        tensor = state[key]
        if not isinstance(tensor, torch.Tensor) or not _plain(tensor):
            raise UsageError(f"{name}: {key!r} is no plain tensor")
        if tensor.shape != like.shape or tensor.dtype != like.dtype:
            raise UsageError(
                f"{name}: {key!r} is {tensor.dtype} {tuple(tensor.shape)}, "
                f"{model} has {like.dtype} {tuple(like.shape)}"
            )
        if not bool(torch.isfinite(tensor).all()):
            raise UsageError(f"{name}: {key!r} has values that are not finite; train it again")


def _plain(tensor: torch.Tensor) -> bool:
    """Whether its numbers are in memory, contiguous, on any device."""
    return tensor.layout is torch.strided and not (
        tensor.is_meta or tensor.is_nested or tensor.is_quantized
    )


def _accuracy(counts: dict[str, Any], *, name: str) -> Accuracy:
    correct, total = counts.get("correct"), counts.get("total")
    if (
        type(correct) is not int
        or type(total) is not int
        or not 0 <= correct <= total
        or not 0 < total < _MANY
    ):
        raise UsageError(
            f"{name}: its accuracy is {correct!r} of {total!r}, which cannot be; train it again"
        )
    return accuracy_from_counts(correct, total)
