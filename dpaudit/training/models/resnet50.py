"""ResNet-50 (He et al. 2016, table 1) with a first convolution for 32×32 colour images."""

from __future__ import annotations

import torch
from torch import nn

from dpaudit.training.models.initial import draw_convolutions

__all__ = ["ResNet50", "resnet50"]

_WIDER = 4
_STAGES = ((64, 1, 3), (128, 2, 4), (256, 2, 6), (512, 2, 3))


class _Bottleneck(nn.Module):
    """1×1, 3×3 and 1×1 convolutions with batch normalisation, and the shortcut around them.

    The stride is the 3×3 convolution's, as in torch's model zoo (the paper's is the first 1×1's).
    """

    def __init__(self, channels: int, width: int, stride: int) -> None:
        super().__init__()
        out = _WIDER * width
        self.conv1 = nn.Conv2d(channels, width, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, stride=stride, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3 = nn.Conv2d(width, out, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(out)
        self.downsample: nn.Module = nn.Identity()
        if stride != 1 or channels != out:
            self.downsample = nn.Sequential(nn.Conv2d(channels, out, 1, stride=stride, bias=False), nn.BatchNorm2d(out))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.relu(self.bn1(self.conv1(x)))
        y = torch.relu(self.bn2(self.conv2(y)))
        return torch.relu(self.bn3(self.conv3(y)) + self.downsample(x))


class ResNet50(nn.Module):
    """ResNet-50 for ten classes, (b, 3, 32, 32) → (b, 10).

    The first convolution is 3×3 with stride 1; the 3×3 max-pool with stride 2 after it stays, so the last stage's maps are
    2×2. Parameters have the names of torch's model zoo. First weights: N(0, 2/fan_out) for convolutions, torch's own for
    the linear layer.
    """

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 64, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(64)
        self.maxpool = nn.MaxPool2d(3, stride=2, padding=1)
        channels = 64
        stages = []
        for width, stride, blocks in _STAGES:
            first = _Bottleneck(channels, width, stride)
            channels = _WIDER * width
            stages.append(nn.Sequential(first, *(_Bottleneck(channels, width, 1) for _ in range(blocks - 1))))
        self.layer1, self.layer2, self.layer3, self.layer4 = stages
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.flatten = nn.Flatten()
        self.fc = nn.Linear(channels, 10)
        draw_convolutions(self)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.maxpool(torch.relu(self.bn1(self.conv1(x))))
        y = self.layer4(self.layer3(self.layer2(self.layer1(y))))
        found: torch.Tensor = self.fc(self.flatten(self.avgpool(y)))
        return found


def resnet50() -> nn.Module:
    """ResNet-50 for 32×32 colour images: 23,520,842 parameters."""
    return ResNet50()
