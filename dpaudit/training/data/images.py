"""Images and their classes in memory, and batches of them as a network takes them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch

from dpaudit.errors import UsageError
from dpaudit.training.data.places import read_npz, reading

__all__ = ["Images", "Published"]

_CLASSES = 10


@dataclass(frozen=True, eq=False)
class Images:
    """Images (n, 28, 28) grey or (n, 3, 32, 32) colour, uint8, and their classes (n,), 0 to 9.

    ``mean`` and ``std`` have one number per channel, in units of the full intensity 255; batches
    are normalised by them.
    """

    pixels: npt.NDArray[np.uint8]
    labels: npt.NDArray[np.int64]
    mean: tuple[float, ...]
    std: tuple[float, ...]

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def shape(self) -> tuple[int, int, int]:
        """Of one image as a network takes it: (channels, height, width)."""
        return len(self.mean), *self.pixels.shape[-2:]

    def batch(
        self,
        records: Sequence[int] | npt.NDArray[np.int64],
        *,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str | None = None,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """The images of ``records``, normalised (b, c, h, w), and their classes (b,), int64.

        Bytes go to ``device`` and are normalised there. Without a device: on the CPU.
        """
        index = np.asarray(records, dtype=np.int64)
        pixels = torch.from_numpy(self.pixels[index]).to(device)
        return self.normalised(pixels, dtype=dtype), torch.from_numpy(self.labels[index]).to(device)

    def normalised(
        self, pixels: torch.Tensor, *, dtype: torch.dtype = torch.float32
    ) -> torch.Tensor:
        """``(pixels / 255 - mean) / std`` as (b, c, h, w), for uint8 of this kind, where they lie.

        Computed in ``dtype``, or in float32 and rounded once if that is narrower. The divisors are
        tensors, not Python numbers, for which CUDA would multiply by a rounded reciprocal: every
        step is one correctly rounded operation.
        """
        wide = torch.promote_types(dtype, torch.float32)
        full, mean, std = (
            torch.tensor(numbers, dtype=wide, device=pixels.device).reshape(-1, 1, 1)
            for numbers in ((255.0,), self.mean, self.std)
        )
        shaped = pixels.reshape(len(pixels), *self.shape).to(wide)
        return shaped.div_(full).sub_(mean).div_(std).to(dtype)


@dataclass(frozen=True)
class Published:
    """A published data set: its name, the shape of an image's bytes, and how batches are scaled."""

    name: str
    shape: tuple[int, ...]
    mean: tuple[float, ...]
    std: tuple[float, ...]

    def images(
        self,
        pixels: npt.NDArray[np.generic],
        labels: npt.NDArray[np.generic],
        path: Path,
        names: tuple[str, str],
    ) -> Images:
        """What was read at ``path``, where it has these ``names``.

        Raises:
            UsageError: other dtypes or shapes, other numbers of images and labels, none at all, or
                a class outside 0 to 9.
        """
        where, right = f"data={self.name}: {path}", pixels.shape[1:] == self.shape
        right &= pixels.dtype == np.uint8 and labels.shape == pixels.shape[:1]
        if not right or not np.issubdtype(labels.dtype, np.integer) or labels.size == 0:
            raise UsageError(
                f"{where} holds {names[0]} {pixels.dtype} {pixels.shape} and {names[1]} "
                f"{labels.dtype} {labels.shape}; "
                f"wanted uint8 (n, {', '.join(map(str, self.shape))}) and whole numbers (n,)"
            )
        low, high = int(labels.min()), int(labels.max())
        if low < 0 or high >= _CLASSES:
            raise UsageError(
                f"{where}: {names[1]} must hold the classes 0 to {_CLASSES - 1}, "
                f"it reaches {high if high >= _CLASSES else low}; fetch it again"
            )
        kept = pixels.astype(np.uint8, copy=False)
        return Images(kept, labels.astype(np.int64), self.mean, self.std)

    def from_npz(self, path: Path, split: str) -> Images:
        """Its arrays ``x_`` and ``y_`` of the split; errors are those of :meth:`images`."""
        names = (f"x_{split}", f"y_{split}")
        with reading(self.name, path):
            pixels, labels = read_npz(path, *names)
        return self.images(pixels, labels, path, names)
