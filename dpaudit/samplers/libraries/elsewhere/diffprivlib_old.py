"""diffprivlib 0.4.1's mechanisms, run by the Python that has it: ``python diffprivlib_old.py JSON``.

Its models do not import with a scikit-learn that runs on this Python, and nothing here needs them: they are left out.
"""

from __future__ import annotations

import importlib
import json
import sys
import time
import types
from collections.abc import Callable
from typing import Any


def _imported() -> Any:
    sys.modules["diffprivlib.models"] = types.ModuleType("diffprivlib.models")
    return importlib.import_module("diffprivlib.mechanisms")


def _made(library: Any, name: str, options: dict[str, float]) -> Callable[[Any], Any]:
    """The ``randomise`` of the mechanism ``name``."""
    randomise: Callable[[Any], Any] = getattr(library, name)(**options).randomise
    return randomise


def _or_end(status: int, do: Callable[[], Any]) -> Any:
    """What ``do`` gives; if the library raises, its words are the last ones, and ``status`` tells which step it was."""
    try:
        return do()
    except Exception as error:  # noqa: BLE001 the library's own refusal, whatever its class
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        sys.exit(status)


def _main() -> None:
    """Write n releases, row by row; with ``timed`` each has its seconds as a last number."""
    asked = json.loads(sys.argv[1])
    library = _or_end(3, _imported)
    randomise = _or_end(4, lambda: _made(library, asked["mechanism"], asked["options"]))
    value, timed = asked["value"], asked["timed"]
    clock = time.perf_counter_ns
    rows: list[float] = []
    for _ in range(asked["n"]):
        started = clock()
        row = [randomise(x) for x in value]
        seconds = (clock() - started) * 1e-9
        if any(isinstance(x, int) and abs(x) > 1 << 53 for x in row):
            raise OverflowError("a release is above 2^53, which float64 would round")
        rows += [*row, seconds] if timed else row

    import numpy as np

    sys.stdout.buffer.write(np.array(rows, dtype="<f8").tobytes())


if __name__ == "__main__":
    _main()
