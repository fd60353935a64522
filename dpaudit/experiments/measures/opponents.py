"""Attackers of one arm, each told all that it could know of the mitigation, all looking at the same releases."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, Protocol

import torch

from dpaudit import registry
from dpaudit.accounting import smoothed_pancake
from dpaudit.audit.block import SampleBlock
from dpaudit.claims import Claim
from dpaudit.errors import SpecError
from dpaudit.experiments.arm import Arm, plugin_options
from dpaudit.experiments.measures.trials import Batch
from dpaudit.interfaces import Attack
from dpaudit.types import Reference

__all__ = ["Opponent", "opponent"]

_ROWS = 20_000


class Opponent(Protocol):
    """Guesses at releases; ``chance`` is what a guess without any release is worth."""

    chance: float

    def guesses(self, batch: Batch, release: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Truths and guesses, shape (rounds,) each; rounds of the batch that do not suit it are left out."""


class _Distinguisher:
    """Names one of the two candidates by an attack's score; where scores are equal, the first, which is a coin's guess."""

    chance = 0.5

    def __init__(self, attack: Attack | None) -> None:
        """Guess with ``attack``; None holds nothing and always says the first."""
        self._attack = attack

    def guesses(self, batch: Batch, release: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        if self._attack is None:
            return batch.truth, torch.zeros_like(batch.truth)
        return batch.truth, self._attack.score(release, batch.pairs).argmax(1)


class _WhichBin:
    """Names the bin that lacks a record, where one does."""

    def __init__(self, arm: Arm) -> None:
        self._attack = registry.load("attacks", "which-bin")(key=arm.held_key, sigma=arm.sigma)
        self.chance = 1 / arm.host.dim

    def guesses(self, batch: Batch, release: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        lacking = batch.truth == 1
        pairs = batch.pairs[lacking]
        guess = self._attack.scores(release[lacking], pairs[0, 0]).argmax(1)
        return (pairs[:, 0] - pairs[:, 1]).argmax(1), guess


def opponent(table: Mapping[str, Any], arm: Arm) -> Opponent:
    """The attacker that an ``[[attack]]`` table names, against ``arm``.

    A key holder's ``likelihood-ratio`` knows the mitigation: where that adds independent noise to the source's (its method
    ``mixes(sigma)`` says: the source's scale in the release, and the added noise's), the pancake it looks for is the
    widened one, unless ``mixes`` returns None. ``recovered-direction`` holds no key: it first searches 20,000 releases of a known query for
    ``seconds`` and plays with what it finds, or guesses.

    Raises:
        SpecError: an attack that does not play this game.
    """
    name = table["name"]
    if name == "which-bin":
        return _WhichBin(arm)
    if name == "recovered-direction":
        return _Distinguisher(_keyless(table, arm))
    if name == "likelihood-ratio":
        return _Distinguisher(_informed(table, arm))
    made = arm.attack(table)
    if not isinstance(made, Attack):
        raise SpecError(f"attack={name}: scores no candidates; take e.g. likelihood-ratio")
    return _Distinguisher(made)


def _informed(table: Mapping[str, Any], arm: Arm) -> Attack:
    mixes = getattr(arm.mitigation, "mixes", None)
    mixed = mixes(arm.sigma) if mixes is not None else None
    if mixed is None:
        return arm.attack(table)
    (own, added), key = mixed, arm.held_key
    if added == 0:
        sigma, beta, gamma = own, key.beta, key.gamma
    else:
        sigma, beta, gamma = smoothed_pancake(added, sigma=own, beta=key.beta, gamma=key.gamma)
    widened = key.at(beta=beta, gamma=gamma, allow_small_gamma=True)
    return registry.load("attacks", "likelihood-ratio")(key=widened, sigma=sigma, **plugin_options(table))  # type: ignore[no-any-return]


def _keyless(table: Mapping[str, Any], arm: Arm) -> Attack | None:
    options = plugin_options(table)
    seconds = float(options.get("seconds", 10))
    d, scale = arm.host.dim, arm.mitigation.scale(arm.sigma)
    stream = arm.stream.child("keyless")
    noise = arm.mitigation.release(torch.zeros(_ROWS, d, dtype=torch.float64), arm.source, stream=stream)
    law = Claim.parse(f"gaussian:sigma={scale!r}")
    own = stream.child("search")
    test = registry.load("tests", "keyless-search")(
        law, own, beta=arm.held_key.beta, block=int(options.get("block", 40))
    )
    test.update(SampleBlock(0, noise.numpy(), claim=law, spread=own.numpy()))
    try:
        test.search(deadline=time.monotonic() + seconds)
        details = test.evidence(alpha=0.001).details
    finally:
        test.close()
    if "w" not in details:
        return None
    found: Attack = registry.create("attacks", Reference("recovered-direction", {"recovered": details, "sigma": scale}))
    return found
