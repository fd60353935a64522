"""Measures of an arm: how often an attack is right, and the battery's verdict."""

from __future__ import annotations

import dataclasses
import math
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from dpaudit import registry
from dpaudit.audit import audit_sampler
from dpaudit.audit.result import AuditResult
from dpaudit.codec import to_dict
from dpaudit.experiments.arm import Arm
from dpaudit.experiments.measure import Cell, Measure, plugin_options
from dpaudit.experiments.results import AttackResult
from dpaudit.experiments.trials import batches
from dpaudit.noise.key import PancakeKey
from dpaudit.noise.seed_in_noise.key import SeedKey
from dpaudit.numeric.arrays import to_numpy
from dpaudit.stats import clopper_pearson, epsilon_lower_bound
from dpaudit.types import Reference

__all__ = ["ATTACK", "AUDIT", "attack", "audit", "audit_behind"]


def attack(cell: Cell, arm: Arm) -> dict[str, Any]:
    """An :class:`~dpaudit.experiments.results.AttackResult`, JSON-ready."""
    trials, d = cell.settings["trials"], arm.host.dim
    counts = np.zeros((2, 2), np.int64)  # [truth, guess]
    error = 0.0
    details: Mapping[str, Any] = {}
    for batch in batches(arm, trials=trials, keys=cell.settings["keys"]):
        attacker = batch.arm.scorer(cell.settings["attack"])
        release = batch.release()
        guess = to_numpy(attacker.score(release, batch.pairs)).argmax(1)
        counts += np.bincount(2 * to_numpy(batch.truth) + guess, minlength=4).reshape(2, 2)
        error += float(np.linalg.norm(to_numpy(release - batch.query), axis=1).sum())
        if batch.first and hasattr(attacker, "evidence"):
            details = attacker.evidence(release, batch.pairs, batch.truth)
    successes = int(counts.trace())
    outcome: dict[str, Any] = to_dict(
        AttackResult(
            attack=cell.settings["attack"]["label"],
            trials=trials,
            successes=successes,
            success=successes / trials,
            interval=clopper_pearson(successes, trials),
            chance=0.5,
            epsilon_lower_bound=_epsilon(counts.tolist(), cell.settings["delta"]),
            l2_error=error / trials,
            l2_expected=arm.mitigation.scale(arm.sigma) * math.sqrt(d),
            details=details,
        )
    )
    if arm.keyless(cell.settings["attack"]):
        outcome["keyless"] = True
    return outcome


def _epsilon(counts: list[list[int]], delta: float) -> float:
    """Empirical lower bound at 95 % from the event that the attack chooses the neighbour."""
    if not (sum(counts[0]) and sum(counts[1])):
        return 0.0
    return epsilon_lower_bound(
        counts[1][1], sum(counts[1]), counts[0][1], sum(counts[0]), delta=delta
    )


def audit(cell: Cell, arm: Arm) -> dict[str, Any]:
    """An :class:`~dpaudit.audit.result.AuditResult`, JSON-ready.

    The noise becomes a closed sampler in a process of its own: the audit gets a name and a claim,
    never a key.
    """
    key = arm.key if hasattr(arm.source, "key") else None
    source, mitigation = (
        Reference(table["name"], plugin_options(table))
        for table in (cell.settings["source"], cell.settings["mitigation"])
    )
    result = audit_behind(
        source,
        mitigation,
        key=key,
        sigma=arm.sigma,
        claim=arm.claim,
        dim=arm.host.dim,
        seed=f"{cell.settings['seed']}/{cell.id}",
        **cell.settings["audit"],
    )
    return dict(to_dict(dataclasses.replace(result, sampler=cell.label)))


def audit_behind(
    source: Reference,
    mitigation: Reference,
    *,
    key: PancakeKey | SeedKey | None,
    sigma: float,
    claim: str,
    dim: int,
    seed: str,
    **options: Any,
) -> AuditResult:
    """The black-box battery on ``source`` at ``sigma`` behind ``mitigation`` as a closed sampler.

    It runs in a process of its own, which reads the source's ``key``, if it has one, from a file
    that is gone afterwards. ``options`` are those of :func:`~dpaudit.audit.audit_sampler`.
    """
    with tempfile.TemporaryDirectory(prefix="dpaudit-") as folder:
        own = {**source.options, "sigma": repr(sigma)}
        if key is not None:
            path = Path(folder) / "key.json"
            key.save(path)
            own["key"] = str(path)
        through = registry.with_known_options("mitigations", mitigation, dim=dim)
        return audit_sampler(
            str(Reference(source.name, own)),
            claim=claim,
            dim=dim,
            seed=seed,
            mitigation=None if mitigation.name == "none" else str(through),
            **options,
        )


ATTACK = Measure(run=attack)
AUDIT = Measure(run=audit)
