"""The verdict in one sentence, for the top of the page and the terminal."""

from __future__ import annotations

from collections.abc import Sequence

from dpaudit.documents import Arm, MeasurementsDocument
from dpaudit.report import format as fmt
from dpaudit.report.rows import (
    above_chance,
    arm_labels,
    attacks_of,
    best_attack,
    chance_of,
    rate_of,
)
from dpaudit.report.tables import sorted_tests
from dpaudit.results.text import printable
from dpaudit.types import AuditResult, CellFailure, MechanismResult

__all__ = ["audit_sentence", "experiment_sentence", "measurements_sentence", "sandbox_level"]


def audit_sentence(result: AuditResult) -> str:
    """What an audit found, in one sentence."""
    claim, values = printable(result.claim, limit=200), fmt.count(result.samples)
    if result.verdict == "no-finding":
        rest = "below" if result.cannot_rule_out else "unknown: no test stated what it would miss"
        return (
            f"No finding: nothing contradicts {claim} in {values} values; "
            f"what this cannot exclude is {rest}."
        )
    if result.verdict == "finding":
        found = [t for t in sorted_tests(result.tests) if t.finding]
        names = _listed([printable(t.name, limit=100) for t in found], word="and") or "the audit"
        verb = "contradict" if len(found) > 1 else "contradicts"
        p = f"smallest adjusted p {fmt.p_value(found[0].p_adjusted)}, " if found else ""
        return (
            f"Finding: {names} {verb} {claim} ({p}α {fmt.quantity(result.alpha)}, {values} values)."
        )
    reason = printable(result.reason or "no reason given", limit=600).rstrip(".")
    return f"Inconclusive: {reason}; this says nothing about {claim} either way."


def sandbox_level(result: AuditResult | MechanismResult) -> str:
    """The sandbox of the audited program, as the result states it; '' if it does not."""
    return printable(result.sandbox, limit=500)


def experiment_sentence(rows: Sequence[Arm], *, failures: Sequence[CellFailure] = ()) -> str:
    """The strongest attack on an arm that passed the black-box audit, and what stops it.

    Failed cells are named first, as the rest is then incomplete.
    """
    return _missing(failures) + _strongest(rows)


def _missing(failures: Sequence[CellFailure]) -> str:
    if not failures:
        return ""
    said = (
        "1 cell failed and is" if len(failures) == 1 else f"{len(failures):,} cells failed and are"
    )
    return f"Incomplete: {said} missing here. "


def _strongest(rows: Sequence[Arm]) -> str:
    attacked = [i for i, row in enumerate(rows) if attacks_of(row)]
    if not rows:
        return "No results yet: no arm of this experiment has finished."
    if not attacked:
        return (
            f"No attack was run on any of the {len(rows):,} arms; "
            "the table shows what the black-box audit found."
        )
    winning = [i for i in attacked if _wins(rows[i])]
    passing = [i for i in winning if _verdict(rows[i]) == "no-finding"]
    best = max(passing or winning or attacked, key=lambda i: _strength(rows[i]))
    row, label = rows[best], arm_labels(rows)[best]
    attack = best_attack(row)
    if attack is None:
        raise AssertionError("the best of the attacked arms has no attack")
    trials = f" {fmt.count(attack.trials)}" if attack.trials else ""
    rate = rate_of(attack)
    chance = f"guessing: {fmt.percent(chance_of(attack)).replace('.0 %', ' %')}"
    if not winning:
        return (
            f"No attack beats chance on any of the {len(attacked):,} arms: "
            f"the highest is {rate} on {label} ({chance})."
        )
    success = f"identifies the right candidate in {rate} of{trials} releases ({chance})"
    if not passing:
        audited = {
            "finding": "the black-box audit reports a finding",
            "inconclusive": "the black-box audit is inconclusive",
        }.get(_verdict(row) or "", "no black-box audit was run")
        return f"{label}: the key holder {success}, and {audited}."
    stopped = _stopped(rows, row)
    ending = f"; with {_listed(stopped, word='or')} no attack here beats chance" if stopped else ""
    return f"{label} passes the black-box audit, yet its key holder {success}{ending}."


def _verdict(row: Arm) -> str | None:
    return None if row.audit is None else row.audit.verdict


def measurements_sentence(document: MeasurementsDocument) -> str:
    """The experiment's own summary of its measurements; without one, their number."""
    missing, rows = _missing(document.failures), len(document.rows)
    if document.summary:
        return missing + printable(document.summary)
    if not rows:
        return f"{missing}No results yet: no measurement of this experiment has finished."
    noun = "measurement" if rows == 1 else "measurements"
    return f"{missing}{rows:,} {noun}; the experiment gives no summary."


def _stopped(rows: Sequence[Arm], worst: Arm) -> list[str]:
    """Mitigations under which no attack on the same source beats chance, in any of their arms."""
    results: dict[str, list[bool]] = {}
    for row in rows:
        if row.source == worst.source and attacks_of(row) and row.mitigation != "none":
            results.setdefault(printable(row.mitigation, limit=100), []).append(_wins(row))
    return [name for name, wins in results.items() if not any(wins)]


def _wins(row: Arm) -> bool:
    return any(above_chance(a) for a in attacks_of(row))


def _strength(row: Arm) -> tuple[float, float]:
    """The lower end of the best attack's interval, and its success."""
    attack = best_attack(row)
    if attack is None:
        return 0.0, 0.0
    low = fmt.number(attack.interval.low)
    return (0.0 if low is None else low, attack.success)


def _listed(names: Sequence[str], *, word: str) -> str:
    if len(names) > 5:
        return f"{', '.join(names[:4])} {word} {len(names) - 4} others"
    return f" {word} ".join(filter(None, (", ".join(names[:-1]), *names[-1:])))
