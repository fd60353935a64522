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

Other measurements than attacks (``measure = "precision"`` and so on, ``dpaudit list measures``) may have axes of their own in
``[grid]``; those that audit samplers of their own (``zoo``, ``calibration``, ``power``, ``keyless``) have nothing but
that, and their ``[[exclude]]`` names values of it. ``keys`` renews the attacker's key so many times a cell.
``keep_trials = true`` stores every trial of ``attack`` cells: truth, guess and score (``docs/store.md``).
``[published]`` names the values to set beside ours; ``[[column]]`` and ``[[figure]]`` say what the report shows
(``dpaudit.report``, documents of kind "measurements").
"""

from __future__ import annotations

import hashlib
import itertools
import json
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from importlib.resources import files
from typing import Any

from dpaudit import registry
from dpaudit.errors import SpecError, UnknownNameError, UsageError
from dpaudit.experiments.measure import AUDIT, measure_of
from dpaudit.experiments.spec_grid import check_size, expand, listed
from dpaudit.experiments.spec_values import check_plain, check_values
from dpaudit.registry import nearest
from dpaudit.results.foreign import RefusedError, read_plain, shown
from dpaudit.results.text import one_line

__all__ = ["Cell", "Spec", "load_spec", "spec_names"]

_LONG = 100
_MOST_BYTES = 1 << 19
"""Of a file; the longest built-in one has 6 kB."""
_STRINGS = re.compile(
    r'''"""(?:[^\\]|\\.)*?"{3,5}|"(?:[^"\\\n]|\\.)*"|'''
    r"""'''.*?'{3,5}|'[^'\n]*'|#[^\n]*""",
    re.DOTALL,
)
_LONG_KEY = re.compile(r"(?<![\w-])(?:[\w-]++[ \t]*+\.[ \t]*+){32}")
"""More dots than a key may have: tomllib takes 72 s and 4 GB for a key of 32,000."""
_SCALARS: dict[str, type | tuple[type, ...]] = {
    "name": str,
    "title": str,
    "story": str,
    "seed": (int, str),
    "epsilon": (int, float, list),
    "delta": (int, float),
    "calibration": str,
    "trials": int,
    "measure": str,
    "keys": int,
    "keep_trials": bool,
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
    """One point of the grid; ``id`` is a hash of its settings and of nothing else.

    The setting ``keep_trials`` is not in it: it says what is stored, and changes no number.
    """

    kind: str
    settings: Mapping[str, Any]

    @property
    def id(self) -> str:
        settings = {k: v for k, v in self.settings.items() if k != "keep_trials"}
        text = json.dumps({"kind": self.kind, **settings}, sort_keys=True)
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
    keep_trials: bool = False

    def cells(self) -> tuple[Cell, ...]:
        """All cells in the order they run: for each arm its audit, then its attacks.

        Raises:
            SpecError: the grid is empty, has more than 100,000 cells, or has one twice; counted before it is spread out.
        """
        self.check()
        return tuple(self._cells())

    def check(self) -> None:
        """Whether there are :meth:`cells`, without making them.

        Raises:
            SpecError: as :meth:`cells`.
        """
        check_size(self)
        if next(self._cells(), None) is None:
            raise SpecError(f"experiment={self.name}: the grid is empty; check the lists and [[exclude]]")

    def _cells(self) -> Iterator[Cell]:
        measure = measure_of(self.measure)
        if not measure.needs_arm:
            for grid in expand(self.grid):
                if not any(all(grid.get(k) in listed(v) for k, v in e.items()) for e in self.exclude):
                    where = {} if self.device == "cpu" else {"device": self.device}
                    yield Cell(self.measure, {"grid": grid, "seed": self.seed, "trials": self.trials, **where})
            return
        hosts = itertools.chain.from_iterable(map(expand, self.hosts))
        axes = (self.epsilon, hosts, expand(self.key), expand(self.grid))
        for epsilon, host, key, grid in itertools.product(*axes):
            for source, mitigation in itertools.product(
                itertools.chain.from_iterable(map(expand, self.sources)),
                itertools.chain.from_iterable(map(expand, self.mitigations)),
            ):
                parts = {"host": host, "source": source, "mitigation": mitigation}
                if self.excluded(parts):
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
                expanded = itertools.chain.from_iterable(map(expand, self.attacks))
                attacks = [a for a in expanded if not self.excluded({**parts, "attack": a})]
                if measure.attacks_together:
                    if attacks:
                        yield Cell(self.measure, {**arm, "attacks": attacks, "trials": self.trials})
                    continue
                kept = {"keep_trials": True} if self.keep_trials else {}
                for attack in attacks:
                    yield Cell(self.measure, {**arm, "attack": attack, "trials": self.trials, **kept})

    def excluded(self, parts: Mapping[str, Mapping[str, Any]]) -> bool:
        """Whether an [[exclude]] leaves out what these parts (by kind: host, source, …) make together."""

        def named(kind: str, value: Any) -> bool:
            part = parts.get(kind, {})
            return any(v in (part.get("name"), part.get("label")) for v in listed(value))

        return any(all(named(kind, value) for kind, value in e.items()) for e in self.exclude)


def spec_names() -> list[str]:
    """Experiments that ship with dpaudit."""
    folder = files("dpaudit.studies") / "specs"
    return sorted(p.name.removesuffix(".toml") for p in folder.iterdir() if p.name.endswith(".toml"))


def load_spec(name: str, *, trials: int | None = None, device: str = "cpu") -> Spec:
    """Read a built-in experiment by name, or a ``.toml`` file; ``trials`` replaces the file's.

    ``device`` is where its cells work: ``cpu``, or ``cuda`` for the measures that can (``Measure.on_devices``).

    Raises:
        UnknownNameError: no such experiment or plug-in, with the nearest match.
        SpecError: no plain file of at most 512 KiB, not TOML in UTF-8, an unknown key, a wrong type, an empty or far too
            large grid; a device for another measure.
    """
    try:
        return _loaded(name, trials, device)
    except UsageError as error:  # its words may be the file's
        raise type(error)(one_line(error)) from error


def _loaded(name: str, trials: int | None, device: str) -> Spec:
    try:
        raw = _table_of(name)
        if trials is not None:
            raw["trials"] = trials
        check_plain(raw)
    except RefusedError as error:
        raise SpecError(f"spec={name}: {error}; dpaudit list experiments shows the built-in ones") from error
    spec = replace(_check(raw, name), device=device)
    if device != "cpu" and not measure_of(spec.measure).on_devices:
        raise SpecError(f"device={device}: experiment {spec.name} works on the CPU; leave --device out")
    spec.check()
    return spec


def _table_of(name: str) -> dict[str, Any]:
    """What a spec's TOML says."""
    if name.endswith(".toml"):
        data = read_plain(name, limit=_MOST_BYTES)
    elif name in spec_names():
        data = (files("dpaudit.studies") / "specs" / f"{name}.toml").read_bytes()
    else:
        raise UnknownNameError(f"experiment={name}: not known{nearest(name, spec_names())}")
    try:
        text = data.decode()
        if _LONG_KEY.search(_STRINGS.sub("s", text)):
            raise RefusedError("a key has more than 32 dots")
        return tomllib.loads(text)
    except RecursionError as error:
        raise RefusedError("nested too deep") from error
    except ValueError as error:  # TOMLDecodeError, no UTF-8, thousands of digits
        raise RefusedError(f"not TOML: {error}") from error


def _check(raw: dict[str, Any], where: str) -> Spec:
    known = {**_SCALARS, **_TABLES, **dict.fromkeys(_LISTS, list)}
    for key, value in raw.items():
        if key not in known:
            raise SpecError(f"spec={where}: {key!r} is not known{nearest(key, known)}")
        if not isinstance(value, known[key]) or isinstance(value, bool) != (known[key] is bool):
            raise SpecError(f"spec={where}: {key}={shown(value)} has the wrong type")
    named = raw.get("measure", "attack")
    known_measures = registry.plugins("measures").keys() - {AUDIT}
    if named not in known_measures:
        raise SpecError(f"spec={where}: measure={named!r} is not known{nearest(named, known_measures)}")
    measure = measure_of(named)
    if not measure.needs_arm:
        raw = {"epsilon": 1.0, "delta": 0.0, "host": {"name": "histogram"}, "source": [], **raw}
        needed: tuple[str, ...] = ("name", "grid")
    else:
        needed = ("name", "epsilon", "delta", "host", "source", *(("attack",) if named == "attack" else ()))
    for key in needed:
        if key not in raw:
            raise SpecError(f"spec={where}: {key!r} is missing")
    if raw.get("keep_trials") and not measure.keeps_trials:
        raise SpecError(f"spec={where}: keep_trials=true: measure={named!r} has no trials to keep; leave it out")
    check_values(raw, where)
    epsilon = listed(raw["epsilon"])
    mitigations = raw.get("mitigation", [{"name": "none"}])
    if measure.needs_arm:
        _check_exclusions(raw, mitigations, where)
    return Spec(
        name=raw["name"],
        title=raw.get("title", raw["name"]),
        story=raw.get("story", ""),
        seed=str(raw.get("seed", 0)),
        epsilon=tuple(float(e) for e in epsilon),
        delta=float(raw["delta"]),
        calibration=raw.get("calibration", "exact"),
        trials=raw.get("trials", 1000),
        hosts=tuple(_plugin("hosts", t, where) for t in listed(raw["host"])),
        key=raw.get("key", {}),
        sources=tuple(_plugin("sources", t, where) for t in raw["source"]),
        mitigations=tuple(_plugin("mitigations", t, where) for t in mitigations),
        attacks=tuple(_plugin("attacks", t, where) for t in raw.get("attack", ())),
        exclude=tuple(raw.get("exclude", ())),
        audit=raw.get("audit", {}),
        measure=named,
        keys=raw.get("keys", 1),
        grid=raw.get("grid", {}),
        published=raw.get("published", {}),
        columns=tuple(raw.get("column", ())),
        figures=tuple(raw.get("figure", ())),
        keep_trials=raw.get("keep_trials", False),
    )


def _check_exclusions(raw: Mapping[str, Any], mitigations: list[Any], where: str) -> None:
    parts = {
        "host": listed(raw["host"]),
        "source": raw["source"],
        "mitigation": mitigations,
        "attack": raw.get("attack", []),
    }
    names = {
        kind: {str(t[k]) for t in tables if isinstance(t, dict) for k in ("name", "label") if k in t}
        for kind, tables in parts.items()
    }
    for exclusion in raw.get("exclude", ()):
        for kind, value in exclusion.items():
            if kind not in parts:
                raise SpecError(f"spec={where}: [[exclude]] {kind!r} is not known{nearest(kind, parts)}")
            for name in listed(value):
                if str(name) not in names[kind]:
                    raise SpecError(
                        f"spec={where}: [[exclude]] {kind}={shown(name)} is none here{nearest(str(name), names[kind])}"
                    )


def _plugin(kind: str, table: Any, where: str) -> Mapping[str, Any]:
    if not isinstance(table, dict) or not isinstance(table.get("name"), str):
        raise SpecError(f"spec={where}: each {kind.removesuffix('s')} is a table with a name")
    registry.plugin(kind, table["name"])
    if kind == "hosts":
        return table
    return {"label": table["name"], **table}
