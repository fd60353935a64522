"""Weights that somebody else has trained and published: ResNet-20 and ResNet-56 for CIFAR-10."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

import torch

from dpaudit.errors import UsageError
from dpaudit.training.checkpoint import check_state
from dpaudit.training.data import fetch_file, find_file
from dpaudit.training.data.places import data_folder
from dpaudit.training.files import read_tensors
from dpaudit.training.models import make_model

__all__ = ["PUBLISHED", "PublishedWeights", "find_published", "load_published"]

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
            "resnet20-12fca82f.th", "12fca82f0bebc4135bf1f32f6e3710e61d5108578464b84fd6d7f5c1b04036c8"
        ),
        "resnet56": PublishedWeights(
            "resnet56-4bfd9763.th", "4bfd97631478d6b638d2764fd2baff3edb1d7d82252d54439343b6596b9b5367"
        ),
    }
)


def find_published(model: str, *, root: str = "") -> Path:
    """The file of ``model``'s published weights: in the data folder that was named, else from the cache or the web.

    Raises:
        UsageError: a folder was named and does not have it, or a download failed.
        MissingExtraError: a download without pooch.
    """
    wanted = PUBLISHED[model]
    if data_folder(root) is None:
        return fetch_file(wanted.relative, url=wanted.url, sha256=wanted.sha256)
    found = find_file(wanted.relative, root=root)
    if found is None:
        raise UsageError(
            f"weights=trained: {data_folder(root)} has no file {wanted.relative}; put it there, from {wanted.url}, or name "
            "no folder (neither data_root nor DPAUDIT_DATA) to have it downloaded"
        )
    return found


def load_published(model: str, path: Path) -> dict[str, torch.Tensor]:
    """``model``'s weights from the published file ``path``, by the names that ``make_model`` uses.

    Formal guarantee: the file has the published SHA-256, and nothing in it is executed.

    Raises:
        UsageError: the file cannot be read or is another.
    """
    name, wanted = f"weights={path}", PUBLISHED[model].sha256
    try:
        content = path.read_bytes()
    except OSError as error:
        raise UsageError(f"{name}: cannot be read ({error.strerror})") from error
    found = hashlib.sha256(content).hexdigest()
    if found != wanted:
        raise UsageError(f"{name}: has the SHA-256 {found}, the published file {wanted}; fetch it again")
    own = read_tensors(io.BytesIO(content), name=name)["state_dict"]
    state = {k.removeprefix(_PREFIX): v for k, v in own.items()}
    for key, value in make_model(model).state_dict().items():
        if key.endswith(".num_batches_tracked"):  # younger than the file, and of no effect in evaluation
            state.setdefault(key, torch.zeros_like(value))
    check_state(state, model=model, name=name)
    return state
