"""What one attack reports, and an experiment whose rows are arms under attack."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from dpaudit import wording
from dpaudit.codec import to_dict
from dpaudit.experiments.arm_reading import (
    above_chance,
    arm_labels,
    attacks_of,
    best_attack,
    chance_of,
    ends,
    exceeds_claim,
    group_of,
    has_key,
    keys_in,
    rate_of,
    shared_settings,
    shown_by,
    shown_on,
    strongest_attack,
    success_allowed,
)
from dpaudit.experiments.describe_cells import report_of, with_record
from dpaudit.experiments.results import (
    Arm,
    ArmAttack,
    ArmAudit,
    AttackResult,
    ExperimentResult,
)
from dpaudit.harms import ALGORITHMS, PARAMETERS, SIDE_CHANNELS, TRUST, UNIT, Pyramid
from dpaudit.report import (
    Axis,
    Chart,
    Check,
    Column,
    Hazard,
    Line,
    Mark,
    Meaning,
    Panel,
    Report,
    Section,
    Series,
    Table,
    Text,
)
from dpaudit.types import Verdict

__all__ = ["describe", "describe_attack"]

_MOST_ARMS = 4  # that the meaning names one by one
_MOST_ROWS = 24  # of the chart of successes; more arms share a row per source and mitigation
_VERDICTS = {"no-finding": "no finding", "finding": "finding", "inconclusive": "inconclusive"}
_MARKS_SAY = (
    "Filled: the attack shows more than the claimed ε. Hollow: it does not; it may beat chance "
    "(dashed) as far as the claim allows."
)


def describe(result: ExperimentResult) -> Report:
    """The report of an experiment whose rows are arms under attack."""
    rows, failed = result.rows, bool(result.failures)
    beyond = any(map(exceeds_claim, rows))
    attacked = any(attacks_of(row) for row in rows)
    verdict: Verdict = "no-finding" if attacked and not failed else "inconclusive"
    return report_of(
        result,
        verdict="finding" if beyond else verdict,
        headline=_strongest(rows),
        badge=_badge(rows, failed=failed, beyond=beyond),
        meaning=tuple(_meaning(rows)),
        sections=with_record(result, _sections(result)),
        hazards=_hazards(rows),
    )


def describe_attack(result: AttackResult) -> Report:
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


def _badge(rows: Sequence[Arm], *, failed: bool, beyond: bool) -> str:
    """The badge of an experiment: its result, and that it is incomplete if cells failed."""
    if not rows:
        return "No results yet"
    if failed:
        return "Attack succeeds, incomplete" if beyond else "Incomplete"
    attacks = [a for row in rows for a in attacks_of(row)]
    if beyond or not attacks:
        return "Attack succeeds" if beyond else "No attack run"
    return "Within the claim" if any(map(above_chance, attacks)) else "Attacks fail"


def _sections(result: ExperimentResult) -> Iterable[Section]:
    rows = result.rows
    charts = [c for c in (_successes_chart(rows), _phases_chart(rows), _error_chart(rows)) if c]
    figures = Section(title="Figures", blocks=tuple(charts))
    many = len(rows) > _MOST_ROWS
    if many and charts:
        yield figures
    if rows:
        yield Section(title="What was found", blocks=tuple(_results(result)))
    if charts and not many:
        yield figures


def _results(result: ExperimentResult) -> Iterable[Table | Text]:
    rows = result.rows
    table = _summary_table(rows)
    yield Table(
        columns=table,
        caption="One row per arm; bold: an attack shows more than the claimed ε",
        marked=tuple(map(exceeds_claim, rows)),
        terminal=result.title or result.name or "Experiment",
    )
    if any(c.header == "ε shown by attack" for c in table):
        yield Text(
            "The ε shown by an attack is a lower bound that holds with 95 % confidence, for each "
            "attack on its own.",
            "note",
        )
    settings = shared_settings(rows)
    for name, everywhere in (("All arms", True), ("Some arms", False)):
        if said := ", ".join(f"{n} {v}" for n, v, in_all in settings if in_all == everywhere):
            yield Text(f"{name}: {said}.", "note")


def _summary_table(rows: Sequence[Arm]) -> tuple[Column, ...]:
    """An experiment's arms: the black-box audit, the attacker's success, and the error.

    Several attacks on one arm take a line each, with their names. Empty columns are left out.
    """
    names = {a.attack for row in rows for a in attacks_of(row)}
    confidences = {a.interval.confidence for row in rows for a in attacks_of(row)}
    only = wording.number(confidences.pop()) if len(confidences) == 1 else None
    interval = f"[{100 * only:g} % interval]" if only else "[interval]"
    keyed = keys_in(rows)
    who = "Key holder’s" if keyed else "Attacker’s"
    successes = tuple(_successes(row, named=len(names) > 1, narrow=True) for row in rows)
    columns = (
        Column("Arm", tuple(arm_labels(rows))),
        Column("Black-box audit", tuple(_black_box(row.audit) for row in rows)),
        Column(f"{who} success\n{interval}", successes, True),
        Column("ε claimed", tuple(wording.epsilon(r.epsilon_claimed) for r in rows), True),
        Column("ε to key holder" if keyed else "ε by theory", tuple(map(_known, rows)), True),
        Column("ε shown by attack", tuple(map(_shown_text, rows)), True, terminal=False),
        Column("L2 error", tuple(map(_error, rows)), True),
    )
    return tuple(
        c
        for i, c in enumerate(columns)
        if i < 3 or any(cell != wording.NOTHING for cell in c.cells)
    )


def _strongest(rows: Sequence[Arm]) -> str:
    attacked = [i for i, row in enumerate(rows) if attacks_of(row)]
    if not rows:
        return "No results yet: no arm of this experiment has finished."
    if not attacked:
        return f"No attack was run on any of the {len(rows):,} arms." + _audits(rows)
    beyond = [i for i in attacked if exceeds_claim(rows[i])]
    if beyond:
        passing = [i for i in beyond if _verdict(rows[i]) == "no-finding"]
        return _beyond_the_claim(rows, max(passing or beyond, key=lambda i: _rank(rows[i])))
    winning = [i for i in attacked if _wins(rows[i])]
    best = max(winning or attacked, key=lambda i: _rank(rows[i]))
    row, label = rows[best], arm_labels(rows)[best]
    arms = f" on any of the {len(attacked):,} arms" if len(attacked) > 1 else ""
    if not winning:
        rate = rate_of(strongest_attack(row))
        said = f"No attack beats chance{arms}: the highest is {rate} on {label} {_chance(row)}."
    else:
        shown = shown_on(row)
        bound = f"we can show ε {wording.bounds(shown)}" if shown > 0 else "no ε above 0 is shown"
        said = (
            f"No attack shows more than the claimed ε{arms}. The strongest is on {label}: "
            f"{_holder(row, 'the')} {_success(row)}; {bound}, which is consistent with the claimed "
            f"ε = {wording.epsilon(row.epsilon_claimed)}."
        )
    return said + _audits(rows)


def _beyond_the_claim(rows: Sequence[Arm], best: int) -> str:
    """An attack that shows more than the claimed ε, and what stops it."""
    row, label = rows[best], arm_labels(rows)[best]
    shown, claimed = (
        wording.bounds(shown_by(strongest_attack(row))),
        wording.epsilon(row.epsilon_claimed),
    )
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
    ending = (
        f"; with {wording.listed(stopped, word='or')} no attack {where} {what}" if stopped else ""
    )
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
    return (
        f" More than is claimed is also shown on {wording.listed(found, word='and')}."
        if found
        else ""
    )


def _holder(row: Arm, article: str) -> str:
    """Who attacks: the holder of a key where there is one."""
    if has_key(row, strongest_attack(row)):
        return f"{article} key holder"
    return "the attacker" if article == "the" else "an attacker"


def _success(row: Arm) -> str:
    attack = strongest_attack(row)
    trials = f" {wording.count(attack.trials)}" if attack.trials else ""
    return f"identifies the right candidate in {rate_of(attack)} of{trials} releases {_chance(row)}"


def _chance(row: Arm) -> str:
    return f"(guessing: {wording.percent(chance_of(strongest_attack(row))).replace('.0 %', ' %')})"


def _audits(rows: Sequence[Arm]) -> str:
    """What the black-box audits say, where no attack shows anything wrong."""
    found = [i for i, row in enumerate(rows) if _verdict(row) == "finding"]
    if found:
        labels = arm_labels(rows)
        names = wording.listed([labels[i] for i in found], word="and")
        return f" The black-box audit reports a finding on {names}."
    return " No black-box audit was run." if all(row.audit is None for row in rows) else ""


def _verdict(row: Arm) -> str | None:
    return None if row.audit is None else row.audit.verdict


def _stopped(rows: Sequence[Arm], worst: Arm) -> tuple[list[str], bool]:
    """Mitigations under which no attack on the same source shows more than is claimed.

    In any of their arms; and whether one of these attacks still beats chance.
    """
    results: dict[str, list[Arm]] = {}
    for row in rows:
        if row.source == worst.source and attacks_of(row) and row.mitigation != "none":
            results.setdefault(row.mitigation, []).append(row)
    kept = {name: arms for name, arms in results.items() if not any(map(exceeds_claim, arms))}
    return list(kept), any(_wins(row) for arms in kept.values() for row in arms)


def _wins(row: Arm) -> bool:
    return any(above_chance(a) for a in attacks_of(row))


def _rank(row: Arm) -> tuple[float, float]:
    """The lower end of the best attack's interval, and its success."""
    return ends(strongest_attack(row))[0], strongest_attack(row).success


def _black_box(audit: ArmAudit | None) -> str:
    if audit is None:
        return "not run"
    smallest = wording.p_value(audit.smallest_p)
    text = _VERDICTS[audit.verdict]
    return text if smallest == wording.NOTHING else f"{text}\nsmallest p {smallest}"


def _successes(row: Arm, *, named: bool, narrow: bool) -> str:
    end = "\n" if narrow else " "
    lines = [(a.attack + end if named else "") + rate_of(a) for a in attacks_of(row)]
    return "\n".join(lines) or "not attacked"


def _known(row: Arm) -> str:
    return wording.bounds(row.epsilon_key_holder.low, row.epsilon_key_holder.high)


def _shown_text(row: Arm) -> str:
    shown = shown_on(row)
    return wording.bounds(shown) if shown > 0 else wording.NOTHING


def _error(row: Arm) -> str:
    measured, expected = wording.quantity(row.l2_error), wording.quantity(row.l2_expected)
    return (
        measured
        if wording.NOTHING in {measured, expected}
        else f"{measured}\n(expected {expected})"
    )


def _meaning(rows: Sequence[Arm]) -> list[Meaning]:
    """What the attacks of an experiment mean, arm by arm where they show too much."""
    attacked = [row for row in rows if attacks_of(row)]
    if not attacked:
        return []
    stopped = not all(map(exceeds_claim, attacked))
    meanings = [
        _of_attack(row, label, stopped=stopped)
        for row, label in zip(rows, arm_labels(rows), strict=True)
        if exceeds_claim(row)
    ]
    if len(meanings) > _MOST_ARMS:
        more = f"{len(meanings) - _MOST_ARMS:,} more arms show more than is claimed: see the table."
        meanings = [*meanings[:_MOST_ARMS], Meaning(heading="More of the same", says=more)]
    if meanings:
        return meanings
    if any(above_chance(a) for row in attacked for a in attacks_of(row)):
        row = max(attacked, key=shown_on)
        allowed = success_allowed(row)
        claimed = wording.epsilon(row.epsilon_claimed)
        best = rate_of(strongest_attack(row))
        limit = "this" if allowed is None else f"up to {wording.percent(allowed)}"
        says = (
            f"An attack is right in {best} of releases and a claimed ε = {claimed} allows {limit}, "
            "so nothing here contradicts the claim. If that is too much for the people in the "
            "data, choose a smaller ε."
        )
        return [Meaning(heading="Attacks gain no more than the claim permits", says=says)]
    says = (
        "None of the attacks tried here is better than guessing, on any arm. Other attacks may be "
        "better: the bounds of ε in the table, where there are any, hold against all of them."
    )
    return [Meaning(heading="No attack tried here works", says=says)]


def _of_attack(row: Arm, label: str, *, stopped: bool) -> Meaning:
    attack, allowed = strongest_attack(row), success_allowed(row)
    who = "The key holder" if has_key(row, attack) else "An attacker"
    right = f"{who} names the right one of two data sets in {rate_of(attack)} of releases"
    if allowed is not None:
        right += f", where the claimed ε = {wording.epsilon(row.epsilon_claimed)} allows "
        right += f"{wording.percent(allowed)} at most"
    sure = 100 * attack.interval.confidence
    todo = "Do not use this noise as it is"
    if stopped:
        todo += ": on other arms of this page no attack shows more than the claim"
    says = f"{right}; the interval holds with {sure:.3g} % confidence. {todo}."
    return Meaning(heading=f"More than claimed is read from {label}", says=says)


def _hazards(rows: Sequence[Arm]) -> tuple[Hazard, ...]:
    """The NIST components: the arms on which an attack shows more than the claimed ε."""
    pyramid, labels = Pyramid(), arm_labels(rows)
    beyond = [label for label, row in zip(labels, rows, strict=True) if exceeds_claim(row)]
    if beyond:
        names = wording.listed(beyond, word="and")
        component = TRUST if keys_in(rows) else ALGORITHMS
        pyramid.add(component, f"more than the claimed ε is shown on {names}")
    if any(attacks_of(row) for row in rows):
        pyramid.leave_open(ALGORITHMS, "attacks that were not tried")
    pyramid.leave_open(PARAMETERS, "whether the claimed ε is small enough")
    pyramid.leave_open(UNIT, "whether neighbours differ in all data of one person")
    pyramid.leave_open(SIDE_CHANNELS, "whatever is not in a release, such as time")
    return pyramid.hazards()


def _successes_chart(rows: Sequence[Arm]) -> Chart | None:
    """Success with its interval per arm; many arms share a strip per source and mitigation."""
    attacked = [
        (label, row) for label, row in zip(arm_labels(rows), rows, strict=True) if attacks_of(row)
    ]
    if not attacked:
        return None
    who = "Key holder’s" if keys_in(rows) else "Attacker’s"
    strips = len(attacked) > _MOST_ROWS
    lines: dict[str, list[tuple[str, Arm]]] = {}
    for i, (label, row) in enumerate(attacked):
        lines.setdefault(group_of(row) if strips else f"{i}\n{label}", []).append((label, row))
    drawn = list(lines.values())[:_MOST_ROWS]
    names = [name.partition("\n")[2] or name for name in lines][:_MOST_ROWS]
    attacks = list(dict.fromkeys(a.attack for _, row in attacked for a in attacks_of(row)))
    several = len(attacks) > 1
    series = []
    for k, attack in enumerate(attacks):
        shift = (k - (len(attacks) - 1) / 2) * 0.5 / len(attacks)
        marks = tuple(
            _success_mark(row, a, y + shift, label + (f", {attack}" if several else ""))
            for y, line in enumerate(drawn)
            for label, row in line
            for a in attacks_of(row)
            if a.attack == attack
        )
        group = k if several else None
        series.append(Series(marks=marks, group=group, legend=attack if several else ""))
    every = [a for line in drawn for _, row in line for a in attacks_of(row)]
    low, high = _share_range([end for a in every for end in ends(a)])
    listed = _first([f"{label} {rate_of(a)}" for label, row in attacked if (a := best_attack(row))])
    caption = f"Success with its interval. {_MARKS_SAY}"
    if strips:
        count = wording.count(len(attacked))
        caption += f" Each mark is one of {count} arms, grouped by source and mitigation."
    if len(lines) > len(drawn):
        caption += (
            f" The first {_MOST_ROWS} of {wording.count(len(lines))} groups are drawn; all are in "
            "the table."
        )
    return Chart(
        kind="rows",
        title=f"{who} success",
        caption=caption,
        alt=f"{who} success by arm: {listed}.",
        panels=(Panel(series=tuple(series), lines=_guessing(every, vertical=True)),),
        x=Axis(
            label=f"{who.lower()} success: right candidate identified",
            form="proportion",
            low=low,
            high=high,
        ),
        y=Axis(categories=tuple(names)),
    )


def _success_mark(row: Arm, attack: ArmAttack, y: float, name: str) -> Mark:
    low, high = ends(attack)
    beyond = exceeds_claim(row, attack)
    return Mark(
        x=attack.success,
        y=y,
        low=low,
        high=high,
        name=name,
        says=rate_of(attack),
        filled=beyond,
        alarm=beyond,
    )


def _first(arms: Sequence[str]) -> str:
    """What a chart says of the first twelve arms in words."""
    more = f"; and {len(arms) - 12} more arms, in the table" if len(arms) > 12 else ""
    return "; ".join(arms[:12]) + more


def _guessing(attacks: Iterable[ArmAttack], *, vertical: bool = False) -> tuple[Line, ...]:
    """Lines at the success of guessing, at most five."""
    return tuple(Line(at=c, vertical=vertical) for c in sorted(set(map(chance_of, attacks)))[:5])


def _share_range(shares: Sequence[float]) -> tuple[float, float]:
    """An axis of shares: up to 100 %, down to just below chance or the least share."""
    return max(-0.02, min(0.45, min(shares) - 0.03)), 1.02


def _error_chart(rows: Sequence[Arm]) -> Chart | None:
    """What a defence costs (L2 error) against what it leaves to the attacker."""
    points = [
        (label, error, attack, exceeds_claim(row, attack))
        for label, row in zip(arm_labels(rows), rows, strict=True)
        if (error := wording.number(row.l2_error)) is not None
        and 0 < error < math.inf
        and (attack := best_attack(row))
    ]
    if len(points) < 3:
        return None
    who = "key holder’s" if keys_in(rows) else "attacker’s"
    errors = [error for _, error, _, _ in points]
    low, high = _share_range([a.success for _, _, a, _ in points])
    series = tuple(
        Series(
            marks=(
                Mark(
                    x=error,
                    y=attack.success,
                    name=label,
                    says=f"error {wording.quantity(error)}, success {rate_of(attack)}",
                    filled=beyond,
                    alarm=beyond,
                ),
            ),
        )
        for label, error, attack, beyond in points
    )
    listed = _first(
        [f"{n} error {e:,.4g}, success {wording.percent(a.success)}" for n, e, a, _ in points]
    )
    return Chart(
        kind="plot",
        title="Error against protection",
        caption="Error against protection: a defence at the lower left protects and costs little. "
        f"{_MARKS_SAY}",
        alt=f"L2 error against the {who} success: {listed}.",
        panels=(Panel(series=series, lines=_guessing(a for _, _, a, _ in points)),),
        x=Axis(
            label="L2 error of the release (left is better)", log=max(errors) / min(errors) > 20
        ),
        y=Axis(label=f"{who} success", form="proportion", low=low, high=high),
        names=len(points) <= 12,
    )


_MOST_PHASES, _MOST_BINS, _MOST_NUMBERS = 12, 1024, 64


class _Phases(NamedTuple):
    """Edges of the bins, density in each as a multiple of the uniform one, and what is on the axis.

    ``without`` is the density along a direction that someone without the key guessed; empty where
    it was not measured.
    """

    edges: list[float]
    heights: list[float]
    what: str
    without: list[float]


def _phases_chart(rows: Sequence[Arm]) -> Chart | None:
    """Where releases fall along the key: flat for honest noise, one spike per period if not."""
    known = [
        (label, p, row)
        for label, row in zip(arm_labels(rows), rows, strict=True)
        if (p := _phases(row))
    ]
    if not known:
        return None
    kept = known
    if len(known) > _MOST_PHASES:  # the most successful of each group
        best: dict[str, tuple[str, _Phases, Arm]] = {}
        for item in known:
            group = group_of(item[2])
            if group not in best or _lowest(item[2]) > _lowest(best[group][2]):
                best[group] = item
        kept = list(best.values())[:_MOST_PHASES]
    tops = [max(p.heights) for _, p, _ in kept]
    blind = any(p.without for _, p, _ in kept)
    listed = "; ".join(
        f"{label} at most {top:.2g} times uniform"
        for (label, *_), top in zip(kept, tops, strict=True)
    )
    caption = (
        "Density of releases along the key, as a multiple of the uniform density (dashed). "
        "Honest noise is flat."
    )
    if len(kept) < len(known):
        caption += (
            f" {len(kept)} of {wording.count(len(known))} arms: the most successful of each source "
            "and mitigation."
        )
    if blind:
        caption += " Dark outline: along a direction guessed without the key."
        listed += "; without the key " + ", ".join(
            f"{label} at most {max(p.without):.2g}" for label, p, _ in kept if p.without
        )
    return Chart(
        kind="plot",
        title="Releases along the key",
        caption=caption,
        alt=f"Phase of the releases along the key, by arm: {listed}.",
        panels=tuple(_phase_panel(label, p, exceeds_claim(row)) for label, p, row in kept),
        x=Axis(label=kept[0][1].what),
        y=Axis(label="times uniform", zero=True, high=1.08 * max(2, *tops)),
        columns=min(len(kept), 2 if len(kept) <= 4 else 3),
        numbers=_phase_numbers([(label, p) for label, p, _ in kept]),
    )


def _phase_panel(label: str, phases: _Phases, beyond: bool) -> Panel:
    series = []
    for k, (kind, heights) in enumerate(
        (("with the key", phases.heights), ("without the key", phases.without))
    ):
        marks = tuple(
            Mark(
                x=(a + b) / 2,
                y=y,
                width=b - a,
                name=f"{label}, {kind if phases.without else ''} {_bin(a, b)}",
                says=f"{wording.quantity(y, digits=3)} times uniform",
                alarm=beyond and not k,
            )
            for (a, b), y in zip(pairwise(phases.edges), heights, strict=False)
        )
        if marks:
            series.append(
                Series(
                    marks=marks,
                    look="steps" if k else "bars",
                    group=k if phases.without else None,
                    legend=kind if phases.without else "",
                    quiet=bool(k),
                )
            )
    return Panel(title=label, series=tuple(series), lines=(Line(at=1.0),))


def _phase_numbers(arms: Sequence[tuple[str, _Phases]]) -> tuple[Column, ...]:
    """The densities as a table, if all arms have the same few bins."""
    edges = arms[0][1].edges
    if len(edges) - 1 > _MOST_NUMBERS or len(arms) > 4 or any(p.edges != edges for _, p in arms):
        return ()
    columns = [Column(arms[0][1].what, tuple(_bin(a, b) for a, b in pairwise(edges)))]
    for label, p in arms:
        heights = tuple(wording.quantity(y, digits=3) for y in p.heights)
        columns.append(Column(label, heights, True))
        if p.without:
            without = tuple(wording.quantity(y, digits=3) for y in p.without)
            columns.append(Column(f"{label}\nwithout the key", without, True))
    return tuple(columns)


def _bin(a: float, b: float) -> str:
    return f"{wording.quantity(a, digits=3)} … {wording.quantity(b, digits=3)}"


def _phases(row: Arm) -> _Phases | None:
    """The first attack's phases; None if missing or malformed."""
    for attack in attacks_of(row):
        found = attack.details.get("phases")
        if not isinstance(found, Mapping):
            continue
        edges, counts = _numbers(found.get("edges")), _numbers(found.get("counts"))
        if (
            not 0 < len(counts) == len(edges) - 1 <= _MOST_BINS
            or min(counts) < 0
            or sum(counts) <= 0
        ):
            continue
        widths = [b - a for a, b in pairwise(edges)]
        if min(widths) > 0:
            blind = _numbers(found.get("without_key"))
            usable = len(blind) == len(counts) and min(blind) >= 0 and sum(blind) > 0
            return _Phases(
                edges,
                _densities(counts, edges),
                str(found.get("what") or "phase along the key"),
                _densities(blind, edges) if usable else [],
            )
    return None


def _densities(counts: Sequence[float], edges: Sequence[float]) -> list[float]:
    """Counts as multiples of the uniform density."""
    uniform = sum(counts) / (edges[-1] - edges[0])
    return [n / (b - a) / uniform for n, (a, b) in zip(counts, pairwise(edges), strict=True)]


def _numbers(values: object) -> list[float]:
    """Finite numbers; an empty list if any is not."""
    found = [wording.number(v) for v in values] if isinstance(values, (list, tuple)) else []
    finite = [x for x in found if x is not None and math.isfinite(x)]
    return finite if len(finite) == len(found) else []


def _lowest(row: Arm) -> float:
    """The highest lower end of an attack's interval."""
    return max(ends(a)[0] for a in attacks_of(row))
