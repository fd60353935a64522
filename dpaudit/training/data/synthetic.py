"""Made-up images from a fixed seed, in the shapes of MNIST and of CIFAR-10: ten smooth random shapes to tell apart."""

from __future__ import annotations

import numpy as np

from dpaudit.randomness import KeyedStream
from dpaudit.training.data import cifar10, mnist
from dpaudit.training.data.images import Images

__all__ = ["synthetic", "synthetic_colour"]

_COUNT = {"train": 2048, "test": 512}


def synthetic(split: str) -> Images:
    """Grey, 28×28, normalised as MNIST."""
    stream = KeyedStream.from_seed("synthetic images")
    made = _make(stream, split, channels=1, side=28, level=0, contrast=40)
    return Images(made[0][:, 0], made[1], mnist.MEAN, mnist.STD)


def synthetic_colour(split: str) -> Images:
    """In colour, 32×32, normalised as CIFAR-10; a class has a shape of its own in each channel."""
    stream = KeyedStream.from_seed("synthetic colour images")
    made = _make(stream, split, channels=3, side=32, level=128, contrast=24)
    return Images(made[0], made[1], cifar10.MEAN, cifar10.STD)


def _make(
    stream: KeyedStream, split: str, *, channels: int, side: int, level: float, contrast: float
) -> tuple[np.ndarray[tuple[int, ...], np.dtype[np.uint8]], np.ndarray[tuple[int, ...], np.dtype[np.int64]]]:
    """Each image is one of ten shapes, shifted and noisy; both splits have the same shapes."""
    rng = stream.numpy()
    wave = 2 * np.pi * np.arange(side) / side
    modes = np.stack([f(k * wave) for k in (1, 2, 3) for f in (np.cos, np.sin)])
    shapes = np.einsum("cij,ix,jy->cxy", rng.standard_normal((10 * channels, 6, 6)), modes, modes)
    shapes = shapes.reshape(10, channels, side, side)
    if split == "test":
        rng = stream.child("test").numpy()
    labels = rng.integers(0, 10, _COUNT[split])
    shifts = rng.integers(-3, 4, (len(labels), 2))
    moved = np.stack([np.roll(shapes[c], s, (1, 2)) for c, s in zip(labels, shifts.tolist(), strict=True)])
    pixels = level + contrast * moved + 20 * rng.standard_normal(moved.shape)
    return np.clip(pixels, 0, 255).astype(np.uint8), labels
