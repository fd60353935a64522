"""A network with its weights by one word: untrained, trained, or a checkpoint's path."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn

from dpaudit.errors import UsageError
from dpaudit.registry import nearest
from dpaudit.results.text import tell
from dpaudit.training.accuracy import Accuracy
from dpaudit.training.checkpoint import Checkpoint, load_checkpoint
from dpaudit.training.data import find_file, load_images
from dpaudit.training.data.places import cache_folder
from dpaudit.training.fitting import Epoch, fit, usable_device
from dpaudit.training.measured import recalled, remembered
from dpaudit.training.models import MODELS, make_model
from dpaudit.training.on_device import ImagesOnDevice
from dpaudit.training.published_weights import PUBLISHED, find_published, load_published
from dpaudit.training.recipes import RECIPES

__all__ = ["Network", "checkpoint_file", "trained_network"]

_TEST_SPLIT = ("cifar10.npz", "cifar-10-batches-bin/test_batch.bin", "test_batch.bin", "cifar-10-binary.tar.gz")


@dataclass(frozen=True)
class Network:
    """A network in evaluation mode.

    Attributes:
        module: on the device that was asked for; all its parameters trainable.
        model: its name.
        data: the name of the data set that it is for.
        weights: as asked for: ``untrained``, ``trained`` or a checkpoint's path.
        accuracy: measured on that data set's test split; None untrained, and for published weights where there is no test
            split to measure it on.
    """

    module: nn.Module
    model: str
    data: str
    weights: str
    accuracy: Accuracy | None


def trained_network(
    model: str, *, weights: str = "untrained", root: str = "", seed: int = 0, device: str = "cpu"
) -> Network:
    """The network ``model`` with the weights that one word stands for.

    =============  ====================================================================================================
    ``untrained``  drawn from ``seed``; nothing else here depends on it
    ``trained``    resnet20, resnet56: published ones, from the data folder or (none named) downloaded, SHA-256 compared;
                   others: :func:`checkpoint_file`. Where that is missing lenet5, lenet5-tanh, cnn and mlp are trained
                   into it, in a minute or so of the CPU; a second process that wants the same waits for the first
    a path         a checkpoint of ``dpaudit train``
    =============  ====================================================================================================

    ``root`` is where data is looked for, as in :func:`~dpaudit.training.data.load_images`.

    Raises:
        UsageError: an unknown model, a device that is not here, data or weights that are missing or broken, a checkpoint of
            another model; ``trained`` for a large network that has not been trained yet.
    """
    if model not in MODELS:
        raise UsageError(f"model={model}: not known{nearest(model, MODELS)}")
    where, data = usable_device(device), MODELS[model].data
    if weights == "untrained":
        return Network(make_model(model, seed=seed).to(where).eval(), model, data, weights, None)
    if weights == "trained" and model in PUBLISHED:
        path = find_published(model, root=root)
        module = _module(model, load_published(model, path), where)
        return Network(module, model, data, weights, _measured(module, model, root=root, device=where))
    checkpoint = _trained(model, root=root) if weights == "trained" else load_checkpoint(Path(weights), model=model)
    return Network(_module(model, checkpoint.state, where), model, checkpoint.data, weights, checkpoint.accuracy)


def checkpoint_file(model: str) -> Path:
    """Where ``model``'s trained weights are kept: ``MODEL.pt`` in the folder that the environment variable
    ``DPAUDIT_CHECKPOINTS`` names, else in ``checkpoints`` of the user's cache folder for dpaudit. It need not exist.
    """
    return _folder() / f"{model}.pt"


def _folder() -> Path:
    named = os.environ.get("DPAUDIT_CHECKPOINTS", "")
    return Path(named).expanduser() if named else cache_folder() / "checkpoints"


def _module(model: str, state: Mapping[str, torch.Tensor], device: torch.device) -> nn.Module:
    module = make_model(model)
    module.load_state_dict(state)
    return module.to(device).eval()


def _trained(model: str, *, root: str) -> Checkpoint:
    path = checkpoint_file(model)
    if not path.exists():
        if not RECIPES[model].quick:
            raise UsageError(
                f"weights=trained: {model} has not been trained yet, {path} is missing; dpaudit train {model} "
                "--device cuda makes it in some minutes of a GPU"
            )
        tell(f"{model} has not been trained yet: training it now, once, into {path}")
        return fit(model, out=path, root=root, resume=True, wait=True, on_epoch=_said)
    return load_checkpoint(path, model=model)


def _said(epoch: Epoch) -> None:
    tell(f"epoch {epoch.number} of {epoch.of}: loss {epoch.loss:.4f}")


def _measured(module: nn.Module, model: str, *, root: str, device: torch.device) -> Accuracy | None:
    """A published file's accuracy on the test split, where that is at hand or has been."""
    measurements = _folder() / "measured.json"
    key = PUBLISHED[model].sha256
    if not any(find_file(name, root=root) for name in _TEST_SPLIT):
        return recalled(measurements, key=key)
    images = load_images("cifar10", root=root, split="test")
    of = hashlib.sha256(images.pixels.tobytes() + images.labels.tobytes()).hexdigest()
    return remembered(
        measurements, key=key, of=of, measure=lambda: ImagesOnDevice(images, device=device).accuracy(module)
    )
