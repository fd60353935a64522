"""A whole data set in a device's memory, as bytes, batched there without copies."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from dpaudit.errors import UsageError
from dpaudit.training.checkpoint import Accuracy, accuracy_from_counts
from dpaudit.training.data import Images

__all__ = ["ImagesOnDevice", "usable_device"]

_MARGIN = 4
_EVALUATED = 1000


class ImagesOnDevice:
    """``images`` as uint8 (n, c, h, w) on ``device``; batches are normalised, float32."""

    def __init__(self, images: Images, *, device: torch.device) -> None:
        pixels = torch.from_numpy(images.pixels)
        self._pixels = pixels.reshape(len(images), *images.shape).to(device)
        self._labels = torch.from_numpy(images.labels).to(device)
        # made once: sending a number to the device for each batch would make the device wait
        self._full, self._mean, self._std = (
            torch.tensor(numbers, dtype=torch.float32, device=device).reshape(-1, 1, 1)
            for numbers in ((255.0,), images.mean, images.std)
        )
        self._device = device

    def __len__(self) -> int:
        return len(self._labels)

    @property
    def shape(self) -> tuple[int, ...]:
        """Of one image: (c, h, w)."""
        return tuple(self._pixels.shape[1:])

    def epoch(
        self, *, batch: int, augment: bool, rng: np.random.Generator
    ) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """Every image once, in an order drawn from ``rng``: images (b, c, h, w) and classes (b,).

        The last batch may be short. With ``augment`` each is cropped from itself within a margin of
        4 black pixels and mirrored with probability 1/2. What ``rng`` gives does not depend on the
        device.
        """
        n = len(self)
        order = self._to_device(rng.permutation(n))
        shifts = self._to_device(rng.integers(0, 2 * _MARGIN + 1, (n, 2))) if augment else None
        mirrored = self._to_device(rng.integers(0, 2, n)) == 1 if augment else None
        for start in range(0, n, batch):
            records = order[start : start + batch]
            pixels = self._pixels[records]
            if shifts is not None and mirrored is not None:
                pixels = _crop(pixels, shifts[records], mirrored[records])
            yield self._normalise(pixels), self._labels[records]

    @torch.no_grad()
    def accuracy(self, network: nn.Module) -> Accuracy:
        """How often ``network``, as it is, gives an image's own class the highest score.

        Put it into evaluation mode first. In float32, on CUDA without TensorFloat-32's ten bits.
        """
        correct = torch.zeros((), dtype=torch.int64, device=self._device)
        with torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
            for start in range(0, len(self), _EVALUATED):
                x = self._normalise(self._pixels[start : start + _EVALUATED])
                correct += (network(x).argmax(1) == self._labels[start : start + _EVALUATED]).sum()
        return accuracy_from_counts(int(correct), len(self))

    def _normalise(self, pixels: torch.Tensor) -> torch.Tensor:
        """As ``Images.normalised``, bit for bit."""
        return pixels.to(torch.float32).div_(self._full).sub_(self._mean).div_(self._std)

    def _to_device(self, array: np.ndarray) -> torch.Tensor:
        return torch.from_numpy(array).to(self._device)


def _crop(pixels: torch.Tensor, shifts: torch.Tensor, mirrored: torch.Tensor) -> torch.Tensor:
    """Each image moved by its (down, right) ``shifts`` − 4 into a black margin, then mirrored."""
    b, c, h, w = pixels.shape
    padded = functional.pad(pixels, (_MARGIN,) * 4)
    down = torch.arange(h, device=pixels.device)
    right = torch.arange(w, device=pixels.device).expand(b, w)
    right = torch.where(mirrored[:, None], w - 1 - right, right)
    rows = (shifts[:, 0, None] + down)[:, None, :, None]
    columns = (shifts[:, 1, None] + right)[:, None, None, :]
    image = torch.arange(b, device=pixels.device)[:, None, None, None]
    channel = torch.arange(c, device=pixels.device)[None, :, None, None]
    return padded[image, channel, rows, columns]


def usable_device(name: str) -> torch.device:
    """``cpu``, ``cuda`` or ``cuda:N``, if this machine has it.

    Raises:
        UsageError: another word, or a device that is not here.
    """
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise UsageError(f"device={name}: must be cpu, cuda or cuda:N") from error
    if device.type not in ("cpu", "cuda"):
        raise UsageError(f"device={name}: must be cpu, cuda or cuda:N")
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise UsageError(
            f"device={name}: torch sees {torch.cuda.device_count()} CUDA devices here; "
            "take device=cpu"
        )
    return torch.device("cuda", device.index or 0) if device.type == "cuda" else torch.device("cpu")
