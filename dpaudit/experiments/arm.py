"""One arm made real: from a cell's settings to a host, a key, a source, a mitigation and an attack."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dpaudit import registry
from dpaudit.accounting import gaussian_sigma, gaussian_sigma_paper
from dpaudit.interfaces import Attack, Host, Mitigation, NoiseSource
from dpaudit.noise.key import PancakeKey
from dpaudit.randomness import KeyedStream
from dpaudit.types import PluginOrigin, Reference

__all__ = ["Arm", "build_arm"]


@dataclass(frozen=True)
class Arm:
    """What a cell works with; ``origins`` says where each plug-in came from."""

    host: Host
    key: PancakeKey | None
    sigma: float
    source: NoiseSource
    mitigation: Mitigation
    stream: KeyedStream
    origins: tuple[PluginOrigin, ...]

    @property
    def claim(self) -> str:
        """What a release of this arm honestly claims to add."""
        name = Reference.parse(self.source.claim).name
        return f"{name}:sigma={self.mitigation.scale(self.sigma)!r}"

    def attack(self, table: Mapping[str, Any]) -> Attack:
        """The attack of a cell, with the key and σ if it takes them."""
        made: Attack = self._create("attacks", table)
        return made

    def _create(self, kind: str, table: Mapping[str, Any]) -> Any:
        return _create(kind, table, sigma=self.sigma, key=self.key, dim=self.host.dim)


def _create(kind: str, table: Mapping[str, Any], **known: Any) -> Any:
    """A plug-in from its table; what the experiment knows (σ, the key, d) goes to those that take it."""
    options = {k: v for k, v in table.items() if k not in ("name", "label")}
    takes = inspect.signature(registry.load(kind, table["name"])).parameters
    offered = {k: v for k, v in known.items() if k in takes and k not in options and v is not None}
    return registry.create(kind, Reference(table["name"], {**offered, **options}))


def build_arm(settings: Mapping[str, Any], *, cell: str) -> Arm:
    """Make everything a cell needs. The key depends on the seed and the [key] table only, so all arms share it."""
    root = KeyedStream.from_seed(settings["seed"])
    host: Host = registry.create("hosts", _reference(settings["host"]))
    calibrate = gaussian_sigma_paper if settings["calibration"] == "paper" else gaussian_sigma
    sigma = calibrate(settings["epsilon"], settings["delta"], sensitivity=host.sensitivity)
    key = None
    if settings["key"]:
        key = PancakeKey.new(dim=host.dim, secret=root.child("attacker's key").bytes(32), **settings["key"])
    known = {"sigma": sigma, "key": key, "dim": host.dim}
    return Arm(
        host=host,
        key=key,
        sigma=sigma,
        source=_create("sources", settings["source"], **known),
        mitigation=_create("mitigations", settings["mitigation"], **known),
        stream=root.child("cell", cell),
        origins=tuple(
            registry.plugin(kind, settings[kind.removesuffix("s")]["name"]).origin
            for kind in ("hosts", "sources", "mitigations", "attacks")
            if kind.removesuffix("s") in settings
        ),
    )


def _reference(table: Mapping[str, Any]) -> Reference:
    return Reference(table["name"], {k: v for k, v in table.items() if k != "name"})
