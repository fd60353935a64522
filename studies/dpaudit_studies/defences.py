"""Mitigations against attackers: what each still reveals, what it costs and asks to be trusted.

Attackers of one arm see the same releases, each with all it could know of the mitigation.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import scipy
import torch

from dpaudit import registry
from dpaudit.accounting import smoothed_pancake
from dpaudit.codec import to_dict
from dpaudit.experiments.arm import Arm
from dpaudit.experiments.measure import Cell, Measure, plugin_options
from dpaudit.experiments.trials import Batch, interval, tensor_batches
from dpaudit.noise.key import PancakeKey
from dpaudit.noise.pancake import Pancake
from dpaudit.numeric.arrays import tensor
from dpaudit.protocols import Attack, MissingRecord, ProtocolMitigation
from dpaudit.stats import clopper_pearson, holm
from dpaudit_studies.keyless import recovered

__all__ = ["MEASURE", "best_bin", "best_of_two", "gather", "measure", "summary"]

_ROWS = 20_000


class Opponent(Protocol):
    """Guesses at releases; ``chance`` is the success of the best guess without any release."""

    chance: float
    extra: int
    """How many releases of the known query 0 it wants per call, besides those it guesses at."""

    def guesses(
        self, batch: Batch, release: torch.Tensor, known: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Truths, guesses, and the best attacker's success on honest noise; shape (rounds,) each.

        Rounds of the batch that do not suit it are left out.
        """


class _Distinguisher:
    """Names one of the two candidates by an attack's score; ties go to the first, as by a coin."""

    chance, extra = 0.5, 0

    def __init__(self, attack: Attack | None, *, sigma: float) -> None:
        """Guess with ``attack``; None always says the first. ``sigma`` is the plain Gaussian's."""
        self._attack, self._sigma = attack, sigma

    def guesses(
        self, batch: Batch, release: torch.Tensor, known: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        del known
        guess = torch.zeros_like(batch.truth)
        if self._attack is not None:
            guess = self._attack.score(release, batch.pairs).argmax(1)
        return batch.truth, guess, best_of_two(batch.pairs, sigma=self._sigma)


class _Nearest:
    """Scores by distance: the Gaussian likelihood, the best score where no key fits the noise."""

    def score(self, releases: torch.Tensor, candidates: torch.Tensor) -> torch.Tensor:
        """Minus the squared distances, shape (t, m)."""
        return -(releases.unsqueeze(1) - candidates).square().sum(-1)


class _Searcher:
    """Holds no key: in each call it searches what it knows for a direction, or else guesses."""

    chance, extra = 0.5, _ROWS

    def __init__(self, table: Mapping[str, Any], arm: Arm) -> None:
        self._options, self._arm = plugin_options(table), arm

    def guesses(
        self, batch: Batch, release: torch.Tensor, known: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        distinguisher = _Distinguisher(self._recovered_attack(known, batch), sigma=self._arm.sigma)
        return distinguisher.guesses(batch, release, known)

    def _recovered_attack(self, known: torch.Tensor, batch: Batch) -> Attack | None:
        scale = self._arm.mitigation.scale(self._arm.sigma)
        details = recovered(
            known.numpy(),
            sigma=scale,
            stream=batch.stream.child("search"),
            beta=self._arm.attacker_key.beta,
            block=int(self._options.get("block", 40)),
            seconds=float(self._options.get("seconds", 10)),
        )
        if "w" not in details:
            return None
        attack: Attack = registry.load("attacks", "recovered-direction")(
            recovered=details, sigma=scale
        )
        return attack


class _WhichBin:
    """Names the bin that lacks a record; it knows the counts, and every record is as likely."""

    extra = 0

    def __init__(self, arm: Arm) -> None:
        counts = tensor(arm.host.neighbours(1, stream=arm.stream.child("counts")))[0, 0]
        self.chance = float(counts.max() / counts.sum())
        self._honest, self._prior = best_bin(counts, sigma=arm.sigma), counts.log()
        key, self._sigma = _visible_pancake(arm)
        self._attack = None
        if key is not None:
            self._attack = registry.load("attacks", "which-bin")(key=key, sigma=self._sigma)

    def guesses(
        self, batch: Batch, release: torch.Tensor, known: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        del known
        lacking = batch.truth == 1
        pairs, base = batch.pairs[lacking], batch.pairs[0, 0]
        if self._attack is None:
            scores = (base - release[lacking]) / self._sigma**2
        else:
            scores = self._attack.score(release[lacking], MissingRecord(base))
        truth = (pairs[:, 0] - pairs[:, 1]).argmax(1)
        honest = torch.full(truth.shape, self._honest, dtype=torch.float64)
        return truth, (scores + self._prior).argmax(1), honest


def opponent(table: Mapping[str, Any], arm: Arm) -> Opponent:
    """The attacker that an ``[[attack]]`` table names, against ``arm``.

    Holders of the key know the mitigation by its method ``mixes(sigma)``, if it has one: the
    source's scale in a release, and that of independent noise added to it. ``seed-reader`` allows
    for the latter, and takes noise in which it finds no nonce for Gaussian. The pancake that
    ``likelihood-ratio`` and ``which-bin`` look for is the widened one; where the first number is 0,
    or the source is no pancake, no key fits the noise, and they take it for Gaussian. (None, as no
    method, says that the source's noise is there as it is.) ``recovered-direction`` holds no key:
    it searches 20,000 releases of a known query, made in the same call as those that it is asked
    about, for ``seconds`` per call, and uses what it finds, or guesses; it knows β, and tries
    γ = 2√d only.

    Raises:
        SpecError: an attack that does not play this game.
    """
    name = table["name"]
    if name == "which-bin":
        return _WhichBin(arm)
    if name == "recovered-direction":
        return _Searcher(table, arm)
    return _Distinguisher(_attack(table, arm), sigma=arm.sigma)


def _attack(table: Mapping[str, Any], arm: Arm) -> Attack:
    name = table["name"]
    if name == "likelihood-ratio":
        key, sigma = _visible_pancake(arm)
        if key is None:
            return _Nearest()
        informed: Attack = registry.load("attacks", name)(
            key=key, sigma=sigma, **plugin_options(table)
        )
        return informed
    own, _ = arm.mixed()
    if name == "nearest-peak" and own > 0:
        spaced: Attack = registry.load("attacks", name)(
            key=arm.attacker_key, sigma=own, **plugin_options(table)
        )
        return spaced
    return arm.scorer(table)


def _visible_pancake(arm: Arm) -> tuple[PancakeKey | None, float]:
    """The key and scale of the pancake that releases show, its peaks widened.

    Without a key: Gaussian noise.
    """
    own, added = arm.mixed()
    if own == 0 or not isinstance(arm.source, Pancake):
        return None, arm.mitigation.scale(arm.sigma)
    key = arm.attacker_key
    if added == 0:
        return key, own
    sigma, beta, gamma = smoothed_pancake(added, sigma=own, beta=key.beta, gamma=key.gamma)
    return key.at(beta=beta, gamma=gamma, allow_small_gamma=True), sigma


_BINS = 1 << 12
_STEP = 1 / 64


def best_of_two(pairs: torch.Tensor, *, sigma: float) -> torch.Tensor:
    """Φ(|q − q′|/2σ) per row of ``pairs`` (n, 2, d), shape (n,).

    No rule tells equally likely q, q′ apart more often.
    """
    apart = torch.linalg.vector_norm(pairs[:, 0] - pairs[:, 1], dim=1)
    won: torch.Tensor = torch.special.ndtr(apart / (2 * sigma))
    return won


def best_bin(counts: torch.Tensor, *, sigma: float) -> float:
    """How often the best rule names the bin of ``counts`` (d,) that lacks one record.

    The record is drawn uniformly, the noise is N(0, σ²I). The rule takes the largest a_j + x_j,
    a_j = σ·ln(share of bin j), x_j = −(release − count)_j/σ, which is N(0, 1), or N(1/σ, 1) for the
    bin in question; an integral over that sum, by the trapezium rule.
    """
    share = counts[counts > 0].double().numpy()
    share = share / share.sum()
    a = sigma * np.log(share)
    t = np.arange(a.max() - 9, a.max() + 10 + 1 / sigma, _STEP)
    below = np.zeros_like(t)
    for at in range(0, len(a), _BINS):
        below += scipy.special.log_ndtr(t - a[at : at + _BINS, None]).sum(0)
    total = 0.0
    for at in range(0, len(a), _BINS):
        away = t - a[at : at + _BINS, None]
        log_density = -((away - 1 / sigma) ** 2) / 2 + below - scipy.special.log_ndtr(away)
        total += float(share[at : at + _BINS] @ np.exp(log_density).sum(1))
    return total * _STEP / float(np.sqrt(2 * np.pi))


LEVEL = 0.05
MANY = (100, 1000)


def measure(cell: Cell, arm: Arm) -> dict[str, Any]:
    """All attackers of one host, source and mitigation, with one key per arm (``keys`` is unused).

    ``error`` is the mean L2 norm of what was added over σ√d, σ the scale that the plain Gaussian
    mechanism needs for the spec's ε. ``seconds`` and ``wire`` (bytes) are for one release: of a
    protocol's rehearsal where there is one, else of the rows that were released. ``epsilon_holder``
    is what the mitigation proves, not what the attackers showed; ``epsilon_100`` and
    ``epsilon_1000`` are the same for so many releases of one key, where it says so
    (``epsilon_after``).

    Of each attack: ``success`` with its own 95 % interval; ``chance``, the best guess without a
    release; ``honest``, what the best attacker wins against that plain Gaussian mechanism at the
    very pairs of these rounds, which is above ``chance``, since ε is not 0; and ``p``, the
    probability of as many successes for someone who wins ``honest`` of the time (binomial; for
    unequal rounds it errs towards no finding, Hoeffding 1956). Where all rows of a call share a
    rotation, all this is given that rotation.
    """
    trials, settings = cell.settings["trials"], cell.settings
    players = {table["label"]: opponent(table, arm) for table in settings["attacks"]}
    scores = {label: _Score() for label in players}
    known_rows = max(player.extra for player in players.values())
    error = seconds = 0.0
    released = 0
    for batch in tensor_batches(arm, trials=trials):
        began = time.perf_counter()
        known, release = _release(batch, known_rows)
        seconds += time.perf_counter() - began
        released += len(known) + len(release)
        error += float(torch.linalg.vector_norm(release - batch.query, dim=1).sum())
        for label, player in players.items():
            truth, guess, honest = player.guesses(batch, release, known[: player.extra])
            scores[label].add(truth == guess, honest)
    outcome: dict[str, Any] = {
        "host": settings["host"].get("label", settings["host"]["name"]),
        "error": error / trials / (arm.sigma * math.sqrt(arm.host.dim)),
        "epsilon_holder": arm.mitigation.epsilon(arm.source, settings["delta"], host=arm.host),
        "seconds": seconds / released,
        "wire": 0,
        **_after(arm, settings["delta"]),
        "trusts": arm.mitigation.trusts,
        "attacks": [
            {"attack": label, "chance": player.chance, **scores[label].outcome}
            for label, player in players.items()
        ],
    }
    if isinstance(arm.mitigation, ProtocolMitigation):
        stream = arm.stream.child("rehearsal")
        query = arm.host.neighbours(1, stream=stream.child("query"))[:, 0]
        rehearsal = arm.mitigation.rehearse(query, arm.source, stream=stream)
        outcome |= {
            "seconds": rehearsal.seconds["total"],
            "wire": rehearsal.wire,
            "parties": to_dict(rehearsal.seconds),
        }
    return outcome


def _after(arm: Arm, delta: float) -> dict[str, Any]:
    after = getattr(arm.mitigation, "epsilon_after", None)
    return {
        f"epsilon_{n}": after and after(arm.source, delta, host=arm.host, releases=n) for n in MANY
    }


@dataclass
class _Score:
    """Rounds won so far, and what the best attacker wins of them against honest noise."""

    right: int = 0
    rounds: int = 0
    honest: float = 0.0

    def add(self, right: torch.Tensor, honest: torch.Tensor) -> None:
        """One value per round each."""
        self.right += int(right.sum())
        self.rounds += len(right)
        self.honest += float(honest.sum())

    @property
    def outcome(self) -> dict[str, Any]:
        honest = self.honest / self.rounds
        return {
            "success": interval(self.right, self.rounds),
            "rounds": self.rounds,
            "honest": honest,
            "p": float(scipy.stats.binom.sf(self.right - 1, self.rounds, honest)),
        }


def _release(batch: Batch, known: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Releases of ``known`` zeros, and of the batch's queries, in one call."""
    if not known:
        return batch.query[:0], batch.release()
    zeros = torch.zeros(known, batch.query.shape[1], dtype=batch.query.dtype)
    query = torch.cat([zeros, batch.query])
    values = batch.arm.mitigation.release(
        query, batch.arm.source, stream=batch.stream.child("release")
    )
    return values[:known], values[known:]


def gather(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """One row per attack, trust on an arm's first alone, ``strongest`` on its strongest attack's.

    ``beats_honest``: more successes than honest noise allows. Over the whole table, the chance that
    there is any such row without cause is at most 5 % (Holm). ``strongest`` is the largest
    advantage (success − honest)/(1 − honest) of an arm's attacks; its interval, for the best
    attack's true advantage, is joint over them (95 %, Bonferroni).
    """
    joined = []
    for row in rows:
        shared = {k: v for k, v in row.items() if k != "attacks"}
        strongest = max(
            row["attacks"], key=lambda attack: _advantage(attack["success"]["value"], attack)
        )
        for number, attack in enumerate(row["attacks"]):
            mine = _strongest(row["attacks"]) if attack is strongest else None
            shared["trusts"] = row["trusts"] if number == 0 else "″"
            joined.append({**shared, **attack, "strongest": mine})
    adjusted = holm([row["p"] for row in joined])
    return [{**row, "beats_honest": p <= LEVEL} for row, p in zip(joined, adjusted, strict=True)]


def _advantage(success: float, attack: Mapping[str, Any]) -> float:
    """The share lost of rounds that honest noise would have saved; negative for worse attacks."""
    return float((success - attack["honest"]) / (1 - attack["honest"]))


def _strongest(attacks: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    share = 1 - LEVEL / len(attacks)
    advantages = []
    for attack in attacks:
        success, n = attack["success"]["value"], attack["rounds"]
        bounds = clopper_pearson(round(success * n), n, confidence=share)
        advantages.append([_advantage(at, attack) for at in (success, bounds.low, bounds.high)])
    value, low, high = (max(column) for column in zip(*advantages, strict=True))
    return {"value": value, "low": low, "high": high}


def summary(rows: Sequence[Mapping[str, Any]]) -> str:
    """Which noise some attack still reads through which mitigation, jointly over the table."""
    read: dict[str, list[str]] = {}
    for row in rows:
        noises = read.setdefault(row["mitigation"], [])
        if row["beats_honest"] and row["source"] not in noises:
            noises.append(row["source"])
    lost = "; ".join(f"{name} ({', '.join(noises)})" for name, noises in read.items() if noises)
    unread = "; ".join(name for name, noises in read.items() if not noises)
    rounds = max(row["rounds"] for row in rows)
    needed = float(scipy.stats.binom.isf(LEVEL / len(rows), rounds, 0.5)) + 1
    return (
        f"More is read than from honest Gaussian noise (jointly over {len(rows)} rows, at 5 %) "
        f"behind: {lost or 'nothing'}. By no attack here behind: {unread or 'none'}. An attack "
        f"on two candidates has to win {100 * needed / rounds:.0f} % of {rounds:,} rounds to be "
        "sure to count, so this is no proof: ε is."
    )


MEASURE = Measure(run=measure, attacks_together=True, gather=gather, summary=summary)
