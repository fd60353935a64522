"""Images to train on: MNIST from a local ``.npz``, or made-up ones from a fixed seed. Nothing is unpickled."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch

from dpaudit.errors import UsageError
from dpaudit.randomness import KeyedStream

__all__ = ["DATASETS", "Images", "load_images"]

DATASETS = ("mnist", "synthetic")
_MEAN, _STD = 0.1307, 0.3081  # of MNIST's training images, in units of full white
_SYNTHETIC = 2048


@dataclass(frozen=True)
class Images:
    """Grey images (n, 28, 28), uint8, and their classes (n,), whole numbers 0 to 9."""

    pixels: npt.NDArray[np.uint8]
    labels: npt.NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.labels)

    def batch(self, records: Sequence[int]) -> tuple[torch.Tensor, torch.Tensor]:
        """The images of ``records``, normalised float32 (b, 1, 28, 28), and their classes (b,), int64."""
        index = np.asarray(records, dtype=np.int64)
        pixels = torch.from_numpy(self.pixels[index]).to(torch.float32) / 255
        return ((pixels - _MEAN) / _STD).unsqueeze(1), torch.from_numpy(self.labels[index])


def load_images(name: str, *, root: str = "") -> Images:
    """The training images of ``mnist`` (60,000) or of ``synthetic`` (2,048, from a fixed seed).

    ``mnist`` is read from ``mnist.npz`` (arrays x_train and y_train) in the folder ``root``, or, without one, in the
    folder that the environment variable ``DPAUDIT_DATA`` names.

    Raises:
        UsageError: an unknown name; no folder, no such file, or a file that is not MNIST.
    """
    if name == "synthetic":
        return _synthetic()
    if name != "mnist":
        raise UsageError(f"data={name}: not known; there are: {', '.join(DATASETS)}")
    folder = root or os.environ.get("DPAUDIT_DATA", "")
    if not folder:
        raise UsageError(
            "data=mnist: needs mnist.npz; name its folder with data_root or the environment variable DPAUDIT_DATA, or "
            "take data=synthetic"
        )
    return _mnist(Path(folder) / "mnist.npz")


def _mnist(path: Path) -> Images:
    if not path.is_file():
        raise UsageError(f"data=mnist: {path} is no file; it must hold the arrays x_train and y_train")
    try:
        with np.load(path, allow_pickle=False) as arrays:
            pixels, labels = arrays["x_train"], arrays["y_train"]
    except (OSError, EOFError, ValueError, KeyError, TypeError, AttributeError, zipfile.BadZipFile) as error:
        raise UsageError(f"data=mnist: {path} cannot be read as MNIST ({error}); fetch it again") from error
    right = pixels.dtype == np.uint8 and pixels.shape[1:] == (28, 28) and labels.shape == (len(pixels),)
    if not right or not np.issubdtype(labels.dtype, np.integer) or len(labels) == 0:
        raise UsageError(
            f"data=mnist: {path} holds x_train {pixels.dtype} {pixels.shape} and y_train {labels.dtype} {labels.shape}; "
            "wanted uint8 (n, 28, 28) and whole numbers (n,)"
        )
    if labels.min() < 0 or labels.max() > 9:
        raise UsageError(f"data=mnist: {path}: y_train must hold the classes 0 to 9, it reaches {labels.max()}")
    return Images(pixels, labels.astype(np.int64))


def _synthetic() -> Images:
    """Ten smooth random shapes, each image one of them, shifted and noisy."""
    rng = KeyedStream.from_seed("synthetic images").numpy()
    wave = 2 * np.pi * np.arange(28) / 28
    modes = np.stack([f(k * wave) for k in (1, 2, 3) for f in (np.cos, np.sin)])
    shapes = np.einsum("cij,ix,jy->cxy", rng.standard_normal((10, 6, 6)), modes, modes)
    labels = rng.integers(0, 10, _SYNTHETIC)
    shifts = rng.integers(-3, 4, (_SYNTHETIC, 2))
    pixels = np.stack([np.roll(shapes[c], s, (0, 1)) for c, s in zip(labels, shifts.tolist(), strict=True)])
    pixels = 40 * pixels + 20 * rng.standard_normal(pixels.shape)
    return Images(np.clip(pixels, 0, 255).astype(np.uint8), labels)
