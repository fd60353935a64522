"""Networks by name, with weights from a seed."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import nn

from dpaudit.errors import UsageError

__all__ = ["MODELS", "make_model"]


def _lenet5() -> nn.Module:
    """LeNet-5 for 28×28 images: 61,706 parameters."""
    return nn.Sequential(
        nn.Conv2d(1, 6, 5, padding=2),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(6, 16, 5),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(400, 120),
        nn.ReLU(),
        nn.Linear(120, 84),
        nn.ReLU(),
        nn.Linear(84, 10),
    )


def _mlp() -> nn.Module:
    """One hidden layer of 16: 12,730 parameters, for quick looks."""
    return nn.Sequential(nn.Flatten(), nn.Linear(784, 16), nn.ReLU(), nn.Linear(16, 10))


MODELS: Mapping[str, Callable[[], nn.Module]] = {"lenet5": _lenet5, "mlp": _mlp}


def make_model(name: str, *, seed: int = 0) -> nn.Module:
    """A new network in torch's default initialisation from ``seed``; torch's global generator is left as it was.

    Raises:
        UsageError: an unknown name, or a seed outside 0 … 2^32 − 1 (torch's CPU generator keeps 32 bits).
    """
    if name not in MODELS:
        raise UsageError(f"model={name}: not known; there are: {', '.join(sorted(MODELS))}")
    if not 0 <= seed < 2**32:
        raise UsageError(f"seed={seed}: must lie in 0 … 2^32 − 1")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return MODELS[name]()
