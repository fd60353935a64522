"""How α is divided over the events that will be counted: chosen where they were learned."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from dpaudit.audit.epsilon.bounds import epsilon_bounds
from dpaudit.audit.epsilon.events import Event

__all__ = ["divided", "possible_shares"]

_RESERVE = 1 / 6
"""The part that events other than the leading ones keep: what they show is never lost."""
_TIMES = 100

Array = npt.NDArray[np.float64]


def divided(
    events: Sequence[Event],
    unseen: tuple[Array, Array],
    *,
    sizes: tuple[int, int],
    pool: float,
    delta: float,
    alpha: float,
    rng: np.random.Generator,
) -> list[float]:
    """Shares of ``alpha``, ``pool`` in all: equal, or 5/6 of it for the most promising events.

    Chosen is the division whose largest bound for ε at ``delta`` is greatest on average over 100
    samples of ``sizes`` releases at the two neighbours, drawn from ``unseen``: releases (n, k) of
    the learning half from which no score was learned. An event that the other neighbour never
    showed so gets nearly all; two that show about the same share equally.

    The guarantee is that of fixed shares, as these depend on the learning half alone: given it
    they are constants that add up to ``pool``, and the union bound holds for the counted half.
    """
    m = len(events)
    even = [pool / m] * m if m else []
    if m < 2 or not min(map(len, unseen)):
        return even
    held = [np.array([event.holds(x) for event in events]) for x in unseen]  # (events, n) each
    anew = [_drawn_anew(h, n, rng) for h, n in zip(held, sizes, strict=True)]
    inside = np.array([anew[e.likelier][i] for i, e in enumerate(events)])
    outside = np.array([anew[1 - e.likelier][i] for i, e in enumerate(events)])

    def shown(shares: Sequence[float]) -> Array:
        found = [
            epsilon_bounds(k1, k0, draws=sum(sizes), delta=delta, alpha=share * alpha)
            for k1, k0, share in zip(inside, outside, shares, strict=True)
        ]
        return np.maximum(0.0, found)

    alone = shown(even)
    best, most = even, float(alone.max(axis=0).mean())
    order = np.argsort(-alone.mean(axis=1), kind="stable")
    for leading in range(1, m):
        shares = np.full(m, _RESERVE * pool / (m - leading))
        shares[order[:leading]] = (1 - _RESERVE) * pool / leading
        found = float(shown(shares.tolist()).max(axis=0).mean())
        if found > most:
            best, most = shares.tolist(), found
    return best


def possible_shares(events: int, *, pool: float) -> tuple[float, float]:
    """The least and the largest share that :func:`divided` can give to one of so many events."""
    if events < 2:
        return pool, pool
    return _RESERVE * pool / (events - 1), (1 - _RESERVE) * pool


def _drawn_anew(
    held: npt.NDArray[np.bool_], size: int, rng: np.random.Generator
) -> npt.NDArray[np.int64]:
    """Counts (events, 100) in samples of ``size``, at rates as uncertain as what was seen leaves.

    The rates of each sample are a Bayesian bootstrap's (Rubin 1981); events overlap as they do.
    """
    patterns, times = np.unique(held, axis=1, return_counts=True)
    return patterns @ rng.multinomial(size, rng.dirichlet(times, _TIMES)).T
