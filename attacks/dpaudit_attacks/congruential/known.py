"""Published congruential generators, each with short relations among its neighbours.

``known.csv`` holds them: for strides 1 and 2 (a uniform of two numbers, such as Java's) a vector of
8 coefficients, and one of 24, which shows through coarse values. By lattice reduction of the dual
lattice (Knuth, The Art of Computer Programming, 3.3.4).
"""

from __future__ import annotations

import csv
from dataclasses import dataclass
from functools import cache
from importlib import resources

import numpy as np
import numpy.typing as npt

__all__ = ["LinearGenerator", "generator_name", "published_generators"]

_FARTHEST = 16
_LOST = 4  # low bits of a power of two in which states that far apart agree


@dataclass(frozen=True, slots=True)
class LinearGenerator:
    """x ← (multiplier·x + increment) mod modulus, every ``stride``-th, and Σ c_i·x_i ≡ constant.

    A modulus of 0 stands for two recurrences of order 3.
    """

    name: str
    modulus: int
    multiplier: int
    increment: int
    stride: int
    vector: npt.NDArray[np.int64]

    def numbers(self, state: int, count: int) -> list[int]:
        """The next states (every ``stride``-th), beginning with this one."""
        states = []
        for _ in range(count):
            states.append(state)
            for _ in range(self.stride):
                state = (self.multiplier * state + self.increment) % self.modulus
        return states

    def after(self, states: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
        """The next states; of a modulus up to 2^32."""
        following = states * np.uint64(self.multiplier) + np.uint64(self.increment)
        return np.asarray(following % np.uint64(self.modulus))


@cache
def published_generators() -> tuple[LinearGenerator, ...]:
    """All of them."""
    text = resources.files(__package__).joinpath("known.csv").read_text("utf-8")
    return tuple(
        LinearGenerator(
            row["name"],
            int(row["modulus"] or 0),
            int(row["multiplier"] or 0),
            int(row["increment"] or 0),
            int(row["stride"]),
            np.array(row["vector"].split(), np.int64),
        )
        for row in csv.DictReader(text.splitlines())
    )


def generator_name(modulus: int, factor: int) -> str | None:
    """The generator with a power of whose multiplier this one agrees, but for the sign.

    Differences of states modulo 2^e may be known modulo a smaller power of two only.
    """
    for one in published_generators():
        if not one.modulus or one.modulus % modulus or one.modulus // modulus > 1 << _LOST:
            continue
        power = 1
        for _ in range(_FARTHEST):
            power = power * one.multiplier % modulus
            if factor in (power, modulus - power):
                return one.name
    return None
