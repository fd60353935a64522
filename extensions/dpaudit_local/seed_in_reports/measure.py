"""A measure of what a coin owner reads in a device's reports, and of the device's defence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from dpaudit import registry
from dpaudit.experiments.measure import Cell, Grid, Measure, Table
from dpaudit.randomness import KeyedStream
from dpaudit.types import PluginOrigin

if TYPE_CHECKING:
    from dpaudit.protocols import GameAttack

__all__ = ["MEASURE"]

_READER = "report-reader"


class Device(Table, frozen=True):
    """A local mechanism ``name``, ε of a report and of a second stage, and what carries a nonce."""

    epsilon: float | None = None
    second: float = 1.0
    nonce_bits: int = 128
    series: int = 1
    universe: int = 100


class CoinsGrid(Grid, frozen=True):
    """``coins`` of each ``device``: honest, those of the specimen, or these and the owner's."""

    device: Device
    coins: Literal["honest", "seeded", "seeded + second"]


def origins(cell: Cell) -> tuple[PluginOrigin, ...]:
    """The origins of the attack and of the mechanism."""
    name = cell.grid(CoinsGrid).device.name.partition(":")[0]
    return registry.plugin("attacks", _READER).origin, registry.plugin("local", name).origin


def measure(cell: Cell, arm: None) -> dict[str, Any]:
    """One game with ``trials`` people: see ``ReportReader.play``.

    Raises:
        UsageError: an option that makes no sense.
    """
    del arm
    grid = cell.grid(CoinsGrid)
    device = grid.device
    attack: GameAttack = registry.load("attacks", _READER)(
        mechanism=device.name,
        epsilon=device.epsilon,
        nonce_bits=device.nonce_bits,
        series=device.series,
        universe=device.universe,
        coins=grid.coins.partition(" ")[0],
        second_epsilon=device.second if grid.coins.endswith("second") else None,
    )
    stream = KeyedStream.from_seed(cell.settings["seed"]).child("cell", cell.id)
    outcome = dict(attack.play(cell.settings["trials"], stream=stream))
    return {**outcome, "series": device.series, "nonce_bits": device.nonce_bits}


def summary(rows: Sequence[Mapping[str, Any]]) -> str:
    """The least that is read with the key, and the most behind a second stage."""
    shares_read = []
    for coins, pick, phrase in (
        ("seeded", min, "with the key at least {:.1%} of devices are read"),
        ("seeded + second", max, "behind a second stage at most {:.1%}"),
    ):
        shares = [row["read"]["value"] for row in rows if row["coins"] == coins]
        shares_read += [phrase.format(pick(shares))] if shares else []
    return f"Exactly: {', '.join(shares_read)}." if shares_read else ""


MEASURE = Measure(run=measure, grid=CoinsGrid, needs_arm=False, summary=summary, origins=origins)
