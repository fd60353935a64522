"""The pool inference game: how often an adversary infers people's preference from submissions."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dpaudit import registry
from dpaudit.experiments.grid import Grid, read_grid
from dpaudit.experiments.measure import Measure
from dpaudit.randomness import KeyedStream
from dpaudit.types import PluginOrigin, Reference

if TYPE_CHECKING:
    from dpaudit.experiments.cell import Cell
    from dpaudit.protocols import GameAttack

__all__ = [
    "ATTACK",
    "MEASURE",
    "PoolGrid",
    "attack_of",
    "gather",
    "measure",
    "origins",
    "outcome_row",
    "setting_of",
    "summary",
]

ATTACK = "pool-inference"


class PoolGrid(Grid, frozen=True, forbid_unknown_fields=False):
    """``setting`` and what the attack takes; other axes are options of the attack or setting."""

    setting: str
    epsilon: float | None = None
    adversaries: tuple[str, ...] = ()
    observations: tuple[int, ...] = ()
    submissions: str | dict[str, str | int | float | bool] | None = None


def attack_of(grid: Mapping[str, Any]) -> GameAttack:
    """The attack of a ``[grid]``: the plug-in's own options; the rest are its ``setting``'s.

    Raises:
        SpecError: no setting, or observations that are no numbers.
        UsageError: an option that neither takes.
    """
    read_grid(grid, PoolGrid)
    factory = registry.load("attacks", ATTACK)
    taken = inspect.signature(factory).parameters
    options = {name: value for name, value in grid.items() if name in taken and name != "setting"}
    if "submissions" in options:
        options["submissions"] = str(_policy(options["submissions"]))
    given = Reference.parse(grid["setting"])
    own = {name: value for name, value in grid.items() if name not in taken}
    setting = str(Reference(given.name, {**given.options, **own}))
    made: GameAttack = factory(setting=setting, **options)
    return made


def setting_of(grid: Mapping[str, Any]) -> Any:
    """The attack's ``pool_inference.pools.Setting`` alone, for measures without an attack.

    Raises:
        SpecError: no setting.
        UsageError: an option that it does not take.
    """
    return attack_of(grid).people  # type: ignore[attr-defined]


def origins(cell: Cell) -> tuple[PluginOrigin, ...]:
    """Where the attack came from, and the submission policy where one is named."""
    policy = cell.settings["grid"].get("submissions")
    named = () if policy is None else (registry.plugin("submissions", _policy(policy).name).origin,)
    return (registry.plugin("attacks", ATTACK).origin, *named)


def _policy(value: Any) -> Reference:
    """A submission policy: a table, or a name with its options."""
    if isinstance(value, Mapping):
        return Reference(
            value["name"], {k: v for k, v in value.items() if k not in ("name", "label")}
        )
    return Reference.parse(value)


def measure(cell: Cell, arm: None) -> dict[str, Any]:
    """One game with ``trials`` users: what each adversary makes of their first n submissions.

    ``[grid]`` has ``setting`` with its options as further keys (``size``, ``zipf``, ``universe``),
    and the attack's own: ``mechanism``, ``epsilon``, and ``adversaries`` and ``observations``, of
    which one game has all.

    Raises:
        SpecError: no setting, or observations that are no numbers.
        UsageError: an option that is not known, or a setting that makes no sense.
    """
    del arm
    grid = cell.settings["grid"]
    stream = KeyedStream.from_seed(cell.settings["seed"]).child("cell", cell.id)
    return {"outcomes": attack_of(grid).play(cell.settings["trials"], stream=stream)}


def gather(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """A row for each adversary and number of observations."""
    return [
        outcome_row(row, adversary, n, outcome)
        for row in rows
        for adversary, found in row["outcomes"].items()
        for n, outcome in found.items()
    ]


def outcome_row(
    row: Mapping[str, Any], adversary: str, n: str | int, outcome: Mapping[str, Any]
) -> dict[str, Any]:
    """The flat row of one adversary's outcome (``pool_inference.metrics``) in a cell's ``row``."""
    setting = Reference.parse(row["setting"])
    kept = {
        name: value
        for name, value in row.items()
        if name not in ("setting", "outcomes", "adversaries", "observations")
    }
    return {
        "setting": setting.name,
        **setting.options,
        **kept,
        "adversary": adversary,
        "n": int(n),
        **{name: value for name, value in outcome.items() if name != "calibration"},
        "calibration": [
            [b["confidence"], {"value": b["success"], "low": b["low"], "high": b["high"]}]
            for b in outcome["calibration"]
        ],
    }


def summary(rows: Sequence[Mapping[str, Any]]) -> str:
    """The range of AUC-PN for each adversary, from the fewest to the most observations."""
    parts = []
    for adversary in dict.fromkeys(row["adversary"] for row in rows):
        own = [row for row in rows if row["adversary"] == adversary]
        few, many = min(r["n"] for r in own), max(r["n"] for r in own)
        ends = [[r["auc_pn"]["value"] for r in own if r["n"] == n] for n in (few, many)]
        said = " to ".join(
            f"{max(end):.2f}" if len(end) == 1 else f"{min(end):.2f} … {max(end):.2f}"
            for end in ends
        )
        parts.append(
            f"{adversary} {said}" if few < many else f"{adversary} {said.partition(' to ')[0]}"
        )
    few, many = min(r["n"] for r in rows), max(r["n"] for r in rows)
    over = f"{few} to {many} observations" if few < many else f"{many} observations"
    return (
        f"AUC-PN (1: always right; the guess: one in the number of pools) over {over}: "
        f"{'; '.join(parts)}."
    )


MEASURE = Measure(
    run=measure, grid=PoolGrid, needs_arm=False, gather=gather, summary=summary, origins=origins
)
