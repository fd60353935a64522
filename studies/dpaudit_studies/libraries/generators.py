"""Random number generators that people use for noise; they promise no privacy themselves."""

from __future__ import annotations

import math
from typing import Any

from dpaudit_studies.libraries.case import Case, gaussian, laplace

__all__ = ["CASES", "LANES", "PAIR"]

PAIR = "0,0;1,1"
"""One number released twice, by noise that comes in pairs."""
LANES = ";".join(",".join(one if i in (0, 8) else "0" for i in range(16)) for one in ("0", "1"))
"""Two numbers of sixteen, where torch's pairs are."""
_SQRT2 = math.sqrt(2)


def _case(
    mechanism: str, attack: str, neighbours: str, claim: tuple[float, float], **more: Any
) -> Case:
    library = mechanism.partition(":")[0]
    return Case(library, mechanism, attack, neighbours, claim, "none", **more)


CASES = (
    _case("numpy:normal", "reach", "0,1", gaussian(1)),
    _case("numpy:normal:scale=10", "reach", "0,1", gaussian(10)),
    _case("numpy:normal", "reach", "1000,1001", gaussian(1)),
    _case("numpy:normal", "bit-features", "0,1", gaussian(1)),
    _case("numpy:laplace", "reach", "0,1", laplace(1)),
    _case("numpy:laplace", "laplace-support:sampler=numpy", "0,1", laplace(1)),
    _case("numpy:laplace:scale=10", "laplace-support:sampler=numpy,scale=10", "0,1", laplace(10)),
    _case("numpy:legacy-normal", "reach", "0,1", gaussian(1)),
    _case(
        "numpy:legacy-normal",
        "pair-inversion:sampler=numpy-legacy",
        PAIR,
        gaussian(1, distance=_SQRT2),
    ),
    _case(
        "numpy:legacy-normal:scale=10",
        "pair-inversion:sampler=numpy-legacy,scale=10",
        PAIR,
        gaussian(10, distance=_SQRT2),
    ),
    _case("scipy:norm", "reach", "0,1", gaussian(1)),
    _case("scipy:norm", "pair-inversion:sampler=numpy-legacy", PAIR, gaussian(1, distance=_SQRT2)),
    _case("scipy:laplace", "reach", "0,1", laplace(1)),
    _case("stdlib:gauss", "reach", "0,1", gaussian(1)),
    _case(
        "stdlib:gauss", "pair-inversion:sampler=stdlib-gauss", PAIR, gaussian(1, distance=_SQRT2)
    ),
    _case("stdlib:normalvariate", "reach", "0,1", gaussian(1)),
    _case("torch:normal", "reach", "0,1", gaussian(1)),
    _case("torch:normal", "pair-inversion:sampler=torch-f32", LANES, gaussian(1, distance=_SQRT2)),
    _case(
        "torch:normal:std=10",
        "pair-inversion:sampler=torch-f32,scale=10",
        LANES,
        gaussian(10, distance=_SQRT2),
    ),
    _case(
        "torch:normal:dtype=f64",
        "pair-inversion:sampler=torch-f64",
        LANES,
        gaussian(1, distance=_SQRT2),
    ),
    _case("torch:laplace", "reach", "0,1", laplace(1)),
)
