"""Anytime-valid judgement: bets run beside the battery while values are drawn, and may stop the audit."""

from __future__ import annotations

import math

from dpaudit.audit.betting import BETS, Bet
from dpaudit.claims import Claim
from dpaudit.interfaces import Block
from dpaudit.randomness import KeyedStream
from dpaudit.types import TestResult

__all__ = ["Betting"]


class Betting:
    """All bets of one audit against ``alpha``.

    Formal guarantee: under the claim the probability that any bet ever reaches (number of bets)/α is at most α, however
    often one looks and whenever one stops (Ville's inequality and a union bound).
    """

    def __init__(self, claim: Claim, stream: KeyedStream, *, alpha: float) -> None:
        self._alpha = alpha
        self._bets: dict[str, Bet] = {
            name: make(stream.child("bet", name))
            for name, make in BETS.items()
            if not (claim.discrete and name == "bet on repeats")
        }
        self._best = dict.fromkeys(self._bets, 0.0)
        self._effects: dict[str, str] = {}

    def update(self, block: Block) -> bool:
        """Take in one block; True if a bet has won and the audit may stop."""
        for name, bet in self._bets.items():
            bet.update(block)
            capital = bet.log_capital
            if capital > self._best[name]:
                self._best[name] = capital
                self._effects[name] = bet.effect
        return self.won

    @property
    def won(self) -> bool:
        """Whether some bet has reached its threshold."""
        return max(self._best.values()) >= math.log(len(self._bets) / self._alpha)

    def results(self, *, alpha: float) -> list[TestResult]:
        """One line a bet; p is anytime-valid (1 over the best capital), adjusted for the bets and their part of ``alpha``."""
        weight = len(self._bets) * alpha / self._alpha
        lines = []
        for name, bet in self._bets.items():
            p = math.exp(-min(self._best[name], 700.0))
            adjusted = min(1.0, weight * p)
            lines.append(
                TestResult(
                    name=name,
                    p=p,
                    p_adjusted=adjusted,
                    statistic=self._best[name],
                    looks_at=bet.looks_at,
                    effect=self._effects.get(name, bet.effect),
                    finding=adjusted <= alpha,
                    parts={},
                )
            )
        return lines
