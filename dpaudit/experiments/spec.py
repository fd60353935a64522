"""An experiment: its axes and the cells they span, counted before the first is made."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from dpaudit.errors import SpecError
from dpaudit.experiments.measure import Cell, axis_of, expand, listed, measure_of, written

__all__ = ["MOST_CELLS", "Spec"]

MOST_CELLS = 100_000
_EXCLUDED = 10
_MOST_LOOKS = 5_000_000  # at a combination of tables and an exclusion
_COUNTED = 10**15


@dataclass(frozen=True)
class Spec:
    """A checked experiment; of a ``joined`` axis of ``[grid]`` a cell has all values."""

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
    joined: tuple[str, ...] = ()

    def cells(self) -> tuple[Cell, ...]:
        """All cells in the order they run: for each arm its audit, then its attacks.

        Raises:
            SpecError: the grid is empty, has more than 100,000 cells, or has one twice; counted
                before it is spread out.
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
            raise SpecError(
                f"experiment={self.name}: the grid is empty; check the lists and [[exclude]]"
            )

    def _cells(self) -> Iterator[Cell]:
        measure = measure_of(self.measure)
        if not measure.needs_arm:
            for grid in expand(self.grid, joined=self.joined):
                plain = {name: written(value) for name, value in grid.items()}
                if not any(
                    all(plain.get(k) in map(written, listed(v)) for k, v in e.items())
                    for e in self.exclude
                ):
                    where = {} if self.device == "cpu" else {"device": self.device}
                    yield Cell(
                        self.measure,
                        {"grid": grid, "seed": self.seed, "trials": self.trials, **where},
                    )
            return
        hosts = itertools.chain.from_iterable(map(expand, self.hosts))
        axes = (self.epsilon, hosts, expand(self.key), expand(self.grid, joined=self.joined))
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
                for attack in attacks:
                    yield Cell(self.measure, {**arm, "attack": attack, "trials": self.trials})

    def excluded(self, parts: Mapping[str, Mapping[str, Any]]) -> bool:
        """Whether an [[exclude]] matches these parts together (by kind: host, source, …)."""

        def named(kind: str, value: Any) -> bool:
            part = parts.get(kind, {})
            return any(v in (part.get("name"), part.get("label")) for v in listed(value))

        return any(all(named(kind, value) for kind, value in e.items()) for e in self.exclude)


def check_size(spec: Spec) -> None:
    """Whether a spec's grid can be spread out.

    Raises:
        SpecError: it is empty, has more than ``MOST_CELLS`` cells, or has a cell twice.
    """
    where = f"experiment={spec.name}"
    if not measure_of(spec.measure).needs_arm:
        axes = {name: len(axis_of(name, values, spec.joined)) for name, values in spec.grid.items()}
        number = whole = math.prod(axes.values())
    else:
        looks = math.prod(map(len, (spec.hosts, spec.sources, spec.mitigations))) * (
            1 + len(spec.attacks)
        )
        if (
            looks * (1 + sum(len(listed(v)) for e in spec.exclude for v in e.values()))
            > _MOST_LOOKS
        ):
            raise SpecError(f"{where}: too many tables and exclusions to combine; split the spec")
        settings = {
            "epsilon": len(spec.epsilon),
            "key": _size(spec.key),
            "grid": _size(spec.grid, spec.joined),
        }
        axes = {**settings, "arm": _per_setting(spec)}
        number = math.prod(axes.values())
        whole = math.prod(settings.values()) * _per_setting(replace(spec, exclude=()))
    if number == 0:
        raise SpecError(f"{where}: the grid is empty; check the lists and [[exclude]]")
    spans = " × ".join(f"{name} {_amount(length)}" for name, length in axes.items() if length > 1)
    if number > MOST_CELLS:
        raise SpecError(
            f"{where}: {_amount(number)} cells ({spans}), at most {MOST_CELLS:,}; "
            "shorten an axis, or split the spec"
        )
    if whole > _EXCLUDED * MOST_CELLS:
        raise SpecError(
            f"{where}: {_amount(whole)} cells before [[exclude]], "
            f"at most {_EXCLUDED * MOST_CELLS:,}; shorten an axis"
        )
    _check_twice(spec, where)


def _size(table: Mapping[str, Any], joined: Collection[str] = ()) -> int:
    return math.prod(len(axis_of(name, values, joined)) for name, values in table.items())


def _per_setting(spec: Spec) -> int:
    """Cells for one ε and one combination of [key] and [grid]."""
    total, together = 0, measure_of(spec.measure).attacks_together
    for host, source, mitigation in itertools.product(spec.hosts, spec.sources, spec.mitigations):
        parts = {"host": host, "source": source, "mitigation": mitigation}
        if not spec.excluded(parts):
            attacks = sum(
                _size(a) for a in spec.attacks if not spec.excluded({**parts, "attack": a})
            )
            cells = 1 if not spec.attacks else min(attacks, 1) if together else attacks
            total += (cells + bool(spec.audit)) * _size(host) * _size(source) * _size(mitigation)
    return total


def _amount(number: int) -> str:
    return f"{number:,}" if number < _COUNTED else "more than 10^15"


def _check_twice(spec: Spec, where: str) -> None:
    """A cell is there twice exactly if one of its parts is."""
    parts: dict[str, Iterable[Mapping[str, Any]]] = {
        "epsilon": [{"epsilon": list(spec.epsilon)}],
        "host": spec.hosts,
        "[key]": [spec.key],
        "[grid]": [spec.grid],
        "source": spec.sources,
        "mitigation": spec.mitigations,
        "attack": spec.attacks,
    }
    for name, tables in parts.items():
        twice = _repeated_combination(tables)
        if twice is not None:
            text = json.dumps(twice if name != "epsilon" else twice["epsilon"], sort_keys=True)
            raise SpecError(
                f"{where}: {name} {text[:200]} is there twice; keep one (a label tells two apart)"
            )


def _repeated_combination(tables: Iterable[Mapping[str, Any]]) -> dict[str, Any] | None:
    """A combination that is there twice.

    Either a value stands twice in a list, or all lists of two tables have a value in common.
    """
    earlier: list[dict[str, dict[str, Any]]] = []
    for table in tables:
        axes: dict[str, dict[str, Any]] = {}
        again: dict[str, Any] = {}
        for name, values in table.items():
            axes[name] = {}
            for value in listed(values):
                text = json.dumps(written(value), sort_keys=True)
                if text in axes[name]:
                    again[name] = value
                axes[name][text] = value
        if again:
            return {
                name: again.get(name, next(iter(values.values()))) for name, values in axes.items()
            }
        for other in earlier:
            if other.keys() == axes.keys() and not any(
                other[n].keys().isdisjoint(axes[n]) for n in axes
            ):
                return {n: next(v for text, v in axes[n].items() if text in other[n]) for n in axes}
        earlier.append(axes)
    return None
