"""How many cells a grid has, counted from the lengths of its axes: a billion are refused before the first is made."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from dpaudit.errors import SpecError
from dpaudit.experiments.measures import ALONE, TOGETHER

if TYPE_CHECKING:
    from dpaudit.experiments.spec import Spec

__all__ = ["MOST_CELLS", "check_size", "expand", "listed"]

MOST_CELLS = 100_000
_EXCLUDED = 10


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
    if spec.measure in ALONE:
        axes = {name: len(listed(values)) for name, values in spec.grid.items()}
        number = whole = math.prod(axes.values())
    else:
        settings = {"epsilon": len(spec.epsilon), "key": _size(spec.key), "grid": _size(spec.grid)}
        axes = {**settings, "arm": _per_setting(spec)}
        number = math.prod(axes.values())
        whole = math.prod(settings.values()) * _per_setting(replace(spec, exclude=()))
    if number == 0:
        raise SpecError(f"{where}: the grid is empty; check the lists and [[exclude]]")
    spans = " × ".join(f"{name} {length:,}" for name, length in axes.items() if length > 1)
    if number > MOST_CELLS:
        raise SpecError(
            f"{where}: {number:,} cells ({spans}), at most {MOST_CELLS:,}; shorten an axis, or split the spec"
        )
    if whole > _EXCLUDED * MOST_CELLS:
        raise SpecError(
            f"{where}: {whole:,} cells before [[exclude]], at most {_EXCLUDED * MOST_CELLS:,}; shorten an axis"
        )
    _check_twice(spec, where)


def _size(table: Mapping[str, Any]) -> int:
    return math.prod(len(listed(values)) for values in table.values())


def _per_setting(spec: Spec) -> int:
    """Cells for one ε and one combination of [key] and [grid]."""
    total = 0
    for host, source, mitigation in itertools.product(spec.hosts, spec.sources, spec.mitigations):
        parts = {"host": host, "source": source, "mitigation": mitigation}
        if not spec.excluded(parts):
            attacks = sum(_size(a) for a in spec.attacks if not spec.excluded({**parts, "attack": a}))
            cells = 1 if not spec.attacks else min(attacks, 1) if spec.measure in TOGETHER else attacks
            total += (cells + bool(spec.audit)) * _size(host) * _size(source) * _size(mitigation)
    return total


def _check_twice(spec: Spec, where: str) -> None:
    """A cell is there twice exactly if one of its parts is."""
    parts: dict[str, Iterable[Any]] = {
        "epsilon": spec.epsilon,
        "host": _all(spec.hosts),
        "[key]": expand(spec.key),
        "[grid]": expand(spec.grid),
        "source": _all(spec.sources),
        "mitigation": _all(spec.mitigations),
        "attack": _all(spec.attacks),
    }
    for name, values in parts.items():
        seen = set()
        for value in values:
            text = json.dumps(value, sort_keys=True)
            if text in seen:
                raise SpecError(f"{where}: {name} {text[:200]} is there twice; keep one (a label tells two apart)")
            seen.add(text)


def _all(tables: Iterable[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    return itertools.chain.from_iterable(map(expand, tables))
