"""The report of a proof about a program."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from typing import Literal

from dpaudit import wording
from dpaudit.codec import to_dict
from dpaudit.harms import ALGORITHMS, PARAMETERS, SIDE_CHANNELS, TRUST, UNIT, Pyramid
from dpaudit.provenance import file_facts
from dpaudit.report import (
    Block,
    Check,
    Column,
    Command,
    Facts,
    Hazard,
    Items,
    Meaning,
    Outcome,
    Report,
    Section,
    Table,
    Text,
    open_spots,
    with_verdict,
)
from dpaudit.types import Provenance, Verdict
from dpaudit_prove.charts import delta_text, law_charts, law_scope, log_ratio, outputs_of
from dpaudit_prove.results import (
    CERTIFICATE,
    ProofResult,
    ProvedBounds,
)

__all__ = ["command_of", "describe_proof", "fields_of", "uncovered_section"]

_VERDICTS: dict[str, tuple[str, Verdict, Outcome]] = {
    "proved": ("Proved", "no-finding", "pass"),
    "refuted": ("Refuted", "finding", "finding"),
    "undecided": ("Not decided", "inconclusive", "undecided"),
}
_PROVED = ("total_variation", "log_ratio", "tolerance", "epsilon", "residual", "disjoint")
_MOST_COINS = 400  # of a counterexample in the table
_SHOWN_COINS = 24  # in a sentence
_PAGE_FACTS = ("Claim", "Arguments", "Coins", "Coin bits per call", "Outputs", "Time")


def describe_proof(result: ProofResult) -> Report:
    """The report of a proof or a refutation."""
    badge, verdict, outcome = _VERDICTS[result.verdict]
    sentences = {
        "law": _law_headline,
        "privacy": _privacy_headline,
        "independent values": _independence_headline,
    }
    headline = f"{badge}: {sentences[_question(result)](result)}{_residual_sentence(result)}"
    refutation = result.counterexample
    check = Check(
        group="proof",
        name=_question(result),
        outcome=outcome,
        looks_at="the exact law of the program's text",
        effect=refutation.says if refutation else result.reason,
        reproduce=result.provenance.command,
        facts=fields_of(result, _PROVED),
    )
    return Report(
        kind="proof",
        label="proof",
        subject=result.program or "a program",
        title=f"Proof about {result.program or 'a program'}",
        claim=_claim(result),
        verdict=verdict,
        headline=headline,
        badge=badge,
        meaning=tuple(_proof_meaning(result)),
        checks=with_verdict([check], verdict, headline),
        sections=tuple(_proof_sections(result)),
        blind_spots=open_spots(result.cannot_rule_out),
        hazards=_proof_hazards(result),
        facts=fields_of(result, ("residual", "states", "outputs", "arguments", "certificate")),
        data=to_dict(result),
        provenance=to_dict(result.provenance),
        seconds=result.seconds,
        command=result.provenance.command,
    )


def fields_of(result: object, names: tuple[str, ...]) -> dict[str, object]:
    """The fields that are not None, JSON-ready."""
    return {n: to_dict(value) for n in names if (value := getattr(result, n)) is not None}


def _question(result: ProofResult) -> Literal["law", "privacy", "independent values"]:
    if result.profile:
        return "privacy"
    return "independent values" if result.disjoint else "law"


def _claim(result: ProofResult) -> str:
    """The claim: a law, ``(ln(3), 0)-DP for 0 and 1``, or independent values."""
    if result.profile:
        pair = " and ".join(result.neighbours)
        return f"({result.claim_epsilon}, {delta_text(result)})-DP for {pair}"
    if not result.disjoint:
        return result.claim
    return f"independent values{result.claim and ', each with the law '}{result.claim}"


def _program(result: ProofResult) -> str:
    return result.program + (f" ({result.arguments})" if result.arguments else "")


def _law_headline(result: ProofResult) -> str:
    claim, program, distance = result.claim, _program(result), _bounds(result.total_variation)
    match result.verdict:
        case "proved":
            return f"{program} has the law {claim}; their total variation is {distance}"
        case "refuted":
            return f"{program} does not have the law {claim}; their total variation is {distance}"
    return (
        f"whether {program} has the law {claim}. Their total variation is {distance}; "
        f"the tolerance is {wording.at_most(result.tolerance or 0.0)}"
    )


def _privacy_headline(result: ProofResult) -> str:
    point = result.profile[0]  # the claim's
    start = "whether " if result.verdict == "undecided" else ""
    negated = "not " if result.verdict == "refuted" else ""
    at = f"δ({point.epsilon}) is {_bounds(point.delta)}"
    return f"{start}{_program(result)} is {negated}{_claim(result)}: {at}"


def _independence_headline(result: ProofResult) -> str:
    program, claim, distance = _program(result), result.claim, result.total_variation
    reason = result.reason.rstrip(".")
    match result.verdict, result.disjoint:
        case "proved", _:
            each = f"; each has the law {claim}, and the sum of their total variations is "
            law = f"{each}{_bounds(distance)}" if claim else ""
            return f"the values of {program} are independent: their joint law is a product{law}"
        case "refuted", "shown":
            low = wording.at_least(distance.low if distance else 0.0)
            return f"the values of {program} do not have the law {claim}: one is ≥ {low} away"
        case "refuted", _:
            return f"the values of {program} depend on each other: {reason}"
    return f"{program}: {reason}"


def _residual_sentence(result: ProofResult) -> str:
    if not result.residual:
        return ". Every path of the program was followed."
    return f". Paths of total probability {wording.at_most(result.residual)} were not followed."


def _bounds(bounds: ProvedBounds | None) -> str:
    return "" if bounds is None else wording.between(bounds.low, bounds.high)


def _proof_meaning(result: ProofResult) -> Iterator[Meaning]:
    """The meaning of a proof, for readers who do not read code."""
    if result.verdict == "refuted":
        depends = result.disjoint == "refuted"
        heading = "Values of one call depend on each other" if depends else "The claim is false"
        yield Meaning(heading=heading, says=_refutation_meaning(result))
        return
    if result.verdict == "undecided":
        text = (
            "The claim was neither proved nor refuted within the limits, so this is not a pass. "
            "Repeat it with a longer --time-limit or a smaller --residual, or run dpaudit audit."
        )
        yield Meaning(heading="Not decided", says=text)
        return
    proved = {
        "law": "the program returns each output with the claimed probability",
        "independent values": "no value that one call returns tells anything about its others",
        "privacy": "no output tells these two inputs apart better than claimed",
    }[_question(result)]
    text = (
        f"Up to the distance stated above, {proved}. This was derived from all paths of the "
        "program’s text but those stated above, not from a sample: there is no error probability. "
        "It holds if the coins are perfect, if Python does as documented, and for these files and "
        "arguments only: compare the SHA-256 below with the files that you run."
    )
    yield Meaning(heading="A proof about the program’s text", says=text)
    if result.profile:
        text = "Other pairs of inputs were not looked at: choose the pair that differs most."
        yield Meaning(heading="These two inputs only", says=text)


def _refutation_meaning(result: ProofResult) -> str:
    text = "This is not a matter of chance: it was derived from the program’s text. "
    if result.counterexample is not None:
        text += "Python itself, run on the coins below, returned the output in question. "
    if result.disjoint == "refuted":
        text += "Anyone who learns one value of a call learns something about the others. "
    if result.profile:
        text += "Anyone who sees a release can tell the two inputs apart better than claimed. "
    return f"{text}Do not rely on the claim until the program has been corrected and proved again."


def _proof_sections(result: ProofResult) -> Iterator[Section]:
    own, *others = file_facts(result.provenance) or (None,)
    files = [_program_file(own)] if own else []
    rows = tuple(_proof_facts(result))
    terminal_facts = tuple(name for name, _ in rows if name not in _PAGE_FACTS)
    facts: list[Block] = [*files, Facts(rows, terminal=terminal_facts)]
    if result.verdict == "undecided" and not result.disjoint:
        facts.append(Text(f"Reason: {result.reason.rstrip('.')}.", terminal=True))
    facts += command_of(result.provenance, "To repeat this proof:")
    yield Section(title="Program and claim", blocks=tuple(facts))
    if result.counterexample is not None:
        yield Section(title="Counterexample", blocks=tuple(_counterexample_blocks(result)))
    counted = _coins_text(result)
    charts: list[Block] = [*law_charts(result)]
    if counted:
        charts.append(Text(f"Of the coins: {counted}.", look="note", terminal=True))
    if charts:
        yield Section(title="Figures", blocks=tuple(charts))
    scope = "A proof is about the text of a program. It has no error probability, and it"
    yield uncovered_section(scope, result.cannot_rule_out)
    yield Section(title="Check it", blocks=tuple(_certificate_blocks(result)))
    if result.profile:
        yield Section(title="The privacy profile", blocks=(_profile_table(result),))
    if result.law:
        left = result.outputs - len(result.law)
        law: list[Block] = [_law_table(result)]
        if left > 0:
            law.append(Text(f"{left:,} further outputs are not listed.", look="note"))
        yield Section(title="The exact law", blocks=tuple(law), folded=True, note="as a table")
    if others:
        files_read = result.provenance.files[1:]
        table = Table(
            columns=(
                Column("File", tuple(f.name for f in files_read)),
                Column("SHA-256", tuple(f.sha256 for f in files_read)),
            ),
            caption="Compare these fingerprints with what you run",
            quiet=True,
        )
        yield Section(
            title="Other files that were read",
            blocks=(table,),
            folded=True,
            note="their text is part of the proof",
        )


def _program_file(own: Facts) -> Facts:
    return Facts((("Program’s file", own.rows[0][1]), *own.rows[1:]), file=True)


def command_of(provenance: Provenance, label: str) -> list[Command]:
    """The command that repeats it, if it is known."""
    return [Command(provenance.command, label)] if provenance.command else []


def _proof_facts(result: ProofResult) -> Iterator[tuple[str, str]]:
    """Names and values, claim and distance first."""
    spread, coins, count = result.total_variation, result.coins, result.coin_count
    name = "Total variation"
    if result.disjoint and not result.profile and spread is not None:
        name = "Total variation: of one value at least, of all together at most"
    bits = ""
    if count is not None and result.law:
        always = count.constant is not None
        bits = f"{count.constant:,}, always" if always else f"{count.least:,} or more"
    facts = [
        ("Claim", _claim(result)),
        ("Arguments", result.arguments),
        (name, _bounds(spread)),
        ("Largest |ln(P/Q)|", _bounds(result.log_ratio) if result.law else ""),
        ("Tolerance", "" if result.tolerance is None else wording.quantity(result.tolerance)),
    ]
    if result.profile:
        point = result.profile[0]
        facts.append((f"δ at ε = {point.epsilon}", _bounds(point.delta)))
    if (least := result.epsilon) is not None:
        epsilon = wording.between(least.low, least.high, digits=6)
        facts.append((f"Least ε at δ = {delta_text(result)}", epsilon))
    left = wording.at_most(result.residual) if result.residual else "0: all were followed"
    facts += [
        ("Independence of the values", result.disjoint),
        ("Probability of paths not followed", left),
        ("A path not followed", result.refusal),
        ("Coins", f"the system’s, and {coins}" if coins else "the operating system’s"),
        ("Coin bits per call", bits),
        ("Outputs", wording.count(result.outputs)),
        ("States", wording.count(result.states)),
        ("Time", wording.seconds(result.seconds)),
    ]
    yield from ((name, value) for name, value in facts if value)


def _counterexample_blocks(result: ProofResult) -> Iterator[Block]:
    example = result.counterexample
    if example is None:
        return
    coins = example.coins
    values = ", ".join(f"{coin} of {count}" for count, coin in coins[:_SHOWN_COINS])
    more = f", and {len(coins) - _SHOWN_COINS} more" if len(coins) > _SHOWN_COINS else ""
    on = f"on these coins: {values}{more}" if coins else "without asking for coins"
    sentence = f"Run by Python itself, the unmodified program returned {example.output} {on}."
    yield Text(sentence, terminal=True)
    yield Text(f"{example.says}.", terminal=True)
    rows = coins[:_MOST_COINS]
    yield Table(
        columns=(
            Column("Request", tuple(wording.count(i) for i in range(1, len(rows) + 1))),
            Column("One of", tuple(str(count) for count, _ in rows), True),
            Column("Coin (from 0)", tuple(str(coin) for _, coin in rows), True),
        ),
        caption="The coins in the order in which the program asked for them",
        left_out=len(coins) - len(rows),
        ordered=True,
    )


def _coins_text(result: ProofResult) -> str:
    """How many coins a call reads, in words."""
    count = result.coin_count
    if count is None:
        return ""
    if count.constant is not None:
        return f"every call reads {count.constant:,} coin bits"
    tells = f"; it tells {_bounds(count.information)} bits about the output"
    return (
        f"the number of coin bits varies, from {count.least:,}{tells if count.information else ''}"
    )


def _certificate_blocks(result: ProofResult) -> Iterator[Block]:
    if not result.certificate:
        yield Text("No certificate was written; repeat the proof with --out to have one.")
        return
    yield Facts((("Certificate", CERTIFICATE), ("SHA-256", result.certificate)), file=True)
    label = "In the folder of this report; the checker knows nothing of the prover:"
    yield Command(f"dpaudit verify certificate {CERTIFICATE}", label)
    with_program = f"With --program {shlex.quote(result.program)}, in the folder that the proof was"
    yield Text(
        f"{with_program} made in, it also runs the program on the coins of every transition.",
        look="note",
    )


def _profile_table(result: ProofResult) -> Table:
    """Bounds of δ(ε), the claim's first."""
    claim, *others = result.profile
    points = [claim, *(p for p in others if p.epsilon != claim.epsilon)]
    least = tuple(wording.at_least(p.delta.low, digits=6) for p in points)
    most = tuple(wording.at_most(p.delta.high, digits=6) for p in points)
    return Table(
        columns=(
            Column("ε", tuple(p.epsilon for p in points)),
            Column("δ at least", least, True),
            Column("δ at most", most, True),
        ),
        caption="δ(ε) for these two inputs in either order, proved from both sides; the claim "
        "first",
        ordered=True,
        terminal="δ(ε), proved from both sides",
    )


def _law_table(result: ProofResult) -> Table:
    """The likeliest outputs with bounds of their probabilities, and of the claimed ones."""
    rows = outputs_of(result)
    columns = [
        Column("Output", tuple(row.name for row in rows)),
        Column("P at least", tuple(wording.at_least(row.low, digits=10) for row in rows), True),
        Column("P at most", tuple(wording.at_most(row.high, digits=10) for row in rows), True),
    ]
    claims = [(row.low, row.high, row.claimed) for row in rows if row.claimed]
    if claims:
        least = tuple(wording.at_least(q.low, digits=10) for _, _, q in claims)
        most = tuple(wording.at_most(q.high, digits=10) for _, _, q in claims)
        ratios = tuple(_ends(*log_ratio(*row)) for row in claims)
        columns += [
            Column("Q at least", least, True),
            Column("Q at most", most, True),
            Column("ln(P/Q)", ratios, True),
        ]
    claim = "; Q: the claim" if result.claimed else ""
    return Table(
        columns=tuple(columns),
        caption=f"P: the program{law_scope(result)}{claim}. Likeliest outputs first",
        terminal="" if result.profile else f"Outputs: {result.outputs:,}, the likeliest first",
        terminal_rows=12,
    )


def _ends(low: float, high: float) -> str:
    if low == high:
        return wording.quantity(low)
    return f"{wording.at_least(low, digits=3)} … {wording.at_most(high, digits=3)}"


def _proof_hazards(result: ProofResult) -> tuple[Hazard, ...]:
    pyramid = Pyramid()
    if result.verdict == "undecided":
        pyramid.leave_open(ALGORITHMS, "the claim: not decided")
    else:
        pyramid.add(ALGORITHMS, f"{result.verdict}: {_claim(result)}")
    others = "other arguments, other versions of the files, Python itself"
    pyramid.leave_open(ALGORITHMS, others)
    pyramid.leave_open(PARAMETERS, "whether the claimed ε is small enough")
    pyramid.leave_open(UNIT, "whether neighbours differ in all data of one person")
    pyramid.leave_open(TRUST, "the real source of the coins, and who knows them")
    pyramid.leave_open(SIDE_CHANNELS, "time, memory and power")
    if result.coin_count is not None and result.coin_count.constant is None:
        pyramid.add(SIDE_CHANNELS, "the number of coins read varies")
    return pyramid.hazards()


def uncovered_section(opening: str, spots: tuple[str, ...]) -> Section:
    """The section on what a result does not cover; ``opening`` begins its sentence."""
    blocks = (Text(f"{opening} says nothing about:"), Items(spots))
    return Section(title="What this does not cover", blocks=blocks)
