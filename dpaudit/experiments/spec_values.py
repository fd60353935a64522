"""What values a spec may have: whole numbers in their range, finite ε, δ in [0, 1), tables of plain values."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

from dpaudit.errors import SpecError
from dpaudit.experiments.published import published_value
from dpaudit.registry import nearest
from dpaudit.results.foreign import RefusedError, shown

__all__ = ["check_plain", "check_values"]

_MOST_TRIALS = 1_000_000_000
_MOST_KEYS = 1_000_000
_AUDIT = ("samples", "alpha", "time_limit")
_TABLES = ("host", "key", "grid", "source", "mitigation", "attack", "exclude", "audit", "published", "column", "figure")
_WIDEST = 1 << 63
_MOST_TABLES = 1000
_MOST_DEPTH = 16


def check_plain(raw: Mapping[str, Any]) -> None:
    """Look at all values of a file before any of them has a meaning.

    Raises:
        RefusedError: a whole number beyond 64 bits, tables nested more than 16 deep, or a list of more than 1000 tables.
    """
    level: list[Any] = [raw]
    for _ in range(_MOST_DEPTH):
        inner = [v for c in level for v in (c.values() if isinstance(c, dict) else c)]
        wide = next((v for v in inner if isinstance(v, int) and not -_WIDEST <= v < _WIDEST), None)
        if wide is not None:
            raise RefusedError(f"the number {shown(wide)} must be within 64 bits")
        level = [v for v in inner if isinstance(v, (dict, list))]
        long = next((v for v in level if len(v) > _MOST_TABLES and any(isinstance(t, dict) for t in v)), None)
        if long is not None:
            raise RefusedError(f"a list has {len(long)} tables, at most {_MOST_TABLES}")
        if not level:
            return
    raise RefusedError(f"nested deeper than {_MOST_DEPTH}")


def check_values(raw: Mapping[str, Any], where: str) -> None:
    """Look at all values of a spec whose keys and their types are right.

    Raises:
        SpecError: with the key, its value, the rule, and ``spec=where`` in front.
    """

    def refuse(text: str) -> SpecError:
        return SpecError(f"spec={where}: {text}")

    if not raw.get("name"):
        raise refuse("name='' must say what the experiment is called")
    for key, most in (("trials", _MOST_TRIALS), ("keys", _MOST_KEYS)):
        value = raw.get(key, 1)
        if not 1 <= value <= most:
            raise refuse(f"{key}={value} must be at least 1 and at most {most:,}")
    for value in raw["epsilon"] if isinstance(raw["epsilon"], list) else [raw["epsilon"]]:
        if not _is_number(value) or not (value > 0 and math.isfinite(value)):
            raise refuse(f"epsilon={shown(value)} must be a finite number > 0")
    if not 0 <= raw["delta"] < 1:
        raise refuse(f"delta={raw['delta']!r} must be a number ≥ 0 and < 1")
    if (calibration := raw.get("calibration", "exact")) not in ("exact", "paper"):
        raise refuse(f"calibration={calibration!r} must be 'exact' or 'paper'")
    if raw.get("measure", "attack") == "attack" and not raw.get("attack"):
        raise refuse("attack=[] is an empty list; name at least one [[attack]]")
    for name in _TABLES:
        tables = raw.get(name, [])
        for table in tables if isinstance(tables, list) else [tables]:
            if not isinstance(table, Mapping):
                raise refuse(f"{name}={shown(table)} must be a table")
            try:
                _plain(table, name)
            except ValueError as error:
                raise refuse(str(error)) from error
    for name in ("host", "source", "mitigation", "attack"):
        for table in raw.get(name, []) if isinstance(raw.get(name, []), list) else [raw[name]]:
            if not isinstance(table.get("label", ""), str):
                raise refuse(f"{name} label={shown(table['label'])} must be text")
    _check_audit(raw.get("audit", {}), refuse)
    _check_published(raw.get("published", {}), raw.get("column", ()), refuse)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _plain(value: Any, name: str) -> None:
    if isinstance(value, Mapping):
        for key, inner in value.items():
            _plain(inner, f"{name} {key}")
    elif isinstance(value, list):
        for inner in value:
            _plain(inner, name)
    elif not isinstance(value, (str, int, float)):
        raise ValueError(f"{name}={value} must be text, a number, true or false; put dates in quotes")  # noqa: TRY004
    elif value != value:
        raise ValueError(f"{name}=nan is no number")


def _check_audit(audit: Mapping[str, Any], refuse: Any) -> None:
    for key, value in audit.items():
        if key not in _AUDIT:
            raise refuse(f"[audit] {key!r} is not known{nearest(key, _AUDIT)}")
        low, high = (0, 1) if key == "alpha" else (0, math.inf)
        if not _is_number(value) or not low < value < high:
            rule = "between 0 and 1" if key == "alpha" else "finite and above 0"
            raise refuse(f"[audit] {key}={shown(value)} must be a number {rule}")


def _check_published(published: Mapping[str, Any], columns: Any, refuse: Any) -> None:
    if not published:
        return
    for key, kind in (("file", (str, list)), ("on", dict), ("ours", str)):
        if not isinstance(published.get(key), kind):
            raise refuse(
                f"[published] {key}={shown(published.get(key))} must be given; see dpaudit/experiments/published.py"
            )
    if published["ours"] not in [column.get("key") for column in columns]:
        raise refuse(f"[published] ours={shown(published['ours'])} must be the key of a [[column]]")
    names = published["file"] if isinstance(published["file"], list) else [published["file"]]
    if not all(isinstance(name, str) and re.fullmatch(r"[\w-]+", name) for name in names):
        raise refuse(f"[published] file={shown(published['file'])} must be names as in dpaudit/studies/published")
    try:
        published_value(published, {})
    except SpecError:
        raise
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise refuse(f"[published] says nothing ({error}); see dpaudit/experiments/published.py") from error
