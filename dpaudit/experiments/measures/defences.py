"""Mitigations against attackers: what each still reads, and what each mitigation costs and asks to be trusted."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from dpaudit.experiments.arm import Arm
from dpaudit.experiments.measures.opponents import opponent
from dpaudit.experiments.measures.trials import batches, interval
from dpaudit.experiments.spec import Cell
from dpaudit.interfaces import ProtocolMitigation
from dpaudit.types import to_dict

__all__ = ["gather", "measure", "summary"]


def measure(cell: Cell, arm: Arm) -> dict[str, Any]:
    """All attackers of one host, source and mitigation; ``keys`` of the spec is not used: one key an arm.

    ``error`` is the mean L2 norm of what was added over σ√d, σ the scale that the plain Gaussian mechanism needs for the
    spec's ε. ``seconds`` and ``wire`` (bytes) are for one release: of a protocol's rehearsal where there is one, else of
    the rows that the attackers saw. ``epsilon_holder`` is what the mitigation proves, not what the attackers showed.
    """
    trials, settings = cell.settings["trials"], cell.settings
    opponents = [(table["label"], opponent(table, arm)) for table in settings["attacks"]]
    right, rounds = dict.fromkeys(dict(opponents), 0), dict.fromkeys(dict(opponents), 0)
    error = seconds = 0.0
    for batch in batches(arm, trials=trials):
        began = time.perf_counter()
        release = batch.release()
        seconds += time.perf_counter() - began
        error += float(torch.linalg.vector_norm(release - batch.query, dim=1).sum())
        for label, player in opponents:
            truth, guess = player.guesses(batch, release)
            right[label] += int((truth == guess).sum())
            rounds[label] += len(truth)
    outcome: dict[str, Any] = {
        "host": settings["host"].get("label", settings["host"]["name"]),
        "error": error / trials / (arm.sigma * math.sqrt(arm.host.dim)),
        "epsilon_holder": arm.mitigation.epsilon(arm.source, settings["delta"], host=arm.host),
        "seconds": seconds / trials,
        "wire": 0,
        "trusts": arm.mitigation.trusts,
        "attacks": [
            {"attack": label, "success": interval(right[label], rounds[label]), "chance": player.chance}
            for label, player in opponents
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


def gather(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """One row an attack. An arm's first alone says who is trusted; its strongest attack's has ``strongest``, its success."""
    found = []
    for row in rows:
        shared = {k: v for k, v in row.items() if k != "attacks"}
        strongest = max(row["attacks"], key=_excess)
        for number, attack in enumerate(row["attacks"]):
            mine = attack["success"] if attack is strongest else None
            shared["trusts"] = row["trusts"] if number == 0 else "″"
            found.append(
                {**shared, **attack, "beats_chance": attack["success"]["low"] > attack["chance"], "strongest": mine}
            )
    return found


def _excess(attack: Mapping[str, Any]) -> float:
    """How far above chance, of what there is above chance."""
    return float((attack["success"]["value"] - attack["chance"]) / (1 - attack["chance"]))


def summary(rows: Sequence[Mapping[str, Any]]) -> str:
    """Which mitigations some attacker still beats (its 95 % interval above chance), by which attack."""
    beaten: dict[str, set[str]] = {}
    for row in rows:
        beaten.setdefault(f"{row['source']} + {row['mitigation']}", set())
        if row["beats_chance"]:
            beaten[f"{row['source']} + {row['mitigation']}"].add(row["attack"])
    lost = "; ".join(f"{arm} to {', '.join(sorted(by))}" for arm, by in beaten.items() if by)
    held = ", ".join(arm for arm, by in beaten.items() if not by)
    return f"Intervals above chance: {lost or 'none'}. At chance against every attack: {held or 'none'}."
