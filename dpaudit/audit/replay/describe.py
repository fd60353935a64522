"""What a replay reports."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator

from dpaudit import wording
from dpaudit.audit.describe import blind_spots_section, pyramid_of
from dpaudit.audit.replay.request import Divergence, ReplayResult
from dpaudit.codec import to_dict
from dpaudit.harms import meaning_of_findings, no_verdict
from dpaudit.provenance import file_facts
from dpaudit.report import (
    Block,
    Check,
    Column,
    Facts,
    Findings,
    Items,
    Meaning,
    Report,
    Section,
    Table,
    Text,
    with_verdict,
)

__all__ = ["describe"]

_LOOKS_AT = {
    "control flow": "which primitives are called, and in which order",
    "shape": "how many numbers a primitive draws",
    "scale": "the law's parameters, and what the library states",
    "sensitivity": "how far the input of a primitive moves",
    "release": "what is released, with the noise frozen",
    "domain": "keys, lengths and types of the release",
    "exception": "errors",
    "output": "what is printed and written",
    "reuse": "noise that is used twice",
    "seed": "where the noise's seed comes from",
    "budget": "what the noised inputs add up to",
}
_LONGEST = 40
"""Characters of a value in a table; the finding above it has more."""
_HARMS = {"reuse": "reuse", "seed": "predictable", "scale": "changes", "budget": "epsilon"}


def describe(result: ReplayResult) -> Report:
    """The report of a replay."""
    headline = _headline(result)
    checks = [_check(d) for d in result.divergences]
    passed = Counter(d.kind for d in result.divergences)
    undecided = result.verdict == "inconclusive"
    checks += [
        Check(
            name=kind,
            group=_group(kind),
            outcome="undecided" if undecided else "pass",
            looks_at=looks_at,
            topic="replay",
        )
        for kind, looks_at in _LOOKS_AT.items()
        if not passed[kind]
    ]
    return Report(
        kind="replay",
        label="replay of a pipeline",
        subject=result.pipeline,
        title=f"Replay of {result.pipeline}",
        claim=result.claim,
        verdict=result.verdict,
        headline=headline,
        meaning=_meaning(result, checks),
        checks=with_verdict(checks, result.verdict, headline),
        sections=tuple(_sections(result)),
        blind_spots=result.cannot_rule_out,
        advice=result.advice,
        hazards=pyramid_of(result.cannot_rule_out, checks, result.verdict),
        facts={"alpha": result.alpha, "pairs": result.pairs, "epsilon": to_dict(result.epsilon)},
        data={**to_dict(result), "tests": [_row(d) for d in result.divergences]},
        provenance=to_dict(result.provenance),
        seconds=result.seconds,
        command=result.provenance.command,
    )


def _group(kind: str) -> str:
    """The group of a check that has no p-value: its kind."""
    return kind.replace(" ", "-")


def _row(divergence: Divergence) -> dict[str, object]:
    found = divergence.outcome == "finding"
    return {"name": divergence.kind, "finding": found, "effect": divergence.says,
            "looks_at": _LOOKS_AT[divergence.kind]}  # fmt: skip


def _check(divergence: Divergence) -> Check:
    where = divergence.line or divergence.at
    effect = f"{where}: {divergence.says}" if where else divergence.says
    others = divergence.pairs - 1
    also = f"; {others:,} more pair{'s' * (others > 1)}" if others > 0 else ""
    more = f" (pair: {divergence.origin}{also})"
    return Check(
        name=divergence.kind,
        group=_group(divergence.kind),
        outcome=divergence.outcome,
        looks_at=_LOOKS_AT[divergence.kind],
        effect=effect + more,
        interval=divergence.epsilon,
        unit="" if divergence.epsilon is None else "ε",
        harm=_HARMS.get(divergence.kind, "shown"),
        topic="replay",
        reproduce=divergence.reproduce if divergence.outcome == "finding" else "",
        facts={
            "line": divergence.line,
            "at": divergence.at,
            "call": divergence.call,
            "pair": divergence.pair,
        },
    )


def _headline(result: ReplayResult) -> str:
    name, count = result.pipeline, len(result.findings)
    if result.verdict == "finding":
        first = result.findings[0]
        where = first.line or first.at
        more = f"; {count - 1} more" if count > 1 else ""
        return (
            f"Finding: {name} shows its data{f' at {where}' if where else ''}: {first.says}{more}."
        )
    pairs = f"pair{'s' if result.pairs != 1 else ''} of neighbours"
    asked = f" of the {result.pairs_requested:,}" if result.pairs < result.pairs_requested else ""
    tried = f"{result.pairs:,}{asked} {pairs}"
    if result.verdict == "inconclusive":
        return (
            f"Inconclusive: {result.reason.rstrip('.')}; this says nothing about {name} either way."
        )
    return (
        f"No finding: with its noise frozen, {name} releases the same on {tried}. {_given(result)}"
    )


def _given(result: ReplayResult) -> str:
    """What the run's ε is, and on which condition."""
    if result.unknown:
        return f"Its ε is not known: no law is stated for {result.unknown[0]}."
    if result.epsilon is None or not result.primitives:
        return "No known primitive was given any data."
    count = len(result.primitives)
    of = (
        f"the {count} primitives that it calls have"
        if count > 1
        else "the primitive that it calls has"
    )
    at = f" at δ = {wording.quantity(result.claim_delta)}" if result.claim_delta else ""
    epsilon = "infinite" if math.isinf(result.epsilon) else wording.quantity(result.epsilon)
    claim = (
        f"; claimed is {wording.quantity(result.claim_epsilon)}"
        if result.claim_epsilon is not None
        else ""
    )
    coins = ", for the coins that were tossed," if result.details.get("coins") else ""
    text = f"Given that {of} the stated law, its largest ε on these pairs{coins} is {epsilon}{at}"
    return f"{text}{claim}."


def _meaning(result: ReplayResult, checks: list[Check]) -> tuple[Meaning, ...]:
    if result.verdict == "finding":
        return meaning_of_findings(
            checks,
            honest="",
            claimed=result.claim_epsilon or 0.0,
        )
    if result.verdict == "inconclusive":
        return (no_verdict(),)
    text = (
        "On these pairs everything that is released follows from what the primitives "
        f"returned, and their inputs moved no further than is stated. {_given(result)} Audit each "
        "primitive with dpaudit audit, and look at the lines that no pair reached."
    )
    return (Meaning(heading="The data goes through the noise", says=text),)


def _sections(result: ReplayResult) -> Iterator[Section]:
    quantity, none = wording.quantity, wording.NOTHING
    known = bool(result.primitives) and result.epsilon is not None
    epsilon = quantity(result.epsilon) if known else none
    rows = (
        ("Claim", result.claim or none),
        ("Largest ε of a pair, given the stated laws", epsilon),
        ("That pair", (known and result.epsilon_pair) or none),
        ("Pairs of neighbours", _of(result.pairs, result.pairs_requested)),
        ("Runs", wording.count(result.runs)),
        ("Longest run", wording.seconds(result.run_seconds)),
        ("Lines reached", f"{result.reached:,} of {result.lines:,}"),
        ("The function takes", str(result.details.get("form") or none)),
        ("Sandbox", result.sandbox or none),
        ("Time", wording.seconds(result.seconds)),
    )  # fmt: skip
    facts = Facts(
        tuple(row for row in rows if row[1] != none),
        terminal=("Pairs of neighbours", "Runs", "Lines reached"),
    )
    yield Section(title="What was run", blocks=(*file_facts(result.provenance), facts))
    blocks: list[Block] = [Findings()]
    if result.divergences:
        blocks.append(_divergences(result.divergences))
    else:
        blocks.append(Text("No run differs from its recording."))
    yield Section(title="Where the data shows", blocks=tuple(blocks))
    if result.primitives:
        yield Section(title="The noise that was called", blocks=(_primitives(result),))
    unseen = [*(f"Not seen: {one}" for one in result.unseen), *result.advice]
    if unseen:
        yield Section(
            title="What was not seen, and advice", blocks=(Items(tuple(unseen), terminal=True),)
        )
    if result.unreached:
        lines = Items(result.unreached[:60])
        yield Section(title="Lines that no pair reached", blocks=(lines,), folded=True)
    yield blind_spots_section(result.cannot_rule_out, (), "privacy")
    pairs = result.details.get("pairs") or {}
    if pairs:
        columns = (
            Column("Pair", tuple(pairs)),
            Column("First data set", tuple(p[0] for p in pairs.values())),
            Column("Its neighbour", tuple(p[1] for p in pairs.values())),
        )
        table = Table(
            columns=columns, caption="The pairs that are named above, as JSON", quiet=True
        )
        yield Section(title="The pairs", blocks=(table,), folded=True)


def _of(done: int, asked: int) -> str:
    tried = wording.count(done)
    return tried if done == asked else f"{tried} of {wording.count(asked)} requested"


def _divergences(rows: tuple[Divergence, ...]) -> Table:
    shown = [wording.bounds(d.epsilon.low) if d.epsilon else wording.NOTHING for d in rows]
    columns = (
        Column("Where", tuple(d.line or d.at or wording.NOTHING for d in rows)),
        Column("Kind", tuple(d.kind for d in rows)),
        Column("What", tuple(d.path or d.name or wording.NOTHING for d in rows)),
        Column("On the data set", tuple(_short(d.first) for d in rows)),
        Column("On the neighbour", tuple(_short(d.second) for d in rows)),
        Column("ε shown", tuple(shown), True),
        Column("Pairs", tuple(wording.count(d.pairs) for d in rows), True),
        Column("Finding", tuple("yes" if d.outcome == "finding" else d.outcome for d in rows)),
    )
    return Table(
        columns=tuple(c for c in columns if any(cell != wording.NOTHING for cell in c.cells)),
        caption="Findings first; each with the pair that shows it best",
        marked=tuple(d.outcome == "finding" for d in rows),
        terminal="Where the data shows",
    )


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"


def _primitives(result: ReplayResult) -> Table:
    rows = result.primitives
    stated = [
        ", ".join(
            f"{name} {value:g}" if isinstance(value, float) else f"{name} {value}"
            for name, value in p.stated.items()
        )
        for p in rows
    ]
    return Table(
        columns=(
            Column("Line", tuple(p.line or p.at for p in rows)),
            Column("Primitive", tuple(p.name for p in rows)),
            Column("Law", tuple(p.law for p in rows)),
            Column("Scale", tuple(p.scale for p in rows), terminal=False),
            Column("States", tuple(s or wording.NOTHING for s in stated), terminal=False),
        ),
        caption="Each is taken at its word: audit its noise with dpaudit audit",
        terminal="Noise that was called",
        terminal_rows=12,
    )
