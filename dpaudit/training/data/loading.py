"""Data sets by name; synthetic ones, shaped as MNIST and CIFAR-10, come from a fixed seed."""

from __future__ import annotations

import numpy as np

from dpaudit.errors import UsageError
from dpaudit.randomness import KeyedStream
from dpaudit.registry import nearest
from dpaudit.training.data.cifar10 import CIFAR10, cifar10
from dpaudit.training.data.images import Images
from dpaudit.training.data.mnist import MNIST, mnist

__all__ = ["DATASETS", "load_images", "synthetic", "synthetic_colour"]

_COUNT = {"train": 2048, "test": 512}


def synthetic(split: str) -> Images:
    """Grey, 28×28, normalised as MNIST."""
    stream = KeyedStream.from_seed("synthetic images")
    images = _make(stream, split, channels=1, side=28, level=0, contrast=40)
    return Images(images[0][:, 0], images[1], MNIST.mean, MNIST.std)


def synthetic_colour(split: str) -> Images:
    """In colour, 32×32, normalised as CIFAR-10; a class has a shape of its own in each channel."""
    stream = KeyedStream.from_seed("synthetic colour images")
    images = _make(stream, split, channels=3, side=32, level=128, contrast=24)
    return Images(images[0], images[1], CIFAR10.mean, CIFAR10.std)


def _make(
    stream: KeyedStream, split: str, *, channels: int, side: int, level: float, contrast: float
) -> tuple[
    np.ndarray[tuple[int, ...], np.dtype[np.uint8]], np.ndarray[tuple[int, ...], np.dtype[np.int64]]
]:
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
    moved = np.stack(
        [np.roll(shapes[c], s, (1, 2)) for c, s in zip(labels, shifts.tolist(), strict=True)]
    )
    pixels = level + contrast * moved + 20 * rng.standard_normal(moved.shape)
    return np.clip(pixels, 0, 255).astype(np.uint8), labels


_REAL = {"mnist": mnist, "cifar10": cifar10}
_MADE_UP = {"synthetic": synthetic, "synthetic-colour": synthetic_colour}

DATASETS = (*_REAL, *_MADE_UP)


def load_images(name: str, *, root: str = "", split: str = "train") -> Images:
    """One split (``train`` or ``test``) of a data set.

    ====================  ===============  ======  =====  =================================
    name                  an image         train   test   from
    ====================  ===============  ======  =====  =================================
    ``mnist``             28×28 grey       60,000  10,000 files
    ``cifar10``           3×32×32 colour   50,000  10,000 files
    ``synthetic``         28×28 grey       2,048   512    a fixed seed: ten smooth shapes
    ``synthetic-colour``  3×32×32 colour   2,048   512    a fixed seed, likewise
    ====================  ===============  ======  =====  =================================

    Files are looked for in the folder ``root``; without it in the one that the environment variable
    ``DPAUDIT_DATA`` names; without that they are downloaded once, from where they are published,
    into the user's cache folder (``DPAUDIT_CACHE`` names another) and their SHA-256 is compared on
    each load. Nothing is downloaded behind a folder that was named.

    Raises:
        UsageError: an unknown name or split; files that are missing, corrupt, cut short or of
            another kind; a download that failed.
        MissingExtraError: a download without pooch.
    """
    if split not in ("train", "test"):
        raise UsageError(f"split={split}: must be train or test")
    if name in _MADE_UP:
        return _MADE_UP[name](split)
    if name not in _REAL:
        raise UsageError(f"data={name}: not known{nearest(name, DATASETS)}")
    return _REAL[name](split, root=root)
