"""Directions in which no gradient of a classifier has a part: room for a nonce at any ε."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Self

import numpy as np
import numpy.typing as npt

from dpaudit.errors import UsageError

__all__ = ["GradientFree"]

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class GradientFree:
    """Sums over the classes, for each unit that a classifier's last linear layer reads, and bias.

    Under softmax cross-entropy the gradient of a record by the last layer's weight W[c, h] is
    x_h·(p_c − y_c), and p and y both add up to 1. So its sum over the classes c is 0 for each h,
    and for the bias; it stays 0 under clipping and adding. That holds for all weights and records,
    with smoothed labels too, in real arithmetic; float32 leaves about 1e-7 of the largest gradient.

    ``groups`` (m, classes) holds the coordinates of each sum. :meth:`into` turns space so that the
    first m coordinates point along these m directions, :meth:`out_of` turns it back: orthogonal, so
    an isotropic Gaussian keeps its law.
    """

    groups: npt.NDArray[np.int64]
    dim: int

    @classmethod
    def of_last_layer(cls, dim: int, *, inputs: int, classes: int = 10) -> Self:
        """Of a gradient (dim,) that ends with the last layer's weight and bias, as torch's do.

        Raises:
            UsageError: fewer than two classes, no inputs, or more of them than fit.
        """
        last = classes * (inputs + 1)
        if classes < 2 or inputs < 1 or last > dim:
            raise UsageError(
                f"inputs={inputs}, classes={classes}: no last layer of a network with {dim} "
                "parameters; give the two sizes of its weight"
            )
        weight = np.arange(classes * inputs).reshape(classes, inputs).T
        bias = np.arange(classes * inputs, last)[None]
        return cls(dim - last + np.concatenate([weight, bias]), dim)

    def __len__(self) -> int:
        return len(self.groups)

    def into(self, rows: Floats) -> Floats:
        """Rows (n, dim) whose first m values become those along the directions."""
        out = np.empty_like(rows)
        out[:, self._order] = rows
        return self._reflected(out)

    def out_of(self, rows: Floats) -> Floats:
        """The inverse of :meth:`into`."""
        return self._reflected(rows.copy())[:, self._order]

    @cached_property
    def _order(self) -> npt.NDArray[np.int64]:
        heads = self.groups[:, 0]
        return np.concatenate([heads, np.setdiff1d(np.arange(self.dim), heads)])

    def _reflected(self, rows: Floats) -> Floats:
        """In each group a Householder reflection that exchanges (1, 0, …) and (1, 1, …)/√classes.

        Changes ``rows``.
        """
        classes = self.groups.shape[1]
        mirror = np.full(classes, -1 / math.sqrt(classes))
        mirror[0] += 1
        mirror /= np.linalg.norm(mirror)
        part = rows[:, self.groups]
        rows[:, self.groups] = part - 2 * (part @ mirror)[..., None] * mirror
        return rows
