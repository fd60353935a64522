"""Attackers beside a training run: each says at every step what it makes of the release."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from dpaudit import registry
from dpaudit.interfaces import Stream
from dpaudit.noise.key import PancakeKey

if TYPE_CHECKING:
    from dpaudit.training.private.onlooker import Sight

__all__ = ["ATTACKERS", "Watcher"]

ATTACKERS = ("key: likelihood", "key: nearest peak", "no key: likelihood", "no key: low bits")


class Watcher:
    """Shown every step of a run; counts the pairs that each attacker gets right, and adds up evidence of membership.

    ``key`` is what the attacker holds, whether or not the noise was made with it. Where two answers are equally good a coin
    of ``stream`` decides.
    """

    def __init__(self, *, key: PancakeKey, rate: float, canaries: int, stream: Stream) -> None:
        """For ``canaries`` of them, each in a batch with probability ``rate`` if it is a member."""
        self._key, self._rate, self._canaries = key, rate, canaries
        self._rng = stream.numpy()
        self._attacks: dict[str, Any] = {}
        self._evidence: dict[str, Any] = {"informed": 0.0, "blind": 0.0}
        self.named: Counter[str] = Counter()
        self.pairs = 0
        self.sums_equal = 0
        self.infeasible: list[tuple[int, int]] = []
        self.sampled = np.zeros(canaries, np.bool_)

    def __call__(self, sight: Sight) -> None:
        if not self._attacks:
            self._attacks = self._made(sight.sigma)
        residual = sight.noisy.double() - sight.query.double()
        if self._canaries:
            self._look_at_canaries(sight, residual)
        if sight.pair is not None:
            self._look_at_pair(sight, sight.pair)

    def scores(self, kind: str, *, keyed: bool) -> list[float]:
        """Of each canary from the run so far: ``kind`` informed or blind, with the key or without."""
        evidence = self._evidence[kind]
        found: list[float] = self._attacks["membership"].score(evidence if keyed else evidence[-1:]).tolist()
        return found

    def _made(self, sigma: float) -> dict[str, Any]:
        keyed = {"key": self._key, "sigma": sigma}
        return {
            "membership": registry.load("attacks", "membership")(rate=self._rate, **keyed),
            "key: likelihood": registry.load("attacks", "likelihood-ratio")(**keyed),
            "key: nearest peak": registry.load("attacks", "nearest-peak")(**keyed),
            "no key: low bits": registry.load("attacks", "reach")(dtype="float32"),
        }

    def _look_at_canaries(self, sight: Sight, residual: torch.Tensor) -> None:
        attack = self._attacks["membership"]
        gradients = attack.look(sight.gradients)
        rest = residual + gradients.wide[sight.present].sum(0)
        self._evidence["informed"] += attack.informed(residual, gradients, sight.present)
        self._evidence["blind"] += attack.blind(rest, gradients)
        self.sampled |= sight.present.cpu().numpy()

    def _look_at_pair(self, sight: Sight, pair: torch.Tensor) -> None:
        self.pairs += 1
        self.sums_equal += torch.equal(pair[sight.truth], sight.query)
        noisy, wide = sight.noisy.double().unsqueeze(0), pair.double()
        scores = {name: self._attacks[name].score(noisy, wide)[0].tolist() for name in ATTACKERS[:2]}
        scores["no key: likelihood"] = (-(noisy - wide).square().sum(1)).tolist()
        infeasible = [
            int((~self._attacks["no key: low bits"].feasible(noisy.cpu().numpy(), c.cpu().numpy())).sum()) for c in wide
        ]
        scores["no key: low bits"] = [-n for n in infeasible]
        self.infeasible.append((infeasible[sight.truth], infeasible[1 - sight.truth]))
        for name, (first, second) in scores.items():
            guess = int(self._rng.integers(2)) if first == second else int(second > first)
            self.named[name] += guess == sight.truth
