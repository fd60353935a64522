"""What one attack reports, and an experiment whose rows are arms under attack."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Sequence, Set

from dpaudit import wording
from dpaudit.codec import to_dict
from dpaudit.experiments.arm_charts import error_chart, keys_in, phases_chart, successes_chart
from dpaudit.experiments.describe_cells import report_of, with_record
from dpaudit.experiments.results import Arm, AttackResult, ExperimentResult
from dpaudit.harms import ALGORITHMS, PARAMETERS, SIDE_CHANNELS, TRUST, UNIT, Pyramid
from dpaudit.report import Check, Column, Hazard, Meaning, Report, Section, Table, Text
from dpaudit.types import Verdict

__all__ = ["arm_labels", "describe", "describe_attack"]

_MOST_ARMS = 4  # that the meaning names one by one
_MOST_ROWS = 24  # in a table above the figures
_VERDICTS = {"no-finding": "no finding", "finding": "finding", "inconclusive": "inconclusive"}

Arms = Sequence[tuple[str, Arm]]
"""Arms, each with a label that no other has."""


def describe(result: ExperimentResult) -> Report:
    """The report of an experiment whose rows are arms under attack."""
    arms, failed = list(zip(arm_labels(result.rows), result.rows, strict=True)), result.failures
    beyond = any(arm.exceeds_claim for _, arm in arms)
    attacked = [(label, arm) for label, arm in arms if arm.attacked]
    verdict: Verdict = "no-finding" if attacked and not failed else "inconclusive"
    return report_of(
        result,
        verdict="finding" if beyond else verdict,
        headline=_headline(arms, attacked),
        badge=_badge(arms, attacked, failed=bool(failed), beyond=beyond),
        meaning=tuple(_meaning(attacked)),
        sections=with_record(result, _sections(result, arms)),
        hazards=_hazards(attacked),
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
    values = {
        "ε shown": wording.bounds(result.epsilon_lower_bound),
        "L2 error": wording.quantity(result.l2_error),
        "L2 error expected": wording.quantity(result.l2_expected),
    }
    table = Table(
        columns=(Column("What", tuple(values)), Column("Value", tuple(values.values()), True)),
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


def arm_labels(rows: Sequence[Arm]) -> list[str]:
    """One label per row, no two alike.

    If labels repeat, the settings that vary are added (a mitigation's options are among them);
    then those that only some rows have; then a number.
    """
    plain = [row.label or row.group for row in rows]
    if len(set(plain)) == len(plain):
        return plain
    settings = _settings(rows)
    varying = {name for name, values in settings.items() if len(set(values)) > 1}
    labels = _with_settings(plain, rows, varying)
    if len(set(labels)) < len(labels):
        partly = {name for name, values in settings.items() if len(values) < len(rows)}
        labels = _with_settings(plain, rows, varying | partly)
    return _number_repeats(labels)


def _settings(rows: Sequence[Arm]) -> dict[str, list[str]]:
    """The values of each setting in the rows that have it."""
    values: dict[str, list[str]] = {}
    for row in rows:
        for name, value in row.settings.items():
            values.setdefault(name, []).append(wording.setting(value))
    return values


def _with_settings(labels: Sequence[str], rows: Sequence[Arm], names: Set[str]) -> list[str]:
    named = []
    for label, row in zip(labels, rows, strict=True):
        own = sorted(names & row.settings.keys())
        named.append(", ".join([label, *(f"{n} {wording.setting(row.settings[n])}" for n in own)]))
    return named


def _number_repeats(labels: Sequence[str]) -> list[str]:
    """The labels, with a number behind each that is there more than once."""
    numbers = {label: itertools.count(1) for label, n in Counter(labels).items() if n > 1}
    in_use, numbered = set(labels), []
    for label in labels:
        ways = (f"{label} ({i})" for i in numbers.get(label, ()))
        name = next((way for way in ways if way not in in_use), label)
        in_use.add(name)
        numbered.append(name)
    return numbered


def _badge(arms: Arms, attacked: Arms, *, failed: bool, beyond: bool) -> str:
    """The badge of an experiment: its result, and that it is incomplete if cells failed."""
    if not arms:
        return "No results yet"
    if failed:
        return "Attack succeeds, incomplete" if beyond else "Incomplete"
    if beyond or not attacked:
        return "Attack succeeds" if beyond else "No attack run"
    return "Within the claim" if any(_wins(arm) for _, arm in attacked) else "Attacks fail"


def _sections(result: ExperimentResult, arms: Arms) -> Iterable[Section]:
    charts = tuple(c for draw in _CHARTS if (c := draw(arms)) is not None)
    figures = [Section(title="Figures", blocks=charts)] if charts else []
    findings = (
        [Section(title="What was found", blocks=tuple(_results(result, arms)))] if arms else []
    )
    yield from (*figures, *findings) if len(arms) > _MOST_ROWS else (*findings, *figures)


_CHARTS = (successes_chart, phases_chart, error_chart)


def _results(result: ExperimentResult, arms: Arms) -> Iterable[Table | Text]:
    columns = _summary_table(arms)
    yield Table(
        columns=columns,
        caption="One row per arm; bold: an attack shows more than the claimed ε",
        marked=tuple(arm.exceeds_claim for _, arm in arms),
        terminal=result.title or result.name or "Experiment",
    )
    if any(c.header == "ε shown by attack" for c in columns):
        yield Text(
            "The ε shown by an attack is a lower bound that holds with 95 % confidence, for each "
            "attack on its own.",
            "note",
        )
    single = {n: v for n, v in _settings(result.rows).items() if len(set(v)) == 1}
    for name, everywhere in (("All arms", True), ("Some arms", False)):
        shared = [f"{n} {v[0]}" for n, v in single.items() if (len(v) == len(arms)) == everywhere]
        if shared:
            yield Text(f"{name}: {', '.join(shared)}.", "note")


def _summary_table(arms: Arms) -> tuple[Column, ...]:
    """An experiment's arms: the black-box audit, the attacker's success, and the error.

    Several attacks on one arm take a line each, with their names. Empty columns are left out.
    """
    rows = [arm for _, arm in arms]
    attacks = [attack for arm in rows for attack in arm.attacked]
    named = len({attack.attack for attack in attacks}) > 1
    confidences = {attack.interval.confidence for attack in attacks}
    only = wording.number(confidences.pop()) if len(confidences) == 1 else None
    interval = f"[{100 * only:g} % interval]" if only else "[interval]"
    keyed = keys_in(arms)
    who = "Key holder’s" if keyed else "Attacker’s"
    columns = (
        Column("Arm", tuple(label for label, _ in arms)),
        Column("Black-box audit", tuple(map(_black_box, rows))),
        Column(f"{who} success\n{interval}", tuple(_successes(r, named) for r in rows), True),
        Column("ε claimed", tuple(wording.epsilon(r.epsilon_claimed) for r in rows), True),
        Column("ε to key holder" if keyed else "ε by theory", tuple(map(_known, rows)), True),
        Column("ε shown by attack", tuple(map(_shown, rows)), True, terminal=False),
        Column("L2 error", tuple(map(_error, rows)), True),
    )
    filled = (c for c in columns[3:] if any(cell != wording.NOTHING for cell in c.cells))
    return (*columns[:3], *filled)


def _black_box(arm: Arm) -> str:
    if arm.audit is None:
        return "not run"
    smallest = wording.p_value(arm.audit.smallest_p)
    text = _VERDICTS[arm.audit.verdict]
    return text if smallest == wording.NOTHING else f"{text}\nsmallest p {smallest}"


def _successes(arm: Arm, named: bool) -> str:
    lines = ((f"{a.attack}\n" if named else "") + a.rate for a in arm.attacked)
    return "\n".join(lines) or "not attacked"


def _known(arm: Arm) -> str:
    return wording.bounds(arm.epsilon_key_holder.low, arm.epsilon_key_holder.high)


def _shown(arm: Arm) -> str:
    return wording.bounds(arm.epsilon_shown) if arm.epsilon_shown > 0 else wording.NOTHING


def _error(arm: Arm) -> str:
    measured, expected = wording.quantity(arm.l2_error), wording.quantity(arm.l2_expected)
    whole = wording.NOTHING not in {measured, expected}
    return f"{measured}\n(expected {expected})" if whole else measured


def _headline(arms: Arms, attacked: Arms) -> str:
    """The strongest attack; one beyond the claim on an arm that passes its audit comes first."""
    if not arms:
        return "No results yet: no arm of this experiment has finished."
    if not attacked:
        return f"No attack was run on any of the {len(arms):,} arms." + _audits(arms)
    beyond = [(label, arm) for label, arm in attacked if arm.exceeds_claim]
    if beyond:
        passing = [(label, arm) for label, arm in beyond if _verdict(arm) == "no-finding"]
        return _exceeded_claim(arms, *max(passing or beyond, key=_rank))
    winning = [(label, arm) for label, arm in attacked if _wins(arm)]
    label, arm = max(winning or attacked, key=_rank)
    on = f" on any of the {len(attacked):,} arms" if len(attacked) > 1 else ""
    if not winning:
        best = f"the highest is {arm.strongest.rate} on {label} {_chance(arm)}"
        return f"No attack beats chance{on}: {best}.{_audits(arms)}"
    low = arm.epsilon_shown
    bound = f"we can show ε {wording.bounds(low)}" if low > 0 else "no ε above 0 is shown"
    return (
        f"No attack shows more than the claimed ε{on}. The strongest is on {label}: "
        f"{_holder(arm, 'the')} {_success(arm)}; {bound}, which is consistent with the claimed "
        f"ε = {wording.epsilon(arm.epsilon_claimed)}.{_audits(arms)}"
    )


def _exceeded_claim(arms: Arms, label: str, arm: Arm) -> str:
    """An attack that shows more than the claimed ε, and what stops it."""
    low = wording.bounds(arm.strongest.epsilon_shown)
    claimed = wording.epsilon(arm.epsilon_claimed)
    success = f"{_success(arm)} and shows ε {low}, where {claimed} is claimed"
    if _verdict(arm) != "no-finding":
        audited = {
            "finding": "the black-box audit reports a finding",
            "inconclusive": "the black-box audit is inconclusive",
        }.get(_verdict(arm) or "", "no black-box audit was run")
        return f"{label}: {_holder(arm, 'the')} {success}; {audited}."
    ending = ""
    others = _other_sources(arms, arm)
    stopped, short = _protective_mitigations(arms, arm)
    if stopped:
        where, outcome = "on it" if others else "here", "beats chance"
        outcome = "shows more than is claimed" if short else outcome
        ending = f"; with {wording.listed(stopped, word='or')} no attack {where} {outcome}"
    return (
        f"{label} passes the black-box audit, yet {_holder(arm, 'its')} {success}{ending}.{others}"
    )


def _other_sources(arms: Arms, worst: Arm) -> str:
    """The arms of sources other than ``worst``'s that an attack shows more of than is claimed."""
    labels = [
        f"{label} ({arm.strongest.rate})"
        for label, arm in arms
        if arm.source != worst.source and arm.exceeds_claim
    ]
    names = wording.listed(labels, word="and")
    return f" More than is claimed is also shown on {names}." if labels else ""


def _protective_mitigations(arms: Arms, worst: Arm) -> tuple[list[str], bool]:
    """Mitigations under which no attack on the same source shows more than is claimed.

    In any of their arms; and whether one of these attacks still beats chance.
    """
    results: dict[str, list[Arm]] = {}
    for _, arm in arms:
        if arm.source == worst.source and arm.attacked and arm.mitigation != "none":
            results.setdefault(arm.mitigation, []).append(arm)
    within = {m: same for m, same in results.items() if not any(a.exceeds_claim for a in same)}
    return list(within), any(map(_wins, itertools.chain.from_iterable(within.values())))


def _holder(arm: Arm, article: str) -> str:
    """Who attacks: the holder of a key where there is one."""
    if arm.has_key(arm.strongest):
        return f"{article} key holder"
    return "the attacker" if article == "the" else "an attacker"


def _success(arm: Arm) -> str:
    attack = arm.strongest
    trials = f" {wording.count(attack.trials)}" if attack.trials else ""
    return f"identifies the right candidate in {attack.rate} of{trials} releases {_chance(arm)}"


def _chance(arm: Arm) -> str:
    return f"(guessing: {wording.percent(arm.strongest.guessing).replace('.0 %', ' %')})"


def _audits(arms: Arms) -> str:
    """What the black-box audits say, where no attack shows anything wrong."""
    labels = [label for label, arm in arms if _verdict(arm) == "finding"]
    if labels:
        names = wording.listed(labels, word="and")
        return f" The black-box audit reports a finding on {names}."
    return "" if any(arm.audit for _, arm in arms) else " No black-box audit was run."


def _verdict(arm: Arm) -> str | None:
    return None if arm.audit is None else arm.audit.verdict


def _wins(arm: Arm) -> bool:
    return any(attack.beats_chance for attack in arm.attacked)


def _rank(labelled: tuple[str, Arm]) -> tuple[float, float]:
    """The lower end of the strongest attack's interval, and its success."""
    attack = labelled[1].strongest
    return attack.ends[0], attack.success


def _meaning(attacked: Arms) -> list[Meaning]:
    """What the attacks of an experiment mean, arm by arm where they show too much."""
    if not attacked:
        return []
    beyond = [(label, arm) for label, arm in attacked if arm.exceeds_claim]
    stopped = len(beyond) < len(attacked)
    meanings = [_attack_meaning(arm, label, stopped=stopped) for label, arm in beyond[:_MOST_ARMS]]
    if (more := len(beyond) - _MOST_ARMS) > 0:
        statement = f"{more:,} more arms show more than is claimed: see the table."
        meanings.append(Meaning(heading="More of the same", says=statement))
    if meanings:
        return meanings
    if any(_wins(arm) for _, arm in attacked):
        arm = max((arm for _, arm in attacked), key=lambda arm: arm.epsilon_shown)
        allowed = arm.success_allowed
        claimed = wording.epsilon(arm.epsilon_claimed)
        limit = "this" if allowed is None else f"up to {wording.percent(allowed)}"
        statement = (
            f"An attack is right in {arm.strongest.rate} of releases and a claimed ε = {claimed} "
            f"allows {limit}, so nothing here contradicts the claim. If that is too much for the "
            "people in the data, choose a smaller ε."
        )
        return [Meaning(heading="Attacks gain no more than the claim permits", says=statement)]
    statement = (
        "None of the attacks tried here is better than guessing, on any arm. Other attacks may be "
        "better: the bounds of ε in the table, where there are any, hold against all of them."
    )
    return [Meaning(heading="No attack tried here works", says=statement)]


def _attack_meaning(arm: Arm, label: str, *, stopped: bool) -> Meaning:
    attack, allowed = arm.strongest, arm.success_allowed
    who = "The key holder" if arm.has_key(attack) else "An attacker"
    right = f"{who} names the right one of two data sets in {attack.rate} of releases"
    if allowed is not None:
        right += f", where the claimed ε = {wording.epsilon(arm.epsilon_claimed)} allows "
        right += f"{wording.percent(allowed)} at most"
    sure = 100 * attack.interval.confidence
    todo = "Do not use this noise as it is"
    if stopped:
        todo += ": on other arms of this page no attack shows more than the claim"
    statement = f"{right}; the interval holds with {sure:.3g} % confidence. {todo}."
    return Meaning(heading=f"More than claimed is read from {label}", says=statement)


def _hazards(attacked: Arms) -> tuple[Hazard, ...]:
    """The NIST components: the arms on which an attack shows more than the claimed ε."""
    pyramid = Pyramid()
    if beyond := [label for label, arm in attacked if arm.exceeds_claim]:
        names = wording.listed(beyond, word="and")
        component = TRUST if keys_in(attacked) else ALGORITHMS
        pyramid.add(component, f"more than the claimed ε is shown on {names}")
    if attacked:
        pyramid.leave_open(ALGORITHMS, "attacks that were not tried")
    pyramid.leave_open(PARAMETERS, "whether the claimed ε is small enough")
    pyramid.leave_open(UNIT, "whether neighbours differ in all data of one person")
    pyramid.leave_open(SIDE_CHANNELS, "whatever is not in a release, such as time")
    return pyramid.hazards()
