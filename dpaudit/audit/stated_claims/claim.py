"""What every stated claim answers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

from dpaudit.audit.implied_pairs import Profile

if TYPE_CHECKING:
    from dpaudit.audit.epsilon.bounds import Band

__all__ = ["StatedClaim", "number_text"]


class StatedClaim(Protocol):
    """A claim in its own terms."""

    @property
    def text(self) -> str:
        """The claim as a reader writes it, e.g. ``0.5-zCDP``."""

    @property
    def options(self) -> dict[str, Any]:
        """The claim as options, name and value (:class:`~dpaudit.audit.options.ClaimOptions`)."""

    @property
    def unit(self) -> str:
        """The letter of the claimed parameter; empty if the claim is a table."""

    @property
    def value(self) -> float | None:
        """The claimed parameter; None if the claim is a table."""

    @property
    def profile(self) -> Profile:
        """Pairs (ε, δ) that the claim implies all at once (:mod:`dpaudit.audit.implied_pairs`)."""

    def with_value(self, value: float) -> StatedClaim | None:
        """The claim with another parameter, weaker if larger; None if there is none such."""

    def implied(self, delta: float) -> tuple[float, float]:
        """A pair (ε, δ) that the claim implies, at ``delta`` or the nearest δ it speaks of."""

    def contradicted(self, band: Band) -> bool:
        """Whether no mechanism that keeps the claim has probabilities within the band."""

    def shown(self, bands: Sequence[Band]) -> tuple[float | None, str]:
        """A lower bound in the claim's unit, if it has one, and the same in words.

        Of one band at least; it holds if all of them do.
        """


def number_text(value: float) -> str:
    """A number as an option of the command line."""
    return repr(float(value)).removesuffix(".0")
