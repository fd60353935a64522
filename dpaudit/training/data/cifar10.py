"""CIFAR-10: 50,000 and 10,000 colour images, 32×32, of ten kinds of things (Krizhevsky)."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np

from dpaudit.errors import UsageError
from dpaudit.training.data.images import Images, Published
from dpaudit.training.data.places import data_folder, fetch_file, read_tar, reading

__all__ = ["CIFAR10", "cifar10"]

ARCHIVE = "cifar-10-binary.tar.gz"
URL = "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz"
SHA256 = "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd"
RECORDS = 10_000  # in each file of the binary version
_SHAPE = (3, 32, 32)
# mean and standard deviation are ImageNet's, with which the published ResNets were trained
CIFAR10 = Published("cifar10", _SHAPE, (0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
_RECORD = 1 + 3 * 32 * 32  # the class, then the red, green and blue planes
_NPZ = "cifar10.npz"
_FOLDER = "cifar-10-batches-bin"
_FILES = {"train": tuple(f"data_batch_{i}.bin" for i in range(1, 6)), "test": ("test_batch.bin",)}


def cifar10(split: str, *, root: str = "") -> Images:
    """One split, from the folder or from the cache.

    In the folder the first of these that is there: ``cifar10.npz``, the ``.bin`` files of the
    binary version in ``cifar-10-batches-bin`` or in the folder itself, ``cifar-10-binary.tar.gz``.

    Raises:
        UsageError: no such file in the folder that was named, or one that is not CIFAR-10; a
            download that failed.
    """
    folder = data_folder(root)
    if folder is None:
        return _from_archive(fetch_file(ARCHIVE, url=URL, sha256=SHA256), split)
    if os.path.isfile(folder / _NPZ):
        return CIFAR10.from_npz(folder / _NPZ, split)
    for place in (folder / _FOLDER, folder):
        if any(os.path.isfile(place / name) for name in _FILES[split]):
            return _from_files(place, split)
    if os.path.isfile(folder / ARCHIVE):
        return _from_archive(folder / ARCHIVE, split)
    raise UsageError(
        f"data=cifar10: {folder} has no file {_NPZ}, {ARCHIVE}, nor {_between(split)} (there or in "
        f"{_FOLDER}); put one of them there, or name no folder (neither data_root nor "
        "DPAUDIT_DATA) to have it downloaded"
    )


def _between(split: str) -> str:
    first, *_, last = (*_FILES[split], _FILES[split][-1])
    return first if first == last else f"{first} to {last}"


def _from_archive(path: Path, split: str) -> Images:
    with reading("cifar10", path):
        return _join(read_tar(path, _FILES[split], size=RECORDS * _RECORD), split, path)


def _from_files(folder: Path, split: str) -> Images:
    return _join(_contents(folder, _FILES[split]), split, folder)


def _contents(folder: Path, names: Iterable[str]) -> Iterator[tuple[str, bytes]]:
    for name in names:
        path = folder / name
        if not os.path.isfile(path):
            raise UsageError(
                f"data=cifar10: {folder} has files of the set but no {name}; put it there"
            )
        with reading("cifar10", path):
            raw = path.read_bytes()
            if len(raw) != RECORDS * _RECORD:
                raise ValueError(f"it has {len(raw)} bytes, not {RECORDS * _RECORD}")
        yield name, raw


def _join(parts: Iterable[tuple[str, bytes]], split: str, path: Path) -> Images:
    names = _FILES[split]
    pixels = np.empty((len(names), RECORDS, *_SHAPE), np.uint8)
    labels = np.empty((len(names), RECORDS), np.uint8)
    for name, raw in parts:
        records = np.frombuffer(raw, np.uint8).reshape(RECORDS, _RECORD)
        i = names.index(name)
        labels[i], pixels[i] = records[:, 0], records[:, 1:].reshape(RECORDS, *_SHAPE)
    own = ("the images", "the classes")
    return CIFAR10.images(pixels.reshape(-1, *_SHAPE), labels.reshape(-1), path, own)
