"""VGG-19 with batch normalisation (Simonyan & Zisserman 2015, configuration E) for 32×32 colour images."""

from __future__ import annotations

from torch import nn

from dpaudit.training.models.initial import draw_convolutions, draw_linears

__all__ = ["vgg19_bn"]

_STAGES = ((64, 2), (128, 2), (256, 4), (512, 4), (512, 4))


def vgg19_bn() -> nn.Module:
    """VGG-19 with batch normalisation, (b, 3, 32, 32) → (b, 10): 38,958,922 parameters.

    Five stages of 3×3 convolutions, each with a max-pool after it; the last leaves 1×1, so the classifier's first layer
    takes 512 values, not the 25,088 of a 224×224 image. First weights: N(0, 2/fan_out) for convolutions, N(0, 0.01²) for
    linear layers, biases 0.
    """
    features: list[nn.Module] = []
    channels = 3
    for width, depth in _STAGES:
        for _ in range(depth):
            features += [nn.Conv2d(channels, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU()]
            channels = width
        features.append(nn.MaxPool2d(2))
    network = nn.Sequential()
    network.add_module("features", nn.Sequential(*features))
    network.add_module("avgpool", nn.AdaptiveAvgPool2d(1))
    network.add_module("flatten", nn.Flatten())
    network.add_module(
        "classifier",
        nn.Sequential(
            nn.Linear(channels, 4096),
            nn.ReLU(),
            nn.Dropout(0.5),
            nn.Linear(4096, 4096),
            nn.ReLU(),
            nn.Dropout(0.5),
            nn.Linear(4096, 10),
        ),
    )
    draw_convolutions(network)
    draw_linears(network)
    return network
