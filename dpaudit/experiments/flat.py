"""Flat rows and typed columns: what tables outside dpaudit can hold."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from dpaudit.types import to_dict

__all__ = ["Columns", "flat_rows", "flatten", "typed"]

Columns = dict[str, list[Any]]
_WORDS = ("inf", "-inf", "nan")
_LEAST, _MOST = -(2**63), 2**63 - 1


def flat_rows(document: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The ``rows`` of a ``results.json`` without nesting: an arm with several attacks becomes a row an attack.

    ``{value, low, high}`` under ``name`` becomes ``name``, ``name_low`` and ``name_high``; an ``interval`` beside ``success``
    likewise; other tables ``name_key``; lists JSON text. An arm's ``details`` are left out: they are for figures.
    """
    if document["kind"] != "experiment":
        return [flatten(row) for row in document["rows"]]
    found = []
    for row in document["rows"]:
        arm = flatten({**row.get("settings", {}), **{k: v for k, v in row.items() if k not in ("settings", "attacks")}})
        found += [{**arm, **flatten(_without(attack))} for attack in row["attacks"]] or [arm]
    return found


def _without(attack: Mapping[str, Any]) -> dict[str, Any]:
    return {k: v for k, v in attack.items() if k != "details"}


def flatten(row: Mapping[str, Any]) -> dict[str, Any]:
    """One row without nesting."""
    flat: dict[str, Any] = {}
    for name, value in row.items():
        if isinstance(value, Mapping):
            under = "success" if name == "interval" and "success" in row else name
            for key, inner in flatten(value).items():
                if under == "success" and name == "interval" and key not in ("low", "high"):
                    continue
                flat[under if key == "value" else f"{under}_{key}"] = inner
        elif isinstance(value, (list, tuple)):
            flat[name] = json.dumps(to_dict(value), ensure_ascii=False)
        else:
            flat[name] = value
    return flat


def typed(rows: Sequence[Mapping[str, Any]]) -> Columns:
    """Rows as columns of one type each, None where a row has no value: bool, int (64 bits), float or str.

    The words that stand for them in JSON become infinities and NaN in columns of numbers.
    """
    names = dict.fromkeys(name for row in rows for name in row)
    return {name: _column([row.get(name) for row in rows]) for name in names}


def _column(values: list[Any]) -> list[Any]:
    there = [v for v in values if v is not None]
    if all(isinstance(v, bool) for v in there):
        return values
    numbers = all(v in _WORDS if isinstance(v, str) else isinstance(v, (int, float)) for v in there)
    if not numbers or any(isinstance(v, bool) for v in there):
        return [v if v is None or isinstance(v, str) else json.dumps(to_dict(v)) for v in values]
    if all(isinstance(v, int) and _LEAST <= v <= _MOST for v in there):
        return values
    try:
        return [None if v is None else float(v) for v in values]
    except OverflowError:  # beyond any float: their digits
        return [None if v is None else str(v) for v in values]
