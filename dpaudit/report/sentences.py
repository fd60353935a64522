"""The verdict in one sentence, for the top of the page and the terminal."""

from __future__ import annotations

from collections.abc import Sequence

from dpaudit.documents import Arm, ArmAttack, MeasurementsDocument
from dpaudit.report import format as fmt
from dpaudit.report.rows import (
    above_chance,
    arm_labels,
    attacks_of,
    chance_of,
    ends,
    exceeds_claim,
    has_key,
    rate_of,
    shown_by,
    shown_on,
)
from dpaudit.report.tables import sorted_tests
from dpaudit.results.text import printable
from dpaudit.types import AuditResult, CellFailure, MechanismResult

__all__ = [
    "audit_sentence",
    "experiment_sentence",
    "listed",
    "measurements_sentence",
    "sandbox_level",
    "strongest_attack",
]

_COMPUTED = "the noise can be computed"  # as a part of an audit's reason begins
_STOPPED = "stopped after"


def audit_sentence(result: AuditResult, *, rest: str = "below") -> str:
    """What an audit found, in one sentence; ``rest`` says where what a pass misses stands."""
    claim, values = printable(result.claim, limit=200), fmt.count(result.samples)
    if result.verdict == "no-finding":
        if not result.cannot_rule_out:
            rest = "unknown: no test stated what it would miss"
        return (
            f"No finding: nothing contradicts {claim} in {values} values; "
            f"what this cannot exclude is {rest}.{_computed(result)}"
        )
    if result.verdict == "finding":
        found = [t for t in sorted_tests(result.tests) if t.finding]
        names = listed([printable(t.name, limit=100) for t in found], word="and") or "the audit"
        verb = "contradict" if len(found) > 1 else "contradicts"
        smallest = min((t.p_adjusted for t in found), default=None)
        cause = f"{printable(result.cause, limit=200)}; " if result.cause else ""
        p = f"smallest adjusted p {fmt.p_value(smallest)}, " if found else ""
        return (
            f"Finding: {cause}{names} {verb} {claim} ({p}α {fmt.quantity(result.alpha)}, "
            f"{values} values).{_computed(result)}{_stopped_early(result)}"
        )
    reason = printable(result.reason or "no reason given", limit=600).rstrip(".")
    return f"Inconclusive: {reason}; this says nothing about {claim} either way."


def _computed(result: AuditResult) -> str:
    """What the reason says of noise that can be computed, as a sentence of its own."""
    parts = (part for part in result.reason.split("; ") if part.startswith(_COMPUTED))
    said = printable(next(parts, ""), limit=300)
    return f" {said[:1].upper()}{said[1:]}." if said else ""


def _stopped_early(result: AuditResult) -> str:
    parts = (part for part in result.reason.split("; ") if part.startswith(_STOPPED))
    said = printable(next(parts, ""), limit=300)
    return f" The audit {said}." if said else ""


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
        return f"No attack was run on any of the {len(rows):,} arms." + _audits(rows)
    beyond = [i for i in attacked if exceeds_claim(rows[i])]
    if beyond:
        passing = [i for i in beyond if _verdict(rows[i]) == "no-finding"]
        return _beyond_the_claim(rows, max(passing or beyond, key=lambda i: _strength(rows[i])))
    winning = [i for i in attacked if _wins(rows[i])]
    best = max(winning or attacked, key=lambda i: _strength(rows[i]))
    row, label = rows[best], arm_labels(rows)[best]
    arms = f" on any of the {len(attacked):,} arms" if len(attacked) > 1 else ""
    if not winning:
        rate = rate_of(strongest_attack(row))
        said = f"No attack beats chance{arms}: the highest is {rate} on {label} {_chance(row)}."
    else:
        shown = shown_on(row)
        bound = f"we can show ε {fmt.bounds(shown)}" if shown > 0 else "no ε above 0 is shown"
        said = (
            f"No attack shows more than the claimed ε{arms}. The strongest is on {label}: "
            f"{_holder(row, 'the')} {_success(row)}; {bound}, which is consistent with the claimed "
            f"ε = {fmt.epsilon(row.epsilon_claimed)}."
        )
    return said + _audits(rows)


def _beyond_the_claim(rows: Sequence[Arm], best: int) -> str:
    """An attack that shows more than the claimed ε, and what stops it."""
    row, label = rows[best], arm_labels(rows)[best]
    shown, claimed = fmt.bounds(shown_by(strongest_attack(row))), fmt.epsilon(row.epsilon_claimed)
    success = f"{_success(row)} and shows ε {shown}, where {claimed} is claimed"
    if _verdict(row) != "no-finding":
        audited = {
            "finding": "the black-box audit reports a finding",
            "inconclusive": "the black-box audit is inconclusive",
        }.get(_verdict(row) or "", "no black-box audit was run")
        return f"{label}: {_holder(row, 'the')} {success}; {audited}."
    stopped, short = _stopped(rows, row)
    what = "shows more than is claimed" if short else "beats chance"
    others = _other_sources(rows, row)
    where = "on it" if others else "here"
    ending = f"; with {listed(stopped, word='or')} no attack {where} {what}" if stopped else ""
    return (
        f"{label} passes the black-box audit, yet {_holder(row, 'its')} {success}{ending}.{others}"
    )


def _other_sources(rows: Sequence[Arm], row: Arm) -> str:
    """The arms of sources other than ``row``'s that an attack shows more of than is claimed."""
    found = [
        f"{label} ({rate_of(strongest_attack(other))})"
        for other, label in zip(rows, arm_labels(rows), strict=True)
        if other.source != row.source and exceeds_claim(other)
    ]
    return f" More than is claimed is also shown on {listed(found, word='and')}." if found else ""


def _holder(row: Arm, article: str) -> str:
    """Who attacks: the holder of a key where there is one."""
    if has_key(row, strongest_attack(row)):
        return f"{article} key holder"
    return "the attacker" if article == "the" else "an attacker"


def _success(row: Arm) -> str:
    attack = strongest_attack(row)
    trials = f" {fmt.count(attack.trials)}" if attack.trials else ""
    return f"identifies the right candidate in {rate_of(attack)} of{trials} releases {_chance(row)}"


def _chance(row: Arm) -> str:
    return f"(guessing: {fmt.percent(chance_of(strongest_attack(row))).replace('.0 %', ' %')})"


def strongest_attack(row: Arm) -> ArmAttack:
    """The attack that succeeds most often, of those that show more than is claimed if any does."""

    def rank(attack: ArmAttack) -> tuple[bool, float, float]:
        return exceeds_claim(row, attack), ends(attack)[0], attack.success

    return max(attacks_of(row), key=rank)


def _audits(rows: Sequence[Arm]) -> str:
    """What the black-box audits say, where no attack shows anything wrong."""
    found = [i for i, row in enumerate(rows) if _verdict(row) == "finding"]
    if found:
        labels = arm_labels(rows)
        names = listed([labels[i] for i in found], word="and")
        return f" The black-box audit reports a finding on {names}."
    return " No black-box audit was run." if all(row.audit is None for row in rows) else ""


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


def _stopped(rows: Sequence[Arm], worst: Arm) -> tuple[list[str], bool]:
    """Mitigations under which no attack on the same source shows more than is claimed.

    In any of their arms; and whether one of these attacks still beats chance.
    """
    results: dict[str, list[Arm]] = {}
    for row in rows:
        if row.source == worst.source and attacks_of(row) and row.mitigation != "none":
            results.setdefault(printable(row.mitigation, limit=100), []).append(row)
    kept = {name: arms for name, arms in results.items() if not any(map(exceeds_claim, arms))}
    return list(kept), any(_wins(row) for arms in kept.values() for row in arms)


def _wins(row: Arm) -> bool:
    return any(above_chance(a) for a in attacks_of(row))


def _strength(row: Arm) -> tuple[float, float]:
    """The lower end of the best attack's interval, and its success."""
    return ends(strongest_attack(row))[0], strongest_attack(row).success


def listed(names: Sequence[str], *, word: str) -> str:
    """Names as a phrase: ``a, b or c``; of more than five the first four."""
    if len(names) > 5:
        return f"{', '.join(names[:4])} {word} {len(names) - 4} others"
    return f" {word} ".join(filter(None, (", ".join(names[:-1]), *names[-1:])))
