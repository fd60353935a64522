"""Mitigations against attackers: what each still reveals, what it costs and asks to be trusted."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import scipy
import torch

from dpaudit.codec import to_dict
from dpaudit.experiments.arm import Arm
from dpaudit.experiments.cell import Cell
from dpaudit.experiments.measure import Measure
from dpaudit.experiments.trials import Batch, interval, tensor_batches
from dpaudit.protocols import ProtocolMitigation
from dpaudit.stats import clopper_pearson, holm
from dpaudit_studies.opponents import opponent

__all__ = ["MEASURE", "gather", "measure", "summary"]

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
    wanted = max(player.known for player in players.values())
    error = seconds = 0.0
    released = 0
    for batch in tensor_batches(arm, trials=trials):
        began = time.perf_counter()
        known, release = _released(batch, wanted)
        seconds += time.perf_counter() - began
        released += len(known) + len(release)
        error += float(torch.linalg.vector_norm(release - batch.query, dim=1).sum())
        for label, player in players.items():
            truth, guess, honest = player.guesses(batch, release, known[: player.known])
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


def _released(batch: Batch, known: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Releases of ``known`` zeros, and of the batch's queries, in one call."""
    if not known:
        return batch.query[:0], batch.release()
    query = torch.cat(
        [torch.zeros(known, batch.query.shape[1], dtype=batch.query.dtype), batch.query]
    )
    made = batch.arm.mitigation.release(
        query, batch.arm.source, stream=batch.stream.child("release")
    )
    return made[:known], made[known:]


def gather(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """One row per attack, trust on an arm's first alone, ``strongest`` on its strongest attack's.

    ``beats_honest``: more successes than honest noise allows. Over the whole table, the chance that
    there is any such row without cause is at most 5 % (Holm). ``strongest`` is the largest
    advantage (success − honest)/(1 − honest) of an arm's attacks; its interval, for the best
    attack's true advantage, is joint over them (95 %, Bonferroni).
    """
    found = []
    for row in rows:
        shared = {k: v for k, v in row.items() if k != "attacks"}
        strongest = max(
            row["attacks"], key=lambda attack: _advantage(attack["success"]["value"], attack)
        )
        for number, attack in enumerate(row["attacks"]):
            mine = _strongest(row["attacks"]) if attack is strongest else None
            shared["trusts"] = row["trusts"] if number == 0 else "″"
            found.append({**shared, **attack, "strongest": mine})
    adjusted = holm([row["p"] for row in found])
    return [{**row, "beats_honest": p <= LEVEL} for row, p in zip(found, adjusted, strict=True)]


def _advantage(success: float, attack: Mapping[str, Any]) -> float:
    """The share lost of rounds that honest noise would have saved; negative for worse attacks."""
    return float((success - attack["honest"]) / (1 - attack["honest"]))


def _strongest(attacks: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    share = 1 - LEVEL / len(attacks)
    found = []
    for attack in attacks:
        success, n = attack["success"]["value"], attack["rounds"]
        bounds = clopper_pearson(round(success * n), n, confidence=share)
        found.append([_advantage(at, attack) for at in (success, bounds.low, bounds.high)])
    value, low, high = (max(column) for column in zip(*found, strict=True))
    return {"value": value, "low": low, "high": high}


def summary(rows: Sequence[Mapping[str, Any]]) -> str:
    """Which noise some attack still reads through which mitigation, jointly over the table."""
    read: dict[str, list[str]] = {}
    for row in rows:
        noises = read.setdefault(row["mitigation"], [])
        if row["beats_honest"] and row["source"] not in noises:
            noises.append(row["source"])
    lost = "; ".join(
        f"{mitigation} ({', '.join(noises)})" for mitigation, noises in read.items() if noises
    )
    held = "; ".join(mitigation for mitigation, noises in read.items() if not noises)
    rounds = max(row["rounds"] for row in rows)
    seen = float(scipy.stats.binom.isf(LEVEL / len(rows), rounds, 0.5)) + 1
    return (
        f"More is read than from honest Gaussian noise (jointly over {len(rows)} rows, at 5 %) "
        f"behind: {lost or 'nothing'}. By no attack here behind: {held or 'none'}. An attack on "
        f"two candidates has to win {100 * seen / rounds:.0f} % of {rounds:,} rounds to be sure to "
        "count, so this is no proof: ε is."
    )


MEASURE = Measure(run=measure, attacks_together=True, gather=gather, summary=summary)
