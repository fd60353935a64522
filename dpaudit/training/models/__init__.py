"""Networks by name, with weights from a seed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

import torch
from torch import nn

from dpaudit.errors import UsageError
from dpaudit.training.models import networks

__all__ = ["MODELS", "Model", "make_model"]


@dataclass(frozen=True)
class Model:
    """One network's recipe.

    Attributes:
        make: builds the network, its weights drawn from torch's global generator (call `make_model`
            instead, which seeds and restores that generator).
        data: the kind of record it takes: ``"mnist"`` is 1 × 28 × 28, ``"cifar10"`` is 3 × 32 × 32;
            ten classes either way.
        parameters: how many trainable numbers it has: the length of its flat gradient.
    """

    make: Callable[[], nn.Module]
    data: Literal["mnist", "cifar10"]
    parameters: int

    @property
    def shape(self) -> tuple[int, int, int]:
        """Of one record: channels, height, width."""
        return (1, 28, 28) if self.data == "mnist" else (3, 32, 32)


MODELS: Mapping[str, Model] = MappingProxyType(
    {
        "lenet5": Model(networks.lenet5, "mnist", 61_706),
        "lenet5-tanh": Model(networks.lenet5_tanh, "mnist", 61_706),
        "mlp": Model(networks.mlp, "mnist", 12_730),
        "cnn": Model(networks.cnn, "mnist", 26_010),
        "resnet20": Model(networks.resnet20, "cifar10", 269_722),
        "resnet56": Model(networks.resnet56, "cifar10", 853_018),
        "vgg19-bn": Model(networks.vgg19_bn, "cifar10", 38_958_922),
        "resnet50": Model(networks.resnet50, "cifar10", 23_520_842),
        "mobilenet-v2": Model(networks.mobilenet_v2, "cifar10", 2_236_682),
    }
)


def make_model(name: str, *, seed: int = 0) -> nn.Module:
    """A new network in training mode, weights drawn from ``seed``; torch's generator is restored.

    Raises:
        UsageError: an unknown name, or a seed outside 0 … 2^32 − 1 (torch's CPU generator keeps 32
            bits).
    """
    if name not in MODELS:
        raise UsageError(f"model={name}: not known; there are: {', '.join(sorted(MODELS))}")
    if not 0 <= seed < 2**32:
        raise UsageError(f"seed={seed}: must lie in 0 … 2^32 − 1")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return MODELS[name].make()
