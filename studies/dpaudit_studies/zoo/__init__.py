"""The zoo: flawed samplers for the audit to find, honest ones to pass, and others' tests.

LAB SPECIMENS throughout; nothing here is ever a default. One family of flaws per file.
"""

from __future__ import annotations

from collections.abc import Mapping

from dpaudit.errors import UnknownNameError
from dpaudit.registry import nearest
from dpaudit_studies.zoo import claims, dependence, digits, generators, geometry, laws, running
from dpaudit_studies.zoo.specimen import (
    HONEST,
    InProcessSampler,
    Specimen,
    honest,
    specimen_sampler,
)
from dpaudit_studies.zoo.unseen import HALVES, UNSEEN

__all__ = [
    "HALVES",
    "HONEST",
    "SPECIMENS",
    "UNSEEN",
    "InProcessSampler",
    "Specimen",
    "honest",
    "specimen",
    "specimen_sampler",
]

_FAMILIES = (laws, digits, dependence, geometry, running, generators, claims)

SPECIMENS: Mapping[str, Specimen] = {s.name: s for family in _FAMILIES for s in family.SPECIMENS}


def specimen(name: str) -> Specimen:
    """The flawed sampler of that name, also one of the unseen half, or a right one of that half.

    Raises:
        UnknownNameError: no specimen has this name; the message has the nearest match.
    """
    known = {**SPECIMENS, **UNSEEN}
    if name not in known:
        raise UnknownNameError(f"specimen={name}: not in the zoo{nearest(name, known)}")
    return known[name]
