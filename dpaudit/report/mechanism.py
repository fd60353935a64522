"""The ε audit of a mechanism in words and tables."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from dpaudit.documents import convert_value
from dpaudit.report import format as fmt
from dpaudit.report.sentences import sandbox_level
from dpaudit.report.tables import Column
from dpaudit.results.foreign import RefusedError
from dpaudit.results.text import printable
from dpaudit.types import Interval, MechanismResult, Number, TestResult, to_dict

__all__ = [
    "bounds_table",
    "claim_text",
    "claimed_pair",
    "events_table",
    "is_implied",
    "last_bits_excluded",
    "mechanism_facts",
    "mechanism_sentence",
    "only_mu",
]

_MOST_INTERVALS = 12
_Pair = tuple[Number, Number]
T = TypeVar("T")


def mechanism_sentence(result: MechanismResult, *, rest: str = "below") -> str:
    """The result of an ε audit in one sentence: the claim, and what was shown.

    ``rest`` says where what a pass cannot exclude stands.
    """
    name, claim = printable(result.mechanism, limit=200), claim_text(result)
    parts = [f"{_shown(result.epsilon, 'ε')} at δ = {fmt.quantity(result.claim_delta)}"]
    if result.stated is not None and result.stated.says:
        parts.insert(0, printable(result.stated.says, limit=200))
    if result.claim_mu is not None:
        parts.insert(0 if only_mu(result) else 1, _shown(result.mu, "μ"))
    shown = " and ".join(parts)
    confidence = _confidence(result)
    attack = printable(result.attack, limit=200)
    by = f", by the attack {attack}{_right(result)}" if attack else ""
    if result.verdict == "finding":
        found = [t.name for t in result.tests if t.finding]
        low_bits = found and all(n.startswith("low bits") for n in found)
        only = ", by the low bits of its releases" if low_bits else ""
        return f"Finding: {name} is not {claim}{only}: we can show {shown}{confidence}{by}."
    if result.verdict == "no-finding":
        return (
            f"No finding{_excluded(result)}: we can show {shown}{confidence}{by}; that is "
            f"consistent with the claim of {name}, {claim}; what this cannot exclude is {rest}."
        )
    reason = printable(result.reason or "no reason given", limit=600).rstrip(".")
    return f"Inconclusive: {reason}; this says nothing about {name} either way."


def last_bits_excluded(result: MechanismResult) -> bool:
    """Whether the audit was told (``--real-numbers``) to leave the last bits out of its verdict."""
    advisory = any(t.advisory and t.name.startswith("low bits") for t in result.tests)
    return advisory or result.details.get("last_bits_excluded") is True


def _excluded(result: MechanismResult) -> str:
    return " (last bits excluded)" if last_bits_excluded(result) else ""


def mechanism_facts(result: MechanismResult) -> list[tuple[str, str]]:
    """Names and values for the top of the page, the claimed and the shown ε first."""
    delta = fmt.quantity(result.claim_delta)
    used, asked = fmt.count(result.samples), fmt.count(result.samples_requested)
    vectors = result.neighbours
    stated = result.stated
    claimed = "ε that the claimed μ implies" if only_mu(result) else "ε claimed"
    facts = [
        ("Claimed", printable(stated.claim, limit=200) if stated else fmt.NOTHING),
        ("Shown", printable(stated.says, limit=200) or fmt.NOTHING if stated else fmt.NOTHING),
        (
            "ε that the claim implies" if stated else claimed,
            f"{fmt.quantity(result.claim_epsilon)} at δ = {delta}",
        ),
        (f"ε shown{_confidence(result)}", _shown(result.epsilon, "")),
        (
            f"δ shown at {'this' if is_implied(result) else 'the claimed'} ε{_by(result.delta)}",
            _shown(result.delta, ""),
        ),
        ("μ claimed", fmt.quantity(result.claim_mu)),
        (f"μ shown{_by(result.mu)}", _shown(result.mu, "")),
        ("Method", printable(result.method, limit=60)),
        ("Last bits", "excluded (--real-numbers)" if last_bits_excluded(result) else fmt.NOTHING),
        ("Attack", printable(result.attack or fmt.NOTHING, limit=200)),
        ("Neighbours identified", _guessed(result)),
        ("Releases possible at their true value", _feasible(result)),
        (
            "Neighbours",
            _datasets(result) or _neighbours(vectors),
        ),
        (
            "Releases" if vectors else "Canaries",
            used if used == asked else f"{used} of {asked} requested",
        ),
        ("Sandbox", sandbox_level(result) or fmt.NOTHING),
        ("α for everything together", fmt.quantity(result.alpha)),
        ("Time", fmt.seconds(result.seconds)),
    ]
    return [(name, value) for name, value in facts if value != fmt.NOTHING]


def _datasets(result: MechanismResult) -> str:
    shown = result.details.get("datasets", ())
    known = isinstance(shown, (list, tuple))
    return " and ".join(printable(str(one), limit=200) for one in shown) if known else ""


def _neighbours(vectors: Sequence[Sequence[Number]]) -> str:
    if vectors and not any(vectors):
        return "the two recordings"
    return " and ".join(printable(fmt.setting(v), limit=80) for v in vectors) or fmt.NOTHING


def bounds_table(result: MechanismResult) -> list[Column]:
    """One row per counted event and for the curve; with an attack, also each event's frequency."""
    tests = result.tests
    return [
        Column("Test", [printable(t.name, limit=200) for t in tests]),
        *(_probabilities(tests) if result.attack else []),
        Column("Shown", [_shown_by(t) for t in tests], True),
        Column("p", [fmt.p_value(t.p) for t in tests], True),
        Column("Adjusted p", [_adjusted(t) for t in tests], True),
        Column("Counted", [printable(t.effect, limit=400) or fmt.NOTHING for t in tests]),
        Column(
            "Finding", ["yes" if t.finding else "advice" if t.advisory else "no" for t in tests]
        ),
    ]


def _probabilities(tests: Sequence[TestResult]) -> list[Column]:
    """How often the event happened at each neighbour: v0 is the first one."""
    shares = [_shares(t.details) for t in tests]
    return [Column(f"P(E | v{side})", [pair[side] for pair in shares], True) for side in (0, 1)]


def _read(values: Mapping[str, Any], name: str, cls: type[T]) -> T | None:
    """An entry of ``details``, which come from a test or an attack; None if not of type ``cls``."""
    try:
        return convert_value(to_dict(values[name]), cls) if name in values else None
    except RefusedError:
        return None


def _shares(details: Mapping[str, Any]) -> tuple[str, str]:
    counts, at = _read(details, "counts", dict[str, _Pair]), details.get("likelier_at")
    if counts is None or at not in (0, 1):
        return fmt.NOTHING, fmt.NOTHING
    likelier, other = (_share(counts.get(key)) for key in ("likelier", "other"))
    return (likelier, other) if at == 0 else (other, likelier)


def _share(counted: _Pair | None) -> str:
    """A pair (count, total) as a share."""
    if not counted or not 0 < counted[1] < math.inf:
        return fmt.NOTHING
    return fmt.percent(counted[0] / counted[1])


def _guessed(result: MechanismResult) -> str:
    """An attack's share of correct guesses, with its interval."""
    success = _read(result.details, "success", dict[str, Any]) or {}
    right, of = _read(success, "right", float), _read(success, "of", float)
    interval = _read(success, "interval", Interval)
    if right is None or not of or not of < math.inf:
        return fmt.NOTHING
    low, high = (interval.low, interval.high) if interval else (None, None)
    return fmt.proportion(right / of, low, high)


def _right(result: MechanismResult) -> str:
    guessed = _guessed(result)
    if guessed == fmt.NOTHING:
        return ""
    return f", which identifies the neighbour in {guessed} of releases"


def _feasible(result: MechanismResult) -> str:
    """How many releases a support attack considers possible at the values they were made from."""
    truth = _read(result.details, "feasible_at_truth", dict[str, _Pair]) or {}
    pairs = [truth[which] for which in ("first", "second") if which in truth]
    texts = [f"{fmt.count(some)} of {fmt.count(of)}" for some, of in pairs]
    return " and ".join(texts) or fmt.NOTHING


def events_table(result: MechanismResult) -> list[Column]:
    """The learned events, in full precision, so that they can be counted again."""
    events = [
        (t, pieces)
        for t in result.tests
        if (pieces := _read(t.details, "intervals", list[_Pair])) is not None
    ]
    return [
        Column("Test", [printable(t.name, limit=200) for t, _ in events]),
        Column(
            "Statistic of a release",
            [printable(t.details.get("statistic", ""), limit=200) for t, _ in events],
        ),
        Column("Event: it lies in", [_intervals(pieces) for _, pieces in events]),
    ]


def _intervals(pairs: Sequence[_Pair]) -> str:
    lines = [f"[{_exact(a)}, {_exact(b)})" for a, b in pairs[:_MOST_INTERVALS]]
    if more := len(pairs) - len(lines):
        lines.append(f"… and {more:,} more, in result.json")
    return "\n".join(lines) or fmt.NOTHING


def _exact(value: object) -> str:
    x = fmt.number(value)
    return fmt.NOTHING if x is None else fmt.quantity(x, digits=17)


def claim_text(result: MechanismResult) -> str:
    """What is claimed, as it was stated: ``(1, 1e-05)-DP``, ``1-GDP``, ``0.5-zCDP``."""
    mu = result.claim_mu
    if result.stated is not None:
        return printable(result.stated.claim, limit=200)
    if only_mu(result):
        return f"{fmt.quantity(mu)}-GDP"
    pair = claimed_pair(result)
    return pair if mu is None else f"both {pair} and {fmt.quantity(mu)}-GDP"


def claimed_pair(result: MechanismResult) -> str:
    """``(1, 1e-05)-DP``: what is claimed of ε and δ, or what a claimed μ implies."""
    return f"({fmt.quantity(result.claim_epsilon)}, {fmt.quantity(result.claim_delta)})-DP"


def only_mu(result: MechanismResult) -> bool:
    """Whether μ-GDP alone was claimed, so that (ε, δ) is what it implies."""
    return result.claim_mu is not None and result.details.get("claimed") == "mu"


def is_implied(result: MechanismResult) -> bool:
    """Whether (ε, δ) is not what was claimed but what the claim implies."""
    return only_mu(result) or result.stated is not None


def _shown(interval: Interval | None, letter: str) -> str:
    """A lower bound, rounded down; a bound of zero shows nothing."""
    return fmt.NOTHING if interval is None else f"{letter} {_at_least(interval.low)}".strip()


def _by(interval: Interval | None) -> str:
    """That the trade-off curve alone shows it: other events, such as low bits, bound only ε."""
    alone = interval is not None and interval.method.startswith("trade-off curve")
    return ", by the trade-off curve" if alone else ""


def _at_least(low: float) -> str:
    return fmt.bounds(low) if low > 0 else "≥ 0 (nothing)"


def _shown_by(test: TestResult) -> str:
    low = test.statistic if test.interval is None else test.interval.low
    return f"{printable(test.unit, limit=10)} {_at_least(low)}".replace(" (nothing)", "").strip()


def _adjusted(test: TestResult) -> str:
    return fmt.NOTHING if test.advisory else fmt.p_value(test.p_adjusted)


def _confidence(result: MechanismResult) -> str:
    return f" ({100 * (1 - result.alpha):.10g} % confidence)"
