"""What a specimen of the zoo is: a flaw with a name, and how to make a sampler that has it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from dpaudit.randomness import KeyedStream

__all__ = ["GAUSSIAN", "Array", "Draw", "Make", "Series", "Specimen", "each", "flat"]

GAUSSIAN = "gaussian:sigma=1"

Array = npt.NDArray[np.float64]
Draw = Callable[..., Array]
"""``draw(n, d)``: the next ``n`` vectors, shape (n, d); some also take ``value=``."""
Make = Callable[[KeyedStream], Draw]
"""Starts a sampler with the stream's randomness: one process of it."""
Series = Callable[[int], Array]
"""``following(m)``: the next ``m`` values, shape (m,), however they are cut into calls."""


@dataclass(frozen=True, slots=True)
class Specimen:
    """A flawed sampler, its claim, and whether an audit of 10^7 values can be expected to find it.

    ``expected`` is "found"; "borderline" where chance decides; "missed", where no battery of this
    size at this α can see it, or nobody could; or "passed", of a right sampler. ``why`` gives the
    numbers, where it is not plainly "found". It was written before the zoo was first run.
    """

    name: str
    family: str
    says: str
    make: Make
    dim: int | None = None
    claim: str = GAUSSIAN
    expected: Literal["found", "borderline", "missed", "passed"] = "found"
    why: str = ""
    takes_value: bool = False


def each(change: Callable[[np.random.Generator, Array], Array]) -> Make:
    """A sampler that changes honest blocks of N(0, 1), without memory from call to call."""

    def make(stream: KeyedStream) -> Draw:
        rng = stream.numpy()
        return lambda n, d: change(rng, rng.standard_normal((n, d)))

    return make


def flat(begin: Callable[[np.random.Generator], Series]) -> Make:
    """A sampler that deals out one endless series row by row, across calls."""

    def make(stream: KeyedStream) -> Draw:
        following = begin(stream.numpy())
        return lambda n, d: following(n * d).reshape(n, d)

    return make
