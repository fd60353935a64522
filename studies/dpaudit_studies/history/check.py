"""One question about a release: a mechanism, how it is audited, and against which claim."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from dpaudit.errors import UsageError
from dpaudit.results.text import one_line

__all__ = ["Check"]

BATTERY, EVENTS = "battery", "events"


@dataclass(frozen=True, slots=True)
class Check:
    """``mechanism`` as its adapter names it, audited by ``method`` at the values 0 and 1.

    ``method`` is ``battery`` (its noise against the law that its adapter states), ``events``
    (releases of the whole mechanism, any event that can be learned), or an attack of ``dpaudit
    mechanism``. The last two are against a claim (``epsilon``, ``delta``).

    >>> Check.parse("laplace:scale=2 reach 0.5")
    Check(mechanism='laplace:scale=2', method='reach', epsilon=0.5, delta=0.0)
    >>> str(Check.parse("gaussian battery"))
    'gaussian battery'
    """

    mechanism: str
    method: str = BATTERY
    epsilon: float | None = None
    delta: float = 0.0

    @classmethod
    def parse(cls, text: str) -> Self:
        """The check that ``text`` writes: MECHANISM METHOD [EPSILON [DELTA]].

        Raises:
            UsageError: it is none.
        """
        mechanism, method, *claim = [*text.split(), *[BATTERY][: len(text.split()) == 1]]
        try:
            numbers = [float(word) for word in claim]
        except ValueError:
            numbers = []
        if len(numbers) != len(claim) or len(claim) > 2 or (method == BATTERY) != (not claim):
            raise UsageError(
                f"check={one_line(text)}: must be MECHANISM battery or MECHANISM METHOD EPSILON "
                "DELTA, e.g. 'laplace:scale=2 reach 0.5'"
            )
        return cls(mechanism, method, *numbers)

    def __str__(self) -> str:
        claim = [] if self.epsilon is None else [f"{self.epsilon:g}"]
        claim += [f"{self.delta:g}"] if self.delta else []
        return " ".join([self.mechanism, self.method, *claim])
