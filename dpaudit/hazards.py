"""Where findings and blind spots belong in NIST SP 800-226 (final, March 2025).

Its differential privacy pyramid has nine components, each in one of three sections. Their names and
sections are those of the publication. Which component a test belongs to is our judgement.
"""

from __future__ import annotations

from dpaudit.report import Hazard

__all__ = [
    "ALGORITHMS",
    "COMPONENTS",
    "PARAMETERS",
    "SIDE_CHANNELS",
    "TRUST",
    "UNIT",
    "Pyramid",
]

PARAMETERS = "Privacy parameters"
UNIT = "Unit of privacy"
ALGORITHMS = "Algorithms and correctness"
TRUST = "Trust models"
SIDE_CHANNELS = "Side channels"

COMPONENTS = (
    (PARAMETERS, 2),
    (UNIT, 2),
    (ALGORITHMS, 3),
    ("Utility", 3),
    ("Bias", 3),
    ("Access control", 4),
    (TRUST, 4),
    (SIDE_CHANNELS, 4),
    ("Data collection exposure", 4),
)
"""The components of the pyramid with their sections, from the top down."""


class Pyramid:
    """Collects what was found in each component, and what is not excluded there."""

    def __init__(self) -> None:
        self._found: dict[str, list[str]] = {}
        self._open: dict[str, list[str]] = {}

    def add(self, component: str, found: str) -> None:
        """Something was found in ``component``."""
        self._found.setdefault(component, []).append(found)

    def leave_open(self, component: str, flaw: str) -> None:
        """``flaw`` in ``component`` is not excluded."""
        self._open.setdefault(component, []).append(flaw)

    def hazards(self) -> tuple[Hazard, ...]:
        """The components that something was said of, from the top down."""
        return tuple(
            Hazard(
                component=name,
                found=tuple(self._found.get(name, ())),
                open=tuple(self._open.get(name, ())),
            )
            for name, _ in COMPONENTS
            if name in self._found or name in self._open
        )
