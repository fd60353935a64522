"""tmlt.core's noise, run by the Python that has it: ``python tmlt_core.py JSON``. No Spark and no Java is started."""

from __future__ import annotations

import importlib
import json
import sys
import time
from collections.abc import Callable
from fractions import Fraction
from typing import Any

_CLASSES = {
    "laplace": "AddLaplaceNoise",
    "gaussian": "AddGaussianNoise",
    "geometric": "AddGeometricNoise",
    "discrete-gaussian": "AddDiscreteGaussianNoise",
}


def _imported() -> tuple[Any, Any, Any]:
    core = "tmlt.core"
    return (
        importlib.import_module(f"{core}.measurements.noise_mechanisms"),
        importlib.import_module(f"{core}.domains.numpy_domains"),
        importlib.import_module(f"{core}.utils.exact_number"),
    )


def _made(library: tuple[Any, Any, Any], name: str, options: dict[str, float]) -> Callable[[Any], Any]:
    """The measurement ``name``; an option is taken as the exact number that its float is."""
    noise, domains, numbers = library
    exact = {option: numbers.ExactNumber(str(Fraction(value))) for option, value in options.items()}
    if name in {"laplace", "gaussian"}:
        exact["input_domain"] = domains.NumpyFloatDomain()
    measurement: Callable[[Any], Any] = getattr(noise, _CLASSES[name])(**exact)
    return measurement


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
    measurement = _or_end(4, lambda: _made(library, asked["mechanism"], asked["options"]))
    value, timed = asked["value"], asked["timed"]
    clock = time.perf_counter_ns
    rows: list[float] = []
    for _ in range(asked["n"]):
        started = clock()
        row = [measurement(x) for x in value]
        seconds = (clock() - started) * 1e-9
        if any(isinstance(x, int) and abs(x) > 1 << 53 for x in row):
            raise OverflowError("a release is above 2^53, which float64 would round")
        rows += [*row, seconds] if timed else row

    import numpy as np

    sys.stdout.buffer.write(np.array(rows, dtype="<f8").tobytes())


if __name__ == "__main__":
    _main()
