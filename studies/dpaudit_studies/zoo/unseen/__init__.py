"""The unseen half of the zoo: written, marked and split before the battery looked for its flaws.

LAB SPECIMENS throughout; nothing here is ever a default. Each says in ``why`` what an ideal test
would see in 10^7 values, which fixed its mark before any audit: "found" (it must show, probability
above 0.99), "borderline", "missed" (impossible) or "passed" (a right sampler). The half for
training may choose a battery's settings and the weights of its α; the other is only for judging.
There were 120 when they were split and audited (docs/studies/results/zoo-unseen); those that
repeated another one's flaw are gone, and the halves of the others are as they were.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from dpaudit_studies.zoo.specimen import Specimen
from dpaudit_studies.zoo.unseen import (
    congruential,
    linear,
    order,
    resolution,
    right,
    rows,
    running,
    seeds,
)

__all__ = ["HALVES", "UNSEEN", "Half"]

Half = Literal["training", "test"]

_FAMILIES = (linear, congruential, seeds, resolution, rows, order, running, right)

UNSEEN: Mapping[str, Specimen] = {s.name: s for family in _FAMILIES for s in family.SPECIMENS}

_TEST = {
    "mt19937-box-muller", "mt19937-signs", "xorshift64-box-muller", "v8-blocks",
    "xorshift128-plus-top", "splitmix64-inverse", "pcg64-inverse", "seed-pid", "seed-millisecond",
    "call-seeds-consecutive", "self-seed-hmac", "laplace-float32", "some-single", "low-counter-4",
    "last-bit-0.51", "length-lattice", "sign-parity", "pancake-1024-gamma-0.5",
    "pancake-1024-gamma-2", "every-100003rd-1.5", "calls-of-size-1", "logistic-map", "replay-8",
    "process-start-1.1", "special-n7", "right-ziggurat", "right-polar", "right-ratio",
    "right-float32",
}  # fmt: skip

HALVES: Mapping[str, Half] = {name: "test" if name in _TEST else "training" for name in UNSEEN}
"""By mark, by family, and by the SHA-256 of their names, alternately, when there were 120."""
