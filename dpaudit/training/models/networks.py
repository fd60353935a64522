"""Networks for 32×32 colour and 28×28 grey images, also with a norm of each record alone."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable

import torch
from torch import nn
from torch.nn import functional
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.dropout import _DropoutNd

from dpaudit.errors import UsageError

__all__ = [
    "NORMS",
    "FrozenNorm2d",
    "cnn",
    "lenet5",
    "lenet5_tanh",
    "mlp",
    "mobilenet_v2",
    "resnet20",
    "resnet50",
    "resnet56",
    "vgg19_bn",
    "with_norm",
]


def draw_convolutions(network: nn.Module) -> None:
    """Draw every Conv2d's weights from N(0, 2/fan_out), biases 0; in place.

    He et al. 2015, section 2.2, backward form. fan_out is torch's: output channels times the
    kernel's area, also for a convolution in groups.
    """
    for module in network.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
            if module.bias is not None:
                nn.init.zeros_(module.bias)


def draw_linears(network: nn.Module) -> None:
    """Draw every Linear's weights from N(0, 0.01²), biases 0; in place."""
    for module in network.modules():
        if isinstance(module, nn.Linear):
            nn.init.normal_(module.weight, std=0.01)
            nn.init.zeros_(module.bias)


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
    """A network of 6·``blocks`` + 2 layers, (b, 3, 32, 32) → (b, 10).

    Three stages of 16, 32 and 64 channels. Parameters have the names of Idelbayev's published
    weights (``akamaster/pytorch_resnet_cifar10``), less ``module.``. First weights as in He et al.
    2015: N(0, 2/fan_in), biases 0.
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
        logits: torch.Tensor = self.linear(self.flatten(self.pool(y)))
        return logits


def _stage(channels: int, out: int, stride: int, blocks: int) -> nn.Sequential:
    later = [_Block(out, out, 1) for _ in range(blocks - 1)]
    return nn.Sequential(_Block(channels, out, stride), *later)


def resnet20() -> nn.Module:
    """ResNet-20: 269,722 parameters."""
    return CifarResNet(3)


def resnet56() -> nn.Module:
    """ResNet-56: 853,018 parameters."""
    return CifarResNet(9)


_VGG_STAGES = ((64, 2), (128, 2), (256, 4), (512, 4), (512, 4))


def vgg19_bn() -> nn.Module:
    """VGG-19 with batch normalisation, (b, 3, 32, 32) → (b, 10): 38,958,922 parameters.

    Five stages of 3×3 convolutions, each with a max-pool after it; the last leaves 1×1, so the
    classifier's first layer takes 512 values, not the 25,088 of a 224×224 image. First weights:
    N(0, 2/fan_out) for convolutions, N(0, 0.01²) for linear layers, biases 0.
    """
    features: list[nn.Module] = []
    channels = 3
    for width, depth in _VGG_STAGES:
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


_WIDER = 4

_RESNET_STAGES = ((64, 1, 3), (128, 2, 4), (256, 2, 6), (512, 2, 3))


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
            self.downsample = nn.Sequential(
                nn.Conv2d(channels, out, 1, stride=stride, bias=False), nn.BatchNorm2d(out)
            )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.relu(self.bn1(self.conv1(x)))
        y = torch.relu(self.bn2(self.conv2(y)))
        return torch.relu(self.bn3(self.conv3(y)) + self.downsample(x))


class ResNet50(nn.Module):
    """ResNet-50 for ten classes, (b, 3, 32, 32) → (b, 10).

    The first convolution is 3×3 with stride 1; the 3×3 max-pool with stride 2 after it stays, so
    the last stage's maps are 2×2. Parameters have the names of torch's model zoo. First weights:
    N(0, 2/fan_out) for convolutions, torch's own for the linear layer.
    """

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 64, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(64)
        self.maxpool = nn.MaxPool2d(3, stride=2, padding=1)
        channels = 64
        stages = []
        for width, stride, blocks in _RESNET_STAGES:
            first = _Bottleneck(channels, width, stride)
            channels = _WIDER * width
            stages.append(
                nn.Sequential(first, *(_Bottleneck(channels, width, 1) for _ in range(blocks - 1)))
            )
        self.layer1, self.layer2, self.layer3, self.layer4 = stages
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.flatten = nn.Flatten()
        self.fc = nn.Linear(channels, 10)
        draw_convolutions(self)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.maxpool(torch.relu(self.bn1(self.conv1(x))))
        y = self.layer4(self.layer3(self.layer2(self.layer1(y))))
        logits: torch.Tensor = self.fc(self.flatten(self.avgpool(y)))
        return logits


def resnet50() -> nn.Module:
    """ResNet-50 for 32×32 colour images: 23,520,842 parameters."""
    return ResNet50()


_MOBILE_STAGES = (  # the table's t, c, n, s; the second stage's stride is 1 there 2
    (1, 16, 1, 1),
    (6, 24, 2, 1),
    (6, 32, 3, 2),
    (6, 64, 4, 2),
    (6, 96, 3, 1),
    (6, 160, 3, 2),
    (6, 320, 1, 1),
)


def _convolution(
    channels: int, out: int, size: int, *, stride: int = 1, groups: int = 1
) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(channels, out, size, stride=stride, padding=size // 2, groups=groups, bias=False),
        nn.BatchNorm2d(out),
        nn.ReLU6(),
    )


class _InvertedResidual(nn.Module):
    """1×1 to ``expansion`` times the channels, 3×3 channel by channel, 1×1 back, linear.

    With a shortcut where shapes agree.
    """

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

    The first convolution and the second stage have stride 1 in place of 2, so the last maps are
    4×4. Parameters have the names of torch's model zoo. First weights: N(0, 2/fan_out) for
    convolutions, N(0, 0.01²) for the linear layer, bias 0.
    """
    features: list[nn.Module] = [_convolution(3, 32, 3)]
    channels = 32
    for expansion, out, blocks, stride in _MOBILE_STAGES:
        for block in range(blocks):
            features.append(
                _InvertedResidual(channels, out, stride if block == 0 else 1, expansion)
            )
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


NORMS = ("frozen", "group", "record")


class _Constants(nn.Module):
    """x ↦ (x − mean)/√(var + eps) with one constant mean and variance per channel."""

    mean: torch.Tensor
    var: torch.Tensor

    def __init__(self, mean: torch.Tensor, var: torch.Tensor, eps: float) -> None:
        super().__init__()
        self.eps = eps
        self.register_buffer("mean", mean.detach().clone())
        self.register_buffer("var", var.detach().clone())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (x - self.mean[:, None, None]) * torch.rsqrt(self.var + self.eps)[:, None, None]


class _Affine(nn.Module):
    """x ↦ weight·x + bias, channel by channel."""

    def __init__(self, weight: nn.Parameter, bias: nn.Parameter) -> None:
        super().__init__()
        self.weight, self.bias = weight, bias

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.weight[:, None, None] + self.bias[:, None, None]


class FrozenNorm2d(nn.Sequential):
    """A BatchNorm2d in evaluation mode, in every mode; only ``weight`` and ``bias`` are trained.

    Two modules, since Opacus refuses one that has both parameters and buffers, whose buffers might
    depend on the records (these never change): ``constants`` with buffers ``mean`` and ``var``,
    shape (C,), and ``affine`` with ``weight`` and ``bias``, shape (C,). Input and output (b, C, h,
    w).
    """

    def __init__(self, norm: nn.BatchNorm2d) -> None:
        """Takes over ``norm``'s own parameters and a copy of its running statistics.

        Raises:
            UsageError: a BatchNorm2d that keeps no running statistics.
        """
        super().__init__()
        if norm.running_mean is None or norm.running_var is None:
            raise UsageError(
                "norm=frozen: needs running statistics; "
                "take group or record, or track_running_stats=True"
            )
        self.add_module("constants", _Constants(norm.running_mean, norm.running_var, norm.eps))
        if norm.affine:
            self.add_module("affine", _Affine(norm.weight, norm.bias))


def with_norm(model: nn.Module, norm: str) -> nn.Module:
    """A copy of ``model`` in which records do not affect each other; ``model`` is not changed.

    Every BatchNorm2d becomes, with its ``weight`` and ``bias`` kept:

    - ``frozen``: itself in evaluation mode, its running statistics constants (`FrozenNorm2d`). As
      private as the data these statistics come from. For trained networks: in an untrained one they
      are 0 and 1, and nothing is normalised.
    - ``group``: nn.GroupNorm with gcd(32, C) groups, Opacus' replacement (``ModuleValidator.fix``).
      Another function, so weights trained with BatchNorm lose their accuracy.
    - ``record``: the statistics of the one record (nn.InstanceNorm2d without running ones). What
      BatchNorm computes in training mode on a batch of one, and so the per-sample gradient of the
      published experiments. Ill-conditioned where maps are small (2×2 in ResNet-50): four values
      that nearly agree are divided by their own spread.

    Every dropout module becomes nn.Identity: a query is a function of its batch. The copy is in
    training mode, the only one where Opacus takes gradients, and computes the same in either mode.
    Parameters keep their number, order, shapes and values, so a flat gradient means the same
    coordinates; names stay except under ``frozen`` (``bn1.weight`` is then ``bn1.affine.weight``).
    A model without BatchNorm and dropout is copied.

    Not claimed: dropout called as a function in ``forward`` is not seen.

    Raises:
        UsageError: a norm not in ``NORMS``; a batch normalisation that is no nn.BatchNorm2d, or
            under ``frozen`` one without running statistics.
    """
    if norm not in NORMS:
        raise UsageError(f"norm={norm}: not known; there are: {', '.join(NORMS)}")
    return _convert(copy.deepcopy(model), norm).train()


def _convert(module: nn.Module, norm: str) -> nn.Module:
    if isinstance(module, _DropoutNd):
        return nn.Identity()
    if isinstance(module, nn.BatchNorm2d):
        return _replacement(module, norm)
    if isinstance(module, _BatchNorm):
        raise UsageError(
            f"norm={norm}: replaces BatchNorm2d only, "
            f"and the model has a {type(module).__name__}; change it"
        )
    # named_children() passes over a module's second name
    for name, child in module._modules.items():
        if child is not None:
            module._modules[name] = _convert(child, norm)
    return module


def _replacement(norm: nn.BatchNorm2d, name: str) -> nn.Module:
    if name == "frozen":
        return FrozenNorm2d(norm)
    channels = norm.num_features
    replacement: nn.GroupNorm | nn.InstanceNorm2d
    if name == "group":
        replacement = nn.GroupNorm(
            math.gcd(32, channels), channels, eps=norm.eps, affine=norm.affine
        )
    else:
        replacement = nn.InstanceNorm2d(channels, eps=norm.eps, affine=norm.affine)
    if norm.affine:
        replacement.weight, replacement.bias = norm.weight, norm.bias
    return replacement
