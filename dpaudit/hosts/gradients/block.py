"""One random batch and many neighbours: the clipped mean gradient, and each neighbour's change."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import torch

from dpaudit.hosts.gradients.per_sample import room

__all__ = ["Exchange", "GradientBlock", "clip_factors"]

Gradients = Callable[[Sequence[int]], Iterator[torch.Tensor]]

# float64 vectors per pair while it is attacked: gradients, candidates, noise, differences
_VECTORS = 8


def clip_factors(gradients: torch.Tensor, clip: float) -> torch.Tensor:
    """min(1, clip/‖g‖) per row of ``gradients`` (n, d), shape (n,), float64; 1 for a zero row."""
    norms = torch.linalg.vector_norm(gradients, dim=1, dtype=torch.float64)
    return torch.where(norms > clip, clip / norms, torch.ones_like(norms))


@dataclass(frozen=True)
class Exchange:
    """Some pairs: in each, one record's gradient is replaced by another's, or removed.

    ``gone`` and ``come`` have shape (g, d) and are not clipped; ``first`` is the number of the
    first pair in its block.
    """

    block: GradientBlock
    first: int
    gone: torch.Tensor
    come: torch.Tensor | None

    def __len__(self) -> int:
        return len(self.gone)

    def changes(self, clip: float, *, out: torch.Tensor | None = None) -> torch.Tensor:
        """q(D′) − q(D) of each pair under ``clip`` (``inf``: none), shape (g, d), float64.

        Written into ``out`` if it is given.
        """
        out = (
            torch.empty(self.gone.shape, dtype=torch.float64, device=self.gone.device)
            if out is None
            else out
        )
        if self.come is None:
            out.zero_()
        else:
            torch.mul(self.come, self._weights(self.come, clip), out=out)
        return out.addcmul_(self.gone.to(torch.float64), self._weights(self.gone, clip), value=-1)

    def candidates(self, clip: float) -> torch.Tensor:
        """q(D) and q(D′) of each pair, shape (g, 2, d), float64; ``clip`` is one of the block's."""
        out = torch.empty(
            (len(self), 2, self.gone.shape[1]), dtype=torch.float64, device=self.gone.device
        )
        query = self.block.query(clip)
        self.changes(clip, out=out[:, 1]).add_(query)
        out[:, 0] = query
        return out

    def _weights(self, gradients: torch.Tensor, clip: float) -> torch.Tensor:
        return clip_factors(gradients, clip).div_(self.block.batch).unsqueeze(1)


@dataclass(frozen=True, eq=False)
class GradientBlock:
    """A batch D, and a neighbour D′ for each of its first ``pairs`` records, replaced or removed.

    All pairs have the batch except one record in common; their differences come from distinct
    records. One pass over the batch serves all ``clips`` and any noise. Where gradients are few and
    short they are kept; otherwise those of a pair are computed again when needed (the same up to
    the rounding of another chunk).

    Attributes:
        records: the batch, in random order.
        others: what replaces the first records; empty where records are removed.
        pairs: how many neighbours there are.
        clips: the clipping norms that q(D) is there for; ``inf`` clips nothing.
    """

    gradients: Gradients = field(repr=False)
    records: tuple[int, ...]
    others: tuple[int, ...]
    pairs: int
    clips: tuple[float, ...]
    dim: int
    device: torch.device
    _sums: dict[float, torch.Tensor] = field(init=False, repr=False, default_factory=dict)
    _kept: dict[str, torch.Tensor] = field(init=False, repr=False, default_factory=dict)

    def __post_init__(self) -> None:
        for clip in self.clips:
            self._sums[clip] = torch.zeros(self.dim, dtype=torch.float64, device=self.device)
        gone = []
        low, keep = 0, room(self.device, cpu=1 << 30, part=8) // (16 * self.dim) >= self.pairs
        for chunk in self.gradients(self.records):
            for clip, total in self._sums.items():
                total.addmv_(chunk.to(torch.float64).T, clip_factors(chunk, clip))
            if keep and low < self.pairs:
                gone.append(chunk[: self.pairs - low])
            low += len(chunk)
        for total in self._sums.values():
            total.div_(self.batch)
        if keep:
            self._kept["gone"] = torch.cat(gone)
            if self.others:
                self._kept["come"] = torch.cat(list(self.gradients(self.others)))

    @property
    def batch(self) -> int:
        return len(self.records)

    def query(self, clip: float) -> torch.Tensor:
        """q(D): the mean of the clipped gradients, shape (d,), float64; do not write to it."""
        return self._sums[clip]

    def exchanges(self) -> Iterator[Exchange]:
        """All pairs in order, as many at a time as fit in memory."""
        step = max(1, room(self.device, cpu=256 << 20, part=4) // (8 * _VECTORS * self.dim))
        for first in range(0, self.pairs, step):
            yield self._exchange(first, min(self.pairs, first + step))

    def _exchange(self, first: int, last: int) -> Exchange:
        if self._kept:
            come = self._kept["come"][first:last] if self.others else None
            return Exchange(self, first, self._kept["gone"][first:last], come)
        gone = self._rows(self.records[first:last])
        return Exchange(
            self, first, gone, self._rows(self.others[first:last]) if self.others else None
        )

    def _rows(self, records: Sequence[int]) -> torch.Tensor:
        chunks = list(self.gradients(records))
        return chunks[0] if len(chunks) == 1 else torch.cat(chunks)
