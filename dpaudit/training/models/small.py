"""The small networks for 28×28 grey images."""

from __future__ import annotations

from collections.abc import Callable

from torch import nn

__all__ = ["cnn", "lenet5", "lenet5_tanh", "mlp"]


def lenet5() -> nn.Module:
    """LeNet-5 as usual today, with ReLU and max-pooling: 61,706 parameters."""
    return _lenet5(nn.ReLU, nn.MaxPool2d)


def lenet5_tanh() -> nn.Module:
    """LeNet-5 with tanh and average pooling: 61,706 parameters.

    LeCun et al. 1998, section II.B, simplified as usual: the second convolution sees all six maps,
    pooling has no coefficients, the output is linear.
    """
    return _lenet5(nn.Tanh, nn.AvgPool2d)


def _lenet5(squash: Callable[[], nn.Module], pool: Callable[[int], nn.Module]) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 6, 5, padding=2),
        squash(),
        pool(2),
        nn.Conv2d(6, 16, 5),
        squash(),
        pool(2),
        nn.Flatten(),
        nn.Linear(400, 120),
        squash(),
        nn.Linear(120, 84),
        squash(),
        nn.Linear(84, 10),
    )


def mlp() -> nn.Module:
    """One hidden layer of 16: 12,730 parameters, for quick tests."""
    return nn.Sequential(nn.Flatten(), nn.Linear(784, 16), nn.ReLU(), nn.Linear(16, 10))


def cnn() -> nn.Module:
    """The convolutional network of Opacus' MNIST example: 26,010 parameters."""
    return nn.Sequential(
        nn.Conv2d(1, 16, 8, stride=2, padding=3),
        nn.ReLU(),
        nn.MaxPool2d(2, stride=1),
        nn.Conv2d(16, 32, 4, stride=2),
        nn.ReLU(),
        nn.MaxPool2d(2, stride=1),
        nn.Flatten(),
        nn.Linear(512, 32),
        nn.ReLU(),
        nn.Linear(32, 10),
    )
