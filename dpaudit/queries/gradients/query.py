"""The gradient query of DP-SGD as papers define it, and what hosts of networks share."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
import torch

from dpaudit.errors import UsageError
from dpaudit.protocols import Stream
from dpaudit.queries.gradients.per_sample import GradientBlock, PerSampleGradients, clip_factors
from dpaudit.randomness import KeyedStream
from dpaudit.training.data import Images, load_images
from dpaudit.training.models import MODELS
from dpaudit.training.models.networks import with_norm
from dpaudit.training.on_device import usable_device
from dpaudit.training.weights import trained_network

__all__ = ["GradientQuery", "ImageQuery", "check_choice", "positive"]

Vector = npt.NDArray[np.float64]

_DTYPES = {"float64": torch.float64, "float32": torch.float32}


@dataclass(kw_only=True, eq=False, repr=False)
class ImageQuery:
    """A network, the images that it is for, and the L2 norm to which each update is clipped.

    Raises:
        UsageError: an unknown network or data set; data of another shape than the network's, or
            that is not there; a clip that is not a finite number above 0.
    """

    model: str
    """Of ``dpaudit.training.models``."""
    data: str = ""
    """The data set; empty: what the network is for."""
    data_root: str = ""
    """Where data sets lie; empty: where :func:`~dpaudit.training.data.load_images` looks."""
    clip: float
    seed: int = 0
    """Makes the network's first weights."""

    def __post_init__(self) -> None:
        if self.model not in MODELS:
            models = ", ".join(sorted(MODELS))
            raise UsageError(f"model={self.model}: not known; there are: {models}")
        self.clip = positive("clip", self.clip)
        kind = MODELS[self.model]
        self.data = self.data or kind.data
        self.images = self.split("train")
        if self.images.shape != kind.shape:
            raise UsageError(
                f"data={self.data}: has images of shape {self.images.shape}, "
                f"{self.model} takes {kind.shape}; take data={kind.data}"
            )

    def split(self, name: Literal["train", "test"]) -> Images:
        """The training or the test images."""
        return load_images(self.data, root=self.data_root, split=name)


def positive(name: str, value: float) -> float:
    """A finite number above 0.

    Raises:
        UsageError: anything else.
    """
    if isinstance(value, (str, bool)) or not 0 < value < math.inf:
        raise UsageError(f"{name}={value}: must be a finite number above 0")
    return float(value)


def check_choice(name: str, value: object, known: tuple[str, ...]) -> None:
    """Refuse what is not one of ``known``.

    Raises:
        UsageError: with what there is.
    """
    if value not in known:
        raise UsageError(f"{name}={value}: must be {' or '.join(known)}")


@dataclass(kw_only=True, eq=False, repr=False)
class GradientQuery(ImageQuery):
    """q(D) = Σ_i g_i·min(1, clip/‖g_i‖) / batch, g_i the gradient of record i's cross-entropy.

    Neighbours: one record of the batch replaced by another (``replace``, Δ = 2·clip/batch, as in
    arXiv 2509.23834, Section 6) or removed, the divisor kept (``remove``, Δ = clip/batch). The
    gradient is by all weights.

    Formal guarantee: Δ is the L2 sensitivity, whatever the network, as long as the record changes
    no other record's gradient; ``norm`` ensures that. q(D′) is computed as q(D) plus the change; it
    equals the neighbour's own sum up to float64 rounding (about 1e-16 of its norm). Not claimed:
    privacy of what the weights or frozen statistics have learned from the data before.

    Raises:
        UsageError: an option that is not known or out of range, a model, data or device that is
            not there, data of another shape than the network's.
    """

    model: str = "lenet5-tanh"
    weights: str = "untrained"
    """``untrained`` (from ``seed``), ``trained``, or a checkpoint's path."""
    norm: str = "frozen"
    """What replaces BatchNorm: ``frozen`` statistics, ``group`` norm, or the ``record``'s own.

    The published experiments had the latter: their BatchNorm saw batches of one.
    """
    batch: int = 128
    """Records of a batch, from 2 to half of what there are."""
    clip: float = 4.0
    neighbour: str = "replace"
    dtype: str = "float64"
    """Of forward and backward pass; clipping, sums and results are always float64."""
    device: str = "cpu"

    def __post_init__(self) -> None:
        check_choice("neighbour", self.neighbour, ("replace", "remove"))
        check_choice("dtype", self.dtype, tuple(_DTYPES))
        self._device = usable_device(self.device)
        super().__post_init__()
        most = len(self.images) // 2
        if (
            isinstance(self.batch, bool)
            or not isinstance(self.batch, int)
            or not 2 <= self.batch <= most
        ):
            raise UsageError(
                f"batch={self.batch}: must lie in 2 … {most}, half the records that there are"
            )
        network = trained_network(
            self.model, weights=self.weights, root=self.data_root, seed=self.seed
        )
        # measured on other images
        self.accuracy = network.accuracy if network.data == self.data else None
        self._module = with_norm(network.module, self.norm)
        self._gradients = self._per_sample(_DTYPES[self.dtype])

    @property
    def dim(self) -> int:
        return self._gradients.dim

    @property
    def sensitivity(self) -> float:
        return self.sensitivity_at(self.clip)

    def sensitivity_at(self, clip: float) -> float:
        """Δ under another clipping norm."""
        return (2 if self.neighbour == "replace" else 1) * clip / self.batch

    def block(self, pairs: int, *, stream: Stream, clips: Sequence[float] = ()) -> GradientBlock:
        """A random batch and ``pairs`` neighbours, under each of ``clips`` (by default its own).

        Pair i replaces (or removes) record i of the batch: batch + pairs gradients serve for all
        pairs and clips, not twice batch for each.

        Raises:
            UsageError: pairs outside 1 … batch.
        """
        if not 1 <= pairs <= self.batch:
            raise UsageError(f"pairs={pairs}: a batch of {self.batch} has 1 … {self.batch} of them")
        comes = pairs if self.neighbour == "replace" else 0
        chosen = stream.numpy().choice(len(self.images), self.batch + comes, replace=False).tolist()
        return GradientBlock(
            gradients=self.gradients,
            records=tuple(chosen[: self.batch]),
            others=tuple(chosen[self.batch :]),
            pairs=pairs,
            clips=tuple(clips) or (self.clip,),
            dim=self.dim,
            device=self._device,
        )

    def gradients(self, records: Sequence[int]) -> Iterator[torch.Tensor]:
        """Unclipped gradients of ``records`` in order, tensors (chunk, d) in the host's dtype."""
        return self._chunks(self._gradients, records)

    def neighbours(self, n: int, *, stream: Stream) -> torch.Tensor:
        """``n`` random pairs (n, 2, d), float64, CPU; a batch serves as many as it has records."""
        out = torch.empty((n, 2, self.dim), dtype=torch.float64)
        for low in range(0, n, self.batch):
            block = self.block(min(self.batch, n - low), stream=stream.child("batch", low))
            for some in block.exchanges():
                first = low + some.first
                out[first : first + len(some)] = some.candidates(self.clip).cpu()
        return out

    def differences(self, direction: Vector) -> Vector:
        """⟨q(D) − q(D′), direction⟩ for a fixed batch D and each of its records removed.

        Under ``replace``, each is replaced by one fixed other record.
        """
        block = self.block(1, stream=KeyedStream.from_seed("dpsgd-gradient").child("differences"))
        along = self._along(block.records, direction)
        if block.others:
            along -= self._along(block.others, direction)
        projections: Vector = (along.cpu() / self.batch).numpy()
        return projections

    def slack(self, _: Vector, /) -> float:
        """Δ: by the clipping alone, a neighbour's change may be any vector of the ball."""
        return self.sensitivity

    def rounding(self, pairs: int, *, stream: Stream) -> float:
        """How far float32 gradients move a neighbour's change, over ``pairs`` pairs.

        The median of ‖change₃₂ − change₆₄‖ / ‖change₆₄‖, clipped by the host's own clip and
        subtracted in float64 in both cases. Pairs that do not differ count as 0.
        """
        replaced = self.neighbour == "replace"
        chosen = (
            stream.numpy().choice(len(self.images), (pairs, 1 + replaced), replace=False).tolist()
        )
        both = [
            self._gradients if self._gradients.dtype == dtype else self._per_sample(dtype)
            for dtype in (torch.float32, torch.float64)
        ]
        spreads = []
        for records in chosen:
            narrow, wide = (self._change(gradients, records) for gradients in both)
            size = float(torch.linalg.vector_norm(wide))
            spreads.append(
                float(torch.linalg.vector_norm(narrow.sub_(wide))) / size if size else 0.0
            )
        return statistics.median(spreads)

    def _change(self, gradients: PerSampleGradients, records: Sequence[int]) -> torch.Tensor:
        """The first record's clipped gradient less the second's, if any, shape (d,), float64."""
        total = torch.zeros(self.dim, dtype=torch.float64, device=self._device)
        for record, sign in zip(records, (1, -1), strict=False):
            for chunk in self._chunks(gradients, [record]):
                total.addmv_(chunk.double().T, clip_factors(chunk, self.clip), alpha=sign)
        return total

    def _along(self, records: Sequence[int], direction: Vector) -> torch.Tensor:
        along = torch.from_numpy(direction).to(self._device)
        return torch.cat(
            [(c.double() @ along) * clip_factors(c, self.clip) for c in self.gradients(records)]
        )

    def _chunks(
        self, gradients: PerSampleGradients, records: Sequence[int]
    ) -> Iterator[torch.Tensor]:
        x, y = self.images.batch(records, dtype=gradients.dtype, device=self._device)
        return gradients.chunks(x, y)

    def _per_sample(self, dtype: torch.dtype) -> PerSampleGradients:
        return PerSampleGradients(self._module, dtype=dtype, device=self._device)
