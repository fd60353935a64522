"""Marsaglia's polar method: some pairs of uniforms were rejected, and leave gaps in the sequence.

A relation among four pairs holds where none of three was rejected, in (π/4)³ = 48 % of the windows.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from dpaudit.audit.battery.predictable.congruential.held_out import NOTHING, HeldOut, held_out
from dpaudit.audit.battery.predictable.congruential.known import Known
from dpaudit.audit.battery.predictable.congruential.relations import model_of
from dpaudit.audit.battery.predictable.congruential.uniforms import Sequence

__all__ = ["RISE", "SHORTEST", "predicted_pairs"]

Floats = npt.NDArray[np.float64]

SHORTEST = 6
"""The largest coefficient of a vector that is used here is at least this."""
RISE = 1.25
"""Bound for the density of c·u modulo 1, c ≥ 6.

Given the other of its pair, u is uniform on an interval of length l, and E[1/l] = 4/π: the density
is at most 1 + 4/(π·c).
"""
_DENSITY = 4 / np.pi  # of one uniform of an accepted pair, at most
_TOLERANCE = 2.0**-12
_PAIRS = 1_000
_FITTED = 8  # pairs that tell the right state from wrong ones
_TRIES = 64


def predicted_pairs(sequence: Sequence, generator: Known) -> HeldOut:
    """Predict up to 1,000 pairs of the second half from four neighbouring ones of it.

    The first windows in turn give a state each. The state that gives the next 8 pairs is taken, and
    the first uniforms of the pairs after those are counted.
    """
    drawn = sequence.u[len(sequence.u) // 4 * 2 :].reshape(-1, 2)
    model = model_of(generator)
    if model is None:
        return NOTHING
    width = len(model.factors)
    # low bits that all states have in common: differences do not tell them
    apart = generator.modulus // model.modulus
    zeros = [np.array(generator.numbers(low, width)) / generator.modulus for low in range(apart)]
    for start in range(min(_TRIES, len(drawn) - 2 * _FITTED)):
        seen = drawn[start : start + _PAIRS]
        for low, zero in enumerate(zeros):
            state = low + apart * model.state(_centred(seen.ravel()[:width] - zero))
            near = _accepted(generator, state, _FITTED) - seen[:_FITTED]
            if np.abs(_centred(near)).max() <= _TOLERANCE:
                errors = _centred(_accepted(generator, state, len(seen)) - seen)
                return held_out(errors[:_FITTED, 0], errors[_FITTED:, 0], rise=_DENSITY)
    return NOTHING


def _accepted(generator: Known, state: int, pairs: int) -> Floats:
    """The next pairs (pairs, 2) inside the circle.

    Of 4·n + 64 uniforms at least n pairs are, but with probability 1e-20.
    """
    numbers = generator.numbers(state, 4 * pairs + 64)
    u = np.array([x / generator.modulus for x in numbers]).reshape(-1, 2)
    inside = np.square(2 * u - 1).sum(axis=1) < 1
    return np.asarray(u[inside][:pairs])


def _centred(x: Floats) -> Floats:
    return np.asarray(x - np.rint(x))
