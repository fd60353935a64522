"""A result shows itself: in a notebook, when printed, on a page, by its own description.

The description comes from the entry-point group ``dpaudit.results``, the renderers from
``dpaudit.formats``; ours come through the same door as a stranger's.
"""

from __future__ import annotations

from typing import Any, ClassVar

from dpaudit import registry
from dpaudit.report import Report

__all__ = ["Described", "describe"]


def describe(result: Any) -> Report:
    """The report of a result; a report is its own.

    Raises:
        UnknownNameError: no description is registered for the result's ``kind``.
    """
    if isinstance(result, Report):
        return result
    report: Report = registry.load("results", str(getattr(result, "kind", type(result).__name__)))(
        result
    )
    return report


class Described:
    """A result that notebooks show as a card, and that prints as its verdict and findings."""

    __slots__ = ()
    kind: ClassVar[str]

    def _repr_html_(self) -> str:
        return str(registry.load("formats", "notebook")(describe(self)))

    def __str__(self) -> str:
        return str(registry.load("formats", "plain")(describe(self)))
