"""dpaudit's own flawed sources, each with the attack that is meant for it: LAB SPECIMENS."""

from __future__ import annotations

import math
from typing import Any

from dpaudit_studies.libraries.case import Case, gaussian, laplace
from dpaudit_studies.libraries.generators import PAIR

__all__ = ["CASES"]

_SQRT2 = math.sqrt(2)
_SUMS = "python:dpaudit.noise.floating_point.sums"


def _case(
    mechanism: str, attack: str, neighbours: str | None, claim: tuple[float, float], **more: Any
) -> Case:
    library = "dpaudit specimens"
    return Case(library, mechanism, attack, neighbours, claim, "specimen", **more)


CASES = (
    _case("naive-laplace", "reach", "0,1", laplace(1)),
    _case("naive-laplace", "laplace-support:sampler=log", "0,1", laplace(1)),
    _case("naive-laplace:form=numpy", "laplace-support:sampler=numpy", "0,1", laplace(1)),
    _case(
        "box-muller-f32",
        "pair-inversion:sampler=box-muller-f32",
        PAIR,
        gaussian(1, distance=_SQRT2),
    ),
    _case(
        "box-muller-f64",
        "pair-inversion:sampler=box-muller-f64",
        PAIR,
        gaussian(1, distance=_SQRT2),
    ),
    _case("polar", "pair-inversion:sampler=polar", PAIR, gaussian(1, distance=_SQRT2)),
    _case("ziggurat", "reach", "0,1", gaussian(1)),
    _case("ziggurat:bits=32", "bit-features", "0,1", gaussian(1)),
    _case("four-sum-gaussian:dtype=f64", "reach", "0,1", gaussian(1)),
    _case("fine-lattice-gaussian", "reach", "0,1", gaussian(1)),
    _case("ideal-added-gaussian", "reach", "0,1", gaussian(1)),
    _case(
        "ideal-added-gaussian", "pair-inversion:sampler=polar", PAIR, gaussian(1, distance=_SQRT2)
    ),
    _case("sequential-laplace:scale=10", "timing", "0,10", laplace(1), samples=10_000),
    _case("geometric-inversion:scale=10", "timing", "0,10", laplace(1), samples=10_000),
    *(
        _case(
            f"{_SUMS}:{name}", f"sensitivity:{bounds},size={size}", None, laplace(1), samples=4_000
        )
        for name, bounds, size in (
            ("float32_sum", "lower=1000000,upper=1000001", 1000),
            ("float64_sum", "lower=35184372088832,upper=35184372088833", 1000),
            ("wrapping_sum", "lower=0,upper=4194304", 1000),
            ("fixed_point_wrapping_sum", "lower=0,upper=1", 1000),
            ("saturating_sum", "lower=-4194304,upper=4194304", 2000),
            ("filtered_mean", "lower=0,upper=1", 1000),
            ("fixed_point_sum", "lower=0,upper=1", 1000),
            ("fsum_sum", "lower=35184372088832,upper=35184372088833", 1000),
            ("pairwise_sum", "lower=35184372088832,upper=35184372088833", 1000),
        )
    ),
)
