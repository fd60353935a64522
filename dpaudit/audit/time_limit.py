"""How long an audit may draw, in seconds from its start."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from dpaudit.errors import SamplerTimeoutError

__all__ = ["TimeLimit"]


@dataclass(frozen=True, slots=True)
class TimeLimit:
    """``seconds`` from ``started``, which is on ``time.monotonic``'s clock."""

    seconds: float
    started: float = field(default_factory=time.monotonic)

    @property
    def ends(self) -> float:
        """When it is over, on the same clock."""
        return self.started + self.seconds

    def left(self, name: str) -> float:
        """The seconds left for what is called ``name``.

        Raises:
            SamplerTimeoutError: none.
        """
        left = self.ends - time.monotonic()
        if left <= 0:
            raise SamplerTimeoutError(f"{name}: the time limit of {self.seconds:g} s was reached")
        return left
