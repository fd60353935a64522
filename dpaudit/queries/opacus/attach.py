"""The façade's one line: it makes an Opacus optimizer draw one noise vector for all parameters."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from typing import TYPE_CHECKING, Any

from opacus.optimizers import AdaClipDPOptimizer, DPOptimizer, DPOptimizerFastGradientClipping
from opacus.optimizers.fsdpoptimizer_fast_gradient_clipping import FSDPOptimizerFastGradientClipping
from opacus.optimizers.optimizer import _mark_as_processed
from opacus.validators import ModuleValidator
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from dpaudit.errors import UsageError
from dpaudit.protocols import Mitigation
from dpaudit.queries.opacus.draw import (
    JointDraw,
    Release,
    SourceLike,
    SourceNoise,
    Supply,
    check_opacus,
    make_mitigation,
)
from dpaudit.queries.opacus.sharded import REDUCING_LATER, Group, reduces_later
from dpaudit.types import Reference

if TYPE_CHECKING:
    from dpaudit.queries.opacus.secure import LatticeNoise

__all__ = ["JointNoise", "check_model", "joint_class", "replace_noise", "use_noise_source"]


class JointNoise(DPOptimizer):  # type: ignore[misc]
    """Overrides the draw of the optimizer class that it is mixed with, and nothing else."""

    joint_draw: JointDraw

    @property
    def params(self) -> list[Any]:
        """The trainable parameters; none while Opacus' own ``add_noise`` runs for other noise."""
        return [] if self.joint_draw.aside else super().params

    def add_noise(self) -> None:
        """Set every ``p.grad`` to its part of one release of the sum of clipped gradients.

        The sum is over all processes: it is reduced first, and nothing is added to the release.
        Every process calls this, and all of them raise where one does.

        Raises:
            UsageError: other parameters than at the beginning; no σ above 0; a seed under
                secure_mode; or what the noise refuses (a gradient that is NaN or infinite, for
                one).
            ValueError: gradients of an earlier step, by Opacus: ``zero_grad`` was not called.
        """
        draw = self.joint_draw
        sums, sigma, key = draw.begin(self)
        released = draw.noise.release(sums, draw, sigma=sigma, key=key)
        for p, gradient in zip(draw.parameters, released, strict=True):
            p.grad = gradient.view_as(p)
        _mark_as_processed(sums)
        if isinstance(self, AdaClipDPOptimizer):
            draw.noise.count(self, draw, key=key)

    def reduce_gradients(self) -> None:
        """Divide by the number of processes, as Opacus does; they were summed before the noise."""
        if self.loss_reduction == "mean":
            for p in self.params:
                p.grad /= self.world_size


@cache
def joint_class(cls: Any) -> type:
    """``cls`` with its draw replaced: a subclass of both, one for each class."""
    return type(
        f"{cls.__name__}WithJointNoise",
        (JointNoise, cls),
        {"__module__": __name__, "__doc__": cls.__doc__},
    )


_KNOWN = [
    *(cls.add_noise for cls in (DPOptimizer, DPOptimizerFastGradientClipping, AdaClipDPOptimizer)),
    *(cls.add_noise for cls in REDUCING_LATER),
    FSDPOptimizerFastGradientClipping.add_noise,
]


def use_noise_source(
    optimizer: DPOptimizer,
    source: SourceLike,
    *,
    mitigation: Mitigation | Reference | str = "none",
    seed: int | str | None = None,
    observe: Callable[[Release], object] | None = None,
) -> DPOptimizer:
    """Make an Opacus optimizer draw all its noise from ``source``; returns ``optimizer``.

    One line after ``PrivacyEngine().make_private(...)``::

        optimizer = use_noise_source(optimizer, "secure-gaussian")

    At each logical step the sums of clipped gradients of all trainable parameters are flattened,
    joined in the optimizer's order into one vector (d,) and released through ``mitigation`` with
    noise of σ = noise_multiplier × max_grad_norm as they are then (so schedulers and adaptive
    clipping work): one key serves the whole gradient. The optimizer is changed in place. Its hooks,
    the engine's accountant, clipping, accumulation, virtual steps and division stay Opacus'; a
    second ``make_private`` undoes the replacement.

    Several processes (DDP, ``fully_shard``, HSDP, DTensors): every process makes this call. The
    sums are reduced first, the first process gathers the whole gradient and releases it, and the
    others are sent their part, so that replicas are equal. Where ``fully_shard`` has divided the
    sum, σ is divided by the same number. The first process needs memory for three whole gradients
    at a step, each other for its largest parameter; :func:`dpaudit.secure_noise` needs neither.

    ``source`` is a source's name with its options (``pancake:key=key.json``, ``gaussian``), or a
    function of σ that makes one. A ``ReleasingSource`` sees the gradient itself, in the parameters'
    dtype. ``observe`` is called with each :class:`Release`; without it none is made.

    Randomness: each step's stream comes from the operating system, or follows from ``seed``, which
    ``secure_mode`` refuses. A seed gives each run the same noise again: use it for experiments
    only, and never for a run that is resumed, nor for an optimizer that is passed here again (its
    steps count from 0). A ``noise_generator`` given to Opacus serves only what is left to Opacus,
    AdaClip's noise on the unclipped count.

    Last bits: Opacus' ``secure_mode`` sums four normals to hide the floating-point grid (the
    registered specimen ``four-sum-gaussian`` is that sum). Here the source alone determines the
    last bits and how hard its noise is to predict: ``gaussian`` promises neither,
    ``secure-gaussian`` both, with mitigation ``none``.

    Not claimed: any privacy beyond the source's own (``source.epsilon``), whatever the accountant
    says. With a pancake it reports the ε that its victim believes in.

    Raises:
        UsageError: not an Opacus optimizer, or one whose noise is not drawn by Opacus' own code;
            the source is replaced already; noise_multiplier 0; no trainable parameter; different
            dtypes or devices among them; a key for another number of them; a source without the
            option ``sigma``; a seed under secure_mode; a device mesh without some of the processes;
            other parameters, placements or σ than in another process. And, at a step: parameters
            frozen or added since. In every process if in one.
        UnknownNameError: no such source or mitigation, or no such option.
    """

    def make(dim: int) -> SourceNoise:
        return SourceNoise(
            Supply(source, dim=dim), make_mitigation(mitigation, dim=dim), seed, observe
        )

    return replace_noise(optimizer, make)


def replace_noise(optimizer: Any, make: Callable[[int], SourceNoise | LatticeNoise]) -> Any:
    """Give ``optimizer`` the noise that ``make`` makes for d parameters, in place.

    Every process of its group must call this.

    Raises:
        UsageError: its noise cannot be replaced, in this process or another.
    """
    _check_optimizer(optimizer)
    if not (parameters := tuple(optimizer.params)):
        raise UsageError(
            "parameters=0: the optimizer has none that is trainable, and nothing to release; "
            "set requires_grad first"
        )
    noise = make(sum(p.numel() for p in parameters))
    draw = JointDraw(noise, parameters, Group(optimizer, parameters), reduces_later(optimizer))
    draw.attach(optimizer)
    optimizer.joint_draw = draw
    cls: Any = type(optimizer)
    optimizer.__class__ = joint_class(cls)
    return optimizer


def _check_optimizer(optimizer: Any) -> None:
    name = check_opacus(optimizer)
    if isinstance(optimizer, JointNoise):
        raise UsageError(
            f"optimizer={name}: draws from {optimizer.joint_draw.noise.name} already; "
            "replace its noise once, or call make_private again first"
        )
    if "add_noise" in vars(optimizer) or type(optimizer).add_noise not in _KNOWN:
        raise UsageError(
            f"optimizer={name}: has an add_noise of its own, which the façade would bypass; "
            "take one of Opacus' optimizers"
        )


def check_model(model: nn.Module) -> None:
    """Refuse a network whose per-record gradients do not exist, or that Opacus has no rule for.

    Opacus' own validator, with the layers' names, and one check more: a BatchNorm without trainable
    parameters, which Opacus accepts, mixes records as well if it takes its statistics from the
    batch.

    Raises:
        UsageError: BatchNorm layers, by name; a network in evaluation mode; anything else that
            Opacus refuses.
    """
    if not model.training:
        raise UsageError(
            "model: is in evaluation mode, and Opacus wants it in training mode; call model.train()"
        )
    mixing = list(_mixing(model))
    if mixing:
        more = f" and {len(mixing) - 3} more" if len(mixing) > 3 else ""
        raise UsageError(
            f"model={type(model).__name__}: BatchNorm in {', '.join(mixing[:3])}{more} makes each "
            "record's gradient depend on the rest of its batch; convert it with "
            "dpaudit.training.models.networks.with_norm(model, 'group') or 'frozen'"
        )
    for name, module in model.named_modules():
        check = ModuleValidator.VALIDATORS.get(type(module))
        errors = check(module) if check and _trainable(module) else []
        if errors:
            raise UsageError(
                f"model={type(model).__name__}: Opacus cannot train its {name or 'root'}: "
                f"{errors[0]}; opacus.validators.ModuleValidator.fix(model) may replace it"
            )


def _mixing(model: nn.Module) -> Iterator[str]:
    for name, module in model.named_modules():
        if isinstance(module, _BatchNorm) and (
            _trainable(module)
            or module.training
            or module.running_mean is None
            or module.running_var is None
        ):
            yield name or "the model itself"


def _trainable(module: nn.Module) -> bool:
    return any(p.requires_grad for p in module.parameters(recurse=False))
