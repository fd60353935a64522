"""What the programs here share: they get a mechanism and write its releases, with numpy alone."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from typing import Any

__all__ = ["write_releases"]


def _or_end(status: int, do: Callable[[], Any]) -> Any:
    """What ``do`` gives; if the library raises, end with its message on stderr, and ``status``."""
    try:
        return do()
    except Exception as error:  # noqa: BLE001 the library's own refusal, whatever its class
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        sys.exit(status)


def write_releases(
    imported: Callable[[], Any], made: Callable[[Any, str, dict[str, float]], Callable[[Any], Any]]
) -> None:
    """Write n releases of ``made(library, mechanism, options)`` as rows; ``timed`` adds seconds."""
    asked = json.loads(sys.argv[1])
    library = _or_end(3, imported)
    release = _or_end(4, lambda: made(library, asked["mechanism"], asked["options"]))
    value, timed = asked["value"], asked["timed"]
    clock = time.perf_counter_ns
    rows: list[float] = []
    for _ in range(asked["n"]):
        started = clock()
        row = [release(x) for x in value]
        seconds = (clock() - started) * 1e-9
        if any(isinstance(x, int) and abs(x) > 1 << 53 for x in row):
            raise OverflowError("a release is above 2^53, which float64 would round")
        rows += [*row, seconds] if timed else row

    import numpy as np

    sys.stdout.buffer.write(np.array(rows, dtype="<f8").tobytes())
