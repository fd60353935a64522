"""The four configuration files of ``dprivacyd`` as tables by name, and what each key leads to.

Source: Tang et al. 2017, section 3.2, Figures 3 to 7.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from dpaudit.errors import UsageError
from dpaudit.findings import Finding
from dpaudit_local.apple.model import Budget, Configuration, Key, Properties, ResolvedKey
from dpaudit_local.apple.plists import read_plist
from dpaudit_local.apple.quoting import path_text, quoted
from dpaudit_local.apple.rules import (
    EFFECTIVE_SESSION_SECONDS,
    EPSILON_MAX,
    FALLBACK_EPSILON,
    MOST_RECORDS,
    NEVER_SUBMITTED,
)

__all__ = ["FILES", "read_configuration", "resolve", "unresolved_findings"]

_MOST_TEXT = 80
_LARGEST = 2**63 - 1
"""The largest ``integerValue`` of an NSNumber."""


def whole(value: object) -> int | None:
    """A 64-bit whole number, also if written as a real (``<real>2</real>``); otherwise None.

    >>> whole(2), whole(2.0), whole(True), whole(2.5), whole(10**30)
    (2, 2, None, None, None)
    """
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    if isinstance(value, float) and not value.is_integer():  # nor infinite or NaN
        return None
    number = int(value)
    return number if abs(number) <= _LARGEST else None


class Entry:
    """Fields by name; errors go to ``report`` with ``where``, and a field that is read is known."""

    def __init__(
        self, fields: Mapping[str, Any], *, where: str, report: Callable[[Finding], None]
    ) -> None:
        self._fields, self.where, self._report = fields, where, report
        self._read_names: set[str] = set()

    def others(self) -> dict[str, Any]:
        """The fields that were never read."""
        return {name: value for name, value in self._fields.items() if name not in self._read_names}

    def add_finding(self, message: str, *, serious: bool = False) -> None:
        """Report a finding about this entry."""
        self._report(Finding(self.where, message, serious))

    def text(self, name: str, *, needed: bool = False) -> str | None:
        """A non-empty string, else None and a finding."""
        value = self._get(name, needed=needed)
        if isinstance(value, str) and value.strip():
            return value
        self._refuse(name, value, "must be a non-empty string", needed=needed)
        return None

    def integer(self, name: str, *, least: int | None = None, needed: bool = False) -> int | None:
        """A 64-bit whole number, at least ``least``, else None and a finding."""
        value = self._get(name, needed=needed)
        number = whole(value)
        if number is not None and (least is None or number >= least):
            return number
        rule = "must be a 64-bit whole number" + ("" if least is None else f", at least {least}")
        self._refuse(name, value, rule, needed=needed)
        return None

    def positive(
        self, name: str, *, least: float = 0, needed: bool = False, serious: bool = False
    ) -> float | None:
        """A finite number above 0 and at least ``least``, else None and a finding.

        With ``serious``, the finding is serious if the value is a number, but not such a number.
        """
        value = self._get(name, needed=needed)
        is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
        number = _as_float(value) if is_number else 0.0
        if 0 < number < math.inf and number >= least:
            return number
        rule = "must be a finite number " + (f"of at least {least:g}" if least else "above 0")
        self._refuse(name, value, rule, needed=needed, serious=serious and is_number)
        return None

    def flag(self, name: str) -> bool | None:
        """True or false, else None and a finding."""
        value = self._get(name, needed=False)
        if isinstance(value, bool):
            return value
        self._refuse(name, value, "must be true or false", needed=False)
        return None

    def table(self, name: str) -> Mapping[str, Any] | None:
        """A required dict, else None and a finding."""
        value = self._get(name, needed=True)
        if isinstance(value, dict):
            return value
        self._refuse(name, value, "must be a dict", needed=True)
        return None

    def _get(self, name: str, *, needed: bool) -> Any:
        self._read_names.add(name)
        value = self._fields.get(name)
        if value is None and needed:
            self.add_finding(f"{name} is missing; the entry is left out")
        return value

    def _refuse(
        self, name: str, value: object, rule: str, *, needed: bool, serious: bool = False
    ) -> None:
        if value is not None:  # a missing field has been reported
            omitted = "the entry" if needed else "the field"
            self.add_finding(
                f"{name}={_short(value)}: {rule}; {omitted} is left out", serious=serious
            )


def _as_float(value: int | float) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def _short(value: object) -> str:
    if isinstance(value, int) and abs(value) > 10**_MOST_TEXT:
        return f"an integer of {value.bit_length()} bits"
    if isinstance(value, (dict, list)):
        return f"a {type(value).__name__} of {len(value)}"
    text = repr(value)
    return text if len(text) <= _MOST_TEXT else text[: _MOST_TEXT - 1] + "…"


FILES = tuple(
    f"com.apple.dprivacyd.{table}.plist"
    for table in ("keynames", "keyproperties", "algorithmparameters", "budgetproperties")
)
"""Apple keeps them in ``/System/Library/DifferentialPrivacy/Configuration/``."""


def read_configuration(folder: Path) -> Configuration:
    """Read the four files of a folder; invalid entries are left out and reported in ``findings``.

    Each file is an array of dicts. An entry is left out if a required field is missing or has the
    wrong type or range (``true`` is not an integer; PrivacyParameter is finite and above 0,
    SessionSeconds at least 1; SessionAmount is a whole number of at least 0), or if two entries of
    one name differ, since nothing says which of them the daemon takes. A PrivacyParameter that is
    0, negative or not a number is serious: the daemon refuses only what exceeds 2, and with such a
    value a record may reveal anything.

    Raises:
        UsageError: the folder or one of its files cannot be read, is not a property list, or is not
            an array of dicts.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise UsageError(
            f"folder={path_text(folder)}: is not a folder; "
            f"give one with {FILES[0]} and the three others"
        )
    missing = [name for name in FILES if not (folder / name).exists()]
    if missing:
        raise UsageError(
            f"folder={path_text(folder)}: has no {', '.join(missing)}; "
            "must hold all four com.apple.dprivacyd files"
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
    path: Path,
    name_field: str,
    make: Callable[[str, Entry], Any],
    report: Callable[[Finding], None],
) -> dict[str, Any]:
    """Entries by name; of two equal entries one is kept, and two that differ are left out."""
    table: dict[str, Any] = {}
    refused: set[str] = set()
    for entry in _entries(path, report):
        name = entry.text(name_field, needed=True)
        if name is None:
            continue
        entry.where = f"{path.name}: {name}"
        row = make(name, entry)
        if row is None or name in refused:
            continue
        if name not in table:
            table[name] = row
        elif table[name] == row:
            entry.add_finding("is listed twice, identically")
        else:
            refused.add(name)
            del table[name]
            rest = "both are left out, as it is unknown which is used"
            entry.add_finding(f"is listed twice with different fields; {rest}", serious=True)
    return table


def _entries(path: Path, report: Callable[[Finding], None]) -> Iterator[Entry]:
    root = read_plist(path)
    if not isinstance(root, list):
        raise UsageError(
            f"file={path_text(path)}: holds a {type(root).__name__}; must be an array of dicts"
        )
    if root and not any(isinstance(value, dict) for value in root):
        raise UsageError(f"file={path_text(path)}: holds no dict; must be an array of dicts")
    if not root:
        report(Finding(path.name, "holds no entry"))
    for number, value in enumerate(root, 1):
        where = f"{path.name}: entry {number}"
        if isinstance(value, dict):
            yield Entry(value, where=where, report=report)
        else:
            report(Finding(where, f"is a {type(value).__name__}, not a dict; it is left out"))


def _key(name: str, entry: Entry) -> Key | None:
    properties = entry.text("PropertiesName", needed=True)
    _report_unknown(entry)
    return None if properties is None else Key(name, properties)


def _properties(name: str, entry: Entry) -> Properties | None:
    algorithm = entry.text("PrivatizationAlgorithm", needed=True)
    parameter = entry.positive("PrivacyParameter", needed=True, serious=True)
    budget = entry.text("BudgetKeyName", needed=True)
    data_algorithm = entry.text("DataAlgorithm")
    server_algorithm = entry.text("ServerAlgorithmString")
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
    _report_unknown(entry)
    if seconds is None or amount is None:
        return None
    if seconds not in EFFECTIVE_SESSION_SECONDS:
        entry.add_finding(
            f"SessionSeconds={seconds:g}: the daemon's periods are hard-coded, and values other "
            "than a day or a week had no effect when tried (Tang et al., 5.2); the ledger uses the "
            "file's value"
        )
    return Budget(name, seconds, amount)


def _parameters(_name: str, entry: Entry) -> Mapping[str, Any] | None:
    parameters = entry.table("AlgorithmParameters")
    _report_unknown(entry)
    return parameters


def _report_unknown(entry: Entry) -> None:
    for field in entry.others():
        entry.add_finding(f"the field {quoted(field)} is unknown to dpaudit and is left out")


ALGORITHMS = ("CountMedianSketch", "HadamardCountMedianSketch", "OneBitHistogram")
"""The PrivatizationAlgorithms whose records the paper shows (Figures 11 and 12)."""
DEFAULT_PRIORITY = 1
"""For a version without SubmissionPriority (macOS 10.12.1): Figure 5's value."""
_MOST_NAMES = 5
"""The most names that one finding lists; the rest is counted."""
_LONGEST_CHAIN = 16


def resolve(configuration: Configuration) -> tuple[ResolvedKey, ...]:
    """Every key that leads to properties and a budget, in the file's order.

    As the daemon runs it: a PrivacyParameter above 2 becomes 1, at SubmissionPriority 99999 (never
    submitted), and at most min(SessionAmount, 40) records of a key go into one report. The keys
    that are left out are in :func:`unresolved_findings`.
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


def unresolved_findings(configuration: Configuration) -> tuple[Finding, ...]:
    """Reasons why :func:`resolve` leaves keys out, and differences between daemon and files.

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
            loop = " → ".join(chain[:_MOST_NAMES])
            why = f"PropertiesName {name!r} is a KeyName, and following it makes a loop: {loop}"
        else:
            why = f"PropertiesName {name!r} is a KeyName, not the name of properties"
        yield Finding(f"PropertiesName {name}", f"{why}; left out: {_names_text(keys)}")


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
                f"{_names_text(keys)}",
            )
        if properties.parameter > EPSILON_MAX:
            yield Finding(
                where,
                f"PrivacyParameter={properties.parameter:g} exceeds epsilonMax = {EPSILON_MAX:g}: "
                f"the daemon uses {FALLBACK_EPSILON:g} and priority {NEVER_SUBMITTED}, so that no "
                f"record is submitted: {_names_text(keys)}",
            )
        elif properties.priority is not None and properties.priority >= NEVER_SUBMITTED:
            yield Finding(
                where,
                f"SubmissionPriority={properties.priority}: the daemon submits nothing from "
                f"{NEVER_SUBMITTED} on, so the ledger counts nothing: {_names_text(keys)}",
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


def _names_text(names: list[str]) -> str:
    if not names:
        return "no key"
    more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
    return ", ".join(names[:_MOST_NAMES]) + more
