"""From a KeyName to its properties, algorithm, ε and budget (Tang et al., Figure 3)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping

from dpaudit.findings import Finding
from dpaudit_local.apple.model import Configuration, Key, ResolvedKey
from dpaudit_local.apple.rules import (
    EPSILON_MAX,
    FALLBACK_EPSILON,
    MOST_RECORDS,
    NEVER_SUBMITTED,
)

__all__ = ["ALGORITHMS", "DEFAULT_PRIORITY", "resolve", "unresolved"]

ALGORITHMS = ("CountMedianSketch", "HadamardCountMedianSketch", "OneBitHistogram")
"""The PrivatizationAlgorithms whose records the paper shows (Figures 11 and 12)."""
DEFAULT_PRIORITY = 1
"""For a version without SubmissionPriority (macOS 10.12.1): Figure 5's value."""
_NAMED = 5
"""The most names that one finding lists; the rest is counted."""
_LONGEST_CHAIN = 16


def resolve(configuration: Configuration) -> tuple[ResolvedKey, ...]:
    """Every key that leads to properties and a budget, in the file's order.

    As the daemon runs it: a PrivacyParameter above 2 becomes 1, at SubmissionPriority 99999 (never
    submitted), and at most min(SessionAmount, 40) records of a key go into one report. The keys
    that are left out are in :func:`unresolved`.
    """
    resolved = []
    for key in configuration.keys.values():
        properties = configuration.properties.get(key.properties)
        budget = configuration.budgets.get(properties.budget) if properties else None
        if properties is None or budget is None:
            continue
        refused = properties.parameter > EPSILON_MAX
        own = DEFAULT_PRIORITY if properties.priority is None else properties.priority
        resolved.append(
            ResolvedKey(
                key=key,
                properties=properties,
                budget=budget,
                parameters=configuration.parameters.get(properties.server_algorithm or "", {}),
                epsilon=FALLBACK_EPSILON if refused else properties.parameter,
                priority=NEVER_SUBMITTED if refused else own,
                records_per_report=min(budget.session_amount, MOST_RECORDS),
            )
        )
    return tuple(resolved)


def unresolved(configuration: Configuration) -> tuple[Finding, ...]:
    """Why keys were left out of :func:`resolve`, and where the daemon departs from the files.

    Unknown PropertiesNames and BudgetKeyNames, names that lead back to a KeyName (also in a loop),
    PrivacyParameters that the daemon refuses, algorithms without known records, and server
    algorithms without parameters.
    """
    return (*_without_properties(configuration), *_about_properties(configuration))


def _without_properties(configuration: Configuration) -> Iterable[Finding]:
    without: dict[str, list[str]] = defaultdict(list)
    for key in configuration.keys.values():
        if key.properties not in configuration.properties:
            without[key.properties].append(key.name)
    for name, keys in without.items():
        chain = _chain(name, configuration.keys)
        if len(chain) == 1:
            why = f"{name!r} has no valid entry in keyproperties"
        elif chain[-1] in chain[:-1]:
            loop = " → ".join(chain[:_NAMED])
            why = f"PropertiesName {name!r} is a KeyName, and following it makes a loop: {loop}"
        else:
            why = f"PropertiesName {name!r} is a KeyName, not the name of properties"
        yield Finding(f"PropertiesName {name}", f"{why}; left out: {_listed(keys)}")


def _about_properties(configuration: Configuration) -> Iterable[Finding]:
    users: dict[str, list[str]] = defaultdict(list)
    for key in configuration.keys.values():
        users[key.properties].append(key.name)
    for properties in configuration.properties.values():
        where, keys = f"PropertiesName {properties.name}", users[properties.name]
        if properties.budget not in configuration.budgets:
            yield Finding(
                where,
                f"BudgetKeyName {properties.budget!r} has no valid entry in budgetproperties. The "
                "daemon may use its default budget, which the ledger does not assume; left out: "
                f"{_listed(keys)}",
            )
        if properties.parameter > EPSILON_MAX:
            yield Finding(
                where,
                f"PrivacyParameter={properties.parameter:g} exceeds epsilonMax = {EPSILON_MAX:g}: "
                f"the daemon uses {FALLBACK_EPSILON:g} and priority {NEVER_SUBMITTED}, so that no "
                f"record is submitted: {_listed(keys)}",
            )
        elif properties.priority is not None and properties.priority >= NEVER_SUBMITTED:
            yield Finding(
                where,
                f"SubmissionPriority={properties.priority}: the daemon submits nothing from "
                f"{NEVER_SUBMITTED} on, so the ledger counts nothing: {_listed(keys)}",
            )
        if properties.algorithm not in ALGORITHMS:
            unknown = f"PrivatizationAlgorithm {properties.algorithm!r} is unknown"
            yield Finding(where, f"{unknown}: its flip probability cannot be checked")
        server = properties.server_algorithm
        if server is not None and server not in configuration.parameters:
            yield Finding(where, f"ServerAlgorithmString {server!r} has no algorithmparameters")
        if not keys:
            yield Finding(where, "no KeyName uses these properties")


def _chain(name: str, keys: Mapping[str, Key]) -> list[str]:
    """A name and those that keynames leads to, up to one that is not a KeyName or repeats."""
    chain = [name]
    while chain[-1] in keys and chain[-1] not in chain[:-1] and len(chain) < _LONGEST_CHAIN:
        chain.append(keys[chain[-1]].properties)
    return chain


def _listed(names: list[str]) -> str:
    if not names:
        return "no key"
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more
