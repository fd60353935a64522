"""Drawing releases at two neighbours in turns, so that drift does not pass for a difference."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dpaudit.errors import SamplerOutputError, SamplerTimeoutError, UsageError
from dpaudit.interfaces import Mechanism, TimedMechanism

__all__ = ["Releases", "draw_releases"]

_LARGEST_BLOCK = 1 << 16
_LARGEST_TIMED = 1 << 10
_PAIRS = 16
"""Turns of each half, at least."""
_MOST_NUMBERS = 1 << 28
"""Numbers kept, at most (2 GiB)."""

Array = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Releases:
    """Releases at the two neighbours: to learn from, and to be counted; ``late`` says why there are fewer than asked.

    Shape (n, k) each; where they were timed, one more column, the last: the seconds that the call took. ``sizes`` says how
    many came from each call, in order: those to learn from and those to count, at each neighbour; none where each
    release took a call of its own.
    """

    learn: tuple[Array, Array]
    count: tuple[Array, Array]
    late: str
    sizes: tuple[tuple[list[int], list[int]], tuple[list[int], list[int]]] = (([], []), ([], []))

    @property
    def calls(self) -> tuple[list[Array], list[Array]]:
        """All releases call by call, at each neighbour: views, shape (n, k) each."""
        found: tuple[list[Array], list[Array]] = ([], [])
        for half, sizes in zip((self.learn, self.count), self.sizes, strict=True):
            for side in (0, 1):
                if sizes[side]:
                    found[side].extend(np.split(half[side], np.cumsum(sizes[side])[:-1]))
        return found


def draw_releases(
    mechanism: Mechanism,
    neighbours: tuple[Array, Array],
    *,
    samples: int,
    deadline: float,
    limit: float,
    rng: np.random.Generator,
    learning: bool = True,
    timed: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> Releases:
    """About ``samples`` releases at each neighbour, in blocks at one and the other in random order.

    The first half, to learn from, has as many at each (none without ``learning``: all are counted). In the second half
    a fair coin decides for every release at which neighbour it is made; after every pair of blocks that is exactly so,
    and the time limit (``deadline`` of ``time.monotonic``, ``limit`` seconds) ends drawing only there. A block takes
    the mechanism one call.

    ``timed`` releases take a call each, in an order that is as random: whatever else slows a machine down, and for
    however long, then falls on both neighbours alike.

    Raises:
        UsageError: more numbers than fit into 2 GiB, or calls of this mechanism cannot be timed.
        SamplerError: the mechanism failed, or the first half was not finished in time.
    """
    if timed and not isinstance(mechanism, TimedMechanism):
        raise UsageError(f"mechanism={mechanism.name}: its calls cannot be timed; choose an attack on releases alone")
    half = samples // 2 if learning else samples
    pairs = max(_PAIRS, -(-half // (_LARGEST_TIMED if timed else _LARGEST_BLOCK)))
    blocks = [b for b in np.diff(np.linspace(0, half, pairs + 1).round().astype(int)).tolist() if b]
    kept: list[list[list[Array]]] = [[[], []], [[], []]]
    done, width, late = 0, 0, ""
    for counting in (False, True) if learning else (True,):
        for block in blocks:
            if late:
                break
            second = int(rng.binomial(2 * block, 0.5)) if counting else block
            sizes = (2 * block - second, second)
            pair: list[list[Array]] = [[], []]
            try:
                for side, n in _turns(sizes, rng=rng, timed=timed):
                    got = _release(mechanism, neighbours[side], n, deadline=deadline, limit=limit, timed=timed)
                    width = _same_width(mechanism, got, width, samples=samples)
                    pair[side].append(got)
            except SamplerTimeoutError as error:
                if not kept[1][0]:
                    raise
                late = str(error)
                break
            for side in (0, 1):
                kept[counting][side].append(_joined(pair[side], width))
            done += sum(sizes)
            if progress is not None:
                progress(done, 4 * half if learning else 2 * half)
    learn, count = ((_joined(a, width), _joined(b, width)) for a, b in kept)
    by_call = [([], []) if timed else ([*map(len, a)], [*map(len, b)]) for a, b in kept]
    return Releases(learn, count, late, (by_call[0], by_call[1]))


def _turns(sizes: tuple[int, int], *, rng: np.random.Generator, timed: bool) -> Iterable[tuple[int, int]]:
    """Which neighbour's turn it is, and for how many releases: both blocks in random order, or one by one."""
    if timed:
        return ((int(side), 1) for side in rng.permutation(np.repeat([0, 1], sizes)))
    order = (0, 1) if rng.random() < 0.5 else (1, 0)
    return ((side, sizes[side]) for side in order if sizes[side])


def _joined(blocks: list[Array], width: int) -> Array:
    return np.concatenate([np.empty((0, width)), *blocks])


def _release(mechanism: Mechanism, value: Array, n: int, *, deadline: float, limit: float, timed: bool) -> Array:
    left = deadline - time.monotonic()
    if left <= 0:
        raise SamplerTimeoutError(f"{mechanism.name}: the time limit of {limit:g} s was reached")
    if timed and isinstance(mechanism, TimedMechanism):
        releases, seconds = mechanism.release_timed(value, n, timeout=left)
        return np.column_stack([releases, seconds])
    return mechanism.release(value, n, timeout=left)


def _same_width(mechanism: Mechanism, releases: Array, width: int, *, samples: int) -> int:
    k = int(releases.shape[1])
    if width and k != width:
        raise SamplerOutputError(
            f"{mechanism.name} released {k} numbers, {width} before; a release must always have the same length"
        )
    if 2 * samples * k > _MOST_NUMBERS:
        raise UsageError(
            f"samples={samples}: releases of {k} numbers at two neighbours are too many to keep; "
            f"use --samples {_MOST_NUMBERS // (2 * k)} or fewer"
        )
    return k
