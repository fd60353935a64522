"""The four applications that Apple first announced its differential privacy for, and where each was seen to work."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["ANNOUNCED", "PLATFORMS", "Application", "application_of"]

PLATFORMS = ("macOS", "iOS")


@dataclass(frozen=True, slots=True)
class Application:
    """An announced use, the budget that it spends, and the platforms on which its records were seen."""

    name: str
    budget: str
    platforms: tuple[str, ...] = PLATFORMS


ANNOUNCED = (
    Application("New words", "com.apple.keyboard.NewWords"),
    Application("Emoji", "com.apple.keyboard.Emoji"),
    Application("Deep links", "com.apple.parsec.AppDeepLink", ("iOS",)),
    Application("Lookup hints", "com.apple.parsec.Search"),
)
"""June 2016 (Tang et al. 2017, section 2.2). Deep links were not implemented on macOS 10.12 and abound on iOS (5.4)."""


def application_of(budget: str) -> Application | None:
    """The announced application that spends a budget; None for budgets that came later, and for test and default.

    >>> application_of("com.apple.parsec.Search").name
    'Lookup hints'
    """
    return next((a for a in ANNOUNCED if a.budget == budget), None)
