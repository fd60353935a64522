"""What the package knows of one network."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from torch import nn

__all__ = ["Model"]


@dataclass(frozen=True)
class Model:
    """One network's recipe.

    Attributes:
        make: builds the network, its weights drawn from torch's global generator (call `make_model` instead, which seeds
            that generator and puts it back).
        data: the kind of record it takes: ``"mnist"`` is 1 × 28 × 28, ``"cifar10"`` is 3 × 32 × 32; ten classes either way.
        parameters: how many trainable numbers it has: the length of its flat gradient.
    """

    make: Callable[[], nn.Module]
    data: Literal["mnist", "cifar10"]
    parameters: int

    @property
    def shape(self) -> tuple[int, int, int]:
        """Of one record: channels, height, width."""
        return (1, 28, 28) if self.data == "mnist" else (3, 32, 32)
