"""Results in a notebook, a small card with the verdict and the tests, and what ``print`` shows.

The card works on light and dark pages, is scoped by its class and variable names, has no script,
and is escaped like the page.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from dpaudit.errors import UsageError
from dpaudit.report import format as fmt
from dpaudit.report.badge import badge
from dpaudit.report.mechanism import bounds_table, mechanism_sentence
from dpaudit.report.proofs import (
    WORDS,
    coins_facts,
    determinism_sentence,
    law_table,
    profile_table,
    proof_sentence,
    verdict_of_proof,
)
from dpaudit.report.sentences import audit_sentence, sandbox_level
from dpaudit.report.tables import Column, sorted_tests, tests_table
from dpaudit.report.template import get_template
from dpaudit.results.text import one_line, printable
from dpaudit.types import (
    AttackResult,
    AuditResult,
    CellResult,
    DeterminismResult,
    MechanismResult,
    ProofResult,
    to_dict,
)

__all__ = ["parts_html", "printed", "repr_html"]

_MOST_ROWS = 12
_MOST_LINES = 8
_LONGEST = 20_000  # characters of a command


def printed(result: AuditResult | MechanismResult | ProofResult | DeterminismResult) -> str:
    """The verdict; then the findings and how to see them again, or what a pass cannot exclude."""
    if isinstance(result, ProofResult):
        return "\n".join([proof_sentence(result), _not_covered(result)])
    if isinstance(result, DeterminismResult):
        return "\n".join([determinism_sentence(result), _not_covered(result)])
    lines = [
        audit_sentence(result) if isinstance(result, AuditResult) else mechanism_sentence(result)
    ]
    found = [t for t in sorted_tests(result.tests) if t.finding]
    lines += [
        f"  {one_line(t.name, limit=100)}: {one_line(t.effect)} "
        f"(adjusted p {fmt.p_value(t.p_adjusted)})"
        for t in found[:_MOST_LINES]
    ]
    if len(found) > _MOST_LINES:
        lines.append(f"  and {len(found) - _MOST_LINES} more: see tests")
    again = next((t.reproduce for t in found if t.reproduce), "")
    if again:
        lines.append(f"To see it again: {one_line(again, limit=_LONGEST)}")
    if result.verdict == "no-finding" and result.cannot_rule_out:
        flaws = [one_line(spot.flaw, limit=200) for spot in result.cannot_rule_out]
        more = f"; and {len(flaws) - 3} more: see cannot_rule_out" if len(flaws) > 3 else ""
        lines.append(f"  Not excluded: {'; '.join(flaws[:3])}{more}")
    return "\n".join(lines)


def _not_covered(result: ProofResult | DeterminismResult) -> str:
    what = "; ".join(one_line(w, limit=200) for w in result.cannot_rule_out)
    return f"  Not covered: {what}" if what else ""


def repr_html(
    result: AuditResult
    | MechanismResult
    | ProofResult
    | DeterminismResult
    | AttackResult
    | CellResult,
) -> str:
    """A result as an HTML fragment of a few kB, the same for the same result.

    Raises:
        UsageError: it is of none of these types.
    """
    for kind, card in _CARDS.items():
        if isinstance(result, kind):
            return get_template("card.html.j2").render(card(result))
    raise UsageError(
        f"result={type(result).__name__}: must be an AuditResult, MechanismResult, ProofResult, "
        "DeterminismResult, AttackResult or CellResult"
    )


def parts_html(
    title: str,
    verdict: str,
    sentence: str,
    parts: Mapping[str, tuple[str, str]],
    *,
    notes: Sequence[str] = (),
) -> str:
    """A card of several audits: of each part its name, its verdict and a sentence."""
    columns = [
        Column("Part", [printable(name, limit=100) for name in parts]),
        Column("Verdict", [said for said, _ in parts.values()]),
        Column("In words", [printable(words) for _, words in parts.values()]),
    ]
    card = _card(printable(title, limit=120), verdict, printable(sentence), columns, notes=notes)
    return get_template("card.html.j2").render(card)


def _audit(result: AuditResult) -> dict[str, Any]:
    columns = [
        c for c in tests_table(result.tests) if c.header not in {"Looks at", "Statistic", "p"}
    ]
    title = f"Audit of {printable(result.sampler, limit=120)}"
    return _of_audit(result, title, audit_sentence(result), columns)


def _mechanism(result: MechanismResult) -> dict[str, Any]:
    columns = [
        c
        for c in bounds_table(result)
        if c.header in {"Test", "Shown", "Adjusted p", "Counted", "Finding"}
    ]
    title = f"ε audit of {printable(result.mechanism, limit=120)}"
    return _of_audit(result, title, mechanism_sentence(result), columns)


def _of_audit(
    result: AuditResult | MechanismResult, title: str, sentence: str, columns: Sequence[Column]
) -> dict[str, Any]:
    spots, verdict, level = result.cannot_rule_out, result.verdict, sandbox_level(result)
    room = f"A pass cannot exclude {len(spots)} kinds of flaw: see cannot_rule_out."
    notes = [room if spots and verdict != "finding" else "", f"Sandbox: {level}" if level else ""]
    return _card(title, verdict, sentence, columns, notes=list(filter(None, notes)))


def _proof(result: ProofResult) -> dict[str, Any]:
    title = f"Proof about {printable(result.program, limit=120)}"
    columns = profile_table(result) if result.profile else law_table(result)[:3]
    return _card(
        title,
        verdict_of_proof(result),
        proof_sentence(result),
        columns,
        notes=[_not_covered(result).strip()],
        word=WORDS[result.verdict],
    )


def _determinism(result: DeterminismResult) -> dict[str, Any]:
    title = f"Coins of {printable(result.symbol, limit=120)}"
    columns = coins_facts(result)[1]
    sentence, notes = determinism_sentence(result), [_not_covered(result).strip()]
    return _card(title, result.verdict, sentence, columns, notes=notes)


def _attack(result: AttackResult) -> dict[str, Any]:
    wins = result.interval.low > result.chance
    rate = fmt.proportion(result.success, result.interval.low, result.interval.high)
    trials = f"{fmt.count(result.successes)} of {fmt.count(result.trials)} correct"
    sentence = (
        f"The right candidate is identified in {rate} of releases "
        f"(guessing: {fmt.percent(result.chance)}; {trials})."
    )
    facts = [
        ("ε shown", fmt.bounds(result.epsilon_lower_bound)),
        ("L2 error", fmt.quantity(result.l2_error)),
        ("L2 error expected", fmt.quantity(result.l2_expected)),
    ]
    columns = [
        Column("What", [name for name, _ in facts]),
        Column("Value", [value for _, value in facts], True),
    ]
    title = f"Attack {printable(result.attack, limit=120)}"
    word = "Attack succeeds" if wins else "No better than chance"
    return _card(title, "finding" if wins else "no-finding", sentence, columns, word=word)


def _cell(result: CellResult) -> dict[str, Any]:
    pairs = [*to_dict(result.settings).items(), *to_dict(result.outcome).items()]
    plain = [
        (printable(k, limit=60), fmt.setting(v))
        for k, v in pairs
        if not isinstance(v, (Mapping, list))
    ]
    columns = [
        Column("What", [name for name, _ in plain]),
        Column("Value", [value for _, value in plain]),
    ]
    title = f"Cell {printable(result.cell, limit=120)}"
    kind = printable(result.kind, limit=60)
    sentence = f"A finished cell of kind {kind}, in {fmt.seconds(result.seconds)}."
    return _card(title, "inconclusive", sentence, columns, word="Measured")


def _card(
    title: str,
    verdict: str,
    sentence: str,
    columns: Sequence[Column],
    *,
    notes: Sequence[str] = (),
    word: str = "",
) -> dict[str, Any]:
    rows = len(columns[0].cells)
    return {
        "title": title,
        "badge": badge(verdict, sentence, word=word),
        "columns": [Column(c.header, c.cells[:_MOST_ROWS], c.numeric) for c in columns],
        "left_out": max(0, rows - _MOST_ROWS),
        "notes": notes,
    }


_CARDS: dict[type, Callable[[Any], dict[str, Any]]] = {
    AuditResult: _audit,
    MechanismResult: _mechanism,
    ProofResult: _proof,
    DeterminismResult: _determinism,
    AttackResult: _attack,
    CellResult: _cell,
}
