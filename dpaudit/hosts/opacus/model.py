"""Whether Opacus can train a network at all, said in one sentence."""

from __future__ import annotations

from collections.abc import Iterator

from opacus.validators import ModuleValidator
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from dpaudit.errors import UsageError

__all__ = ["check_model"]


def check_model(model: nn.Module) -> None:
    """Refuse a network whose per-record gradients do not exist, or that Opacus has no rule for.

    Opacus' own validator, with the layers' names, and one thing more: a BatchNorm without trainable parameters, which
    Opacus lets pass, mixes records just the same as long as it takes its statistics from the batch.

    Raises:
        UsageError: BatchNorm layers, by name; a network in evaluation mode; anything else that Opacus refuses.
    """
    if not model.training:
        raise UsageError("model: is in evaluation mode, and Opacus wants it in training mode; call model.train()")
    mixing = list(_mixing(model))
    if mixing:
        more = f" and {len(mixing) - 3} more" if len(mixing) > 3 else ""
        raise UsageError(
            f"model={type(model).__name__}: BatchNorm in {', '.join(mixing[:3])}{more} makes each record's gradient depend "
            "on the rest of its batch; convert it with dpaudit.training.models.norms.with_norm(model, 'group') or 'frozen'"
        )
    for name, module in model.named_modules():
        check = ModuleValidator.VALIDATORS.get(type(module))
        errors = check(module) if check and _trainable(module) else []
        if errors:
            raise UsageError(
                f"model={type(model).__name__}: Opacus cannot train its {name or 'root'}: {errors[0]}; "
                "opacus.validators.ModuleValidator.fix(model) may replace it"
            )


def _mixing(model: nn.Module) -> Iterator[str]:
    for name, module in model.named_modules():
        if isinstance(module, _BatchNorm) and (
            _trainable(module) or module.training or module.running_mean is None or module.running_var is None
        ):
            yield name or "the model itself"


def _trainable(module: nn.Module) -> bool:
    return any(p.requires_grad for p in module.parameters(recurse=False))
