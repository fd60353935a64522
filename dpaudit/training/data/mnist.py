"""MNIST: 60,000 and 10,000 grey images, 28×28, of handwritten digits (LeCun, Cortes, Burges)."""

from __future__ import annotations

import os
from pathlib import Path

from dpaudit.errors import UsageError
from dpaudit.training.data.images import Images, Published
from dpaudit.training.data.places import data_folder, fetch_file, read_idx, reading

__all__ = ["MNIST", "mnist"]

# mean and standard deviation of the training images, in units of full white
MNIST = Published("mnist", (28, 28), (0.1307,), (0.3081,))
URL = "https://ossci-datasets.s3.amazonaws.com/mnist/"
SHA256 = {
    "train-images-idx3-ubyte.gz": (
        "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609"
    ),
    "train-labels-idx1-ubyte.gz": (
        "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c"
    ),
    "t10k-images-idx3-ubyte.gz": "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
    "t10k-labels-idx1-ubyte.gz": "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
}
_NPZ = "mnist.npz"
_IDX = {
    "train": ("train-images-idx3-ubyte", "train-labels-idx1-ubyte"),
    "test": ("t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"),
}


def mnist(split: str, *, root: str = "") -> Images:
    """One split: ``mnist.npz`` or two IDX files (plain or ``.gz``) of the folder, or the cache.

    Raises:
        UsageError: no such file in the folder that was named, or one that is not MNIST; a download
            that failed.
    """
    folder = data_folder(root)
    if folder is None:
        names = [f"{name}.gz" for name in _IDX[split]]
        images, labels = (fetch_file(name, url=URL + name, sha256=SHA256[name]) for name in names)
        return _from_idx(images, labels)
    if os.path.isfile(folder / _NPZ):
        return MNIST.from_npz(folder / _NPZ, split)
    files = [_either(folder / name) for name in _IDX[split]]
    missing = [name for name, path in zip(_IDX[split], files, strict=True) if path is None]
    if missing:
        raise UsageError(
            f"data=mnist: {folder} has no file {_NPZ}, nor {' and '.join(missing)} (plain or .gz); "
            "put them there, or name no folder (neither data_root nor DPAUDIT_DATA) to have them "
            "downloaded"
        )
    return _from_idx(*(path for path in files if path is not None))


def _either(plain: Path) -> Path | None:
    return next(
        (path for path in (plain, plain.with_name(f"{plain.name}.gz")) if os.path.isfile(path)),
        None,
    )


def _from_idx(images: Path, labels: Path) -> Images:
    arrays = []
    for path in (images, labels):
        with reading("mnist", path):
            arrays.append(read_idx(path))
    return MNIST.images(arrays[0], arrays[1], images.parent, (images.name, labels.name))
