"""The joint draw: one flat release of all tensors, from a source named or made by a function."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from opacus.optimizers import AdaClipDPOptimizer, DPOptimizer, DPOptimizerFastGradientClipping
from opacus.optimizers.optimizer import _check_processed_flag
from torch import distributed, nn
from torch.distributed.tensor import DTensor

from dpaudit import registry
from dpaudit.errors import UsageError
from dpaudit.noise.key import PancakeKey
from dpaudit.protocols import Mitigation, NoiseSource
from dpaudit.queries.opacus.sharded import Group, Place, divisor, local, places, summed, total
from dpaudit.randomness import KeyedStream
from dpaudit.types import Reference

if TYPE_CHECKING:
    from dpaudit.queries.opacus.secure import LatticeNoise

__all__ = [
    "JointDraw",
    "Release",
    "SourceLike",
    "SourceNoise",
    "Supply",
    "check_alike",
    "check_opacus",
    "make_mitigation",
    "noise_scale",
]


@dataclass(frozen=True, eq=False, slots=True)
class Release:
    """One logical step's draw, before Opacus divides; observed in the first process only.

    Attributes:
        step: how many draws the façade made before this one.
        sigma: what the source was asked for, noise multiplier × clipping bound, in the query's
            unit; a mitigation may add to it (``mitigation.scale(sigma)``).
        query: the sum of clipped gradients over all processes, flattened and joined in the
            optimizer's order, shape (d,); under ``fully_shard`` divided as it divides, and so is
            sigma.
        noisy: ``query`` as released, shape (d,). Both are copies of their own, and no part of a
            graph.
    """

    step: int
    sigma: float
    query: torch.Tensor
    noisy: torch.Tensor


def noise_scale(optimizer: Any) -> float:
    """Noise multiplier × clipping bound as they are now, in the gradient's unit.

    AdaClip's multiplier is the adjusted one, (z⁻² − (2·σ_u)⁻²)^(−1/2) (arXiv 1905.03871, Theorem
    1), with σ_u the standard deviation of its unclipped count's noise; so is that of ghost clipping
    under ``PrivacyEngineAdaptiveClipping``.

    Raises:
        UsageError: a multiplier or a bound that is not a finite number above 0.
    """
    multiplier = _above_zero("noise_multiplier", optimizer.noise_multiplier)
    if isinstance(optimizer, AdaClipDPOptimizer):
        rest = multiplier**-2 - (2 * optimizer.unclipped_num_std) ** -2
        if not rest > 0:
            raise UsageError(
                f"noise_multiplier={multiplier}: must be below 2·unclipped_num_std = "
                f"{2 * optimizer.unclipped_num_std}; raise unclipped_num_std"
            )
        multiplier = rest**-0.5
    elif isinstance(optimizer, DPOptimizerFastGradientClipping):
        multiplier = _above_zero(
            "_adjusted_noise_multiplier",
            getattr(optimizer, "_adjusted_noise_multiplier", multiplier),
        )
    return multiplier * _above_zero("max_grad_norm", optimizer.max_grad_norm)


def _above_zero(name: str, value: Any) -> float:
    """The value as a float: a number, or a tensor of one (AdaClip's bound becomes one)."""
    if not (float(value) > 0 and math.isfinite(value)):
        raise UsageError(
            f"{name}={float(value)}: there is noise to draw only for a finite number above 0; "
            "give one"
        )
    return float(value)


def check_opacus(optimizer: Any) -> str:
    """Return the name of the optimizer's class.

    Raises:
        UsageError: it is none of Opacus' optimizers.
    """
    name = type(optimizer).__name__
    if not isinstance(optimizer, DPOptimizer):
        raise UsageError(
            f"optimizer={name}: is not Opacus'; give the optimizer that "
            "PrivacyEngine().make_private(...) returned"
        )
    return name


def check_alike(parameters: Sequence[nn.Parameter]) -> None:
    """Refuse parameters that one flat vector cannot hold.

    Raises:
        UsageError: different dtypes, or different devices.
    """
    remedies = {"dtype": "convert the model to one, e.g. model.float()"}
    remedies["device"] = "move the model to one, e.g. model.to('cuda:0')"
    for name, remedy in remedies.items():
        if len(kinds := {str(getattr(p, name)) for p in parameters}) > 1:
            raise UsageError(
                f"{name}={', '.join(sorted(kinds))}: the noise of all parameters is one vector of "
                f"one {name}; {remedy}"
            )


@dataclass
class JointDraw:
    """State for an optimizer with replaced noise.

    Attributes:
        parameters: the trainable ones when the noise was replaced, in the optimizer's order.
        group: the processes that take a step together.
        reduces: whether gradients are summed over processes here, and not before.
        places: what this one holds of each parameter.
        step: draws made so far.
        aside: whether Opacus' own code is running, for what it draws besides the parameters' noise.
    """

    noise: SourceNoise | LatticeNoise
    parameters: tuple[nn.Parameter, ...]
    group: Group
    reduces: bool
    places: tuple[Place, ...] = ()
    step: int = 0
    aside: bool = False

    def attach(self, optimizer: Any) -> None:
        """Find what this process holds; a UsageError in every process if in one."""

        def check() -> str:
            self.places = places(self.parameters)
            return self._check(optimizer, [], sigma=self._sigma(optimizer))

        self.group.agree(check)

    def begin(self, optimizer: Any) -> tuple[list[torch.Tensor], float, bytes]:
        """A step's sums of clipped gradients, σ in their unit, and a fresh key.

        A draw counts as made whatever happens to it: where an observer fails, the next is another.

        Raises:
            UsageError: in every process, where one of them cannot take the step.
            ValueError: gradients of an earlier step, by Opacus.
        """
        sums: list[torch.Tensor] = []
        sigma = math.nan

        def check() -> str:
            nonlocal sigma
            self.check_parameters(optimizer.params)
            sums.extend(summed(optimizer, p) for p in self.parameters)
            _check_processed_flag(sums)
            sigma = self._sigma(optimizer)
            return self._check(optimizer, sums, sigma=sigma)

        key = self.group.agree(check, keyed=True)
        self.step += 1
        return sums, sigma, key

    def _sigma(self, optimizer: Any) -> float:
        return noise_scale(optimizer) / divisor(self.parameters)

    def _check(self, optimizer: Any, sums: Sequence[torch.Tensor], *, sigma: float) -> str:
        self.noise.check(optimizer, sums, sigma=sigma)
        layout = self.group.check(optimizer, self.parameters)
        return f"{layout}\n{self.noise.name} {self.step} {sigma!r} {optimizer.loss_reduction}"

    def check_parameters(self, now: Sequence[nn.Parameter]) -> None:
        """Refuse a step over other parameters than those at the beginning.

        Raises:
            UsageError: one was frozen, made trainable, added or removed since.
        """
        present = {id(p) for p in now}
        gone = [
            f"parameter number {i}, shape {tuple(p.shape)}, was frozen or removed since"
            for i, p in enumerate(self.parameters)
            if id(p) not in present
        ]
        if gone or len(now) != len(self.parameters):
            before, after = (sum(p.numel() for p in some) for some in (self.parameters, now))
            raise UsageError(
                f"parameters={after}: the façade was put on for {before}, and "
                f"{gone[0] if gone else 'others came in since'}; "
                "freeze first, then make_private, then this"
            )


@dataclass
class SourceNoise:
    """Noise of a source through a mitigation, one flat release of all tensors."""

    supply: Supply
    mitigation: Mitigation
    seed: int | str | None
    observe: Callable[[Release], object] | None

    @property
    def name(self) -> str:
        return self.supply.name

    def scale(self, sigma: float) -> float:
        return float(self.mitigation.scale(sigma))

    def check(self, optimizer: Any, sums: Sequence[torch.Tensor], *, sigma: float) -> None:
        """Refuse a seed under ``secure_mode``, and parameters that one flat vector cannot hold."""
        if self.seed is not None and optimizer.secure_mode:
            raise UsageError(
                "seed: under secure_mode each step's noise comes from the operating system, and "
                "must not be repeatable; leave seed out"
            )
        check_alike(optimizer.params)
        if not sums and getattr(optimizer, "rank", 0) == 0:
            self.supply.at(sigma)

    @torch.no_grad()
    def release(
        self, sums: Sequence[torch.Tensor], draw: JointDraw, *, sigma: float, key: bytes
    ) -> list[torch.Tensor]:
        """The noisy sums, from one draw over all of them joined.

        The first process draws and sends the result, so that replicas are equal whatever the source
        computes with. It holds at most three vectors of the gradient's length besides the sums,
        another process one whole parameter at a time.
        """
        first = draw.group.rank == 0
        wholes, noisy = [], []
        for one, p in zip(sums, draw.parameters, strict=True):
            gradient = total(one, p, reduce=True) if draw.reduces else one
            gradient = gradient.full_tensor() if isinstance(gradient, DTensor) else gradient
            wholes += [gradient.reshape(-1)] if first else []

        def draw_noise() -> str:
            if first:
                query = torch.cat(wholes).unsqueeze(0)
                wholes.clear()
                noisy.append(self._draw(query, draw.step - 1, sigma=sigma, key=key))
            return ""

        draw.group.agree(draw_noise)
        released = []
        for p, place in zip(draw.parameters, draw.places, strict=True):
            at = slice(place.base, place.base + p.numel())
            piece = noisy[0][at].clone().view(p.shape) if first else local(p).new_empty(p.shape)
            if draw.group.size > 1:
                distributed.broadcast(piece, 0)
            released.append(torch.empty_like(p) if isinstance(p, DTensor) else piece)
            for block in place.blocks if isinstance(p, DTensor) else ():
                part = local(released[-1])[block.where]
                rows = (block.rows, part.numel() // block.rows)
                lined_up = piece.as_strided(rows, (block.stride, 1), block.start)
                part.copy_(lined_up.reshape(part.shape))
        return released

    def _draw(self, query: torch.Tensor, step: int, *, sigma: float, key: bytes) -> torch.Tensor:
        stream, source = KeyedStream(key), self.supply.at(sigma)
        if self.seed is not None:
            stream = KeyedStream.from_seed(self.seed).child("release", step)
        noisy: torch.Tensor = self.mitigation.release(query, source, stream=stream)[0]
        if self.observe is not None:
            self.observe(Release(step=step, sigma=sigma, query=query[0], noisy=noisy))
        return noisy

    def count(self, optimizer: Any, draw: JointDraw, *, key: bytes) -> None:  # noqa: ARG002
        """This noise stays Opacus' own."""
        draw.aside = True
        try:
            AdaClipDPOptimizer.add_noise(optimizer)
        finally:
            draw.aside = False


SourceLike = Reference | str | Callable[[float], NoiseSource]

# relative; a discrete law's standard deviation differs less than that from its parameter
_SAME = 1e-6


class Supply:
    """Makes the source for a σ and keeps the last one, so that a key file is read once."""

    def __init__(self, source: SourceLike, *, dim: int) -> None:
        """Sources named or made by ``source`` for ``dim`` parameters.

        Raises:
            UsageError: neither a name nor a function of σ; a source without the option ``sigma``,
                or with it given.
            UnknownNameError: no such source.
        """
        self._dim = dim
        self._last: NoiseSource | None = None
        self._sigma = math.nan
        if isinstance(source, (str, Reference)):
            self._reference: Reference | None = (
                Reference.parse(source) if isinstance(source, str) else source
            )
            self._options: Mapping[str, Any] = registry.with_known_options(
                "sources", self._reference, dim=dim
            ).options
            self.name = str(self._reference)
            self._check_sigma_is_ours(self._reference)
        elif callable(source):
            self._reference, self._make = None, source
            self.name = getattr(source, "__name__", type(source).__name__)
        else:
            raise UsageError(
                f"source={type(source).__name__}: must be a name such as pancake:key=key.json or a "
                "function of σ; the optimizer sets σ, so write lambda sigma: Gaussian(sigma=sigma)"
            )

    def at(self, sigma: float) -> NoiseSource:
        """The source of standard deviation ``sigma``.

        Raises:
            UsageError: it is not a noise source, has another σ, or serves another number of
                parameters; or what the source itself refuses.
        """
        if self._last is None or sigma != self._sigma:
            source = self._create(sigma)
            self._check(source, sigma)
            self._last, self._sigma = source, sigma
        return self._last

    def _create(self, sigma: float) -> NoiseSource:
        if self._reference is None:
            return self._make(sigma)
        key = getattr(self._last, "key", None)  # not from its file once more, and not derived again
        secrets = {"key": key} if isinstance(key, PancakeKey) and "key" in self._options else {}
        options = {**self._options, **secrets, "sigma": sigma}
        source: NoiseSource = registry.create("sources", Reference(self._reference.name, options))
        return source

    def _check_sigma_is_ours(self, reference: Reference) -> None:
        if "sigma" in reference.options:
            raise UsageError(
                f"sigma={reference.options['sigma']}: the optimizer sets "
                "σ = noise_multiplier × max_grad_norm; leave it out"
            )
        if "sigma" not in inspect.signature(registry.load("sources", reference.name)).parameters:
            raise UsageError(
                f"source={reference.name}: has no option sigma, and the optimizer must set "
                "σ = noise_multiplier × max_grad_norm; take one that has, e.g. gaussian, "
                "secure-gaussian or pancake:key=key.json"
            )

    def _check(self, source: NoiseSource, sigma: float) -> None:
        if not isinstance(source, NoiseSource):
            raise UsageError(
                f"source={self.name}: made a {type(source).__name__}, which is not a noise source"
            )
        if source.dim not in (None, self._dim):
            raise UsageError(
                f"source={self.name}: its key serves dim={source.dim}, and the optimizer has "
                f"{self._dim} trainable parameters; "
                f"make a key for them with dpaudit key new --dim {self._dim}"
            )
        if not math.isclose(source.sigma, sigma, rel_tol=_SAME):
            raise UsageError(
                f"source={self.name}: has sigma={source.sigma} where the accountant counts on "
                f"{sigma}; make it with that σ"
            )


def make_mitigation(mitigation: Mitigation | Reference | str, *, dim: int) -> Mitigation:
    """A mitigation from its name, or the object itself; the dimension goes to one that takes it.

    Raises:
        UsageError: neither a name nor a mitigation; or what the mitigation itself refuses.
        UnknownNameError: no such mitigation, or no such option.
    """
    if isinstance(mitigation, (str, Reference)):
        reference = Reference.parse(mitigation) if isinstance(mitigation, str) else mitigation
        instance: Mitigation = registry.create(
            "mitigations", registry.with_known_options("mitigations", reference, dim=dim)
        )
        return instance
    if not isinstance(mitigation, Mitigation) or isinstance(mitigation, type):
        raise UsageError(
            f"mitigation={mitigation!r}: must be a name (none, rotation, smoothing:tau=0.05) "
            "or a mitigation"
        )
    return mitigation
