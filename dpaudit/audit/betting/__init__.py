"""Betting against the claim, one family a file: each a test martingale, valid whenever one looks (Ville 1939).

A bet starts with a capital of 1 and is fair under the claim: E[capital at any stopping time] ≤ 1, so capital ever reaches
1/α with probability at most α. See Ramdas, Grünwald, Vovk and Shafer 2023, "Game-theoretic statistics and safe
anytime-valid inference".
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from dpaudit.audit.betting.correlation import LagBet
from dpaudit.audit.betting.direction import DirectionBet
from dpaudit.audit.betting.location_scale import MeanBet, ScaleBet
from dpaudit.audit.betting.repeats import RepeatBet
from dpaudit.audit.betting.shape import ShapeBet
from dpaudit.interfaces import Block, Stream

__all__ = ["BETS", "Bet"]


class Bet(Protocol):
    """One family's martingale."""

    looks_at: str

    def update(self, block: Block) -> None:
        """Take in one block, in the order drawn."""

    @property
    def log_capital(self) -> float:
        """Natural logarithm of the capital now."""

    @property
    def effect(self) -> str:
        """What was seen so far, in words."""


BETS: dict[str, Callable[[Stream], Bet]] = {
    "bet on the scale": lambda _: ScaleBet(),
    "bet on the mean": lambda _: MeanBet(),
    "bet on the shape": lambda _: ShapeBet(),
    "bet on correlation": lambda _: LagBet(),
    "bet on a direction": lambda _: DirectionBet(),
    "bet on repeats": RepeatBet,
}
