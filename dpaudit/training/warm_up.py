"""Plain training, without privacy, so that a step can be looked at on weights that have learned something."""

from __future__ import annotations

import torch
from torch import nn

from dpaudit.errors import UsageError
from dpaudit.randomness import KeyedStream
from dpaudit.training.data import Images

__all__ = ["train"]

_BATCH = 64


def train(model: nn.Module, images: Images, *, steps: int, seed: int = 0, lr: float = 0.05) -> None:
    """``steps`` steps of SGD with momentum 0.9 on batches of 64, in place; repeatable bit for bit on one machine.

    Raises:
        UsageError: a negative number of steps.
    """
    if steps < 0:
        raise UsageError(f"steps={steps}: must be at least 0")
    rng = KeyedStream.from_seed("training").child(seed).numpy()
    optimizer = torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9)
    loss = nn.CrossEntropyLoss()
    for _ in range(steps):
        x, y = images.batch(rng.integers(0, len(images), _BATCH).tolist())
        optimizer.zero_grad(set_to_none=True)
        loss(model(x), y).backward()
        optimizer.step()
    model.zero_grad(set_to_none=True)
