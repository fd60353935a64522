"""Data sets by name."""

from __future__ import annotations

from dpaudit.errors import UsageError
from dpaudit.registry import nearest
from dpaudit.training.data.cifar10 import cifar10
from dpaudit.training.data.images import Images
from dpaudit.training.data.mnist import mnist
from dpaudit.training.data.synthetic import synthetic, synthetic_colour

__all__ = ["DATASETS", "load_images"]

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

    Files are looked for in the folder ``root``; without it in the one that the environment variable ``DPAUDIT_DATA``
    names; without that they are downloaded once, from where they are published, into the user's cache folder
    (``DPAUDIT_CACHE`` names another) and their SHA-256 is compared on each load. Nothing is downloaded behind a folder
    that was named.

    Raises:
        UsageError: an unknown name or split; files that are missing, corrupt, cut short or of another kind; a download
            that failed.
        MissingExtraError: a download without pooch.
    """
    if split not in ("train", "test"):
        raise UsageError(f"split={split}: must be train or test")
    if name in _MADE_UP:
        return _MADE_UP[name](split)
    if name not in _REAL:
        raise UsageError(f"data={name}: not known{nearest(name, DATASETS)}")
    return _REAL[name](split, root=root)
