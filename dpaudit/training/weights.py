"""A network with its weights by one word: untrained, trained, or a checkpoint's path."""

from __future__ import annotations

import hashlib
import io
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

import torch
from torch import nn

from dpaudit.errors import UsageError
from dpaudit.registry import nearest
from dpaudit.results.text import tell
from dpaudit.training.checkpoint import (
    Accuracy,
    Checkpoint,
    check_state,
    load_checkpoint,
    read_tensors,
    recall,
    remember,
)
from dpaudit.training.data import fetch_file, find_file, load_images
from dpaudit.training.data.places import cache_folder, data_folder
from dpaudit.training.models import MODELS, make_model
from dpaudit.training.on_device import ImagesOnDevice, usable_device
from dpaudit.training.plain_training import RECIPES, Epoch, Training, fit

__all__ = ["PUBLISHED", "PublishedWeights", "checkpoint_file", "load_published", "trained_network"]

_FROM = "https://github.com/akamaster/pytorch_resnet_cifar10/raw/master/pretrained_models"
_PREFIX = "module."  # of a network that was trained inside DataParallel


@dataclass(frozen=True)
class PublishedWeights:
    """A file on the web and its SHA-256, hex."""

    file: str
    sha256: str

    @property
    def url(self) -> str:
        return f"{_FROM}/{self.file}"

    @property
    def relative(self) -> str:
        """Where it lies in a data folder."""
        return f"weights/{self.file}"


PUBLISHED: Mapping[str, PublishedWeights] = MappingProxyType(
    {
        "resnet20": PublishedWeights(
            "resnet20-12fca82f.th",
            "12fca82f0bebc4135bf1f32f6e3710e61d5108578464b84fd6d7f5c1b04036c8",
        ),
        "resnet56": PublishedWeights(
            "resnet56-4bfd9763.th",
            "4bfd97631478d6b638d2764fd2baff3edb1d7d82252d54439343b6596b9b5367",
        ),
    }
)


def find_published(model: str, *, root: str = "") -> Path:
    """The file of ``model``'s published weights, from the named folder, the cache or the web.

    Raises:
        UsageError: a folder was named and does not have it, or a download failed.
        MissingExtraError: a download without pooch.
    """
    weights = PUBLISHED[model]
    if data_folder(root) is None:
        return fetch_file(weights.relative, url=weights.url, sha256=weights.sha256)
    file = find_file(weights.relative, root=root)
    if file is None:
        raise UsageError(
            f"weights=trained: {data_folder(root)} has no file {weights.relative}; "
            f"put it there, from {weights.url}, or name no folder (neither data_root nor "
            "DPAUDIT_DATA) to have it downloaded"
        )
    return file


def load_published(model: str, path: Path) -> dict[str, torch.Tensor]:
    """``model``'s weights from the published file ``path``, by the names that ``make_model`` uses.

    Formal guarantee: the file has the published SHA-256, and nothing in it is executed.

    Raises:
        UsageError: the file cannot be read or is another.
    """
    name, expected = f"weights={path}", PUBLISHED[model].sha256
    try:
        content = path.read_bytes()
    except OSError as error:
        raise UsageError(f"{name}: cannot be read ({error.strerror})") from error
    digest = hashlib.sha256(content).hexdigest()
    if digest != expected:
        raise UsageError(
            f"{name}: has the SHA-256 {digest}, the published file {expected}; fetch it again"
        )
    own = read_tensors(io.BytesIO(content), name=name)["state_dict"]
    state = {k.removeprefix(_PREFIX): v for k, v in own.items()}
    for key, value in make_model(model).state_dict().items():
        # newer than the file, and without effect in evaluation
        if key.endswith(".num_batches_tracked"):
            state.setdefault(key, torch.zeros_like(value))
    check_state(state, model=model, name=name)
    return state


_TEST_SPLIT = (
    "cifar10.npz",
    "cifar-10-batches-bin/test_batch.bin",
    "test_batch.bin",
    "cifar-10-binary.tar.gz",
)


@dataclass(frozen=True)
class Network:
    """A network in evaluation mode.

    Attributes:
        module: on the device that was asked for; all its parameters trainable.
        model: its name.
        data: the name of the data set that it is for.
        weights: as asked for: ``untrained``, ``trained`` or a checkpoint's path.
        accuracy: measured on that data set's test split; None untrained, and for published weights
            where there is no test split to measure it on.
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

    =============  ================================================================================
    ``untrained``  drawn from ``seed``; nothing else here depends on it
    ``trained``    resnet20, resnet56: published ones, from the data folder or (none named)
                   downloaded, SHA-256 compared;
                   others: :func:`checkpoint_file`. Where that is missing lenet5, lenet5-tanh, cnn
                   and mlp are trained into it, in a minute or so of the CPU; a second process that
                   wants the same waits for the first
    a path         a checkpoint of ``dpaudit train``
    =============  ================================================================================

    ``root`` is where data is looked for, as in :func:`~dpaudit.training.data.load_images`.

    Raises:
        UsageError: an unknown model, a device that is not here, data or weights that are missing or
            broken, a checkpoint of another model; ``trained`` for a large network that has not been
            trained yet.
    """
    if model not in MODELS:
        raise UsageError(f"model={model}: not known{nearest(model, MODELS)}")
    where, data = usable_device(device), MODELS[model].data
    if weights == "untrained":
        return Network(make_model(model, seed=seed).to(where).eval(), model, data, weights, None)
    if weights == "trained" and model in PUBLISHED:
        path = find_published(model, root=root)
        module = _module(model, load_published(model, path), where)
        return Network(
            module,
            model,
            data,
            weights,
            _published_accuracy(module, model, root=root, device=where),
        )
    checkpoint = (
        _trained_checkpoint(model, root=root)
        if weights == "trained"
        else load_checkpoint(Path(weights), model=model)
    )
    return Network(
        _module(model, checkpoint.state, where),
        model,
        checkpoint.data,
        weights,
        checkpoint.accuracy,
    )


def checkpoint_file(model: str) -> Path:
    """Where ``model``'s trained weights are kept; the file need not exist.

    ``MODEL.pt`` in the folder that the environment variable ``DPAUDIT_CHECKPOINTS`` names, else in
    ``checkpoints`` of the user's cache folder for dpaudit.
    """
    return _folder() / f"{model}.pt"


def _folder() -> Path:
    named = os.environ.get("DPAUDIT_CHECKPOINTS", "")
    return Path(named).expanduser() if named else cache_folder() / "checkpoints"


def _module(model: str, state: Mapping[str, torch.Tensor], device: torch.device) -> nn.Module:
    module = make_model(model)
    module.load_state_dict(state)
    return module.to(device).eval()


def _trained_checkpoint(model: str, *, root: str) -> Checkpoint:
    path = checkpoint_file(model)
    if not path.exists():
        if not RECIPES[model].quick:
            raise UsageError(
                f"weights=trained: {model} has not been trained yet, {path} is missing; "
                f"dpaudit train {model} --device cuda makes it in some minutes of a GPU"
            )
        tell(f"{model} has not been trained yet: training it now, once, into {path}")
        training = Training.of(model, root=root)
        return fit(training, out=path, resume=True, wait=True, on_epoch=_report_epoch)
    return load_checkpoint(path, model=model)


def _report_epoch(epoch: Epoch) -> None:
    tell(f"epoch {epoch.number} of {epoch.of}: loss {epoch.loss:.4f}")


def _published_accuracy(
    module: nn.Module, model: str, *, root: str, device: torch.device
) -> Accuracy | None:
    """A published file's accuracy on the test split, if that or its accuracy is at hand."""
    measurements = _folder() / "measured.json"
    key = PUBLISHED[model].sha256
    if not any(find_file(name, root=root) for name in _TEST_SPLIT):
        return recall(measurements, key=key)
    images = load_images("cifar10", root=root, split="test")
    of = hashlib.sha256(images.pixels.tobytes() + images.labels.tobytes()).hexdigest()
    return remember(
        measurements,
        key=key,
        of=of,
        measure=lambda: ImagesOnDevice(images, device=device).accuracy(module),
    )
