"""The four configuration files of ``dprivacyd``, as tables by name (Tang et al. 2017, section 3.2, Figures 4 to 7)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from dpaudit.deployments.apple.configuration.entries import Entry
from dpaudit.deployments.apple.model import Budget, Configuration, Finding, Key, Properties
from dpaudit.deployments.apple.plists.reading import read_plist
from dpaudit.deployments.apple.quoting import path_text, quoted
from dpaudit.deployments.apple.rules import SEEN_SESSION_SECONDS
from dpaudit.errors import UsageError

__all__ = ["FILES", "read_configuration"]

FILES = tuple(
    f"com.apple.dprivacyd.{table}.plist"
    for table in ("keynames", "keyproperties", "algorithmparameters", "budgetproperties")
)
"""Apple keeps them in ``/System/Library/DifferentialPrivacy/Configuration/``."""


def read_configuration(folder: Path) -> Configuration:
    """Read the four files of a folder; entries that cannot be understood are left out and stand in ``findings``.

    Each file is an array of dicts. An entry is left out where a needed field is missing or has the wrong type or range
    (a ``true`` is no integer; PrivacyParameter is finite and above 0, SessionSeconds at least 1; SessionAmount is a whole
    number of at least 0), and where two entries of one name differ, since nothing says which of them the daemon takes.
    A PrivacyParameter that is 0, negative or not a number is serious: the daemon refuses only what exceeds 2, and such
    a coin may give away anything.

    Raises:
        UsageError: the folder or one of its files cannot be read, is no property list, or is not an array of dicts.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise UsageError(f"folder={path_text(folder)}: is no folder; give one with {FILES[0]} and the three others")
    missing = [name for name in FILES if not (folder / name).exists()]
    if missing:
        raise UsageError(
            f"folder={path_text(folder)}: has no {', '.join(missing)}; all four com.apple.dprivacyd files are needed"
        )
    findings: list[Finding] = []
    keys, properties, parameters, budgets = (
        _table(folder / name, name_field, make, findings.append)
        for name, name_field, make in zip(
            FILES,
            ("KeyName", "PropertiesName", "ServerAlgorithmString", "BudgetName"),
            (_key, _properties, _parameters, _budget),
            strict=True,
        )
    )
    return Configuration(folder, keys, properties, budgets, parameters, tuple(findings))


def _table(
    path: Path, name_field: str, make: Callable[[str, Entry], Any], report: Callable[[Finding], None]
) -> dict[str, Any]:
    """Entries by name; an entry twice is told once, and two that differ are both left out."""
    table: dict[str, Any] = {}
    refused: set[str] = set()
    for entry in _entries(path, report):
        name = entry.text(name_field, needed=True)
        if name is None:
            continue
        entry.where = f"{path.name}: {name}"
        made = make(name, entry)
        if made is None or name in refused:
            continue
        if name not in table:
            table[name] = made
        elif table[name] == made:
            entry.odd("is there twice, the same both times")
        else:
            refused.add(name)
            del table[name]
            entry.odd(
                "is there twice with different fields; both are left out, as it is open which is used", serious=True
            )
    return table


def _entries(path: Path, report: Callable[[Finding], None]) -> Iterator[Entry]:
    root = read_plist(path)
    if not isinstance(root, list):
        raise UsageError(f"file={path_text(path)}: holds a {type(root).__name__}; Apple's file is an array of dicts")
    if root and not any(isinstance(value, dict) for value in root):
        raise UsageError(f"file={path_text(path)}: holds no dict; Apple's file is an array of dicts")
    if not root:
        report(Finding(path.name, "holds no entry"))
    for number, value in enumerate(root, 1):
        where = f"{path.name}: entry {number}"
        if isinstance(value, dict):
            yield Entry(value, where=where, report=report)
        else:
            report(Finding(where, f"is a {type(value).__name__}, no dict; it is left out"))


def _key(name: str, entry: Entry) -> Key | None:
    properties = entry.text("PropertiesName", needed=True)
    _unknown(entry)
    return None if properties is None else Key(name, properties)


def _properties(name: str, entry: Entry) -> Properties | None:
    algorithm = entry.text("PrivatizationAlgorithm", needed=True)
    parameter = entry.positive("PrivacyParameter", needed=True, serious=True)
    budget = entry.text("BudgetKeyName", needed=True)
    data_algorithm, server_algorithm = entry.text("DataAlgorithm"), entry.text("ServerAlgorithmString")
    transport, priority = entry.text("Transport"), entry.integer("SubmissionPriority")
    patterns = entry.flag("KeyPatternsAllowed")
    width, count = entry.integer("FragmentWidth", least=1), entry.integer("FragmentCount", least=1)
    if algorithm is None or parameter is None or budget is None:
        return None
    return Properties(
        name=name,
        algorithm=algorithm,
        parameter=parameter,
        budget=budget,
        data_algorithm=data_algorithm,
        server_algorithm=server_algorithm,
        transport=transport,
        priority=priority,
        patterns_allowed=patterns,
        fragment_width=width,
        fragment_count=count,
        others=entry.others(),
    )


def _budget(name: str, entry: Entry) -> Budget | None:
    seconds = entry.positive("SessionSeconds", least=1, needed=True)
    amount = entry.integer("SessionAmount", least=0, needed=True)
    _unknown(entry)
    if seconds is None or amount is None:
        return None
    if seconds not in SEEN_SESSION_SECONDS:
        entry.odd(
            f"SessionSeconds={seconds:g}: the daemon's periods are hard-coded, and other values than a day or a week had "
            "no effect when they were tried (Tang et al., 5.2); the ledger takes the file at its word"
        )
    return Budget(name, seconds, amount)


def _parameters(_name: str, entry: Entry) -> Mapping[str, Any] | None:
    parameters = entry.table("AlgorithmParameters")
    _unknown(entry)
    return parameters


def _unknown(entry: Entry) -> None:
    for field in entry.others():
        entry.odd(f"the field {quoted(field)} is not known to dpaudit and is left out")
