"""Networks without batch statistics: BatchNorm replaced by a norm of each record alone."""

from __future__ import annotations

import copy
import math

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.dropout import _DropoutNd

from dpaudit.errors import UsageError

__all__ = ["NORMS", "FrozenNorm2d", "with_norm"]

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
    return _converted(copy.deepcopy(model), norm).train()


def _converted(module: nn.Module, norm: str) -> nn.Module:
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
            module._modules[name] = _converted(child, norm)
    return module


def _replacement(norm: nn.BatchNorm2d, name: str) -> nn.Module:
    if name == "frozen":
        return FrozenNorm2d(norm)
    channels = norm.num_features
    found: nn.GroupNorm | nn.InstanceNorm2d
    if name == "group":
        found = nn.GroupNorm(math.gcd(32, channels), channels, eps=norm.eps, affine=norm.affine)
    else:
        found = nn.InstanceNorm2d(channels, eps=norm.eps, affine=norm.affine)
    if norm.affine:
        found.weight, found.bias = norm.weight, norm.bias
    return found
