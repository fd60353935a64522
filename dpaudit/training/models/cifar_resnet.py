"""The residual networks for 32×32 colour images of He et al. 2016 ("Deep residual learning", section 4.2)."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional

__all__ = ["CifarResNet", "resnet20", "resnet56"]


class _Shortcut(nn.Module):
    """Option A: every second row and column, and zero channels on either side; nothing to learn."""

    def __init__(self, more: int) -> None:
        super().__init__()
        self.more = more

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        low = self.more // 2
        return functional.pad(x[..., ::2, ::2], (0, 0, 0, 0, low, self.more - low))


class _Block(nn.Module):
    """Two 3×3 convolutions with batch normalisation, and the shortcut around them."""

    def __init__(self, channels: int, out: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, out, 3, stride=stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(out)
        self.conv2 = nn.Conv2d(out, out, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(out)
        self.shortcut = nn.Identity() if stride == 1 else _Shortcut(out - channels)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.relu(self.bn1(self.conv1(x)))
        return torch.relu(self.bn2(self.conv2(y)) + self.shortcut(x))


class CifarResNet(nn.Module):
    """A network of 6·``blocks`` + 2 layers, three stages of 16, 32 and 64 channels, (b, 3, 32, 32) → (b, 10).

    Parameters have the names of Idelbayev's published weights (``akamaster/pytorch_resnet_cifar10``), less ``module.``.
    First weights as in He et al. 2015: N(0, 2/fan_in), biases 0.
    """

    def __init__(self, blocks: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 16, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(16)
        self.layer1 = _stage(16, 16, 1, blocks)
        self.layer2 = _stage(16, 32, 2, blocks)
        self.layer3 = _stage(32, 64, 2, blocks)
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.flatten = nn.Flatten()
        self.linear = nn.Linear(64, 10)
        for module in self.modules():
            if isinstance(module, nn.Conv2d | nn.Linear):
                nn.init.kaiming_normal_(module.weight)
        nn.init.zeros_(self.linear.bias)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.relu(self.bn1(self.conv1(x)))
        y = self.layer3(self.layer2(self.layer1(y)))
        found: torch.Tensor = self.linear(self.flatten(self.pool(y)))
        return found


def _stage(channels: int, out: int, stride: int, blocks: int) -> nn.Sequential:
    later = [_Block(out, out, 1) for _ in range(blocks - 1)]
    return nn.Sequential(_Block(channels, out, stride), *later)


def resnet20() -> nn.Module:
    """ResNet-20: 269,722 parameters."""
    return CifarResNet(3)


def resnet56() -> nn.Module:
    """ResNet-56: 853,018 parameters."""
    return CifarResNet(9)
