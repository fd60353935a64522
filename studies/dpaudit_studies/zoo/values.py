"""Noise that depends on the value it is made for, or fails only once it is added to one."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from dpaudit.randomness import KeyedStream
from dpaudit_studies.zoo.specimen import Array, Draw, Make, Specimen

__all__ = ["SPECIMENS"]


def _told(change: Callable[[Array, float], Array]) -> Make:
    def make(stream: KeyedStream) -> Draw:
        rng = stream.numpy()
        return lambda n, d, value=0.0: change(rng.standard_normal((n, d)), value)

    return make


def _single(z: Array, value: float) -> Array:
    return np.asarray((z + value).astype(np.float32).astype(np.float64) - value)


def _value(name: str, says: str, change: Callable[[Array, float], Array]) -> Specimen:
    return Specimen(name, "value", says, _told(change), takes_value=True)


SPECIMENS = (
    _value(
        "wider-above-0",
        "σ is 3 % larger for values above 0",
        lambda z, v: z * (1.03 if v > 0 else 1.0),
    ),
    _value(
        "drawn-to-0",
        "noise is drawn towards 0 by 0.03 where the value is not 0",
        lambda z, v: z - 0.03 * np.sign(v),
    ),
    _value("float32-release", "value and noise are added in single precision", _single),
)
