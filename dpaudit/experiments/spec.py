"""What an experiment is: a TOML file with axes, and the cells they span.

::

    name = "demo"
    seed = 1
    epsilon = [0.125, 0.25]          # a list anywhere is an axis
    delta = 1e-10
    trials = 2000

    [host]                           # one host, or several as [[host]]
    name = "histogram"
    [key]                            # the attacker's key, given to every source and attack that takes one
    beta = [1e-4, 1e-3]
    gamma = "2sqrtd"
    [[source]]                       # sources × mitigations × attacks; other keys are the plug-in's options
    name = "pancake"                 # a source's own key = { gamma = 0.5, … } replaces parts of [key] where it is used
    [[mitigation]]
    name = "none"
    [[attack]]
    name = "likelihood-ratio"
    [[exclude]]                      # leave out combinations
    source = "gaussian"
    mitigation = "rotation"
    [audit]                          # also audit each source × mitigation as a closed sampler
    samples = 1_000_000

Other measurements than attacks (``measure = "precision"`` and so on, see ``measures/``) may have axes of their own in
``[grid]``; those that audit samplers of their own (``zoo``, ``calibration``, ``power``, ``keyless``) have nothing but
that, and their ``[[exclude]]`` names values of it. ``keys`` renews the attacker's key so many times a cell.
``[published]`` names the values to set beside ours; ``[[column]]`` and ``[[figure]]`` say what the report shows
(``dpaudit.report``, documents of kind "measurements").
"""

from __future__ import annotations

import hashlib
import itertools
import json
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from importlib.resources import files
from pathlib import Path
from typing import Any

from dpaudit import registry
from dpaudit.errors import SpecError, UnknownNameError
from dpaudit.experiments.measures import ALONE, MEASURES, ON_DEVICES, TOGETHER
from dpaudit.registry import nearest

__all__ = ["Cell", "Spec", "load_spec", "spec_names"]

_MOST_CELLS = 100_000
_LONG = 100
_SCALARS: dict[str, type | tuple[type, ...]] = {
    "name": str,
    "title": str,
    "story": str,
    "seed": (int, str),
    "epsilon": (int, float, list),
    "delta": float,
    "calibration": str,
    "trials": int,
    "measure": str,
    "keys": int,
}
_TABLES: dict[str, type | tuple[type, ...]] = {
    "host": (dict, list),
    "key": dict,
    "audit": dict,
    "grid": dict,
    "published": dict,
}
_LISTS = ("source", "mitigation", "attack", "exclude", "column", "figure")


@dataclass(frozen=True)
class Cell:
    """One point of the grid; ``id`` is a hash of its settings and of nothing else."""

    kind: str
    settings: Mapping[str, Any]

    @property
    def id(self) -> str:
        text = json.dumps({"kind": self.kind, **self.settings}, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:20]

    @property
    def label(self) -> str:
        """For people: which arm this is."""
        if "source" not in self.settings:
            words = ", ".join(f"{k} {v}" for k, v in self.settings["grid"].items())
            return words if len(words) <= _LONG else f"{words[:_LONG]}…"
        arm = f"{self.settings['source']['label']} + {self.settings['mitigation']['label']}"
        what = self.settings["attack"]["label"] if "attack" in self.settings else self.kind
        tables = (self.settings[table].items() for table in ("key", "grid", "host"))
        axes = ", ".join(f"{k} {v}" for k, v in itertools.chain.from_iterable(tables) if k != "name")
        return f"{arm}: {what}" + (
            f" ({axes})" if self.kind not in ("audit", "attack") or self.settings["grid"] else ""
        )


@dataclass(frozen=True)
class Spec:
    """A checked experiment."""

    name: str
    title: str
    story: str
    seed: str
    epsilon: tuple[float, ...]
    delta: float
    calibration: str
    trials: int
    hosts: tuple[Mapping[str, Any], ...]
    key: Mapping[str, Any]
    sources: tuple[Mapping[str, Any], ...]
    mitigations: tuple[Mapping[str, Any], ...]
    attacks: tuple[Mapping[str, Any], ...]
    exclude: tuple[Mapping[str, str], ...] = ()
    audit: Mapping[str, Any] = field(default_factory=dict)
    measure: str = "attack"
    keys: int = 1
    grid: Mapping[str, Any] = field(default_factory=dict)
    published: Mapping[str, Any] = field(default_factory=dict)
    columns: tuple[Mapping[str, Any], ...] = ()
    figures: tuple[Mapping[str, Any], ...] = ()
    device: str = "cpu"

    def cells(self) -> tuple[Cell, ...]:
        """All cells in the order they run: for each arm its audit, then its attacks.

        Raises:
            SpecError: the grid is empty or has more than 100,000 cells.
        """
        cells = tuple(itertools.islice(self._cells(), _MOST_CELLS + 1))
        if not cells:
            raise SpecError(f"experiment={self.name}: the grid is empty; check the lists and [[exclude]]")
        if len(cells) > _MOST_CELLS:
            raise SpecError(f"experiment={self.name}: more than {_MOST_CELLS:,} cells; shorten an axis")
        return cells

    def _cells(self) -> Iterator[Cell]:
        if self.measure in ALONE:
            for grid in _expand(self.grid):
                if not any(all(grid.get(k) in _listed(v) for k, v in e.items()) for e in self.exclude):
                    where = {} if self.device == "cpu" else {"device": self.device}
                    yield Cell(self.measure, {"grid": grid, "seed": self.seed, "trials": self.trials, **where})
            return
        hosts = itertools.chain.from_iterable(map(_expand, self.hosts))
        axes = (self.epsilon, hosts, _expand(self.key), _expand(self.grid))
        for epsilon, host, key, grid in itertools.product(*axes):
            for source, mitigation in itertools.product(
                itertools.chain.from_iterable(map(_expand, self.sources)),
                itertools.chain.from_iterable(map(_expand, self.mitigations)),
            ):
                parts = {"host": host, "source": source, "mitigation": mitigation}
                if self._excluded(parts):
                    continue
                arm = {
                    "epsilon": epsilon,
                    "delta": self.delta,
                    "calibration": self.calibration,
                    "host": host,
                    "key": key,
                    "grid": grid,
                    "keys": self.keys,
                    "source": source,
                    "mitigation": mitigation,
                    "seed": self.seed,
                }
                if self.audit:
                    yield Cell("audit", {**arm, "audit": dict(self.audit)})
                if not self.attacks:
                    yield Cell(self.measure, {**arm, "trials": self.trials})
                expanded = itertools.chain.from_iterable(map(_expand, self.attacks))
                attacks = [a for a in expanded if not self._excluded({**parts, "attack": a})]
                if self.measure in TOGETHER:
                    if attacks:
                        yield Cell(self.measure, {**arm, "attacks": attacks, "trials": self.trials})
                    continue
                for attack in attacks:
                    yield Cell(self.measure, {**arm, "attack": attack, "trials": self.trials})

    def _excluded(self, parts: Mapping[str, Mapping[str, Any]]) -> bool:
        def named(kind: str, value: Any) -> bool:
            part = parts.get(kind, {})
            return any(v in (part.get("name"), part.get("label")) for v in _listed(value))

        return any(all(named(kind, value) for kind, value in e.items()) for e in self.exclude)


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _expand(table: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """All combinations of a table's lists; one empty combination of an empty table."""
    axes = [v if isinstance(v, list) else [v] for v in table.values()]
    for values in itertools.product(*axes):
        yield dict(zip(table, values, strict=True))


def spec_names() -> list[str]:
    """Experiments that ship with dpaudit."""
    folder = files("dpaudit.experiments") / "specs"
    return sorted(p.name.removesuffix(".toml") for p in folder.iterdir() if p.name.endswith(".toml"))


def load_spec(name: str, *, trials: int | None = None, device: str = "cpu") -> Spec:
    """Read a built-in experiment by name, or a ``.toml`` file; ``trials`` replaces the file's.

    ``device`` is where its cells work: ``cpu``, or ``cuda`` for the measures that can (``measures.ON_DEVICES``).

    Raises:
        UnknownNameError: no such experiment or plug-in, with the nearest match.
        SpecError: not TOML, an unknown key, a wrong type, an empty or far too large grid; a device for another measure.
    """
    if name.endswith(".toml"):
        path = Path(name)
        if not path.is_file():
            raise SpecError(f"spec={name}: no such file; dpaudit list experiments shows the built-in ones")
        text = path.read_text(encoding="utf-8")
    elif name in spec_names():
        text = (files("dpaudit.experiments") / "specs" / f"{name}.toml").read_text(encoding="utf-8")
    else:
        raise UnknownNameError(f"experiment={name}: not known{nearest(name, spec_names())}")
    try:
        raw = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise SpecError(f"spec={name}: not TOML: {error}") from error
    if trials is not None:
        raw["trials"] = trials
    spec = replace(_check(raw, name), device=device)
    if device != "cpu" and spec.measure not in ON_DEVICES:
        raise SpecError(f"device={device}: experiment {spec.name} works on the CPU; leave --device out")
    spec.cells()
    return spec


def _check(raw: dict[str, Any], where: str) -> Spec:
    known = {**_SCALARS, **_TABLES, **dict.fromkeys(_LISTS, list)}
    for key, value in raw.items():
        if key not in known:
            raise SpecError(f"spec={where}: {key!r} is not known{nearest(key, known)}")
        if not isinstance(value, known[key]) or isinstance(value, bool):
            raise SpecError(f"spec={where}: {key}={value!r} has the wrong type")
    measure = raw.get("measure", "attack")
    if measure not in MEASURES:
        raise SpecError(f"spec={where}: measure={measure!r} is not known{nearest(measure, MEASURES)}")
    if measure in ALONE:
        raw = {"epsilon": 1.0, "delta": 0.0, "host": {"name": "histogram"}, "source": [], **raw}
        needed: tuple[str, ...] = ("name", "grid")
    else:
        needed = ("name", "epsilon", "delta", "host", "source", *(("attack",) if measure == "attack" else ()))
    for key in needed:
        if key not in raw:
            raise SpecError(f"spec={where}: {key!r} is missing")
    if raw.get("keys", 1) < 1:
        raise SpecError(f"spec={where}: keys={raw['keys']} must be at least 1")
    trials = raw.get("trials", 1000)
    if trials < 1:
        raise SpecError(f"spec={where}: trials={trials} must be at least 1")
    calibration = raw.get("calibration", "exact")
    if calibration not in ("exact", "paper"):
        raise SpecError(f"spec={where}: calibration={calibration!r} must be 'exact' or 'paper'")
    epsilon = raw["epsilon"] if isinstance(raw["epsilon"], list) else [raw["epsilon"]]
    for value in epsilon:
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not value > 0:
            raise SpecError(f"spec={where}: epsilon={value!r} must be a number > 0")
    mitigations = raw.get("mitigation", [{"name": "none"}])
    audit = raw.get("audit", {})
    for key in audit:
        if key not in ("samples", "alpha", "time_limit"):
            raise SpecError(
                f"spec={where}: [audit] {key!r} is not known{nearest(key, ('samples', 'alpha', 'time_limit'))}"
            )
    if measure not in ALONE:
        _check_exclusions(raw, mitigations, where)
    return Spec(
        name=raw["name"],
        title=raw.get("title", raw["name"]),
        story=raw.get("story", ""),
        seed=str(raw.get("seed", 0)),
        epsilon=tuple(float(e) for e in epsilon),
        delta=raw["delta"],
        calibration=calibration,
        trials=trials,
        hosts=tuple(_plugin("hosts", t, where) for t in _listed(raw["host"])),
        key=raw.get("key", {}),
        sources=tuple(_plugin("sources", t, where) for t in raw["source"]),
        mitigations=tuple(_plugin("mitigations", t, where) for t in mitigations),
        attacks=tuple(_plugin("attacks", t, where) for t in raw.get("attack", ())),
        exclude=tuple(raw.get("exclude", ())),
        audit=audit,
        measure=measure,
        keys=raw.get("keys", 1),
        grid=raw.get("grid", {}),
        published=raw.get("published", {}),
        columns=tuple(raw.get("column", ())),
        figures=tuple(raw.get("figure", ())),
    )


def _check_exclusions(raw: Mapping[str, Any], mitigations: list[Any], where: str) -> None:
    parts = {
        "host": _listed(raw["host"]),
        "source": raw["source"],
        "mitigation": mitigations,
        "attack": raw.get("attack", []),
    }
    for exclusion in raw.get("exclude", ()):
        for kind, value in exclusion.items():
            if kind not in parts:
                raise SpecError(f"spec={where}: [[exclude]] {kind!r} is not known{nearest(kind, parts)}")
            names = {str(t[k]) for t in parts[kind] if isinstance(t, dict) for k in ("name", "label") if k in t}
            for name in _listed(value):
                if name not in names:
                    raise SpecError(
                        f"spec={where}: [[exclude]] {kind}={name!r} is none here{nearest(str(name), names)}"
                    )


def _plugin(kind: str, table: Any, where: str) -> Mapping[str, Any]:
    if not isinstance(table, dict) or not isinstance(table.get("name"), str):
        raise SpecError(f"spec={where}: each {kind.removesuffix('s')} is a table with a name")
    registry.plugin(kind, table["name"])
    if kind == "hosts":
        return table
    return {"label": table["name"], **table}
