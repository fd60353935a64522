"""The cases of ``dpaudit run libraries``: libraries that people draw noise with, and attacks."""

from __future__ import annotations

from collections.abc import Mapping

from dpaudit.errors import UnknownNameError
from dpaudit.registry import nearest
from dpaudit_studies.libraries import generators, private, specimens
from dpaudit_studies.libraries.case import Case

__all__ = ["CASES", "Case", "case"]

CASES: Mapping[str, Case] = {
    found.name: found for group in (generators, private, specimens) for found in group.CASES
}


def case(name: str) -> Case:
    """The case of that name.

    Raises:
        UnknownNameError: there is none, with the nearest match.
    """
    if name not in CASES:
        raise UnknownNameError(f"case={name}: not known{nearest(name, CASES)}")
    return CASES[name]
