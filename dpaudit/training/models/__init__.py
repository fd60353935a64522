"""Networks by name, with weights from a seed."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import torch
from torch import nn

from dpaudit.errors import UsageError
from dpaudit.training.models import cifar_resnet, mobilenet, resnet50, small, vgg
from dpaudit.training.models.model import Model

__all__ = ["MODELS", "Model", "make_model"]

MODELS: Mapping[str, Model] = MappingProxyType(
    {
        "lenet5": Model(small.lenet5, "mnist", 61_706),
        "lenet5-tanh": Model(small.lenet5_tanh, "mnist", 61_706),
        "mlp": Model(small.mlp, "mnist", 12_730),
        "cnn": Model(small.cnn, "mnist", 26_010),
        "resnet20": Model(cifar_resnet.resnet20, "cifar10", 269_722),
        "resnet56": Model(cifar_resnet.resnet56, "cifar10", 853_018),
        "vgg19-bn": Model(vgg.vgg19_bn, "cifar10", 38_958_922),
        "resnet50": Model(resnet50.resnet50, "cifar10", 23_520_842),
        "mobilenet-v2": Model(mobilenet.mobilenet_v2, "cifar10", 2_236_682),
    }
)


def make_model(name: str, *, seed: int = 0) -> nn.Module:
    """A new network, in training mode, its weights drawn from ``seed``; torch's global generator is left as it was.

    Raises:
        UsageError: an unknown name, or a seed outside 0 … 2^32 − 1 (torch's CPU generator keeps 32 bits).
    """
    if name not in MODELS:
        raise UsageError(f"model={name}: not known; there are: {', '.join(sorted(MODELS))}")
    if not 0 <= seed < 2**32:
        raise UsageError(f"seed={seed}: must lie in 0 … 2^32 − 1")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return MODELS[name].make()
