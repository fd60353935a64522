"""What hosts that compute a network's gradients share: its options, its images and their checks."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from dpaudit.errors import UsageError
from dpaudit.training.data import Images, load_images
from dpaudit.training.models import MODELS

__all__ = ["ImageQuery", "check_choice", "positive"]


@dataclass(kw_only=True, eq=False, repr=False)
class ImageQuery:
    """A network, the images that it is for, and the L2 norm to which each update is clipped.

    Raises:
        UsageError: an unknown network or data set; data of another shape than the network's, or
            that is not there; a clip that is not a finite number above 0.
    """

    model: str
    """Of ``dpaudit.training.models``."""
    data: str = ""
    """The data set; empty: what the network is for."""
    data_root: str = ""
    """Where data sets lie; empty: where :func:`~dpaudit.training.data.load_images` looks."""
    clip: float
    seed: int = 0
    """Makes the network's first weights."""

    def __post_init__(self) -> None:
        if self.model not in MODELS:
            known = ", ".join(sorted(MODELS))
            raise UsageError(f"model={self.model}: not known; there are: {known}")
        self.clip = positive("clip", self.clip)
        kind = MODELS[self.model]
        self.data = self.data or kind.data
        self.images = self.split("train")
        if self.images.shape != kind.shape:
            raise UsageError(
                f"data={self.data}: has images of shape {self.images.shape}, "
                f"{self.model} takes {kind.shape}; take data={kind.data}"
            )

    def split(self, name: Literal["train", "test"]) -> Images:
        """The training or the test images."""
        return load_images(self.data, root=self.data_root, split=name)


def positive(name: str, value: float) -> float:
    """A finite number above 0.

    Raises:
        UsageError: anything else.
    """
    if isinstance(value, (str, bool)) or not 0 < value < math.inf:
        raise UsageError(f"{name}={value}: must be a finite number above 0")
    return float(value)


def check_choice(name: str, value: object, known: tuple[str, ...]) -> None:
    """Refuse what is not one of ``known``.

    Raises:
        UsageError: with what there is.
    """
    if value not in known:
        raise UsageError(f"{name}={value}: must be {' or '.join(known)}")
