"""Differences between two configurations, as Tang et al. (2017) tabulate it in Table 3."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from dpaudit_local.apple.ledger import make_ledger
from dpaudit_local.apple.model import Budget, Configuration, Key, Properties

__all__ = ["Difference", "compare", "effect"]

PRESENT, ABSENT = "yes", "no"
_FIELDS = {
    "algorithm": "PrivatizationAlgorithm",
    "parameter": "PrivacyParameter",
    "budget": "BudgetKeyName",
    "data_algorithm": "DataAlgorithm",
    "server_algorithm": "ServerAlgorithmString",
    "transport": "Transport",
    "priority": "SubmissionPriority",
    "patterns_allowed": "KeyPatternsAllowed",
    "fragment_width": "FragmentWidth",
    "fragment_count": "FragmentCount",
}
"""Our names of Apple's fields of properties."""


@dataclass(frozen=True, slots=True)
class Difference:
    """One row: ``table`` is the file, ``name`` the entry ('': all), ``field`` the field or ''."""

    table: str
    name: str
    field: str
    old: str
    """As text; ``yes`` or ``no`` for something that is there or not."""
    new: str
    note: str = ""

    in_documents = ("what",)

    @property
    def what(self) -> str:
        """As in Table 3: ``SessionAmount for NewWords``, ``PropertiesName LocalWords``."""
        if not self.field:
            return f"{self.table} {self.name}"
        return f"{self.field} for {self.name}" if self.name else self.field


def compare(old: Configuration, new: Configuration) -> tuple[Difference, ...]:
    """Every difference between two configurations, sorted by table (budgets first), name and field.

    Two kinds of difference are one row instead of one per entry: a field that all entries of
    properties in one version have and none in the other (SubmissionPriority), and the KeyNames that
    come or go together with their properties (a note counts them).
    """
    differences = (
        *_entries("BudgetName", old.budgets, new.budgets, _budget_fields),
        *_properties(old, new),
        *_keys(old, new),
        *_entries("ServerAlgorithmString", old.parameters, new.parameters, dict),
    )
    order = ("BudgetName", "PropertiesName", "KeyName", "ServerAlgorithmString")
    return tuple(sorted(differences, key=lambda d: (order.index(d.table), d.name, d.field)))


def effect(old: Configuration, new: Configuration) -> str:
    """One sentence on how the permitted ε per day changes."""
    before, after = make_ledger(old), make_ledger(new)
    announced = _change(before.permitted.per_day, after.permitted.per_day)
    everything = _change(before.configured.per_day, after.configured.per_day)
    return (
        f"The permitted ε per day {announced} for the initially announced applications, "
        f"and {everything} with everything configured."
    )


def _change(old: float, new: float) -> str:
    if old == new:
        return f"stays {new:g}"
    return f"{'rises' if new > old else 'falls'} from {old:.4g} to {new:.4g} ({new - old:+.4g})"


def _budget_fields(budget: Budget) -> dict[str, Any]:
    return {"SessionAmount": budget.session_amount, "SessionSeconds": budget.session_seconds}


def _property_fields(properties: Properties) -> dict[str, Any]:
    named = {
        _FIELDS[f.name]: getattr(properties, f.name)
        for f in fields(properties)
        if f.name in _FIELDS
    }
    return {
        name: value for name, value in {**named, **properties.others}.items() if value is not None
    }


def _key_fields(key: Key) -> dict[str, Any]:
    return {"PropertiesName": key.properties}


def _properties(old: Configuration, new: Configuration) -> Iterator[Difference]:
    everywhere = _fields_of_all(old), _fields_of_all(new)
    anywhere = _fields_of_any(old), _fields_of_any(new)
    whole = (everywhere[0] - anywhere[1]) | (everywhere[1] - anywhere[0])
    for field in whole:
        there = field in everywhere[0], field in everywhere[1]
        yield Difference("PropertiesName", "", field, *(PRESENT if t else ABSENT for t in there))
    keys = [Counter(k.properties for k in c.keys.values()) for c in (old, new)]
    for difference in _entries("PropertiesName", old.properties, new.properties, _property_fields):
        if difference.field in whole:
            continue
        count = keys[difference.new == PRESENT][difference.name] if not difference.field else 0
        note = f"with {count} KeyName{'s' if count > 1 else ''}" if count else ""
        yield replace(difference, note=note)


def _fields_of_all(configuration: Configuration) -> set[str]:
    entries = [set(_property_fields(p)) for p in configuration.properties.values()]
    return set.intersection(*entries) if entries else set()


def _fields_of_any(configuration: Configuration) -> set[str]:
    return {field for p in configuration.properties.values() for field in _property_fields(p)}


def _keys(old: Configuration, new: Configuration) -> Iterator[Difference]:
    """KeyNames, except those that came or went with their properties."""
    for difference in _entries("KeyName", old.keys, new.keys, _key_fields):
        if not difference.field:
            here, there = (new, old) if difference.new == PRESENT else (old, new)
            properties = here.keys[difference.name].properties
            if properties in here.properties and properties not in there.properties:
                continue
        yield difference


def _entries(
    table: str,
    old: Mapping[str, Any],
    new: Mapping[str, Any],
    fields_of: Callable[[Any], Mapping[str, Any]],
) -> Iterator[Difference]:
    for name in old.keys() | new.keys():
        if (name in old) != (name in new):
            yield Difference(
                table, name, "", *(PRESENT if name in side else ABSENT for side in (old, new))
            )
            continue
        before, after = fields_of(old[name]), fields_of(new[name])
        for field in before.keys() | after.keys():
            was, is_now = _text(before.get(field)), _text(after.get(field))
            if was != is_now:
                yield Difference(table, name, field, was, is_now)


def _text(value: object) -> str:
    if value is None:
        return ABSENT
    return f"{value:.17g}" if isinstance(value, float) else str(value)
