"""What a document means for a reader without statistics: two sentences per kind of finding.

The first says which harm and how sure it is, the second what to do. `dpaudit explain TEST` says
more about one test.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from dpaudit.deployments.apple.document import AppleDocument
from dpaudit.deployments.attribution.document import AttributionDocument
from dpaudit.deployments.census.document import CensusDocument
from dpaudit.documents import Arm, ExperimentDocument, MeasurementsDocument
from dpaudit.explanations import topic_of
from dpaudit.report import format as fmt
from dpaudit.report.deployment import upwards
from dpaudit.report.mechanism import claim_text, last_bits_excluded, only_mu
from dpaudit.report.proofs import question_of
from dpaudit.report.rows import (
    above_chance,
    arm_labels,
    attacks_of,
    exceeds_claim,
    has_key,
    rate_of,
    shown_on,
    success_allowed,
)
from dpaudit.report.sentences import strongest_attack
from dpaudit.report.tables import sorted_tests
from dpaudit.results.text import printable
from dpaudit.types import (
    AuditResult,
    DeterminismResult,
    MechanismResult,
    ProofResult,
    TestResult,
)

__all__ = [
    "Meaning",
    "attribution_meaning",
    "audit_meaning",
    "census_meaning",
    "deployment_meaning",
    "determinism_meaning",
    "experiment_meaning",
    "kind_of",
    "measurements_meaning",
    "mechanism_meaning",
    "proof_meaning",
]

_MANY_TO_ONE = 1e6
"""Odds and numbers of audits above this are told as "more than a million"."""


class Meaning(NamedTuple):
    """A kind of finding: a heading, the tests that found it, two sentences, and where to read on.

    ``found`` is empty where the sentences are about the whole document; ``note`` stands above.
    """

    heading: str
    says: str
    found: str = ""
    topics: tuple[str, ...] = ()
    note: str = ""


class Kind(NamedTuple):
    """A kind of harm, and what to do about it."""

    heading: str
    harm: str
    todo: str


KINDS = {
    "strength": Kind(
        "The noise is not as strong as claimed",
        "where the noise is weaker than claimed, each person is less protected than promised",
        "Do not rely on the claimed ε until the scale has been corrected, then audit again.",
    ),
    "law": Kind(
        "The noise follows another law",
        "the calculation behind the claimed ε is about other noise than this",
        "Find out which law is drawn and compute ε for it, or replace the sampler; then audit "
        "again.",
    ),
    "values": Kind(
        "Single values can give the answer away",
        "some results are possible with one true answer only, so one release may reveal it",
        "Use a sampler made for computer arithmetic (discrete noise, or rounding to a grid), and "
        "audit again.",
    ),
    "dependence": Kind(
        "Part of the noise can be predicted",
        "noise that follows from other noise can be subtracted, so several results together "
        "reveal more than promised",
        "Draw each value independently, from one well-seeded generator, and audit again.",
    ),
    "predictable": Kind(
        "The noise can be computed",
        "whoever guesses its seed, or sees enough of it, computes the rest of the noise, subtracts "
        "it and has the true answers",
        "Stop using this sampler until its generator is cryptographic and seeded by the operating "
        "system, and count earlier results as exposed.",
    ),
    "reuse": Kind(
        "The same noise was used twice",
        "whoever has two results with the same noise subtracts them and gets the difference of the "
        "true answers exactly",
        "Stop using this sampler until its generator is seeded once, and count earlier results as "
        "exposed.",
    ),
    "hidden": Kind(
        "The noise has a hidden structure",
        "whoever knows this structure can remove most of the noise and read the data, while the "
        "noise looks honest to everybody else",
        "Stop using this sampler, keep the audited file, and have its source examined; a finding "
        "does not say whether it was put there on purpose.",
    ),
    "changes": Kind(
        "The noise changes with the call or the value",
        "some results have other noise than the rest, and those whose data are in them may be "
        "less protected than promised",
        "Find the calls or values that the details name, correct what differs there, and audit "
        "again.",
    ),
    "last-bits": Kind(
        "The last digits give the answer away",
        "the last bits of a published number show which data it was made from, so one release "
        "in full precision can reveal whether a person is in the data",
        "Round releases to a coarse grid before publishing, or use a mechanism on whole numbers, "
        "and count earlier releases in full precision as exposed.",
    ),
    "messages": Kind(
        "The last digits carry more than noise",
        "the last digits follow a pattern that no noise has, so they can carry something out with "
        "every result that is published in full",
        "Round results to a coarse grid before they are published, and have the sampler's source "
        "examined; a finding does not say whether the pattern was put there on purpose.",
    ),
    "time": Kind(
        "The time of a call gives the answer away",
        "whoever can measure how long a release takes learns more about the data than promised",
        "Hide the time of a call from everyone who sees results, or use a sampler whose time does "
        "not depend on its noise.",
    ),
    "epsilon": Kind(
        "Less privacy than claimed",
        "",  # depends on the numbers
        "Do not publish under the claimed ε: check scale and sensitivity with whoever wrote it, "
        "and audit again.",
    ),
    "other": Kind(
        "The claim does not hold",
        "what was drawn contradicts the claim, so the promised protection is not shown to hold",
        "Do not rely on the claim until the cause is known, then audit again.",
    ),
}
"""All kinds of harm that an audit can find."""

_SOME_DIRECTION = Kind(
    "The noise differs along some direction",
    "along one direction the noise is not as claimed, which noise of another strength or law does "
    "as well as a structure that somebody can read data through",
    "Correct what is above, then audit again: if this alone is left, treat it as a possible "
    "backdoor.",
)

_KIND_OF = {
    **dict.fromkeys(("moments", "norms", "coordinates", "covariance", "projections"), "strength"),
    **dict.fromkeys(("goodness-of-fit", "tails"), "law"),
    **dict.fromkeys(("support", "granularity"), "values"),
    **dict.fromkeys(("correlation", "spectrum", "kernel", "order"), "dependence"),
    **dict.fromkeys(
        ("predictable", "congruential", "linear-complexity", "state-recovery"), "predictable"
    ),
    **dict.fromkeys(("repeats", "forks"), "reuse"),
    **dict.fromkeys(("hidden-direction", "keyless-search"), "hidden"),
    **dict.fromkeys(("drift", "triggers", "value-dependence"), "changes"),
    **dict.fromkeys(("last-digits",), "messages"),
    **dict.fromkeys(("timing", "timing-attack"), "time"),
    **dict.fromkeys(
        ("low-bits", "reach", "laplace-support", "pair-inversion", "bit-features"), "last-bits"
    ),
    **dict.fromkeys(("event", "trade-off-curve", "one-run", "sensitivity"), "epsilon"),
}


def kind_of(test: str) -> str:
    """The kind of harm that a finding of this test is about; a key of :data:`KINDS`.

    >>> kind_of("moments"), kind_of("low bits, first neighbour over second"), kind_of("mine")
    ('strength', 'last-bits', 'other')
    """
    return _KIND_OF.get(topic_of(test), "other")


def audit_meaning(result: AuditResult) -> list[Meaning]:
    """What an audit of a sampler means."""
    if result.verdict == "finding":
        told = _findings(result.tests, honest="honest noise")
        note = "What follows may be a consequence of the first."
        return [*told[:1], *(one._replace(note=note) for one in told[1:2]), *told[2:]]
    if result.verdict == "no-finding":
        sized = any(fmt.number(s.size) is not None for s in result.cannot_rule_out)
        says = f"Nothing in {fmt.count(result.samples)} values contradicts the claim"
        if sized:
            says += (
                "; a flaw larger than the sizes under “What a pass cannot exclude” would have been "
                "found nine times in ten"
            )
        says += (
            ". This is not proof of honesty: a backdoor that needs a key may show in no number of "
            "values, so decide whether you trust whoever supplies the sampler."
        )
        return [Meaning("No contradiction was found", says)]
    return [_no_verdict()]


def mechanism_meaning(result: MechanismResult) -> list[Meaning]:
    """What an audit of a whole mechanism means."""
    if result.verdict == "finding":
        honest = "a mechanism that keeps its claim"
        return _findings(result.tests, honest=honest, claimed=result.claim_epsilon)
    if result.verdict == "inconclusive":
        return [_no_verdict()]
    shown = result.epsilon.low
    bound = f"an ε of at least {fmt.bounds(shown)[2:]}" if shown > 0 else "no privacy loss"
    what = "these canaries" if not result.neighbours else "these two inputs"
    claimed = f"ε = {fmt.quantity(result.claim_epsilon)}"
    if only_mu(result):
        claimed = f"μ = {fmt.quantity(result.claim_mu)}"
    if result.stated is not None:
        claimed = claim_text(result)
    says = (
        f"On {what} the releases show {bound}, and {claimed} "
        "is claimed: the claim may be true, but other inputs and other ways to look at a release "
        "were not tried. "
    )
    if last_bits_excluded(result):
        says += (
            "The last bits of releases were left out of this verdict: round releases before you "
            "publish them, or repeat the audit without --real-numbers."
        )
    else:
        says += "Ask for the proof of the claim too; an audit can refute a claim, not prove it."
    return [Meaning("The claim was not refuted", says)]


def proof_meaning(result: ProofResult) -> list[Meaning]:
    """What a proof or a refutation means, for who does not read programs."""
    if result.verdict == "refuted":
        heading = "Values of one call depend on each other"
        if result.disjoint != "refuted":
            heading = "The claim is false"
        return [Meaning(heading, _refuted(result))]
    if result.verdict == "undecided":
        says = (
            "The claim was neither proved nor refuted within the limits, so this is not a pass. "
            "Repeat it with a longer --time-limit or a smaller --residual, or run dpaudit audit."
        )
        return [Meaning("Not decided", says)]
    what = {
        "law": "the program returns each output with the claimed probability",
        "independent values": "no value that one call returns tells anything about its others",
        "privacy": "no output tells these two inputs apart better than is claimed",
    }[question_of(result)]
    says = (
        f"Up to the distance stated above, {what}. This was derived from all paths of the "
        "program’s text but those stated above, not from a sample: there is no error probability. "
        "It holds if the coins are perfect, if Python does as documented, and for these files and "
        "arguments only: compare the SHA-256 below with the files that you run."
    )
    told = [Meaning("A proof about the program’s text", says)]
    if question_of(result) == "privacy":
        says = "Other pairs of inputs were not looked at: choose the pair that differs most."
        told.append(Meaning("These two inputs only", says))
    return told


def _refuted(result: ProofResult) -> str:
    said = "This is not a matter of chance: it was derived from the program’s text. "
    if result.counterexample is not None:
        said += "Python itself, run on the coins below, returned the output in question. "
    if result.disjoint == "refuted":
        said += "Whoever learns one value of a call learns something about the others. "
    if question_of(result) == "privacy":
        said += "Whoever sees a release can tell the two inputs apart better than is claimed. "
    return f"{said}Do not rely on the claim until the program has been corrected and proved again."


def determinism_meaning(result: DeterminismResult) -> list[Meaning]:
    """What runs with chosen coins mean."""
    if result.verdict == "finding":
        says = (
            "Something other than fresh coins decides a value, or several values share coins, so "
            "noise may be predictable or repeat. Have the source examined before you use it; a "
            "finding says nothing about intent."
        )
        return [Meaning("Values depend on more than coins of their own", says)]
    if result.verdict == "inconclusive":
        says = (
            "The function uses something that the auditor could not answer in its place, so the "
            "runs cannot show where its values come from. This is neither a pass nor a finding."
        )
        return [Meaning("No verdict", says)]
    says = (
        "With the same coins the function gave the same values, and no coin reached two of them, "
        "in all runs. That is evidence against stored state and shared seeds, not a proof: other "
        "coins were not tried, and whether the values follow the claimed law was not looked at "
        "(dpaudit audit does that)."
    )
    return [Meaning("Each value came from coins of its own", says)]


def experiment_meaning(document: ExperimentDocument) -> list[Meaning]:
    """What the attacks of an experiment mean, arm by arm where they show too much."""
    rows = document.rows
    attacked = [row for row in rows if attacks_of(row)]
    if not attacked:
        return []
    stopped = not all(map(exceeds_claim, attacked))
    told = [
        _of_attack(row, label, stopped=stopped)
        for row, label in zip(rows, arm_labels(rows), strict=True)
        if exceeds_claim(row)
    ]
    if len(told) > _MOST_ARMS:
        more = f"{len(told) - _MOST_ARMS:,} more arms show more than is claimed: see the table."
        told = [*told[:_MOST_ARMS], Meaning("More of the same", more)]
    if told:
        return told
    if any(above_chance(a) for row in attacked for a in attacks_of(row)):
        row = max(attacked, key=shown_on)
        allowed = success_allowed(row)
        claimed = fmt.epsilon(row.epsilon_claimed)
        best = rate_of(strongest_attack(row))
        limit = "this" if allowed is None else f"up to {fmt.percent(allowed)}"
        says = (
            f"An attack is right in {best} of releases and a claimed ε = {claimed} allows {limit}, "
            "so nothing here contradicts the claim. If that is too much for the people in the "
            "data, choose a smaller ε."
        )
        return [Meaning("Attacks gain no more than the claim permits", says)]
    says = (
        "None of the attacks tried here is better than guessing, on any arm. Other attacks may be "
        "better: the bounds of ε in the table, where there are any, hold against all of them."
    )
    return [Meaning("No attack tried here works", says)]


def measurements_meaning(document: MeasurementsDocument) -> list[Meaning]:
    """What measurements mean: how they compare with published values."""
    if not document.misses:
        return []
    some = len(document.misses)
    says = (
        f"{some:,} of {len(document.rows):,} measured {'number' if some == 1 else 'numbers'} "
        f"{'differs' if some == 1 else 'differ'} from the published one by more than chance in a "
        "single comparison. That is no finding about a product: compare with how many "
        "differences chance alone makes, which the sentence above says."
    )
    return [Meaning("Some numbers differ from the published ones", says)]


def deployment_meaning(document: AppleDocument) -> list[Meaning]:
    """What the configuration of a deployed system means for its users."""
    if document.verdict == "inconclusive":
        return [_no_verdict()]
    permitted = fmt.number(document.ledger.permitted.per_day) or 0.0
    says = (
        f"A device may reveal up to ε = {upwards(permitted)} about its user each day, and every "
        f"day adds as much: {_odds(permitted)} in one day. Compare this with what users were told, "
        "and limit the sum over all days, not only the amount per day."
    )
    told = [Meaning("What users may lose", says)]
    more = [s for s in document.shown if s.verdict == "shows more"]
    serious = sum(f.serious for f in document.findings)
    if more:
        kinds = f"{len(more):,} {'kind' if len(more) == 1 else 'kinds'} of record"
        says = (
            f"The bits of {kinds} were randomised less than is claimed, with 95 % confidence for "
            "all intervals together, so they reveal more about the user. Ask the operator which "
            "randomisation its code uses, and treat submitted records as less private than stated."
        )
        told.append(Meaning("Records are less private than claimed", says))
    if serious > len(more):
        says = (
            "Files of the system contradict what is announced, or each other, to the "
            "disadvantage of the user; each is a fact about a file, without chance. Ask the "
            "operator about each of them, as listed below."
        )
        told.append(Meaning("Files contradict the announcement", says))
    return told


def attribution_meaning(document: AttributionDocument) -> list[Meaning]:
    """What an audit of ad measurement means for the people measured."""
    if document.verdict == "inconclusive":
        return [_no_verdict()]
    told = []
    if document.verdict == "no-finding" and document.tests:
        says = (
            "The recorded reports do not contradict the randomised response and the noise that "
            "the specification requires. That is about these reports, made as they were recorded."
        )
        told.append(Meaning("The noise seen is as specified", says))
    if any(t.finding for t in document.tests):
        says = (
            "The ε of a source, or of a summary report, is computed from the specified law; where "
            "outputs are drawn otherwise, or noise is smaller or related, people are less "
            "protected than stated. Check first that the true outputs were recorded correctly, "
            "then how the random numbers are made."
        )
        told.append(Meaning("The noise is not as specified", says))
    if any(f.serious for f in document.findings):
        says = (
            "Bounds, budgets or limits are exceeded, as listed below: sources lose more than the "
            "specification allows. Each is a fact about the files, or a bound that holds at the "
            "stated level."
        )
        told.append(Meaning("More is spent than allowed", says))
    return told


def census_meaning(document: CensusDocument) -> list[Meaning]:
    """What the noise of noisy measurement files means for the people counted."""
    if document.verdict == "inconclusive":
        return [_no_verdict()]
    if document.verdict == "no-finding":
        says = (
            "In the cells whose true count is known, the noise is as the files state. Those cells "
            "were drawn by the same program as all others, but nobody outside can look at others."
        )
        return [Meaning("The noise seen is as stated", says)]
    says = (
        "The privacy guarantee is computed from the stated variances and from independent "
        "discrete Gaussian noise; where the noise is smaller, related or of another law, the "
        "people counted are less protected than stated. Check first that the structural zeros "
        "are zeros in these data, then ask the publisher how this noise was drawn."
    )
    return [Meaning("The noise is not what the files state", says)]


_MOST_ARMS = 4


def _no_verdict() -> Meaning:
    says = (
        "The audit ended without a verdict: this is neither a pass nor a finding. Remove the "
        "cause that the sentence above names, and repeat the audit."
    )
    return Meaning("No verdict", says)


def _findings(
    tests: Sequence[TestResult], *, honest: str, claimed: float = math.inf
) -> list[Meaning]:
    """One paragraph per kind of finding, the most certain first.

    ``honest`` is what would seldom look like this, ``claimed`` the ε of a mechanism.
    """
    kinds: dict[str, list[TestResult]] = {}
    for test in sorted_tests(tests):
        if test.finding:
            kinds.setdefault(kind_of(test.name), []).append(test)
    first = next(iter(kinds), "")
    return [
        _of_kind(_named(name, found, first), found, honest=honest, claimed=claimed)
        for name, found in kinds.items()
    ]


def _named(name: str, found: Sequence[TestResult], first: str) -> Kind:
    """The kind; a direction with other noise, after something else, is mostly its consequence."""
    if name == "hidden" != first and all(t.name == "hidden-direction" for t in found):
        return _SOME_DIRECTION
    return KINDS[name]


def _of_kind(kind: Kind, found: Sequence[TestResult], *, honest: str, claimed: float) -> Meaning:
    told = kind.harm or _harm_of_epsilon(found, claimed) or KINDS["other"].harm
    if kind is KINDS["strength"]:
        told = _direction(found) or told
    told = told[:1].upper() + told[1:]
    names = "; ".join(printable(t.name, limit=100) for t in found)
    topics = tuple(dict.fromkeys(topic_of(t.name) for t in found))
    sure = _sure(min(t.p_adjusted for t in found))
    says = f"{told}; {honest} would look like this in {sure}. {kind.todo}"
    return Meaning(kind.heading, says, names, topics)


def _direction(found: Sequence[TestResult]) -> str:
    """Which way the strength differs, if the interval of a scale says it."""
    scale = next((t.interval for t in found if t.name == "moments" and t.unit), None)
    if scale is None or not (math.isfinite(scale.low) and math.isfinite(scale.high)):
        return ""
    if 0 < scale.high < 1:
        return "the noise is weaker than claimed, so each person is less protected than promised"
    if scale.low > 1:
        return (
            "the noise is stronger than claimed, which costs accuracy but does not by itself "
            "reduce privacy"
        )
    return ""


def _sure(p: float) -> str:
    """How sure, for a reader without statistics: in how many audits chance alone does this.

    >>> _sure(0.004), _sure(1e-30)
    ('at most 1 of 250 audits', 'less than one of a million audits')
    """
    if not p > 1 / _MANY_TO_ONE:
        return "less than one of a million audits"
    return f"at most 1 of {math.floor(1 / p):,} audits"


def _harm_of_epsilon(found: Sequence[TestResult], claimed: float) -> str:
    shown = max(
        (t.statistic if t.interval is None else t.interval.low for t in found if t.unit == "ε"),
        default=0.0,
    )
    if not shown > claimed:
        return ""
    return (
        "whoever sees a release can tell data with a person from data without them better than "
        f"claimed: {_odds(shown)}, where the claim allows {_ratio(claimed)} : 1"
    )


def _odds(epsilon: float) -> str:
    return f"odds of 1 : 1 can become {_ratio(epsilon)} : 1"


def _ratio(epsilon: float) -> str:
    """e^ε, to two digits, rounded down.

    >>> _ratio(1.0), _ratio(0.1), _ratio(20.0)
    ('2.7', '1.1', 'more than a million')
    """
    if epsilon >= math.log(_MANY_TO_ONE):
        return "more than a million"
    odds = math.exp(epsilon)
    step = 10.0 ** (math.floor(math.log10(odds)) - 1)
    return fmt.quantity(math.floor(odds / step + 1e-9) * step)


def _of_attack(row: Arm, label: str, *, stopped: bool) -> Meaning:
    attack, allowed = strongest_attack(row), success_allowed(row)
    who = "The key holder" if has_key(row, attack) else "An attacker"
    right = f"{who} names the right one of two data sets in {rate_of(attack)} of releases"
    if allowed is not None:
        right += f", where the claimed ε = {fmt.epsilon(row.epsilon_claimed)} allows "
        right += f"{fmt.percent(allowed)} at most"
    sure = 100 * attack.interval.confidence
    todo = "Do not use this noise as it is"
    if stopped:
        todo += ": on other arms of this page no attack shows more than the claim"
    says = f"{right}; the interval holds with {sure:.3g} % confidence. {todo}."
    return Meaning(f"More than claimed is read from {label}", says)
