"""From a cell's settings to a host, a key, a source, a mitigation and an attack: one arm."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from dpaudit import registry
from dpaudit.accounting import gaussian_sigma, gaussian_sigma_paper
from dpaudit.errors import SpecError
from dpaudit.experiments.measure import plugin_options
from dpaudit.noise.key import PancakeKey
from dpaudit.noise.seed_in_noise.key import SeedKey
from dpaudit.numeric.lattice import lattice_step
from dpaudit.protocols import Attack, Host, Mitigation, NoiseSource, plays
from dpaudit.randomness import KeyedStream
from dpaudit.types import PluginOrigin, Reference

__all__ = ["Arm", "build_arm"]


@dataclass(frozen=True)
class Arm:
    """What a cell works with; ``origins``: where each plug-in came from."""

    settings: Mapping[str, Any]
    host: Host
    key: PancakeKey | SeedKey | None
    sigma: float
    source: NoiseSource
    mitigation: Mitigation
    stream: KeyedStream
    origins: tuple[PluginOrigin, ...]

    @property
    def claim(self) -> str:
        """The law that a release of this arm honestly claims to add."""
        name = Reference.parse(self.source.claim).name
        return f"{name}:sigma={self.mitigation.scale(self.sigma)!r}"

    @property
    def attacker_key(self) -> PancakeKey:
        """The attacker's pancake key, for measurements that make no sense without one.

        Raises:
            SpecError: the experiment has none.
        """
        if not isinstance(self.key, PancakeKey):
            raise SpecError(
                "this measure needs the attacker's key; give the spec a [key] with beta and gamma"
            )
        return self.key

    def mixed(self) -> tuple[float, float]:
        """The source's scale in a release, and that of independent noise added to it."""
        mixes = getattr(self.mitigation, "mixes", None)
        mixed = mixes(self.sigma) if mixes is not None else None
        return (self.sigma, 0.0) if mixed is None else mixed

    def attack(self, table: Mapping[str, Any]) -> Attack:
        """An attack from its table, with what its owner knows, if it takes it.

        That is the key, σ, d, the options that the source's class names in ``owner_knows``, and how
        much independent noise the mitigation adds (``blur``, the lattice's rounding included).
        """
        source = self.settings["source"]
        blur = math.hypot(self.mixed()[1], lattice_step(self.sigma) / math.sqrt(12))
        known = {"sigma": self.sigma, "key": self.key, "dim": self.host.dim, "blur": blur}
        names = getattr(registry.load("sources", source["name"]), "owner_knows", ())
        own = {name: source[name] for name in names if name in source}
        attack: Attack = _create("attacks", table, **known, **own)
        return attack

    def scorer(self, table: Mapping[str, Any]) -> Attack:
        """As :meth:`attack`, for measures that give candidates.

        Raises:
            SpecError: an attack that does not score candidates.
        """
        attack = self.attack(table)
        if not plays(attack, "scoring"):
            raise SpecError(
                f"attack={table['name']}: scores no candidates; take e.g. likelihood-ratio"
            )
        return attack

    def keyless(self, table: Mapping[str, Any]) -> bool:
        """Whether an attack takes no key although the experiment has one."""
        if self.key is None:
            return False
        known = registry.with_known_options("attacks", _reference(table), key=self.key)
        return "key" not in known.options

    def with_key(self, index: int) -> Arm:
        """The same arm under the attacker's key number ``index`` (0 is the one it has)."""
        if index == 0 or self.key is None:
            return self
        key = _key(self.settings, self.host, index)
        known = {"sigma": self.sigma, "key": key, "dim": self.host.dim}
        return replace(self, key=key, source=_create("sources", self.settings["source"], **known))


def _create(kind: str, table: Mapping[str, Any], **known: Any) -> Any:
    """A plug-in from its table, with those of σ, the key and d that it takes."""
    return registry.create(kind, registry.with_known_options(kind, _reference(table), **known))


def build_arm(settings: Mapping[str, Any], *, cell: str) -> Arm:
    """Everything a cell needs.

    The key depends on the seed and the [key] table only, so all arms share it. A source that needs
    only a secret (``needs_only_a_secret``) gets a key even without a [key] table.

    Raises:
        SpecError: a source whose σ is not what ε and δ ask for.
    """
    root = KeyedStream.from_seed(settings["seed"])
    host: Host = registry.create("hosts", _reference(settings["host"]))
    calibrate = gaussian_sigma_paper if settings["calibration"] == "paper" else gaussian_sigma
    sigma = calibrate(settings["epsilon"], settings["delta"], sensitivity=host.sensitivity)
    key = _key(settings, host, 0)
    known = {"sigma": sigma, "key": key, "dim": host.dim}
    source: NoiseSource = _create("sources", settings["source"], **known)
    if not math.isclose(source.sigma, sigma, rel_tol=1e-6):
        raise SpecError(
            f"source={settings['source']['name']}: has sigma={source.sigma:g}, but ε and δ ask for "
            f"{sigma:g}; leave its scale to them, or take a source with an option sigma"
        )
    return Arm(
        settings=settings,
        host=host,
        key=key,
        sigma=sigma,
        source=source,
        mitigation=_create("mitigations", settings["mitigation"], **known),
        stream=root.child("cell", cell),
        origins=tuple(
            registry.plugin(kind, settings[kind.removesuffix("s")]["name"]).origin
            for kind in ("hosts", "sources", "mitigations", "attacks")
            if kind.removesuffix("s") in settings
        ),
    )


def _key(settings: Mapping[str, Any], host: Host, index: int) -> PancakeKey | SeedKey | None:
    shape = {**settings["key"], **settings["source"].get("key", {})}
    label = ("attacker's key",) if index == 0 else ("attacker's key", index)
    secret = KeyedStream.from_seed(settings["seed"]).child(*label).bytes(32)
    if shape:
        return PancakeKey.new(dim=host.dim, secret=secret, **shape)
    source = registry.load("sources", settings["source"]["name"])
    return SeedKey.new(secret=secret) if getattr(source, "needs_only_a_secret", False) else None


def _reference(table: Mapping[str, Any]) -> Reference:
    return Reference(table["name"], plugin_options(table))
