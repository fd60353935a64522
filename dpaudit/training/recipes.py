"""How each network is trained without privacy: a table of settings, no code."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Literal

__all__ = ["RECIPES", "Recipe"]


@dataclass(frozen=True)
class Recipe:
    """Settings of one training.

    Attributes:
        optimizer: ``adam`` at a constant rate, or ``sgd`` with Nesterov momentum 0.9 under one cycle (Smith and Topin 2018):
            up to ``lr`` over the first fifth of the steps, then down to nearly nothing along cosines.
        lr: learning rate, the highest one for ``sgd``.
        batch: images a step; the last step of an epoch takes what is left.
        epochs: times through the data, unless the caller says otherwise.
        weight_decay: L2 penalty on all parameters, as the optimizer has it.
        augment: crop each image at random from itself within 4 black pixels, and mirror every other one.
        quick: a minute or two on a CPU, so that it may be trained where it is needed.
    """

    optimizer: Literal["adam", "sgd"]
    lr: float
    batch: int
    epochs: int
    weight_decay: float = 0.0
    augment: bool = False
    quick: bool = False


_GREY = Recipe(optimizer="adam", lr=1e-3, batch=128, epochs=5, quick=True)
_COLOUR = Recipe(optimizer="sgd", lr=0.1, batch=256, epochs=80, weight_decay=5e-4, augment=True)

RECIPES: Mapping[str, Recipe] = MappingProxyType(
    {
        "mlp": _GREY,
        "cnn": _GREY,
        "lenet5": _GREY,
        "lenet5-tanh": replace(_GREY, epochs=20),
        "resnet20": replace(_COLOUR, lr=0.2, epochs=100),
        "resnet56": replace(_COLOUR, lr=0.2, epochs=100),
        "vgg19-bn": replace(_COLOUR, lr=0.05, epochs=60),
        "resnet50": replace(_COLOUR, epochs=100),
        "mobilenet-v2": _COLOUR,
    }
)
