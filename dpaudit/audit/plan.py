"""Which calls the auditor makes: how many rows of which dimension, decided before anything is seen."""

from __future__ import annotations

from dataclasses import dataclass

from dpaudit.errors import UsageError

__all__ = ["DEFAULT_SAMPLES", "Call", "make_plan"]

DEFAULT_SAMPLES = 10_000_000
_BLOCK_VALUES = 1 << 19  # 4 MiB of doubles: what a call may ask for at most
_SHORT_CALLS = 128


@dataclass(frozen=True, slots=True)
class Call:
    """One request: ``n`` vectors of ``d`` values."""

    n: int
    d: int


def make_plan(samples: int, *, dim: int | None, available: int | None = None) -> tuple[Call, ...]:
    """Calls that add up to about ``samples`` values.

    With a fixed ``dim`` nine tenths are long calls and a tenth short ones (one or few vectors each, where seeds repeat
    and state leaks). Left to choose, the auditor takes d = 64 for most, d = 4096 and d = 1 for a tenth each. A recorded
    file with ``available`` rows is read through once, in blocks.

    Raises:
        UsageError: samples or dim below 1, or fewer samples than one vector.
    """
    for name, value in (("samples", samples), ("dim", dim)):
        if value is not None and value < 1:
            raise UsageError(f"{name}={value}: must be at least 1")
    if dim is not None and samples < dim:
        raise UsageError(f"samples={samples}: less than one vector of dim={dim}; ask for at least {dim}")
    if available is not None and dim is not None:
        rows = min(available, samples // dim)
        return tuple(_long(rows, dim))
    if dim is not None:
        return tuple(_mixed(samples // dim, dim))
    wide, single = samples // 10 // 4096, samples // 10
    rest = (samples - wide * 4096 - single) // 64
    return (*_mixed(rest, 64), *_long(wide, 4096), *_long(single, 1))


def _long(rows: int, d: int) -> list[Call]:
    step = max(1, _BLOCK_VALUES // d)
    return [Call(min(step, rows - start), d) for start in range(0, rows, step)]


def _mixed(rows: int, d: int) -> list[Call]:
    """Short calls first (a sampler that fails does so early), then long ones."""
    short = max(1, min(64, rows // 10 // _SHORT_CALLS))
    count = min(_SHORT_CALLS, rows // 10 // short)
    return [*([Call(short, d)] * count), *_long(rows - count * short, d)]
