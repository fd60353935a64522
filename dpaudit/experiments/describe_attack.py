"""What one attack on recorded releases reports."""

from __future__ import annotations

from dpaudit import wording
from dpaudit.codec import to_dict
from dpaudit.experiments.results import AttackResult
from dpaudit.report import Check, Column, Report, Section, Table

__all__ = ["describe"]


def describe(result: AttackResult) -> Report:
    """The report of an attack: how often it identified the right candidate."""
    wins = result.interval.low > result.chance
    rate = wording.proportion(result.success, result.interval.low, result.interval.high)
    trials = f"{wording.count(result.successes)} of {wording.count(result.trials)} correct"
    headline = (
        f"The right candidate is identified in {rate} of releases "
        f"(guessing: {wording.percent(result.chance)}; {trials})."
    )
    rows = (
        ("ε shown", wording.bounds(result.epsilon_lower_bound)),
        ("L2 error", wording.quantity(result.l2_error)),
        ("L2 error expected", wording.quantity(result.l2_expected)),
    )
    table = Table(
        columns=(
            Column("What", tuple(name for name, _ in rows)),
            Column("Value", tuple(value for _, value in rows), True),
        ),
        caption="What the attack shows",
        terminal=f"Attack {result.attack}",
    )
    check = Check(
        name=result.attack, outcome="finding" if wins else "pass", group="attacks", effect=headline
    )
    return Report(
        kind="attack",
        label="attack",
        subject=result.attack,
        title=f"Attack {result.attack}",
        verdict="finding" if wins else "no-finding",
        headline=headline,
        badge="Attack succeeds" if wins else "No better than chance",
        checks=(check,),
        sections=(Section(title="What was found", blocks=(table,)),),
        data=to_dict(result),
    )
