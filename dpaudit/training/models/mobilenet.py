"""MobileNetV2 (Sandler et al. 2018, table 2) with strides for 32×32 colour images."""

from __future__ import annotations

import torch
from torch import nn

from dpaudit.training.models.initial import draw_convolutions, draw_linears

__all__ = ["mobilenet_v2"]

_STAGES = (  # the table's t, c, n, s; the second stage's stride is 1 there 2
    (1, 16, 1, 1),
    (6, 24, 2, 1),
    (6, 32, 3, 2),
    (6, 64, 4, 2),
    (6, 96, 3, 1),
    (6, 160, 3, 2),
    (6, 320, 1, 1),
)


def _convolution(channels: int, out: int, size: int, *, stride: int = 1, groups: int = 1) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(channels, out, size, stride=stride, padding=size // 2, groups=groups, bias=False),
        nn.BatchNorm2d(out),
        nn.ReLU6(),
    )


class _InvertedResidual(nn.Module):
    """1×1 to ``expansion`` times the channels, 3×3 channel by channel, 1×1 back, linear; a shortcut where shapes agree."""

    def __init__(self, channels: int, out: int, stride: int, expansion: int) -> None:
        super().__init__()
        hidden = channels * expansion
        layers: list[nn.Module] = [_convolution(channels, hidden, 1)] if expansion != 1 else []
        layers += [
            _convolution(hidden, hidden, 3, stride=stride, groups=hidden),
            nn.Conv2d(hidden, out, 1, bias=False),
            nn.BatchNorm2d(out),
        ]
        self.conv = nn.Sequential(*layers)
        self.adds = stride == 1 and channels == out

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.conv(x)
        return x + y if self.adds else y


def mobilenet_v2() -> nn.Module:
    """MobileNetV2, (b, 3, 32, 32) → (b, 10): 2,236,682 parameters.

    The first convolution and the second stage have stride 1 in place of 2, so the last maps are 4×4. Parameters have the
    names of torch's model zoo. First weights: N(0, 2/fan_out) for convolutions, N(0, 0.01²) for the linear layer, bias 0.
    """
    features: list[nn.Module] = [_convolution(3, 32, 3)]
    channels = 32
    for expansion, out, blocks, stride in _STAGES:
        for block in range(blocks):
            features.append(_InvertedResidual(channels, out, stride if block == 0 else 1, expansion))
            channels = out
    features.append(_convolution(channels, 1280, 1))
    network = nn.Sequential()
    network.add_module("features", nn.Sequential(*features))
    network.add_module("avgpool", nn.AdaptiveAvgPool2d(1))
    network.add_module("flatten", nn.Flatten())
    network.add_module("classifier", nn.Sequential(nn.Dropout(0.2), nn.Linear(1280, 10)))
    draw_convolutions(network)
    draw_linears(network)
    return network
