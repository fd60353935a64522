"""A proof about a program, and what was seen of a compiled sampler, in words and tables."""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Iterator
from fractions import Fraction
from typing import Literal

from dpaudit.report import format as fmt
from dpaudit.report.tables import Column
from dpaudit.results.text import one_line, printable
from dpaudit.types import (
    DeterminismResult,
    ProofResult,
    ProvedBounds,
    ProvedPoint,
    Verdict,
)

__all__ = [
    "CERTIFICATE",
    "WORDS",
    "Bar",
    "claimed_delta",
    "claimed_of_proof",
    "coin_sentence",
    "coins_facts",
    "coins_table",
    "delta_claimed",
    "determinism_facts",
    "determinism_sentence",
    "law_is_of",
    "law_table",
    "log_ratio",
    "outputs_of",
    "profile_table",
    "program_option",
    "proof_facts",
    "proof_sentence",
    "question_of",
    "verdict_of_proof",
    "verify_command",
]

CERTIFICATE = "certificate.json.gz"
"""The file beside result.json."""

WORDS = {"proved": "Proved", "refuted": "Refuted", "undecided": "Not decided"}
_VERDICT: dict[str, Verdict] = {
    "proved": "no-finding",
    "refuted": "finding",
    "undecided": "inconclusive",
}
_SHARE = re.compile(r"[0-9]{1,300}(/[0-9]{1,300})?")
_ROUNDING = 1e-14
"""More than the error of a logarithm of a ratio of two floats."""


def question_of(result: ProofResult) -> Literal["law", "privacy", "independent values"]:
    """What was asked."""
    if result.profile:
        return "privacy"
    return "independent values" if result.disjoint else "law"


def verdict_of_proof(result: ProofResult) -> Verdict:
    """The verdict in the words that all documents share; refuted is a finding."""
    return _VERDICT[result.verdict]


def claimed_of_proof(result: ProofResult) -> str:
    """What was claimed: a law, ``(ln(3), 0)-DP for 0 and 1``, or independent values."""
    if question_of(result) == "privacy":
        pair = " and ".join(one_line(n, limit=60) for n in result.neighbours)
        epsilon = one_line(result.claim_epsilon, limit=60)
        return f"({epsilon}, {claimed_delta(result)})-DP for {pair}"
    claim = one_line(result.claim, limit=200)
    if not result.disjoint:
        return claim
    return f"independent values{claim and ', each with the law '}{claim}"


def claimed_delta(result: ProofResult) -> str:
    """The claimed δ as people write it."""
    near = _share(result.claim_delta)
    return one_line(result.claim_delta, limit=60) if near is None else fmt.quantity(near)


def delta_claimed(result: ProofResult) -> float | None:
    """The claimed δ as a number; None if it is not one."""
    return _share(result.claim_delta)


def _share(text: str) -> float | None:
    """A fraction as a number; it comes from a file."""
    if not _SHARE.fullmatch(text):
        return None
    try:
        return float(Fraction(text))
    except (ZeroDivisionError, OverflowError):
        return None


def proof_sentence(result: ProofResult) -> str:
    """The level, the program, the claim, the proved distance, and what was not followed."""
    says = {"law": _law, "privacy": _privacy, "independent values": _independent}
    return f"{WORDS[result.verdict]}: {says[question_of(result)](result)}{_left(result)}"


def _program(result: ProofResult) -> str:
    arguments = one_line(result.arguments, limit=120)
    return one_line(result.program, limit=200) + (f" ({arguments})" if arguments else "")


def _law(result: ProofResult) -> str:
    claim, program = one_line(result.claim, limit=200), _program(result)
    distance = _within(result.total_variation)
    match result.verdict:
        case "proved":
            return f"{program} has the law {claim}; their total variation is {distance}"
        case "refuted":
            return f"{program} does not have the law {claim}; their total variation is {distance}"
    allowed = fmt.at_most(result.tolerance or 0.0)
    return (
        f"whether {program} has the law {claim}. Their total variation is {distance}; "
        f"the tolerance is {allowed}"
    )


def _privacy(result: ProofResult) -> str:
    point = _claimed_point(result)
    at = f"δ({one_line(point.epsilon, limit=60)}) is {_within(point.delta)}"
    told = f"{_program(result)} is {{}}{claimed_of_proof(result)}: {at}"
    match result.verdict:
        case "proved":
            return told.replace("{}", "", 1)
        case "refuted":
            return told.replace("{}", "not ", 1)
    return f"whether {told.replace('{}', '', 1)}"


def _independent(result: ProofResult) -> str:
    program, claim = _program(result), one_line(result.claim, limit=200)
    shown = f"the values of {program} are independent: their joint law is a product"
    match result.verdict, result.disjoint:
        case "proved", _:
            far = _within(result.total_variation)
            each = f"; each has the law {claim}, and the sum of their total variations is {far}"
            return shown + (each if claim else "")
        case "refuted", "shown":
            low = fmt.at_least(result.total_variation.low if result.total_variation else 0.0)
            return f"the values of {program} do not have the law {claim}: one is ≥ {low} away"
        case "refuted", _:
            return f"the values of {program} depend on each other: {_reason(result)}"
    return f"{program}: {_reason(result)}"


def _reason(result: ProofResult) -> str:
    return one_line(result.reason, limit=500).rstrip(".")


def _left(result: ProofResult) -> str:
    if not result.residual:
        return ". Every path of the program was followed."
    return f". Paths of total probability {fmt.at_most(result.residual)} were not followed."


def _within(bounds: ProvedBounds | None) -> str:
    return "" if bounds is None else fmt.between(bounds.low, bounds.high)


def _claimed_point(result: ProofResult) -> ProvedPoint:
    """The first point is the claim's."""
    return result.profile[0]


def coin_sentence(result: ProofResult) -> str:
    """How many coins a call reads, in words."""
    count = result.coin_count
    if count is None:
        return ""
    if count.constant is not None:
        return f"every call reads {count.constant:,} coin bits"
    words = f"the number of coin bits varies, from {count.least:,}"
    if count.information is not None:
        words += f"; it tells {_within(count.information)} bits about the output"
    return words


def proof_facts(result: ProofResult) -> list[tuple[str, str]]:
    """Names and values for the top of the page, claim and distance first."""
    coins = one_line(result.coins, limit=200)
    spread = result.total_variation
    name = "Total variation"
    if question_of(result) == "independent values" and spread is not None:
        name = "Total variation: of one value at least, of all together at most"
    facts = [
        ("Claim", claimed_of_proof(result)),
        ("Arguments", one_line(result.arguments, limit=300)),
        (name, _within(spread)),
        ("Largest |ln(P/Q)|", _within(result.log_ratio) if result.law else ""),
        ("Tolerance", fmt.quantity(result.tolerance) if result.tolerance is not None else ""),
        *_privacy_facts(result),
        ("Independence of the values", result.disjoint),
        ("Probability of paths not followed", _residual(result)),
        ("Coins", f"the system’s, and {coins}" if coins else "the operating system’s"),
        ("Coin bits per call", _bits(result) if result.law else ""),
        ("Outputs", fmt.count(result.outputs)),
        ("States", fmt.count(result.states)),
        ("Time", fmt.seconds(result.seconds)),
    ]
    return [(name, value) for name, value in facts if value]


def _privacy_facts(result: ProofResult) -> Iterator[tuple[str, str]]:
    if result.profile:
        point = _claimed_point(result)
        yield f"δ at ε = {one_line(point.epsilon, limit=60)}", _within(point.delta)
    if result.epsilon is not None:
        low, high = result.epsilon.low, result.epsilon.high
        yield f"Least ε at δ = {claimed_delta(result)}", fmt.between(low, high, digits=6)


def _residual(result: ProofResult) -> str:
    return fmt.at_most(result.residual) if result.residual else "0: all were followed"


def _bits(result: ProofResult) -> str:
    count = result.coin_count
    if count is None:
        return ""
    if count.constant is not None:
        return f"{count.constant:,}, always"
    return f"{count.least:,} or more"


def verify_command(result: ProofResult) -> str:
    """The command that checks the certificate, in the folder of the result; empty without one."""
    if not result.certificate:
        return ""
    return f"dpaudit verify certificate {CERTIFICATE}"


def program_option(result: ProofResult) -> str:
    """The option of that command that also runs the program."""
    return f"--program {shlex.quote(one_line(result.program, limit=400))}"


def law_is_of(result: ProofResult) -> str:
    """Whose law is in the result: the program's, or what of it."""
    if result.profile:
        return " at the first input"
    whole = not result.law or result.law[0][0].startswith(("(", "["))
    return "" if whole or result.disjoint != "shown" else ": its first value"


Bar = tuple[str, float, float, ProvedBounds | None]


def outputs_of(result: ProofResult) -> list[Bar]:
    """Outputs, the likeliest first, with bounds of P, and of Q if a law is claimed."""
    claimed = result.claimed if len(result.claimed) == len(result.law) else ()
    return [
        (
            one_line(output, limit=80),
            low,
            min(1.0, math.nextafter(low + result.residual, 2.0)) if result.residual else low,
            claimed[i] if claimed else None,
        )
        for i, (output, low) in enumerate(result.law)
    ]


def log_ratio(low: float, high: float, claimed: ProvedBounds) -> tuple[float, float]:
    """Bounds of ln(P/Q).

    >>> log_ratio(0.5, 0.5, ProvedBounds(low=0.25, high=0.25))[0] < math.log(2)
    True
    """
    least = -math.inf if not low else math.inf if not claimed.high else math.log(low / claimed.high)
    most = -math.inf if not high else math.inf if not claimed.low else math.log(high / claimed.low)
    return least - _ROUNDING, most + _ROUNDING


def law_table(result: ProofResult) -> list[Column]:
    """The likeliest outputs with bounds of their probabilities, and of the claimed ones."""
    rows = outputs_of(result)
    columns = [
        Column("Output", [name for name, *_ in rows]),
        Column("P at least", [fmt.at_least(p, digits=10) for _, p, _, _ in rows], True),
        Column("P at most", [fmt.at_most(p, digits=10) for _, _, p, _ in rows], True),
    ]
    if not rows or rows[0][3] is None:
        return columns
    claimed = [(low, high, q) for _, low, high, q in rows if q is not None]
    ratios = [log_ratio(*row) for row in claimed]
    return [
        *columns,
        Column("Q at least", [fmt.at_least(q.low, digits=10) for *_, q in claimed], True),
        Column("Q at most", [fmt.at_most(q.high, digits=10) for *_, q in claimed], True),
        Column("ln(P/Q)", [_ends(*pair) for pair in ratios], True),
    ]


def _ends(low: float, high: float) -> str:
    if low == high:
        return fmt.quantity(low)
    return f"{fmt.at_least(low, digits=3)} … {fmt.at_most(high, digits=3)}"


def profile_table(result: ProofResult) -> list[Column]:
    """Bounds of δ(ε), the claim's first."""
    claim = [p.epsilon for p in result.profile[:1]]
    points = [*result.profile[:1], *(p for p in result.profile[1:] if p.epsilon not in claim)]
    return [
        Column("ε", [one_line(p.epsilon, limit=60) for p in points]),
        Column("δ at least", [fmt.at_least(p.delta.low, digits=6) for p in points], True),
        Column("δ at most", [fmt.at_most(p.delta.high, digits=6) for p in points], True),
    ]


def coins_table(result: ProofResult) -> list[Column]:
    """The counterexample's coins, in the order of the requests."""
    coins = result.counterexample.coins if result.counterexample else ()
    return [
        Column("Request", [fmt.count(i) for i in range(1, len(coins) + 1)]),
        Column("One of", [_whole(count) for count, _ in coins], True),
        Column("Coin (from 0)", [_whole(value) for _, value in coins], True),
    ]


def _whole(value: int | str) -> str:
    return one_line(str(value), limit=60)


def determinism_sentence(result: DeterminismResult) -> str:
    """What was seen, with the program and the number of runs."""
    name = _symbol(result)
    runs = f"in {fmt.count(result.runs)} runs with chosen coins"
    if result.verdict == "finding":
        first = one_line(result.findings[0] if result.findings else "no reason given", limit=400)
        return f"Finding: a value of {name} is not a function of coins of its own: {first}."
    if result.verdict == "no-finding":
        return f"No finding: {runs} each value of {name} was a function of coins of its own."
    what = [one_line(w, limit=200) for w in result.not_controlled]
    more = f"; and {len(what) - 1} more" if len(what) > 1 else ""
    return (
        f"Inconclusive: {runs}, something that {name} uses could not be controlled: "
        f"{what[0] if what else 'no reason given'}{more}."
    )


def _symbol(result: DeterminismResult) -> str:
    path = one_line(result.library, limit=200).rpartition("/")[2]
    return f"{one_line(result.symbol, limit=100)} in {path}"


def determinism_facts(result: DeterminismResult) -> list[tuple[str, str]]:
    """Names and values for the top of the page."""
    facts = [
        ("Library", one_line(result.library, limit=300)),
        ("Function", one_line(result.symbol, limit=200)),
        ("Runs", fmt.count(result.runs)),
        ("Values with coins", fmt.count(len(result.coin_bytes))),
        ("Coins shared by values", _shared(result)),
        ("Time", fmt.seconds(result.seconds)),
    ]
    return [(name, value) for name, value in facts if value]


def _shared(result: DeterminismResult) -> str:
    if any("shared by several values" in finding for finding in result.findings):
        return "yes: see what was found"
    if any("several values" in what for what in result.not_controlled):
        return "not decided"
    return "none in these runs" if result.verdict == "no-finding" else ""


def coins_facts(result: DeterminismResult) -> tuple[list[Column], list[Column]]:
    """What was interposed, and the coins of each value of a vector."""
    asked, taken = result.sources.items(), result.coin_bytes
    return (
        [
            Column("Asked for", [printable(name, limit=100) for name, _ in asked]),
            Column("Times in one run", [fmt.count(times) for _, times in asked], True),
        ],
        [
            Column("Value", [fmt.count(t.value) for t in taken], True),
            Column("Bytes of coins at least", [fmt.count(t.least) for t in taken], True),
            Column("Bytes of coins at most", [fmt.count(t.most) for t in taken], True),
        ],
    )
