"""The unseen half of the zoo: written, marked and split before the battery looked for its flaws.

LAB SPECIMENS throughout; nothing here is ever a default. Each says in ``why`` what an ideal test
would see in 10^7 values, which fixed its mark before any audit: "found" (it must show, probability
above 0.99), "borderline", "missed" (impossible) or "passed" (a right sampler). The half for
training may choose a battery's settings and the weights of its α; the other is only for judging.
"""

from __future__ import annotations

import hashlib
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


def _split() -> dict[str, Half]:
    """By mark, by family, and by the SHA-256 of their names, alternately."""

    def key(one: Specimen) -> tuple[str, str, str]:
        return one.expected, one.family, hashlib.sha256(one.name.encode()).hexdigest()

    ordered = sorted(UNSEEN.values(), key=key)
    return {one.name: "test" if i % 2 else "training" for i, one in enumerate(ordered)}


HALVES: Mapping[str, Half] = _split()
