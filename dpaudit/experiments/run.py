"""Running an experiment: cell by cell, each result on disk before the next begins."""

from __future__ import annotations

import dataclasses
import math
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch

from dpaudit.audit import audit_sampler
from dpaudit.experiments.arm import Arm, build_arm
from dpaudit.experiments.spec import Cell, Spec
from dpaudit.experiments.store import Store
from dpaudit.provenance import collect
from dpaudit.stats import clopper_pearson, epsilon_lower_bound
from dpaudit.types import AttackResult, CellResult, Reference, to_dict

__all__ = ["run_cell", "run_experiment"]

_BATCH_BYTES = 64 << 20
OnCell = Callable[[Cell], None]


def run_experiment(
    spec: Spec,
    *,
    out: Path,
    resume: bool = False,
    on_start: OnCell | None = None,
    on_done: OnCell | None = None,
) -> Path:
    """Run every cell of ``spec`` that ``out`` does not hold yet; return ``out``.

    Formal guarantee: a cell's numbers depend on the spec's seed and the cell's settings only, so a run that was killed
    and resumed gives the same results as one that was not (times apart).

    Raises:
        StoreError: ``out`` holds another run, or this one and ``resume`` is False.
    """
    described = to_dict(dataclasses.asdict(spec))
    open_store = Store.resume if resume else Store.create
    with open_store(out, spec=described) as store:
        done = store.finished()
        for position, cell in enumerate(spec.cells()):
            if cell.id not in done:
                if on_start is not None:
                    on_start(cell)
                store.add(run_cell(cell), position=position)
            if on_done is not None:
                on_done(cell)
    return out


def run_cell(cell: Cell) -> CellResult:
    """Run one cell and return its result, without storing it."""
    began = time.monotonic()
    arm = build_arm(cell.settings, cell=cell.id)
    outcome = _attack(cell, arm) if cell.kind == "attack" else _audit(cell, arm)
    settings = cell.settings
    bounds = arm.mitigation.epsilon(arm.source, settings["delta"], host=arm.host)
    outcome["sigma"] = arm.sigma
    outcome["epsilon_key_holder"] = to_dict(bounds)
    if arm.key is not None:
        outcome["key"] = {"beta": arm.key.beta, "gamma": arm.key.gamma, "fingerprint": arm.key.fingerprint}
    return CellResult(
        cell=cell.id,
        kind=cell.kind,
        settings=to_dict(settings),
        outcome=outcome,
        seconds=time.monotonic() - began,
        provenance=to_dict(collect(seed=settings["seed"], plugins=arm.origins)),
    )


def _attack(cell: Cell, arm: Arm) -> dict[str, Any]:
    """Guess which of two neighbouring databases was released, ``trials`` times."""
    attack = arm.attack(cell.settings["attack"])
    trials, d = cell.settings["trials"], arm.host.dim
    batch = max(1, min(trials, _BATCH_BYTES // (16 * d)))
    counts = [[0, 0], [0, 0]]  # [truth][guess]
    error = 0.0
    details: Mapping[str, Any] = {}
    for start in range(0, trials, batch):
        n = min(batch, trials - start)
        stream = arm.stream.child("batch", start)
        pairs = arm.host.neighbours(n, stream=stream.child("pairs"))
        truth = torch.from_numpy(stream.child("coins").numpy().integers(0, 2, n))
        query = pairs[torch.arange(n), truth]
        release = arm.mitigation.release(query, arm.source, stream=stream.child("release"))
        guess = attack.score(release, pairs).argmax(1)
        for b in (0, 1):
            for g in (0, 1):
                counts[b][g] += int(((truth == b) & (guess == g)).sum())
        error += float(torch.linalg.vector_norm(release - query, dim=1).sum())
        if start == 0:
            details = attack.evidence(release, pairs, truth)
    successes = counts[0][0] + counts[1][1]
    return dict(
        to_dict(
            AttackResult(
                attack=cell.settings["attack"]["label"],
                trials=trials,
                successes=successes,
                success=successes / trials,
                interval=clopper_pearson(successes, trials),
                chance=0.5,
                epsilon_lower_bound=_epsilon(counts, cell.settings["delta"]),
                l2_error=error / trials,
                l2_expected=arm.mitigation.scale(arm.sigma) * math.sqrt(d),
                details=details,
            )
        )
    )


def _epsilon(counts: list[list[int]], delta: float) -> float:
    """Empirical lower bound at 95 % from the event that the attack says "the neighbour"."""
    if not (sum(counts[0]) and sum(counts[1])):
        return 0.0
    return epsilon_lower_bound(counts[1][1], sum(counts[1]), counts[0][1], sum(counts[0]), delta=delta)


def _audit(cell: Cell, arm: Arm) -> dict[str, Any]:
    """The arm's noise as a closed sampler in a process of its own: the audit gets a name and a claim, never a key."""
    with tempfile.TemporaryDirectory(prefix="dpaudit-") as folder:
        options = {k: v for k, v in cell.settings["source"].items() if k not in ("name", "label")}
        options["sigma"] = repr(arm.sigma)
        if arm.key is not None and hasattr(arm.source, "key"):
            path = Path(folder) / "key.json"
            arm.key.save(path)
            options["key"] = str(path)
        mitigation = cell.settings["mitigation"]
        through = {k: v for k, v in mitigation.items() if k not in ("name", "label")}
        if hasattr(arm.mitigation, "tau"):
            through = {"tau": repr(arm.mitigation.tau)}
        result = audit_sampler(
            str(Reference(cell.settings["source"]["name"], options)),
            claim=arm.claim,
            dim=arm.host.dim,
            seed=f"{cell.settings['seed']}/{cell.id}",
            mitigation=None if mitigation["name"] == "none" else str(Reference(mitigation["name"], through)),
            **cell.settings["audit"],
        )
    return dict(to_dict(dataclasses.replace(result, sampler=cell.label)))
