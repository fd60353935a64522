"""Libraries that promise differential privacy, by their own mechanisms."""

from __future__ import annotations

import math
from typing import Any

from dpaudit_studies.libraries.case import DELTA, Case, gaussian, laplace
from dpaudit_studies.libraries.generators import LANES

__all__ = ["CASES"]

# four steps of a double wide: sums of 1,000 cannot resolve it
_NARROW = "lower=1,upper=1.0000000000000009"
_OTHERS = {"diffprivlib", "opacus", "opendp", "pipeline-dp", "python-dp"}
_PURE, _APPROXIMATE = (1.0, 0.0), (1.0, DELTA)


def _case(
    mechanism: str, attack: str, neighbours: str | None, claim: tuple[float, float], **more: Any
) -> Case:
    name = mechanism.partition(":")[0]
    library = name if name in _OTHERS else "dpaudit"
    return Case(library, mechanism, attack, neighbours, claim, "DP", **more)


_DIFFPRIVLIB = (
    _case("diffprivlib:Laplace:epsilon=1", "reach", "0,1", _PURE, draft="diffprivlib_laplace"),
    _case("diffprivlib:Laplace:epsilon=0.1", "reach", "0,1", laplace(10),
          draft="diffprivlib_laplace"),
    _case("diffprivlib:Gaussian:epsilon=1,delta=1e-5", "reach", "0,1", _APPROXIMATE,
          draft="diffprivlib_laplace"),
    _case(
        "diffprivlib:GaussianAnalytic:epsilon=1,delta=1e-5", "reach", "0,1", _APPROXIMATE,
        draft="diffprivlib_laplace"
    ),
    _case("diffprivlib:Staircase:epsilon=1", "reach", "0,1", _PURE, draft="diffprivlib_laplace"),
    _case(
        "diffprivlib:LaplaceBoundedNoise:epsilon=1,delta=1e-5", "reach", "0,1", _APPROXIMATE,
        draft="diffprivlib_laplace"
    ),
    _case(
        "diffprivlib:LaplaceTruncated:epsilon=1,lower=-8,upper=8", "reach:lower=-8,upper=8", "0,1",
        _PURE,
        draft="diffprivlib_laplace",
    ),
    _case("diffprivlib:Snapping:epsilon=1,lower=-8,upper=8", "reach:lower=-8,upper=8", "0,1",
          _PURE),
    _case("diffprivlib:Snapping:epsilon=1,lower=-8,upper=8", "bit-features", "0,1", _PURE),
    _case("diffprivlib:Geometric:epsilon=1", "reach", "0,1", _PURE),
    _case("diffprivlib:Geometric:epsilon=0.1", "timing", "0,10", _PURE, samples=10_000),
    _case("diffprivlib:GaussianDiscrete:epsilon=1,delta=1e-5", "reach", "0,1", _APPROXIMATE),
    _case(
        "diffprivlib:GaussianDiscrete:epsilon=1,delta=1e-5,sensitivity=5", "timing", "0,5",
        _APPROXIMATE, samples=10_000
    ),
)  # fmt: skip
_OPACUS = tuple(
    _case(f"opacus:step:secure_mode={secure}", attack, neighbours, claim, draft=draft)
    for secure, draft in (("false", ""), ("true", "opacus_secure_mode"))
    for attack, neighbours, claim in (
        ("reach", "0,1", gaussian(1)),
        ("pair-inversion:sampler=torch-f32", LANES, gaussian(1, distance=math.sqrt(2))),
    )
)
_OPENDP = (
    _case("opendp:laplace:scale=1", "reach", "0,1", laplace(1)),
    _case("opendp:laplace:scale=1", "bit-features", "0,1", laplace(1)),
    _case("opendp:gaussian:scale=1", "reach", "0,1", gaussian(1)),
    _case("opendp:discrete-laplace:scale=10", "reach", "0,1", laplace(10)),
    _case("opendp:discrete-laplace:scale=10", "timing", "0,10", _PURE, samples=10_000),
    _case("opendp:discrete-gaussian:scale=10", "reach", "0,1", gaussian(10)),
    _case("opendp:discrete-gaussian:scale=10", "timing", "0,10", gaussian(1), samples=10_000),
)
_PYTHON_DP = (
    _case("python-dp:laplace:epsilon=1", "reach", "0,1", _PURE),
    _case("python-dp:laplace:epsilon=1", "bit-features", "0,1", _PURE),
    _case(
        "python-dp:gaussian:epsilon=1,delta=1e-5",
        "reach",
        "0,1",
        _APPROXIMATE,
        draft="python_dp_gaussian",
    ),
    _case("python-dp:gaussian-int:epsilon=1,delta=1e-5", "reach", "0,1", _APPROXIMATE),
    _case("python-dp:laplace-int:epsilon=1", "reach", "0,1", _PURE),
    _case("python-dp:laplace-int:epsilon=0.1", "timing", "0,10", _PURE, samples=10_000),
)
_PIPELINE_DP = (
    _case("pipeline-dp:sum:epsilon=1,min_value=0,max_value=1", "reach", "0,1", _PURE),
    _case("pipeline-dp:count:epsilon=1", "reach", "0,1", _PURE),
    _case(
        "pipeline-dp:sum:epsilon=1,delta=1e-5,noise_kind=gaussian,min_value=0,max_value=1", "reach",
        "0,1", _APPROXIMATE,
        draft="python_dp_gaussian",
    ),
    _case(
        "pipeline-dp:vector-sum:epsilon=1,delta=1e-5,noise_kind=gaussian,vector_norm_kind=l2",
        "reach", "0,0;1,0",
        _APPROXIMATE, draft="python_dp_gaussian",
    ),
)  # fmt: skip
_OURS = (
    _case("secure-gaussian:sigma=1", "reach", "0,1", gaussian(1)),
    _case("secure-gaussian:sigma=1", "bit-features", "0,1", gaussian(1)),
    _case("snapping:epsilon=1", "reach", "0,1", _PURE),
    _case("snapping:epsilon=1", "bit-features", "0,1", _PURE),
    _case("discrete-gaussian:sigma=10", "reach", "0,1", gaussian(10)),
    _case("discrete-laplace:scale=10", "reach", "0,1", laplace(10)),
)
_SUMS = (
    _case(
        f"opendp:bounded-sum:epsilon=1,{_NARROW}", f"sensitivity:{_NARROW},size=1000", None, _PURE,
        samples=4_000
    ),
    _case(
        "python-dp:bounded-sum:epsilon=1,lower_bound=1,upper_bound=1.0000000000000009",
        f"sensitivity:{_NARROW},size=1000", None, _PURE, samples=4_000,
    ),
    _case(
        f"diffprivlib:sum:epsilon=1,{_NARROW}", f"sensitivity:{_NARROW},size=1000", None, _PURE,
        samples=4_000,
        draft="diffprivlib_sum",
    ),
)  # fmt: skip

CASES = (
    *_DIFFPRIVLIB,
    *_OPACUS,
    *_OPENDP,
    *_PYTHON_DP,
    *_PIPELINE_DP,
    *_OURS,
    *_SUMS,
)
