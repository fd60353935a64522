"""The standard deviation that an Opacus optimizer would draw its next noise with."""

from __future__ import annotations

import math
from typing import Any

from opacus.optimizers import AdaClipDPOptimizer, DPOptimizerFastGradientClipping

from dpaudit.errors import UsageError

__all__ = ["noise_scale"]


def noise_scale(optimizer: Any) -> float:
    """Noise multiplier × clipping bound as they are now, in the gradient's unit.

    AdaClip's multiplier is the adjusted one, (z⁻² − (2·σ_u)⁻²)^(−1/2) (arXiv 1905.03871, Theorem 1), σ_u the deviation of its
    unclipped count's noise; so is that of ghost clipping under ``PrivacyEngineAdaptiveClipping``.

    Raises:
        UsageError: a multiplier or a bound that is not a finite number above 0.
    """
    multiplier = _above_zero("noise_multiplier", optimizer.noise_multiplier)
    if isinstance(optimizer, AdaClipDPOptimizer):
        rest = multiplier**-2 - (2 * optimizer.unclipped_num_std) ** -2
        if not rest > 0:
            raise UsageError(
                f"noise_multiplier={multiplier}: must be below 2·unclipped_num_std = {2 * optimizer.unclipped_num_std}; "
                "raise unclipped_num_std"
            )
        multiplier = rest**-0.5
    elif isinstance(optimizer, DPOptimizerFastGradientClipping):
        multiplier = _above_zero(
            "_adjusted_noise_multiplier", getattr(optimizer, "_adjusted_noise_multiplier", multiplier)
        )
    return multiplier * _above_zero("max_grad_norm", optimizer.max_grad_norm)


def _above_zero(name: str, value: Any) -> float:
    """The value as a float: a number, or a tensor of one (AdaClip's bound becomes one)."""
    if not (float(value) > 0 and math.isfinite(value)):
        raise UsageError(f"{name}={float(value)}: there is noise to draw only for a finite number above 0; give one")
    return float(value)
