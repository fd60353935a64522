"""How many cells a grid has, counted from the lengths of its axes: a billion are refused before the first is made."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from dpaudit.errors import SpecError
from dpaudit.experiments.measure import measure_of

if TYPE_CHECKING:
    from dpaudit.experiments.spec import Spec

__all__ = ["MOST_CELLS", "check_size", "expand", "listed"]

MOST_CELLS = 100_000
_EXCLUDED = 10
_MOST_LOOKS = 5_000_000  # at a combination of tables and an exclusion
_COUNTED = 10**15


def listed(value: Any) -> list[Any]:
    """A list as it is; anything else as a list of one."""
    return value if isinstance(value, list) else [value]


def expand(table: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """All combinations of a table's lists; one empty combination of an empty table."""
    for values in itertools.product(*map(listed, table.values())):
        yield dict(zip(table, values, strict=True))


def check_size(spec: Spec) -> None:
    """Whether a spec's grid can be spread out.

    Raises:
        SpecError: it is empty, has more than ``MOST_CELLS`` cells, or has a cell twice.
    """
    where = f"experiment={spec.name}"
    if not measure_of(spec.measure).needs_arm:
        axes = {name: len(listed(values)) for name, values in spec.grid.items()}
        number = whole = math.prod(axes.values())
    else:
        looks = math.prod(map(len, (spec.hosts, spec.sources, spec.mitigations))) * (1 + len(spec.attacks))
        if looks * (1 + sum(len(listed(v)) for e in spec.exclude for v in e.values())) > _MOST_LOOKS:
            raise SpecError(f"{where}: too many tables and exclusions to combine; split the spec")
        settings = {"epsilon": len(spec.epsilon), "key": _size(spec.key), "grid": _size(spec.grid)}
        axes = {**settings, "arm": _per_setting(spec)}
        number = math.prod(axes.values())
        whole = math.prod(settings.values()) * _per_setting(replace(spec, exclude=()))
    if number == 0:
        raise SpecError(f"{where}: the grid is empty; check the lists and [[exclude]]")
    spans = " × ".join(f"{name} {_counted(length)}" for name, length in axes.items() if length > 1)
    if number > MOST_CELLS:
        raise SpecError(
            f"{where}: {_counted(number)} cells ({spans}), at most {MOST_CELLS:,}; shorten an axis, or split the spec"
        )
    if whole > _EXCLUDED * MOST_CELLS:
        raise SpecError(
            f"{where}: {_counted(whole)} cells before [[exclude]], at most {_EXCLUDED * MOST_CELLS:,}; shorten an axis"
        )
    _check_twice(spec, where)


def _size(table: Mapping[str, Any]) -> int:
    return math.prod(len(listed(values)) for values in table.values())


def _per_setting(spec: Spec) -> int:
    """Cells for one ε and one combination of [key] and [grid]."""
    total, together = 0, measure_of(spec.measure).attacks_together
    for host, source, mitigation in itertools.product(spec.hosts, spec.sources, spec.mitigations):
        parts = {"host": host, "source": source, "mitigation": mitigation}
        if not spec.excluded(parts):
            attacks = sum(_size(a) for a in spec.attacks if not spec.excluded({**parts, "attack": a}))
            cells = 1 if not spec.attacks else min(attacks, 1) if together else attacks
            total += (cells + bool(spec.audit)) * _size(host) * _size(source) * _size(mitigation)
    return total


def _counted(number: int) -> str:
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
        twice = _twice(tables)
        if twice is not None:
            text = json.dumps(twice if name != "epsilon" else twice["epsilon"], sort_keys=True)
            raise SpecError(f"{where}: {name} {text[:200]} is there twice; keep one (a label tells two apart)")


def _twice(tables: Iterable[Mapping[str, Any]]) -> dict[str, Any] | None:
    """A combination that is there twice: a value twice in a list, or two tables whose lists all have a value in common."""
    seen: list[dict[str, dict[str, Any]]] = []
    for table in tables:
        axes: dict[str, dict[str, Any]] = {}
        again: dict[str, Any] = {}
        for name, values in table.items():
            axes[name] = {}
            for value in listed(values):
                text = json.dumps(value, sort_keys=True)
                if text in axes[name]:
                    again[name] = value
                axes[name][text] = value
        if again:
            return {name: again.get(name, next(iter(values.values()))) for name, values in axes.items()}
        for other in seen:
            if other.keys() == axes.keys() and not any(other[n].keys().isdisjoint(axes[n]) for n in axes):
                return {n: next(v for text, v in axes[n].items() if text in other[n]) for n in axes}
        seen.append(axes)
    return None
