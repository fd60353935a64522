"""Server 1's noise from a registry source, rounded to the lattice: also used for lab specimens."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dpaudit import registry
from dpaudit.errors import UsageError
from dpaudit.protocols import NoiseSource, Stream
from dpaudit.types import Reference
from dpaudit_mitigations.two_servers.lattice import Draw, Steps, to_steps

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["draw_of", "named_source"]


def named_source(text: str, *, sigma: float, dim: int) -> NoiseSource:
    """The source ``NAME[:option=value,…]`` with noise of scale ``sigma``, for vectors of ``dim``.

    Raises:
        UsageError: no such source, or one of another scale or dimension.
    """
    source: NoiseSource = registry.create(
        "sources", registry.offered("sources", Reference.parse(text), sigma=sigma)
    )
    if source.sigma != sigma:
        raise UsageError(f"source={text}: has scale {source.sigma}; must be sigma={sigma}")
    if source.dim not in (None, dim):
        raise UsageError(f"source={text}: serves {source.dim} values, the query has {dim}")
    return source


def draw_of(
    source: NoiseSource, *, dim: int, times: float = 1.0
) -> Callable[[float, Stream], Draw]:
    """``times`` the source's noise in lattice steps, as ``AnswerSide`` and ``NoiseSide`` take it.

    The source is asked for noise alone and never gets the query.
    """

    def make(step: float, stream: Stream) -> Draw:
        noise = source.sample(1, dim, stream=stream)[0]
        steps: Steps = to_steps(noise * times if times != 1 else noise, step=step)
        return lambda at, count: np.array(steps[at : at + count])

    return make
