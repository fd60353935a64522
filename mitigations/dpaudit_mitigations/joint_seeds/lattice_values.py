"""Doubles that are whole multiples of the terms' granularity, and the integers that count them."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from dpaudit.errors import MessageError, UsageError
from dpaudit_mitigations.joint_seeds.derivation import BLOCK, Blocks, Integers
from dpaudit_mitigations.joint_seeds.terms import Terms

__all__ = ["in_steps", "nearest_steps"]

_WHOLE = 2.0**53

Array = npt.NDArray[np.float64]


def in_steps(values: Array, terms: Terms) -> Blocks:
    """A published release, float64 (dim,) or (1, dim), as blocks of steps.

    Raises:
        MessageError: another shape or type; and, when a block is taken, a value that is no whole multiple below 2^53.
    """
    if values.dtype != np.float64 or values.shape not in ((terms.dim,), (1, terms.dim)):
        raise MessageError(f"release of shape {values.shape}, {values.dtype}: must be float64 of shape ({terms.dim},)")
    flat = values.reshape(-1)

    def block(number: int) -> Integers:
        with np.errstate(over="ignore", invalid="ignore"):
            steps = flat[number * BLOCK : (number + 1) * BLOCK] / terms.granularity
            if not ((np.abs(steps) < _WHOLE) & (steps == np.rint(steps))).all():
                raise MessageError("release: holds a value that is no multiple of the granularity, or too large")
        return steps.astype(np.int64)

    return block


def nearest_steps(values: Array, terms: Terms) -> Integers:
    """A query result, float64 (dim,), rounded to the lattice, in steps.

    Raises:
        UsageError: a value beyond ±``terms.most`` steps, or not finite.
    """
    out = np.empty(len(values), np.int64)
    for at in range(0, len(values), BLOCK):
        with np.errstate(over="ignore"):
            steps = np.rint(values[at : at + BLOCK] / terms.granularity)
        if not (np.abs(steps) <= terms.most).all():
            most = terms.most * terms.granularity
            raise UsageError(f"query: values must lie within ±{most!r}; clip the query to that or change its unit")
        out[at : at + BLOCK] = steps
    return out
