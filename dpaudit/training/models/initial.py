"""First weights shared by the networks of torch's model zoo."""

from __future__ import annotations

from torch import nn

__all__ = ["draw_convolutions", "draw_linears"]


def draw_convolutions(network: nn.Module) -> None:
    """Every Conv2d's weights from N(0, 2/fan_out) (He et al. 2015, section 2.2, backward form), biases 0; in place.

    fan_out is torch's: output channels times the kernel's area, also for a convolution in groups.
    """
    for module in network.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
            if module.bias is not None:
                nn.init.zeros_(module.bias)


def draw_linears(network: nn.Module) -> None:
    """Every Linear's weights from N(0, 0.01²), biases 0; in place."""
    for module in network.modules():
        if isinstance(module, nn.Linear):
            nn.init.normal_(module.weight, std=0.01)
            nn.init.zeros_(module.bias)
