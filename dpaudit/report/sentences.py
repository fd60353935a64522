"""The verdict in one sentence, for the top of the page and the terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dpaudit.report import format as fmt
from dpaudit.report.rows import Row, above_chance, arm_labels, attacks_of, best_attack, chance_of
from dpaudit.report.tables import sorted_tests
from dpaudit.results.text import printable

__all__ = ["audit_sentence", "experiment_sentence", "failures_of", "measurements_sentence", "sandbox_level"]


def audit_sentence(result: Mapping[str, Any]) -> str:
    """What an audit found, in one sentence."""
    claim, values = printable(result.get("claim", "the claim"), limit=200), fmt.count(result.get("samples"))
    match result.get("verdict"):
        case "no-finding":
            rest = "below" if result.get("cannot_rule_out") else "unknown: no test stated what it would miss"
            return f"No finding: nothing contradicts {claim} in {values} values; what this cannot exclude is {rest}."
        case "finding":
            found = [t for t in sorted_tests(result) if t.get("finding")]
            names = _listed([printable(t.get("name"), limit=100) for t in found], word="and") or "the audit"
            verb = "contradict" if len(found) > 1 else "contradicts"
            p = f"smallest adjusted p {fmt.p_value(found[0].get('p_adjusted'))}, " if found else ""
            return f"Finding: {names} {verb} {claim} ({p}α {fmt.quantity(result.get('alpha'))}, {values} values)."
        case "inconclusive":
            reason = printable(result.get("reason") or "no reason given", limit=600).rstrip(".")
            return f"Inconclusive: {reason}; this says nothing about {claim} either way."
        case other:
            return f"No verdict: the result says {printable(other, limit=60)!r}."


def sandbox_level(result: Mapping[str, Any]) -> str:
    """How the audited program was held, as the result says it; '' where it does not, as in documents of before."""
    return printable(result.get("sandbox") or "", limit=500)


def failures_of(document: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The cells of an experiment that failed; none where the document does not say."""
    failures = document.get("failures")
    return [f for f in failures if isinstance(f, Mapping)] if isinstance(failures, (list, tuple)) else []


def experiment_sentence(rows: Sequence[Row], *, failures: Sequence[Mapping[str, Any]] = ()) -> str:
    """What the arms show together: the strongest attack on an arm that passed as a black box, and what stops it.

    Cells that failed are said first: what is told of the others is not the whole.
    """
    return _missing(failures) + _told(rows)


def _missing(failures: Sequence[Mapping[str, Any]]) -> str:
    if not failures:
        return ""
    said = "1 cell failed and is" if len(failures) == 1 else f"{len(failures):,} cells failed and are"
    return f"Incomplete: {said} missing here. "


def _told(rows: Sequence[Row]) -> str:
    attacked = [i for i, row in enumerate(rows) if attacks_of(row)]
    if not rows:
        return "Nothing yet: no arm of this experiment has finished."
    if not attacked:
        return f"No attack was run on any of the {len(rows):,} arms; the table says what the black-box audit found."
    winning = [i for i in attacked if _wins(rows[i])]
    passing = [i for i in winning if (rows[i].get("audit") or {}).get("verdict") == "no-finding"]
    best = max(passing or winning or attacked, key=lambda i: _strength(rows[i]))
    row, label = rows[best], arm_labels(rows)[best]
    attack = best_attack(row) or {}
    trials = f" {fmt.count(attack['trials'])}" if attack.get("trials") else ""
    rate = fmt.proportion(attack.get("success"), interval=attack.get("interval"))
    chance = f"guessing: {fmt.percent(chance_of(attack)).replace('.0 %', ' %')}"
    if not winning:
        return (
            f"No attack beats chance on any of the {len(attacked):,} arms: the highest is {rate} on {label} ({chance})."
        )
    named = f"names the right candidate in {rate} of{trials} releases ({chance})"
    if not passing:
        verdict = (row.get("audit") or {}).get("verdict")
        seen = "the black-box audit does find it" if verdict == "finding" else "no black-box audit cleared it"
        return f"{label}: the key holder {named}, and {seen}."
    stopped = _stopped(rows, row)
    ending = f"; with {_listed(stopped, word='or')} no attack here beats chance" if stopped else ""
    return f"{label} passes the black-box audit, yet its key holder {named}{ending}."


def measurements_sentence(document: Mapping[str, Any]) -> str:
    """What the experiment itself says its measurements show; without that, how many there are."""
    said, missing = document.get("summary"), _missing(failures_of(document))
    if said:
        return missing + printable(said)
    rows = len(document.get("rows") or ())
    if not rows:
        return f"{missing}Nothing yet: no measurement of this experiment has finished."
    return (
        f"{missing}{rows:,} {'measurement' if rows == 1 else 'measurements'}; the experiment gives no summary of them."
    )


def _stopped(rows: Sequence[Row], worst: Row) -> list[str]:
    """Mitigations under which no attack on the same source beats chance, in any of their arms."""
    if worst.get("source") is None:
        return []
    results: dict[str, list[bool]] = {}
    for row in rows:
        if row.get("source") == worst["source"] and attacks_of(row) and row.get("mitigation") not in {None, "none"}:
            results.setdefault(printable(row["mitigation"], limit=100), []).append(_wins(row))
    return [name for name, wins in results.items() if not any(wins)]


def _wins(row: Row) -> bool:
    return any(above_chance(a) for a in attacks_of(row))


def _strength(row: Row) -> tuple[float, float]:
    attack = best_attack(row) or {}
    low = fmt.number((attack.get("interval") or {}).get("low"))
    return (0.0 if low is None else low, fmt.number(attack.get("success")) or 0.0)


def _listed(names: Sequence[str], *, word: str) -> str:
    if len(names) > 5:
        return f"{', '.join(names[:4])} {word} {len(names) - 4} others"
    return f" {word} ".join(filter(None, (", ".join(names[:-1]), *names[-1:])))
